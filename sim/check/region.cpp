#include "sim/check/region.h"

#include <algorithm>

namespace trnsim::check {

Region region_of(const isa::Access& a) {
  Region r;
  static_cast<isa::StridedBox&>(r) = isa::strided_box(a);
  for (int d = r.num_dims - 2; d >= 0; --d) {
    // A dim that steps by a multiple of the dim inside it, no further than that reaches, prolongs it.
    if (r.stride[d] % r.stride[d + 1] != 0 || r.stride[d] / r.stride[d + 1] > r.size[d + 1]) continue;
    r.size[d] = (r.size[d] - 1) * (r.stride[d] / r.stride[d + 1]) + r.size[d + 1];
    r.stride[d] = r.stride[d + 1];
    for (int k = d + 1; k + 1 < r.num_dims; ++k) {
      r.stride[k] = r.stride[k + 1];
      r.size[k] = r.size[k + 1];
    }
    --r.num_dims;
  }
  r.span = r.extent();
  return r;
}

namespace {

struct Part {
  const Region& region;
  int dim;
  int64_t span;

  bool run() const { return dim == region.num_dims; }
  int64_t stride() const { return region.stride[dim]; }
  int64_t size() const { return region.size[dim]; }
  Part inner() const { return {region, dim + 1, span - (size() - 1) * stride()}; }
};

int64_t floor_divide(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// `distance`: start of b minus start of a.
bool meet(const Part& a, const Part& b, int64_t distance) {
  if (distance >= a.span || distance + b.span <= 0) return false;
  if (a.run() && b.run()) return true;
  // The larger stride is walked, over the few steps that can reach the other part.
  if (b.run() || (!a.run() && a.stride() >= b.stride())) {
    const Part in = a.inner();
    const int64_t first = std::max<int64_t>(0, floor_divide(distance - in.span, a.stride()) + 1);
    const int64_t last = std::min(a.size() - 1, floor_divide(distance + b.span - 1, a.stride()));
    for (int64_t i = first; i <= last; ++i) {
      if (meet(in, b, distance - i * a.stride())) return true;
    }
    return false;
  }
  return meet(b, a, -distance);
}

}  // namespace

bool overlap(const Region& a, int64_t move_a, const Region& b, int64_t move_b) {
  return meet({a, 0, a.span}, {b, 0, b.span}, b.lo + move_b - a.lo - move_a);
}

}  // namespace trnsim::check
