// The bytes an access touches, and whether two accesses touch common bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "isa/access.h"

namespace trnsim::compiler {

// A run of `run` bytes repeated in a box of strides (bytes, descending, positive). One dim more than an
// access has: the iterations of a loop.
struct Region {
  static constexpr int kMaxBoxDims = isa::kMaxDims + 1;
  int64_t lo = 0, hi = 0, run = 0;
  uint16_t first_partition = 0, end_partition = 1;
  uint8_t num_dims = 0;
  std::array<int64_t, kMaxBoxDims> stride{};
  std::array<int64_t, kMaxBoxDims> size{};
};

// `repeat` copies of the access, `repeat_bytes` apart.
Region region_of(const isa::Access& a, int64_t repeat_bytes = 0, int64_t repeat = 1);
bool same_region(const Region& a, const Region& b);
bool covers(const Region& outer, const Region& inner);
// False only when the two are proven disjoint.
bool overlap(const Region& a, const Region& b);

}  // namespace trnsim::compiler
