// Operators that only touch metadata or storage: empty, views, resize, set.
#include "device_plugin/aten/tensors.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/all.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/item.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>

#include "device_plugin/aten/graph_recorder.h"
#include "device_plugin/aten/queue.h"
#include "device_plugin/aten/storage.h"

namespace trnsim::aten {
namespace {

const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor tensor_on(c10::DeviceIndex device, size_t bytes, c10::ScalarType dtype) {
  if (dtype == at::kComplexHalf) {
    TORCH_WARN_ONCE("ComplexHalf support is experimental and many operators don't support it yet.");
  }
  Recorder* recorder = Recorder::active();
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes,
      recorder != nullptr ? recorder->place(bytes) : allocate_on(device, bytes), &device_allocator(),
      /*resizable=*/true);
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kKeys,
                                                  c10::scalarTypeToTypeMeta(dtype));
}

bool has_elements(c10::IntArrayRef sizes) { return std::find(sizes.begin(), sizes.end(), 0) == sizes.end(); }

void check_factory(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(layout.value_or(c10::Layout::Strided) == c10::Layout::Strided, "not simulated: layout ",
              *layout, " on the neuron device; only strided tensors exist there");
  TORCH_CHECK(!pin_memory.value_or(false),
              "user error: pin_memory=True is for CPU tensors; a neuron tensor is in device memory");
}

c10::DeviceIndex factory_device(std::optional<c10::Device> device) {
  return device ? checked_index(*device) : current_device();
}

// Under torch.use_deterministic_algorithms new memory holds NaN, or the largest integer.
bool fills_new_memory() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

at::Tensor empty_memory_format(c10::SymIntArrayRef sizes_sym, std::optional<c10::ScalarType> dtype,
                               std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<c10::MemoryFormat> memory_format) {
  check_factory(layout, pin_memory);
  const auto sizes = C10_AS_INTARRAYREF_SLOW(sizes_sym);
  at::detail::check_size_nonnegative(sizes);
  at::Tensor result = empty_contiguous_on(factory_device(device), sizes, c10::dtype_or_default(dtype));
  if (memory_format && *memory_format != c10::MemoryFormat::Contiguous &&
      *memory_format != c10::MemoryFormat::Preserve)
    result.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  if (fills_new_memory()) at::native::fill_empty_deterministic_(result);
  return result;
}

at::Tensor empty_strided(c10::SymIntArrayRef sizes_sym, c10::SymIntArrayRef strides_sym,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                         std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_factory(layout, pin_memory);
  const auto sizes = C10_AS_INTARRAYREF_SLOW(sizes_sym);
  const auto strides = C10_AS_INTARRAYREF_SLOW(strides_sym);
  at::detail::check_size_nonnegative(sizes);
  TORCH_CHECK(sizes.size() == strides.size(), "dimensionality of sizes (", sizes.size(),
              ") must match dimensionality of strides (", strides.size(), ")");
  for (int64_t s : strides) TORCH_CHECK(s >= 0, "negative strides are not supported: ", strides);
  at::Tensor result = empty_on(factory_device(device), sizes, strides, c10::dtype_or_default(dtype));
  if (fills_new_memory()) at::native::fill_empty_deterministic_(result);
  return result;
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                      std::optional<c10::SymInt> offset) {
  std::optional<int64_t> plain_offset;
  if (offset) plain_offset = offset->expect_int();
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(sizes),
                                           C10_AS_INTARRAYREF_SLOW(strides), plain_offset);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef sizes) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes));
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef sizes_sym,
                         std::optional<c10::MemoryFormat> memory_format) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(sizes_sym);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const auto old_bytes = static_cast<int64_t>(self.storage().nbytes());
  if (self.sizes() != sizes) {
    // The tensor stays what it is when the new size is impossible.
    const size_t bytes = at::detail::computeStorageNbytesContiguous(
        sizes, self.dtype().itemsize(), static_cast<size_t>(self.storage_offset()));
    if (has_elements(sizes) && bytes > self.storage().nbytes()) resize_storage(self.storage(), bytes);
    impl->set_sizes_contiguous(sizes);
  }
  if (memory_format) {
    TORCH_CHECK(*memory_format != c10::MemoryFormat::Preserve, "unsupported memory format option ",
                *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  if (fills_new_memory()) at::native::fill_resize_deterministic_(self, old_bytes);
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, c10::SymInt offset_sym,
                               c10::SymIntArrayRef sizes_sym, c10::SymIntArrayRef strides_sym) {
  const int64_t offset = offset_sym.expect_int();
  const auto sizes = C10_AS_INTARRAYREF_SLOW(sizes_sym);
  auto strides = C10_AS_INTARRAYREF_SLOW(strides_sym);
  // Empty strides mean contiguous: that is how set_(storage) arrives here.
  c10::SmallVector<int64_t, 6> contiguous;
  if (strides.empty() && !sizes.empty()) {
    contiguous.resize(sizes.size());
    int64_t stride = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
      contiguous[d] = stride;
      stride *= std::max<int64_t>(sizes[d], 1);
    }
    strides = contiguous;
  }
  at::native::checkSetStorage(self, source, offset, sizes, strides);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const size_t bytes =
      at::detail::computeStorageNbytes(sizes, strides, self.dtype().itemsize(), static_cast<size_t>(offset));
  if (has_elements(sizes) && bytes > self.storage().nbytes()) resize_storage(self.storage(), bytes);
  impl->set_storage_offset(offset);
  impl->set_sizes_and_strides(sizes, strides);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto numel = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset(self, std::move(source), 0, {c10::SymInt(numel)}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_storage_offset(self, source.storage(), source.storage_offset(),
                            c10::fromIntArrayRefSlow(source.sizes()),
                            c10::fromIntArrayRefSlow(source.strides()));
}

at::Tensor& set_empty(at::Tensor& self) {
  const c10::DeviceIndex device = self.device().index();
  at::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), 0, allocate_on(device, 0), &device_allocator(), true));
  return set_storage_offset(self, std::move(storage), 0, {c10::SymInt(0)}, {});
}

// Its result is a Python bool, so it waits for the device.
bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and ", other.device(), "!");
  TORCH_CHECK(self.dtype() == other.dtype(), "Expected all tensors to have the same dtype, but got ",
              self.dtype(), " and ", other.dtype());
  if (self.sizes() != other.sizes()) return false;
  return self.numel() == 0 || at::eq(self, other).all().item<bool>();
}

// Asked before padding is cut off by way of nested tensors, which the device has not: nn.TransformerEncoder then keeps
// the padding and its mask.
bool is_left_aligned(const at::Tensor& /*values*/, const at::Tensor& /*mask*/) { return false; }

// Whether a tensor may take the place of another's content, as `p.data = x` and Module.to do: dense ones may, across
// devices too, so that a module that moves keeps its parameters.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto is_dense = [](c10::DispatchKeySet keys) {
    return keys.has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) &&
           keys.has_any(
               c10::DispatchKeySet({c10::BackendComponent::CPUBit, c10::BackendComponent::PrivateUse1Bit}));
  };
  return self.key_set() == from.key_set() || (is_dense(self.key_set()) && is_dense(from.key_set()));
}

}  // namespace

at::Tensor zero_unless(const at::Tensor& keep, const at::Tensor& value) {
  return at::where(keep, value, at::zeros_like(value));
}

at::Tensor empty_on(c10::DeviceIndex device, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                    c10::ScalarType dtype) {
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype));
  at::Tensor result = tensor_on(device, bytes, dtype);
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return result;
}

at::Tensor empty_contiguous_on(c10::DeviceIndex device, c10::IntArrayRef sizes, c10::ScalarType dtype) {
  const size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(dtype));
  at::Tensor result = tensor_on(device, bytes, dtype);
  if (sizes.size() != 1 || sizes[0] != 0) result.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return result;
}

at::Tensor host_view(const at::Tensor& t) {
  const c10::Storage& storage = t.storage();
  auto host =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
                                            c10::DataPtr(storage.mutable_data(), c10::Device(c10::kCPU)),
                                            c10::GetCPUAllocator(), /*resizable=*/true);
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      std::move(host), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
  c10::TensorImpl* impl = view.unsafeGetTensorImpl();
  impl->set_storage_offset(t.storage_offset());
  impl->set_sizes_and_strides(t.sizes(), t.strides());
  view._set_conj(t.is_conj());
  view._set_neg(t.is_neg());
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return view;
}

at::Tensor view_on_device(const at::Tensor& base, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                          int64_t storage_offset) {
  return at::native::as_strided_tensorimpl(base, sizes, strides, storage_offset);
}

size_t tensor_extent_bytes(const at::TensorBase& t) {
  return extent_bytes(t.sizes(), t.strides(), t.dtype().itemsize());
}

TensorMeta meta_of(const at::TensorBase& t) {
  TensorMeta meta;
  meta.dtype = t.scalar_type();
  meta.sizes.assign(t.sizes().begin(), t.sizes().end());
  meta.strides.assign(t.strides().begin(), t.strides().end());
  meta.extent_bytes = tensor_extent_bytes(t);
  return meta;
}

Slice slice_of(const at::TensorBase& t) {
  return slice_of(t.storage().data_ptr(), t.const_data_ptr(), tensor_extent_bytes(t));
}

bool non_overlapping_and_dense(const at::TensorBase& t) {
  return t.unsafeGetTensorImpl()->is_non_overlapping_and_dense_or_false();
}

void resize_storage(const c10::Storage& storage, size_t bytes) {
  const DeviceUse use;
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  if (Recorder* recorder = Recorder::active()) return recorder->resize(storage, bytes);
  const c10::DeviceIndex device = storage.device().index();
  c10::DataPtr fresh = allocate_on(device, bytes);
  const size_t kept = std::min(bytes, storage.nbytes());
  if (kept > 0 && storage.data() != nullptr) copy_device_bytes(fresh.get(), storage.data(), kept);
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_memory_format);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("equal", &equal);
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  m.impl("_nested_tensor_from_mask_left_aligned", &is_left_aligned);
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  m.impl("resize_", &resize);
  m.impl("set_.source_Storage_storage_offset", &set_storage_offset);
  m.impl("set_.source_Storage", &set_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_empty);
}

}  // namespace trnsim::aten
