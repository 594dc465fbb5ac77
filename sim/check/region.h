// The bytes that an operand touches, exactly: a run repeated in a box of strides.
#pragma once

#include <array>
#include <cstdint>

#include "isa/access.h"

namespace trnsim::check {

// Dims that prolong the one inside them are merged with it. In SBUF and PSUM the region is that of one partition.
struct Region : isa::StridedBox {
  int64_t span = 0;  // bytes from the first to the end of the last: kept, since every comparison asks for it

  bool dense() const { return num_dims == 0; }
  int64_t runs() const {
    int64_t n = 1;
    for (int d = 0; d < num_dims; ++d) n *= size[d];
    return n;
  }
};

Region region_of(const isa::Access& a);

// True when the two, moved by the given bytes, have a byte in common.
bool overlap(const Region& a, int64_t move_a, const Region& b, int64_t move_b);

using isa::for_each_run;

}  // namespace trnsim::check
