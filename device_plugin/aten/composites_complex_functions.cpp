// Functions of complex tensors, made of real functions of their parts (composites_complex.cpp has the arithmetic).
#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/copysign.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/hypot.h>
#include <ATen/ops/linalg_cross.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/var.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <numbers>
#include <optional>
#include <tuple>
#include <vector>

#include "device_plugin/aten/complex_pair.h"
#include "device_plugin/aten/composite_kernel.h"

namespace trnsim::aten {
namespace {

using at::Tensor;

template <Pair (*f)(const Pair&)>
Tensor of_pair(const Tensor& x) {
  return complex_of(f(pair_of(x)));
}

Pair times_i(const Pair& p) { return {p.im.neg(), p.re}; }
Pair over_i(const Pair& p) { return {p.im, p.re.neg()}; }

// ---- roots and powers
// ------------------------------------------------------------------------------------------------
Pair root(const Pair& p) {
  const Tensor size = at::hypot(p.re, p.im), larger = ((p.re.abs() + size) * 0.5).sqrt();
  const Tensor none = larger.eq(0), smaller = at::where(none, p.im, p.im / (larger * 2));
  const Tensor right = p.re.ge(0);
  Tensor re = at::where(right, larger, smaller.abs()), im = at::where(right, smaller, larger);
  im = at::copysign(im, p.im);
  const Tensor far = p.im.isinf();  // whatever the real part is
  return {at::where(far, p.im.abs(), re), at::where(far, p.im, im)};
}
Tensor inverse_root(const Tensor& x) { return complex_of(root(pair_of(x))).reciprocal(); }

// In polar form, which leaves the size to the real power: the exponential of a rounded product would lose digits.
Tensor power(const Tensor& x, const Tensor& y) {
  const c10::ScalarType common = c10::toRealValueType(at::result_type(x, y));
  const c10::ScalarType type = common == at::kHalf ? at::kFloat : common;  // an angle needs more digits
  const c10::Device device = x.is_cpu() ? y.device() : x.device();
  const auto part = [&](const Tensor& t) {
    const Pair p = pair_of(t.to(device));
    return Pair{p.re.to(type), p.im.to(type)};
  };
  const Pair base = part(x), exponent = part(y);
  const Tensor size = at::hypot(base.re, base.im), angle = at::atan2(base.im, base.re);
  const Tensor new_size = size.pow(exponent.re) * (exponent.im * angle).neg().exp();
  const Tensor new_angle = exponent.im * size.log() + exponent.re * angle;
  Pair parts = rotated(new_size, new_angle);
  const Tensor of_zero = size.eq(0);  // 0, infinite or, by an imaginary exponent, NaN
  parts.re = at::where(of_zero.logical_and(exponent.re.lt(0)), new_size, parts.re);
  const Tensor value = complex_of(parts.re.to(common), parts.im.to(common));
  const Tensor zeros = at::zeros_like(value), ones = at::ones_like(value);
  return at::where(exponent.re.eq(0).logical_and(exponent.im.eq(0)), ones,
                   at::where(of_zero.logical_and(exponent.re.gt(0)), zeros, value));
}
// In the type of the result: a complex number beside a tensor of real ones.
Tensor filled_as(const Tensor& t, const at::Scalar& v) {
  return at::full_like(t, v, t.options().dtype(at::result_type(t, v)));
}
Tensor power_of_number(const at::Scalar& x, const Tensor& y) { return power(filled_as(y, x), y); }
// As the CPU: products for the exponents that have them.
Tensor power_by_number(const Tensor& x, const at::Scalar& y) {
  if (!y.isComplex()) {
    const double n = y.toDouble();
    if (n == 0) return at::ones_like(x);
    if (n == 1) return x.clone();
    if (n == 2) return x * x;
    if (n == 3) return x * x * x;
    if (n == -1) return x.reciprocal();
    if (n == -2) return (x * x).reciprocal();
    if (n == 0.5) return complex_of(root(pair_of(x)));
    if (n == -0.5) return inverse_root(x);
  }
  return power(x, filled_as(x, y));
}

// ---- exponentials and logarithms
// -------------------------------------------------------------------------------------
Pair exponential_minus_1(const Pair& p) {
  const Tensor half = (p.im * 0.5).sin();
  return {p.re.expm1() * p.im.cos() - 2 * half * half, p.re.exp() * p.im.sin()};
}
Tensor exponential_2(const Tensor& x) { return (x * std::numbers::ln2).exp(); }

Pair logarithm_1p(const Pair& p) {
  const Tensor next = p.re + 1, near = at::hypot(p.re, p.im).lt(0.5);
  const Tensor square = p.re * (p.re + 2) + p.im * p.im;
  return {at::where(near, square.log1p() * 0.5, at::hypot(next, p.im).log()), at::atan2(p.im, next)};
}
Tensor logarithm_2(const Tensor& x) { return x.log() * (1 / std::numbers::ln2); }
Tensor logarithm_10(const Tensor& x) { return x.log() * (1 / std::numbers::ln10); }

Tensor sigmoid(const Tensor& x) { return (x.neg().exp() + 1).reciprocal(); }
Tensor sigmoid_backward(const Tensor& grad, const Tensor& out) { return grad * ((1 - out) * out).conj(); }
Tensor silu(const Tensor& x) { return x * sigmoid(x); }

// ---- circular and hyperbolic functions
// -------------------------------------------------------------------------------
// A part that is zero keeps the imaginary part zero, also beside an infinity.
Pair hyperbolic_sine(const Pair& p) {
  return {p.re.sinh() * p.im.cos(), at::where(p.im.eq(0), p.im, p.re.cosh() * p.im.sin())};
}
Pair hyperbolic_cosine(const Pair& p) {
  const Tensor none = p.im.eq(0).logical_or(p.re.eq(0));
  return {p.re.cosh() * p.im.cos(), at::where(none, p.im * p.re.sign(), p.re.sinh() * p.im.sin())};
}
Pair hyperbolic_tangent(const Pair& p) {  // by the tangents of the parts, which keep their digits near poles
  constexpr double kSaturated = 20;       // beyond, the real part is 1 and the other one vanishes
  const Tensor no_angle = p.re.isinf().logical_and(p.im.isfinite().logical_not());
  const Tensor x = p.re.clamp(-kSaturated, kSaturated), size = x.tanh();
  const Tensor tangent = at::where(no_angle, 0.0, p.im).tan();
  const Tensor square = tangent * tangent, cosh = x.cosh(), norm = 1 + size * size * square;
  return {size * (1 + square) / norm, tangent / (cosh * cosh) / norm};
}
Pair sine(const Pair& p) { return over_i(hyperbolic_sine(times_i(p))); }
Pair cosine(const Pair& p) { return hyperbolic_cosine(times_i(p)); }
Pair tangent(const Pair& p) { return over_i(hyperbolic_tangent(times_i(p))); }
Tensor hyperbolic_tangent_backward(const Tensor& grad, const Tensor& out) {
  return grad * (1 - out * out).conj();
}
Tensor sine_over_argument(const Tensor& x) {
  const Tensor angle = x * std::numbers::pi, none = x.eq(0), one = at::ones_like(x);
  return at::where(none, one, angle.sin() / at::where(none, one, angle));
}

// ---- their inverses, by Kahan's formulas, which keep the signs at the cuts
// -------------------------------------------------
struct Roots {  // of 1 - z and 1 + z
  explicit Roots(const Pair& p) : below(root({1 - p.re, p.im.neg()})), above(root({1 + p.re, p.im})) {}
  Pair below, above;
};
Pair choose(const Tensor& condition, const Pair& a, const Pair& b) {
  return {at::where(condition, a.re, b.re), at::where(condition, a.im, b.im)};
}
struct Infinity {  // a number with an infinite part, by its angle
  explicit Infinity(const Pair& p) : here(p.re.isinf().logical_or(p.im.isinf())) {
    auto direction = [](const Tensor& t) {
      return at::where(t.isinf(), at::copysign(at::ones_like(t), t), t * 0);
    };
    towards = {direction(p.re), direction(p.im)};
  }
  Tensor here;
  Pair towards;
};
Tensor infinite_with_sign_of(const Tensor& t) { return at::copysign(at::full_like(t, INFINITY), t); }

Pair arc_sine(const Pair& p) {
  const Roots r(p);
  const Infinity far(p);
  const Pair near{at::atan2(p.re, r.below.re * r.above.re - r.below.im * r.above.im),
                  (r.below.re * r.above.im - r.below.im * r.above.re).asinh()};
  return choose(far.here, {at::atan2(far.towards.re, far.towards.im.abs()), infinite_with_sign_of(p.im)},
                near);
}
Pair arc_cosine(const Pair& p) {
  const Roots r(p);
  const Infinity far(p);
  const Pair near{2 * at::atan2(r.below.re, r.above.re),
                  (r.above.re * r.below.im - r.above.im * r.below.re).asinh()};
  return choose(far.here,
                {at::atan2(far.towards.im.abs(), far.towards.re), infinite_with_sign_of(p.im.neg())}, near);
}
Pair area_cosine(const Pair& p) {
  const Pair below = root({p.re - 1, p.im}), above = root({p.re + 1, p.im});
  const Infinity far(p);
  const Pair near{(below.re * above.re + below.im * above.im).asinh(), 2 * at::atan2(below.im, above.re)};
  return choose(far.here, {at::full_like(p.re, INFINITY), at::atan2(far.towards.im, far.towards.re)}, near);
}
Pair area_sine(const Pair& p) { return over_i(arc_sine(times_i(p))); }
Pair area_tangent(const Pair& p) {
  const Tensor size = p.re.abs(), rest = 1 - size, square = p.im * p.im;
  const Tensor quarter = at::copysign(at::full_like(p.im, std::numbers::pi / 2), p.im);
  const Pair near{at::copysign((4 * size / (rest * rest + square)).log1p() * 0.25, p.re),
                  at::atan2(2 * p.im, rest * (1 + size) - square) * 0.5};
  return choose(Infinity(p).here,
                {at::copysign(at::zeros_like(p.re), p.re), at::where(p.im.isnan(), p.im, quarter)}, near);
}
Pair arc_tangent(const Pair& p) { return over_i(area_tangent(times_i(p))); }

// ---- sums of products
// ------------------------------------------------------------------------------------------------
// beta self + alpha product; a self whose factor is 0 is not read.
Tensor blend(const Tensor& self, const Tensor& product, const at::Scalar& beta, const at::Scalar& alpha) {
  const Tensor scaled = alpha.equal(1) ? product : product * alpha;
  if (beta.equal(0)) return scaled;
  return (beta.equal(1) ? self : self * beta) + scaled;
}
Tensor add_mm(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
              const at::Scalar& alpha) {
  return blend(self, a.mm(b), beta, alpha);
}
Tensor add_bmm(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
               const at::Scalar& alpha) {
  return blend(self, a.bmm(b), beta, alpha);
}
Tensor add_sum_of_bmm(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                      const at::Scalar& alpha) {
  return blend(self, a.bmm(b).sum(0), beta, alpha);
}
Tensor add_mv(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
              const at::Scalar& alpha) {
  return blend(self, a.mv(b), beta, alpha);
}
Tensor outer(const Tensor& a, const Tensor& b) { return a.unsqueeze(1) * b; }
Tensor add_outer(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  return blend(self, outer(a, b), beta, alpha);
}
Tensor inner_product_of_conjugate(const Tensor& a, const Tensor& b) { return a.conj().dot(b); }
Tensor add_product(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& value) {
  return self + a * b * value;
}
Tensor add_quotient(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& value) {
  return self + a / b * value;
}
Tensor between(const Tensor& self, const Tensor& end, const at::Scalar& weight) {
  return self + (end - self) * weight;
}
Tensor between_tensors(const Tensor& self, const Tensor& end, const Tensor& weight) {
  return self + (end - self) * weight;
}
Tensor minus_from(const Tensor& self, const Tensor& other, const at::Scalar& alpha) {
  return at::sub(other, self, alpha);
}
Tensor minus_from_number(const Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  return at::sub(at::native::wrapped_scalar_tensor(other), self, alpha);
}
Tensor cross(const Tensor& x, const Tensor& y, int64_t dim) {
  const Pair a = pair_of(x), b = pair_of(y);
  auto f = [&](const Tensor& s, const Tensor& t) { return at::linalg_cross(s, t, dim); };
  return complex_of(f(a.re, b.re) - f(a.im, b.im), f(a.re, b.im) + f(a.im, b.re));
}

// ---- sizes and truth
// ---------------------------------------------------------------------------------------------------
Tensor norm(const Tensor& x, const at::Scalar& order, at::OptionalIntArrayRef dim, bool keepdim,
            std::optional<c10::ScalarType> dtype) {
  if (dtype) dtype = c10::toRealValueType(*dtype);
  return at::linalg_vector_norm(x.abs(), order, dim, keepdim, dtype);
}
Tensor variance(const Tensor& x, at::OptionalIntArrayRef dim, const std::optional<at::Scalar>& correction,
                bool keepdim) {
  const Pair p = pair_of(x);
  return at::var(p.re, dim, correction, keepdim) + at::var(p.im, dim, correction, keepdim);
}
Tensor deviation(const Tensor& x, at::OptionalIntArrayRef dim, const std::optional<at::Scalar>& correction,
                 bool keepdim) {
  return variance(x, dim, correction, keepdim).sqrt();
}
std::tuple<Tensor, Tensor> variance_and_mean(const Tensor& x, at::OptionalIntArrayRef dim,
                                             const std::optional<at::Scalar>& correction, bool keepdim) {
  return {variance(x, dim, correction, keepdim), x.mean(dim, keepdim)};
}
std::tuple<Tensor, Tensor> deviation_and_mean(const Tensor& x, at::OptionalIntArrayRef dim,
                                              const std::optional<at::Scalar>& correction, bool keepdim) {
  return {deviation(x, dim, correction, keepdim), x.mean(dim, keepdim)};
}

Tensor old_norm(const Tensor& x, const at::Scalar& order) { return at::linalg_vector_norm(x.abs(), order); }
Tensor old_norm_along(const Tensor& x, const std::optional<at::Scalar>& order, at::IntArrayRef dim,
                      bool keepdim) {
  return at::linalg_vector_norm(x.abs(), order.value_or(2), dim, keepdim);
}
Tensor distance(const Tensor& x, const Tensor& y, const at::Scalar& order) { return old_norm(x - y, order); }

// Slices along `dim` that are longer than `largest`, made that long.
Tensor shortened(const Tensor& x, const at::Scalar& order, int64_t dim, const at::Scalar& largest) {
  const int64_t kept = at::maybe_wrap_dim(dim, x.dim());
  std::vector<int64_t> others;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (d != kept) others.push_back(d);
  const Tensor size = at::linalg_vector_norm(x.abs(), order, others, /*keepdim=*/true);
  return x * at::where(size.gt(largest), largest / (size + 1e-7), at::ones_like(size));
}

// ---- products along a dimension, sums of exponentials
// ---------------------------------------------------------------
Tensor converted(const Tensor& x, std::optional<c10::ScalarType> type) { return type ? x.to(*type) : x; }

// Half of the elements times the other half, until one is left.
Tensor product_of_row(const Tensor& self, int64_t dim, bool keepdim, std::optional<c10::ScalarType> type) {
  Tensor x = converted(self, type);
  int64_t length = x.dim() == 0 ? 1 : x.size(dim);
  if (length == 0) {
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes[static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))] = 1;
    x = at::ones(sizes, x.options());
  }
  for (; length > 1; length = (length + 1) / 2) {
    const int64_t half = length / 2;
    Tensor products = x.slice(dim, 0, half) * x.slice(dim, half, 2 * half);
    x = length % 2 == 0 ? products : at::cat({products, x.slice(dim, length - 1, length)}, dim);
  }
  if (x.dim() == 0) return x.clone();
  return keepdim ? x : x.squeeze(dim);
}
Tensor product_of_all(const Tensor& x, std::optional<c10::ScalarType> type) {
  return product_of_row(x.reshape({-1}), 0, false, type);
}

// Every prefix, in steps of 1, 2, 4, ..
template <class F>
Tensor scanned(Tensor x, int64_t dim, F combine) {
  const int64_t length = x.dim() == 0 ? 1 : x.size(dim);
  for (int64_t step = 1; step < length; step *= 2)
    x = at::cat({x.slice(dim, 0, step), combine(x.slice(dim, 0, length - step), x.slice(dim, step, length))},
                dim);
  return x.clone();
}
Tensor running_product(const Tensor& x, int64_t dim, std::optional<c10::ScalarType> type) {
  return scanned(converted(x, type), dim, [](const Tensor& a, const Tensor& b) { return a * b; });
}

// By the operand with the larger real part. Two infinite ones have no difference.
Tensor log_add_exp(const Tensor& x, const Tensor& y) {
  const Tensor a = pair_of(x).re, b = pair_of(y).re, first = a.ge(b);
  const Tensor large = at::where(first, x, y), small = at::where(first, y, x);
  const Tensor value = (small - large).exp().log1p() + large;
  const Tensor infinite = a.eq(b).logical_and(a.isinf());
  const Tensor sum = at::where(a.lt(0), small, (x.exp() + y.exp()).log());
  const Tensor no_number = x.isnan().logical_or(y.isnan());
  const at::Scalar none =  // real operands come with a complex out=
      value.is_complex() ? at::Scalar(c10::complex<double>(NAN, NAN)) : at::Scalar(NAN);
  return at::where(no_number, at::full_like(value, none), at::where(infinite, sum, value));
}

Tensor log_sum_exp(const Tensor& x, at::IntArrayRef dims, bool keepdim) {
  if (x.numel() == 0) return x.exp().sum(dims, keepdim).log();
  Tensor largest = pair_of(x).re.amax(dims, /*keepdim=*/true);
  largest = at::where(largest.isinf(), 0.0, largest);
  const Tensor sums = (x - largest).exp().sum(dims, /*keepdim=*/true).log() + largest;
  return keepdim ? sums : sums.sum(dims);  // over one element each
}

// ---- random numbers: both parts are
// ------------------------------------------------------------------------------------
Tensor uniform(const Tensor& x, double from, double to, std::optional<at::Generator> generator) {
  const Tensor like = at::empty_like(pair_of(x).re, at::MemoryFormat::Contiguous);
  const Tensor re = at::empty_like(like).uniform_(from, to, generator);
  return complex_of(re, at::empty_like(like).uniform_(from, to, generator));
}
Tensor normal(const Tensor& x, double mean, double std, std::optional<at::Generator> generator) {
  const Tensor like = at::empty_like(pair_of(x).re, at::MemoryFormat::Contiguous);
  const Tensor re = at::empty_like(like).normal_(mean, std / std::numbers::sqrt2, generator);
  return complex_of(re, at::empty_like(like).normal_(mean, std / std::numbers::sqrt2, generator));
}

Tensor truth(const Tensor& x) {
  const Pair p = pair_of(x);
  return p.re.ne(0).logical_or(p.im.ne(0));
}
Tensor not_true(const Tensor& x) { return truth(x).logical_not(); }
Tensor both_true(const Tensor& x, const Tensor& y) { return truth(x).logical_and(truth(y)); }
Tensor any_true(const Tensor& x, const Tensor& y) { return truth(x).logical_or(truth(y)); }
Tensor one_true(const Tensor& x, const Tensor& y) { return truth(x).logical_xor(truth(y)); }

Tensor places_of_truth(const Tensor& x) { return truth(x).nonzero(); }
Tensor all_true(const Tensor& x) { return truth(x).all(); }
Tensor all_true_along(const Tensor& x, int64_t dim, bool keepdim) { return truth(x).all(dim, keepdim); }
Tensor all_true_over(const Tensor& x, at::OptionalIntArrayRef dims, bool keepdim) {
  return truth(x).all(dims, keepdim);
}
Tensor some_true(const Tensor& x) { return truth(x).any(); }
Tensor some_true_along(const Tensor& x, int64_t dim, bool keepdim) { return truth(x).any(dim, keepdim); }
Tensor some_true_over(const Tensor& x, at::OptionalIntArrayRef dims, bool keepdim) {
  return truth(x).any(dims, keepdim);
}
Tensor count_of_all_truth(const Tensor& x, std::optional<int64_t> dim) { return truth(x).count_nonzero(dim); }
Tensor count_of_truth(const Tensor& x, at::IntArrayRef dims) { return truth(x).count_nonzero(dims); }
Tensor is_infinite(const Tensor& x) {
  const Pair p = pair_of(x);
  return p.re.isinf().logical_or(p.im.isinf());
}

// ---- tensors of one value
// --------------------------------------------------------------------------------------------------------
using Type = std::optional<c10::ScalarType>;
using Layout = std::optional<c10::Layout>;
using Device = std::optional<c10::Device>;
using Flag = std::optional<bool>;
using Format = std::optional<at::MemoryFormat>;

Tensor all_equal(const Tensor& like, at::IntArrayRef sizes, const at::Scalar& value, Type dtype = {}) {
  const c10::ScalarType type = dtype.value_or(like.scalar_type());
  const auto options = like.options().dtype(c10::toRealValueType(type));
  if (!c10::isComplexType(type)) return at::full(sizes, value, options);
  const auto c = value.toComplexDouble();
  return complex_of(at::full(sizes, c.real(), options), at::full(sizes, c.imag(), options));
}
Tensor filled(const Tensor& x, const at::Scalar& v) { return all_equal(x, x.sizes(), v); }
Tensor zero(const Tensor& x) { return all_equal(x, x.sizes(), 0); }
Tensor zeros_like(const Tensor& x, Type t, Layout, Device, Flag, Format) {
  return all_equal(x, x.sizes(), 0, t);
}
Tensor ones_like(const Tensor& x, Type t, Layout, Device, Flag, Format) {
  return all_equal(x, x.sizes(), 1, t);
}
Tensor full_like(const Tensor& x, const at::Scalar& v, Type t, Layout, Device, Flag, Format) {
  return all_equal(x, x.sizes(), v, t);
}
Tensor new_zeros(const Tensor& x, at::IntArrayRef sizes, Type t, Layout, Device, Flag) {
  return all_equal(x, sizes, 0, t);
}
Tensor new_ones(const Tensor& x, at::IntArrayRef sizes, Type t, Layout, Device, Flag) {
  return all_equal(x, sizes, 1, t);
}
Tensor new_full(const Tensor& x, at::IntArrayRef sizes, const at::Scalar& v, Type t, Layout, Device, Flag) {
  return all_equal(x, sizes, v, t);
}

// ---- tensors of places
// ----------------------------------------------------------------------------------------------------------
at::TensorOptions parts_of(Type type) {
  return at::TensorOptions()
      .device(c10::kPrivateUse1)
      .dtype(c10::toRealValueType(type.value_or(at::kComplexFloat)));
}
Tensor linspace(const at::Scalar& start, const at::Scalar& end, int64_t steps, Type t, Layout, Device, Flag) {
  const auto from = start.toComplexDouble(), to = end.toComplexDouble();
  return complex_of(at::linspace(from.real(), to.real(), steps, parts_of(t)),
                    at::linspace(from.imag(), to.imag(), steps, parts_of(t)));
}
Tensor logspace(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base, Type t, Layout l,
                Device d, Flag f) {
  return power_of_number(base, linspace(start, end, steps, t, l, d, f));
}
Tensor rectangular_identity(int64_t rows, int64_t columns, Type t, Layout, Device, Flag) {
  const Tensor re = at::eye(rows, columns, parts_of(t));
  return complex_of(re, at::zeros_like(re));
}
Tensor identity(int64_t n, Type t, Layout l, Device d, Flag f) {
  return rectangular_identity(n, n, t, l, d, f);
}

}  // namespace

Composites complex_function_forms() {
  return {composite("aten::nonzero", &places_of_truth),
          composite("aten::all", &all_true),
          composite("aten::all.dim", &all_true_along),
          composite("aten::all.dims", &all_true_over),
          composite("aten::any", &some_true),
          composite("aten::any.dim", &some_true_along),
          composite("aten::any.dims", &some_true_over),
          composite("aten::count_nonzero", &count_of_all_truth),
          composite("aten::count_nonzero.dim_IntList", &count_of_truth),
          composite("aten::isinf", &is_infinite),
          composite("aten::fill.Scalar", &filled),
          composite("aten::zero", &zero),
          composite("aten::zeros_like", &zeros_like),
          composite("aten::ones_like", &ones_like),
          composite("aten::full_like", &full_like),
          composite("aten::new_zeros", &new_zeros),
          composite("aten::new_ones", &new_ones),
          composite("aten::new_full", &new_full),
          composite("aten::linspace", &linspace),
          composite("aten::logspace", &logspace),
          composite("aten::eye", &identity),
          composite("aten::eye.m", &rectangular_identity),
          composite("aten::sqrt", &of_pair<root>),
          composite("aten::rsqrt", &inverse_root),
          composite("aten::pow.Tensor_Tensor", &power),
          composite("aten::pow.Tensor_Scalar", &power_by_number),
          composite("aten::pow.Scalar", &power_of_number),
          composite("aten::expm1", &of_pair<exponential_minus_1>),
          composite("aten::exp2", &exponential_2),
          composite("aten::log1p", &of_pair<logarithm_1p>),
          composite("aten::log2", &logarithm_2),
          composite("aten::log10", &logarithm_10),
          composite("aten::sigmoid", &sigmoid),
          composite("aten::sigmoid_backward", &sigmoid_backward),
          composite("aten::silu", &silu),
          composite("aten::sin", &of_pair<sine>),
          composite("aten::cos", &of_pair<cosine>),
          composite("aten::tan", &of_pair<tangent>),
          composite("aten::sinc", &sine_over_argument),
          composite("aten::sinh", &of_pair<hyperbolic_sine>),
          composite("aten::cosh", &of_pair<hyperbolic_cosine>),
          composite("aten::tanh", &of_pair<hyperbolic_tangent>),
          composite("aten::tanh_backward", &hyperbolic_tangent_backward),
          composite("aten::asin", &of_pair<arc_sine>),
          composite("aten::acos", &of_pair<arc_cosine>),
          composite("aten::atan", &of_pair<arc_tangent>),
          composite("aten::asinh", &of_pair<area_sine>),
          composite("aten::acosh", &of_pair<area_cosine>),
          composite("aten::atanh", &of_pair<area_tangent>),
          composite("aten::addmm", &add_mm),
          composite("aten::baddbmm", &add_bmm),
          composite("aten::addbmm", &add_sum_of_bmm),
          composite("aten::addmv", &add_mv),
          composite("aten::outer", &outer),
          composite("aten::addr", &add_outer),
          composite("aten::vdot", &inner_product_of_conjugate),
          composite("aten::addcmul", &add_product),
          composite("aten::addcdiv", &add_quotient),
          composite("aten::lerp.Scalar", &between),
          composite("aten::lerp.Tensor", &between_tensors),
          composite("aten::rsub.Tensor", &minus_from),
          composite("aten::rsub.Scalar", &minus_from_number),
          composite("aten::linalg_cross", &cross),
          composite("aten::linalg_vector_norm", &norm),
          composite("aten::norm.Scalar", &old_norm),
          composite("aten::norm.ScalarOpt_dim", &old_norm_along),
          composite("aten::dist", &distance),
          composite("aten::renorm", &shortened),
          composite("aten::prod", &product_of_all),
          composite("aten::prod.dim_int", &product_of_row),
          composite("aten::cumprod", &running_product),
          composite("aten::logaddexp", &log_add_exp),
          composite("aten::logsumexp", &log_sum_exp),
          composite("aten::uniform", &uniform),
          composite("aten::normal_functional", &normal),
          composite("aten::var.correction", &variance),
          composite("aten::std.correction", &deviation),
          composite("aten::var_mean.correction", &variance_and_mean),
          composite("aten::std_mean.correction", &deviation_and_mean),
          composite("aten::logical_not", &not_true),
          composite("aten::logical_and", &both_true),
          composite("aten::logical_or", &any_true),
          composite("aten::logical_xor", &one_true)};
}

}  // namespace trnsim::aten
