// One-line rows for pointwise operators: an expression over the arguments, evaluated in the computing type of
// the result. `pointwise<[](Pointwise& p) { return p[0] + p[2] * p[1]; }>` is a lowering.
#pragma once

#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler {

struct Pointwise {
  LowerContext& context;
  MapBuilder& map;
  Dtype type;  // computing type of the result

  Ex operator[](int arg) { return map.cast(map.operand(arg), type); }
  Ex raw(int arg) { return map.operand(arg); }  // in its own computing type
  Ex f32(int arg) { return map.cast(map.operand(arg), Dtype::kF32); }
  Ex k(double v) { return map.constant(v, type); }
  bool none(int arg) const { return context.is_none(arg); }
  bool integral() const { return type != Dtype::kF32; }
  // Shorthands for FP32 functions.
  Ex exp(Ex a) { return map.math(ExprOp::kExp, a); }
  Ex log(Ex a) { return map.math(ExprOp::kLog, a); }
  Ex log1p(Ex a) { return map.math(ExprOp::kLog1p, a); }
  Ex tanh(Ex a) { return map.math(ExprOp::kTanh, a); }
  Ex sigmoid(Ex a) { return map.math(ExprOp::kSigmoid, a); }
  Ex sqrt(Ex a) { return map.math(ExprOp::kSqrt, a); }
  Ex abs(Ex a) { return map.unary(ExprOp::kAbs, a); }
  Ex max(Ex a, Ex b) { return map.binary(ExprOp::kMax, a, b); }
  Ex min(Ex a, Ex b) { return map.binary(ExprOp::kMin, a, b); }
  Ex square(Ex a) { return a * a; }
  Ex select(Ex c, Ex a, Ex b) { return map.select(c, a, b); }
  Ex is_nan(Ex a) { return map.unary(ExprOp::kIsNan, a); }
};

template <auto F>
void pointwise(LowerContext& context) {
  View out = context.out(0);
  MapBuilder map(context, out.sizes);
  Pointwise p{context, map, compute_dtype(out.dtype)};
  map.output(out, F(p));
  map.emit();
}

// FP32 in and out, whatever the argument's type.
template <ExprOp op>
void unary_math(LowerContext& context) {
  pointwise<[](Pointwise& p) { return p.map.math(op, p.raw(0)); }>(context);
}

// floor, ceil, ...: integers stay what they are.
template <ExprOp op>
void unary_rounding(LowerContext& context) {
  pointwise<[](Pointwise& p) { return p.integral() ? p[0] : p.map.unary(op, p[0]); }>(context);
}

// In the result's type, integers included.
template <ExprOp op>
void unary_any(LowerContext& context) {
  pointwise<[](Pointwise& p) { return p.map.unary(op, p[0]); }>(context);
}

template <ExprOp op>
void binary_any(LowerContext& context) {
  pointwise<[](Pointwise& p) { return p.map.binary(op, p[0], p[1]); }>(context);
}

// Operands promoted together; the result is bool.
template <ExprOp op>
void compare(LowerContext& context) {
  pointwise<[](Pointwise& p) { return p.map.binary(op, p.raw(0), p.raw(1)); }>(context);
}

}  // namespace trnsim::compiler
