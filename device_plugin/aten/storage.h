// Storages of the device.
#pragma once

#include <c10/core/Storage.h>

#include <cstddef>

namespace trnsim::aten {

// New memory of `bytes` with the old contents as far as they fit. 0 frees the memory and keeps the storage.
void resize_storage(const c10::Storage& storage, size_t bytes);

}  // namespace trnsim::aten
