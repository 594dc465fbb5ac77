#include "device_plugin/compiler/fusion/align.h"

#include <algorithm>

namespace trnsim::compiler::fusion {
namespace {

int64_t stride(const View& v, int axis) { return v.strides[static_cast<size_t>(axis)]; }
int64_t size(const MapForm& f, int axis) { return f.sizes[static_cast<size_t>(axis)]; }

// Axes that move, the smallest step first. False for steps backwards.
bool moving_axes(const MapForm& f, const View& v, std::vector<int>& axes) {
  for (size_t d = 0; d < f.rank(); ++d) {
    if (f.sizes[d] == 1 || v.strides[d] == 0) continue;
    if (v.strides[d] < 0) return false;
    axes.push_back(static_cast<int>(d));
  }
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return stride(v, a) < stride(v, b); });
  return true;
}

using Pairs = std::vector<std::pair<int, int>>;

// Splits and keeps the numbers of axes that were noted before.
void split_first(MapForm& f, int axis, int64_t inner, std::vector<int>& axes, Pairs& pairs) {
  f.split(static_cast<size_t>(axis), inner);
  for (int& a : axes) a += a > axis ? 1 : 0;
  for (auto& p : pairs) p.first += p.first > axis ? 1 : 0;
}
void split_second(MapForm& f, int axis, int64_t inner, std::vector<int>& axes, Pairs& pairs) {
  f.split(static_cast<size_t>(axis), inner);
  for (int& a : axes) a += a > axis ? 1 : 0;
  for (auto& p : pairs) p.second += p.second > axis ? 1 : 0;
}

}  // namespace

std::optional<Match> align(MapForm& first, const View& first_view, MapForm& second, const View& second_view) {
  const int64_t shift = second_view.offset - first_view.offset;
  if (shift < 0) return std::nullopt;
  std::vector<int> a, b;
  if (!moving_axes(first, first_view, a) || !moving_axes(second, second_view, b)) return std::nullopt;
  Pairs pairs;
  Match match;
  size_t x = 0;
  for (size_t y = 0; y < b.size();) {
    const int64_t step = stride(second_view, b[y]);
    while (x < a.size() && stride(first_view, a[x]) < step) {
      // A step over a part of the axis: the inner part stands still.
      const int64_t own = stride(first_view, a[x]), count = size(first, a[x]);
      if (step % own == 0 && step < own * count && count % (step / own) == 0) {
        split_first(first, a[x], step / own, a, pairs);
      } else {
        ++x;
      }
    }
    if (x == a.size() || stride(first_view, a[x]) != step) return std::nullopt;
    const int64_t n = size(first, a[x]), m = size(second, b[y]);
    if (n == m) {
      pairs.emplace_back(a[x++], b[y++]);
    } else if (n < m) {
      if (m % n != 0) return std::nullopt;
      split_second(second, b[y], n, b, pairs);
      pairs.emplace_back(a[x++], b[y] + 1);
    } else if (n % m == 0 && shift / step % n % m == 0) {
      split_first(first, a[x], m, a, pairs);
      pairs.emplace_back(a[x] + 1, b[y++]);
    } else {
      pairs.emplace_back(a[x++], b[y++]);
    }
  }
  match.axis.assign(first.rank(), -1);
  match.start.assign(first.rank(), 0);
  for (const auto& [p, q] : pairs) match.axis[static_cast<size_t>(p)] = q;
  // The shift as coordinates, and the range of every axis.
  std::vector<int> all;
  if (!moving_axes(first, first_view, all)) return std::nullopt;
  int64_t rest = shift;
  for (size_t i = all.size(); i-- > 0;) {
    const size_t axis = static_cast<size_t>(all[i]);
    const int64_t at = rest / first_view.strides[axis];
    rest %= first_view.strides[axis];
    const int64_t count = match.axis[axis] < 0 ? 1 : size(second, match.axis[axis]);
    if (at + count > first.sizes[axis]) return std::nullopt;
    match.start[axis] = at;
    match.whole = match.whole && count == first.sizes[axis];
  }
  if (rest != 0) return std::nullopt;
  return match;
}

bool pair_axes(MapForm& first, std::vector<int> a, const View& first_view, MapForm& second,
               std::vector<int> b, const View& second_view, Match& match) {
  auto by_step = [](const View& v) {
    return [&v](int x, int y) { return std::abs(stride(v, x)) < std::abs(stride(v, y)); };
  };
  std::stable_sort(a.begin(), a.end(), by_step(first_view));
  std::stable_sort(b.begin(), b.end(), by_step(second_view));
  Pairs pairs;
  for (size_t d = 0; d < match.axis.size(); ++d) {
    if (match.axis[d] >= 0) pairs.emplace_back(static_cast<int>(d), match.axis[d]);
  }
  size_t x = 0, y = 0;
  while (x < a.size() && y < b.size()) {
    const int64_t n = size(first, a[x]), m = size(second, b[y]);
    if (n == m) {
      pairs.emplace_back(a[x++], b[y++]);
    } else if (n < m && m % n == 0) {
      split_second(second, b[y], n, b, pairs);
      pairs.emplace_back(a[x++], b[y] + 1);
    } else if (n > m && n % m == 0) {
      split_first(first, a[x], m, a, pairs);
      pairs.emplace_back(a[x] + 1, b[y++]);
    } else {
      return false;
    }
  }
  if (x != a.size() || y != b.size()) return false;
  match.axis.assign(first.rank(), -1);
  match.start.assign(first.rank(), 0);
  for (const auto& [p, q] : pairs) match.axis[static_cast<size_t>(p)] = q;
  return true;
}

std::vector<int64_t> row_major(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

bool group_axes(const MapForm& form, const View& tracer, const std::vector<int64_t>& sizes,
                std::vector<std::vector<int>>& groups) {
  const std::vector<int64_t> strides = row_major(sizes);
  groups.assign(sizes.size(), {});
  std::vector<int> axes;
  if (!moving_axes(form, tracer, axes)) return false;
  size_t moving = 0;
  for (size_t d = 0; d < form.rank(); ++d) moving += form.sizes[d] > 1 ? 1 : 0;
  if (axes.size() != moving) return false;
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t step = stride(tracer, axes[i]), span = step * size(form, axes[i]);
    size_t d = 0;
    while (d < sizes.size() && (sizes[d] == 1 || step < strides[d])) ++d;
    if (d == sizes.size() || span > strides[d] * sizes[d]) return false;
    groups[d].push_back(axes[i]);
  }
  for (size_t d = 0; d < sizes.size(); ++d) {
    int64_t product = 1;
    for (int a : groups[d]) product *= size(form, a);
    if (product != sizes[d]) return false;
  }
  return true;
}

std::optional<int64_t> merged_stride(const MapForm& form, const View& view, const std::vector<int>& group) {
  if (group.empty()) return 0;
  for (size_t i = 1; i < group.size(); ++i) {
    if (stride(view, group[i - 1]) != stride(view, group[i]) * size(form, group[i])) return std::nullopt;
  }
  return stride(view, group.back());
}

std::optional<View> seen_through(const MapForm& copy, const View& read) {
  MapForm first = copy, second;
  second.sizes = read.sizes;
  second.reduced.assign(read.sizes.size(), false);
  View tracer = read;
  tracer.strides = row_major(read.sizes);
  second.inputs = {{read, -1, {}}, {tracer, -1, {}}};
  const std::optional<Match> match = align(first, first.outputs[0].view, second, second.inputs[0].view);
  if (!match) return std::nullopt;
  View through = first.inputs[0].view;
  through.strides.assign(second.rank(), 0);
  for (size_t d = 0; d < first.rank(); ++d) {
    const int64_t step = first.inputs[0].view.strides[d];
    through.offset += match->start[d] * step;
    if (match->axis[d] >= 0) through.strides[static_cast<size_t>(match->axis[d])] += step;
  }
  std::vector<std::vector<int>> groups;
  if (!group_axes(second, second.inputs[1].view, read.sizes, groups)) return std::nullopt;
  View result = through;
  result.sizes = read.sizes;
  result.strides.assign(read.sizes.size(), 0);
  for (size_t d = 0; d < read.sizes.size(); ++d) {
    const std::optional<int64_t> step = merged_stride(second, through, groups[d]);
    if (!step) return std::nullopt;
    result.strides[d] = *step;
  }
  return result;
}

}  // namespace trnsim::compiler::fusion
