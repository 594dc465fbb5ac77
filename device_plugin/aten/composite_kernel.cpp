#include "device_plugin/aten/composite_kernel.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "device_plugin/aten/call.h"
#include "device_plugin/aten/device_use.h"
#include "device_plugin/aten/fallback.h"
#include "device_plugin/aten/graph_recorder.h"
#include "device_plugin/aten/lowered_kernel.h"
#include "device_plugin/aten/plan.h"
#include "device_plugin/aten/trial.h"

namespace trnsim::aten {
namespace {

constexpr size_t kMaxAccepted = 4096;  // keys of calls kept per overload

bool takes_complex(const Call& call) {
  return std::any_of(call.tensors.begin(), call.tensors.end(),
                     [](const at::Tensor* t) { return t->is_complex() || t->is_neg(); });
}

// What is filled may be expanded (PyTorch has looked at that): then one place of every element is written.
void write_back(at::Tensor out, at::Tensor result, bool is_filled) {
  for (int64_t d = 0; is_filled && d < out.dim(); ++d)
    if (out.stride(d) == 0 && out.size(d) > 1) {
      out = out.narrow(d, 0, 1);
      result = result.narrow(d, 0, 1);
    }
  out.copy_(result);
}

bool shares_memory(const at::Tensor& result, const c10::IValue& operand) {
  const auto with = [&](const at::Tensor& t) {
    return t.defined() && t.has_storage() && t.storage().is_alias_of(result.storage());
  };
  if (operand.isTensor()) return with(operand.toTensor());
  if (!operand.isTensorList()) return false;
  const c10::List<at::Tensor> list = operand.toTensorList();
  return std::any_of(list.begin(), list.end(), [&](const at::Tensor& t) { return with(t); });
}

// A composition that has nothing to do gives an operand back, or a view of one: the operator gives a tensor of its own.
void make_own(c10::IValue& result, const c10::Stack& stack, size_t begin) {
  if (!result.isTensor() || !result.toTensor().defined() || !result.toTensor().has_storage()) return;
  const bool shared = std::any_of(stack.begin() + static_cast<std::ptrdiff_t>(begin), stack.end(),
                                  [&](const c10::IValue& v) { return shares_memory(result.toTensor(), v); });
  if (shared) result = result.toTensor().clone();
}

}  // namespace

std::vector<Composites> composite_tables() {
  return {indexing_composites(), set_composites(),     nn_composites(),      sampling_composites(),
          linalg_composites(),   special_composites(), fourier_composites(), eigen_composites()};
}

void run_composite(const c10::KernelFunction& function, const Overload& overload,
                   const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack, size_t begin,
                   bool warns_of_new_sizes) {
  const auto written = [&](size_t r) {
    return (*stack)[begin + static_cast<size_t>(overload.written[r])].toTensor();
  };
  c10::OptionalDeviceGuard guard;  // for operators without operands
  if (overload.is_out) guard.reset_device(written(0).device());
  c10::Stack inner;
  inner.reserve(overload.sources.size());
  for (size_t i = 0; i < overload.sources.size(); ++i) {
    const int16_t source = overload.sources[i];
    if (source >= 0)
      inner.push_back((*stack)[begin + static_cast<size_t>(source)]);
    else if (overload.is_out && overload.functional_kinds[i] == ArgKind::kDtype)
      inner.emplace_back(written(0).scalar_type());
    else
      inner.emplace_back();
  }
  function.callBoxed(op, keys, &inner);
  for (size_t r = 0; r < overload.written.size(); ++r) {
    const at::Tensor out = written(r);
    at::Tensor result = inner[r].toTensor();
    if (keeps_shape_of_out(overload, out, result.numel()))
      result = result.view(out.sizes());
    else if (overload.is_out && warns_of_new_sizes)
      at::native::resize_output(out, result.sizes());
    else if (overload.is_out)
      out.resize_(result.sizes());
    if (!out.is_same(result)) write_back(out, result, overload.ignores_self);
    inner[r] = out;
  }
  for (size_t r = overload.written.size(); r < inner.size(); ++r)
    if (op.schema().returns()[r].alias_info() == nullptr) make_own(inner[r], *stack, begin);
  note_executed(overload.functional);
  stack->resize(begin);
  for (c10::IValue& v : inner) stack->push_back(std::move(v));
}

bool CompositeKernel::accepted_before(uint64_t hash) {
  std::lock_guard lock(checked_->mutex);
  return checked_->calls.count(hash) != 0;
}

void CompositeKernel::note_accepted(uint64_t hash) {
  std::lock_guard lock(checked_->mutex);
  if (checked_->calls.size() >= kMaxAccepted) checked_->calls.clear();
  checked_->calls.insert(hash);
}

void CompositeKernel::check(const c10::OperatorHandle& op, const Call& call, const c10::Stack& stack,
                            size_t begin) const {
  // A trial of a random operator would move the state of the CPU's generator.
  if (options_.trial == Trial::kCpu && overload_->generator < 0)
    check_as_cpu(op, *overload_, call, stack, begin, /*suspected=*/false);
  if (options_.trial != Trial::kShapes) return;
  try {
    meta_results(op, call, stack, begin);
  } catch (const c10::NotImplementedError&) {
  }
}

void CompositeKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  const DeviceUse use;
  const Overload& overload = *overload_;
  const size_t begin = stack->size() - overload.kinds.size();
  refuse_while_recording(overload.name.c_str(), "it is a composition of other operators");
  {
    Call call(overload, *stack, begin);
    call.read();
    if (!options_.complex && (takes_complex(call) || call.unsupported != nullptr)) {
      if (const c10::KernelFunction* form = complex_form(overload.functional);
          form != nullptr && takes_complex(call)) {
        run_composite(*form, overload, op, keys, stack, begin);
        return;
      }
      run_on_host(op, stack,
                  call.unsupported != nullptr ? call.unsupported : "the hardware has no complex type",
                  FallbackKind::kUnsupported);
      return;
    }
    const uint64_t hash = hash_of(call.key);
    if (!accepted_before(hash)) {
      check(op, call, *stack, begin);
      note_accepted(hash);
    }
  }
  run_composite(function_, overload, op, keys, stack, begin);
}

}  // namespace trnsim::aten
