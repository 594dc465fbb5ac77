// Mantissa, exponent and neighbours of floating-point numbers, without looking at bits: scaling by powers of two is
// exact.
#include <cmath>
#include <limits>

#include "device_plugin/compiler/lowerings/pointwise.h"

namespace trnsim::compiler {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// 2^n for an int32 n with |n| < 256, as a product of the powers that its bits name.
Ex power_of_two(Ex n) {
  MapBuilder& m = *n.map;
  Ex negative = n < 0.0, bits = m.unary(ExprOp::kAbs, n), y = m.constant(1);
  for (int k = 0; k < 8; ++k) {
    const double factor = std::ldexp(1.0, 1 << k);
    Ex bit = m.binary(ExprOp::kBitAnd, m.binary(ExprOp::kShr, bits, m.constant(k, Dtype::kI32)),
                      m.constant(1, Dtype::kI32));
    // 2^128 is no number of FP32
    Ex power = k == 7 ? m.select(negative, m.constant(0x1p-64) * 0x1p-64, m.constant(kInf))
                      : m.select(negative, m.constant(1 / factor), m.constant(factor));
    y = m.select(bit == 0.0, y, y * power);
  }
  return y;
}

struct Parts {
  explicit Parts(Ex size) {  // of a finite number > 0
    MapBuilder& m = *size.map;
    Ex tiny = size < 0x1p-100;
    Ex x = m.select(tiny, size * 0x1p64, size);
    Ex guess = m.cast(m.unary(ExprOp::kFloor, m.math(ExprOp::kLog2, x)), Dtype::kI32) + 1.0;
    // In two steps, none of which leaves the range of FP32.
    Ex half = m.binary(ExprOp::kShr, guess, m.constant(1, Dtype::kI32));
    Ex f = x * power_of_two(-half) * power_of_two(half - guess);
    Ex large = f >= 1.0, small = f < 0.5;
    mantissa = m.select(large, f * 0.5, m.select(small, f * 2.0, f));
    exponent = m.select(large, guess + 1.0, m.select(small, guess - 1.0, guess));
    exponent = m.select(tiny, exponent - 64.0, exponent);
  }
  Ex mantissa, exponent;  // size = mantissa 2^exponent, mantissa in [0.5, 1)
};

void lower_frexp(LowerContext& c) {  // (self) -> (mantissa, exponent)
  View out = c.out(0);
  MapBuilder m(c, out.sizes);
  Ex x = m.cast(m.operand(0), Dtype::kF32);
  Ex size = m.unary(ExprOp::kAbs, x);
  Ex ordinary = size > 0.0 && size < kInf;
  Parts p(m.select(ordinary, size, m.constant(0.5)));
  m.output(out, m.select(ordinary, m.select(x < 0.0, -p.mantissa, p.mantissa), x));
  m.output(c.out(1), m.select(ordinary, p.exponent, m.constant(0, Dtype::kI32)));
  m.emit();
}

// The neighbour of x in the direction of y.
Ex nextafter(Pointwise& p) {
  MapBuilder& m = p.map;
  const Dtype type = p.context.out_type(0).dtype;
  const bool is_half = type == Dtype::kF16;
  const bool is_float = type == Dtype::kF32 || type == Dtype::kF64;  // both computed as FP32
  const double digits = is_float ? 24 : is_half ? 11 : 8, least = is_float ? -149 : is_half ? -24 : -133;
  const double largest = is_float ? 0x1.fffffep127 : is_half ? 65504 : 0x1.fep127;
  Ex x = p.f32(0), y = p.f32(1);
  Ex size = p.abs(x);
  Ex ordinary = size > 0.0 && size < kInf;
  Parts parts(m.select(ordinary, size, m.constant(0.5)));
  Ex outwards = (y > x && x > 0.0) || (y < x && x < 0.0);
  // Below a power of two numbers are twice as dense.
  Ex step = parts.exponent - digits;
  step = m.select(parts.mantissa == 0.5 && !outwards, step - 1.0, step);
  step = m.binary(ExprOp::kMax, step, m.constant(least, Dtype::kI32));
  Ex half = m.binary(ExprOp::kShr, step, m.constant(1, Dtype::kI32));
  Ex distance = power_of_two(half) * power_of_two(step - half);
  Ex moved = m.select(outwards, size + distance, size - distance);
  moved = m.select(size == kInf, m.constant(largest), moved);
  moved = m.select(x < 0.0, -moved, moved);
  Ex smallest = m.constant(0x1p-100) * std::ldexp(1.0, static_cast<int>(least) + 100);
  moved = m.select(size == 0.0, m.select(y < 0.0, -smallest, smallest), moved);
  Ex result = m.select(x == y, y, moved);
  return m.select(p.is_nan(x) || p.is_nan(y), m.constant(std::numeric_limits<double>::quiet_NaN()), result);
}

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::frexp.Tensor", lower_frexp},
    {"aten::nextafter", pointwise<nextafter>},
});

}  // namespace
}  // namespace trnsim::compiler
