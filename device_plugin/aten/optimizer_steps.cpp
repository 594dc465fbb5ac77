// What training calls on lists of tensors: the fused optimizer steps, and the gradient scaler's check and update. A step
// is one program for all parameters (list_call.h), made of operators with programs; nothing is read back.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "device_plugin/aten/device_use.h"
#include "device_plugin/aten/list_call.h"
#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

using at::Tensor;
using at::TensorList;
using OptionalTensor = std::optional<Tensor>;

// The operands of a step, read in the order in which they were added.
class Operands {
 public:
  explicit Operands(const std::vector<Tensor>& all) : all_(all) {}
  TensorList list(size_t length) {
    next_ += length;
    return TensorList(all_).slice(next_ - length, length);
  }
  const Tensor& one() { return all_[next_++]; }
  Tensor one_if(bool given) { return given ? one() : Tensor(); }

 private:
  const std::vector<Tensor>& all_;
  size_t next_ = 0;
};
using Body = std::function<void(Operands&)>;

// One call of a step, for as many of the parameters as share a program.
class Step {
 public:
  explicit Step(const char* name) : call_(name, name) {}

  void list(TensorList tensors, bool written) {
    call_.constant(tensors.size());
    call_.add(tensors, written);
    operands_.insert(operands_.end(), tensors.begin(), tensors.end());
  }
  void tensor(const Tensor& t, bool written = false) { list(t, written); }
  void tensor_if_given(const OptionalTensor& t) {
    call_.constant(given(t));
    if (given(t)) tensor(*t);
  }
  void number(double value) {
    call_.add(c10::Scalar(value));
    Tensor t = at::scalar_tensor(value, at::kDouble);
    t.unsafeGetTensorImpl()->set_wrapped_number(true);
    operands_.push_back(std::move(t));
  }
  void option(bool value) { call_.constant(value); }

  // As one program, or operator by operator.
  void run(const Body& body) {
    const auto done = call_.run([&](ListCall::Recording& recording) {
      Operands operands(recording.operands);
      body(operands);
      return std::vector<Tensor>();
    });
    if (done) return;
    Operands operands(operands_);
    body(operands);
  }

 private:
  ListCall call_;
  std::vector<Tensor> operands_;
};

void in_parts(size_t length, const std::function<void(size_t first, size_t count)>& run) {
  const DeviceUse use;
  for (size_t first = 0; first < length; first += kListElementsPerProgram)
    run(first, std::min(kListElementsPerProgram, length - first));
}

// A learning rate: a number, or a tensor. What the CPU holds is a number.
struct Rate {
  OptionalTensor tensor;
  double number = 0;

  Rate(double value) : number(value) {}
  Rate(const Tensor& value) {
    if (on_device(value))
      tensor = value;
    else
      number = value.item<double>();
  }
  void add_to(Step& step) const {
    step.option(tensor.has_value());
    if (tensor)
      step.tensor(*tensor);
    else
      step.number(number);
  }
};

// A step that the scaler called off (found_inf is 1) leaves everything as it was.
class Guarded {
 public:
  explicit Guarded(const Tensor& found_inf) {
    if (found_inf.defined()) called_off_ = found_inf.ne(0);
  }
  void assign(const Tensor& target, const Tensor& value) const {
    const Tensor same_type = value.to(target.scalar_type());
    target.copy_(called_off_.defined() ? at::where(called_off_, target, same_type) : same_type);
  }

 private:
  Tensor called_off_;
};

// A fused step computes in float32 and rounds once, when it stores.
Tensor wide(const Tensor& t) {
  const bool reduced = t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16;
  return reduced ? t.to(at::kFloat) : t;
}

// The gradient without the scaler's factor, which is also written back, in the direction of descent.
Tensor descent(const Tensor& stored, const Tensor& grad_scale, bool maximize, const Guarded& guarded) {
  Tensor grad = wide(stored);
  if (grad_scale.defined()) {
    grad = grad * grad_scale.reciprocal();
    guarded.assign(stored, grad);
  }
  return maximize ? -grad : grad;
}

void check_lengths(const char* name, TensorList params, TensorList other) {
  TORCH_CHECK(params.size() == other.size(), name, ": expected ", params.size(),
              " tensors in every list, got ", other.size());
}

enum class Decay : uint8_t { kIntoGradient, kDecoupled };

template <Decay kDecay, class RateType>
void fused_adam(TensorList params, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                TensorList max_exp_avg_sqs, TensorList state_steps, RateType lr, double beta1, double beta2,
                double weight_decay, double eps, bool amsgrad, bool maximize,
                const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  constexpr const char* kName = kDecay == Decay::kDecoupled ? "aten::_fused_adamw_" : "aten::_fused_adam_";
  for (TensorList list : {grads, exp_avgs, exp_avg_sqs, state_steps}) check_lengths(kName, params, list);
  if (amsgrad) check_lengths(kName, params, max_exp_avg_sqs);
  const Rate rate(lr);
  const bool decays = weight_decay != 0;
  in_parts(params.size(), [&](size_t first, size_t count) {
    Step step(kName);
    for (TensorList list : {params, grads, exp_avgs, exp_avg_sqs}) step.list(list.slice(first, count), true);
    step.list(amsgrad ? max_exp_avg_sqs.slice(first, count) : TensorList(), true);
    step.list(state_steps.slice(first, count), false);
    step.tensor_if_given(grad_scale);
    step.tensor_if_given(found_inf);
    rate.add_to(step);
    step.number(1 - rate.number * weight_decay);
    // log(beta): 1 - beta^t as -expm1(t log(beta)) keeps its digits while it is small.
    for (double value : {weight_decay, 1 - beta1, beta2, 1 - beta2, eps, std::log(beta1), std::log(beta2)})
      step.number(value);
    for (bool option : {amsgrad, maximize, decays}) step.option(option);
    step.run([&](Operands& operands) {
      const TensorList p = operands.list(count), g = operands.list(count), averages = operands.list(count),
                       squares = operands.list(count), largest = operands.list(amsgrad ? count : 0),
                       steps = operands.list(count);
      const Tensor scale = operands.one_if(given(grad_scale));
      const Guarded guarded(operands.one_if(given(found_inf)));
      const Tensor &lr = operands.one(), &kept_by_number = operands.one(), &decay = operands.one(),
                   &new_average = operands.one(), &old_square = operands.one(), &new_square = operands.one(),
                   &eps = operands.one(), &log_beta1 = operands.one(), &log_beta2 = operands.one();
      Tensor kept = kept_by_number;
      if (kDecay == Decay::kDecoupled && decays && rate.tensor) kept = 1 - lr * decay;
      for (size_t i = 0; i < count; ++i) {
        Tensor grad = descent(g[i], scale, maximize, guarded);
        Tensor param = wide(p[i]);
        if (decays) {
          if constexpr (kDecay == Decay::kDecoupled)
            param = param * kept;
          else
            grad = grad + param * decay;
        }
        const Tensor old_average = wide(averages[i]);
        const Tensor average = old_average + (grad - old_average) * new_average;
        const Tensor square = wide(squares[i]) * old_square + grad * grad * new_square;
        const Tensor correction1 = -at::expm1(steps[i] * log_beta1);
        const Tensor correction2 = at::expm1(steps[i] * log_beta2).neg().rsqrt();
        Tensor second = square;
        if (amsgrad) {
          second = at::maximum(wide(largest[i]), square);
          guarded.assign(largest[i], second);
        }
        const Tensor denominator = second.sqrt() * correction2 + eps;
        guarded.assign(p[i], param - lr / correction1 * (average * denominator.reciprocal()));
        guarded.assign(averages[i], average);
        guarded.assign(squares[i], square);
      }
    });
  });
}

template <class RateType>
void fused_sgd(TensorList params, TensorList grads, TensorList momentum_buffers, double weight_decay,
               double momentum, RateType lr, double dampening, bool nesterov, bool maximize,
               bool is_first_step, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  constexpr const char* kName = "aten::_fused_sgd_";
  const bool has_momentum = momentum != 0, decays = weight_decay != 0;
  check_lengths(kName, params, grads);
  if (has_momentum) check_lengths(kName, params, momentum_buffers);
  const Rate rate(lr);
  in_parts(params.size(), [&](size_t first, size_t count) {
    Step step(kName);
    for (TensorList list : {params, grads}) step.list(list.slice(first, count), true);
    step.list(has_momentum ? momentum_buffers.slice(first, count) : TensorList(), true);
    step.tensor_if_given(grad_scale);
    step.tensor_if_given(found_inf);
    rate.add_to(step);
    for (double value : {weight_decay, momentum, 1 - dampening}) step.number(value);
    for (bool option : {nesterov, maximize, is_first_step, has_momentum, decays}) step.option(option);
    step.run([&](Operands& operands) {
      const TensorList p = operands.list(count), g = operands.list(count),
                       buffers = operands.list(has_momentum ? count : 0);
      const Tensor scale = operands.one_if(given(grad_scale));
      const Guarded guarded(operands.one_if(given(found_inf)));
      const Tensor &lr = operands.one(), &decay = operands.one(), &kept = operands.one(),
                   &taken = operands.one();
      for (size_t i = 0; i < count; ++i) {
        const Tensor param = wide(p[i]);
        Tensor grad = descent(g[i], scale, maximize, guarded);
        if (decays) grad = grad + param * decay;
        if (has_momentum) {
          const Tensor buffer = is_first_step ? grad : wide(buffers[i]) * kept + grad * taken;
          guarded.assign(buffers[i], buffer);
          grad = nesterov ? grad + buffer * kept : buffer;
        }
        guarded.assign(p[i], param - lr * grad);
      }
    });
  });
}

template <class RateType>
void fused_adagrad(TensorList params, TensorList grads, TensorList state_sums, TensorList state_steps,
                   RateType lr, double lr_decay, double weight_decay, double eps, bool maximize,
                   const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  constexpr const char* kName = "aten::_fused_adagrad_";
  for (TensorList list : {grads, state_sums, state_steps}) check_lengths(kName, params, list);
  const Rate rate(lr);
  const bool decays = weight_decay != 0;
  in_parts(params.size(), [&](size_t first, size_t count) {
    Step step(kName);
    for (TensorList list : {params, grads, state_sums}) step.list(list.slice(first, count), true);
    step.list(state_steps.slice(first, count), false);
    step.tensor_if_given(grad_scale);
    step.tensor_if_given(found_inf);
    rate.add_to(step);
    for (double value : {lr_decay, weight_decay, eps}) step.number(value);
    for (bool option : {maximize, decays}) step.option(option);
    step.run([&](Operands& operands) {
      const TensorList p = operands.list(count), g = operands.list(count), sums = operands.list(count),
                       steps = operands.list(count);
      const Tensor scale = operands.one_if(given(grad_scale));
      const Guarded guarded(operands.one_if(given(found_inf)));
      const Tensor &lr = operands.one(), &lr_decay = operands.one(), &decay = operands.one(),
                   &eps = operands.one();
      for (size_t i = 0; i < count; ++i) {
        const Tensor param = wide(p[i]);
        Tensor grad = descent(g[i], scale, maximize, guarded);
        if (decays) grad = grad + param * decay;
        const Tensor own_rate = lr / ((steps[i] - 1) * lr_decay + 1);
        const Tensor sum = wide(sums[i]) + grad * grad;
        guarded.assign(p[i], param - own_rate * (grad * (sum.sqrt() + eps).reciprocal()));
        guarded.assign(sums[i], sum);
      }
    });
  });
}

void check_and_unscale(TensorList grads, Tensor& found_inf, const Tensor& inverse_scale) {
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(inverse_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  for (const Tensor& grad : grads)
    TORCH_CHECK(grad.is_floating_point(), "gradients to unscale must be of a floating type");
  in_parts(grads.size(), [&](size_t first, size_t count) {
    Step step("aten::_amp_foreach_non_finite_check_and_unscale_");
    step.list(grads.slice(first, count), true);
    step.tensor(found_inf, true);
    step.tensor(inverse_scale);
    step.run([&](Operands& operands) {
      const TensorList g = operands.list(count);
      const Tensor &found = operands.one(), &factor = operands.one();
      Tensor bad = found;
      for (const Tensor& grad : g) {
        const Tensor own = grad.isfinite().logical_not().any().to(found.scalar_type());
        bad = at::maximum(bad, own.expand_as(found));
        grad.copy_(grad * factor);
      }
      found.copy_(bad);
    });
  });
}

Tensor& update_scale(Tensor& scale, Tensor& growth_tracker, const Tensor& found_inf, double growth_factor,
                     double backoff_factor, int64_t growth_interval) {
  for (const Tensor* t :
       {const_cast<const Tensor*>(&scale), const_cast<const Tensor*>(&growth_tracker), &found_inf})
    TORCH_CHECK(t->numel() == 1, "scale, growth tracker and found_inf must be 1-element tensors.");
  const Tensor overflowed = found_inf.ne(0);
  const Tensor successful = growth_tracker + 1;
  const Tensor grows = successful.eq(growth_interval);
  const Tensor grown = scale * growth_factor;
  // A scale that would leave the range of float32 stays.
  const Tensor kept = at::where(grows.logical_and(grown.isfinite()), grown, scale);
  scale.copy_(at::where(overflowed, scale * backoff_factor, kept));
  growth_tracker.copy_(successful.masked_fill(overflowed.logical_or(grows), 0));
  return scale;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_adam_", &fused_adam<Decay::kIntoGradient, double>);
  m.impl("_fused_adam_.tensor_lr", &fused_adam<Decay::kIntoGradient, const Tensor&>);
  m.impl("_fused_adamw_", &fused_adam<Decay::kDecoupled, double>);
  m.impl("_fused_adamw_.tensor_lr", &fused_adam<Decay::kDecoupled, const Tensor&>);
  m.impl("_fused_sgd_", &fused_sgd<double>);
  m.impl("_fused_sgd_.tensor_lr", &fused_sgd<const Tensor&>);
  m.impl("_fused_adagrad_", &fused_adagrad<double>);
  m.impl("_fused_adagrad_.tensor_lr", &fused_adagrad<const Tensor&>);
  m.impl("_amp_foreach_non_finite_check_and_unscale_", &check_and_unscale);
  m.impl("_amp_update_scale_", &update_scale);
}

}  // namespace trnsim::aten
