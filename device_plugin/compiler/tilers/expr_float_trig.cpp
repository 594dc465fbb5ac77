// Trigonometric functions of FP32 and their inverses. The hardware's sine table covers [-pi, pi], its arctangent
// table [-pi/2, pi/2]; arguments are reduced to those.
#include <cmath>

#include "device_plugin/compiler/tilers/expr.h"

namespace trnsim::compiler {

namespace {
constexpr float kPi = 3.14159265358979f;
constexpr float kHalfPi = 1.57079632679490f;
constexpr float kInf = HUGE_VALF;
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
constexpr float kInversePi = 0.318309886183791f;
// Pi in four parts; all but the last have so few digits that their products with k are exact.
constexpr float kPiParts[] = {3.140625f, 0x1.fb4p-11f, 0x1.444p-23f, 0x1.68c234p-38f};
constexpr float kFar = 4096;  // from here on the parts do not hold

ScalarOperand imm(float v) { return TileBuilder::imm(v); }

// x - k * (part of pi), for |k| below 2^13 with halves.
Access minus_multiple_of_pi(Ops& o, const Access& x, const Access& k, float part) {
  Access r = x;
  for (const float p : kPiParts) r = o.fused(k, AluOp::kMultiply, imm(-p * part), AluOp::kAdd, r);
  return r;
}
}  // namespace

// |x| / (2*pi) modulo 1 in units of 2^-32, for kFar <= |x|, as int32. |x| = m * 2^e: the 64 binary digits of
// 1 / (2*pi) from digit e on, times m.
Access Ops::turns(const Access& x) {
  // 2^-11 / (2*pi), 2^12 = kFar being m * 2^-11
  constexpr uint32_t kDigits[] = {0x000517cc, 0x1b727220, 0xa94fe13a, 0xbe8fa9a6, 0xee06db14, 0xacc9e21c};
  Access exponent = bits(x, AluOp::kShiftLeft, 1, AluOp::kShiftRight, 24);
  Access m = bits(x, AluOp::kBitAnd, 0x007fffff, AluOp::kBitOr, 0x00800000);
  Access from = scalar(exponent, AluOp::kSubtract, 139, {}, Dtype::kI32);
  Access shift = bits(from, AluOp::kBitAnd, 31);
  Access back = binary(AluOp::kSubtract, constant(32), of(shift), {}, Dtype::kU32);
  Access window[3];
  for (int w = 0; w < 3; ++w) window[w] = cast(int_constant(kDigits[w], Dtype::kU32), Dtype::kU32);
  for (int group = 1; group < 4; ++group) {
    Access here = scalar(from, AluOp::kGreaterEqual, 32.0f * static_cast<float>(group), {}, Dtype::kU8);
    for (int w = 0; w < 3; ++w) select(window[w], int_constant(kDigits[w + group], Dtype::kU32), here);
  }
  const auto joined = [&](const Access& high, const Access& low) {
    return int_binary(AluOp::kBitOr, int_binary(AluOp::kShiftLeft, high, shift),
                      int_binary(AluOp::kShiftRight, low, back));
  };
  Access high = joined(window[0], window[1]), low = joined(window[1], window[2]);
  // Of the product with the low digits, the upper half in FP32: wrong by a few units.
  Access carry =
      scalar(binary(AluOp::kMultiply, of(m), of(low)), AluOp::kMultiply, 0x1p-32f, {}, Dtype::kU32);
  return as_int(int_binary(AluOp::kAdd, int_binary(AluOp::kMultiply, m, high), carry));
}

// sin(x) = (-1)^k sin(x - k*pi), cos(x) = (-1)^k sin(x - (k - 1/2)*pi), k being the nearest: where the function is zero, so
// is the angle that is left, and that keeps the relative accuracy.
Access Ops::sine(const Access& x, bool cosine) {
  Access rounded =
      cosine ? scalar(scalar2(x, AluOp::kMultiply, kInversePi, AluOp::kAdd, 0.5f), AluOp::kAdd, kRound)
             : scalar2(x, AluOp::kMultiply, kInversePi, AluOp::kAdd, kRound);
  Access k = cosine ? scalar2(rounded, AluOp::kSubtract, kRound, AluOp::kSubtract, 0.5f)
                    : scalar(rounded, AluOp::kSubtract, kRound);
  Access r = minus_multiple_of_pi(*this, x, k, 1);
  Access sign = bits(rounded, AluOp::kShiftLeft, 31);  // k is odd

  Access wide = typed_tile(of(x), Dtype::kF32);
  Access t = turns(wide), far_is = compare_magnitude(x, AluOp::kGreaterEqual, kFar);
  if (cosine) t = int_binary(AluOp::kAdd, t, int_constant(int64_t{1} << 30, Dtype::kI32));
  // The nearest half turn, and the distance from it.
  Access half = int_binary(AluOp::kAdd, t, int_constant(int64_t{1} << 30, Dtype::kI32));
  select(sign, bits(half, AluOp::kBitAnd, 0x80000000u), far_is);
  Access far = scalar(as_int(bits(t, AluOp::kShiftLeft, 1)), AluOp::kMultiply, kPi * 0x1p-32f);
  if (!cosine) far = flip_sign(far, wide);
  // Infinity times 0: no angle.
  select(r, fused(x, AluOp::kMultiply, imm(0), AluOp::kAdd, far), far_is);

  r = scalar2(r, AluOp::kMax, -kPi, AluOp::kMin, kPi);
  return as_float(int_binary(AluOp::kBitXor, word(act(ActFunc::kSin, r)), sign));
}

// Reduction by pi/2 keeps the relative accuracy next to the poles: for odd multiples, tan(x) = -cos(r) / sin(r).
Access Ops::tangent(const Access& x) {
  Access k = scalar(x, AluOp::kMultiply, 2 * kInversePi);
  k = scalar2(k, AluOp::kAdd, kRound, AluOp::kSubtract, kRound);
  Access r = minus_multiple_of_pi(*this, x, k, 0.5f);
  Access half = scalar(k, AluOp::kMultiply, 0.5f);
  Access even = scalar2(half, AluOp::kAdd, kRound, AluOp::kSubtract, kRound);
  Access odd = binary(AluOp::kNotEqual, of(half), of(even), {}, Dtype::kU8);

  Access wide = typed_tile(of(x), Dtype::kF32);
  Access t = turns(wide), far_is = compare_magnitude(x, AluOp::kGreaterEqual, kFar);
  // The nearest quarter turn, and the distance from it.
  Access quarter = int_binary(AluOp::kAdd, t, int_constant(int64_t{1} << 29, Dtype::kI32));
  Access far_odd = bits(quarter, AluOp::kShiftRight, 30, AluOp::kBitAnd, 1);
  select(odd, cast(far_odd, Dtype::kU8), far_is);
  Access distance = as_int(bits(t, AluOp::kShiftLeft, 2));
  Access far = flip_sign(scalar(distance, AluOp::kMultiply, kHalfPi * 0x1p-32f), wide);
  select(r, fused(x, AluOp::kMultiply, imm(0), AluOp::kAdd, far), far_is);

  r = scalar2(r, AluOp::kMax, -kHalfPi, AluOp::kMin, kHalfPi);
  Access sine_r = act(ActFunc::kSin, r);
  Access cosine_r = act(ActFunc::kSin, abs(r), -1.0f, kHalfPi);
  Access top = cast(sine_r, Dtype::kF32), bottom = cast(cosine_r, Dtype::kF32);
  select(top, scalar(cosine_r, AluOp::kMultiply, -1), odd);
  select(bottom, sine_r, odd);
  return divide(of(top), of(bottom));
}

// Beyond 1, atan(x) = sign(x)*pi/2 - atan(1/x).
Access Ops::atan(const Access& x) {
  Access far = compare_magnitude(x, AluOp::kGreater, 1);
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

// t = atan(|y|/|x|) in the first quadrant, mirrored by the signs, those of zeros included.
Access Ops::atan2(const Src& sy, const Src& sx) {
  Access y = typed_tile(sy, Dtype::kF32), x = typed_tile(sx, Dtype::kF32);
  Access ay = abs(y), ax = abs(x);
  Access t = atan(divide(of(ay), of(ax)));
  Access zero = as_tile(constant(0), Dtype::kF32);
  select(t, zero, scalar(binary(AluOp::kMax, of(ay), of(ax)), AluOp::kEqual, 0, {}, Dtype::kU8));
  Access both = binary(AluOp::kMin, of(ay), of(ax));
  select(t, as_tile(constant(kPi / 4), Dtype::kF32), scalar(both, AluOp::kEqual, kInf, {}, Dtype::kU8));
  select(t, scalar2(t, AluOp::kMultiply, -1, AluOp::kAdd, kPi), sign_bits(x));
  return or_bits(t, sign_bits(y));
}

}  // namespace trnsim::compiler
