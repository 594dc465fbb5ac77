// Small helpers on tensors of the device.
#pragma once

#include <ATen/core/Tensor.h>

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

// Device-to-device copy with cast, broadcast already resolved (equal sizes).
void device_copy(const at::Tensor& destination, const at::Tensor& source);

}  // namespace trnsim::aten
