#include "device_plugin/compiler/fusion/views.h"

#include <algorithm>
#include <functional>

namespace trnsim::compiler::fusion {
namespace {

struct Axis {
  int64_t stride, size;
};

// Axes that move, the widest step first.
std::vector<Axis> moving_axes(const View& v) {
  std::vector<Axis> axes;
  for (size_t d = 0; d < v.sizes.size(); ++d) {
    if (v.sizes[d] > 1 && v.strides[d] != 0) axes.push_back({v.strides[d], v.sizes[d]});
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  return axes;
}

struct Interval {
  int64_t lo, hi;  // first element, one behind the last
};

Interval interval_of(const View& v, const std::vector<Axis>& axes) {
  Interval i{v.offset, v.offset + 1};
  for (const Axis& a : axes) (a.stride > 0 ? i.hi : i.lo) += a.stride * (a.size - 1);
  return i;
}

// Every element of the interval, each once.
bool dense(const std::vector<Axis>& axes) {
  int64_t run = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    if (axes[i].stride != run) return false;
    run *= axes[i].size;
  }
  return true;
}

// Both views as intervals of digits in one number system, whose digits weigh as much as the strides of either.
// Nothing when a digit would carry or a stride is no multiple of the next.
struct Digits {
  bool known = false, disjoint = false, covers = true;
};
Digits compare_digits(const View& first, const std::vector<Axis>& a, const View& second,
                      const std::vector<Axis>& b) {
  Digits result;
  std::vector<int64_t> weights{1};
  for (const Axis& x : a) weights.push_back(x.stride);
  for (const Axis& x : b) weights.push_back(x.stride);
  if (std::any_of(weights.begin(), weights.end(), [](int64_t w) { return w <= 0; })) return result;
  std::sort(weights.begin(), weights.end(), std::greater<>());
  weights.erase(std::unique(weights.begin(), weights.end()), weights.end());
  int64_t rest_first = first.offset, rest_second = second.offset;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (i > 0 && weights[i - 1] % weights[i] != 0) return result;
    auto digits = [&](const std::vector<Axis>& axes, int64_t& rest) {
      int64_t size = 1;
      for (const Axis& x : axes) {
        if (x.stride == weights[i]) size += x.size - 1;
      }
      const int64_t at = rest / weights[i];
      rest %= weights[i];
      return Interval{at, at + size};
    };
    const Interval x = digits(a, rest_first), y = digits(b, rest_second);
    if (i > 0) {
      const int64_t capacity = weights[i - 1] / weights[i];
      if (x.hi > capacity || y.hi > capacity) return result;
    }
    result.disjoint = result.disjoint || x.hi <= y.lo || y.hi <= x.lo;
    result.covers = result.covers && x.lo <= y.lo && y.hi <= x.hi;
  }
  result.known = true;
  return result;
}

}  // namespace

Meeting meet(const View& first, const View& second) {
  if (first.numel() == 0 || second.numel() == 0) return Meeting::kDisjoint;
  if (isa::dtype_bytes(first.dtype) != isa::dtype_bytes(second.dtype)) return Meeting::kOverlap;
  const std::vector<Axis> a = moving_axes(first), b = moving_axes(second);
  const Interval x = interval_of(first, a), y = interval_of(second, b);
  if (x.hi <= y.lo || y.hi <= x.lo) return Meeting::kDisjoint;
  if (dense(a) && x.lo <= y.lo && y.hi <= x.hi) return Meeting::kCovers;
  const Digits digits = compare_digits(first, a, second, b);
  if (!digits.known) return Meeting::kOverlap;
  return digits.disjoint ? Meeting::kDisjoint : digits.covers ? Meeting::kCovers : Meeting::kOverlap;
}

bool is_injective(const View& v) {
  int64_t reach = 0;  // of the axes further in
  std::vector<Axis> axes;
  for (size_t d = 0; d < v.sizes.size(); ++d) {
    if (v.sizes[d] > 1) axes.push_back({std::max(v.strides[d], -v.strides[d]), v.sizes[d]});
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  for (const Axis& a : axes) {
    if (a.stride <= reach) return false;
    reach += a.stride * (a.size - 1);
  }
  return true;
}

int64_t distinct_elements(const View& v) {
  int64_t n = 1;
  for (size_t d = 0; d < v.sizes.size(); ++d) {
    if (v.strides[d] != 0 || v.sizes[d] == 0) n *= v.sizes[d];
  }
  return n;
}

}  // namespace trnsim::compiler::fusion
