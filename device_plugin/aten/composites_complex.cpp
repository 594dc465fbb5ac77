// Complex tensors as pairs of real ones. The hardware has no complex type: an operator on complex operands is made of
// operators on their parts, which lie next to each other in memory.
#include <ATen/ExpandUtils.h>
#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/hypot.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/select_backward.h>
#include <ATen/ops/slice_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/MemoryFormat.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "device_plugin/aten/complex_pair.h"
#include "device_plugin/aten/composite_kernel.h"

namespace trnsim::aten {

using at::Tensor;

constexpr double kInf = std::numeric_limits<double>::infinity();

Pair pair_of(const Tensor& t) {
  if (t.is_neg()) {
    const Pair p = pair_of(at::_neg_view(t));
    return {p.re.neg(), p.im.neg()};
  }
  if (!t.is_complex()) return {t, at::zeros_like(t)};
  if (t.is_conj()) {
    const Pair p = pair_of(at::_conj(t));
    return {p.re, p.im.neg()};
  }
  const Tensor parts = at::view_as_real(t);
  return {parts.select(-1, 0), parts.select(-1, 1)};
}

namespace {

// `strides`: a layout without gaps
Tensor laid_out(const Tensor& re, const Tensor& im, at::IntArrayRef strides) {
  if (c10::is_contiguous_strides(re.sizes(), strides)) return at::view_as_complex(at::stack({re, im}, -1));
  std::vector<int64_t> outer_first(strides.size());
  std::iota(outer_first.begin(), outer_first.end(), 0);
  std::stable_sort(outer_first.begin(), outer_first.end(),
                   [&](int64_t i, int64_t j) { return strides[i] > strides[j]; });
  const Tensor parts = at::stack({re.permute(outer_first), im.expand_as(re).permute(outer_first)}, -1);
  return at::view_as_complex(parts).as_strided(re.sizes(), strides);
}

}  // namespace

Tensor complex_of(const Tensor& re, const Tensor& im) {
  return laid_out(re, im, at::infer_dense_strides(re.sizes(), re.strides()));
}

Pair times(const Pair& a, const Pair& b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
Pair rotated(const Tensor& size, const Tensor& angle) { return {size * angle.cos(), size * angle.sin()}; }

namespace {

// Both operands of an operator, in the real type of their common one.
struct Operands {
  Operands(const Tensor& x, const Tensor& y) {
    const c10::ScalarType common = at::result_type(x, y);
    type = c10::toRealValueType(common);
    const c10::Device device = x.is_cpu() ? y.device() : x.device();
    auto part = [&](const Tensor& t) {
      const Pair p = pair_of(t);
      return Pair{p.re.to(device, type), p.im.to(device, type)};
    };
    a = part(x);
    b = part(y);
  }
  c10::ScalarType type;
  Pair a, b;
};

Tensor number(const at::Scalar& s) { return at::native::wrapped_scalar_tensor(s); }

Pair scaled(const Pair& p, const at::Scalar& s) {
  if (!s.isComplex()) return {p.re * s, p.im * s};
  const auto c = s.toComplexDouble();
  return {p.re * c.real() - p.im * c.imag(), p.re * c.imag() + p.im * c.real()};
}

Tensor plus(const Tensor& x, const Tensor& y, const at::Scalar& alpha) {
  const Operands o(x, y);
  const Pair b = alpha.equal(1) ? o.b : scaled(o.b, alpha);
  return complex_of(o.a.re + b.re, o.a.im + b.im);
}
Tensor plus_scalar(const Tensor& x, const at::Scalar& y, const at::Scalar& alpha) {
  return plus(x, number(y), alpha);
}

Tensor minus(const Tensor& x, const Tensor& y, const at::Scalar& alpha) {
  const Operands o(x, y);
  const Pair b = alpha.equal(1) ? o.b : scaled(o.b, alpha);
  return complex_of(o.a.re - b.re, o.a.im - b.im);
}
Tensor minus_scalar(const Tensor& x, const at::Scalar& y, const at::Scalar& alpha) {
  return minus(x, number(y), alpha);
}

Tensor product_of(const Tensor& x, const Tensor& y) {
  const Operands o(x, y);
  if (!y.is_complex()) return complex_of(o.a.re * o.b.re, o.a.im * o.b.re);
  if (!x.is_complex()) return complex_of(o.a.re * o.b.re, o.a.re * o.b.im);
  return complex_of(times(o.a, o.b));
}
Tensor product_of_scalar(const Tensor& x, const at::Scalar& y) { return product_of(x, number(y)); }

// Smith's: by the quotient of the divisor's parts, so that squares neither overflow nor vanish, and what is divided by an
// infinity is zero.
Pair quotient(const Pair& a, const Pair& b) {
  const Tensor turned = b.re.abs().lt(b.im.abs());
  const Tensor large = at::where(turned, b.im, b.re), small = at::where(turned, b.re, b.im);
  const Tensor re = at::where(turned, a.im, a.re), im = at::where(turned, a.re, a.im);
  const Tensor ratio = small / large, divisor = large + small * ratio;
  const Tensor rest = im - re * ratio;
  return {(re + im * ratio) / divisor, at::where(turned, rest.neg(), rest) / divisor};
}

Tensor quotient_of(const Tensor& x, const Tensor& y) {
  const Operands o(x, y);
  if (!y.is_complex()) return complex_of(o.a.re / o.b.re, o.a.im / o.b.re);
  return complex_of(quotient(o.a, o.b));
}
Tensor quotient_of_scalar(const Tensor& x, const at::Scalar& y) { return quotient_of(x, number(y)); }

Tensor reciprocal(const Tensor& x) {
  const Pair p = pair_of(x);
  return complex_of(quotient({at::ones_like(p.re), at::zeros_like(p.re)}, p));
}

Tensor negative(const Tensor& x) {
  const Pair p = pair_of(x);
  return x.is_complex() ? complex_of(p.re.neg(), p.im.neg()) : p.re.neg();
}

c10::DimVector strides_of(const Tensor& x, at::MemoryFormat format) {
  switch (format) {
    case at::MemoryFormat::Contiguous:
      return c10::contiguous_strides(x.sizes());
    case at::MemoryFormat::ChannelsLast:
      return c10::DimVector(c10::get_channels_last_strides_2d(x.sizes()));
    case at::MemoryFormat::ChannelsLast3d:
      return c10::DimVector(c10::get_channels_last_strides_3d(x.sizes()));
    default:
      return c10::DimVector(x.is_non_overlapping_and_dense()
                                ? x.strides()
                                : at::IntArrayRef(at::infer_dense_strides(x.sizes(), x.strides())));
  }
}

Tensor clone(const Tensor& x, std::optional<at::MemoryFormat> format) {
  const Pair p = pair_of(x);
  if (!x.is_complex()) return p.re.clone(format);
  return laid_out(p.re, p.im, strides_of(x, format.value_or(at::MemoryFormat::Preserve)));
}

Tensor conj_physical(const Tensor& x) {
  const Pair p = pair_of(x);
  return x.is_complex() ? complex_of(p.re, p.im.neg()) : p.re.clone();
}

Tensor absolute(const Tensor& x) {
  const Pair p = pair_of(x);
  return at::hypot(p.re, p.im);
}

Tensor angle(const Tensor& x) {
  const Pair p = pair_of(x);
  return at::atan2(p.im, p.re);
}

Tensor sign(const Tensor& x) {
  const Pair p = pair_of(x);
  const Tensor size = at::hypot(p.re, p.im), none = size.eq(0);
  return complex_of(at::where(none, p.re, p.re / size), at::where(none, p.im, p.im / size));
}

// A vanishing size takes any angle, and an angle of zero any size. What is too large for a size may be small enough for a
// part, so that the largest sizes come as two factors.
Tensor exponential(const Tensor& x) {
  constexpr double kFinite = 88;
  const Pair p = pair_of(x);
  const Tensor size = p.re.clamp_max(kFinite).exp(), more = (p.re - kFinite).clamp_min(0).exp();
  const Tensor turns = p.im.isfinite();
  const Tensor angle = at::where(turns.logical_or(size.ne(0)), p.im, 0.0);
  const Tensor re = at::where(turns.logical_or(p.re.ne(kInf)), size * angle.cos() * more, p.re);
  return complex_of(re, at::where(angle.eq(0), angle, size * angle.sin() * more));
}

Tensor logarithm(const Tensor& x) {
  const Pair p = pair_of(x);
  return complex_of(at::hypot(p.re, p.im).log(), at::atan2(p.im, p.re));
}

Tensor same_values(const Tensor& x, const Tensor& y) {
  const Operands o(x, y);
  return o.a.re.eq(o.b.re).logical_and(o.a.im.eq(o.b.im));
}
Tensor same_values_scalar(const Tensor& x, const at::Scalar& y) { return same_values(x, number(y)); }
Tensor other_values(const Tensor& x, const Tensor& y) { return same_values(x, y).logical_not(); }
Tensor other_values_scalar(const Tensor& x, const at::Scalar& y) { return other_values(x, number(y)); }

Tensor choose(const Tensor& condition, const Tensor& x, const Tensor& y) {
  const Operands o(x, y);
  return complex_of(at::where(condition, o.a.re, o.b.re), at::where(condition, o.a.im, o.b.im));
}

Tensor is_nan(const Tensor& x) {
  const Pair p = pair_of(x);
  return p.re.isnan().logical_or(p.im.isnan());
}

// What treats both parts alike, with the arguments of the real operator.
template <class F>
Tensor each_part(const Tensor& x, F f) {
  const Pair p = pair_of(x);
  return complex_of(f(p.re), f(p.im));
}

// Reductions convert their operand to `dtype` first, which may be real.
template <class F>
Tensor reduced(const Tensor& x, std::optional<c10::ScalarType> dtype, F f) {
  const Tensor operand = dtype ? x.to(*dtype) : x;
  return operand.is_complex() ? each_part(operand, f) : f(operand);
}

Tensor sum(const Tensor& x, at::OptionalIntArrayRef dim, bool keepdim, std::optional<c10::ScalarType> dtype) {
  return reduced(x, dtype, [&](const Tensor& t) { return t.sum(dim, keepdim); });
}
Tensor sum_all(const Tensor& x, std::optional<c10::ScalarType> dtype) {
  return reduced(x, dtype, [&](const Tensor& t) { return t.sum(); });
}
Tensor mean(const Tensor& x, at::OptionalIntArrayRef dim, bool keepdim,
            std::optional<c10::ScalarType> dtype) {
  return reduced(x, dtype, [&](const Tensor& t) { return t.mean(dim, keepdim); });
}
Tensor mean_all(const Tensor& x, std::optional<c10::ScalarType> dtype) {
  return reduced(x, dtype, [&](const Tensor& t) { return t.mean(); });
}
Tensor running_sum(const Tensor& x, int64_t dim, std::optional<c10::ScalarType> dtype) {
  return reduced(x, dtype, [&](const Tensor& t) { return t.cumsum(dim); });
}

Tensor constant_pad(const Tensor& x, at::IntArrayRef pad, const at::Scalar& value) {
  const auto c = value.toComplexDouble();
  const Pair p = pair_of(x);
  return complex_of(at::constant_pad_nd(p.re, pad, c.real()), at::constant_pad_nd(p.im, pad, c.imag()));
}

Tensor slice_backward(const Tensor& grad, at::IntArrayRef sizes, int64_t dim, int64_t start, int64_t end,
                      int64_t step) {
  return each_part(grad,
                   [&](const Tensor& t) { return at::slice_backward(t, sizes, dim, start, end, step); });
}
Tensor select_backward(const Tensor& grad, at::IntArrayRef sizes, int64_t dim, int64_t index) {
  return each_part(grad, [&](const Tensor& t) { return at::select_backward(t, sizes, dim, index); });
}

Tensor concatenated(at::TensorList tensors, int64_t dim) {
  std::vector<Tensor> re, im;
  c10::ScalarType type = c10::ScalarType::Undefined;
  for (const Tensor& t : tensors)
    type = type == c10::ScalarType::Undefined
               ? c10::toRealValueType(t.scalar_type())
               : c10::promoteTypes(type, c10::toRealValueType(t.scalar_type()));
  for (const Tensor& t : tensors) {
    const Pair p = pair_of(t);
    re.push_back(p.re.to(type));
    im.push_back(p.im.to(type));
  }
  return complex_of(at::cat(re, dim), at::cat(im, dim));
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  return each_part(x, [&](const Tensor& t) { return t.index_select(dim, index); });
}
Tensor flip(const Tensor& x, at::IntArrayRef dims) {
  return each_part(x, [&](const Tensor& t) { return t.flip(dims); });
}
Tensor roll(const Tensor& x, at::IntArrayRef shifts, at::IntArrayRef dims) {
  return each_part(x, [&](const Tensor& t) { return t.roll(shifts, dims); });
}
Tensor repeat(const Tensor& x, at::IntArrayRef repeats) {
  return each_part(x, [&](const Tensor& t) { return t.repeat(repeats); });
}
Tensor lower_triangle(const Tensor& x, int64_t diagonal) {
  return each_part(x, [&](const Tensor& t) { return t.tril(diagonal); });
}
Tensor upper_triangle(const Tensor& x, int64_t diagonal) {
  return each_part(x, [&](const Tensor& t) { return t.triu(diagonal); });
}

// Four real products; those with a part that is zero are left out.
template <class F>
Tensor product(const Tensor& x, const Tensor& y, F f) {
  const Operands o(x, y);
  if (!y.is_complex()) return complex_of(f(o.a.re, o.b.re), f(o.a.im, o.b.re));
  if (!x.is_complex()) return complex_of(f(o.a.re, o.b.re), f(o.a.re, o.b.im));
  return complex_of(f(o.a.re, o.b.re) - f(o.a.im, o.b.im), f(o.a.re, o.b.im) + f(o.a.im, o.b.re));
}
Tensor matrix_product(const Tensor& x, const Tensor& y) {
  return product(x, y, [](const Tensor& a, const Tensor& b) { return a.mm(b); });
}
Tensor batched_product(const Tensor& x, const Tensor& y) {
  return product(x, y, [](const Tensor& a, const Tensor& b) { return a.bmm(b); });
}
Tensor vector_product(const Tensor& x, const Tensor& y) {
  return product(x, y, [](const Tensor& a, const Tensor& b) { return a.mv(b); });
}
Tensor inner_product(const Tensor& x, const Tensor& y) {
  return product(x, y, [](const Tensor& a, const Tensor& b) { return a.dot(b); });
}

// ---- made from real tensors
// ----------------------------------------------------------------------------------------
Tensor complex_from_parts(const Tensor& re, const Tensor& im) {
  const auto parts = at::expand_outplace(re, im);
  return complex_of(*std::get<0>(parts), *std::get<1>(parts));
}
void check_parts(const Tensor& re, const Tensor& im, const Tensor& out) {
  TORCH_CHECK(re.scalar_type() == im.scalar_type(), "Expected object of scalar type ", re.scalar_type(),
              " but got scalar type ", im.scalar_type(), " for second argument");
  TORCH_CHECK(c10::isFloatingType(re.scalar_type()) && re.scalar_type() != at::kBFloat16,
              "Expected both inputs to be Half, Float or Double tensors but got ", re.scalar_type(), " and ",
              im.scalar_type());
  TORCH_CHECK(out.scalar_type() == c10::toComplexType(re.scalar_type()), "Expected object of scalar type ",
              c10::toComplexType(re.scalar_type()), " but got scalar type ", out.scalar_type(),
              " for argument 'out'");
}
Tensor& complex_from_parts_out(const Tensor& re, const Tensor& im, Tensor& out) {
  check_parts(re, im, out);
  const Tensor result = complex_from_parts(re, im);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}
Tensor& polar_out(const Tensor& size, const Tensor& angle, Tensor& out) {
  check_parts(size, angle, out);
  const Pair p = rotated(size, angle);
  return complex_from_parts_out(p.re, p.im, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("complex.out", &complex_from_parts_out);
  m.impl("polar.out", &polar_out);
}

}  // namespace

const c10::KernelFunction* complex_form(const std::string& functional) {
  static const auto* forms = [] {
    auto* map = new std::unordered_map<std::string, c10::KernelFunction>;
    const Composites rows = {
        composite("aten::add.Tensor", &plus),
        composite("aten::add.Scalar", &plus_scalar),
        composite("aten::sub.Tensor", &minus),
        composite("aten::sub.Scalar", &minus_scalar),
        composite("aten::mul.Tensor", &product_of),
        composite("aten::mul.Scalar", &product_of_scalar),
        composite("aten::div.Tensor", &quotient_of),
        composite("aten::div.Scalar", &quotient_of_scalar),
        composite("aten::reciprocal", &reciprocal),
        composite("aten::neg", &negative),
        composite("aten::clone", &clone),
        composite("aten::conj_physical", &conj_physical),
        composite("aten::abs", &absolute),
        composite("aten::angle", &angle),
        composite("aten::sgn", &sign),
        composite("aten::exp", &exponential),
        composite("aten::log", &logarithm),
        composite("aten::eq.Tensor", &same_values),
        composite("aten::eq.Scalar", &same_values_scalar),
        composite("aten::ne.Tensor", &other_values),
        composite("aten::ne.Scalar", &other_values_scalar),
        composite("aten::where.self", &choose),
        composite("aten::isnan", &is_nan),
        composite("aten::sum", &sum_all),
        composite("aten::sum.dim_IntList", &sum),
        composite("aten::mean", &mean_all),
        composite("aten::mean.dim", &mean),
        composite("aten::cumsum", &running_sum),
        composite("aten::constant_pad_nd", &constant_pad),
        composite("aten::slice_backward", &slice_backward),
        composite("aten::select_backward", &select_backward),
        composite("aten::cat", &concatenated),
        composite("aten::index_select", &index_select),
        composite("aten::flip", &flip),
        composite("aten::roll", &roll),
        composite("aten::repeat", &repeat),
        composite("aten::tril", &lower_triangle),
        composite("aten::triu", &upper_triangle),
        composite("aten::mm", &matrix_product),
        composite("aten::bmm", &batched_product),
        composite("aten::mv", &vector_product),
        composite("aten::dot", &inner_product),
    };
    for (const Composites& table : {rows, complex_function_forms(), complex_move_forms()})
      for (const CompositeRow& row : table) {
        const bool added = map->emplace(row.name, row.function).second;
        TORCH_INTERNAL_ASSERT(added, row.name, " has two forms for complex tensors");
      }
    return map;
  }();
  const auto it = forms->find(functional);
  return it == forms->end() ? nullptr : &it->second;
}

}  // namespace trnsim::aten
