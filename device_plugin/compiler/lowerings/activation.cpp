// Activation functions, their gradients, and pointwise losses.
#include <cmath>
#include <numbers>

#include "device_plugin/compiler/lowerings/pointwise.h"

namespace trnsim::compiler {
namespace {

bool tanh_form(const LowerContext& c, int approximate) { return c.str(approximate) == "tanh"; }

Ex gelu_backward(Pointwise& p) {  // (grad, self, approximate)
  Ex g = p.f32(0), x = p.f32(1);
  if (tanh_form(p.context, 2)) {
    const double beta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kappa = 0.044715;
    Ex t = p.tanh(beta * (x + kappa * (x * x * x)));
    Ex inner = beta * (1.0 + 3 * kappa * (x * x));
    return g * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner);
  }
  Ex cdf = 0.5 * (1.0 + p.map.math(ExprOp::kErf, x * (1 / std::numbers::sqrt2)));
  Ex pdf = p.exp(-0.5 * (x * x)) * (0.5 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
  return g * (cdf + x * pdf);
}

Ex softplus(Pointwise& p) {  // (self, beta, threshold)
  Ex x = p.f32(0), beta = p.f32(1);
  Ex bx = x * beta;
  // log1p(exp(y)) = max(y, 0) + log1p(exp(-|y|)): no overflow
  Ex soft = (p.max(bx, p.k(0)) + p.log1p(p.exp(-p.abs(bx)))) / beta;
  return p.select(bx > p.f32(2), x, soft);
}

Ex elu(Pointwise& p) {  // (self, alpha, scale, input_scale)
  Ex x = p.f32(0);
  Ex negative = p.f32(1) * p.map.math(ExprOp::kExpm1, x * p.f32(3));
  return p.f32(2) * p.select(x > 0.0, x, negative);
}

Ex elu_backward(Pointwise& p) {  // (grad, alpha, scale, input_scale, is_result, self_or_result)
  Ex g = p.f32(0), x = p.f32(5);
  // From the result: alpha * scale * exp(..) = result + alpha * scale.
  Ex slope = p.context.flag(4) ? p.f32(3) * (x + p.f32(1) * p.f32(2))
                               : p.f32(3) * p.f32(1) * p.f32(2) * p.exp(x * p.f32(3));
  return g * p.select(x > 0.0, p.f32(2), slope);
}

Ex hardtanh_backward(Pointwise& p) {  // (grad, self, min, max)
  Ex x = p.f32(1);
  return p.select(x > p.f32(2) && x < p.f32(3), p.f32(0), p.k(0));
}

Ex hardswish_backward(Pointwise& p) {
  Ex g = p.f32(0), x = p.f32(1);
  return p.select(x <= -3.0, p.k(0), p.select(x >= 3.0, g, g * (x / 3.0 + 0.5)));
}

Ex mish_backward(Pointwise& p) {
  Ex g = p.f32(0), x = p.f32(1);
  Ex soft = p.max(x, p.k(0)) + p.log1p(p.exp(-p.abs(x)));
  Ex t = p.tanh(soft);
  return g * (t + x * p.sigmoid(x) * (1.0 - t * t));
}

// (self) -> (output, buffer); the buffer is exp(-|x|) as on CPU
void lower_log_sigmoid(LowerContext& c) {
  View out = c.out(0);
  MapBuilder m(c, out.sizes);
  Ex x = m.cast(m.operand(0), Dtype::kF32);
  Ex z = m.math(ExprOp::kExp, -m.unary(ExprOp::kAbs, x));
  m.output(out, m.binary(ExprOp::kMin, x, m.constant(0)) - m.math(ExprOp::kLog1p, z));
  if (c.wanted(1) && c.out_type(1).sizes == out.sizes) m.output(c.out(1), z);
  m.emit();
}

Ex smooth_l1_loss(Pointwise& p, Ex d) {  // beta is argument 3
  double beta = p.context.constant_or_refuse(3, "beta");
  Ex a = p.abs(d);
  if (beta == 0) return a;
  return p.select(a < beta, 0.5 / beta * (a * a), a - 0.5 * beta);
}

Ex huber_loss(Pointwise& p, Ex d) {  // delta is argument 3
  Ex a = p.abs(d), delta = p.f32(3);
  return p.select(a < delta, 0.5 * (a * a), delta * (a - 0.5 * delta));
}

Ex mse_loss(Pointwise&, Ex d) { return d * d; }

// Losses of (self, target, reduction, ...) that are a function of self - target. Reduction 0 none, 1 mean, 2
// sum.
template <Ex (*F)(Pointwise&, Ex)>
void difference_loss(LowerContext& c) {
  int64_t reduction = c.int_arg(2);
  std::vector<int64_t> sizes = broadcast_sizes(c.type(0).sizes, c.type(1).sizes);
  View out = c.out(0);
  if (reduction == 0) {
    MapBuilder m(c, out.sizes);
    Pointwise p{c, m, Dtype::kF32};
    m.output(out, F(p, p.f32(0) - p.f32(1)));
    m.emit();
    return;
  }
  MapBuilder m(c, sizes, 0);
  Pointwise p{c, m, Dtype::kF32};
  Ex sum = m.reduce(ReduceOp::kSum, F(p, p.f32(0) - p.f32(1)));
  m.row_output(out, reduction == 1 ? sum / static_cast<double>(m.reduced_count()) : sum);
  m.emit();
}

// Their gradients: (grad_output, self, target, reduction, ...)
template <Ex (*F)(Pointwise&, Ex)>
void difference_loss_backward(LowerContext& c) {
  View out = c.out(0);
  MapBuilder m(c, out.sizes);
  Pointwise p{c, m, Dtype::kF32};
  Ex g = p.f32(0) * F(p, p.f32(1) - p.f32(2));
  if (c.int_arg(3) == 1) g = g * (1.0 / static_cast<double>(std::max<int64_t>(out.numel(), 1)));
  m.output(out, g);
  m.emit();
}

Ex mse_slope(Pointwise&, Ex d) { return 2.0 * d; }

Ex smooth_l1_slope(Pointwise& p, Ex d) {  // beta is argument 4
  double beta = p.context.constant_or_refuse(4, "beta");
  Ex sign = p.map.unary(ExprOp::kSign, d);
  if (beta == 0) return sign;
  return p.select(p.abs(d) < beta, d * (1 / beta), sign);
}

Ex huber_slope(Pointwise& p, Ex d) {  // delta is argument 4
  Ex delta = p.f32(4);
  return p.max(p.min(d, delta), -delta);
}

// -w * (y log x + (1 - y) log(1 - x)), logarithms bounded below by -100
Ex binary_cross_entropy(Pointwise& p) {
  Ex x = p.f32(0), y = p.f32(1);
  Ex a = p.max(p.log(x), p.map.constant(-100)), b = p.max(p.log1p(-x), p.map.constant(-100));
  Ex loss = -(y * a + (1.0 - y) * b);
  return p.none(2) ? loss : loss * p.f32(2);
}

// The program stops on an element that is no probability.
void check_probabilities(LowerContext& c, int arg, const char* words) {
  c.check(c.in(arg), words, [](Ex v) { return !(v >= 0.0 && v <= 1.0); });
}

void lower_bce(LowerContext& c) {  // (self, target, weight, reduction)
  check_probabilities(c, 0, "RuntimeError: all elements of input should be between 0 and 1");
  check_probabilities(c, 1, "RuntimeError: all elements of target should be between 0 and 1");
  int64_t reduction = c.int_arg(3);
  View out = c.out(0);
  MapBuilder m(c, c.type(0).sizes, reduction == 0 ? -1 : 0);
  Pointwise p{c, m, Dtype::kF32};
  Ex loss = binary_cross_entropy(p);
  if (reduction == 0) {
    m.output(out, loss);
  } else {
    Ex sum = m.reduce(ReduceOp::kSum, loss);
    m.row_output(out, reduction == 1 ? sum / static_cast<double>(m.reduced_count()) : sum);
  }
  m.emit();
}

void lower_bce_backward(LowerContext& c) {  // (grad, self, target, weight, reduction)
  View out = c.out(0);
  MapBuilder m(c, out.sizes);
  Pointwise p{c, m, Dtype::kF32};
  Ex x = p.f32(1);
  Ex g = p.f32(0) * (x - p.f32(2)) / p.max((1.0 - x) * x, m.constant(1e-12));
  if (!p.none(3)) g = g * p.f32(3);
  if (c.int_arg(4) == 1) g = g * (1.0 / static_cast<double>(std::max<int64_t>(out.numel(), 1)));
  m.output(out, g);
  m.emit();
}

// (self, target, weight, pos_weight, reduction)
void lower_bce_with_logits(LowerContext& c) {
  int64_t reduction = c.int_arg(4);
  View out = c.out(0);
  MapBuilder m(c, broadcast_sizes(c.type(0).sizes, c.type(1).sizes), reduction == 0 ? -1 : 0);
  Pointwise p{c, m, Dtype::kF32};
  Ex x = p.f32(0), y = p.f32(1);
  Ex soft = p.log1p(p.exp(-p.abs(x))) + p.max(-x, m.constant(0));  // log(1 + exp(-x))
  Ex loss = (1.0 - y) * x + (p.none(3) ? soft : (1.0 + (p.f32(3) - 1.0) * y) * soft);
  if (!p.none(2)) loss = loss * p.f32(2);
  if (reduction == 0) {
    m.output(out, loss);
  } else {
    Ex sum = m.reduce(ReduceOp::kSum, loss);
    m.row_output(out, reduction == 1 ? sum / static_cast<double>(m.reduced_count()) : sum);
  }
  m.emit();
}

// GLU: halves of one axis. (self, dim)
void lower_glu(LowerContext& c) {
  View x = c.in(0), out = c.out(0);
  int d = static_cast<int>(wrap_dim(c.int_arg(1), static_cast<int64_t>(x.sizes.size())));
  int64_t half = x.sizes[static_cast<size_t>(d)] / 2;
  MapBuilder m(c, out.sizes);
  Ex a = m.input(view_sliced(x, d, 0, half)), b = m.input(view_sliced(x, d, half, half));
  m.output(out, a * m.math(ExprOp::kSigmoid, b));
  m.emit();
}

void lower_glu_backward(LowerContext& c) {  // (grad, self, dim)
  View x = c.in(1), out = c.out(0);
  int d = static_cast<int>(wrap_dim(c.int_arg(2), static_cast<int64_t>(x.sizes.size())));
  int64_t half = x.sizes[static_cast<size_t>(d)] / 2;
  View first = view_sliced(out, d, 0, half);
  MapBuilder m(c, first.sizes);
  Ex g = m.operand(0), a = m.input(view_sliced(x, d, 0, half));
  Ex s = m.math(ExprOp::kSigmoid, m.input(view_sliced(x, d, half, half)));
  m.output(first, g * s);
  m.output(view_sliced(out, d, half, half), g * a * s * (1.0 - s));
  m.emit();
}

// The weight of PReLU has one element or one per channel (axis 1).
Ex prelu_weight(LowerContext& c, MapBuilder& m, int arg, size_t rank) {
  View w = c.in(arg);
  if (w.sizes.size() == 1 && rank >= 2) {
    while (w.sizes.size() < rank - 1) w = view_unsqueezed(w, static_cast<int>(w.sizes.size()));
  }
  return m.input(w);
}

void lower_prelu(LowerContext& c) {  // _prelu_kernel(self, weight): weight is broadcast already
  View out = c.out(0);
  MapBuilder m(c, out.sizes);
  Ex x = m.operand(0);
  m.output(out, m.select(x > 0.0, x, x * prelu_weight(c, m, 1, out.sizes.size())));
  m.emit();
}

void lower_prelu_backward(
    LowerContext& c) {  // (grad, self, weight) -> (grad_self, grad_weight of the full shape)
  View out = c.out(0);
  MapBuilder m(c, out.sizes);
  Ex g = m.operand(0), x = m.operand(1);
  m.output(out, m.select(x > 0.0, g, g * prelu_weight(c, m, 2, out.sizes.size())));
  if (c.wanted(1)) m.output(c.out(1), m.select(x > 0.0, m.constant(0), g * x));
  m.emit();
}

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::relu", pointwise<[](Pointwise& p) { return p.map.unary(ExprOp::kRelu, p[0]); }>},
    {"aten::relu6", pointwise<[](Pointwise& p) { return p.min(p.k(6), p.max(p.k(0), p[0])); }>},
    {"aten::threshold", pointwise<[](Pointwise& p) { return p.select(p[0] <= p[1], p[2], p[0]); }>},
    {"aten::threshold_backward", pointwise<[](Pointwise& p) {  // (grad, self, threshold)
       return p.select(p[1] <= p[2], p.k(0), p[0]);
     }>},
    {"aten::gelu", pointwise<[](Pointwise& p) {
       return p.map.math(tanh_form(p.context, 1) ? ExprOp::kGeluTanh : ExprOp::kGelu, p.f32(0));
     }>},
    {"aten::gelu_backward", pointwise<[](Pointwise& p) { return gelu_backward(p); }>},
    {"aten::silu", unary_math<ExprOp::kSilu>},
    {"aten::silu_backward", pointwise<[](Pointwise& p) {
       Ex x = p.f32(1);
       Ex s = p.sigmoid(x);
       return p.f32(0) * s * (1.0 + x * (1.0 - s));
     }>},
    {"aten::sigmoid_backward", pointwise<[](Pointwise& p) {
       Ex y = p.f32(1);
       return p.f32(0) * (1.0 - y) * y;
     }>},
    {"aten::tanh_backward", pointwise<[](Pointwise& p) {
       Ex y = p.f32(1);
       return p.f32(0) * (1.0 - y * y);
     }>},
    {"aten::leaky_relu", pointwise<[](Pointwise& p) { return p.select(p[0] > 0.0, p[0], p[0] * p[1]); }>},
    {"aten::leaky_relu_backward", pointwise<[](Pointwise& p) {  // (grad, self, slope, self_is_result)
       return p.select(p[1] > 0.0, p[0], p[0] * p[2]);
     }>},
    {"aten::elu", pointwise<[](Pointwise& p) { return elu(p); }>},
    {"aten::elu_backward", pointwise<[](Pointwise& p) { return elu_backward(p); }>},
    {"aten::softplus", pointwise<[](Pointwise& p) { return softplus(p); }>},
    {"aten::softplus_backward", pointwise<[](Pointwise& p) {  // (grad, self, beta, threshold)
       Ex bx = p.f32(1) * p.f32(2);
       return p.select(bx > p.f32(3), p.f32(0), p.f32(0) * p.sigmoid(bx));
     }>},
    {"aten::mish", unary_math<ExprOp::kMish>},
    {"aten::mish_backward", pointwise<[](Pointwise& p) { return mish_backward(p); }>},
    {"aten::hardtanh", pointwise<[](Pointwise& p) { return p.min(p[2], p.max(p[1], p[0])); }>},
    {"aten::hardtanh_backward", pointwise<[](Pointwise& p) { return hardtanh_backward(p); }>},
    {"aten::hardsigmoid",
     pointwise<[](Pointwise& p) { return p.min(p.max(p.f32(0) + 3.0, p.k(0)), p.k(6)) * (1.0 / 6); }>},
    {"aten::hardsigmoid_backward", pointwise<[](Pointwise& p) {
       Ex x = p.f32(1);
       return p.select(x > -3.0 && x < 3.0, p.f32(0) * (1.0 / 6), p.k(0));
     }>},
    {"aten::hardswish", pointwise<[](Pointwise& p) {
       return p.f32(0) * p.min(p.max(p.f32(0) + 3.0, p.k(0)), p.k(6)) * (1.0 / 6);
     }>},
    {"aten::hardswish_backward", pointwise<[](Pointwise& p) { return hardswish_backward(p); }>},
    {"aten::softshrink", pointwise<[](Pointwise& p) {
       Ex x = p.f32(0), l = p.f32(1);
       return p.select(x > l, x - l, p.select(x < -l, x + l, p.select(p.is_nan(x), x, p.k(0))));
     }>},
    {"aten::softshrink_backward", pointwise<[](Pointwise& p) {
       Ex x = p.f32(1), l = p.f32(2);
       return p.select(x > l || x < -l, p.f32(0), p.k(0));
     }>},
    {"aten::hardshrink", pointwise<[](Pointwise& p) {
       Ex x = p.f32(0), l = p.f32(1);
       return p.select(x >= -l && x <= l, p.k(0), x);
     }>},
    {"aten::hardshrink_backward", pointwise<[](Pointwise& p) {
       Ex x = p.f32(1), l = p.f32(2);
       return p.select(x < -l || x > l, p.f32(0), p.k(0));
     }>},
    {"aten::log_sigmoid_forward", lower_log_sigmoid},
    {"aten::log_sigmoid_backward", pointwise<[](Pointwise& p) { return p.f32(0) * p.sigmoid(-p.f32(1)); }>},
    {"aten::logit_backward", pointwise<[](Pointwise& p) {  // (grad, self, eps)
       Ex x = p.f32(1);
       Ex g = p.f32(0) / (x * (1.0 - x));
       if (p.none(2)) {
         return p.select(x < 0.0 || x > 1.0, p.k(std::numeric_limits<double>::quiet_NaN()), g);
       }
       return p.select(x < p.f32(2) || x > 1.0 - p.f32(2), p.k(0), g);
     }>},
    {"aten::glu", lower_glu},
    {"aten::glu_backward", lower_glu_backward},
    {"aten::_prelu_kernel", lower_prelu},
    {"aten::_prelu_kernel_backward", lower_prelu_backward},

    {"aten::mse_loss", difference_loss<mse_loss>},
    {"aten::mse_loss_backward", difference_loss_backward<mse_slope>},
    {"aten::smooth_l1_loss", difference_loss<smooth_l1_loss>, const_arg(3)},
    {"aten::smooth_l1_loss_backward", difference_loss_backward<smooth_l1_slope>, const_arg(4)},
    {"aten::huber_loss", difference_loss<huber_loss>},
    {"aten::huber_loss_backward", difference_loss_backward<huber_slope>},
    {"aten::binary_cross_entropy", lower_bce},
    {"aten::binary_cross_entropy_backward", lower_bce_backward},
    {"aten::binary_cross_entropy_with_logits", lower_bce_with_logits},
});

}  // namespace
}  // namespace trnsim::compiler
