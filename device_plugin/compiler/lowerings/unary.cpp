// Pointwise operators of one tensor.
#include <cmath>
#include <numbers>

#include "device_plugin/compiler/lowerings/pointwise.h"

namespace trnsim::compiler {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Ex is_inf_with_sign(Pointwise& p, double bound) {
  Ex x = p.raw(0);
  if (x.dtype != Dtype::kF32) return p.map.constant(0, Dtype::kBool);
  return x == bound;
}

void lower_round_decimals(LowerContext& c) {
  double decimals = static_cast<double>(c.int_arg(1));
  View out = c.out(0);
  MapBuilder m(c, out.sizes);
  Ex x = m.operand(0);
  if (x.dtype == Dtype::kF32) {
    double scale = std::pow(10.0, std::abs(decimals));
    Ex scaled = decimals >= 0 ? x * scale : x / scale;
    Ex rounded = m.unary(ExprOp::kRound, scaled);
    x = decimals >= 0 ? rounded / scale : rounded * scale;
  } else if (decimals < 0) {
    c.refuse("negative decimals of an integer tensor");
  }
  m.output(out, x);
  m.emit();
}

void lower_nan_to_num(LowerContext& c) {
  View out = c.out(0);
  MapBuilder m(c, out.sizes);
  Ex x = m.operand(0);
  if (x.dtype == Dtype::kF32) {
    double largest = out.dtype == Dtype::kF16    ? 65504.0
                     : out.dtype == Dtype::kBF16 ? 0x1.fep127
                                                 : static_cast<double>(std::numeric_limits<float>::max());
    auto value = [&](int arg, double otherwise) {
      return c.is_none(arg) ? m.constant(otherwise) : m.cast(m.operand(arg), Dtype::kF32);
    };
    Ex nan = value(1, 0.0), posinf = value(2, largest), neginf = value(3, -largest);
    Ex y = m.select(x == kInf, posinf, m.select(x == -kInf, neginf, x));
    x = m.select(m.unary(ExprOp::kIsNan, x), nan, y);
  }
  m.output(out, x);
  m.emit();
}

// log(x / (1 - x)), x clamped to [eps, 1 - eps] when eps is given
void lower_logit(LowerContext& c) {
  View out = c.out(0);
  MapBuilder m(c, out.sizes);
  Ex x = m.cast(m.operand(0), Dtype::kF32);
  if (!c.is_none(1)) {
    Ex eps = m.cast(m.operand(1), Dtype::kF32);
    x = m.binary(ExprOp::kMin, m.binary(ExprOp::kMax, x, eps), 1.0 - eps);
  }
  m.output(out, m.math(ExprOp::kLog, x / (1.0 - x)));
  m.emit();
}

void lower_cast_copy(LowerContext& c) { c.copy(c.out(0), c.in(0)); }

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::exp", unary_math<ExprOp::kExp>},
    {"aten::exp2", unary_math<ExprOp::kExp2>},
    {"aten::expm1", unary_math<ExprOp::kExpm1>},
    {"aten::log", unary_math<ExprOp::kLog>},
    {"aten::log1p", unary_math<ExprOp::kLog1p>},
    {"aten::log2", unary_math<ExprOp::kLog2>},
    {"aten::log10", unary_math<ExprOp::kLog10>},
    {"aten::sqrt", unary_math<ExprOp::kSqrt>},
    {"aten::rsqrt", unary_math<ExprOp::kRsqrt>},
    {"aten::reciprocal", unary_math<ExprOp::kReciprocal>},
    {"aten::sin", unary_math<ExprOp::kSin>},
    {"aten::cos", unary_math<ExprOp::kCos>},
    {"aten::tan", unary_math<ExprOp::kTan>},
    {"aten::asin", unary_math<ExprOp::kAsin>},
    {"aten::acos", unary_math<ExprOp::kAcos>},
    {"aten::atan", unary_math<ExprOp::kAtan>},
    {"aten::sinh", unary_math<ExprOp::kSinh>},
    {"aten::cosh", unary_math<ExprOp::kCosh>},
    {"aten::tanh", unary_math<ExprOp::kTanh>},
    {"aten::asinh", unary_math<ExprOp::kAsinh>},
    {"aten::acosh", unary_math<ExprOp::kAcosh>},
    {"aten::atanh", unary_math<ExprOp::kAtanh>},
    {"aten::erf", unary_math<ExprOp::kErf>},
    {"aten::erfc", unary_math<ExprOp::kErfc>},
    {"aten::special_erf", unary_math<ExprOp::kErf>},
    {"aten::special_erfc", unary_math<ExprOp::kErfc>},
    {"aten::sigmoid", unary_math<ExprOp::kSigmoid>},
    {"aten::logit", lower_logit},
    {"aten::special_erfcx", unary_math<ExprOp::kErfcx>},
    {"aten::sinc", pointwise<[](Pointwise& p) {
       Ex x = p.f32(0) * std::numbers::pi;
       return p.select(x == 0.0, p.map.constant(1), p.map.math(ExprOp::kSin, x) / x);
     }>},
    {"aten::special_entr", pointwise<[](Pointwise& p) {
       Ex x = p.f32(0);
       Ex y = p.select(x > 0.0, -x * p.log(x), p.select(x == 0.0, p.map.constant(0), p.map.constant(-kInf)));
       return p.select(p.is_nan(x), x, y);
     }>},
    {"aten::angle", pointwise<[](Pointwise& p) {
       Ex x = p.f32(0);
       Ex y = p.select(x < 0.0, p.map.constant(std::numbers::pi), p.map.constant(0));
       return p.select(p.is_nan(x), x, y);
     }>},
    {"aten::deg2rad", pointwise<[](Pointwise& p) { return p.f32(0) * (std::numbers::pi / 180); }>},
    {"aten::rad2deg", pointwise<[](Pointwise& p) { return p.f32(0) * (180 / std::numbers::pi); }>},

    {"aten::floor", unary_rounding<ExprOp::kFloor>},
    {"aten::ceil", unary_rounding<ExprOp::kCeil>},
    {"aten::round", unary_rounding<ExprOp::kRound>},
    {"aten::round.decimals", lower_round_decimals},
    {"aten::trunc", unary_rounding<ExprOp::kTrunc>},
    {"aten::frac", pointwise<[](Pointwise& p) { return p[0] - p.map.unary(ExprOp::kTrunc, p[0]); }>},

    {"aten::abs", unary_any<ExprOp::kAbs>},
    {"aten::neg", pointwise<[](Pointwise& p) { return -p[0]; }>},
    {"aten::sign", pointwise<[](Pointwise& p) {
       return p.type == Dtype::kBool ? p[0] : p.map.unary(ExprOp::kSign, p[0]);
     }>},
    {"aten::sgn", pointwise<[](Pointwise& p) {
       return p.type == Dtype::kBool ? p[0] : p.map.unary(ExprOp::kSign, p[0]);
     }>},
    {"aten::square", pointwise<[](Pointwise& p) { return p[0] * p[0]; }>},
    {"aten::conj_physical", lower_cast_copy},
    {"aten::positive", pointwise<[](Pointwise& p) { return p[0]; }>},
    {"aten::clone", lower_cast_copy},
    {"aten::_to_copy", lower_cast_copy},
    {"aten::alias_copy", lower_cast_copy},
    {"aten::lift_fresh_copy", lower_cast_copy},
    {"aten::detach_copy", lower_cast_copy},

    {"aten::logical_not", pointwise<[](Pointwise& p) { return !p.raw(0); }>},
    {"aten::bitwise_not", pointwise<[](Pointwise& p) {
       Ex x = p.raw(0);
       return x.dtype == Dtype::kBool ? !x : p.map.unary(ExprOp::kBitNot, x);
     }>},
    {"aten::isnan", pointwise<[](Pointwise& p) {
       Ex x = p.raw(0);
       return x.dtype == Dtype::kF32 ? p.is_nan(x) : p.map.constant(0, Dtype::kBool);
     }>},
    {"aten::isinf", pointwise<[](Pointwise& p) {
       Ex x = p.raw(0);
       return x.dtype == Dtype::kF32 ? p.map.unary(ExprOp::kIsInf, x) : p.map.constant(0, Dtype::kBool);
     }>},
    {"aten::isfinite", pointwise<[](Pointwise& p) {
       Ex x = p.raw(0);
       return x.dtype == Dtype::kF32 ? p.abs(x) < kInf : p.map.constant(1, Dtype::kBool);
     }>},
    {"aten::isposinf", pointwise<[](Pointwise& p) { return is_inf_with_sign(p, kInf); }>},
    {"aten::isneginf", pointwise<[](Pointwise& p) { return is_inf_with_sign(p, -kInf); }>},
    {"aten::signbit", pointwise<[](Pointwise& p) {
       Ex x = p.raw(0);
       if (x.dtype == Dtype::kBool) return p.map.constant(0, Dtype::kBool);
       if (x.dtype != Dtype::kF32) return x < 0.0;
       return p.map.unary(ExprOp::kSignBit, x);
     }>},
    {"aten::nan_to_num", lower_nan_to_num},
});

}  // namespace
}  // namespace trnsim::compiler
