// What stands behind the handles: tensors and their storage, tensor sets, models.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/driver/driver.h"
#include "sim/runtime/error_band.h"
#include "sim/runtime/handles.h"
#include "sim/runtime/nrt.h"

namespace trnsim::runtime {

// FNV-1a. Names are short; the hash only has to make a memcmp of different names rare.
inline uint64_t name_hash(const char* s, size_t n) {
  uint64_t h = 1469598103934665603u;
  for (size_t i = 0; i < n; ++i) h = (h ^ static_cast<unsigned char>(s[i])) * 1099511628211u;
  return h;
}

// Memory shared by a tensor and its slices; lives until the last of them is freed.
struct Storage {
  std::atomic<uint32_t> references{1};
  bool on_device = false;
  driver::Allocation allocation;      // on_device
  std::unique_ptr<std::byte[]> host;  // host placement
  std::byte* attached = nullptr;      // a buffer of the caller
  uint64_t bytes = 0;
};

struct Tensor {
  Storage* storage = nullptr;  // null: allocate_empty without a buffer yet
  uint64_t offset = 0;         // in the storage
  uint64_t bytes = 0;
  std::byte* data = nullptr;
  uint64_t device_address = 0;
  int vnc = -1;  // -1: host
  std::atomic<uint64_t> completions{0};
  // Leading bytes that were written through this handle, by the host or by a launch: what the checks know of it.
  std::atomic<uint64_t> initialised{0};
  void written(uint64_t from, uint64_t size) {
    uint64_t known = initialised.load(std::memory_order_relaxed);
    if (from <= known && from + size > known) initialised.store(from + size, std::memory_order_relaxed);
  }
};

struct TensorSet {
  struct Entry {
    uint64_t hash = 0;
    nrt_tensor_t* tensor = nullptr;
    std::string name;  // keeps its capacity when the slot is reused
  };
  std::vector<Entry> entries;
  size_t count = 0;                                           // of `entries` in use
  std::unordered_map<uint64_t, std::vector<uint32_t>> index;  // only for large sets

  static constexpr size_t kIndexFrom = 32;

  Entry* find(uint64_t hash, std::string_view name) {
    if (count >= kIndexFrom) {
      const auto it = index.find(hash);
      if (it == index.end()) return nullptr;
      for (uint32_t i : it->second)
        if (entries[i].name == name) return &entries[i];
      return nullptr;
    }
    for (size_t i = 0; i < count; ++i)
      if (entries[i].hash == hash && entries[i].name == name) return &entries[i];
    return nullptr;
  }

  void add(uint64_t hash, std::string_view name, nrt_tensor_t* tensor) {
    if (Entry* e = find(hash, name)) {
      e->tensor = tensor;
      return;
    }
    if (count == entries.size()) entries.emplace_back();
    Entry& e = entries[count];
    e.hash = hash;
    e.tensor = tensor;
    e.name.assign(name);
    ++count;
    if (count == kIndexFrom) {
      for (uint32_t i = 0; i < count; ++i) index[entries[i].hash].push_back(i);
    } else if (count > kIndexFrom) {
      index[hash].push_back(static_cast<uint32_t>(count - 1));
    }
  }

  void clear() {
    count = 0;
    if (!index.empty()) index.clear();
  }
};

struct Port {
  std::string name;
  uint64_t hash = 0;
  uint32_t tensor = 0;  // index in the program
  uint64_t bytes = 0;
};

struct ProgramTotals {
  int64_t count = 0;
  int64_t simulated_ps = 0;
  int64_t wall_ns = 0;                     // of the host, in the simulator
  int64_t sbuf_bytes = 0, psum_bytes = 0;  // high water per partition, where programs are checked
  Activity activity;
  void add(const ProgramTotals& other) {
    count += other.count;
    simulated_ps += other.simulated_ps;
    wall_ns += other.wall_ns;
    sbuf_bytes = std::max(sbuf_bytes, other.sbuf_bytes);
    psum_bytes = std::max(psum_bytes, other.psum_bytes);
    activity.add(other.activity);
  }
};

struct Model {
  driver::LoadedImage image;
  std::string name;
  uint32_t id = 0;
  uint32_t vnc = 0;
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  std::vector<chip::Binding> bindings;  // constants filled in
  struct Scratch {
    uint32_t tensor;
    uint64_t offset;
  };
  std::vector<Scratch> scratch;
  uint64_t scratch_bytes = 0;
  // Guarded by the queue of the core.
  ProgramTotals totals;
  int64_t last_ps = 0;
  int64_t last_instructions = 0;
};

struct ModelSlot {
  Model* model = nullptr;
  uint32_t vnc = 0;
};

using TensorTable = HandleTable<Tensor, HandleKind::kTensor>;
using TensorSetTable = HandleTable<TensorSet, HandleKind::kTensorSet>;
using ModelTable = HandleTable<ModelSlot, HandleKind::kModel>;

}  // namespace trnsim::runtime
