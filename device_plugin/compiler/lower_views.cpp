#include <algorithm>

#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler {
namespace {
void check_axis(const View& v, int dim) {
  if (dim < 0 || dim >= static_cast<int>(v.sizes.size())) {
    throw_internal("axis " + std::to_string(dim) + " of a view of rank " + std::to_string(v.sizes.size()));
  }
}
}  // namespace

View view_at_least_1d(const View& v) { return v.sizes.empty() ? view_unsqueezed(v, 0) : v; }

int64_t wrap_dim(int64_t dim, int64_t rank) {
  int64_t n = std::max<int64_t>(rank, 1);
  if (dim < -n || dim >= n) {
    throw_user_error("dimension " + std::to_string(dim) + " is out of range for a tensor of rank " +
                     std::to_string(rank));
  }
  return dim < 0 ? dim + n : dim;
}

View view_permuted(const View& v, const std::vector<int>& order) {
  View out = v;
  out.sizes.clear();
  out.strides.clear();
  for (int d : order) {
    out.sizes.push_back(v.sizes[static_cast<size_t>(d)]);
    out.strides.push_back(v.strides[static_cast<size_t>(d)]);
  }
  return out;
}

View view_expanded(const View& v, const std::vector<int64_t>& sizes) {
  if (v.sizes.size() > sizes.size()) throw_internal("a view has more axes than the shape it is expanded to");
  View out = v;
  size_t lead = sizes.size() - v.sizes.size();
  out.sizes = sizes;
  out.strides.assign(sizes.size(), 0);
  for (size_t d = 0; d < v.sizes.size(); ++d) {
    if (v.sizes[d] == sizes[lead + d]) {
      out.strides[lead + d] = v.sizes[d] == 1 ? 0 : v.strides[d];
    } else if (v.sizes[d] != 1) {
      throw_internal("size " + std::to_string(v.sizes[d]) + " does not broadcast to " +
                     std::to_string(sizes[lead + d]));
    }
  }
  return out;
}

View view_unsqueezed(const View& v, int dim, int64_t size) {
  View out = v;
  out.sizes.insert(out.sizes.begin() + dim, size);
  out.strides.insert(out.strides.begin() + dim, 0);
  return out;
}

View view_selected(const View& v, int dim, int64_t index) {
  check_axis(v, dim);
  View out = v;
  out.offset += index * v.strides[static_cast<size_t>(dim)];
  out.sizes.erase(out.sizes.begin() + dim);
  out.strides.erase(out.strides.begin() + dim);
  return out;
}

View view_sliced(const View& v, int dim, int64_t start, int64_t length, int64_t step) {
  check_axis(v, dim);
  View out = v;
  size_t d = static_cast<size_t>(dim);
  out.offset += start * v.strides[d];
  out.sizes[d] = length;
  out.strides[d] = v.strides[d] * step;
  return out;
}

View view_split_dim(const View& v, int dim, int64_t inner) {
  check_axis(v, dim);
  View out = v;
  size_t d = static_cast<size_t>(dim);
  out.sizes[d] = inner ? v.sizes[d] / inner : 0;
  out.strides[d] = v.strides[d] * inner;
  out.sizes.insert(out.sizes.begin() + dim + 1, inner);
  out.strides.insert(out.strides.begin() + dim + 1, v.strides[d]);
  return out;
}

View view_flipped(const View& v, int dim) {
  check_axis(v, dim);
  View out = v;
  size_t d = static_cast<size_t>(dim);
  out.offset += std::max<int64_t>(v.sizes[d] - 1, 0) * v.strides[d];
  out.strides[d] = -v.strides[d];
  return out;
}

View view_diagonal(const View& v) {
  View out = v;
  size_t r = v.sizes.size();
  out.sizes.resize(r - 1);
  out.strides.resize(r - 1);
  out.sizes[r - 2] = std::min(v.sizes[r - 2], v.sizes[r - 1]);
  out.strides[r - 2] = v.strides[r - 2] + v.strides[r - 1];
  return out;
}

View view_as_dtype(View v, Dtype dtype) {
  v.dtype = dtype;
  return v;
}

bool view_empty(const View& v) { return v.numel() == 0; }

bool view_contiguous(const View& v) {
  int64_t expect = 1;
  for (size_t d = v.sizes.size(); d-- > 0;) {
    if (v.sizes[d] != 1 && v.strides[d] != expect) return false;
    expect *= v.sizes[d];
  }
  return true;
}

std::optional<View> view_reshaped(const View& v, const std::vector<int64_t>& sizes) {
  View out = v;
  out.sizes = sizes;
  out.strides.assign(sizes.size(), 1);
  if (v.numel() == 0) return out;
  // Maximal runs of old axes, innermost first; every run has to be cut into whole new axes.
  struct Run {
    int64_t size, step;
  };
  std::vector<Run> runs;
  for (size_t d = v.sizes.size(); d-- > 0;) {
    if (v.sizes[d] == 1) continue;
    if (!runs.empty() && v.strides[d] == runs.back().size * runs.back().step) {
      runs.back().size *= v.sizes[d];
    } else {
      runs.push_back({v.sizes[d], v.strides[d]});
    }
  }
  size_t d = sizes.size();
  for (const Run& run : runs) {
    int64_t filled = 1;
    while (filled < run.size) {
      if (d == 0) return std::nullopt;
      --d;
      out.strides[d] = run.step * filled;
      filled *= sizes[d];
    }
    if (filled != run.size) return std::nullopt;
  }
  while (d-- > 0) {
    if (sizes[d] != 1) return std::nullopt;
    out.strides[d] = 0;
  }
  return out;
}

std::vector<int64_t> broadcast_sizes(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> out = a.size() >= b.size() ? a : b;
  const std::vector<int64_t>& other = a.size() >= b.size() ? b : a;
  size_t lead = out.size() - other.size();
  for (size_t d = 0; d < other.size(); ++d) {
    int64_t& o = out[lead + d];
    if (o == 1) {
      o = other[d];
    } else if (other[d] != 1 && other[d] != o) {
      throw_user_error("sizes " + std::to_string(o) + " and " + std::to_string(other[d]) +
                       " do not broadcast");
    }
  }
  return out;
}

Reduction::Reduction(const std::vector<int64_t>& sizes, const std::vector<int64_t>& dims,
                     bool empty_means_all) {
  int rank = static_cast<int>(sizes.size());
  reduced.assign(sizes.size(), dims.empty() && empty_means_all);
  for (int64_t d : dims) {
    size_t w = static_cast<size_t>(wrap_dim(d, rank));
    if (w < reduced.size()) reduced[w] = true;
  }
  for (int d = 0; d < rank; ++d) {
    if (!reduced[static_cast<size_t>(d)]) order.push_back(d);
  }
  num_kept = static_cast<int>(order.size());
  for (int d = 0; d < rank; ++d) {
    if (reduced[static_cast<size_t>(d)]) order.push_back(d);
  }
  for (int d : order) domain.push_back(sizes[static_cast<size_t>(d)]);
}

View Reduction::full(const View& v) const {
  std::vector<int64_t> sizes(order.size());
  for (size_t i = 0; i < order.size(); ++i) sizes[static_cast<size_t>(order[i])] = domain[i];
  return view_permuted(view_expanded(v, sizes), order);
}

View Reduction::row(const View& v) const {
  if (static_cast<int>(v.sizes.size()) == num_kept && v.sizes.size() != order.size()) return v;
  View out = v;
  out.sizes.clear();
  out.strides.clear();
  for (int i = 0; i < num_kept; ++i) {
    size_t d = static_cast<size_t>(order[static_cast<size_t>(i)]);
    out.sizes.push_back(v.sizes.at(d));
    out.strides.push_back(v.strides.at(d));
  }
  return out;
}

}  // namespace trnsim::compiler
