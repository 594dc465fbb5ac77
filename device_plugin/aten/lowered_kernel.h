// The one boxed kernel that serves every lowered operator.
//
// Hit: key from the arguments -> plan -> allocate results -> enqueue -> return.
// Miss: the operator runs on meta tensors, which gives result metadata and PyTorch's own error messages; then
// one graph node is compiled and loaded.
#pragma once

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>

#include "device_plugin/aten/op_table.h"
#include "device_plugin/aten/plan.h"

namespace trnsim::aten {

class LoweredKernel final : public c10::OperatorKernel {
 public:
  explicit LoweredKernel(Overload overload)
      : overload_(std::make_unique<Overload>(std::move(overload))), plans_(std::make_unique<PlanCache>()) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack);

 private:
  std::unique_ptr<Overload> overload_;
  std::unique_ptr<PlanCache> plans_;
};

}  // namespace trnsim::aten
