// Tensors and tensor sets of the C ABI. Slices and sets are on the path of every small operator: no lock is
// shared between threads here beyond the free list of a table, and nothing is allocated once the slots are
// warm.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "sim/runtime/log.h"
#include "sim/runtime/runtime.h"

namespace trnsim::runtime {

namespace {

constexpr uint64_t kMaxHostTensorBytes = uint64_t{4} << 20;
constexpr uint64_t kTensorAlignment = 64;
// Host memory in the device's address space.
constexpr uint64_t kHostWindowAddress = 0x400000000000;

std::string range_text(uint64_t offset, uint64_t size, uint64_t bytes) {
  return "bytes " + std::to_string(offset) + " to " + std::to_string(offset + size) + " of a tensor of " +
         std::to_string(bytes) + " bytes";
}

bool in_range(const Tensor& t, uint64_t offset, uint64_t size) {
  return offset <= t.bytes && size <= t.bytes - offset;
}

bool has_values(const Tensor& t) { return !(t.vnc >= 0 && g_runtime->settings.mode == chip::Mode::kTime); }

nrt_tensor_t* publish(uint32_t index) { return static_cast<nrt_tensor_t*>(tensors().publish(index)); }

void bind(Tensor* t, Storage* storage, uint64_t offset, uint64_t bytes, int vnc) {
  t->storage = storage;
  t->offset = offset;
  t->bytes = bytes;
  t->vnc = vnc;
  t->completions.store(0, std::memory_order_relaxed);
  t->initialised.store(0, std::memory_order_relaxed);
  if (storage == nullptr) {
    t->data = nullptr;
    t->device_address = 0;
  } else if (storage->on_device) {
    t->data = storage->allocation.data + offset;
    t->device_address = storage->allocation.device_address + offset;
  } else {
    t->data = (storage->attached != nullptr ? storage->attached : storage->host.get()) + offset;
    t->device_address =
        kHostWindowAddress + (reinterpret_cast<uintptr_t>(t->data) & (kHostWindowAddress - 1));
  }
}

NRT_STATUS new_tensor(Storage* storage, uint64_t bytes, int vnc, nrt_tensor_t** out) {
  uint32_t index = 0;
  Tensor* t = tensors().acquire(&index);
  if (t == nullptr) return fail(NRT_RESOURCE, "user error: more than 16 million tensors are alive");
  bind(t, storage, 0, bytes, vnc);
  *out = publish(index);
  return NRT_SUCCESS;
}

NRT_STATUS allocate_on_device(int vnc, uint64_t size, nrt_tensor_t** out) {
  Runtime& r = *g_runtime;
  if (vnc < 0 || static_cast<size_t>(vnc) >= r.cores.size())
    return fail(NRT_INVALID, "user error: nrt_tensor_allocate: logical core " + std::to_string(vnc) +
                                 "; this process has cores 0 to " + std::to_string(r.cores.size() - 1));
  LogicalCore& core = *r.cores[static_cast<size_t>(vnc)];
  auto storage = std::make_unique<Storage>();
  driver::Status s = r.driver->allocate(core.physical, size, kTensorAlignment,
                                        driver::MemoryCategory::kTensors, &storage->allocation);
  if (!s.ok()) {
    if (s.code == driver::Code::kNoMemory)
      s.message +=
          " (logical core " + std::to_string(vnc) + ", configuration " + r.settings.config.name + "; " +
          r.driver->memory_table(core.physical) +
          "). Use smaller tensors, more cores, or set chip.hbm_capacity_gib to see what more memory would do";
    return from_driver(s);
  }
  storage->on_device = true;
  storage->bytes = size;
  const NRT_STATUS status = new_tensor(storage.get(), size, vnc, out);
  if (status == NRT_SUCCESS)
    storage.release();  // NOLINT: owned by the tensor
  else
    r.driver->free(storage->allocation);
  return status;
}

NRT_STATUS allocate_on_host(uint64_t size, nrt_tensor_t** out) {
  if (size > kMaxHostTensorBytes)
    return fail(NRT_INVALID, "user error: nrt_tensor_allocate: a host tensor of " + std::to_string(size) +
                                 " bytes; host placement is for at most " +
                                 std::to_string(kMaxHostTensorBytes));
  auto storage = std::make_unique<Storage>();
  storage->host = std::make_unique<std::byte[]>(size);
  std::memset(storage->host.get(), driver::kPoisonByte, size);
  storage->bytes = size;
  const NRT_STATUS status = new_tensor(storage.get(), size, -1, out);
  if (status == NRT_SUCCESS) storage.release();  // NOLINT: owned by the tensor
  return status;
}

NRT_STATUS batch(const char* function, const nrt_tensor_batch_t* batches, uint64_t count, bool write) {
  if (batches == nullptr && count != 0)
    return fail(NRT_INVALID, std::string("user error: ") + function + ": no batches");
  for (uint64_t i = 0; i < count; ++i) {
    if (batches[i].ops == nullptr && batches[i].num_ops != 0)
      return fail(NRT_INVALID,
                  std::string("user error: ") + function + ": batch " + std::to_string(i) + " has no ops");
    for (uint32_t k = 0; k < batches[i].num_ops; ++k) {
      const nrt_tensor_batch_op_t& op = batches[i].ops[k];
      const NRT_STATUS s = write ? nrt_tensor_write(const_cast<nrt_tensor_t*>(batches[i].tensor), op.buffer,
                                                    op.offset, op.size)
                                 : nrt_tensor_read(batches[i].tensor, op.buffer, op.offset, op.size);
      if (s != NRT_SUCCESS) return s;
    }
  }
  return NRT_SUCCESS;
}

}  // namespace

void drop_storage(Storage* storage) {
  if (storage->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // After nrt_close there is no driver, and every storage went with it.
  if (storage->on_device && g_runtime->driver != nullptr) g_runtime->driver->free(storage->allocation);
  delete storage;
}

}  // namespace trnsim::runtime

using namespace trnsim::runtime;  // NOLINT

extern "C" {

NRT_STATUS nrt_tensor_allocate(nrt_tensor_placement_t placement, int vnc, size_t size, const char*,
                               nrt_tensor_t** tensor) {
  TRNSIM_REQUIRE_INIT();
  if (tensor == nullptr) return fail(NRT_INVALID, "user error: nrt_tensor_allocate: tensor is NULL");
  *tensor = nullptr;
  if (size == 0)
    return fail(NRT_INVALID, "user error: nrt_tensor_allocate: 0 bytes; a tensor has at least 1");
  try {
    switch (placement) {
      case NRT_TENSOR_PLACEMENT_DEVICE:
        return allocate_on_device(vnc, size, tensor);
      case NRT_TENSOR_PLACEMENT_HOST:
        return allocate_on_host(size, tensor);
      default:
        return fail(NRT_INVALID, "user error: nrt_tensor_allocate: placement " + std::to_string(placement) +
                                     "; device is 0, host is 1, virtual tensors have left the ABI");
    }
  } catch (const std::bad_alloc&) {
    return fail(NRT_RESOURCE, "user error: nrt_tensor_allocate: the host has no memory left");
  }
}

void nrt_tensor_free(nrt_tensor_t** tensor) {
  if (tensor == nullptr || *tensor == nullptr) return;
  const bool found = tensors().release(*tensor, [](Tensor& t) {
    if (t.storage != nullptr) drop_storage(t.storage);
    t.storage = nullptr;
  });
  if (!found && ready()) bad_handle("nrt_tensor_free", "tensor");
  *tensor = nullptr;
}

NRT_STATUS nrt_tensor_allocate_slice(const nrt_tensor_t* source, size_t offset, size_t size, const char*,
                                     nrt_tensor_t** slice) {
  TRNSIM_REQUIRE_INIT();
  Tensor* from = tensors().get(source);
  if (from == nullptr) return bad_handle("nrt_tensor_allocate_slice", "source");
  if (slice == nullptr) return fail(NRT_INVALID, "user error: nrt_tensor_allocate_slice: slice is NULL");
  if (size == 0 || !in_range(*from, offset, size) || from->storage == nullptr)
    return fail(NRT_INVALID,
                "user error: nrt_tensor_allocate_slice: " + range_text(offset, size, from->bytes));
  uint32_t index = 0;
  Tensor* t = tensors().acquire(&index);
  if (t == nullptr) return fail(NRT_RESOURCE, "user error: more than 16 million tensors are alive");
  from->storage->references.fetch_add(1, std::memory_order_relaxed);
  bind(t, from->storage, from->offset + offset, size, from->vnc);
  const uint64_t known = from->initialised.load(std::memory_order_relaxed);
  if (known > offset) t->written(0, std::min<uint64_t>(known - offset, size));
  *slice = publish(index);
  return NRT_SUCCESS;
}

NRT_STATUS nrt_tensor_read(const nrt_tensor_t* tensor, void* buffer, size_t offset, size_t size) {
  TRNSIM_REQUIRE_INIT();
  const Tensor* t = tensors().get(tensor);
  if (t == nullptr) return bad_handle("nrt_tensor_read", "tensor");
  if (!in_range(*t, offset, size) || (buffer == nullptr && size != 0))
    return fail(NRT_INVALID, "user error: nrt_tensor_read: " + range_text(offset, size, t->bytes) +
                                 (buffer == nullptr ? " into NULL" : ""));
  if (size == 0) return NRT_SUCCESS;
  if (t->storage != nullptr && t->storage->on_device)
    return from_driver(g_runtime->driver->copy_out(t->storage->allocation, t->offset + offset, buffer, size));
  std::memcpy(buffer, t->data + offset, size);
  return NRT_SUCCESS;
}

NRT_STATUS nrt_tensor_write(nrt_tensor_t* tensor, const void* buffer, size_t offset, size_t size) {
  TRNSIM_REQUIRE_INIT();
  Tensor* t = tensors().get(tensor);
  if (t == nullptr) return bad_handle("nrt_tensor_write", "tensor");
  if (!in_range(*t, offset, size) || (buffer == nullptr && size != 0))
    return fail(NRT_INVALID, "user error: nrt_tensor_write: " + range_text(offset, size, t->bytes) +
                                 (buffer == nullptr ? " from NULL" : ""));
  if (size == 0) return NRT_SUCCESS;
  t->written(offset, size);
  if (t->storage != nullptr && t->storage->on_device)
    return from_driver(g_runtime->driver->copy_in(t->storage->allocation, t->offset + offset, buffer, size));
  std::memcpy(t->data + offset, buffer, size);
  return NRT_SUCCESS;
}

void* nrt_tensor_get_va(const nrt_tensor_t* tensor) {
  if (!ready()) {
    not_ready(__func__);
    return nullptr;
  }
  const Tensor* t = tensors().get(tensor);
  if (t == nullptr) {
    bad_handle("nrt_tensor_get_va", "tensor");
    return nullptr;
  }
  return t->data;
}

size_t nrt_tensor_get_size(const nrt_tensor_t* tensor) {
  if (!ready()) {
    not_ready(__func__);
    return 0;
  }
  const Tensor* t = tensors().get(tensor);
  if (t == nullptr) {
    bad_handle("nrt_tensor_get_size", "tensor");
    return 0;
  }
  return t->bytes;
}

NRT_STATUS nrt_tensor_copy(const nrt_tensor_t* source, size_t source_offset, nrt_tensor_t* destination,
                           size_t destination_offset, size_t size) {
  TRNSIM_REQUIRE_INIT();
  const Tensor* from = tensors().get(source);
  Tensor* to = tensors().get(destination);
  if (from == nullptr) return bad_handle("nrt_tensor_copy", "source");
  if (to == nullptr) return bad_handle("nrt_tensor_copy", "destination");
  if (!in_range(*from, source_offset, size))
    return fail(NRT_INVALID,
                "user error: nrt_tensor_copy: source " + range_text(source_offset, size, from->bytes));
  if (!in_range(*to, destination_offset, size))
    return fail(NRT_INVALID, "user error: nrt_tensor_copy: destination " +
                                 range_text(destination_offset, size, to->bytes));
  if (from->vnc >= 0 && to->vnc >= 0 && from->vnc != to->vnc)
    return fail(NRT_INVALID, "illegal on hardware: nrt_tensor_copy from logical core " +
                                 std::to_string(from->vnc) + " to core " + std::to_string(to->vnc) +
                                 "; device to device works on one core, go through the host");
  if (size == 0) return NRT_SUCCESS;
  to->written(destination_offset, size);
  if (!has_values(*to)) return NRT_SUCCESS;
  if (!has_values(*from))
    std::memset(to->data + destination_offset, 0, size);
  else
    std::memmove(to->data + destination_offset, from->data + source_offset, size);
  return NRT_SUCCESS;
}

NRT_STATUS nrt_tensor_memset(nrt_tensor_t* tensor, uint64_t offset, int value, size_t size) {
  TRNSIM_REQUIRE_INIT();
  Tensor* t = tensors().get(tensor);
  if (t == nullptr) return bad_handle("nrt_tensor_memset", "tensor");
  if (!in_range(*t, offset, size))
    return fail(NRT_INVALID, "user error: nrt_tensor_memset: " + range_text(offset, size, t->bytes));
  t->written(offset, size);
  if (size != 0 && has_values(*t)) std::memset(t->data + offset, value, size);
  return NRT_SUCCESS;
}

NRT_STATUS nrt_tensor_allocate_empty(const char*, nrt_tensor_t** tensor) {
  TRNSIM_REQUIRE_INIT();
  if (tensor == nullptr) return fail(NRT_INVALID, "user error: nrt_tensor_allocate_empty: tensor is NULL");
  return new_tensor(nullptr, 0, -1, tensor);
}

NRT_STATUS nrt_tensor_attach_buffer(nrt_tensor_t* tensor, void* buffer, size_t size) {
  TRNSIM_REQUIRE_INIT();
  Tensor* t = tensors().get(tensor);
  if (t == nullptr) return bad_handle("nrt_tensor_attach_buffer", "tensor");
  if (buffer == nullptr || size == 0)
    return fail(NRT_INVALID, "user error: nrt_tensor_attach_buffer: an empty buffer");
  auto storage = std::make_unique<Storage>();
  storage->attached = static_cast<std::byte*>(buffer);
  storage->bytes = size;
  if (t->storage != nullptr) drop_storage(t->storage);
  bind(t, storage.release(), 0, size, -1);  // NOLINT: owned by the tensor
  t->written(0, size);                      // what the caller has put there is not known
  return NRT_SUCCESS;
}

NRT_STATUS nrt_tensor_read_batch(const nrt_tensor_batch_t* batches, uint64_t count, bool) {
  TRNSIM_REQUIRE_INIT();
  return batch("nrt_tensor_read_batch", batches, count, false);
}

NRT_STATUS nrt_tensor_write_batch(const nrt_tensor_batch_t* batches, uint64_t count, bool) {
  TRNSIM_REQUIRE_INIT();
  return batch("nrt_tensor_write_batch", batches, count, true);
}

NRT_STATUS nrt_tensor_get_device_allocation_info(const nrt_tensor_t* tensor,
                                                 nrt_tensor_device_allocation_info_t* info) {
  TRNSIM_REQUIRE_INIT();
  const Tensor* t = tensors().get(tensor);
  if (t == nullptr) return bad_handle("nrt_tensor_get_device_allocation_info", "tensor");
  if (info == nullptr || t->storage == nullptr || !t->storage->on_device)
    return fail(NRT_INVALID,
                "user error: nrt_tensor_get_device_allocation_info: the tensor is not on a device");
  info->physical_address = t->device_address;
  info->size = t->storage->allocation.rounded;
  info->hbm_index = t->storage->allocation.stack;
  return NRT_SUCCESS;
}

NRT_STATUS nrt_tensor_check_output_completion(const nrt_tensor_t* tensor, int64_t timeout_us,
                                              uint64_t expected_count) {
  TRNSIM_REQUIRE_INIT();
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  bool warned = false;
  for (;;) {
    const Tensor* t = tensors().get(tensor);
    if (t == nullptr) return bad_handle("nrt_tensor_check_output_completion", "tensor");
    if (t->completions.load(std::memory_order_acquire) >= expected_count) return NRT_SUCCESS;
    const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
    if (timeout_us >= 0 && waited.count() >= timeout_us)
      return fail(NRT_TIMEOUT,
                  "nrt_tensor_check_output_completion: " + std::to_string(t->completions.load()) + " of " +
                      std::to_string(expected_count) + " completions after " +
                      std::to_string(waited.count()) + " us");
    if (timeout_us < 0 && !warned && waited > std::chrono::seconds(30)) {
      warned = true;
      log(LogLevel::kWarning, "nrt_tensor_check_output_completion has waited for 30 s");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(waited.count() < 1000 ? 5 : 200));
  }
}

NRT_STATUS nrt_tensor_reset_output_completion(nrt_tensor_t* tensor) {
  TRNSIM_REQUIRE_INIT();
  Tensor* t = tensors().get(tensor);
  if (t == nullptr) return bad_handle("nrt_tensor_reset_output_completion", "tensor");
  t->completions.store(0, std::memory_order_release);
  return NRT_SUCCESS;
}

// --- tensor sets
// ------------------------------------------------------------------------------------------------------

NRT_STATUS nrt_allocate_tensor_set(nrt_tensor_set_t** result) {
  TRNSIM_REQUIRE_INIT();
  if (result == nullptr) return fail(NRT_INVALID, "user error: nrt_allocate_tensor_set: result is NULL");
  uint32_t index = 0;
  TensorSet* set = tensor_sets().acquire(&index);
  if (set == nullptr) return fail(NRT_RESOURCE, "user error: more than 16 million tensor sets are alive");
  set->clear();
  *result = tensor_sets().publish(index);
  return NRT_SUCCESS;
}

void nrt_destroy_tensor_set(nrt_tensor_set_t** set) {
  if (set == nullptr || *set == nullptr) return;
  if (!tensor_sets().release(*set, [](TensorSet& s) { s.clear(); }) && ready())
    bad_handle("nrt_destroy_tensor_set", "set");
  *set = nullptr;
}

NRT_STATUS nrt_add_tensor_to_tensor_set(nrt_tensor_set_t* set, const char* name, nrt_tensor_t* tensor) {
  TRNSIM_REQUIRE_INIT();
  TensorSet* s = tensor_sets().get(set);
  if (s == nullptr) return bad_handle("nrt_add_tensor_to_tensor_set", "set");
  if (tensors().get(tensor) == nullptr) return bad_handle("nrt_add_tensor_to_tensor_set", "tensor");
  if (name == nullptr || *name == '\0')
    return fail(NRT_INVALID, "user error: nrt_add_tensor_to_tensor_set: the name is empty");
  const size_t n = std::strlen(name);
  try {
    s->add(name_hash(name, n), {name, n}, tensor);
  } catch (const std::bad_alloc&) {
    return fail(NRT_RESOURCE, "user error: nrt_add_tensor_to_tensor_set: the host has no memory left");
  }
  return NRT_SUCCESS;
}

NRT_STATUS nrt_get_tensor_from_tensor_set(nrt_tensor_set_t* set, const char* name, nrt_tensor_t** tensor) {
  TRNSIM_REQUIRE_INIT();
  TensorSet* s = tensor_sets().get(set);
  if (s == nullptr) return bad_handle("nrt_get_tensor_from_tensor_set", "set");
  if (name == nullptr || tensor == nullptr)
    return fail(NRT_INVALID, "user error: nrt_get_tensor_from_tensor_set: NULL");
  const size_t n = std::strlen(name);
  const TensorSet::Entry* e = s->find(name_hash(name, n), {name, n});
  if (e == nullptr)
    return fail(NRT_FAILURE,
                std::string("user error: nrt_get_tensor_from_tensor_set: no tensor is named '") + name + "'");
  *tensor = e->tensor;
  return NRT_SUCCESS;
}

}  // extern "C"
