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

// Calls fn(first byte, end) for every run, ascending in every dim.
template <typename Fn>
void for_each_run(const Region& r, int64_t move, Fn&& fn) {
  int64_t at = r.lo + move;
  if (r.num_dims == 0) {
    fn(at, at + r.run);
    return;
  }
  std::array<int64_t, isa::StridedBox::kMaxBoxDims> index{};
  for (;;) {
    fn(at, at + r.run);
    int d = r.num_dims - 1;
    for (; d >= 0; --d) {
      at += r.stride[d];
      if (++index[d] < r.size[d]) break;
      at -= r.stride[d] * r.size[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace trnsim::check
