#include "device_plugin/compiler/backend_region.h"

namespace trnsim::compiler {

Region region_of(const isa::Access& a, int64_t repeat_bytes, int64_t repeat) {
  Region r;
  static_cast<isa::StridedBox&>(r) = isa::strided_box(a, repeat_bytes, repeat);
  r.hi = r.lo + r.extent();
  if (a.space != isa::Space::kHbm) {
    r.first_partition = a.start_partition;
    r.end_partition = static_cast<uint16_t>(a.start_partition + a.num_partitions);
  }
  return r;
}

bool same_region(const Region& a, const Region& b) {
  if (a.lo != b.lo || a.hi != b.hi || a.run != b.run || a.num_dims != b.num_dims ||
      a.first_partition != b.first_partition || a.end_partition != b.end_partition) {
    return false;
  }
  for (int i = 0; i < a.num_dims; ++i) {
    if (a.stride[i] != b.stride[i] || a.size[i] != b.size[i]) return false;
  }
  return true;
}

bool covers(const Region& outer, const Region& inner) {
  return outer.num_dims == 0 && outer.lo <= inner.lo && inner.hi <= outer.hi &&
         outer.first_partition <= inner.first_partition && inner.end_partition <= outer.end_partition;
}

namespace {

// Two boxes over the same strides are disjoint when, written in mixed radix over the strides, some digit
// ranges are. Returns false (may overlap) where the radix is not unique.
bool boxes_disjoint(const Region& a, const Region& b) {
  std::array<int64_t, 2 * Region::kMaxBoxDims> stride;
  std::array<int64_t, 2 * Region::kMaxBoxDims> size_a, size_b;
  int n = 0, i = 0, j = 0;
  while (i < a.num_dims || j < b.num_dims) {
    int64_t sa = i < a.num_dims ? a.stride[i] : 0, sb = j < b.num_dims ? b.stride[j] : 0;
    stride[n] = std::max(sa, sb);
    size_a[n] = sa == stride[n] ? a.size[i++] : 1;
    size_b[n] = sb == stride[n] ? b.size[j++] : 1;
    ++n;
  }
  int64_t base = std::min(a.lo, b.lo);
  auto digits = [&](const Region& r, const std::array<int64_t, 2 * Region::kMaxBoxDims>& size,
                    std::array<int64_t, 2 * Region::kMaxBoxDims>& first, int64_t& rest) {
    int64_t d = r.lo - base;
    for (int k = 0; k < n; ++k) {
      first[k] = d / stride[k];
      d -= first[k] * stride[k];
    }
    rest = d;
    int64_t reach = rest + r.run;  // highest offset below stride k, exclusive
    for (int k = n - 1; k >= 0; --k) {
      if (reach > stride[k]) return false;
      reach += (first[k] + size[k] - 1) * stride[k];
    }
    return true;
  };
  std::array<int64_t, 2 * Region::kMaxBoxDims> first_a, first_b;
  int64_t rest_a, rest_b;
  if (!digits(a, size_a, first_a, rest_a) || !digits(b, size_b, first_b, rest_b)) return false;
  for (int k = 0; k < n; ++k) {
    if (first_a[k] + size_a[k] <= first_b[k] || first_b[k] + size_b[k] <= first_a[k]) return true;
  }
  return rest_a + a.run <= rest_b || rest_b + b.run <= rest_a;
}

}  // namespace

bool overlap(const Region& a, const Region& b) {
  if (a.lo >= b.hi || b.lo >= a.hi) return false;
  if (a.first_partition >= b.end_partition || b.first_partition >= a.end_partition) return false;
  if (a.num_dims == 0 && b.num_dims == 0) return true;
  return !boxes_disjoint(a, b);
}

}  // namespace trnsim::compiler
