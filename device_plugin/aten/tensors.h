// Small helpers on tensors of the device.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>

#include <optional>

#include "device_plugin/aten/plan.h"

namespace trnsim::aten {

inline bool on_device(const at::TensorBase& t) { return t.device().type() == c10::DeviceType::PrivateUse1; }

inline bool given(const std::optional<at::Tensor>& t) { return t.has_value() && t->defined(); }

// `value` where `keep`, zero elsewhere.
at::Tensor zero_unless(const at::Tensor& keep, const at::Tensor& value);

// A tensor of its own storage, nothing written.
at::Tensor empty_on(c10::DeviceIndex device, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                    c10::ScalarType dtype);
at::Tensor empty_contiguous_on(c10::DeviceIndex device, c10::IntArrayRef sizes, c10::ScalarType dtype);

// CPU tensor over the same mapped memory, without a copy. The caller has waited for the queue and keeps `t`
// alive.
at::Tensor host_view(const at::Tensor& t);

// Device tensor over part of another's storage.
at::Tensor view_on_device(const at::Tensor& base, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                          int64_t storage_offset);

Slice slice_of(const at::TensorBase& t);  // the tensor must have elements
size_t tensor_extent_bytes(const at::TensorBase& t);
TensorMeta meta_of(const at::TensorBase& t);
bool non_overlapping_and_dense(const at::TensorBase& t);

// A list of tensors with every one replaced; nothing for another value. The schema's element type decides: TorchScript
// refines that of a value ("Tensor of float", "None"), and then is*TensorList() denies it.
template <typename Replace>
std::optional<c10::IValue> replace_tensors(const c10::IValue& v, const Replace& replace) {
  if (!v.isList()) return std::nullopt;
  const c10::TypePtr type = v.toList().elementType();
  if (type->kind() == c10::TypeKind::TensorType) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& e : v.toListRef()) list.push_back(replace(e.toTensor()));
    return list;
  }
  if (type->kind() == c10::TypeKind::NoneType ||
      (type->kind() == c10::TypeKind::OptionalType &&
       type->expectRef<c10::OptionalType>().getElementType()->kind() == c10::TypeKind::TensorType)) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& e : v.toListRef())
      list.push_back(e.isNone() ? std::optional<at::Tensor>() : replace(e.toTensor()));
    return list;
  }
  return std::nullopt;
}

// Device-to-device copy with cast, broadcast already resolved (equal sizes).
void device_copy(const at::Tensor& destination, const at::Tensor& source);

}  // namespace trnsim::aten
