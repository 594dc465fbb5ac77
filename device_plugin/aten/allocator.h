// Caching segment allocator over nrt tensors. Large segments come from the runtime, tensors are blocks inside
// them; freed blocks stay cached. Two pools, split at 1 MB. Requests under 16 MB are rounded up to a size
// class.
//
// The pointer of a block is the host address of the mapped HBM, which is also how a view finds its device
// address. A freed block is reused at once: everything that touches device memory either goes through the one
// queue of the device, in order, or waits for that queue first (queue.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstdint>
#include <utility>

#include "device_plugin/aten/runtime_link.h"

namespace trnsim::aten {

// Bytes inside one segment, as a launch binds them.
struct Slice {
  nrt_tensor* segment = nullptr;
  uint64_t segment_id = 0;  // never reused, so it is safe to compare after the segment is gone
  uint64_t offset_bytes = 0;
  uint64_t bytes = 0;
};

constexpr size_t kSmallLimitBytes = size_t{1} << 20;   // pool border
constexpr size_t kRoundLimitBytes = size_t{16} << 20;  // requests from here on keep their size
constexpr size_t kMinBlockBytes = 256;

size_t rounded_size(size_t bytes);  // the size class of a request

c10::DeviceAllocator& device_allocator();

// Memory of `device` with nothing written to it.
c10::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes);

// Device bytes [address, address + bytes) of a storage. Throws when the memory is not the device's.
Slice slice_of(const c10::DataPtr& data, const void* address, size_t bytes);

// Which device a host address belongs to; -1 when it is not device memory.
c10::DeviceIndex device_of_pointer(const void* address);

// 256 bytes that stand in for operands without elements.
Slice placeholder_slice(c10::DeviceIndex device);

std::pair<size_t, size_t> memory_info(c10::DeviceIndex device);  // free, total

}  // namespace trnsim::aten
