// A call on lists of tensors (foreach operators, fused optimizer steps) as one program. What the call does with its
// operands is recorded once per form (types, shapes, strides, which operands are the same tensor) by the recorder that
// torch.compile uses; numbers stay parameters of the program.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device_plugin/aten/graph_program.h"
#include "device_plugin/aten/graph_recorder.h"
#include "device_plugin/aten/plan.h"

namespace trnsim::aten {

// Elements of a list that share a program: compiling takes time in proportion to them.
constexpr size_t kListElementsPerProgram = 256;

class ListCall {
 public:
  // `operation` tells calls of the same form apart. The name is the program's.
  ListCall(const void* operation, std::string name);

  // The operands, in the order in which record() sees them. A CPU tensor of one element counts as a number.
  void add(const at::Tensor& t, bool written);
  void add(at::TensorList list, bool written);
  void add(const c10::Scalar& number);
  // What else the program depends on.
  void constant(uint64_t word) { key_.push_back(word); }

  // While it is recorded. The operands stand for those of later calls; numbers are 0-dim CPU tensors.
  struct Recording {
    Recorder& recorder;
    std::vector<at::Tensor> operands;
    std::vector<int32_t> numbers;  // per operand: which number of the recorder it is; -1: a tensor
  };
  using Record = std::function<std::vector<at::Tensor>(Recording&)>;
  // Runs the program and returns what `record` returned. Nothing: there is none for this call, and nothing was done.
  std::optional<std::vector<at::Tensor>> run(const Record& record);

 private:
  struct Operand {
    const at::Tensor* tensor = nullptr;  // null: a number
    int32_t number = -1;
    uint32_t same_as = 0;  // the first operand that is the same view; itself when there is none
    bool written = false;
  };

  void add_number(const CallNumber& value, c10::ScalarType type, bool wrapped);
  bool find_shared_memory();
  bool numbers_fit() const;
  std::shared_ptr<GraphProgram> record_program(const Record& record);

  std::string name_;
  PlanKey key_;
  c10::SmallVector<Operand, 64> operands_;
  std::vector<CallNumber> numbers_;
  std::vector<std::pair<c10::ScalarType, bool>> number_types_;  // and whether it is a number of Python
  uint64_t types_ = 0;                                          // of the tensors, one bit each
  const at::Tensor* previous_ = nullptr;
  c10::DeviceIndex device_ = -1;
  bool usable_ = true;
};

}  // namespace trnsim::aten
