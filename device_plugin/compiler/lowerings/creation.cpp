// Tensors from nothing: constants, ranges, identity.
#include "device_plugin/compiler/lowerings/pointwise.h"

namespace trnsim::compiler {
namespace {

template <int value_arg>
void lower_fill(LowerContext& c) {
  View out = c.out(0);
  if (view_empty(out)) return;
  MapBuilder m(c, out.sizes);
  m.output(out, m.operand(value_arg));
  m.emit();
}

template <int value>
void lower_constant(LowerContext& c) {
  View out = c.out(0);
  if (value == 0 && isa::dtype_bytes(out.dtype) == 1)
    out.dtype = Dtype::kU8;  // bits, also of types that are only moved
  if (!view_empty(out)) c.fill(out, value);
}

// The number of the element in row-major order: an out= tensor of the right number of elements keeps its shape.
Ex position(MapBuilder& m, const std::vector<int64_t>& sizes) {
  Ex i = m.iota(0);
  for (size_t d = 1; d < sizes.size(); ++d)
    i = i * m.constant(static_cast<double>(sizes[d]), Dtype::kI32) + m.iota(static_cast<int>(d));
  return i;
}

// start + i * step; integer results stay exact
template <int start_arg, int step_arg>
void lower_arange(LowerContext& c) {
  View out = c.out(0);
  if (view_empty(out)) return;
  MapBuilder m(c, out.sizes);
  Dtype t = compute_dtype(out.dtype);
  Ex x = m.cast(position(m, out.sizes), t);
  if (step_arg >= 0) {
    auto step = c.constant(step_arg);
    if (!step || *step != 1) x = x * m.cast(m.operand(step_arg), t);
  }
  if (start_arg >= 0) {
    auto start = c.constant(start_arg);
    if (!start || *start != 0) x = m.cast(m.operand(start_arg), t) + x;
  }
  m.output(out, x);
  m.emit();
}

// Both ends are exact: the upper half counts back from the end.
Ex linspace(LowerContext& c, MapBuilder& m) {
  const View out = c.out(0);
  const int64_t steps = out.numel();
  Ex start = m.cast(m.operand(0), Dtype::kF32), end = m.cast(m.operand(1), Dtype::kF32);
  Ex i = m.cast(position(m, out.sizes), Dtype::kF32);
  if (steps <= 1) return start + i;
  Ex step = (end - start) / static_cast<double>(steps - 1);
  return m.select(i < static_cast<double>(steps / 2), start + step * i,
                  end - step * (static_cast<double>(steps - 1) - i));
}

void lower_linspace(LowerContext& c) {  // (start, end, steps)
  View out = c.out(0);
  if (view_empty(out)) return;
  MapBuilder m(c, out.sizes);
  m.output(out, linspace(c, m));
  m.emit();
}

void lower_logspace(LowerContext& c) {  // (start, end, steps, base)
  View out = c.out(0);
  if (view_empty(out)) return;
  MapBuilder m(c, out.sizes);
  m.output(out, m.binary(ExprOp::kPow, m.cast(m.operand(3), Dtype::kF32), linspace(c, m)));
  m.emit();
}

void lower_eye(LowerContext& c) {
  View out = c.out(0);
  if (view_empty(out)) return;
  MapBuilder m(c, out.sizes);
  m.output(out, m.iota(0) == m.iota(1));
  m.emit();
}

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::fill.Scalar", lower_fill<1>},
    {"aten::fill.Tensor", lower_fill<1>},
    {"aten::full", lower_fill<1>},
    {"aten::full_like", lower_fill<1>},
    {"aten::new_full", lower_fill<2>},
    {"aten::scalar_tensor", lower_fill<0>},
    {"aten::zero", lower_constant<0>},
    {"aten::zeros", lower_constant<0>},
    {"aten::zeros_like", lower_constant<0>},
    {"aten::new_zeros", lower_constant<0>},
    {"aten::ones", lower_constant<1>},
    {"aten::ones_like", lower_constant<1>},
    {"aten::new_ones", lower_constant<1>},
    // Their scalars decide the size of the result, so each value is a program of its own.
    {"aten::arange", lower_arange<-1, -1>, const_arg(0)},
    {"aten::arange.start", lower_arange<0, -1>, const_arg(0) | const_arg(1)},
    {"aten::arange.start_step", lower_arange<0, 2>, const_arg(0) | const_arg(1) | const_arg(2)},
    {"aten::range.step", lower_arange<0, 2>, const_arg(0) | const_arg(1) | const_arg(2)},
    {"aten::linspace", lower_linspace},
    {"aten::logspace", lower_logspace},
    {"aten::eye", lower_eye},
    {"aten::eye.m", lower_eye},
});

}  // namespace
}  // namespace trnsim::compiler
