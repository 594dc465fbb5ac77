// The one boxed kernel that serves every lowered operator.
//
// Hit: key from the arguments -> plan -> allocate results -> enqueue -> return.
// Miss: the operator runs on meta tensors, which gives result metadata and PyTorch's own error messages; then
// one graph node is compiled and loaded.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

#include "device_plugin/aten/op_table.h"
#include "device_plugin/aten/plan.h"

namespace trnsim::aten {

class Recorder;

class LoweredKernel final : public c10::OperatorKernel {
 public:
  explicit LoweredKernel(Overload overload);

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack);

 private:
  std::unique_ptr<Overload> overload_;
  std::unique_ptr<PlanCache> plans_;
};

// Numbers in a row (linspace, arange, ..) are written into an out= of any shape that has as many elements.
bool keeps_shape_of_out(const Overload& overload, const at::Tensor& out, int64_t elements);

// The overload by name ("aten::add_.Tensor"); null: it is not lowered.
const Overload* lowered_overload(const std::string& name);

// One operator of a list of calls that become one program (list_call.h): appended to the graph of `recorder`, with its
// results on the stack. `numbers`: arguments of type Scalar whose value is a number of each call. The CPU says what is
// wrong with calls that are not among the `accepted` ones.
void record_element(Recorder& recorder, const c10::OperatorHandle& op, const Overload& overload,
                    c10::Stack& stack, c10::ArrayRef<std::pair<size_t, int32_t>> numbers,
                    std::unordered_set<uint64_t>& accepted);

}  // namespace trnsim::aten
