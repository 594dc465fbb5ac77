// Positions: what is nonzero, masked or repeated. The number of results is counted on the device and read back; the
// results are computed there.
#include "device_plugin/aten/composites_indexing.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "device_plugin/aten/composite_kernel.h"

namespace trnsim::aten {

using at::Tensor;

Tensor counting(int64_t n, const Tensor& like) { return at::arange(n, like.options().dtype(at::kLong)); }

Tensor true_positions(const Tensor& mask) {
  const int64_t n = mask.numel();
  if (n == 0) return at::empty({0}, mask.options().dtype(at::kLong));
  const Tensor rank = mask.cumsum(0);
  const auto count = rank.select(0, n - 1).item<int64_t>();
  // False elements go to a place behind the last one.
  const Tensor place = at::where(mask, rank - 1, at::full({}, count, rank.options()));
  return at::empty({count + 1}, rank.options()).scatter_(0, place, counting(n, mask)).narrow(0, 0, count);
}

namespace {

Tensor flat_mask(const Tensor& self) {
  return (self.scalar_type() == at::kBool ? self : self.ne(0)).reshape({-1});
}

Tensor coordinates(const Tensor& self) {
  Tensor position = true_positions(flat_mask(self));
  std::vector<Tensor> columns(static_cast<size_t>(self.dim()));
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    const int64_t size = std::max<int64_t>(self.size(d), 1);
    columns[static_cast<size_t>(d)] = d == 0 ? position : position.remainder(size);
    if (d > 0) position = at::floor_divide(position, size);
  }
  if (columns.empty()) return at::empty({position.size(0), 0}, position.options());
  return at::stack(columns, 1);
}

Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill_value) {
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  const Tensor found = coordinates(self);
  if (found.size(0) >= size) return found.narrow(0, 0, size).clone();
  return at::cat({found, at::full({size - found.size(0), found.size(1)}, fill_value, found.options())}, 0);
}

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  auto [expanded_mask, expanded] = at::expand_outplace(mask, self);
  return expanded->reshape({-1}).index_select(0, true_positions(flat_mask(*expanded_mask)));
}

Tensor put(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  if (index.numel() == 0) return self.clone();
  c10::List<std::optional<Tensor>> indices;
  indices.push_back(index.reshape({-1}));
  return at::index_put(self.reshape({-1}), indices, source.reshape({-1}), accumulate).reshape(self.sizes());
}

Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK_NOT_IMPLEMENTED(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
                              "\"repeat_interleave_cpu\" not implemented for '", repeats.scalar_type(), "'");
  if (repeats.size(0) == 0) return at::empty_like(repeats);
  TORCH_CHECK(repeats.min().item<int64_t>() >= 0, "repeats can not be negative");
  const Tensor ends = repeats.cumsum(0);
  const int64_t total = output_size ? *output_size : ends.select(0, -1).item<int64_t>();
  return at::searchsorted(ends, counting(total, repeats), false, /*right=*/true).to(repeats.scalar_type());
}

// Row r of the lower triangle has r + 1 + offset elements, that of the upper one begins at column r + offset; all
// within the row.
Tensor triangle_indices(bool lower, int64_t row, int64_t col, int64_t offset,
                        const at::TensorOptions& options) {
  TORCH_CHECK(row >= 0, "row must be non-negative, got", row);
  TORCH_CHECK(col >= 0, "col must be non-negative, got", col);
  int64_t total = 0;
  for (int64_t r = 0; r < row; ++r)
    total +=
        lower ? std::clamp<int64_t>(r + 1 + offset, 0, col) : col - std::clamp<int64_t>(r + offset, 0, col);
  const at::TensorOptions integers = options.dtype(at::kLong);
  if (total == 0) return at::empty({2, 0}, options);
  const Tensor rows = at::arange(row, integers);
  const Tensor begin = lower ? at::zeros_like(rows) : (rows + offset).clamp(0, col);
  const Tensor length = lower ? (rows + (offset + 1)).clamp(0, col) : col - begin;
  const Tensor end = length.cumsum(0), element = at::arange(total, integers);
  const Tensor r = at::searchsorted(end, element, false, /*right=*/true);
  const Tensor c = element - (end - length - begin).index_select(0, r);
  return at::stack({r, c}).to(options.dtype().toScalarType());
}

at::TensorOptions options_of(std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                             std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return at::TensorOptions()
      .dtype(dtype.value_or(at::kLong))
      .layout(layout)
      .device(device)
      .pinned_memory(pin_memory);
}

Tensor tril_indices(int64_t row, int64_t col, int64_t offset, std::optional<c10::ScalarType> dtype,
                    std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                    std::optional<bool> pin_memory) {
  return triangle_indices(true, row, col, offset, options_of(dtype, layout, device, pin_memory));
}

Tensor triu_indices(int64_t row, int64_t col, int64_t offset, std::optional<c10::ScalarType> dtype,
                    std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                    std::optional<bool> pin_memory) {
  return triangle_indices(false, row, col, offset, options_of(dtype, layout, device, pin_memory));
}

Tensor narrow_copy(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  return self.narrow(dim, start, length).clone(at::MemoryFormat::Contiguous);
}

// The derivative of a step; its zeros are stored here.
Tensor zeros(at::IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
             std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return at::zeros(sizes,
                   at::TensorOptions().dtype(dtype).layout(layout).device(device).pinned_memory(pin_memory));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_efficientzerotensor", &zeros);
  m.impl("tril_indices", &tril_indices);
  m.impl("triu_indices", &triu_indices);
}

}  // namespace

Composites indexing_composites() {
  return {composite("aten::nonzero", &coordinates),
          composite("aten::nonzero_static", &nonzero_static),
          composite("aten::masked_select", &masked_select),
          composite("aten::put", &put),
          composite("aten::repeat_interleave.Tensor", &repeat_interleave, {.trial = Trial::kNone}),
          composite("aten::narrow_copy", &narrow_copy, {.trial = Trial::kNone})};
}

}  // namespace trnsim::aten
