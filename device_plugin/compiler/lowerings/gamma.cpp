// The gamma function's relatives and inverse error functions.
#include <cmath>
#include <limits>
#include <numbers>

#include "device_plugin/compiler/lowerings/series.h"

namespace trnsim::compiler {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = std::numbers::pi;

Ex floor(Ex x) { return x.map->unary(ExprOp::kFloor, x); }
Ex pow(Ex a, Ex b) { return a.map->binary(ExprOp::kPow, a, b); }

// pi times the distance from the nearest integer: the argument of sin and tan without the rounding of pi x.
Ex pi_times_rest(Ex x) { return (x - x.map->unary(ExprOp::kRound, x)) * kPi; }

// ---- lgamma
// --------------------------------------------------------------------------------------------------------
// x >= 0.5: Stirling's series behind a shift by 8.
Ex lgamma_right(Ex x) {
  constexpr int shift = 8;
  Ex product = x;
  for (int k = 1; k < shift; ++k) product = product * (x + static_cast<double>(k));
  Ex small = x < static_cast<double>(shift);
  Ex y = select(small, x + static_cast<double>(shift), x);
  constexpr double series[] = {1.0 / 12, -1.0 / 360, 1.0 / 1260};
  Ex inverse = 1.0 / y;
  Ex stirling = (y - 0.5) * (log(y) - 1.0) + (0.5 * std::log(2 * kPi) - 0.5) +
                inverse * polynomial(inverse * inverse, series);
  return select(small, stirling - log(select(small, product, number(x, 1))), stirling);
}

Ex lgamma(Ex x) {
  Ex left = x < 0.5;
  Ex right = lgamma_right(select(left, 1.0 - x, x));
  Ex sine = abs(x.map->math(ExprOp::kSin, pi_times_rest(x)));
  Ex y = select(left, (std::log(kPi) - log(sine)) - right, right);
  Ex size = abs(x);
  y = select(size < 1e-20, -log(size), y);
  Ex pole = x <= 0.0 && x == floor(x);
  return select(size == kInf || pole, number(x, kInf), y);
}

Ex mvlgamma(Pointwise& p) {
  const int64_t order = p.context.int_arg(1);
  Ex x = p.f32(0);
  Ex sum = p.map.constant(static_cast<double>(order * (order - 1)) / 4 * std::log(kPi));
  for (int64_t i = 0; i < order; ++i) sum = sum + lgamma(x - static_cast<double>(i) / 2);
  return sum;
}

// ---- polygamma
// ------------------------------------------------------------------------------------------------------
constexpr double kBernoulli[] = {1.0 / 6,   -1.0 / 30, 1.0 / 42,
                                 -1.0 / 30, 5.0 / 66,  -691.0 / 2730};  // B2, B4, ..
constexpr int kShift = 10;                                              // the asymptotic series begin here

Ex digamma_right(Ex x) {
  Ex sum = 1.0 / x;
  for (int k = 1; k < kShift; ++k) sum = sum + 1.0 / (x + static_cast<double>(k));
  Ex small = x < static_cast<double>(kShift);
  Ex y = select(small, x + static_cast<double>(kShift), x);
  Ex inverse = 1.0 / y;
  constexpr double series[] = {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240};
  Ex square = inverse * inverse;
  Ex far = log(y) - 0.5 * inverse - square * polynomial(square, series);
  return select(small, far - sum, far);
}

Ex digamma(Ex x) {
  Ex left = x < 0.0;
  Ex right = digamma_right(select(left, 1.0 - x, x));
  Ex y = select(left, right - kPi / x.map->math(ExprOp::kTan, pi_times_rest(x)), right);
  Ex pole = x == floor(x) && left;
  y = select(pole || x == -kInf, number(x, kNan), y);
  Ex at_zero = select(x.map->unary(ExprOp::kSignBit, x), number(x, kInf), number(x, -kInf));
  return select(x == 0.0, at_zero, y);
}

Ex power(Ex x, int64_t n) {
  Ex y = x;
  for (int64_t k = 1; k < n; ++k) y = y * x;
  return y;
}

// (-1)^(n + 1) psi_n(x) for x > 0: n! times the Hurwitz zeta function of n + 1.
Ex polygamma_right(Ex x, int64_t n) {
  const double factorial = std::tgamma(static_cast<double>(n) + 1);
  Ex inverse = 1.0 / x;
  Ex sum = power(inverse, n + 1);
  for (int k = 1; k < kShift; ++k) sum = sum + power(1.0 / (x + static_cast<double>(k)), n + 1);
  Ex y = 1.0 / (x + static_cast<double>(kShift));
  Ex tail = number(x, 0);
  // B_2k (n + 2k - 1)! / (2k)! / n!, without n!
  for (int k = 6; k >= 1; --k) {
    const double c =
        kBernoulli[k - 1] * std::exp(std::lgamma(static_cast<double>(n) + 2 * k) - std::lgamma(2.0 * k + 1) -
                                     std::lgamma(static_cast<double>(n) + 1));
    tail = tail * y * y + c;
  }
  tail = (1.0 / static_cast<double>(n) + y * 0.5 + y * y * tail) * power(y, n);
  return (sum + tail) * factorial;
}

// psi_n(x) = (-1)^n psi_n(1 - x) - d^n/dx^n pi cot(pi x); the derivatives of cot are polynomials in cot.
Ex polygamma(Pointwise& p) {
  const int64_t n = p.context.int_arg(0);
  Ex x = p.f32(1);
  if (n == 0) return digamma(x);
  if (n > 32) p.context.refuse("a derivative beyond the 32nd, whose factor n! leaves FP32");
  Ex left = x < 0.5;
  Ex right = polygamma_right(select(left, 1.0 - x, x), n);
  std::vector<double> cot{0, 1};
  for (int64_t k = 0; k < n; ++k) {  // P -> -(1 + c^2) P'
    std::vector<double> next(cot.size() + 1, 0);
    for (size_t i = 1; i < cot.size(); ++i) {
      next[i - 1] -= static_cast<double>(i) * cot[i];
      next[i + 1] -= static_cast<double>(i) * cot[i];
    }
    cot = next;
  }
  Ex c = 1.0 / x.map->math(ExprOp::kTan, pi_times_rest(x));
  // At half-integers the cotangent is 0, where the tangent is no infinity.
  Ex rest = abs(pi_times_rest(x));
  c = select(rest == kPi / 2, number(x, 0), c);
  Ex y = number(x, cot.back());
  for (size_t i = cot.size() - 1; i-- > 0;) y = y * c + cot[i];
  const double scale = -std::pow(kPi, static_cast<double>(n) + 1);
  Ex reflected = y * scale - right;
  return select(left, reflected, n % 2 == 0 ? -right : right);
}

// ---- zeta
// ----------------------------------------------------------------------------------------------------------
// sum (q + k)^-x for q > 0, x > 1, by Euler and Maclaurin behind the first terms.
Ex hurwitz(Ex x, Ex q) {
  Ex sum = pow(q, -x);
  for (int k = 1; k < kShift; ++k) sum = sum + pow(q + static_cast<double>(k), -x);
  Ex y = q + static_cast<double>(kShift);
  Ex inverse = 1.0 / y;
  Ex term = x * inverse;
  Ex tail = 0.5 + y / (x - 1.0);
  double factorial = 2;
  for (int k = 1; k <= 6; ++k) {
    tail = tail + term * (kBernoulli[k - 1] / factorial);
    term = term * ((x + static_cast<double>(2 * k - 1)) * inverse) *
           ((x + static_cast<double>(2 * k)) * inverse);
    factorial *= (2 * k + 1) * (2 * k + 2);
  }
  Ex last = pow(y, -x);
  // Where the power underflows, what it multiplies may be infinite.
  return sum + select(last == 0.0, number(x, 0), last * tail);
}

Ex zeta(Ex x, Ex q) {
  Ex positive = q > 0.0;
  Ex fraction = q - floor(q), rest = x.map->unary(ExprOp::kCeil, q) - q;  // 1 - fraction, exactly
  Ex plain = hurwitz(x, select(positive, q, fraction));
  // q < 0 and a whole x: the sum over all integers is the same for q and its fraction.
  Ex odd = x - floor(x * 0.5) * 2.0 == 1.0;
  Ex mirrored = hurwitz(x, rest) - hurwitz(x, select(positive, number(x, 1), 1.0 - q));
  Ex y = select(positive, plain, plain + select(odd, -mirrored, mirrored));
  Ex whole_q = !positive && q == floor(q), no_number = !positive && x != floor(x);
  y = select(x.map->unary(ExprOp::kIsNan, x) || q.map->unary(ExprOp::kIsNan, q), number(x, kNan), y);
  y = select(whole_q, number(x, kInf), select(no_number, number(x, kNan), y));
  return select(x < 1.0, number(x, kNan), select(x == 1.0, number(x, kInf), y));
}

// ---- inverse error function
// ----------------------------------------------------------------------------------------
// erfinv(x) / x in w = -log(1 - x^2), and in sqrt(w) for the tails.
// clang-format off
constexpr double kErfinvCentral[] = {1.603218784, 0.7065114598, -0.01856351825, -0.006322936482,
    0.001715274807, -0.0001009017126, -4.472783686e-05, 1.153632322e-05, -2.170710807e-07,
    -4.175429823e-07, 7.786996226e-08};
constexpr double kErfinvTail[] = {0.9702729752, 0.02576530402, -0.008573639365, 0.002352388323,
    -0.0004588225428, -1.829410144e-05, 9.440933564e-05, -7.825451885e-05, 5.138808785e-05,
    -3.06817482e-05, 1.715707549e-05, -8.970834485e-06, 4.314713177e-06, -1.850155332e-06,
    6.623563922e-07, -1.608268752e-07, -9.376739788e-09, 4.246975275e-08, -3.22438444e-08,
    1.647900025e-08, -5.981995784e-09};
// clang-format on
constexpr double kTail = 6, kLargest = 104;

Ex erfinv_slope(Ex w) {
  Ex root = sqrt(w);
  const double low = std::sqrt(kTail), high = std::sqrt(kLargest);
  Ex tail = chebyshev((root - (low + high) / 2) * (2 / (high - low)), kErfinvTail) * root;
  return select(w <= kTail, chebyshev(w * (2 / kTail) - 1.0, kErfinvCentral), tail);
}

Ex erfinv(Ex x) {
  Ex y = erfinv_slope(-log((1.0 - x) * (1.0 + x))) * x;
  Ex size = abs(x);
  return select(size == 1.0, x * kInf, select(size > 1.0, number(x, kNan), y));
}

// sqrt(2) erfinv(2 p - 1) with 1 - x^2 = 4 p (1 - p), which keeps the left tail.
Ex ndtri(Ex p) {
  Ex x = p * 2.0 - 1.0;
  Ex y = erfinv_slope(-(log(p) + log((1.0 - p) * 4.0))) * x * std::numbers::sqrt2;
  y = select(p == 0.0, number(p, -kInf), select(p == 1.0, number(p, kInf), y));
  return select(p < 0.0 || p > 1.0, number(p, kNan), y);
}

Ex log_ndtr(Ex x) {
  Ex t = x * (std::numbers::sqrt2 / 2);
  Ex left = log(x.map->math(ExprOp::kErfcx, -t) * 0.5) - t * t;
  Ex right = x.map->math(ExprOp::kLog1p, x.map->math(ExprOp::kErfc, t) * -0.5);
  return select(x < -1.0, left, right);
}

template <auto F>
constexpr LowerFn function = pointwise<[](Pointwise& p) { return F(p.f32(0)); }>;
constexpr LowerFn lower_zeta = pointwise<[](Pointwise& p) { return zeta(p.f32(0), p.f32(1)); }>;

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::lgamma", function<lgamma>},
    {"aten::mvlgamma", pointwise<mvlgamma>},
    {"aten::digamma", function<digamma>},
    {"aten::polygamma", pointwise<polygamma>},
    {"aten::special_zeta", lower_zeta},
    {"aten::special_zeta.other_scalar", lower_zeta},
    {"aten::special_zeta.self_scalar", lower_zeta},
    {"aten::erfinv", function<erfinv>},
    {"aten::special_ndtri", function<ndtri>},
    {"aten::special_log_ndtr", function<log_ndtr>},
});

}  // namespace
}  // namespace trnsim::compiler
