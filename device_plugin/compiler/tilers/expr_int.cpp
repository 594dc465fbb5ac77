// 32-bit integers. GpSimd adds, multiplies and compares them exactly (tile by tile, so constants are columns
// spread by stride 0); bitwise operators run on the vector engine.
#include "device_plugin/compiler/tilers/expr.h"

namespace trnsim::compiler {

Access Ops::int_constant(int64_t v, Dtype dtype) {
  Access column = b.sbuf(partitions_, {1}, Dtype::kI32);
  isa::AffinePattern pattern;
  pattern.base = static_cast<int32_t>(static_cast<uint32_t>(v));
  b.iota(column, pattern);
  column.dtype = dtype;
  Src s{Src::Kind::kColumn, column, 0};
  return as_tile(s, dtype);
}

Access Ops::int_binary(AluOp op, const Access& x, const Access& y, const Access& dst) {
  Access d = target(dst, isa::is_compare(op) ? Dtype::kU8 : x.dtype);
  b.tensor_tensor(d, x, y, op);
  return d;
}

// An FP32 estimate of the quotient leaves a remainder of at most a few hundred divisors (the products are
// exact modulo 2^32); a second estimate from that remainder gives the nearest integer; its sign tells the
// rest.
Access Ops::int_divide_round(const Access& x, const Access& y, bool floor_mode, bool remainder) {
  bool is_signed = x.dtype == Dtype::kI32;
  Access fx = cast(x, Dtype::kF32);
  Access r_y = recip(cast(y, Dtype::kF32));
  Access estimate = binary(AluOp::kMultiply, of(fx), of(r_y));
  Access q = cast(estimate, Dtype::kI32);
  auto as_signed = [](Access a) {
    a.dtype = Dtype::kI32;
    return a;
  };
  if (!is_signed) {
    // Quotients from 2^31 on exist only for y == 1.
    q = cast(estimate, Dtype::kU32);
    q = as_signed(q);
  }
  Access xs = as_signed(x), ys = as_signed(y);
  Access r;
  for (int pass = 0; pass < 2; ++pass) {
    r = int_binary(AluOp::kSubtract, xs, int_binary(AluOp::kMultiply, q, ys));
    Access more = cast(binary(AluOp::kMultiply, of(cast(r, Dtype::kF32)), of(r_y)), Dtype::kI32);
    q = int_binary(AluOp::kAdd, q, more);
  }
  r = int_binary(AluOp::kSubtract, xs, int_binary(AluOp::kMultiply, q, ys));
  // Signs survive the conversion to FP32.
  auto negative = [&](const Access& a) { return scalar(a, AluOp::kLess, 0, {}, Dtype::kI32); };
  Access r_negative = negative(r);
  Access r_nonzero = scalar(r, AluOp::kNotEqual, 0, {}, Dtype::kI32);
  Access step;
  if (!is_signed) {
    step = r_negative;
  } else if (floor_mode) {
    Access differ = binary(AluOp::kNotEqual, of(r_negative), of(negative(y)), {}, Dtype::kI32);
    step = int_binary(AluOp::kMultiply, differ, r_nonzero);
  } else {
    Access differ = binary(AluOp::kNotEqual, of(r_negative), of(negative(x)), {}, Dtype::kI32);
    Access opposite = binary(AluOp::kNotEqual, of(negative(x)), of(negative(y)), {}, Dtype::kI32);
    Access direction = scalar2(opposite, AluOp::kMultiply, -2, AluOp::kAdd, 1, {}, Dtype::kI32);
    step = int_binary(AluOp::kMultiply, int_binary(AluOp::kMultiply, differ, r_nonzero), direction);
  }
  Access result = remainder ? int_binary(AluOp::kAdd, r, int_binary(AluOp::kMultiply, step, ys))
                            : int_binary(AluOp::kSubtract, q, step);
  result.dtype = x.dtype;
  return result;
}

// Square and multiply over the 31 bits of the exponent.
Access Ops::int_power(const Access& x, const Access& y) {
  Access one = int_constant(1, x.dtype);
  Access result = cast(one, x.dtype);
  Access base = x;
  Access exponent = y;
  for (int bit = 0; bit < 31; ++bit) {
    Access set = int_binary(AluOp::kBitAnd, exponent, int_constant(int64_t{1} << bit, y.dtype));
    set.dtype = Dtype::kU32;
    Access product = int_binary(AluOp::kMultiply, result, base);
    select(result, product, set);
    if (bit < 30) base = int_binary(AluOp::kMultiply, base, base);
  }
  if (y.dtype == Dtype::kU32) return result;
  // 1 / x^n truncated is 0 unless x is 1 or -1, whose powers are right already.
  auto differs = [&](float v) { return scalar(x, AluOp::kNotEqual, v, {}, Dtype::kI32); };
  Access other = int_binary(AluOp::kMultiply, differs(1), differs(-1));
  Access keep = scalar2(int_binary(AluOp::kMultiply, other, scalar(y, AluOp::kLess, 0, {}, Dtype::kI32)),
                        AluOp::kMultiply, -1, AluOp::kAdd, 1, {}, Dtype::kI32);
  Access kept = int_binary(AluOp::kMultiply, result, keep);
  kept.dtype = result.dtype;
  return kept;
}

// The engine shifts in zeros; for negative numbers the complement is shifted.
Access Ops::int_shift_right(const Access& x, const Access& n) {
  if (x.dtype == Dtype::kU32) return int_binary(AluOp::kShiftRight, x, n);
  Access mask = scalar2(x, AluOp::kLess, 0, AluOp::kMultiply, -1, {}, Dtype::kI32);
  Access flipped = int_binary(AluOp::kBitXor, x, mask);
  return int_binary(AluOp::kBitXor, int_binary(AluOp::kShiftRight, flipped, n), mask);
}

Access Ops::int_wrap(const Access& x, Dtype to) {
  int bits = static_cast<int>(isa::dtype_bytes(to)) * 8;
  if (bits >= 32) return x;
  Access low = int_binary(AluOp::kBitAnd, x, int_constant((int64_t{1} << bits) - 1, x.dtype));
  if (to == Dtype::kU8 || to == Dtype::kU16) return low;
  // ((low ^ sign) - sign); at most 17 bits, exact in FP32.
  Access flipped = int_binary(AluOp::kBitXor, low, int_constant(int64_t{1} << (bits - 1), x.dtype));
  return scalar(flipped, AluOp::kSubtract, static_cast<float>(int64_t{1} << (bits - 1)), {}, x.dtype);
}

Access Ops::float_to_int(const Access& x, Dtype dtype) {
  Access a = abs(x);
  Access nearest = cast(a, Dtype::kI32);
  Access above = binary(AluOp::kGreater, of(nearest), of(a));
  Access magnitude = binary(AluOp::kSubtract, of(nearest), of(above));
  Access d = temp(Dtype::kI32);
  binary(AluOp::kMultiply, of(magnitude), of(act(ActFunc::kSign, x)), d);
  d.dtype = dtype;
  return d;
}

}  // namespace trnsim::compiler
