// Special functions of two arguments that take as many steps as their values ask for: orthogonal polynomials by
// recurrence, incomplete gamma functions by series and continued fractions. How far to go is read back.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "device_plugin/aten/composite_kernel.h"

namespace trnsim::aten {
namespace {

using at::Tensor;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Both arguments in FP32, broadcast, on the device; numbers of the call come on the host.
struct Operands {
  Operands(const Tensor& first, const Tensor& second) {
    type = at::result_type(first, second);
    if (!c10::isFloatingType(type)) type = c10::get_default_dtype_as_scalartype();
    const c10::Device device = first.is_cpu() ? second.device() : first.device();
    const std::vector<int64_t> sizes = at::infer_size(first.sizes(), second.sizes());
    a = first.to(device, at::kFloat).expand(sizes);
    b = second.to(device, at::kFloat).expand(sizes);
  }
  c10::ScalarType type;
  Tensor a, b;
};

Tensor keep_if(const Tensor& condition, const Tensor& a, double b) {
  return at::where(condition, a, at::full({}, b, a.options()));
}

// ---- polynomials
// -----------------------------------------------------------------------------------------------------
// P_0 = 1, P_1 and P_(k + 1) = next(k, P_k, P_(k - 1)).
struct Family {
  std::function<Tensor(const Tensor& x)> first;
  std::function<Tensor(double k, const Tensor& x, const Tensor& p, const Tensor& q)> next;
  // Inside (-1, 1), from this degree on; none: never.
  int64_t closed_from = -1;
  std::function<Tensor(const Tensor& x, const Tensor& n)> closed;
  // At the ends of the interval, or at 0.
  std::function<Tensor(const Tensor& x, const Tensor& n, const Tensor& value)> ends;
  int64_t largest_degree = -1;  // beyond, the value is NaN as on the CPU
};

Tensor polynomial(const Family& family, const Tensor& x_, const Tensor& n_) {
  const Operands o(x_, n_);
  const Tensor &x = o.a, n = o.b.trunc();
  if (x.numel() == 0) return at::empty(x.sizes(), x.options().dtype(o.type));
  Tensor closed;
  if (family.closed_from >= 0)
    closed = x.abs().lt(1).logical_and(n.ge(static_cast<double>(family.closed_from)));
  const Tensor stepped = closed.defined() ? keep_if(closed.logical_not(), n, 0) : n;
  auto degree = static_cast<int64_t>(stepped.max().item<double>());
  if (family.largest_degree >= 0) degree = std::min(degree, family.largest_degree);
  Tensor q = at::ones_like(x, at::MemoryFormat::Contiguous), p = family.first(x);
  Tensor value = at::where(n.eq(0), q, keep_if(n.eq(1), p, 0));
  for (int64_t k = 1; k < degree; ++k) {
    Tensor r = family.next(static_cast<double>(k), x, p, q);
    q = p;
    p = r;
    value = at::where(n.eq(k + 1), p, value);
  }
  if (closed.defined()) value = at::where(closed, family.closed(x, n), value);
  if (family.ends) value = at::where(n.gt(0), family.ends(x, n, value), value);
  if (family.largest_degree >= 0)
    value = keep_if(n.le(static_cast<double>(family.largest_degree)), value, kNan);
  return value.to(o.type);
}

Tensor alternating(const Tensor& x, const Tensor& n) {  // 1 for x > 0, (-1)^n otherwise
  return at::where(x.gt(0).logical_or(n.remainder(2).eq(0)), at::ones_like(x), at::full_like(x, -1.0));
}

std::function<Tensor(double, const Tensor&, const Tensor&, const Tensor&)> doubling() {
  return [](double, const Tensor& x, const Tensor& p, const Tensor& q) { return 2 * x * p - q; };
}

enum class Kind { kT, kU, kV, kW };

Family chebyshev(Kind kind) {
  Family f;
  f.next = doubling();
  switch (kind) {
    case Kind::kT:
      f.first = [](const Tensor& x) { return x; };
      f.closed_from = 7;
      f.closed = [](const Tensor& x, const Tensor& n) { return (n * x.acos()).cos(); };
      f.ends = [](const Tensor& x, const Tensor& n, const Tensor& v) {
        return at::where(x.abs().eq(1), alternating(x, n), v);
      };
      break;
    case Kind::kU:
      f.first = [](const Tensor& x) { return 2 * x; };
      f.closed_from = 9;
      f.closed = [](const Tensor& x, const Tensor& n) {
        const Tensor t = x.acos();
        return ((n + 1) * t).sin() / t.sin();
      };
      f.ends = [](const Tensor& x, const Tensor& n, const Tensor& v) {
        return at::where(x.abs().eq(1), alternating(x, n) * (n + 1), v);
      };
      break;
    case Kind::kV:
      f.first = [](const Tensor& x) { return 2 * x - 1; };
      f.closed_from = 9;
      f.closed = [](const Tensor& x, const Tensor& n) {
        const Tensor t = x.acos();
        return ((n + 0.5) * t).cos() / (t * 0.5).cos();
      };
      f.ends = [](const Tensor& x, const Tensor& n, const Tensor& v) {
        const Tensor sign = alternating(x, n);
        return at::where(x.abs().eq(1), at::where(x.gt(0), sign, sign * (2 * n + 1)), v);
      };
      break;
    case Kind::kW:
      f.first = [](const Tensor& x) { return 2 * x + 1; };
      f.closed_from = 9;
      f.closed = [](const Tensor& x, const Tensor& n) {
        const Tensor t = x.acos();
        return ((n + 0.5) * t).sin() / (t * 0.5).sin();
      };
      f.ends = [](const Tensor& x, const Tensor& n, const Tensor& v) {
        const Tensor sign = alternating(x, n);
        return at::where(x.abs().eq(1), at::where(x.gt(0), sign * (2 * n + 1), sign), v);
      };
      break;
  }
  return f;
}

template <Kind kind>
Tensor chebyshev_polynomial(const Tensor& x, const Tensor& n) {
  return polynomial(chebyshev(kind), x, n);
}

template <Kind kind>
Tensor shifted_chebyshev_polynomial(const Tensor& x, const Tensor& n) {
  const c10::ScalarType type = Operands(x, n).type;
  const Tensor wide = (x.is_cpu() ? x.to(n.device()) : x).to(at::kFloat);
  return polynomial(chebyshev(kind), wide * 2 - 1, n).to(type);
}

constexpr int64_t kHermiteLimit = 128;  // of FP32

Tensor hermite_h(const Tensor& x, const Tensor& n) {
  Family f;
  f.first = [](const Tensor& v) { return 2 * v; };
  f.next = [](double k, const Tensor& v, const Tensor& p, const Tensor& q) { return 2 * (v * p - k * q); };
  f.largest_degree = kHermiteLimit;
  return polynomial(f, x, n);
}

Tensor hermite_he(const Tensor& x, const Tensor& n) {
  Family f;
  f.first = [](const Tensor& v) { return v; };
  f.next = [](double k, const Tensor& v, const Tensor& p, const Tensor& q) { return v * p - k * q; };
  f.largest_degree = kHermiteLimit;
  return polynomial(f, x, n);
}

Tensor laguerre_l(const Tensor& x, const Tensor& n) {
  Family f;
  f.first = [](const Tensor& v) { return 1 - v; };
  f.next = [](double k, const Tensor& v, const Tensor& p, const Tensor& q) {
    return ((2 * k + 1 - v) * p - k * q) / (k + 1);
  };
  f.ends = [](const Tensor& v, const Tensor&, const Tensor& value) { return keep_if(v.ne(0), value, 1); };
  return polynomial(f, x, n);
}

Tensor legendre_p(const Tensor& x, const Tensor& n) {
  Family f;
  f.first = [](const Tensor& v) { return v; };
  f.next = [](double k, const Tensor& v, const Tensor& p, const Tensor& q) {
    return ((2 * k + 1) * v * p - k * q) / (k + 1);
  };
  f.ends = [](const Tensor& v, const Tensor& degree, const Tensor& value) {
    return at::where(v.abs().eq(1), alternating(v, degree), value);
  };
  return polynomial(f, x, n);
}

// ---- incomplete gamma functions
// -------------------------------------------------------------------------------------
constexpr int kMaxSteps = 2000, kStepsPerLook = 8;
constexpr double kEpsilon = 6e-8;

// x^a exp(-x) / gamma(a). For larger a the powers cancel; what is left is Stirling's correction.
Tensor gamma_density(const Tensor& a, const Tensor& x) {
  const Tensor small = (a * x.log() - x - a.lgamma()).exp();
  const Tensor wide = a.clamp_min(1), mu = (x - wide) / wide, r = mu / (mu + 2), square = r * r;
  // log(1 + mu) - mu, by the series of the inverse hyperbolic tangent of r near 0
  Tensor series = at::full_like(r, 1.0 / 13);
  for (double k = 11; k >= 3; k -= 2) series = series * square + 1 / k;
  const Tensor near = 2 * r * square * series - mu * r;
  const Tensor difference = at::where(mu.abs().lt(0.5), near, mu.log1p() - mu);
  const Tensor inverse = 1 / wide;
  const Tensor correction =
      1 + inverse *
              (1.0 / 12 + inverse * (1.0 / 288 + inverse * (-139.0 / 51840 + inverse * (-571.0 / 2488320))));
  const Tensor large = (wide / (2 * std::numbers::pi)).sqrt() * (wide * difference).exp() / correction;
  return at::where(a.gt(10), large, small);
}

// gamma(a, x) x^-a exp(x) a = 1 + x / (a + 1) + ..
Tensor lower_series(const Tensor& a, const Tensor& x) {
  Tensor sum = at::ones_like(x), term = at::ones_like(x), divisor = a.clone();
  for (int step = 0; step < kMaxSteps; step += kStepsPerLook) {
    for (int i = 0; i < kStepsPerLook; ++i) {
      divisor = divisor + 1;
      term = term * (x / divisor);
      sum = sum + term;
    }
    if (!term.gt(sum * kEpsilon).any().item<bool>()) break;
  }
  return sum;
}

// Gamma(a, x) x^-a exp(x), Legendre's continued fraction by Lentz's method. An element that has converged stays as it is:
// thousands of factors that are 1 but for rounding would add up.
Tensor upper_fraction(const Tensor& a, const Tensor& x) {
  constexpr double tiny = 1e-30;
  auto nonzero = [](const Tensor& v) { return keep_if(v.abs().gt(tiny), v, tiny); };
  Tensor b = x + 1 - a, c = at::full_like(x, 1 / tiny), d = 1 / nonzero(b), h = d;
  Tensor moving = at::ones_like(x, x.options().dtype(at::kBool));
  for (int step = 0; step < kMaxSteps; step += kStepsPerLook) {
    for (int i = 1; i <= kStepsPerLook; ++i) {
      const double k = step + i;
      const Tensor numerator = (a - k) * k;
      b = b + 2;
      d = 1 / nonzero(numerator * d + b);
      c = nonzero(b + numerator / c);
      const Tensor change = c * d;
      moving = moving.logical_and((change - 1).abs().gt(2 * kEpsilon));
      h = at::where(moving, h * change, h);
    }
    if (!moving.any().item<bool>()) break;
  }
  return h;
}

// 1 - P for small x, where P is near 1: the first term of its series apart, by the exponential that keeps what is near 0.
Tensor upper_series(const Tensor& a, const Tensor& x) {
  constexpr int kTerms = 16;  // 1.1^16 / 16! is no more than rounding
  Tensor term = at::ones_like(x), sum = at::zeros_like(x);
  for (int n = 1; n <= kTerms; ++n) {
    term = term * (x / -n);
    sum = sum + term / (a + n);
  }
  const Tensor power = a * x.log() - (a + 1).lgamma();  // x^a / gamma(a + 1)
  return power.expm1().neg() - a * power.exp() * sum;
}

Tensor incomplete_gamma(const Tensor& a_, const Tensor& x_, bool upper) {
  const Operands o(a_, x_);
  const Tensor &a = o.a, x = o.b;
  if (x.numel() == 0) return at::empty(x.sizes(), x.options().dtype(o.type));
  const Tensor valid = a.gt(0).logical_and(x.gt(0)).logical_and(a.lt(kInf)).logical_and(x.lt(kInf));
  const Tensor series = valid.logical_and(x.le(1).logical_or(x.lt(a)));
  const Tensor fraction = valid.logical_and(series.logical_not());
  const Tensor safe_a = keep_if(valid, a, 1), safe_x = keep_if(valid, x, 1);
  const Tensor density = gamma_density(safe_a, safe_x);
  const Tensor p = density * lower_series(keep_if(series, a, 1), keep_if(series, x, 1)) / safe_a;
  const Tensor q = density * upper_fraction(keep_if(fraction, a, 1), keep_if(fraction, x, 2));
  Tensor value = upper ? at::where(series, 1 - p, q) : at::where(series, p, 1 - q);
  if (upper) {  // as the CPU chooses
    const Tensor most = at::where(safe_x.le(0.5), -0.4 / safe_x.log(), safe_x * 1.1);
    const Tensor small = valid.logical_and(safe_x.le(1.1)).logical_and(safe_a.le(most));
    value = at::where(small, upper_series(keep_if(small, a, 1), keep_if(small, x, 1)), value);
  }
  // The borders of the quadrant; `none` and `all` of the probability.
  const double none = upper ? 1 : 0, all = upper ? 0 : 1;
  value = keep_if(x.ne(kInf), value, all);
  value = keep_if(a.ne(kInf), value, none);
  value = keep_if(a.ne(0), value, all);
  value = keep_if(x.ne(0), value, none);
  const Tensor undefined = a.lt(0)
                               .logical_or(x.lt(0))
                               .logical_or(a.eq(0).logical_and(x.eq(0)))
                               .logical_or(a.eq(kInf).logical_and(x.eq(kInf)))
                               .logical_or(a.isnan())
                               .logical_or(x.isnan());
  return keep_if(undefined.logical_not(), value, kNan).to(o.type);
}

Tensor lower_gamma(const Tensor& a, const Tensor& x) { return incomplete_gamma(a, x, false); }
Tensor upper_gamma(const Tensor& a, const Tensor& x) { return incomplete_gamma(a, x, true); }

}  // namespace

Composites special_composites() {
  return {composite("aten::special_chebyshev_polynomial_t", &chebyshev_polynomial<Kind::kT>),
          composite("aten::special_chebyshev_polynomial_u", &chebyshev_polynomial<Kind::kU>),
          composite("aten::special_chebyshev_polynomial_v", &chebyshev_polynomial<Kind::kV>),
          composite("aten::special_chebyshev_polynomial_w", &chebyshev_polynomial<Kind::kW>),
          composite("aten::special_shifted_chebyshev_polynomial_t", &shifted_chebyshev_polynomial<Kind::kT>),
          composite("aten::special_shifted_chebyshev_polynomial_u", &shifted_chebyshev_polynomial<Kind::kU>),
          composite("aten::special_shifted_chebyshev_polynomial_v", &shifted_chebyshev_polynomial<Kind::kV>),
          composite("aten::special_shifted_chebyshev_polynomial_w", &shifted_chebyshev_polynomial<Kind::kW>),
          composite("aten::special_hermite_polynomial_h", &hermite_h),
          composite("aten::special_hermite_polynomial_he", &hermite_he),
          composite("aten::special_laguerre_polynomial_l", &laguerre_l),
          composite("aten::special_legendre_polynomial_p", &legendre_p),
          composite("aten::igamma", &lower_gamma),
          composite("aten::igammac", &upper_gamma)};
}

}  // namespace trnsim::aten
