// Masks made of index values: which are bands, and which.
#include "device_plugin/compiler/fusion/band.h"
#include "tests/cpp/catch.h"

using namespace trnsim::compiler;
using trnsim::compiler::fusion::Band;
using trnsim::compiler::fusion::band_of;
using trnsim::compiler::fusion::MapForm;

namespace {

struct Mask {
  MapForm form;
  Mask() {
    form.sizes = {9, 7};
    form.reduced = {false, false};
  }
  int32_t add(ExprOp op, int32_t a = -1, int32_t b = -1, int32_t c = -1) {
    Expr e;
    e.op = op;
    e.a = a;
    e.b = b;
    e.c = c;
    form.exprs.push_back(e);
    return static_cast<int32_t>(form.exprs.size() - 1);
  }
  int32_t number(double v) {
    const int32_t i = add(ExprOp::kConst);
    form.exprs.back().value = v;
    return i;
  }
  int32_t index(int axis) {
    const int32_t i = add(ExprOp::kIota);
    form.exprs.back().index = axis;
    form.exprs.back().dtype = Dtype::kI32;
    return i;
  }
  std::optional<Band> of(int32_t value) {
    MapForm::Output o;
    o.view.strides = {7, 1};
    o.expr = value;
    form.outputs = {o};
    return band_of(form, 0, 1);
  }
};

// What the comparison gives at j - i = last and last + 1.
void check(ExprOp op, bool column_first, double shift, int64_t last, double low) {
  Mask m;
  const int32_t i = m.index(0), j = m.index(1);
  const int32_t moved = m.add(ExprOp::kAdd, column_first ? i : j, m.number(shift));
  const std::optional<Band> b = m.of(m.add(op, column_first ? j : i, moved));
  REQUIRE(b.has_value());
  CHECK(b->last == last);
  CHECK(b->low == low);
  CHECK(b->high == 1 - low);
}

}  // namespace

TEST_CASE("comparisons of indices are bands") {
  check(ExprOp::kLe, true, 2, 2, 1);    // j <= i + 2
  check(ExprOp::kLt, true, 2, 1, 1);    // j < i + 2
  check(ExprOp::kGt, true, 2, 2, 0);    // j > i + 2
  check(ExprOp::kGe, true, 2, 1, 0);    // j >= i + 2
  check(ExprOp::kGe, false, 3, -3, 1);  // i >= j + 3: j - i <= -3
  check(ExprOp::kGt, false, 3, -4, 1);  // i > j + 3
  check(ExprOp::kLe, false, 3, -4, 0);  // i <= j + 3: j - i >= -3
  check(ExprOp::kLt, true, 0.5, 0, 1);  // whole numbers below one half
  check(ExprOp::kLe, true, -0.5, -1, 1);
}

TEST_CASE("what is computed from a band is one, and nothing else is") {
  Mask m;
  const int32_t i = m.index(0), j = m.index(1);
  const int32_t sees = m.add(ExprOp::kLe, j, i);
  const int32_t mask = m.add(ExprOp::kSelect, sees, m.number(0), m.number(-4));
  const std::optional<Band> b = m.of(m.add(ExprOp::kMul, mask, m.number(2)));
  REQUIRE(b.has_value());
  CHECK(b->low == 0);
  CHECK(b->high == -8);
  CHECK(b->last == 0);
  CHECK_FALSE(m.of(m.add(ExprOp::kLe, j, m.number(3))).has_value());  // a column
  CHECK_FALSE(m.of(m.add(ExprOp::kMul, i, j)).has_value());           // no difference
  const int32_t other = m.add(ExprOp::kGe, m.add(ExprOp::kAdd, j, m.number(2)), i);
  CHECK_FALSE(m.of(m.add(ExprOp::kAnd, sees, other)).has_value());  // two edges
  CHECK_FALSE(m.of(m.number(1)).has_value());                       // the same everywhere
  CHECK_FALSE(m.of(m.add(ExprOp::kEq, i, j)).has_value());          // the diagonal
}
