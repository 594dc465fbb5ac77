#include "device_plugin/aten/prepare.h"

#include <ATen/core/Formatting.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/nonzero.h>
#include <c10/util/Exception.h>

#include <optional>
#include <vector>

#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

bool is_mask(const at::Tensor& t) { return t.scalar_type() == at::kBool || t.scalar_type() == at::kByte; }

// Index lists: indices on the host move to the device, masks become the positions of their true elements.
void prepare_indices(c10::Stack& stack, size_t begin, bool keep_masks) {
  const at::Tensor self = stack[begin].toTensor();
  c10::List<std::optional<at::Tensor>> changed;
  bool any = false;
  for (const c10::IValue& v : stack[begin + 1].toListRef()) {
    if (v.isNone() || !v.toTensor().defined()) {
      changed.push_back(std::nullopt);
      continue;
    }
    at::Tensor index = v.toTensor();
    if (index.device() != self.device()) {
      TORCH_CHECK(index.device().is_cpu(),
                  "indices should be either on cpu or on the same device as the indexed "
                  "tensor (",
                  self.device(), ") but found ", index.device());
      index = index.to(self.device());
      any = true;
    }
    if (is_mask(index) && !keep_masks) {
      const auto at_dim = static_cast<int64_t>(changed.size());
      for (int64_t d = 0; d < index.dim(); ++d)
        TORCH_CHECK_INDEX(at_dim + d < self.dim() && index.size(d) == self.size(at_dim + d),
                          "The shape of the mask ", index.sizes(), " at index ", d,
                          " does not match the shape of the indexed tensor ", self.sizes(), " at index ",
                          at_dim + d);
      for (at::Tensor& column : index.nonzero().unbind(1)) changed.push_back(column);
      any = true;
      continue;
    }
    changed.push_back(index);
  }
  if (any) stack[begin + 1] = changed;
}

void prepare_index(c10::Stack& stack, size_t begin) { prepare_indices(stack, begin, false); }

// index_put with masks only and one value is a masked fill, which needs no positions.
void prepare_index_put(c10::Stack& stack, size_t begin) {
  bool masks_only = true;
  for (const c10::IValue& v : stack[begin + 1].toListRef())
    masks_only = masks_only && v.isTensor() && v.toTensor().defined() && is_mask(v.toTensor());
  const at::Tensor& values = stack[begin + 2].toTensor();
  const bool accumulate = stack[begin + 3].toBool();
  prepare_indices(stack, begin, masks_only && values.numel() == 1 && !accumulate);
}

// The tensor engine multiplies operands of one type; PyTorch does not promote them either.
template <size_t kFirst>
void check_same_dtype(c10::Stack& stack, size_t begin) {
  const at::Tensor& a = stack[begin + kFirst].toTensor();
  const at::Tensor& b = stack[begin + kFirst + 1].toTensor();
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "expected both operands of the matrix product to have the same dtype, "
              "but got ",
              a.scalar_type(), " and ", b.scalar_type(), ". Cast one of them.");
}

}  // namespace

PrepareFn prepare_for(const std::string& functional) {
  if (functional == "aten::index.Tensor" || functional == "aten::_unsafe_index.Tensor") return &prepare_index;
  if (functional == "aten::index_put" || functional == "aten::_unsafe_index_put") return &prepare_index_put;
  for (const char* name : {"aten::mm", "aten::bmm", "aten::mv", "aten::dot", "aten::vdot",
                           "aten::convolution", "aten::convolution_overrideable"})
    if (functional == name) return &check_same_dtype<0>;
  for (const char* name : {"aten::addmm", "aten::baddbmm", "aten::addbmm", "aten::addmv", "aten::addr"})
    if (functional == name) return &check_same_dtype<1>;
  return nullptr;
}

}  // namespace trnsim::aten
