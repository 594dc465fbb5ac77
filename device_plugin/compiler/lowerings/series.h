// What the special functions share: names for expressions, series.
#pragma once

#include <cstddef>

#include "device_plugin/compiler/lowerings/pointwise.h"

namespace trnsim::compiler {

inline Ex sqrt(Ex x) { return x.map->math(ExprOp::kSqrt, x); }
inline Ex log(Ex x) { return x.map->math(ExprOp::kLog, x); }
inline Ex abs(Ex x) { return x.map->unary(ExprOp::kAbs, x); }
inline Ex number(Ex like, double v) { return like.map->constant(v); }
inline Ex select(Ex c, Ex a, Ex b) { return c.map->select(c, a, b); }

// sum c[k] T_k(t) for t in [-1, 1], by Clenshaw's recurrence, which loses no digits there.
template <size_t n>
Ex chebyshev(Ex t, const double (&c)[n]) {
  Ex twice = t * 2.0;
  Ex b1 = t.map->constant(c[n - 1]), b2 = t.map->constant(0);
  for (size_t k = n - 2; k > 0; --k) {
    Ex b = twice * b1 - b2 + c[k];
    b2 = b1;
    b1 = b;
  }
  return t * b1 - b2 + c[0];
}

// c[0] + c[1] x + ..
template <size_t n>
Ex polynomial(Ex x, const double (&c)[n]) {
  Ex y = x.map->constant(c[n - 1]);
  for (size_t k = n - 1; k > 0; --k) y = y * x + c[k - 1];
  return y;
}

}  // namespace trnsim::compiler
