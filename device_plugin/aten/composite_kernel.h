// Operators made of operators with programs: a C++ function for the functional overload, from which the in-place and
// out= forms follow. Used where the shape of a result depends on values, or where a loop over programs is right.
//
// The first call with new shapes and types asks the CPU's kernel what it would refuse (trial.h), so that errors are
// PyTorch's; functions check values only.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "device_plugin/aten/op_table.h"

namespace trnsim::aten {

class Call;

// Who is asked what is wrong with a call: the CPU's kernel on neutral values, the shape function where the kernel would
// look at values, or nobody.
enum class Trial : uint8_t { kCpu, kShapes, kNone };
struct CompositeOptions {
  bool complex = false;  // computes complex tensors too; the others leave them to the host
  Trial trial = Trial::kCpu;
};
struct CompositeRow {
  const char* name;  // functional overload, "aten::nonzero"
  c10::KernelFunction function;
  CompositeOptions options;
};
using Composites = std::vector<CompositeRow>;

template <class F>
CompositeRow composite(const char* name, F* function, CompositeOptions options = {}) {
  return {name, c10::KernelFunction::makeFromUnboxedRuntimeFunction(function), options};
}

// One table per file, all of them.
Composites indexing_composites();
Composites set_composites();
Composites nn_composites();
Composites sampling_composites();
Composites linalg_composites();
Composites special_composites();
Composites fourier_composites();
Composites eigen_composites();
std::vector<Composites> composite_tables();

// Lowered operators on complex tensors: made of the same operators on pairs of real ones. Null: there is no such form.
const c10::KernelFunction* complex_form(const std::string& functional);

// Runs `function` on the arguments of the functional overload, and writes its results where `overload` wants them, with
// the usual warning where that changes sizes.
void run_composite(const c10::KernelFunction& function, const Overload& overload,
                   const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack, size_t begin,
                   bool warns_of_new_sizes = true);

class CompositeKernel final : public c10::OperatorKernel {
 public:
  CompositeKernel(Overload overload, c10::KernelFunction function, CompositeOptions options)
      : overload_(std::make_unique<Overload>(std::move(overload))),
        function_(std::move(function)),
        options_(options),
        checked_(std::make_unique<Checked>()) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack);

 private:
  struct Checked {  // hashes of calls that the CPU accepts
    std::mutex mutex;
    std::unordered_set<uint64_t> calls;
  };
  void check(const c10::OperatorHandle& op, const Call& call, const c10::Stack& stack, size_t begin) const;
  bool accepted_before(uint64_t hash);
  void note_accepted(uint64_t hash);

  std::unique_ptr<Overload> overload_;
  c10::KernelFunction function_;
  CompositeOptions options_;
  std::unique_ptr<Checked> checked_;
};

}  // namespace trnsim::aten
