// Records the operators of a thread as one graph instead of running them. While a recorder is active, tensors that the
// thread makes on the device have a place but no memory, and every operator that would become a program of its own is
// appended to the graph, by the same rules as in eager execution: argument conversion, composites, in-place forms and
// views come out the same because the same code handles them.
//
// Memory is what it is in eager execution: views share it, in-place operators change it. A storage that is overwritten
// as a whole becomes a new value of the graph; a part of it is written through a view.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "device_plugin/aten/graph_program.h"
#include "device_plugin/aten/plan.h"
#include "device_plugin/compiler/graph.h"

namespace trnsim::aten {

// One operator as a graph of its own (lowered_kernel.cpp, copy.cpp), with the tensors of the call.
struct RecordedCall {
  compiler::Graph graph;
  c10::SmallVector<const at::Tensor*, 8> inputs;  // of graph.inputs
  c10::SmallVector<at::Tensor, 4> results;        // of graph.outputs
  c10::ArrayRef<uint32_t> params;  // values of the first parameter slots; those of the Philox state follow
  c10::SmallVector<std::pair<int32_t, int32_t>, 2> numbers;  // slots whose value is a number of each call
  c10::ArrayRef<Plan::ParamConversion> conversions;
  c10::ArrayRef<Plan::ParamInverse> inverses;
  uint64_t random_words = 0;
};

// What could not be part of a graph, and why. `tag` is that of the call.
struct Refusal {
  int64_t tag = -1;
  std::string op, reason;
};

class Recorder {
 public:
  Recorder(std::string name, c10::DeviceIndex device);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  static Recorder* active() { return active_; }  // of the calling thread; null: operators run
  void begin();
  void end();

  // Arguments of the program, in order. What comes back stands for the tensor that a call will bring.
  at::Tensor input(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                   int64_t storage_offset);
  // A number that a call will bring: a 0-dim CPU tensor that must not be read. `wrapped`: a Python number.
  at::Tensor number(c10::ScalarType dtype, bool wrapped);
  // Of the operators that follow: the user's line, and a number by which the caller knows them.
  void locate(std::string file, int32_t line, int64_t tag);

  // The program that returns `results` (undefined ones stay so). Null with refusals() when an operator of the graph has
  // no program; other failures throw.
  std::shared_ptr<GraphProgram> finish(const std::vector<at::Tensor>& results);
  const std::vector<Refusal>& refusals() const { return refusals_; }

  // ---- what the kernels of the device call
  c10::DataPtr place(size_t bytes);                             // an address without memory
  std::optional<int32_t> number_of(const at::Tensor& t) const;  // that it stands for
  void require_nonzero(const at::Tensor& number);               // a call that brings zero is refused
  void append(RecordedCall call);
  // The destination on the device takes the values of a CPU tensor.
  void copy_from_host(const at::Tensor& destination, const at::Tensor& source);
  // A storage of the graph gets another size; only one without values can.
  void resize(const c10::Storage& storage, size_t bytes);
  [[noreturn]] void refuse(const std::string& op, const std::string& reason);

 private:
  using ValueId = compiler::ValueId;
  struct Memory {
    c10::Storage storage;                // keeps the address from being used again
    ValueId value = compiler::kNoValue;  // that holds the contents now
    int64_t origin = 0;                  // where in the storage its element 0 is, in elements
    c10::ScalarType dtype = c10::ScalarType::Float;
    int32_t input = -1;  // position among the program's inputs
  };

  Memory& memory_of(const at::Tensor& t);
  ValueId add_value(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides);
  ValueId window(const Memory& memory, const at::Tensor& t);
  ValueId read(const at::Tensor& t);
  ValueId write(const at::Tensor& t);
  int32_t add_input(GraphProgram::Input input, const c10::Storage& storage, int64_t origin);
  compiler::ParamRef param_for(int32_t number, isa::Dtype dtype, const Plan::ParamConversion* conversion);
  std::vector<compiler::ParamRef> inverse_for(int32_t number, isa::Dtype dtype);
  int32_t slot_of(GraphProgram::NumberUse use);
  std::vector<Refusal> refusals_of_nodes();

  static constinit thread_local Recorder* active_;

  const c10::DeviceIndex device_;
  compiler::Graph graph_;
  std::shared_ptr<GraphProgram> program_;
  std::unordered_map<c10::StorageImpl*, Memory> memories_;
  std::unordered_map<c10::TensorImpl*, int32_t> numbers_;
  std::vector<at::Tensor> number_tensors_;
  std::vector<compiler::Graph> pieces_;  // one per call, to find the one that the compiler refuses
  std::vector<int64_t> piece_tags_;
  std::unordered_map<std::string, ValueId> windows_;  // views by what they are
  std::vector<Refusal> refusals_;
  std::string file_;
  int32_t line_ = 0;
  int64_t tag_ = -1;
};

// Throws while the thread records: the call needs values that do not exist yet.
void refuse_while_recording(const char* op, const char* reason);

}  // namespace trnsim::aten
