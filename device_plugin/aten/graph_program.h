// A graph as one program: takes tensors and numbers, makes tensors, runs on the queue of its device like an operator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device_plugin/aten/plan.h"

namespace trnsim::aten {

// A number of a call; which of the two counts, the program knows from the type it was recorded with.
struct CallNumber {
  bool is_integer = false;
  double real = 0;
  int64_t integer = 0;
};

class GraphProgram : public Plan {
 public:
  struct Input {
    TensorMeta meta;
    int32_t argument = -1;  // position among the tensors of the call; -1: `captured`
    at::Tensor captured;
    bool written = false;  // the program changes it
  };
  // A result is a window on what an output or an input occupies.
  struct Result {
    enum class Kind : uint8_t { kNone, kOutput, kInput, kNoValues } kind = Kind::kNone;
    int32_t index = -1;  // of outputs_ or inputs_
    bool whole = true;   // the output or input itself
    TensorMeta meta;
    int64_t offset = 0;  // in elements, from element 0 of the output or input
  };

  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& tensors,
                                     const std::vector<CallNumber>& numbers);

  bool compiled() const { return compiled_; }  // when it was made; otherwise it was found in a cache
  uint64_t compile_us() const { return compile_us_; }
  size_t num_nodes() const { return num_nodes_; }

 private:
  friend class Recorder;
  struct NumberUse {
    int32_t slot = 0, number = 0;
    isa::Dtype dtype = isa::Dtype::kF32;
    bool converts = false;
    bool inverse = false;  // the slots of the parts of the number's inverse
    c10::ScalarType to = c10::ScalarType::Float;
  };
  struct RandomUse {
    int32_t slot = 0;
    uint64_t words = 0;
  };

  at::Tensor checked(const Input& input, const at::Tensor& t, size_t position) const;

  size_t num_tensors_ = 0, num_numbers_ = 0, num_nodes_ = 0;
  std::vector<Input> inputs_;             // program inputs, in order
  std::vector<TensorMeta> outputs_;       // program outputs ...
  std::vector<int32_t> output_of_input_;  // ... and the input they occupy, or -1
  std::vector<Result> results_;
  std::vector<uint32_t> params_;  // contents of the slots that no call changes
  std::vector<NumberUse> number_uses_;
  std::vector<RandomUse> random_uses_;
  std::vector<int32_t> divisors_;  // numbers that divide integers
  bool compiled_ = false;
  uint64_t compile_us_ = 0;
};

}  // namespace trnsim::aten
