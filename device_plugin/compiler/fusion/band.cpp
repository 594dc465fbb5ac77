#include "device_plugin/compiler/fusion/band.h"

#include <cmath>

namespace trnsim::compiler::fusion {
namespace {

// What an expression can be: i * row + j * column + number (an index), or a step (a number is one without a step).
struct Term {
  bool index = false;
  int64_t row = 0, column = 0;
  bool steps = false;
  Band band;

  double number() const { return band.low; }
};

Term number(double v) {
  Term t;
  t.band.low = t.band.high = v;
  return t;
}

std::optional<double> apply(const Expr& e, double a, double b, double c) {
  switch (e.op) {
    case ExprOp::kCast:
      return e.dtype == Dtype::kBool ? (a != 0 ? 1 : 0) : e.dtype == Dtype::kF32 ? a : std::trunc(a);
    case ExprOp::kNeg:
      return -a;
    case ExprOp::kNot:
      return a == 0 ? 1 : 0;
    case ExprOp::kAdd:
      return a + b;
    case ExprOp::kSub:
      return a - b;
    case ExprOp::kMul:
      return a * b;
    case ExprOp::kEq:
      return a == b ? 1 : 0;
    case ExprOp::kNe:
      return a != b ? 1 : 0;
    case ExprOp::kLt:
      return a < b ? 1 : 0;
    case ExprOp::kLe:
      return a <= b ? 1 : 0;
    case ExprOp::kGt:
      return a > b ? 1 : 0;
    case ExprOp::kGe:
      return a >= b ? 1 : 0;
    case ExprOp::kAnd:
      return a != 0 && b != 0 ? 1 : 0;
    case ExprOp::kOr:
      return a != 0 || b != 0 ? 1 : 0;
    case ExprOp::kSelect:
      return a != 0 ? b : c;
    default:
      return std::nullopt;
  }
}

// Two indices whose difference is j - i or i - j, and a number.
std::optional<Term> compare(ExprOp op, const Term& a, const Term& b) {
  const int64_t row = a.row - b.row, column = a.column - b.column;
  const double shift = a.number() - b.number();  // row * i + column * j + shift  op  0
  if (row != -column || (column != 1 && column != -1)) return std::nullopt;
  // t = j - i:  column * t + shift op 0
  const bool upper = column == 1;  // t op -shift, else -t op -shift
  const double bound = upper ? -shift : shift;
  Term t;
  t.steps = true;
  const auto at_most = [&](double last, bool inside) {
    t.band = {inside ? 1.0 : 0.0, inside ? 0.0 : 1.0, static_cast<int64_t>(std::floor(last))};
  };
  if (!upper) {  // -t op x  is  t op' -x
    op = op == ExprOp::kLt   ? ExprOp::kGt
         : op == ExprOp::kLe ? ExprOp::kGe
         : op == ExprOp::kGt ? ExprOp::kLt
                             : ExprOp::kLe;
  }
  switch (op) {
    case ExprOp::kLe:
      at_most(bound, true);
      return t;
    case ExprOp::kLt:
      at_most(std::ceil(bound) - 1, true);
      return t;
    case ExprOp::kGt:
      at_most(bound, false);
      return t;
    default:
      at_most(std::ceil(bound) - 1, false);
      return t;
  }
}

std::optional<Term> evaluate(const Expr& e, const Term& a, const Term& b, const Term& c) {
  if (a.index || b.index || c.index) {
    const bool linear = e.op == ExprOp::kAdd || e.op == ExprOp::kSub;
    if (e.op == ExprOp::kCast && (e.dtype == Dtype::kI32 || e.dtype == Dtype::kF32) &&
        isa::dtype_bytes(e.cast_to) >= 4)
      return a;
    if (linear && !a.steps && !b.steps) {
      const int64_t sign = e.op == ExprOp::kAdd ? 1 : -1;
      Term t = number(a.number() + static_cast<double>(sign) * b.number());
      t.row = a.row + sign * b.row;
      t.column = a.column + sign * b.column;
      t.index = t.row != 0 || t.column != 0;
      return t;
    }
    const bool ordered =
        e.op == ExprOp::kLt || e.op == ExprOp::kLe || e.op == ExprOp::kGt || e.op == ExprOp::kGe;
    if (ordered && !a.steps && !b.steps) return compare(e.op, a, b);
    return std::nullopt;
  }
  Term t;
  for (const Term* x : {&a, &b, &c}) {
    if (!x->steps) continue;
    if (t.steps && t.band.last != x->band.last) return std::nullopt;
    t.steps = true;
    t.band.last = x->band.last;
  }
  const std::optional<double> low = apply(e, a.band.low, b.band.low, c.band.low);
  const std::optional<double> high = apply(e, a.band.high, b.band.high, c.band.high);
  if (!low || !high) return std::nullopt;
  t.band.low = *low;
  t.band.high = *high;
  return t;
}

}  // namespace

std::optional<Band> band_of(const MapForm& form, int row, int column) {
  if (!form.inputs.empty() || form.outputs.size() != 1 || form.reduces()) return std::nullopt;
  std::vector<Term> terms;
  for (const Expr& e : form.exprs) {
    if (e.op == ExprOp::kConst) {
      terms.push_back(number(e.value));
      continue;
    }
    if (e.op == ExprOp::kIota) {
      Term t;
      t.index = true;
      t.row = e.index == row ? 1 : 0;
      t.column = e.index == column ? 1 : 0;
      if (!t.row && !t.column) return std::nullopt;
      terms.push_back(t);
      continue;
    }
    if (e.op == ExprOp::kParam || e.op == ExprOp::kReduce || e.a < 0) return std::nullopt;
    auto term = [&](int32_t o) { return o < 0 ? number(0) : terms[static_cast<size_t>(o)]; };
    const std::optional<Term> t = evaluate(e, term(e.a), term(e.b), term(e.c));
    if (!t) return std::nullopt;
    terms.push_back(*t);
  }
  const Term& result = terms[static_cast<size_t>(form.outputs[0].expr)];
  if (result.index || !result.steps) return std::nullopt;
  return result.band;
}

}  // namespace trnsim::compiler::fusion
