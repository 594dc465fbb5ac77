// Small helpers shared by the tilers of dot, conv, window, top, gather, scatter and random.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "device_plugin/compiler/kernels.h"
#include "device_plugin/compiler/tile.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {

constexpr int64_t kPartitions = isa::kMaxPartitions;
constexpr int64_t kPsumColumns = isa::kPsumBankBytes / 4;  // FP32 columns of one PSUM bank

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
// `extent` in as few parts of at most `max` as there can be, of nearly one size: how large.
constexpr int64_t balanced(int64_t extent, int64_t max) { return ceil_div(extent, ceil_div(extent, max)); }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
// Floor division and its remainder for any sign of a (b > 0).
constexpr int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
constexpr int64_t floor_mod(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }

// A strided window on the buffer of `base`, at `delta` elements from its start.
inline View window_of(const View& base, int64_t delta, std::vector<int64_t> sizes,
                      std::vector<int64_t> strides) {
  View v;
  v.buffer = base.buffer;
  v.dtype = base.dtype;
  v.offset = base.offset + delta;
  v.sizes = std::move(sizes);
  v.strides = std::move(strides);
  return v;
}

// An SBUF/PSUM access with another list of (step, size) free dims, `delta` elements from the start of `a`.
inline Access with_dims(const Access& a, int64_t delta,
                        const std::vector<std::pair<int64_t, int64_t>>& dims) {
  Access r = a;
  r.offset += delta * static_cast<int64_t>(isa::dtype_bytes(a.dtype));
  r.num_dims = static_cast<uint8_t>(dims.size());
  r.step = {};
  r.size = {};
  for (size_t i = 0; i < dims.size(); ++i) {
    r.step[i] = dims[i].first;
    r.size[i] = static_cast<uint32_t>(dims[i].second);
  }
  return r;
}

// A descriptor has dims for every axis of more than one element.
template <typename Sizes>
bool fits_descriptor(const Sizes& sizes) {
  return std::count_if(std::begin(sizes), std::end(sizes), [](int64_t s) { return s > 1; }) <=
         static_cast<int64_t>(isa::kMaxDims);
}

// A run of `count` elements, `begin` elements from the start of a tile.
inline Access columns_of(const Access& a, int64_t begin, int64_t count) {
  return with_dims(a, begin, {{1, count}});
}

// Same bytes under another dtype of the same width.
inline Access reinterpret(const Access& a, Dtype dtype) {
  Access r = a;
  r.dtype = dtype;
  return r;
}

// A context that can be extended with scratch buffers usable as Views, so that a tiler can call another
// tiler.
class LocalContext {
 public:
  explicit LocalContext(const KernelContext& context) : base_(context) {
    for (const Buffer& b : context.list->buffers) {
      Buffer copy;  // without the constant's contents
      copy.kind = b.kind;
      copy.dtype = b.dtype;
      copy.elements = b.elements;
      copy.index = b.index;
      copy.alias_input = b.alias_input;
      list_.buffers.push_back(std::move(copy));
    }
    list_.name = context.list->name;
    list_.num_params = context.list->num_params;
    context_ = context;
    context_.list = &list_;
  }
  LocalContext(const LocalContext&) = delete;
  LocalContext& operator=(const LocalContext&) = delete;

  const KernelContext& context() const { return context_; }

  // A new scratch tensor as a contiguous view of `sizes`.
  View scratch(TileBuilder& tile, Dtype dtype, std::vector<int64_t> sizes) {
    View v;
    v.dtype = dtype;
    v.sizes = std::move(sizes);
    v.strides.assign(v.sizes.size(), 1);
    for (size_t i = v.sizes.size(); i-- > 1;) v.strides[i - 1] = v.strides[i] * v.sizes[i];
    v.buffer = static_cast<int32_t>(list_.buffers.size());
    Buffer b;
    b.kind = Buffer::Kind::kScratch;
    b.dtype = dtype;
    b.elements = v.numel();
    list_.buffers.push_back(b);
    context_.tensors.push_back(base_.scratch(tile, dtype, b.elements));
    return v;
  }

 private:
  const KernelContext& base_;
  KernelList list_;
  KernelContext context_;
};

// True when elements of the view in row-major order are one dense run.
inline bool is_dense(const View& v) {
  int64_t expect = 1;
  for (size_t i = v.sizes.size(); i-- > 0;) {
    if (v.sizes[i] != 1 && v.strides[i] != expect) return false;
    expect *= v.sizes[i];
  }
  return true;
}

}  // namespace trnsim::compiler
