// The bytes an access touches, and whether two accesses touch common bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "isa/access.h"

namespace trnsim::compiler {

struct Region : isa::StridedBox {
  int64_t hi = 0;  // behind the last byte
  uint16_t first_partition = 0, end_partition = 1;
};

// `repeat` copies of the access, `repeat_bytes` apart.
Region region_of(const isa::Access& a, int64_t repeat_bytes = 0, int64_t repeat = 1);
bool same_region(const Region& a, const Region& b);
bool covers(const Region& outer, const Region& inner);
// False only when the two are proven disjoint.
bool overlap(const Region& a, const Region& b);

}  // namespace trnsim::compiler
