// FP32 functions that the engines do not have, composed from those they have. Accuracy: a few units in the
// last place unless a comment says otherwise; special values as PyTorch's CPU kernels give them.
#include <cmath>

#include "device_plugin/compiler/tilers/expr.h"

namespace trnsim::compiler {

namespace {
constexpr float kPi = 3.14159265358979f;
constexpr float kHalfPi = 1.57079632679490f;
constexpr float kLn2 = 0.693147180559945f;
constexpr float kTwoTo23 = 8388608.0f;
constexpr float kInf = HUGE_VALF;

ScalarOperand imm(float v) { return TileBuilder::imm(v); }

bool power_of_two(double v) {
  int e;
  return v != 0 && std::isfinite(v) && std::fabs(std::frexp(v, &e)) == 0.5 && e > -120 && e < 120;
}
}  // namespace

// There is no divider: q = x * (1 / y), then one Newton step q += (x - q*y) / y, which makes exact quotients
// exact. Where the step is not a number (infinities, y == 0) the first quotient is the right one.
Access Ops::divide(const Src& x, const Src& y, const Access& dst) {
  if (y.kind == Src::Kind::kConst && power_of_two(y.value)) {
    return binary(AluOp::kMultiply, x, constant(1.0 / y.value), dst);
  }
  if (!y.tile()) {
    Access numerator = as_tile(x, Dtype::kF32);
    // The reciprocal of a column is a column.
    Ops one(b, partitions_, {1});
    Src divisor = y;
    if (y.kind == Src::Kind::kColumn) {
      divisor.access.num_partitions = static_cast<uint16_t>(partitions_);
      divisor.access = one.typed_tile(of(divisor.access), Dtype::kF32);
    }
    ScalarOperand r = y.kind == Src::Kind::kConst
                          ? imm(static_cast<float>(1.0f / static_cast<float>(y.value)))
                          : TileBuilder::column(one.recip(divisor.access));
    Access q = target(dst, Dtype::kF32);
    if (q.dtype != Dtype::kF32) q = temp(Dtype::kF32);
    b.tensor_scalar(q, numerator, AluOp::kMultiply, r);
    Access rest = fused(q, AluOp::kMultiply, as_scalar(divisor), AluOp::kSubtract, numerator, true);
    Access better = fused(rest, AluOp::kMultiply, r, AluOp::kAdd, q);
    select(q, better, binary(AluOp::kEqual, of(better), of(better), {}, Dtype::kU8));
    return dst.present() && q.tensor != dst.tensor ? cast(q, dst.dtype, dst) : q;
  }
  Access r = recip(y.access);
  Access q = target(dst.dtype == Dtype::kF32 ? dst : Access{}, Dtype::kF32);
  binary(AluOp::kMultiply, x, of(r), q);
  Access product = binary(AluOp::kMultiply, of(q), y);
  Access rest = binary(AluOp::kSubtract, x, of(product));
  Access step = binary(AluOp::kMultiply, of(rest), of(r));
  Access better = binary(AluOp::kAdd, of(q), of(step));
  select(q, better, binary(AluOp::kEqual, of(better), of(better), {}, Dtype::kU8));
  return dst.present() && dst.tensor != q.tensor ? cast(q, dst.dtype, dst) : q;
}

// Rounding goes through int32 (round to nearest even), which holds below 2^23; larger numbers are integers
// already.
Access Ops::round_even(const Access& x) {
  Access i = cast(x, Dtype::kI32);
  Access r = cast(x, Dtype::kF32);
  select(r, cast(i, Dtype::kF32), scalar(abs(x), AluOp::kLess, kTwoTo23, {}, Dtype::kU8));
  return r;
}

Access Ops::floor(const Access& x) {
  Access r = round_even(x);
  Access above = binary(AluOp::kGreater, of(r), of(x));
  return binary(AluOp::kSubtract, of(r), of(above));
}

Access Ops::ceil(const Access& x) {
  Access r = round_even(x);
  Access below = binary(AluOp::kLess, of(r), of(x));
  return binary(AluOp::kAdd, of(r), of(below));
}

Access Ops::trunc(const Access& x) {
  Access magnitude = abs(x);
  return binary(AluOp::kMultiply, of(floor(magnitude)), of(act(ActFunc::kSign, x)));
}

// PyTorch: (x > 0) - (x < 0), so NaN gives 0.
Access Ops::sign(const Access& x) {
  Access positive = scalar(x, AluOp::kGreater, 0);
  return fused(x, AluOp::kLess, imm(0), AluOp::kSubtract, positive, true);
}

// log(1+x) * x / ((1+x)-1) cancels the rounding of 1+x for small x.
Access Ops::log1p(const Access& x) {
  Access y = act(ActFunc::kLog, x, 1.0f, 1.0f);
  Access d = scalar2(x, AluOp::kAdd, 1, AluOp::kSubtract, 1);
  Access ratio = binary(AluOp::kMultiply, of(x), of(recip(d)));
  Access small = binary(AluOp::kMultiply, of(y), of(ratio));
  select(y, small, scalar(abs(x), AluOp::kLess, 0.5f, {}, Dtype::kU8));
  Access exact = typed_tile(of(x), Dtype::kF32);
  select(y, exact, scalar(d, AluOp::kEqual, 0, {}, Dtype::kU8));
  return y;
}

// Near 0: 2t / (1 - t) with t = tanh(x/2).
Access Ops::expm1(const Access& x) {
  Access y = scalar(act(ActFunc::kExp, x), AluOp::kSubtract, 1);
  Access t = act(ActFunc::kTanh, x, 0.5f);
  Access r = recip(scalar2(t, AluOp::kMultiply, -1, AluOp::kAdd, 1));
  Access small = fused(t, AluOp::kMultiply, imm(2), AluOp::kMultiply, r);
  select(y, small, scalar(abs(x), AluOp::kLess, 1, {}, Dtype::kU8));
  return y;
}

// The sine table covers [-pi, pi]. Reduction by 2*pi in three parts (the first two have few bits, so that k *
// part is exact): good for |x| up to about 1e5. cos(x) = sin(x - 2*pi*(k - 1/4)).
Access Ops::sine(const Access& x, bool cosine) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kPart1 = 6.28125f, kPart2 = 0.0019350051879882812f, kPart3 = 3.0199159819e-7f;
  float quarter = cosine ? 0.25f : 0.0f;
  Access k = scalar2(x, AluOp::kMultiply, 0.159154943091895f, AluOp::kAdd, quarter);
  k = scalar2(k, AluOp::kAdd, kRound, AluOp::kSubtract, kRound);
  if (cosine) k = scalar(k, AluOp::kSubtract, 0.25f);
  Access r = fused(k, AluOp::kMultiply, imm(-kPart1), AluOp::kAdd, x);
  r = fused(k, AluOp::kMultiply, imm(-kPart2), AluOp::kAdd, r);
  r = fused(k, AluOp::kMultiply, imm(-kPart3), AluOp::kAdd, r);
  r = scalar2(r, AluOp::kMax, -kPi, AluOp::kMin, kPi);
  return act(ActFunc::kSin, r);
}

// Reduction by pi/2 keeps the relative accuracy next to the poles: for odd multiples, tan(x) = -cos(r) /
// sin(r).
Access Ops::tangent(const Access& x) {
  constexpr float kRound = 12582912.0f;
  constexpr float kPart1 = 6.28125f / 4, kPart2 = 0.0019350051879882812f / 4, kPart3 = 3.0199159819e-7f / 4;
  Access k = scalar(x, AluOp::kMultiply, 0.636619772367581f);
  k = scalar2(k, AluOp::kAdd, kRound, AluOp::kSubtract, kRound);
  Access r = fused(k, AluOp::kMultiply, imm(-kPart1), AluOp::kAdd, x);
  r = fused(k, AluOp::kMultiply, imm(-kPart2), AluOp::kAdd, r);
  r = fused(k, AluOp::kMultiply, imm(-kPart3), AluOp::kAdd, r);
  r = scalar2(r, AluOp::kMax, -kHalfPi, AluOp::kMin, kHalfPi);
  Access half = scalar(k, AluOp::kMultiply, 0.5f);
  Access even = scalar2(half, AluOp::kAdd, kRound, AluOp::kSubtract, kRound);
  Access odd = binary(AluOp::kNotEqual, of(half), of(even), {}, Dtype::kU8);
  Access sine_r = act(ActFunc::kSin, r);
  Access cosine_r = act(ActFunc::kSin, abs(r), -1.0f, kHalfPi);
  Access top = cast(sine_r, Dtype::kF32), bottom = cast(cosine_r, Dtype::kF32);
  select(top, scalar(cosine_r, AluOp::kMultiply, -1), odd);
  select(bottom, sine_r, odd);
  return divide(of(top), of(bottom));
}

// The arctan table covers [-pi/2, pi/2]: beyond 1, atan(x) = sign(x)*pi/2 - atan(1/x).
Access Ops::atan(const Access& x) {
  Access far = scalar(abs(x), AluOp::kGreater, 1, {}, Dtype::kU8);
  Access z = cast(x, Dtype::kF32);
  select(z, recip(x), far);
  Access y = act(ActFunc::kArctan, z);
  Access other = fused(act(ActFunc::kSign, x), AluOp::kMultiply, imm(kHalfPi), AluOp::kSubtract, y);
  select(y, other, far);
  return y;
}

Access Ops::asin(const Access& x) {
  Access below = scalar2(x, AluOp::kMultiply, -1, AluOp::kAdd, 1);
  Access square = fused(x, AluOp::kAdd, imm(1), AluOp::kMultiply, below);  // (1+x)(1-x)
  return atan(binary(AluOp::kMultiply, of(x), of(act(ActFunc::kRsqrt, square))));
}

// 2 * atan(sqrt((1-x)/(1+x))) keeps the relative accuracy near x = 1.
Access Ops::acos(const Access& x) {
  Access top = act(ActFunc::kSqrt, x, -1.0f, 1.0f);
  Access bottom = act(ActFunc::kRsqrt, x, 1.0f, 1.0f);
  return scalar(atan(binary(AluOp::kMultiply, of(top), of(bottom))), AluOp::kMultiply, 2);
}

// t = atan(|y|/|x|) in the first quadrant, mirrored.
Access Ops::atan2(const Src& y, const Src& x) {
  Access ty = as_tile(y, Dtype::kF32), tx = as_tile(x, Dtype::kF32);
  Access ay = abs(ty), ax = abs(tx);
  Access t = atan(divide(of(ay), of(ax)));
  Access zero = as_tile(constant(0), Dtype::kF32);
  select(t, zero, scalar(binary(AluOp::kMax, of(ay), of(ax)), AluOp::kEqual, 0, {}, Dtype::kU8));
  Access both = binary(AluOp::kMin, of(ay), of(ax));
  select(t, as_tile(constant(kPi / 4), Dtype::kF32), scalar(both, AluOp::kEqual, kInf, {}, Dtype::kU8));
  select(t, scalar2(t, AluOp::kMultiply, -1, AluOp::kAdd, kPi), scalar(tx, AluOp::kLess, 0, {}, Dtype::kU8));
  Access negative = scalar2(ty, AluOp::kLess, 0, AluOp::kMultiply, -2);
  return fused(negative, AluOp::kAdd, imm(1), AluOp::kMultiply, t);
}

// Rational Chebyshev-like fit of exp(x^2) erfc(x) in t = 1/(1 + x/2), relative error 1.2e-7 before rounding;
// erfc(-x) = 2 - erfc(x).
Access Ops::erfc(const Access& x) {
  constexpr float kCoefficients[] = {0.17087277f,  -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f,
                                     -0.18628806f, 0.09678418f,  0.37409196f, 1.00002368f};
  Access a = abs(x);
  Access t = recip(scalar2(a, AluOp::kMultiply, 0.5f, AluOp::kAdd, 1));
  Access p = scalar(t, AluOp::kMultiply, kCoefficients[0]);
  for (int i = 1; i < 9; ++i) p = fused(p, AluOp::kAdd, imm(kCoefficients[i]), AluOp::kMultiply, t);
  Access square = binary(AluOp::kMultiply, of(a), of(a));
  // Two exponentials: their arguments round on their own scale.
  Access e1 = act(ActFunc::kExp, square, -1.0f);
  Access e2 = act(ActFunc::kExp, p, 1.0f, -1.26551223f);
  Access y = binary(AluOp::kMultiply, of(binary(AluOp::kMultiply, of(e1), of(e2))), of(t));
  Access mirrored = scalar2(y, AluOp::kMultiply, -1, AluOp::kAdd, 2);
  select(y, mirrored, scalar(x, AluOp::kLess, 0, {}, Dtype::kU8));
  return y;
}

// Below 1: 2t / (1 - t^2), t = tanh(x/2).
Access Ops::sinh(const Access& x) {
  Access y = binary(AluOp::kSubtract, of(act(ActFunc::kExp, x, 1.0f, -kLn2)),
                    of(act(ActFunc::kExp, x, -1.0f, -kLn2)));
  Access t = act(ActFunc::kTanh, x, 0.5f);
  Access square = binary(AluOp::kMultiply, of(t), of(t));
  Access r = recip(scalar2(square, AluOp::kMultiply, -1, AluOp::kAdd, 1));
  Access small = fused(t, AluOp::kMultiply, imm(2), AluOp::kMultiply, r);
  select(y, small, scalar(abs(x), AluOp::kLess, 1, {}, Dtype::kU8));
  return y;
}

Access Ops::cosh(const Access& x) {
  return binary(AluOp::kAdd, of(act(ActFunc::kExp, x, 1.0f, -kLn2)), of(act(ActFunc::kExp, x, -1.0f, -kLn2)));
}

// sign(x) * log1p(a + a^2 / (1 + sqrt(1 + a^2))), a = |x|; for large a, log(a) + log(2).
Access Ops::asinh(const Access& x) {
  Access a = abs(x);
  Access square = binary(AluOp::kMultiply, of(a), of(a));
  Access r = recip(scalar(act(ActFunc::kSqrt, square, 1.0f, 1.0f), AluOp::kAdd, 1));
  Access y = log1p(binary(AluOp::kAdd, of(a), of(binary(AluOp::kMultiply, of(square), of(r)))));
  select(y, scalar(act(ActFunc::kLog, a), AluOp::kAdd, kLn2),
         scalar(a, AluOp::kGreater, 1e9f, {}, Dtype::kU8));
  return binary(AluOp::kMultiply, of(y), of(act(ActFunc::kSign, x)));
}

// log1p(t + sqrt(t) * sqrt(t + 2)), t = x - 1.
Access Ops::acosh(const Access& x) {
  Access t = scalar(x, AluOp::kSubtract, 1);
  Access root = binary(AluOp::kMultiply, of(act(ActFunc::kSqrt, t)), of(act(ActFunc::kSqrt, t, 1.0f, 2.0f)));
  return log1p(binary(AluOp::kAdd, of(t), of(root)));
}

Access Ops::atanh(const Access& x) {
  Access a = abs(x);
  Access r = recip(scalar2(a, AluOp::kMultiply, -1, AluOp::kAdd, 1));
  Access y = log1p(fused(a, AluOp::kMultiply, imm(2), AluOp::kMultiply, r));
  return fused(y, AluOp::kMultiply, imm(0.5f), AluOp::kMultiply, act(ActFunc::kSign, x));
}

// The rounded quotient can be off by one where x / y is within rounding of an integer; the remainder tells.
Access Ops::divide_round(const Src& x, const Src& y, bool floor_mode, bool remainder) {
  Access tx = as_tile(x, Dtype::kF32), ty = as_tile(y, Dtype::kF32);
  Access quotient = divide(x, y);
  Access q = floor_mode ? floor(quotient) : trunc(quotient);
  Access r = binary(AluOp::kSubtract, of(tx), of(binary(AluOp::kMultiply, of(q), of(ty))));
  // `owner` has the sign the remainder must have.
  const Access& owner = floor_mode ? ty : tx;
  Access wrong = scalar(binary(AluOp::kMultiply, of(act(ActFunc::kSign, r)), of(act(ActFunc::kSign, owner))),
                        AluOp::kLess, 0);
  // The quotient one step back is q - 1 (floor) or one nearer to zero (truncation); the remainder gains that
  // many y.
  Access step = wrong;
  if (!floor_mode) {
    Access direction = binary(AluOp::kMultiply, of(act(ActFunc::kSign, tx)), of(act(ActFunc::kSign, ty)));
    step = binary(AluOp::kMultiply, of(wrong), of(direction));
  }
  if (!remainder) {
    Access result = binary(AluOp::kSubtract, of(q), of(step));
    // Infinite or undefined quotients pass unchanged.
    Access keep = scalar(abs(quotient), AluOp::kLess, kInf, {}, Dtype::kU8);
    select(quotient, result, keep);
    return quotient;
  }
  r = binary(AluOp::kAdd, of(r), of(binary(AluOp::kMultiply, of(step), of(ty))));
  // A remainder as large as the divisor: the quotient had been rounded down too far. (Python's remainder may
  // round to the divisor itself.)
  Access large = binary(floor_mode ? AluOp::kGreater : AluOp::kGreaterEqual, of(abs(r)), of(abs(ty)));
  Access back = binary(AluOp::kMultiply, of(large), of(abs(ty)));
  back = binary(AluOp::kMultiply, of(back), of(act(ActFunc::kSign, r)));
  r = binary(AluOp::kSubtract, of(r), of(back));
  // x mod infinity is x (floor: infinity where the signs differ).
  Access infinite = scalar(abs(ty), AluOp::kEqual, kInf, {}, Dtype::kU8);
  Access whole = typed_tile(of(tx), Dtype::kF32);
  if (floor_mode) {
    Access differ = scalar(binary(AluOp::kMultiply, of(act(ActFunc::kSign, tx)), of(act(ActFunc::kSign, ty))),
                           AluOp::kLess, 0, {}, Dtype::kU8);
    Access kept = cast(whole, Dtype::kF32);
    select(kept, typed_tile(of(ty), Dtype::kF32), differ);
    whole = kept;
  }
  // Infinite x stays undefined: inf - inf.
  Access finite = scalar(abs(tx), AluOp::kLess, kInf, {}, Dtype::kU8);
  select(r, whole, binary(AluOp::kLogicalAnd, of(infinite), of(finite), {}, Dtype::kU8));
  return r;
}

}  // namespace trnsim::compiler
