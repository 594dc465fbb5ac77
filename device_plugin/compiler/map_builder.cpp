#include <algorithm>
#include <cmath>
#include <limits>

#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler {
namespace {

bool same_view(const View& a, const View& b) {
  return a.buffer == b.buffer && a.dtype == b.dtype && a.offset == b.offset && a.sizes == b.sizes &&
         a.strides == b.strides;
}

bool gives_bool(ExprOp op) {
  switch (op) {
    case ExprOp::kEq:
    case ExprOp::kNe:
    case ExprOp::kLt:
    case ExprOp::kLe:
    case ExprOp::kGt:
    case ExprOp::kGe:
    case ExprOp::kAnd:
    case ExprOp::kOr:
    case ExprOp::kXor:
      return true;
    default:
      return false;
  }
}

}  // namespace

Dtype compute_dtype(Dtype storage) {
  if (storage == Dtype::kBool || storage == Dtype::kU32) return storage;
  return isa::is_float(storage) ? Dtype::kF32 : Dtype::kI32;
}

Dtype promote_compute(Dtype a, Dtype b) {
  auto rank = [](Dtype d) { return d == Dtype::kF32 ? 3 : d == Dtype::kU32 ? 2 : d == Dtype::kI32 ? 1 : 0; };
  return rank(a) >= rank(b) ? a : b;
}

MapBuilder::MapBuilder(LowerContext& context, std::vector<int64_t> domain, int num_kept) : context_(context) {
  kernel_.num_kept = num_kept < 0 ? static_cast<int>(domain.size()) : num_kept;
  kernel_.domain = std::move(domain);
}

std::vector<int64_t> MapBuilder::kept() const {
  return {kernel_.domain.begin(), kernel_.domain.begin() + kernel_.num_kept};
}

int64_t MapBuilder::reduced_count() const {
  int64_t n = 1;
  for (size_t d = static_cast<size_t>(kernel_.num_kept); d < kernel_.domain.size(); ++d)
    n *= kernel_.domain[d];
  return n;
}

Ex MapBuilder::add(Expr e) {
  // Equal nodes are shared: lowerings may name a subexpression twice.
  for (size_t i = 0; i < kernel_.exprs.size(); ++i) {
    const Expr& o = kernel_.exprs[i];
    if (o.op == e.op && o.dtype == e.dtype && o.cast_to == e.cast_to && o.a == e.a && o.b == e.b &&
        o.c == e.c && o.index == e.index && o.value == e.value &&
        std::signbit(o.value) == std::signbit(e.value) && o.reduce == e.reduce) {
      return {this, static_cast<int32_t>(i), e.dtype};
    }
  }
  kernel_.exprs.push_back(e);
  return {this, static_cast<int32_t>(kernel_.exprs.size() - 1), e.dtype};
}

Ex MapBuilder::input(const View& view) {
  View v = view_expanded(view, kernel_.domain);
  size_t i = 0;
  while (i < kernel_.inputs.size() && !same_view(kernel_.inputs[i], v)) ++i;
  if (i == kernel_.inputs.size()) kernel_.inputs.push_back(v);
  Expr e;
  e.op = ExprOp::kInput;
  e.dtype = compute_dtype(v.dtype);
  e.index = static_cast<int32_t>(i);
  return add(e);
}

Ex MapBuilder::row_input(const View& view) {
  View v = view_expanded(view, kept());
  while (v.sizes.size() < kernel_.domain.size()) {
    v = view_unsqueezed(v, static_cast<int>(v.sizes.size()), kernel_.domain[v.sizes.size()]);
  }
  return input(v);
}

Ex MapBuilder::operand(int arg) {
  if (context_.is_tensor(arg)) return input(context_.in(arg));
  return row_operand(arg);
}

Ex MapBuilder::row_operand(int arg) {
  if (context_.is_tensor(arg)) return row_input(context_.in(arg));
  const Arg& a = context_.arg(arg);
  if (const ParamRef* p = std::get_if<ParamRef>(&a)) return param(*p);
  auto c = context_.constant(arg);
  if (!c) context_.refuse("argument " + std::to_string(arg) + " is neither a tensor nor a number");
  // Beyond int32, beside uint32 tensors; beside those of int64 the largest int32 stands for it.
  const bool unsigned_word = *c > std::numeric_limits<int32_t>::max() && context_.meets(Dtype::kU32);
  return constant(*c, std::holds_alternative<double>(a)    ? Dtype::kF32
                      : unsigned_word                      ? Dtype::kU32
                      : std::holds_alternative<int64_t>(a) ? Dtype::kI32
                                                           : Dtype::kBool);
}

Ex MapBuilder::param(const ParamRef& p) {
  Expr e;
  e.op = ExprOp::kParam;
  e.dtype = compute_dtype(p.dtype);
  e.index = p.slot;
  return add(e);
}

Ex MapBuilder::constant(double value, Dtype dtype) {
  Expr e;
  e.op = ExprOp::kConst;
  e.dtype = dtype;
  e.value = value;
  return add(e);
}

Ex MapBuilder::iota(int axis) {
  Expr e;
  e.op = ExprOp::kIota;
  e.dtype = Dtype::kI32;
  e.index = axis;
  return add(e);
}

Ex MapBuilder::unary(ExprOp op, Ex a) {
  Expr e;
  e.op = op;
  bool predicate =
      op == ExprOp::kIsNan || op == ExprOp::kIsInf || op == ExprOp::kSignBit || op == ExprOp::kNot;
  e.dtype = predicate ? Dtype::kBool : a.dtype;
  e.a = op == ExprOp::kNot ? cast(a, Dtype::kBool).id : a.id;
  return add(e);
}

Ex MapBuilder::math(ExprOp op, Ex a) { return unary(op, cast(a, Dtype::kF32)); }

Ex MapBuilder::binary(ExprOp op, Ex a, Ex b) {
  Dtype t = promote_compute(a.dtype, b.dtype);
  bool logical = op == ExprOp::kAnd || op == ExprOp::kOr || op == ExprOp::kXor;
  if (logical) t = Dtype::kBool;
  if (op == ExprOp::kDiv || op == ExprOp::kAtan2 || op == ExprOp::kCopySign) t = Dtype::kF32;
  // bool has no arithmetic: it counts as an integer there
  bool bool_legal = gives_bool(op) || op == ExprOp::kBitAnd || op == ExprOp::kBitOr || op == ExprOp::kBitXor;
  if (t == Dtype::kBool && !bool_legal) t = Dtype::kI32;
  if (t == Dtype::kBool && !logical) {
    // bitwise forms of bool are the logical ones; ordered comparisons of bool run on integers
    if (op == ExprOp::kBitAnd)
      op = ExprOp::kAnd;
    else if (op == ExprOp::kBitOr)
      op = ExprOp::kOr;
    else if (op == ExprOp::kBitXor || op == ExprOp::kNe)
      op = ExprOp::kXor;
    else
      t = Dtype::kI32;
  }
  Expr e;
  e.op = op;
  e.a = cast(a, t).id;
  e.b = cast(b, t).id;
  e.dtype = gives_bool(op) ? Dtype::kBool : t;
  return add(e);
}

Ex MapBuilder::select(Ex condition, Ex a, Ex b) {
  Dtype t = promote_compute(a.dtype, b.dtype);
  Expr e;
  e.op = ExprOp::kSelect;
  e.dtype = t;
  e.a = cast(condition, Dtype::kBool).id;
  e.b = cast(a, t).id;
  e.c = cast(b, t).id;
  return add(e);
}

Ex MapBuilder::reduce(ReduceOp op, Ex a) {
  bool logical = op == ReduceOp::kAny || op == ReduceOp::kAll;
  if (logical)
    a = cast(a, Dtype::kBool);
  else if (a.dtype == Dtype::kBool)
    a = cast(a, Dtype::kI32);
  if (kernel_.num_kept == static_cast<int>(kernel_.domain.size())) return a;  // over no axes
  Expr e;
  e.op = ExprOp::kReduce;
  e.dtype = a.dtype;
  e.a = a.id;
  e.reduce = op;
  return add(e);
}

Ex MapBuilder::cast(Ex a, Dtype compute) {
  if (a.dtype == compute) return a;
  if (compute == Dtype::kBool) return binary(ExprOp::kNe, a, constant(0, a.dtype));
  const Expr& from = kernel_.exprs[static_cast<size_t>(a.id)];
  if (from.op == ExprOp::kConst && compute == Dtype::kF32) return constant(from.value, Dtype::kF32);
  if (from.op == ExprOp::kConst && from.dtype == Dtype::kBool) return constant(from.value, compute);
  Expr e;
  e.op = ExprOp::kCast;
  e.dtype = compute;
  e.cast_to = compute;
  e.a = a.id;
  return add(e);
}

Ex MapBuilder::round_to(Ex a, Dtype storage) {
  a = cast(a, compute_dtype(storage));
  if (isa::dtype_bytes(storage) >= 4 || storage == Dtype::kBool) return a;
  Expr e;
  e.op = ExprOp::kCast;
  e.dtype = a.dtype;
  e.cast_to = storage;
  e.a = a.id;
  return add(e);
}

void MapBuilder::output(const View& view, Ex a) {
  if (view.sizes != kernel_.domain) throw_internal("a result of a map has not the sizes of its domain");
  kernel_.outputs.push_back({view, cast(a, compute_dtype(view.dtype)).id});
}

void MapBuilder::row_output(const View& view, Ex a) {
  if (view.sizes != kept()) throw_internal("a row result of a map has not the sizes of its kept axes");
  kernel_.outputs.push_back({view, cast(a, compute_dtype(view.dtype)).id});
}

void MapBuilder::emit() {
  // Numbers beyond 32 bits saturate where they stay integers, as int64 elements do.
  for (Expr& e : kernel_.exprs)
    if (e.op == ExprOp::kConst && e.dtype == Dtype::kI32)
      e.value = std::clamp(e.value, static_cast<double>(std::numeric_limits<int32_t>::min()),
                           static_cast<double>(std::numeric_limits<int32_t>::max()));
  context_.emit(std::move(kernel_));
}

// ---- operators
// ---------------------------------------------------------------------------------------------------
namespace {
Ex both(ExprOp op, Ex a, Ex b) { return a.map->binary(op, a, b); }
// A whole number takes the other operand's type, so that integer expressions stay integer.
Ex like(Ex a, double v) {
  bool whole = v == static_cast<double>(static_cast<int32_t>(std::clamp(v, -2147483648.0, 2147483647.0)));
  return a.map->constant(v, whole && a.dtype != Dtype::kBool ? a.dtype : whole ? Dtype::kI32 : Dtype::kF32);
}
}  // namespace

Ex operator+(Ex a, Ex b) { return both(ExprOp::kAdd, a, b); }
Ex operator-(Ex a, Ex b) { return both(ExprOp::kSub, a, b); }
Ex operator*(Ex a, Ex b) { return both(ExprOp::kMul, a, b); }
Ex operator/(Ex a, Ex b) { return both(ExprOp::kDiv, a, b); }
Ex operator-(Ex a) {
  return a.map->unary(ExprOp::kNeg, a.dtype == Dtype::kBool ? a.map->cast(a, Dtype::kI32) : a);
}
Ex operator+(Ex a, double b) { return a + like(a, b); }
Ex operator-(Ex a, double b) { return a - like(a, b); }
Ex operator*(Ex a, double b) { return a * like(a, b); }
Ex operator/(Ex a, double b) { return a / like(a, b); }
Ex operator+(double a, Ex b) { return like(b, a) + b; }
Ex operator-(double a, Ex b) { return like(b, a) - b; }
Ex operator*(double a, Ex b) { return like(b, a) * b; }
Ex operator/(double a, Ex b) { return like(b, a) / b; }
Ex operator<(Ex a, Ex b) { return both(ExprOp::kLt, a, b); }
Ex operator<=(Ex a, Ex b) { return both(ExprOp::kLe, a, b); }
Ex operator>(Ex a, Ex b) { return both(ExprOp::kGt, a, b); }
Ex operator>=(Ex a, Ex b) { return both(ExprOp::kGe, a, b); }
Ex operator==(Ex a, Ex b) { return both(ExprOp::kEq, a, b); }
Ex operator!=(Ex a, Ex b) { return both(ExprOp::kNe, a, b); }
Ex operator<(Ex a, double b) { return a < like(a, b); }
Ex operator<=(Ex a, double b) { return a <= like(a, b); }
Ex operator>(Ex a, double b) { return a > like(a, b); }
Ex operator>=(Ex a, double b) { return a >= like(a, b); }
Ex operator==(Ex a, double b) { return a == like(a, b); }
Ex operator!=(Ex a, double b) { return a != like(a, b); }
Ex operator&&(Ex a, Ex b) { return both(ExprOp::kAnd, a, b); }
Ex operator||(Ex a, Ex b) { return both(ExprOp::kOr, a, b); }
Ex operator!(Ex a) { return a.map->unary(ExprOp::kNot, a); }

}  // namespace trnsim::compiler
