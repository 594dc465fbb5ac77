// A box of the iteration domain of a map: its axes in memory order and every operand's strides (internal to
// map*.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {

// kPartition: rows (or elements) on partitions; kShare: a reduced axis on partitions, each of which holds a share of a row.
enum class AxisRole : int { kPartition = 0, kKept = 1, kReduced = 2, kShare = 3 };

// All views have one stride per axis. Axes are ordered outermost first; partition axes, once chosen, come
// first.
struct Box {
  std::vector<int64_t> sizes;
  std::vector<int> roles;  // AxisRole
  std::vector<View> views;

  int rank() const { return static_cast<int>(sizes.size()); }
  AxisRole role(int axis) const { return static_cast<AxisRole>(roles[axis]); }
  bool on_partition(int axis) const {
    return role(axis) == AxisRole::kPartition || role(axis) == AxisRole::kShare;
  }
  int64_t partitions() const { return product(AxisRole::kPartition) * product(AxisRole::kShare); }
  int64_t product(AxisRole r) const {
    int64_t n = 1;
    for (int i = 0; i < rank(); ++i) {
      if (role(i) == r) n *= sizes[i];
    }
    return n;
  }
  Box sliced(int axis, int64_t begin, int64_t count) const;
  // Axis -> (outer, inner) with inner = size / outer.
  void split(int axis, int64_t outer);
  void move_to_front(int axis);
  // Drops axes of size 1 and merges neighbours of equal role that are one run for every operand.
  void merge();
};

// Puts axes of role `from` on partitions (kReduced ones become kShare), outermost first and at most `max_axes` of them;
// what does not divide well is cut off. The last axis keeps runs of at least `min_run` elements. The boxes cover `box`.
std::vector<Box> choose_partitions(const Box& box, AxisRole from, int max_axes, int64_t min_run);
// Few shares leave partitions idle: where the box begins with a reduced axis and a kept one, the partitions hold
// (share, part of the kept axis), in memory order. Nothing when that fills no more partitions.
std::optional<Box> choose_shares_of_rows(const Box& box);

// Cuts the axes of role `role` so that a piece has at most `limit` elements of that role and at most
// `max_axes` axes longer than 1; calls fn for every piece.
//
// Long runs of equal pieces go to `loop` when it is given: the first piece, the number of pieces, and how
// many elements every view moves from piece to piece. False from it: not as a loop, fn is called for each.
using LoopPieces = std::function<bool(const Box& first, int64_t count, const std::vector<int64_t>& steps)>;
void for_each_piece(const Box& box, AxisRole role, int64_t limit, int max_axes,
                    const std::function<void(Box)>& fn, const LoopPieces& loop = nullptr);
// Equal pieces from which on a loop is worth its prologue.
constexpr int64_t kMinLoopPieces = 32;

}  // namespace trnsim::compiler
