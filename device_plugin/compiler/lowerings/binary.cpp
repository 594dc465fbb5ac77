// Pointwise operators of two or three tensors: arithmetic, comparisons, bits, selection.
#include <limits>

#include "device_plugin/compiler/lowerings/pointwise.h"

namespace trnsim::compiler {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// a + alpha * b; alpha == 1 as a constant costs nothing
Ex scaled(Pointwise& p, Ex b, int alpha) {
  auto c = p.context.constant(alpha);
  if (c && *c == 1.0) return b;
  return b * p[alpha];
}

// Tensors of float16 or bfloat16: their kernels on the CPU round after every step, unless the divisor is one element.
bool rounds_every_step(Pointwise& p) {
  const Dtype storage = p.context.out_type(0).dtype;
  if (storage != Dtype::kF16 && storage != Dtype::kBF16) return false;
  return p.context.is_tensor(1) && p.context.type(1).numel() != 1;
}

// floor(a / b) by way of the remainder, as every PyTorch device computes it.
Ex floor_quotient_in_steps(Pointwise& p, Dtype storage) {
  const auto rounded = [&](Ex v) { return p.map.round_to(v, storage); };
  const auto is_infinite = [&](Ex v) { return p.abs(v) == kInf; };
  Ex a = p[0], b = p[1], zero = p.k(0);
  Ex plain = rounded(a / b);
  Ex remainder = rounded(p.map.binary(ExprOp::kFmod, a, b));
  Ex whole = p.select(is_infinite(plain) && !is_infinite(a), a, rounded(a - remainder));
  Ex q = rounded(whole / b);
  const Ex signs_differ = p.map.binary(ExprOp::kNe, b < 0.0, remainder < 0.0);
  q = p.select(remainder != 0.0 && signs_differ, rounded(q - 1.0), q);
  Ex floored = p.map.unary(ExprOp::kFloor, q);
  floored = p.select(rounded(q - floored) > 0.5, rounded(floored + 1.0), floored);
  Ex signed_zero = p.select(p.map.unary(ExprOp::kSignBit, plain), -zero, zero);
  return p.select(b == 0.0, plain, p.select(q == 0.0, signed_zero, floored));
}

// Quotient or remainder. An integer 0 in a tensor of divisors stops the program; whoever builds the graph knows the
// value of a number.
template <ExprOp op>
Ex quotient(Pointwise& p) {
  LowerContext& c = p.context;
  if (p.integral() && c.is_tensor(1))
    c.check(c.in(1), "RuntimeError: ZeroDivisionError", [](Ex v) { return v == 0.0; });
  const Dtype storage = c.out_type(0).dtype;
  if constexpr (op == ExprOp::kTruncDiv) {
    if (rounds_every_step(p)) return p.map.unary(ExprOp::kTrunc, p.map.round_to(p[0] / p[1], storage));
  } else if constexpr (op == ExprOp::kFloorDiv) {
    if (rounds_every_step(p)) return floor_quotient_in_steps(p, storage);
  }
  return p.map.binary(op, p[0], p[1]);
}

// a / b. A number that divides may come with the parts of its inverse: products are left of the division.
Ex true_quotient(Pointwise& p) {
  const LowerContext& c = p.context;
  const auto* inverse = std::get_if<std::vector<ParamRef>>(&c.arg(c.num_args() - 1));
  const Ex a = p.f32(0);
  if (inverse == nullptr) return a / p.f32(1);
  const Ex scaled = a * p.map.param(inverse->at(0));
  return scaled * p.map.param(inverse->at(1)) + scaled * p.map.param(inverse->at(2));
}

Ex divide(Pointwise& p, int mode) {
  std::string rounding = p.context.str(mode);
  if (rounding.empty()) return true_quotient(p);
  if (rounding == "floor") return quotient<ExprOp::kFloorDiv>(p);
  if (rounding == "trunc") return quotient<ExprOp::kTruncDiv>(p);
  p.context.refuse("rounding mode '" + rounding + "'");
}

Ex int_power(Pointwise& p, Ex x, int64_t n) {
  if (n < 0) p.context.refuse("an integer tensor to a negative power");
  Ex out = p.k(1);
  bool first = true;
  for (; n; n >>= 1) {
    if (n & 1) {
      out = first ? x : out * x;
      first = false;
    }
    if (n > 1) x = x * x;
  }
  return out;
}

// pow(tensor, constant): the exponents that training code uses have cheap exact forms.
Ex power_constant(Pointwise& p) {
  double n = p.context.constant_or_refuse(1, "exponent");
  Ex x = p[0];
  if (p.integral())
    return int_power(p, p.type == Dtype::kBool ? p.map.cast(x, Dtype::kI32) : x, static_cast<int64_t>(n));
  if (n == 0) return p.k(1);
  if (n == 1) return x;
  if (n == 0.5) return p.sqrt(x);
  if (n == -0.5) return p.map.math(ExprOp::kRsqrt, x);
  if (n == 2) return x * x;
  if (n == 3) return x * x * x;
  if (n == 4) return p.square(x * x);
  if (n == -1) return p.map.math(ExprOp::kReciprocal, x);
  if (n == -2) return p.map.math(ExprOp::kReciprocal, x * x);
  return p.map.binary(ExprOp::kPow, x, p.k(n));
}

// Of equal zeros with two signs max and min take the second operand. As on the CPU, that is a tensor of bounds,
// but not a number.
Ex clamp(Pointwise& p, int low, int high) {
  Ex x = p[0];
  const auto bound = [&](int arg, ExprOp op) {
    if (arg < 0 || p.none(arg)) return;
    Ex limit = p[arg];
    x = p.context.is_tensor(arg) ? p.map.binary(op, x, limit) : p.map.binary(op, limit, x);
  };
  bound(low, ExprOp::kMax);
  bound(high, ExprOp::kMin);
  return x;
}

// x * log(y), 0 where x is 0, NaN where y is NaN
Ex x_log_y(Pointwise& p, bool plus_one) {
  Ex x = p[0], y = p[1];
  Ex product = x * (plus_one ? p.log1p(y) : p.log(y));
  return p.select(p.is_nan(y), y, p.select(x == 0.0, p.map.constant(0), product));
}

Ex log_add_exp(Pointwise& p, double base_e) {
  Ex a = p.f32(0), b = p.f32(1);
  Ex hi = p.max(a, b);
  Ex d = p.abs(a - b);
  ExprOp exp = base_e != 0 ? ExprOp::kExp : ExprOp::kExp2;
  Ex tail = p.log1p(p.map.math(exp, -d));
  if (base_e == 0) tail = tail * 1.4426950408889634;
  return p.select(a == b && p.abs(a) == kInf, a, hi + tail);
}

Ex lerp(Pointwise& p) { return p[0] + p[2] * (p[1] - p[0]); }

Ex fmax_fmin(Pointwise& p, ExprOp op) {
  Ex a = p[0], b = p[1];
  Ex r = p.map.binary(op, b, a);  // of equal zeros the first
  if (p.integral()) return r;
  return p.select(p.is_nan(a), b, p.select(p.is_nan(b), a, r));
}

Ex bitwise(Pointwise& p, ExprOp op) { return p.map.binary(op, p[0], p[1]); }

Ex shift(Pointwise& p, ExprOp op) {
  if (!p.integral()) p.context.refuse("shifts of floating-point tensors");
  Ex n = p[1];
  Ex r = p.map.binary(op, p[0], n);
  // PyTorch: counts outside [0, 31] shift everything out
  Ex out = op == ExprOp::kShl ? p.k(0) : p.select(p[0] < 0.0, p.k(-1), p.k(0));
  return p.select(n < 0.0 || n > 31.0, out, r);
}

// Euclid's algorithm, as many steps as two neighbouring Fibonacci numbers of the type need.
Ex gcd(Pointwise& p) {
  const Dtype dtype = p.context.out_type(0).dtype;
  const int64_t bytes = isa::dtype_bytes(dtype);
  const int steps = bytes == 1 ? 13 : bytes == 2 ? 24 : 46;
  Ex a = p.abs(p[0]), b = p.abs(p[1]);
  for (int i = 0; i < steps; ++i) {
    Ex rest = p.map.binary(ExprOp::kRemainder, a, p.max(b, p.k(1)));  // nothing is left of a / 1
    a = p.select(b == 0.0, a, b);
    b = rest;
  }
  return a;
}

Ex lcm(Pointwise& p) {
  Ex g = gcd(p);
  Ex quotient = p.map.binary(ExprOp::kTruncDiv, p[0], p.max(g, p.k(1)));
  return p.abs(quotient * p[1]);
}

// sqrt(a^2 + b^2) to half a unit in the last place: the root of the rounded sum is put right by what its square is too
// large. That difference is made of small ones, so that it keeps its digits.
Ex hypotenuse(Pointwise& p) {
  constexpr double kLarge = 0x1p60, kDown = 0x1p-70, kSmall = 0x1p-40, kUp = 0x1p90;
  Ex a = p.abs(p.f32(0)), b = p.abs(p.f32(1));
  Ex larger = p.max(a, b);
  const auto by_size = [&](double large, double small) {  // powers of two, so that squares stay in range
    return p.select(larger > kLarge, p.map.constant(large),
                    p.select(larger < kSmall, p.map.constant(small), p.map.constant(1)));
  };
  Ex scale = by_size(kDown, kUp);
  Ex x = larger * scale, y = p.min(a, b) * scale;
  Ex h = p.sqrt(x * x + y * y);
  Ex over_x = h - x, over_y = h - y;  // h^2 - x^2 - y^2 from the one that is exact
  Ex steep = x * (over_y * 2.0 - x) + (over_y - (x - y) * 2.0) * over_y;
  Ex flat = over_x * 2.0 * (x - y * 2.0) + ((over_x * 4.0 - y) * y + over_x * over_x);
  Ex excess = p.select(h <= y * 2.0, steep, flat);
  h = (h - excess / (h * 2.0)) * by_size(1 / kDown, 1 / kUp);
  return p.select(a == kInf || b == kInf, p.map.constant(kInf), p.select(larger == 0.0, larger, h));
}

// (self, other, rtol, atol, equal_nan)
Ex is_close(Pointwise& p) {
  Ex a = p.raw(0), b = p.raw(1);
  Ex same = a == b;
  if (promote_compute(a.dtype, b.dtype) == Dtype::kF32 && p.context.flag(4)) {
    same = same || (p.is_nan(p.f32(0)) && p.is_nan(p.f32(1)));
  }
  Ex d = p.abs(p.f32(0) - p.f32(1));
  Ex allowed = p.f32(3) + p.f32(2) * p.abs(p.f32(1));
  return same || (d <= allowed && d < kInf);
}

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::gcd", pointwise<gcd>},
    {"aten::lcm", pointwise<lcm>},
    {"aten::add.Tensor", pointwise<[](Pointwise& p) { return p[0] + scaled(p, p[1], 2); }>},
    {"aten::add.Scalar", pointwise<[](Pointwise& p) { return p[0] + scaled(p, p[1], 2); }>},
    {"aten::sub.Tensor", pointwise<[](Pointwise& p) { return p[0] - scaled(p, p[1], 2); }>},
    {"aten::sub.Scalar", pointwise<[](Pointwise& p) { return p[0] - scaled(p, p[1], 2); }>},
    {"aten::rsub.Tensor", pointwise<[](Pointwise& p) { return p[1] - scaled(p, p[0], 2); }>},
    {"aten::rsub.Scalar", pointwise<[](Pointwise& p) { return p[1] - scaled(p, p[0], 2); }>},
    {"aten::mul.Tensor", binary_any<ExprOp::kMul>},
    {"aten::mul.Scalar", binary_any<ExprOp::kMul>},
    {"aten::div.Tensor", pointwise<true_quotient>},
    {"aten::div.Scalar", pointwise<true_quotient>},
    {"aten::true_divide.Tensor", pointwise<true_quotient>},
    {"aten::div.Tensor_mode", pointwise<[](Pointwise& p) { return divide(p, 2); }>},
    {"aten::div.Scalar_mode", pointwise<[](Pointwise& p) { return divide(p, 2); }>},
    {"aten::floor_divide", pointwise<quotient<ExprOp::kFloorDiv>>},
    {"aten::floor_divide.Scalar", pointwise<quotient<ExprOp::kFloorDiv>>},
    {"aten::remainder.Tensor", pointwise<quotient<ExprOp::kRemainder>>},
    {"aten::remainder.Scalar", pointwise<quotient<ExprOp::kRemainder>>},
    {"aten::remainder.Scalar_Tensor", pointwise<quotient<ExprOp::kRemainder>>},
    {"aten::fmod.Tensor", pointwise<quotient<ExprOp::kFmod>>},
    {"aten::fmod.Scalar", pointwise<quotient<ExprOp::kFmod>>},
    {"aten::maximum", binary_any<ExprOp::kMax>},
    {"aten::minimum", binary_any<ExprOp::kMin>},
    {"aten::max.other", binary_any<ExprOp::kMax>},
    {"aten::min.other", binary_any<ExprOp::kMin>},
    {"aten::fmax", pointwise<[](Pointwise& p) { return fmax_fmin(p, ExprOp::kMax); }>},
    {"aten::fmin", pointwise<[](Pointwise& p) { return fmax_fmin(p, ExprOp::kMin); }>},
    {"aten::atan2", binary_any<ExprOp::kAtan2>},
    {"aten::hypot", pointwise<hypotenuse>},
    {"aten::copysign.Tensor", binary_any<ExprOp::kCopySign>},
    {"aten::copysign.Scalar", binary_any<ExprOp::kCopySign>},
    {"aten::heaviside", pointwise<[](Pointwise& p) {
       Ex x = p[0];
       return p.select(x == 0.0, p[1], p.map.cast(x > 0.0, p.type));
     }>},
    {"aten::xlogy.Tensor", pointwise<[](Pointwise& p) { return x_log_y(p, false); }>},
    {"aten::xlogy.Scalar_Self", pointwise<[](Pointwise& p) { return x_log_y(p, false); }>},
    {"aten::xlogy.Scalar_Other", pointwise<[](Pointwise& p) { return x_log_y(p, false); }>},
    {"aten::special_xlog1py", pointwise<[](Pointwise& p) { return x_log_y(p, true); }>},
    {"aten::special_xlog1py.self_scalar", pointwise<[](Pointwise& p) { return x_log_y(p, true); }>},
    {"aten::special_xlog1py.other_scalar", pointwise<[](Pointwise& p) { return x_log_y(p, true); }>},
    {"aten::logaddexp", pointwise<[](Pointwise& p) { return log_add_exp(p, 1); }>},
    {"aten::logaddexp2", pointwise<[](Pointwise& p) { return log_add_exp(p, 0); }>},

    {"aten::pow.Tensor_Scalar", pointwise<[](Pointwise& p) { return power_constant(p); }>, const_arg(1)},
    {"aten::pow.Tensor_Tensor", binary_any<ExprOp::kPow>},
    {"aten::pow.Scalar", binary_any<ExprOp::kPow>},

    {"aten::clamp", pointwise<[](Pointwise& p) { return clamp(p, 1, 2); }>},
    {"aten::clamp.Tensor", pointwise<[](Pointwise& p) { return clamp(p, 1, 2); }>},
    {"aten::clamp_min", pointwise<[](Pointwise& p) { return clamp(p, 1, -1); }>},
    {"aten::clamp_min.Tensor", pointwise<[](Pointwise& p) { return clamp(p, 1, -1); }>},
    {"aten::clamp_max", pointwise<[](Pointwise& p) { return clamp(p, -1, 1); }>},
    {"aten::clamp_max.Tensor", pointwise<[](Pointwise& p) { return clamp(p, -1, 1); }>},

    {"aten::addcmul", pointwise<[](Pointwise& p) { return p[0] + p[3] * p[1] * p[2]; }>},
    // The quotient is no result: it needs no more than the reciprocal gives.
    {"aten::addcdiv",
     pointwise<[](Pointwise& p) { return p[0] + p[3] * p[1] * p.map.unary(ExprOp::kReciprocal, p[2]); }>},
    {"aten::lerp.Scalar", pointwise<[](Pointwise& p) { return lerp(p); }>},
    {"aten::lerp.Tensor", pointwise<[](Pointwise& p) { return lerp(p); }>},

    {"aten::eq.Tensor", compare<ExprOp::kEq>},
    {"aten::eq.Scalar", compare<ExprOp::kEq>},
    {"aten::ne.Tensor", compare<ExprOp::kNe>},
    {"aten::ne.Scalar", compare<ExprOp::kNe>},
    {"aten::lt.Tensor", compare<ExprOp::kLt>},
    {"aten::lt.Scalar", compare<ExprOp::kLt>},
    {"aten::le.Tensor", compare<ExprOp::kLe>},
    {"aten::le.Scalar", compare<ExprOp::kLe>},
    {"aten::gt.Tensor", compare<ExprOp::kGt>},
    {"aten::gt.Scalar", compare<ExprOp::kGt>},
    {"aten::ge.Tensor", compare<ExprOp::kGe>},
    {"aten::ge.Scalar", compare<ExprOp::kGe>},
    {"aten::logical_and", compare<ExprOp::kAnd>},
    {"aten::logical_or", compare<ExprOp::kOr>},
    {"aten::logical_xor", compare<ExprOp::kXor>},
    {"aten::isclose", pointwise<[](Pointwise& p) { return is_close(p); }>},

    {"aten::bitwise_and.Tensor", pointwise<[](Pointwise& p) { return bitwise(p, ExprOp::kBitAnd); }>},
    {"aten::bitwise_and.Scalar", pointwise<[](Pointwise& p) { return bitwise(p, ExprOp::kBitAnd); }>},
    {"aten::bitwise_or.Tensor", pointwise<[](Pointwise& p) { return bitwise(p, ExprOp::kBitOr); }>},
    {"aten::bitwise_or.Scalar", pointwise<[](Pointwise& p) { return bitwise(p, ExprOp::kBitOr); }>},
    {"aten::bitwise_xor.Tensor", pointwise<[](Pointwise& p) { return bitwise(p, ExprOp::kBitXor); }>},
    {"aten::bitwise_xor.Scalar", pointwise<[](Pointwise& p) { return bitwise(p, ExprOp::kBitXor); }>},
    {"aten::bitwise_left_shift.Tensor", pointwise<[](Pointwise& p) { return shift(p, ExprOp::kShl); }>},
    {"aten::bitwise_left_shift.Tensor_Scalar",
     pointwise<[](Pointwise& p) { return shift(p, ExprOp::kShl); }>},
    {"aten::bitwise_right_shift.Tensor", pointwise<[](Pointwise& p) { return shift(p, ExprOp::kShr); }>},
    {"aten::bitwise_right_shift.Tensor_Scalar",
     pointwise<[](Pointwise& p) { return shift(p, ExprOp::kShr); }>},
    {"aten::__lshift__.Tensor", pointwise<[](Pointwise& p) { return shift(p, ExprOp::kShl); }>},
    {"aten::__lshift__.Scalar", pointwise<[](Pointwise& p) { return shift(p, ExprOp::kShl); }>},
    {"aten::__rshift__.Tensor", pointwise<[](Pointwise& p) { return shift(p, ExprOp::kShr); }>},
    {"aten::__rshift__.Scalar", pointwise<[](Pointwise& p) { return shift(p, ExprOp::kShr); }>},

    {"aten::where.self", pointwise<[](Pointwise& p) { return p.select(p.raw(0), p[1], p[2]); }>},
    {"aten::where.ScalarSelf", pointwise<[](Pointwise& p) { return p.select(p.raw(0), p[1], p[2]); }>},
    {"aten::where.ScalarOther", pointwise<[](Pointwise& p) { return p.select(p.raw(0), p[1], p[2]); }>},
    {"aten::where.Scalar", pointwise<[](Pointwise& p) { return p.select(p.raw(0), p[1], p[2]); }>},
    {"aten::masked_fill.Scalar", pointwise<[](Pointwise& p) { return p.select(p.raw(1), p[2], p[0]); }>},
    {"aten::masked_fill.Tensor", pointwise<[](Pointwise& p) { return p.select(p.raw(1), p[2], p[0]); }>},
});

}  // namespace
}  // namespace trnsim::compiler
