// Buffers, strided views of HBM and the merging of axes: what all tilers share.
#include <algorithm>
#include <numeric>

#include "device_plugin/compiler/fusion/uses.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {

using isa::Space;
using isa::TensorKind;

KernelContext bind_buffers(const KernelList& list, TileBuilder& tile) {
  KernelContext context;
  context.list = &list;
  if (list.num_params > 0) tile.tensor("params", TensorKind::kInput, Dtype::kI32, {list.num_params});
  for (size_t i = 0; i < list.buffers.size(); ++i) {
    const Buffer& b = list.buffers[i];
    std::string name;
    TensorKind kind = TensorKind::kScratch;
    switch (b.kind) {
      case Buffer::Kind::kInput:
        name = "in" + std::to_string(b.index);
        kind = TensorKind::kInput;
        break;
      case Buffer::Kind::kOutput:
        name = "out" + std::to_string(b.index);
        kind = TensorKind::kOutput;
        break;
      case Buffer::Kind::kScratch:
        name = "scratch" + std::to_string(i);
        break;
      case Buffer::Kind::kConstant:
        name = "const" + std::to_string(i);
        kind = TensorKind::kConstant;
        break;
    }
    context.tensors.push_back(tile.tensor(name, kind, b.dtype, {b.elements}, 0, b.constant));
  }
  const std::vector<int> memory = fusion::memory_of_buffers(list.buffers);
  for (size_t i = 0; i < memory.size(); ++i) {
    const auto owner = static_cast<size_t>(memory[i]);
    if (owner != i) tile.alias(context.tensors[owner], context.tensors[i]);
  }
  return context;
}

Access KernelContext::scratch(TileBuilder& tile, Dtype dtype, int64_t elements) const {
  return tile.tensor("tmp" + std::to_string(tile.num_tensors()), TensorKind::kScratch, dtype, {elements});
}

View view_slice(const View& view, int axis, int64_t begin, int64_t count) {
  View v = view;
  if (axis < 0 || axis >= static_cast<int>(v.sizes.size()) || begin < 0 || begin + count > v.sizes[axis]) {
    throw_internal("slice of a view out of range");
  }
  v.offset += begin * v.strides[axis];
  v.sizes[axis] = count;
  return v;
}

View view_permute(const View& view, const std::vector<int>& order) {
  View v = view;
  for (size_t i = 0; i < order.size(); ++i) {
    v.sizes[i] = view.sizes.at(order[i]);
    v.strides[i] = view.strides.at(order[i]);
  }
  return v;
}

std::vector<int64_t> merge_axes(std::vector<View>& views, std::vector<int>* group) {
  if (views.empty()) return {};
  std::vector<int64_t> sizes;
  std::vector<int> groups;
  std::vector<std::vector<int64_t>> strides(views.size());
  const std::vector<int64_t> full = views[0].sizes;
  for (size_t d = 0; d < full.size(); ++d) {
    if (full[d] == 1) continue;
    int g = group ? (*group)[d] : 0;
    bool merge = !sizes.empty() && groups.back() == g;
    for (size_t v = 0; v < views.size() && merge; ++v) {
      merge = strides[v].back() == views[v].strides[d] * full[d];
    }
    for (size_t v = 0; v < views.size(); ++v) {
      if (merge) {
        strides[v].back() = views[v].strides[d];
      } else {
        strides[v].push_back(views[v].strides[d]);
      }
    }
    if (merge) {
      sizes.back() *= full[d];
    } else {
      sizes.push_back(full[d]);
      groups.push_back(g);
    }
  }
  for (size_t v = 0; v < views.size(); ++v) {
    views[v].sizes = sizes;
    views[v].strides = strides[v];
  }
  if (group) *group = groups;
  return sizes;
}

Access hbm_view_exact(const KernelContext& context, const View& view) {
  if (view.sizes.size() > isa::kMaxDims) throw_internal("a view of more than 5 dims in one descriptor");
  const Access& whole = context.tensors.at(view.buffer);
  Access a;
  a.space = Space::kHbm;
  a.tensor = whole.tensor;
  a.dtype = view.dtype;
  a.offset = whole.offset + view.offset * static_cast<int64_t>(isa::dtype_bytes(view.dtype));
  a.num_dims = static_cast<uint8_t>(view.sizes.size());
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.sizes[i] < 1) throw_internal("an empty view in a descriptor");
    a.size[i] = static_cast<uint32_t>(view.sizes[i]);
    a.step[i] = view.strides[i];
  }
  return a;
}

Access hbm_view(const KernelContext& context, const View& view) {
  std::vector<View> one{view};
  merge_axes(one);
  if (one[0].sizes.size() > isa::kMaxDims) {
    throw_unsupported("a strided view that needs " + std::to_string(one[0].sizes.size()) +
                      " dims in one DMA descriptor (at most 5)");
  }
  return hbm_view_exact(context, one[0]);
}

}  // namespace trnsim::compiler
