// Handles of the C ABI. A handle is not an address: it packs kind, generation and slot number, so that a bad,
// foreign or freed handle is recognised without touching memory that may be gone. Slots are reused and never
// unmapped; looking one up is two loads and a compare, without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

namespace trnsim::runtime {

enum class HandleKind : uint64_t { kTensor = 1, kTensorSet = 2, kModel = 3, kErrorTracker = 4 };

template <class T, HandleKind kKind>
class HandleTable {
 public:
  HandleTable() = default;
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;
  ~HandleTable() {
    for (auto& c : chunks_) delete[] c.load(std::memory_order_relaxed);
  }

  // A slot whose contents are what its last owner left; null when the table is full. The handle is valid
  // after publish().
  T* acquire(uint32_t* index) {
    Shard& shard = my_shard();
    {
      const std::lock_guard lock(shard.mutex);
      if (!shard.free.empty()) {
        *index = shard.free.back();
        shard.free.pop_back();
        return &slot(*index)->value;
      }
    }
    if (!grow(shard, index)) return nullptr;
    return &slot(*index)->value;
  }

  void* publish(uint32_t index) {
    Slot* s = slot(index);
    const uint32_t generation = (s->generation.load(std::memory_order_relaxed) + 1) & kGenerationMask;
    s->generation.store(generation, std::memory_order_release);
    return encode(index, generation);
  }

  T* get(const void* handle) const {
    Slot* s = find(handle);
    return s == nullptr ? nullptr : &s->value;
  }

  // Ends the handle. `cleanup` runs once, by the one caller who ended it; false for a bad handle.
  template <class F>
  bool release(const void* handle, F&& cleanup) {
    Slot* s = find(handle);
    if (s == nullptr) return false;
    uint32_t generation = generation_of(handle);
    if (!s->generation.compare_exchange_strong(generation, (generation + 1) & kGenerationMask,
                                               std::memory_order_acq_rel))
      return false;
    cleanup(s->value);
    Shard& shard = my_shard();
    const std::lock_guard lock(shard.mutex);
    shard.free.push_back(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(handle)));
    return true;
  }

  template <class F>
  void release_all(F&& cleanup) {
    const uint32_t n = used_.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t generation = slot(i)->generation.load(std::memory_order_acquire);
      if ((generation & 1u) != 0) release(encode(i, generation), cleanup);
    }
  }

 private:
  struct Slot {
    std::atomic<uint32_t> generation{0};  // odd: in use
    T value{};
  };
  struct alignas(64) Shard {
    std::mutex mutex;
    std::vector<uint32_t> free;
  };
  static constexpr uint32_t kChunkBits = 10;
  static constexpr uint32_t kChunk = 1u << kChunkBits;
  static constexpr uint32_t kMaxChunks = 1u << 14;
  static constexpr uint32_t kGenerationMask = (1u << 28) - 1;
  static constexpr unsigned kShards = 8;

  static void* encode(uint32_t index, uint32_t generation) {
    const uint64_t v = static_cast<uint64_t>(kKind) << 60 | static_cast<uint64_t>(generation) << 32 | index;
    return reinterpret_cast<void*>(static_cast<uintptr_t>(v));
  }
  static uint32_t generation_of(const void* handle) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(handle) >> 32) & kGenerationMask;
  }

  Slot* slot(uint32_t index) const {
    return chunks_[index >> kChunkBits].load(std::memory_order_acquire) + (index & (kChunk - 1));
  }

  Slot* find(const void* handle) const {
    const uint64_t v = reinterpret_cast<uintptr_t>(handle);
    if (v >> 60 != static_cast<uint64_t>(kKind)) return nullptr;
    const uint32_t index = static_cast<uint32_t>(v);
    if (index >= used_.load(std::memory_order_acquire)) return nullptr;
    Slot* s = slot(index);
    const uint32_t generation = generation_of(handle);
    if ((generation & 1u) == 0 || s->generation.load(std::memory_order_acquire) != generation) return nullptr;
    return s;
  }

  Shard& my_shard() {
    static std::atomic<unsigned> next{0};
    thread_local const unsigned mine = next.fetch_add(1, std::memory_order_relaxed) % kShards;
    return shards_[mine];
  }

  bool grow(Shard& shard, uint32_t* index) {
    const std::lock_guard lock(grow_mutex_);
    const uint32_t first = used_.load(std::memory_order_relaxed);
    if (first >> kChunkBits >= kMaxChunks) return false;
    chunks_[first >> kChunkBits].store(new Slot[kChunk], std::memory_order_release);
    used_.store(first + kChunk, std::memory_order_release);
    const std::lock_guard shard_lock(shard.mutex);
    for (uint32_t i = kChunk - 1; i > 0; --i) shard.free.push_back(first + i);
    *index = first;
    return true;
  }

  std::unique_ptr<std::atomic<Slot*>[]> storage_ { new std::atomic<Slot*>[ kMaxChunks ]() };
  struct ChunkView {
    std::atomic<Slot*>* p;
    std::atomic<Slot*>& operator[](uint32_t i) const { return p[i]; }
    std::atomic<Slot*>* begin() const { return p; }
    std::atomic<Slot*>* end() const { return p + kMaxChunks; }
  } chunks_{storage_.get()};
  std::atomic<uint32_t> used_{0};
  std::mutex grow_mutex_;
  std::array<Shard, kShards> shards_;
};

// Blocks of memory that the ABI hands out and takes back by their address: a foreign one is told without touching it.
class HandedOut {
 public:
  void add(const void* block) {
    const std::lock_guard lock(mutex_);
    blocks_.insert(block);
  }
  // False: never handed out, or taken back already.
  bool take(const void* block) {
    const std::lock_guard lock(mutex_);
    return blocks_.erase(block) != 0;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<const void*> blocks_;
};

}  // namespace trnsim::runtime
