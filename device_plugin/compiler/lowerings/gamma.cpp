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
// x >= 0.5: Stirling's series, or for smaller ones the distance from 2, in whole steps and by the Taylor series there, which
// keeps the digits next to the zeros at 1 and 2.
Ex lgamma_right(Ex x) {
  constexpr int largest = 8;
  Ex small = x < static_cast<double>(largest);
  Ex product = number(x, 1);
  for (int k = 1; k < largest - 1; ++k)
    product = select(x >= k + 1.5, product * (x - static_cast<double>(k)), product);
  Ex below = x < 1.5;  // lgamma(x) = lgamma(x + 1) - log(x)
  Ex step = log(select(small, select(below, x, product), number(x, 1)));
  Ex rest = (x - 2.0) - floor(x - 1.5);
  // 1 - Euler's constant, then (zeta(k) - 1) / k with turning signs
  constexpr double taylor[] = {0.42278433509846713,      0.64493406684822643 / 2,   -0.20205690315959428 / 3,
                               0.08232323371113819 / 4,  -0.03692775514336993 / 5,  0.01734306198444914 / 6,
                               -0.00834927738192283 / 7, 0.00407735619794434 / 8,   -0.00200839282608221 / 9,
                               0.00099457512781809 / 10, -0.00049418860411946 / 11, 0.00024608655330805 / 12,
                               -0.00012271334757849 / 13};
  Ex near = rest * polynomial(rest, taylor) + select(below, -step, step);
  Ex y = select(small, number(x, largest), x);
  constexpr double series[] = {1.0 / 12, -1.0 / 360, 1.0 / 1260};
  Ex inverse = 1.0 / y;
  Ex stirling = (y - 0.5) * (log(y) - 1.0) + (0.5 * std::log(2 * kPi) - 0.5) +
                inverse * polynomial(inverse * inverse, series);
  return select(small, near, stirling);
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

// ---- zeta
// ----------------------------------------------------------------------------------------------------------
// Sums of (q + k)^-s over k >= 0, for s > 1. `power` gives q^-s, times a factor that the caller chooses.

// q > 0: the first terms one by one, then Euler and Maclaurin.
template <class Power>
Ex hurwitz(Ex s, Ex q, Power power) {
  Ex sum = power(q);
  for (int k = 1; k < kShift; ++k) sum = sum + power(q + static_cast<double>(k));
  Ex y = q + static_cast<double>(kShift);
  Ex inverse = 1.0 / y;
  Ex term = s * inverse;
  Ex tail = 0.5 + y / (s - 1.0);
  double factorial = 2;
  for (int k = 1; k <= 6; ++k) {
    tail = tail + term * (kBernoulli[k - 1] / factorial);
    term = term * ((s + static_cast<double>(2 * k - 1)) * inverse) *
           ((s + static_cast<double>(2 * k)) * inverse);
    factorial *= (2 * k + 1) * (2 * k + 2);
  }
  Ex last = power(y);
  // Where the power underflows, what it multiplies may be infinite; where the first terms overflow, it means nothing.
  return select(sum == kInf, sum, sum + select(last == 0.0, number(s, 0), last * tail));
}

// Any q, and a whole s where q < 0: the sum over all integers is the same for q and its fraction. Of it go the terms
// before q, which are mirrored powers; where those on both sides overflow, the nearest term decides.
template <class Power>
Ex shifted_powers(Ex s, Ex q, Power power) {
  Ex positive = q > 0.0;
  Ex fraction = q - floor(q), rest = q.map->unary(ExprOp::kCeil, q) - q;  // 1 - fraction, exactly
  Ex plain = hurwitz(s, select(positive, q, fraction), power);
  Ex mirrored = hurwitz(s, rest, power);
  Ex before = hurwitz(s, select(positive, number(q, 1), 1.0 - q), power);
  Ex sum = plain + mirrored;
  Ex nearest = select(fraction < rest, number(q, kInf), number(q, -kInf));
  Ex difference = select(plain == kInf && mirrored == kInf, nearest, plain - mirrored);
  difference = select(fraction == rest, number(q, 0), difference);
  Ex odd = s - floor(s * 0.5) * 2.0 == 1.0;
  Ex y = select(odd, select(abs(difference) == kInf, difference, difference + before),
                select(sum == kInf, sum, sum - before));
  return select(positive, plain, select(q == floor(q), number(q, kInf), y));
}

Ex zeta(Ex x, Ex q) {
  Ex y = shifted_powers(x, q, [&](Ex t) { return pow(t, -x); });
  Ex pole = q <= 0.0 && q == floor(q), no_number = q <= 0.0 && x != floor(x);
  y = select(!pole && no_number, number(x, kNan), y);
  y = select(x.map->unary(ExprOp::kIsNan, x) || q.map->unary(ExprOp::kIsNan, q), number(x, kNan), y);
  return select(x < 1.0, number(x, kNan), select(x == 1.0, number(x, kInf), y));
}

// x^n by squaring.
Ex power(Ex x, int64_t n) {
  if (n == 1) return x;
  Ex half = power(x, n / 2);
  return n % 2 == 0 ? half * half : half * half * x;
}

// psi_n(x) = (-1)^(n + 1) n! zeta(n + 1, x). Neither factor need fit FP32 where their product does: the root of n! goes
// into the base of the powers, and what the root's rounding leaves of n! is a factor near 1.
Ex polygamma(Pointwise& p) {
  const int64_t n = p.context.int_arg(0);
  Ex x = p.f32(1);
  if (n == 0) return digamma(x);
  const double order = static_cast<double>(n) + 1, log_factorial = std::lgamma(order);
  const double root = static_cast<float>(std::exp(log_factorial / order));
  Ex sum = shifted_powers(number(x, order), x, [&](Ex t) { return power(root / t, n + 1); });
  const double left = std::exp(log_factorial - order * std::log(root));
  return sum * (n % 2 == 0 ? -left : left);
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
