// FP32 functions that the engines do not have, composed from those they have. Accuracy: a few units in the
// last place unless a comment says otherwise; special values as PyTorch's CPU kernels give them.
#include <cmath>

#include "device_plugin/compiler/tilers/expr.h"

namespace trnsim::compiler {

namespace {
constexpr float kLn2 = 0.693147180559945f;
constexpr float kTwoTo23 = 8388608.0f;

ScalarOperand imm(float v) { return TileBuilder::imm(v); }
}  // namespace

// |x| + 2^23 - 2^23 rounds to nearest even below 2^23; larger numbers are integers already. The sign of x is that
// of the result, zero included.
Access Ops::round_even(const Access& x) {
  Access magnitude = scalar2(abs(x), AluOp::kAdd, kTwoTo23, AluOp::kSubtract, kTwoTo23);
  return where_fraction(x, magnitude);
}

Access Ops::where_fraction(const Access& x, const Access& magnitude) {
  Access r = cast(x, Dtype::kF32);
  select(r, or_bits(magnitude, sign_bits(x)), compare_magnitude(x, AluOp::kLess, kTwoTo23));
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
  return or_bits(binary(AluOp::kAdd, of(r), of(below)), sign_bits(x));
}

Access Ops::trunc(const Access& x) {
  Access a = abs(x);
  Access magnitude = scalar2(a, AluOp::kAdd, kTwoTo23, AluOp::kSubtract, kTwoTo23);
  Access above = binary(AluOp::kGreater, of(magnitude), of(a));
  return where_fraction(x, binary(AluOp::kSubtract, of(magnitude), of(above)));
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
  select(y, small, compare_magnitude(x, AluOp::kLess, 0.5f));
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
  select(y, small, compare_magnitude(x, AluOp::kLess, 1));
  return y;
}

// Rational Chebyshev-like fit of exp(x^2) erfc(x) in t = 1/(1 + x/2), relative error 1.2e-7 before rounding;
// erfc(-x) = 2 - erfc(x).
Access Ops::erfc(const Access& x, bool scaled) {
  constexpr float kCoefficients[] = {0.17087277f,  -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f,
                                     -0.18628806f, 0.09678418f,  0.37409196f, 1.00002368f};
  Access a = abs(x);
  Access t = recip(scalar2(a, AluOp::kMultiply, 0.5f, AluOp::kAdd, 1));
  Access p = scalar(t, AluOp::kMultiply, kCoefficients[0]);
  for (int i = 1; i < 9; ++i) p = fused(p, AluOp::kAdd, imm(kCoefficients[i]), AluOp::kMultiply, t);
  // exp(-a^2) = exp(-h^2) * exp(-(a-h)(a+h)), h = a to 12 bits: its square is exact. Exponentials are multiplied,
  // because their arguments round on their own scale. From 16 on they are 0 or infinite.
  Access c = scalar(a, AluOp::kMin, 16);
  Access h = as_float(bits(c, AluOp::kBitAnd, 0xfffff000u));
  Access square = binary(AluOp::kMultiply, of(h), of(h));
  Access low = binary(AluOp::kSubtract, of(c), of(h));
  Access rest = binary(AluOp::kMultiply, of(low), of(binary(AluOp::kAdd, of(c), of(h))));
  Access fit = scaled ? p : binary(AluOp::kSubtract, of(p), of(rest));
  Access y = binary(AluOp::kMultiply, of(act(ActFunc::kExp, fit, 1.0f, -1.26551223f)), of(t));
  Access mirrored;
  if (scaled) {
    Access twice = fused(act(ActFunc::kExp, square), AluOp::kMultiply, imm(2), AluOp::kMultiply,
                         act(ActFunc::kExp, rest));
    mirrored = binary(AluOp::kSubtract, of(twice), of(y));
  } else {
    y = binary(AluOp::kMultiply, of(y), of(act(ActFunc::kExp, square, -1.0f)));
    mirrored = scalar2(y, AluOp::kMultiply, -1, AluOp::kAdd, 2);
  }
  select(y, mirrored, scalar(x, AluOp::kLess, 0, {}, Dtype::kU8));
  return y;
}

// e^|x| / 2 as a product of e^(|x|/2), which is exact in its argument and does not overflow early.
Access Ops::half_exp(const Access& magnitude) {
  Access root = act(ActFunc::kExp, magnitude, 0.5f);
  return fused(root, AluOp::kMultiply, imm(0.5f), AluOp::kMultiply, root);
}

// Below 1: 2t / (1 - t^2), t = tanh(x/2).
Access Ops::sinh(const Access& x) {
  Access a = abs(x);
  Access half = half_exp(a);
  Access y = fused(recip(half), AluOp::kMultiply, imm(0.25f), AluOp::kSubtract, half, true);
  Access t = act(ActFunc::kTanh, a, 0.5f);
  Access square = binary(AluOp::kMultiply, of(t), of(t));
  Access r = recip(scalar2(square, AluOp::kMultiply, -1, AluOp::kAdd, 1));
  Access small = fused(t, AluOp::kMultiply, imm(2), AluOp::kMultiply, r);
  select(y, small, scalar(a, AluOp::kLess, 1, {}, Dtype::kU8));
  return or_bits(y, sign_bits(x));
}

Access Ops::cosh(const Access& x) {
  Access half = half_exp(abs(x));
  return fused(recip(half), AluOp::kMultiply, imm(0.25f), AluOp::kAdd, half);
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

// log1p(t + sqrt(t) * sqrt(t + 2)), t = x - 1; for large x, log(x) + log(2).
Access Ops::acosh(const Access& x) {
  Access t = scalar(x, AluOp::kSubtract, 1);
  Access root = binary(AluOp::kMultiply, of(act(ActFunc::kSqrt, t)), of(act(ActFunc::kSqrt, t, 1.0f, 2.0f)));
  Access y = log1p(binary(AluOp::kAdd, of(t), of(root)));
  select(y, scalar(act(ActFunc::kLog, x), AluOp::kAdd, kLn2),
         scalar(x, AluOp::kGreater, 1e9f, {}, Dtype::kU8));
  return y;
}

Access Ops::atanh(const Access& x) {
  Access a = abs(x);
  Access r = recip(scalar2(a, AluOp::kMultiply, -1, AluOp::kAdd, 1));
  Access y = log1p(fused(a, AluOp::kMultiply, imm(2), AluOp::kMultiply, r));
  return fused(y, AluOp::kMultiply, imm(0.5f), AluOp::kMultiply, act(ActFunc::kSign, x));
}

}  // namespace trnsim::compiler
