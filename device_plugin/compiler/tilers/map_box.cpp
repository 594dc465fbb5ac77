#include "device_plugin/compiler/tilers/map_box.h"

#include <algorithm>

namespace trnsim::compiler {

Box Box::sliced(int axis, int64_t begin, int64_t count) const {
  Box b = *this;
  b.sizes[axis] = count;
  for (View& v : b.views) v = view_slice(v, axis, begin, count);
  return b;
}

void Box::split(int axis, int64_t outer) {
  int64_t inner = sizes[axis] / outer;
  sizes[axis] = inner;
  sizes.insert(sizes.begin() + axis, outer);
  roles.insert(roles.begin() + axis, roles[axis]);
  for (View& v : views) {
    v.sizes[axis] = inner;
    v.sizes.insert(v.sizes.begin() + axis, outer);
    v.strides.insert(v.strides.begin() + axis, v.strides[axis] * inner);
  }
}

void Box::move_to_front(int axis) {
  auto rotate = [axis](auto& list) {
    std::rotate(list.begin(), list.begin() + axis, list.begin() + axis + 1);
  };
  rotate(sizes);
  rotate(roles);
  for (View& v : views) {
    rotate(v.sizes);
    rotate(v.strides);
  }
}

void Box::merge() { sizes = merge_axes(views, &roles); }

namespace {

int64_t best_divisor(int64_t n, int64_t cap) {
  for (int64_t d = cap; d > 1; --d) {
    if (n % d == 0) return d;
  }
  return 1;
}

}  // namespace

std::vector<Box> choose_partitions(const Box& box, AxisRole from, int max_axes, int64_t min_run) {
  std::vector<Box> result;
  std::vector<Box> work{box};
  while (!work.empty()) {
    Box b = std::move(work.back());
    work.pop_back();
    int64_t product = 1;
    std::vector<int> chosen;
    for (int axis = 0; axis < b.rank() && static_cast<int>(chosen.size()) < max_axes; ++axis) {
      if (b.role(axis) != from) continue;
      int64_t size = b.sizes[axis], cap = isa::kMaxPartitions / product;
      if (axis == b.rank() - 1) cap = std::min(cap, std::max<int64_t>(1, size / min_run));
      if (size <= cap) {
        chosen.push_back(axis);
        product *= size;
        continue;
      }
      if (cap <= 1) break;
      int64_t outer = best_divisor(size, cap);
      if (outer * 2 <= cap) {
        outer = cap;
        int64_t main = size / outer * outer;
        if (main < size) {
          work.push_back(b.sliced(axis, main, size - main));
          b = b.sliced(axis, 0, main);
        }
      }
      b.split(axis, outer);
      chosen.push_back(axis);
      break;
    }
    const AxisRole role = from == AxisRole::kReduced ? AxisRole::kShare : AxisRole::kPartition;
    for (size_t i = 0; i < chosen.size(); ++i) b.roles[chosen[i]] = static_cast<int>(role);
    // Later ones first, so that their order is kept in front.
    for (size_t i = 0; i < chosen.size(); ++i)
      b.move_to_front(chosen[chosen.size() - 1 - i] + static_cast<int>(i));
    result.push_back(std::move(b));
  }
  return result;
}

std::optional<Box> choose_shares_of_rows(const Box& box) {
  if (box.rank() < 2 || box.role(0) != AxisRole::kReduced || box.role(1) != AxisRole::kKept)
    return std::nullopt;
  const int64_t rows = best_divisor(box.sizes[1], isa::kMaxPartitions / box.sizes[0]);
  if (rows <= 1) return std::nullopt;
  Box b = box;
  b.split(1, rows);
  b.roles[0] = static_cast<int>(AxisRole::kShare);
  b.roles[1] = static_cast<int>(AxisRole::kPartition);
  return b;
}

void for_each_piece(const Box& box, AxisRole role, int64_t limit, int max_axes,
                    const std::function<void(Box)>& fn, const LoopPieces& loop) {
  limit = std::max<int64_t>(limit, 1);
  std::vector<int> axes;
  std::vector<int64_t> chunk;
  int64_t product = 1;
  int used = 0;
  for (int axis = box.rank() - 1; axis >= 0; --axis) {
    if (box.role(axis) != role) continue;
    int64_t size = box.sizes[axis];
    int64_t c = 1;
    if (size > 1 && used < max_axes) {
      c = std::min(size, std::max<int64_t>(1, limit / product));
      int64_t pieces = (size + c - 1) / c;
      c = (size + pieces - 1) / pieces;
      if (c > 1) ++used;
      product *= c;
      if (c < size) product = limit;  // outer axes are looped over
    }
    axes.insert(axes.begin(), axis);
    chunk.insert(chunk.begin(), c);
  }
  // The axis with the most equal pieces becomes the innermost.
  int64_t equal = 0;
  if (loop) {
    size_t longest = 0;
    for (size_t i = 0; i < axes.size(); ++i) {
      int64_t n = box.sizes[axes[i]] / chunk[i];
      if (n < equal) continue;
      equal = n;
      longest = i;
    }
    if (equal >= kMinLoopPieces) {
      std::rotate(axes.begin() + static_cast<int64_t>(longest),
                  axes.begin() + static_cast<int64_t>(longest) + 1, axes.end());
      std::rotate(chunk.begin() + static_cast<int64_t>(longest),
                  chunk.begin() + static_cast<int64_t>(longest) + 1, chunk.end());
    } else {
      equal = 0;
    }
  }
  std::vector<int64_t> at(axes.size(), 0);
  while (true) {
    Box piece = box;
    for (size_t i = 0; i < axes.size(); ++i) {
      int64_t count = std::min(chunk[i], box.sizes[axes[i]] - at[i]);
      piece = piece.sliced(axes[i], at[i], count);
    }
    bool looped = false;
    if (equal > 0 && at.back() == 0) {
      std::vector<int64_t> steps;
      for (const View& v : box.views) steps.push_back(v.strides[axes.back()] * chunk.back());
      looped = loop(piece, equal, steps);
      if (looped) at.back() = (equal - 1) * chunk.back();
    }
    if (!looped) fn(std::move(piece));
    int i = static_cast<int>(axes.size()) - 1;
    for (; i >= 0; --i) {
      at[i] += chunk[i];
      if (at[i] < box.sizes[axes[i]]) break;
      at[i] = 0;
    }
    if (i < 0) return;
  }
}

}  // namespace trnsim::compiler
