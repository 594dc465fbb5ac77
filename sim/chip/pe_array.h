// The systolic array as time sees it: 4x4 cells of 32 rows and columns. A matrix product occupies the cells of its
// tile, so products on tiles that share no cell run side by side; the instruction order is kept.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "isa/instruction.h"
#include "sim/cost/cost.h"

namespace trnsim::chip {

using cost::Ps;

constexpr uint16_t kWholeArray = 0xffff;

// Bit 4 * row + column of each cell that the tile touches.
inline uint16_t cells_of(const isa::PeTile& t) {
  if (t.whole()) return kWholeArray;
  const auto span = [](int first, int size) {
    const int begin = std::min(first / 32, 4), end = std::min((first + size + 31) / 32, 4);
    return ((1u << end) - 1) & ~((1u << begin) - 1);
  };
  const unsigned rows = span(t.row, t.rows), columns = span(t.column, t.columns);
  unsigned cells = 0;
  for (unsigned r = 0; r < 4; ++r) {
    if ((rows >> r & 1) != 0) cells |= columns << (4 * r);
  }
  return static_cast<uint16_t>(cells);
}

class PeArray {
 public:
  struct Cell {
    Ps free = 0;           // from when on it can stream
    Ps weights_ready = 0;  // of the newest load
    Ps swapped = 0;        // the newest load before took its place: there is room for another
  };
  void reset() {
    whole_ = Cell{};
    split_ = false;
  }
  // The latest of each over the cells.
  Cell at(uint16_t cells) const {
    if (!split_) return whole_;
    Cell all;
    each(cells, [&](const Cell& c) {
      all = {std::max(all.free, c.free), std::max(all.weights_ready, c.weights_ready),
             std::max(all.swapped, c.swapped)};
    });
    return all;
  }
  void loaded(uint16_t cells, Ps ready) {
    change(cells, [&](Cell& c) { c.weights_ready = ready; });
  }
  void streamed(uint16_t cells, Ps begin, Ps end) {
    change(cells, [&](Cell& c) {
      c.free = end;
      c.swapped = begin;
    });
  }

 private:
  template <typename Fn>
  void each(unsigned cells, Fn&& fn) const {
    for (; cells != 0; cells &= cells - 1) fn(cells_[static_cast<size_t>(__builtin_ctz(cells))]);
  }
  template <typename Fn>
  void change(unsigned cells, Fn&& fn) {
    if (cells != kWholeArray && !split_) {
      cells_.fill(whole_);
      split_ = true;
    }
    if (!split_) return fn(whole_);
    for (; cells != 0; cells &= cells - 1) fn(cells_[static_cast<size_t>(__builtin_ctz(cells))]);
  }

  Cell whole_;  // all cells, while no tile has been used
  bool split_ = false;
  std::array<Cell, 16> cells_{};
};

}  // namespace trnsim::chip
