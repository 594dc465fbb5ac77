// Sets and histograms: sorted runs of equal elements, and counts per bin.
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "device_plugin/aten/composite_kernel.h"
#include "device_plugin/aten/composites_indexing.h"

namespace trnsim::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Unique = std::tuple<Tensor, Tensor, Tensor>;  // values, inverse, counts

Tensor no_indices(const Tensor& self) { return at::empty({0}, self.options().dtype(at::kLong)); }

// What sorts: bool has no order of its own on the device.
Tensor sortable(const Tensor& t) { return t.scalar_type() == at::kBool ? t.to(at::kByte) : t; }

// The number of the run that each of `starts.size(0)` elements belongs to, and where the runs begin.
struct Runs {
  explicit Runs(const Tensor& starts) : begin(true_positions(starts)), of(starts.cumsum(0) - 1) {}
  Tensor counts() const {
    const Tensor end = at::full({1}, of.size(0), begin.options());
    return at::cat({begin.slice(0, 1), end}) - begin;
  }
  Tensor begin, of;
};

// True where a row differs from the one before it; `rows` is [n, ..] with n > 0.
Tensor run_starts(const Tensor& rows) {
  Tensor differs = rows.slice(0, 1).ne(rows.slice(0, 0, -1));
  if (differs.dim() > 1) differs = differs.reshape({differs.size(0), -1}).any(1);
  return at::cat({at::ones({1}, differs.options()), differs});
}

// Positions of elements before the sort, given those after it.
Tensor unsorted(const Tensor& values, const Tensor& order) {
  return at::empty_like(values).scatter_(0, order, values);
}

Unique unique(const Tensor& self, bool /*sorted*/, bool return_inverse, bool return_counts) {
  if (self.numel() == 0) {
    const Tensor none = no_indices(self);
    return {at::empty({0}, self.options()), return_inverse ? at::empty(self.sizes(), none.options()) : none,
            none};
  }
  auto [values, order] = sortable(self.reshape({-1})).sort();
  const Runs runs(run_starts(values));
  return {values.index_select(0, runs.begin).to(self.scalar_type()),
          return_inverse ? unsorted(runs.of, order).reshape(self.sizes()) : no_indices(self),
          return_counts ? runs.counts() : no_indices(self)};
}

std::tuple<Tensor, Tensor> unique_pair(const Tensor& self, bool sorted, bool return_inverse) {
  auto [values, inverse, counts] = unique(self, sorted, return_inverse, false);
  return {values, inverse};
}

// Along `dim`: whole slices, seen as rows.
struct Rows {
  Rows(const Tensor& self, int64_t dimension) : dim(at::maybe_wrap_dim(dimension, self.dim())) {
    moved = self.movedim(dim, 0);
    flat = moved.reshape({moved.size(0), moved.size(0) == 0 ? 0 : moved.numel() / moved.size(0)});
  }
  Tensor selected(const Tensor& index) const {
    return moved.index_select(0, index).movedim(0, dim).contiguous();
  }
  int64_t dim;
  Tensor moved, flat;
};

Unique unique_dim(const Tensor& self, int64_t dim, bool /*sorted*/, bool return_inverse, bool return_counts) {
  const Rows rows(self, dim);
  if (rows.flat.size(0) == 0) return {self.clone(), no_indices(self), no_indices(self)};
  // Lexicographic: stable sorts by every column, the last one first.
  const Tensor keys = sortable(rows.flat);
  Tensor order = counting(keys.size(0), self);
  for (int64_t c = keys.size(1) - 1; c >= 0; --c) {
    const Tensor column = keys.select(1, c).index_select(0, order);
    order = order.index_select(0, column.argsort(/*stable=*/true, 0, false));
  }
  const Runs runs(run_starts(rows.flat.index_select(0, order)));
  return {rows.selected(order.index_select(0, runs.begin)),
          return_inverse ? unsorted(runs.of, order) : no_indices(self),
          return_counts ? runs.counts() : no_indices(self)};
}

Unique consecutive_slices(const Tensor& self, int64_t dim, bool return_inverse, bool return_counts) {
  const Rows rows(self, dim);
  if (rows.flat.size(0) == 0) return {self.clone(), no_indices(self), no_indices(self)};
  const Runs runs(run_starts(rows.flat));
  return {rows.selected(runs.begin), return_inverse ? runs.of : no_indices(self),
          return_counts ? runs.counts() : no_indices(self)};
}

Unique unique_consecutive(const Tensor& self, bool return_inverse, bool return_counts,
                          std::optional<int64_t> dim) {
  if (dim) return consecutive_slices(self, *dim, return_inverse, return_counts);
  if (self.numel() == 0) return unique(self, true, return_inverse, return_counts);
  const Tensor flat = self.reshape({-1});
  const Runs runs(run_starts(flat));
  return {flat.index_select(0, runs.begin), return_inverse ? runs.of.reshape(self.sizes()) : no_indices(self),
          return_counts ? runs.counts() : no_indices(self)};
}

// ---- counts per bin
// ----------------------------------------------------------------------------------------------

// The smallest and the largest element, read back at once.
template <class T>
std::pair<T, T> extremes(const Tensor& values) {
  const auto [low, high] = at::aminmax(values);
  const Tensor both = at::stack({low, high}).cpu();
  return {both[0].item<T>(), both[1].item<T>()};
}

Tensor bincount(const Tensor& self, const OptionalTensor& weights, int64_t minlength) {
  const bool weighted = weights && weights->defined();
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(self.scalar_type(), false),
                              "\"bincount_cpu\" not implemented for '", self.scalar_type(), "'");
  const c10::ScalarType type = !weighted                              ? at::kLong
                               : weights->scalar_type() == at::kFloat ? at::kFloat
                                                                      : at::kDouble;
  int64_t bins = minlength;
  if (self.numel() > 0) {
    const auto [low, high] = extremes<int64_t>(self);
    TORCH_CHECK(low >= 0, "bincount only supports 1-d non-negative integral inputs.");
    bins = std::max(bins, high + 1);
  }
  const Tensor counts = at::zeros({bins}, self.options().dtype(type));
  if (self.numel() == 0) return counts;
  const Tensor ones = at::ones({}, counts.options()).expand(self.sizes());
  return counts.index_add(0, self.to(at::kLong), weighted ? weights->to(type) : ones);
}

using Edges = std::vector<Tensor>;
using Range = std::optional<at::ArrayRef<double>>;

// Bounds of dimension d of the points: given, or those of the data. Equal bounds are half a unit apart from it.
std::pair<double, double> bounds(const Tensor& points, int64_t d, const Range& range) {
  double low = 0, high = 1;
  if (range && !range->empty()) {
    low = (*range)[static_cast<size_t>(2 * d)];
    high = (*range)[static_cast<size_t>(2 * d + 1)];
    TORCH_CHECK(low <= high, "torch.histogramdd: min should not exceed max, but got min ", low, " max ", high,
                " for dimension ", d);
  } else if (points.size(0) > 0) {
    std::tie(low, high) = extremes<double>(points.select(1, d));
  }
  TORCH_CHECK(std::isfinite(low) && std::isfinite(high), "torch.histogramdd: dimension ", d, "'s range [",
              low, ", ", high, "] is not finite");
  if (low == high) {
    low -= 0.5;
    high += 0.5;
  }
  return {low, high};
}

Edges even_edges(const Tensor& points, at::IntArrayRef bins, const Range& range) {
  TORCH_CHECK(static_cast<int64_t>(bins.size()) == points.size(1),
              "torch.histogramdd: The size of bins must be equal to the innermost dimension of the input.");
  Edges edges;
  for (int64_t d = 0; d < points.size(1); ++d) {
    TORCH_CHECK(bins[static_cast<size_t>(d)] > 0, "torch.histogramdd: bins must be > 0, but got ",
                bins[static_cast<size_t>(d)], " for dimension ", d);
    const auto [low, high] = bounds(points, d, range);
    edges.push_back(at::linspace(low, high, bins[static_cast<size_t>(d)] + 1, points.options()));
  }
  return edges;
}

Tensor counted(const Tensor& points, at::TensorList edges, const OptionalTensor& weight, bool density) {
  std::vector<int64_t> sizes;
  Tensor bin, inside;
  for (size_t d = 0; d < edges.size(); ++d) {
    const Tensor edge = edges[d].contiguous(), x = points.select(1, static_cast<int64_t>(d)).contiguous();
    const int64_t bins = edge.size(0) - 1;
    const Tensor in = x.ge(edge.select(0, 0)).logical_and(x.le(edge.select(0, bins)));
    // The last bin holds its right edge too.
    const Tensor i = (at::searchsorted(edge, x, false, /*right=*/true) - 1).clamp(0, bins - 1);
    bin = d == 0 ? i : bin * bins + i;
    inside = d == 0 ? in : inside.logical_and(in);
    sizes.push_back(bins);
  }
  const int64_t total = c10::multiply_integers(sizes);
  Tensor histogram = at::zeros({total}, points.options());
  if (points.size(0) > 0) {
    const Tensor w = weight && weight->defined() ? weight->reshape({-1}).to(points.scalar_type())
                                                 : at::ones({points.size(0)}, points.options());
    histogram = histogram.index_add(0, at::where(inside, bin, at::zeros_like(bin)),
                                    at::where(inside, w, at::zeros_like(w)));
  }
  histogram = histogram.reshape(sizes);
  if (!density) return histogram;
  histogram = histogram / histogram.sum();
  for (size_t d = 0; d < edges.size(); ++d) {
    std::vector<int64_t> shape(edges.size(), 1);
    shape[d] = sizes[d];
    histogram = histogram / edges[d].diff().reshape(shape);
  }
  return histogram;
}

// [.., N] -> [points, N]
Tensor points_of(const Tensor& self) { return self.reshape({-1, self.size(-1)}); }

std::tuple<Tensor, Tensor> histogram_edges(const Tensor& self, const Tensor& bins,
                                           const OptionalTensor& weight, bool density) {
  return {counted(self.reshape({-1, 1}), bins, weight, density), bins.clone()};
}

std::tuple<Tensor, Tensor> histogram_count(const Tensor& self, int64_t bins, Range range,
                                           const OptionalTensor& weight, bool density) {
  const Tensor points = self.reshape({-1, 1});
  const Edges edges = even_edges(points, bins, range);
  return {counted(points, edges, weight, density), edges[0]};
}

std::vector<Tensor> histogramdd_edges(const Tensor& self, at::IntArrayRef bins, Range range,
                                      const OptionalTensor& /*weight*/, bool /*density*/) {
  return even_edges(points_of(self), bins, range);
}

Tensor histogramdd_counts(const Tensor& self, at::IntArrayRef bins, Range range, const OptionalTensor& weight,
                          bool density) {
  const Tensor points = points_of(self);
  return counted(points, even_edges(points, bins, range), weight, density);
}

Tensor histogramdd_tensors(const Tensor& self, at::TensorList bins, const OptionalTensor& weight,
                           bool density) {
  return counted(points_of(self), bins, weight, density);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_histogramdd_bin_edges", &histogramdd_edges);
  m.impl("_histogramdd_from_bin_cts", &histogramdd_counts);
  m.impl("_histogramdd_from_bin_tensors", &histogramdd_tensors);
}

}  // namespace

Composites set_composites() {
  return {composite("aten::_unique2", &unique),
          composite("aten::_unique", &unique_pair),
          composite("aten::unique_dim", &unique_dim),
          composite("aten::unique_consecutive", &unique_consecutive),
          composite("aten::unique_dim_consecutive", &consecutive_slices),
          composite("aten::bincount", &bincount),
          composite("aten::histogram.bins_tensor", &histogram_edges),
          composite("aten::histogram.bin_ct", &histogram_count)};
}

}  // namespace trnsim::aten
