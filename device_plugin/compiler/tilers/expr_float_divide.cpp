// FP32 division, quotients rounded to integers, and remainders. There is no divider: quotients start from the
// reciprocal. Remainders are exact for every pair of operands.
#include <cmath>

#include "device_plugin/compiler/inverse.h"
#include "device_plugin/compiler/tilers/expr.h"

namespace trnsim::compiler {

namespace {
constexpr float kInf = HUGE_VALF;

ScalarOperand imm(float v) { return TileBuilder::imm(v); }

bool power_of_two(double v) {
  int e;
  return v != 0 && std::isfinite(v) && std::fabs(std::frexp(v, &e)) == 0.5 && e > -120 && e < 120;
}
}  // namespace

// q = x * (1 / y) cut to 12 bits, plus the rest over y. With y cut in two, the rest x - q*y is exact, so that exact
// quotients come out exact. The first quotient stands where that is not a number (infinities, y == 0) and where the rest would be lost
// among the smallest numbers (zero keeps its sign). BF16 results need no step: no quotient of BF16 numbers lies near a tie.
Access Ops::divide(const Src& x, const Src& y, const Access& dst, bool invariant) {
  if (y.kind == Src::Kind::kConst && power_of_two(y.value)) {
    return binary(AluOp::kMultiply, x, constant(1.0 / y.value), dst);
  }
  const bool in_place = dst.dtype == Dtype::kF32 || dst.dtype == Dtype::kBF16;
  const Access q = target(in_place ? dst : Access{}, Dtype::kF32);
  const auto result = [&] { return dst.present() && dst.tensor != q.tensor ? cast(q, dst.dtype, dst) : q; };
  if (!y.tile()) {
    divide_by_scalar(as_tile(x, Dtype::kF32), y, q, invariant);
    return result();
  }
  const bool narrow = isa::dtype_bytes(y.access.dtype) < 4;  // at most 11 bits
  Src dividend = x;
  Access divisor = y.access;
  if (divisor.dtype != Dtype::kF16) {  // the smallest FP16 is far above kTinyDivisor
    Access factor = scale_of_tiny(divisor);
    divisor = binary(AluOp::kMultiply, of(factor), y);
    dividend = of(binary(AluOp::kMultiply, x, of(factor)));
  }
  Access r = recip(divisor);
  binary(AluOp::kMultiply, dividend, of(r), q);
  if (q.dtype == Dtype::kBF16) return result();
  const Access upper = upper_half(q);
  const auto minus_product = [&](const Src& from, const Access& part) {
    return binary(AluOp::kSubtract, from, of(binary(AluOp::kMultiply, of(upper), of(part))));
  };
  Access rest;
  if (narrow) {
    rest = minus_product(dividend, divisor);
  } else {
    const Access high = upper_half(divisor);
    const Access low = binary(AluOp::kSubtract, of(divisor), of(high));
    rest = minus_product(of(minus_product(dividend, high)), low);
  }
  const Access better = binary(AluOp::kAdd, of(upper), of(binary(AluOp::kMultiply, of(rest), of(r))));
  // A square that is zero from |x| = 2^-115 down.
  const Access square = scalar2(as_tile(dividend, Dtype::kF32), AluOp::kMultiply, 0x1p40f, AluOp::kPower, 2);
  select(q, better, fused(better, AluOp::kMultiply, imm(0), AluOp::kLess, square, false, {}, Dtype::kU8));
  return result();
}

Access Ops::upper_half(const Access& a) { return as_float(bits(a, AluOp::kBitAnd, 0xfffff000u)); }

// kScaleUp where |y| < kTinyDivisor, else 1.
Access Ops::scale_of_tiny(const Access& y) {
  Access tiny = compare_magnitude(y, AluOp::kLess, kTinyDivisor, Dtype::kF32);
  return scalar2(tiny, AluOp::kMultiply, kScaleUp - 1, AluOp::kAdd, 1);
}

void Ops::refine(const Access& q, const Access& better) {
  Access finite = scalar2(better, AluOp::kMultiply, 0, AluOp::kEqual, 0, {}, Dtype::kU8);
  select(q, better, fused(q, AluOp::kNotEqual, imm(0), AluOp::kLogicalAnd, finite, false, {}, Dtype::kU8));
}

// x / y = x*h + x*l with the parts of the inverse (inverse.h).
void Ops::divide_by_scalar(const Access& x, const Src& y, const Access& q, bool invariant) {
  Inverse inverse;
  if (y.kind == Src::Kind::kConst)
    inverse = inverse_of(static_cast<float>(y.value));
  else if (invariant)
    b.before_loop([&] { inverse = inverse_of(y.access); });
  else
    inverse = inverse_of(y.access);
  Access dividend = x;
  if (inverse.scale.kind != ScalarOperand::Kind::kNone) {
    dividend = temp(Dtype::kF32);
    b.tensor_scalar(dividend, x, AluOp::kMultiply, inverse.scale);
  }
  if (q.dtype == Dtype::kBF16) {
    b.tensor_scalar(q, dividend, AluOp::kMultiply, inverse.high);
    return;
  }
  Access low = temp(Dtype::kF32);
  b.tensor_scalar(low, dividend, AluOp::kMultiply, inverse.low);
  fused(dividend, AluOp::kMultiply, inverse.high, AluOp::kAdd, low, false, q);
}

Ops::Inverse Ops::inverse_of(float y) {
  const InverseParts p = inverse_parts(y);
  return {p.scale == 1 ? ScalarOperand{} : imm(p.scale), imm(p.high), imm(p.low)};
}

// The same on a column: the rest 1 - y*h is exact, because y and h are cut in two. Where it is no number, h is 0 or
// infinite and stands for both parts.
Ops::Inverse Ops::inverse_of(const Access& column) {
  Ops one(b, partitions_, {1});
  Access y = column;
  y.num_partitions = static_cast<uint16_t>(partitions_);
  y = one.typed_tile(of(y), Dtype::kF32);
  const Access scale = one.scale_of_tiny(y);
  y = one.binary(AluOp::kMultiply, of(scale), of(y));
  const Access r = one.recip(y);
  const Access high = one.scalar(r, AluOp::kMultiply, 1 - 0x1p-23f);
  const Access y_high = one.upper_half(y), h_high = one.upper_half(high);
  const Access y_low = one.binary(AluOp::kSubtract, of(y), of(y_high));
  const Access h_low = one.binary(AluOp::kSubtract, of(high), of(h_high));
  Access rest = one.temp(Dtype::kF32);
  b.tensor_scalar(rest, y_high, AluOp::kMultiply, TileBuilder::column(h_high), AluOp::kSubtract, imm(1),
                  false, true);
  for (auto [a, c] : {std::pair{y_high, h_low}, {y_low, h_high}, {y_low, h_low}})
    rest = one.fused(a, AluOp::kMultiply, TileBuilder::column(c), AluOp::kSubtract, rest, true);
  const Access part = one.binary(AluOp::kMultiply, of(rest), of(r));
  const Access low = one.cast(high, Dtype::kF32);
  one.select(low, part, one.scalar2(part, AluOp::kMultiply, 0, AluOp::kEqual, 0, {}, Dtype::kU8));
  return {TileBuilder::column(scale), TileBuilder::column(high), TileBuilder::column(low)};
}

// The correctly rounded quotient: the rest x - q*y is exact, because q and y are cut into halves of 12 bits.
Access Ops::divide_exact(const Access& x, const Access& y) {
  Access factor = scale_of_tiny(y);
  Access divisor = binary(AluOp::kMultiply, of(factor), of(y));
  Access dividend = binary(AluOp::kMultiply, of(factor), of(x));
  Access q = divide(of(dividend), of(divisor));
  Access q_hi = upper_half(q), y_hi = upper_half(divisor);
  Access q_lo = binary(AluOp::kSubtract, of(q), of(q_hi)),
         y_lo = binary(AluOp::kSubtract, of(divisor), of(y_hi));
  Access product = binary(AluOp::kMultiply, of(q), of(divisor));
  Access error = binary(AluOp::kSubtract, of(binary(AluOp::kMultiply, of(q_hi), of(y_hi))), of(product));
  for (auto [a, c] : {std::pair{q_hi, y_lo}, {q_lo, y_hi}, {q_lo, y_lo}}) {
    error = binary(AluOp::kAdd, of(error), of(binary(AluOp::kMultiply, of(a), of(c))));
  }
  Access rest = binary(AluOp::kSubtract, of(dividend), of(product));
  rest = binary(AluOp::kSubtract, of(rest), of(error));
  Access step = binary(AluOp::kMultiply, of(rest), of(recip(divisor)));
  refine(q, binary(AluOp::kAdd, of(q), of(step)));
  return q;
}

// |a| = mantissa * 2^(exponent - 149), the exponent of denormals being 0.
Ops::Parts Ops::parts(const Access& magnitude) {
  Access biased = bits(magnitude, AluOp::kShiftRight, 23);
  Parts p;
  p.exponent = scalar2(biased, AluOp::kSubtract, 1, AluOp::kMax, 0, {}, Dtype::kI32);
  Access shifted = as_int(bits(p.exponent, AluOp::kShiftLeft, 23));
  p.mantissa = int_binary(AluOp::kSubtract, as_int(magnitude), shifted);
  return p;
}

// Long division by digits of 2^28 on the mantissas: with m the mantissa of y, r <- r * 2^28 mod m as often as the
// exponents are apart, then once with the rest of their distance. The quotient digit is estimated in FP32, off by
// less than 32; the remainder that it leaves is right modulo 2^32, and small, so a second digit brings it below m.
Access Ops::remainder_exact(const Access& x, const Access& y) {
  constexpr int kDigit = 28;
  const Access ax = abs(x), ay = abs(y);
  const Parts px = parts(ax), py = parts(ay);
  const Access m = py.mantissa, rm = recip(m);
  const auto round_to_int = [&](const Access& a) {  // a / m
    return binary(AluOp::kMultiply, of(a), of(rm), {}, Dtype::kI32);
  };
  const auto minus_digit = [&](const Access& r, const Access& digit) {
    Access first = int_binary(AluOp::kSubtract, r, int_binary(AluOp::kMultiply, digit, m));
    return int_binary(AluOp::kSubtract, first, int_binary(AluOp::kMultiply, round_to_int(first), m));
  };
  Access distance = binary(AluOp::kSubtract, of(px.exponent), of(py.exponent), {}, Dtype::kI32);
  distance = scalar(distance, AluOp::kMax, 0, {}, Dtype::kI32);
  // floor(distance / 28): distances are small integers, and half a step below keeps them off the ties.
  Access digits =
      scalar2(distance, AluOp::kMultiply, 1.0f / kDigit, AluOp::kSubtract, 13.5f / kDigit, {}, Dtype::kI32);
  Access r = minus_digit(px.mantissa, round_to_int(px.mantissa));
  // FP16 numbers are at most 39 binary digits apart, others 276.
  const bool half = x.dtype == Dtype::kF16 && y.dtype == Dtype::kF16;
  for (int i = 0; i < (half ? 39 : 276) / kDigit; ++i) {
    Access digit = fused(r, AluOp::kMultiply, imm(0x1p28f), AluOp::kMultiply, rm, false, {}, Dtype::kI32);
    Access next = minus_digit(as_int(bits(r, AluOp::kShiftLeft, kDigit)), digit);
    select(r, next, scalar(digits, AluOp::kGreater, static_cast<float>(i), {}, Dtype::kU8));
  }
  Access left = fused(digits, AluOp::kMultiply, imm(-kDigit), AluOp::kAdd, distance, false, {}, Dtype::kI32);
  Access power = as_float(bits(scalar(left, AluOp::kAdd, 127, {}, Dtype::kI32), AluOp::kShiftLeft, 23));
  Access digit = round_to_int(binary(AluOp::kMultiply, of(r), of(power)));
  r = minus_digit(int_binary(AluOp::kShiftLeft, r, left), digit);
  // r lies in [-m/2, m/2].
  r = int_binary(AluOp::kAdd, r, fused(r, AluOp::kLess, imm(0), AluOp::kMultiply, m, false, {}, Dtype::kI32));
  Access unit = scalar(py.exponent, AluOp::kAdd, 1, {}, Dtype::kI32);
  unit = as_float(bits(unit, AluOp::kShiftLeft, 23));
  Access value = fused(r, AluOp::kMultiply, imm(0x1p-23f), AluOp::kMultiply, unit);

  Access result = cast(as_tile(constant(NAN), Dtype::kF32), Dtype::kF32);
  Access finite = scalar(ax, AluOp::kLess, kInf, {}, Dtype::kU8);
  select(result, value,
         fused(ay, AluOp::kGreater, imm(0), AluOp::kLogicalAnd, finite, false, {}, Dtype::kU8));
  select(result, ax, binary(AluOp::kLess, of(ax), of(ay), {}, Dtype::kU8));
  return or_bits(result, sign_bits(x));
}

// fmod of C, remainder of Python.
Access Ops::remainder(const Src& sx, const Src& sy, bool floor_mode) {
  const Access x = as_tile(sx, Dtype::kF32), y = as_tile(sy, Dtype::kF32);
  Access r = remainder_exact(x, y);
  if (floor_mode) select(r, binary(AluOp::kAdd, of(r), of(y)), wrong_sign(r, y));
  return r;
}

// Where the remainder of truncation is not that of the floor.
Access Ops::wrong_sign(const Access& remainder, const Access& y) {
  Access negative = scalar(y, AluOp::kLess, 0);
  Access differ = fused(remainder, AluOp::kLess, imm(0), AluOp::kNotEqual, negative);
  return fused(remainder, AluOp::kNotEqual, imm(0), AluOp::kLogicalAnd, differ, false, {}, Dtype::kU8);
}

// floor(x / y) by way of the remainder, as in Python, so that the result fits x = q*y + r; trunc(x / y) of the
// rounded quotient, as in C. A quotient of zero has the sign of x / y.
Access Ops::divide_round(const Src& sx, const Src& sy, bool floor_mode) {
  const Access x = typed_tile(sx, Dtype::kF32), y = typed_tile(sy, Dtype::kF32);
  Access sign = bits(int_binary(AluOp::kBitXor, word(x), word(y)), AluOp::kBitAnd, 0x80000000u);
  if (!floor_mode) return or_bits(trunc(divide_exact(x, y)), sign);
  Access r = remainder_exact(x, y);
  Access whole = divide_exact(binary(AluOp::kSubtract, of(x), of(r)), y);
  whole = binary(AluOp::kSubtract, of(whole), of(wrong_sign(r, y)));
  // To the nearest integer, from the middle downward.
  Access q = round_even(whole);
  Access up = binary(AluOp::kSubtract, of(q), of(whole));
  q = fused(up, AluOp::kEqual, imm(0.5f), AluOp::kSubtract, q, true);
  select(q, or_bits(abs(q), sign), scalar(q, AluOp::kEqual, 0, {}, Dtype::kU8));
  Access infinite = binary(AluOp::kMultiply, of(x), of(recip(y)));
  select(q, infinite, scalar(y, AluOp::kEqual, 0, {}, Dtype::kU8));
  return q;
}

}  // namespace trnsim::compiler
