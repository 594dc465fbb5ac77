// What training calls on lists of tensors: the fused optimizer steps, and the gradient scaler's check and update. Made
// of operators with programs; nothing is read back, so a step is queued whole.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <optional>

namespace trnsim::aten {
namespace {

using at::Tensor;
using at::TensorList;
using OptionalTensor = std::optional<Tensor>;

bool given(const OptionalTensor& t) { return t.has_value() && t->defined(); }

// A step that the scaler called off (found_inf is 1) leaves everything as it was.
class Guarded {
 public:
  explicit Guarded(const OptionalTensor& found_inf) {
    if (given(found_inf)) called_off_ = found_inf->ne(0);
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
Tensor descent(const Tensor& stored, const OptionalTensor& grad_scale, bool maximize,
               const Guarded& guarded) {
  Tensor grad = wide(stored);
  if (given(grad_scale)) {
    grad = grad / *grad_scale;
    guarded.assign(stored, grad);
  }
  return maximize ? -grad : grad;
}

void check_lengths(const char* name, TensorList params, TensorList other) {
  TORCH_CHECK(params.size() == other.size(), name, ": expected ", params.size(),
              " tensors in every list, got ", other.size());
}

enum class Decay : uint8_t { kIntoGradient, kDecoupled };

template <Decay kDecay, class Rate>
void fused_adam(TensorList params, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                TensorList max_exp_avg_sqs, TensorList state_steps, Rate lr, double beta1, double beta2,
                double weight_decay, double eps, bool amsgrad, bool maximize,
                const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  constexpr const char* kName = kDecay == Decay::kDecoupled ? "_fused_adamw_" : "_fused_adam_";
  for (TensorList list : {grads, exp_avgs, exp_avg_sqs, state_steps}) check_lengths(kName, params, list);
  if (amsgrad) check_lengths(kName, params, max_exp_avg_sqs);
  const Guarded guarded(found_inf);
  for (size_t i = 0; i < params.size(); ++i) {
    Tensor grad = descent(grads[i], grad_scale, maximize, guarded);
    Tensor param = wide(params[i]);
    if (weight_decay != 0) {
      if constexpr (kDecay == Decay::kDecoupled)
        param = param * (1 - lr * weight_decay);
      else
        grad = grad + param * weight_decay;
    }
    const Tensor average = at::lerp(wide(exp_avgs[i]), grad, 1 - beta1);
    const Tensor square = wide(exp_avg_sqs[i]) * beta2 + grad * grad * (1 - beta2);
    const Tensor correction1 = 1 - at::pow(beta1, state_steps[i]);
    const Tensor correction2 = (1 - at::pow(beta2, state_steps[i])).sqrt();
    Tensor second = square;
    if (amsgrad) {
      second = at::maximum(wide(max_exp_avg_sqs[i]), square);
      guarded.assign(max_exp_avg_sqs[i], second);
    }
    const Tensor denominator = second.sqrt() / correction2 + eps;
    guarded.assign(params[i], param - lr / correction1 * (average / denominator));
    guarded.assign(exp_avgs[i], average);
    guarded.assign(exp_avg_sqs[i], square);
  }
}

template <class Rate>
void fused_sgd(TensorList params, TensorList grads, TensorList momentum_buffers, double weight_decay,
               double momentum, Rate lr, double dampening, bool nesterov, bool maximize, bool is_first_step,
               const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  check_lengths("_fused_sgd_", params, grads);
  if (momentum != 0) check_lengths("_fused_sgd_", params, momentum_buffers);
  const Guarded guarded(found_inf);
  for (size_t i = 0; i < params.size(); ++i) {
    Tensor grad = descent(grads[i], grad_scale, maximize, guarded);
    if (weight_decay != 0) grad = grad + wide(params[i]) * weight_decay;
    if (momentum != 0) {
      const Tensor buffer =
          is_first_step ? grad : wide(momentum_buffers[i]) * momentum + grad * (1 - dampening);
      guarded.assign(momentum_buffers[i], buffer);
      grad = nesterov ? grad + buffer * momentum : buffer;
    }
    guarded.assign(params[i], wide(params[i]) - lr * grad);
  }
}

template <class Rate>
void fused_adagrad(TensorList params, TensorList grads, TensorList state_sums, TensorList state_steps,
                   Rate lr, double lr_decay, double weight_decay, double eps, bool maximize,
                   const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  for (TensorList list : {grads, state_sums, state_steps}) check_lengths("_fused_adagrad_", params, list);
  const Guarded guarded(found_inf);
  for (size_t i = 0; i < params.size(); ++i) {
    Tensor grad = descent(grads[i], grad_scale, maximize, guarded);
    if (weight_decay != 0) grad = grad + wide(params[i]) * weight_decay;
    const Tensor rate = lr / ((state_steps[i] - 1) * lr_decay + 1);
    const Tensor sum = wide(state_sums[i]) + grad * grad;
    guarded.assign(params[i], wide(params[i]) - rate * (grad / (sum.sqrt() + eps)));
    guarded.assign(state_sums[i], sum);
  }
}

void check_and_unscale(TensorList grads, Tensor& found_inf, const Tensor& inverse_scale) {
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(inverse_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  for (const Tensor& grad : grads) {
    TORCH_CHECK(grad.is_floating_point(), "gradients to unscale must be of a floating type");
    const Tensor bad = grad.isfinite().logical_not().any().to(found_inf.scalar_type());
    found_inf.copy_(at::maximum(found_inf, bad.expand_as(found_inf)));
    grad.copy_(grad * inverse_scale);
  }
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
