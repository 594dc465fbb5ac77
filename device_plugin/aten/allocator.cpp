#include "device_plugin/aten/allocator.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "device_plugin/aten/plan.h"
#include "device_plugin/aten/queue.h"

namespace trnsim::aten {
namespace {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kSmallSegmentBytes = size_t{2} << 20;
constexpr size_t kLargeSegmentBytes = size_t{20} << 20;

struct Segment {
  nrt_tensor* tensor = nullptr;
  uint64_t id = 0;
  std::byte* base = nullptr;
  size_t bytes = 0;
  c10::DeviceIndex device = 0;
  bool small = false;
  bool reserved_address_only = false;  // time-only mode: `base` is an address without memory
};

struct Block {
  Segment* segment = nullptr;
  size_t offset = 0;
  size_t bytes = 0;
  size_t requested = 0;
  Block* previous = nullptr;  // neighbours inside the segment
  Block* next = nullptr;
  bool allocated = false;
};

struct BlockLess {
  bool operator()(const Block* a, const Block* b) const {
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    if (a->segment->id != b->segment->id) return a->segment->id < b->segment->id;
    return a->offset < b->offset;
  }
};
using FreeBlocks = std::set<Block*, BlockLess>;

void increase(StatArray& stat, bool small, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].increase(amount);
  stat[static_cast<size_t>(small ? StatType::SMALL_POOL : StatType::LARGE_POOL)].increase(amount);
}
void decrease(StatArray& stat, bool small, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].decrease(amount);
  stat[static_cast<size_t>(small ? StatType::SMALL_POOL : StatType::LARGE_POOL)].decrease(amount);
}

std::string human(size_t bytes) {
  char text[64];
  if (bytes >= (size_t{1} << 30))
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  else if (bytes >= (size_t{1} << 20))
    std::snprintf(text, sizeof text, "%.2f MiB", static_cast<double>(bytes) / (1 << 20));
  else
    std::snprintf(text, sizeof text, "%zu bytes", bytes);
  return text;
}

class DevicePool {
 public:
  explicit DevicePool(c10::DeviceIndex device) : device_(device) {}

  Block* allocate(size_t requested) {
    const size_t bytes = rounded_size(requested);
    const bool small = requested < kSmallLimitBytes;
    std::unique_lock lock(mutex_);
    Block* block = take_free(bytes, small);
    if (block == nullptr) block = grow(bytes, small, lock);
    if (block == nullptr) {
      ++stats_.num_alloc_retries;
      release_cached(lock);
      block = grow(bytes, small, lock);
    }
    if (block == nullptr) {
      ++stats_.num_ooms;
      throw_out_of_memory(requested);
    }
    block->allocated = true;
    block->requested = requested;
    increase(stats_.allocation, small, 1);
    increase(stats_.active, small, 1);
    increase(stats_.allocated_bytes, small, block->bytes);
    increase(stats_.active_bytes, small, block->bytes);
    increase(stats_.requested_bytes, small, requested);
    return block;
  }

  void free(Block* block) {
    std::lock_guard lock(mutex_);
    const bool small = block->segment->small;
    block->allocated = false;
    decrease(stats_.allocation, small, 1);
    decrease(stats_.active, small, 1);
    decrease(stats_.allocated_bytes, small, block->bytes);
    decrease(stats_.active_bytes, small, block->bytes);
    decrease(stats_.requested_bytes, small, block->requested);
    FreeBlocks& free_blocks = pool(small);
    auto merge = [&](Block* first, Block* second) {
      first->bytes += second->bytes;
      first->next = second->next;
      if (second->next != nullptr) second->next->previous = first;
      delete second;
    };
    if (block->next != nullptr && !block->next->allocated) {
      forget_free(free_blocks, block->next, small);
      merge(block, block->next);
    }
    if (block->previous != nullptr && !block->previous->allocated) {
      forget_free(free_blocks, block->previous, small);
      block = block->previous;
      merge(block, block->next);
    }
    remember_free(free_blocks, block, small);
  }

  void empty_cache() {
    std::unique_lock lock(mutex_);
    release_cached(lock);
  }

  DeviceStats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  template <typename Reset>
  void reset_stats(Reset reset) {
    std::lock_guard lock(mutex_);
    for (StatArray* array : {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split,
                             &stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
                             &stats_.inactive_split_bytes, &stats_.requested_bytes})
      for (auto& stat : *array) reset(stat);
    reset(stats_.oversize_allocations);
    reset(stats_.oversize_segments);
  }
  void reset_counters() {
    std::lock_guard lock(mutex_);
    stats_.num_alloc_retries = stats_.num_ooms = 0;
    stats_.num_device_alloc = stats_.num_device_free = stats_.num_sync_all_streams = 0;
  }

  size_t total_bytes() const { return nrt().trnsim_hbm_bytes(static_cast<uint32_t>(device_)); }
  size_t reserved_bytes() {
    std::lock_guard lock(mutex_);
    return static_cast<size_t>(stats_.reserved_bytes[0].current);
  }

 private:
  FreeBlocks& pool(bool small) { return small ? small_free_ : large_free_; }

  // A free block with neighbours cannot go back to the runtime: that is what `inactive_split` counts.
  static bool is_split(const Block* b) { return b->previous != nullptr || b->next != nullptr; }
  void remember_free(FreeBlocks& blocks, Block* block, bool small) {
    blocks.insert(block);
    if (!is_split(block)) return;
    increase(stats_.inactive_split, small, 1);
    increase(stats_.inactive_split_bytes, small, block->bytes);
  }
  void forget_free(FreeBlocks& blocks, Block* block, bool small) {
    blocks.erase(block);
    if (!is_split(block)) return;
    decrease(stats_.inactive_split, small, 1);
    decrease(stats_.inactive_split_bytes, small, block->bytes);
  }

  Block* take_free(size_t bytes, bool small) {
    FreeBlocks& blocks = pool(small);
    Segment any;  // id 0 sorts before every real segment
    Block key;
    key.segment = &any;
    key.bytes = bytes;
    auto found = blocks.lower_bound(&key);
    if (found == blocks.end()) return nullptr;
    Block* block = *found;
    forget_free(blocks, block, small);
    split(block, bytes, small);
    return block;
  }

  void split(Block* block, size_t bytes, bool small) {
    const size_t rest = block->bytes - bytes;
    // In the large pool a tail below the border would never be asked for; it stays with the block.
    if (rest < (small ? kMinBlockBytes : kSmallLimitBytes)) return;
    auto* tail = new Block;
    tail->segment = block->segment;
    tail->offset = block->offset + bytes;
    tail->bytes = rest;
    tail->previous = block;
    tail->next = block->next;
    if (block->next != nullptr) block->next->previous = tail;
    block->next = tail;
    block->bytes = bytes;
    remember_free(pool(small), tail, small);
  }

  Block* grow(size_t bytes, bool small, std::unique_lock<std::mutex>&) {
    size_t segment_bytes = kSmallSegmentBytes;
    if (!small)
      segment_bytes = bytes < kRoundLimitBytes ? kLargeSegmentBytes : bytes;  // big requests keep their size
    nrt_tensor* tensor = nullptr;
    NrtStatus status =
        nrt().nrt_tensor_allocate(kNrtPlacementDevice, device_, segment_bytes, "segment", &tensor);
    if (status == kNrtResource && segment_bytes > bytes) {  // the last bytes of the HBM
      segment_bytes = bytes;
      status = nrt().nrt_tensor_allocate(kNrtPlacementDevice, device_, segment_bytes, "segment", &tensor);
    }
    if (status == kNrtResource) return nullptr;
    check(status, "allocating device memory");
    auto segment = std::make_unique<Segment>();
    segment->tensor = tensor;
    segment->id = ++last_segment_id_;
    segment->bytes = segment_bytes;
    segment->device = device_;
    segment->small = small;
    segment->base = static_cast<std::byte*>(nrt().nrt_tensor_get_va(tensor));
    if (segment->base == nullptr) {
      // Time-only mode has no storage, but a tensor needs an address of its own.
      void* address =
          mmap(nullptr, segment_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      TORCH_CHECK(address != MAP_FAILED, "neuron: no address range of ", human(segment_bytes),
                  " on the host");
      segment->base = static_cast<std::byte*>(address);
      segment->reserved_address_only = true;
    }
    auto* block = new Block;
    block->segment = segment.get();
    block->bytes = segment_bytes;
    ++stats_.num_device_alloc;
    increase(stats_.segment, small, 1);
    increase(stats_.reserved_bytes, small, segment_bytes);
    segments_[segment->base] = std::move(segment);
    split(block, bytes, small);
    return block;
  }

  void release_cached(std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    const std::lock_guard one_at_a_time(releasing_);  // who comes second finds what the first has given back
    lock.lock();
    // Out of the pool first: entries queued from now on cannot use these blocks, those before may still.
    std::vector<Block*> whole;
    for (bool small : {true, false}) {
      FreeBlocks& blocks = pool(small);
      std::copy_if(blocks.begin(), blocks.end(), std::back_inserter(whole),
                   [](const Block* b) { return !is_split(b); });
      for (Block* block : whole) blocks.erase(block);
    }
    lock.unlock();
    queue(device_).drain();
    release_bindings(device_);  // slices that plans keep would hold their segments
    lock.lock();
    for (Block* block : whole) {
      Segment* segment = block->segment;
      delete block;
      nrt().nrt_tensor_free(&segment->tensor);
      if (segment->reserved_address_only) munmap(segment->base, segment->bytes);
      ++stats_.num_device_free;
      decrease(stats_.segment, segment->small, 1);
      decrease(stats_.reserved_bytes, segment->small, segment->bytes);
      segments_.erase(segment->base);
    }
  }

  [[noreturn]] void throw_out_of_memory(size_t requested) {
    const size_t total = total_bytes();
    const auto allocated = static_cast<size_t>(stats_.allocated_bytes[0].current);
    const auto reserved = static_cast<size_t>(stats_.reserved_bytes[0].current);
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "neuron out of memory (OOM): tried to allocate ", human(requested), " (",
        requested, " bytes) on neuron:", static_cast<int>(device_), ", which has ", human(total),
        " of HBM in total; ", human(allocated), " are allocated by tensors and ", human(reserved - allocated),
        " are cached but in pieces too small. Free tensors and call torch.neuron.empty_cache(), use a "
        "smaller batch, or simulate a chip with more HBM (TRNSIM_SET).");
  }

 public:
  Segment* find_segment(const void* address) {
    std::lock_guard lock(mutex_);
    auto it = segments_.upper_bound(const_cast<std::byte*>(static_cast<const std::byte*>(address)));
    if (it == segments_.begin()) return nullptr;
    Segment* segment = std::prev(it)->second.get();
    return static_cast<const std::byte*>(address) < segment->base + segment->bytes ? segment : nullptr;
  }

 private:
  const c10::DeviceIndex device_;
  std::mutex mutex_, releasing_;
  FreeBlocks small_free_, large_free_;
  std::map<std::byte*, std::unique_ptr<Segment>> segments_;
  DeviceStats stats_;
  static inline std::atomic<uint64_t> last_segment_id_{0};
};

constexpr int kMaxDevices = 128;

// The names of its settings are not public, so none can be honoured; to accept them would promise another layout.
void warn_about_settings() {
  const char* variable = std::getenv("TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG");
  if (variable == nullptr || *variable == 0) return;
  TORCH_WARN_ONCE("neuron: TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG=", variable,
                  " has no effect: not simulated. Pools are split at 1 MiB, and requests from 16 MiB on are "
                  "not rounded.");
}

DevicePool& pool_of(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < kMaxDevices, "user error: invalid device index ",
              static_cast<int>(device));
  static std::once_flag flags[kMaxDevices];
  static DevicePool* pools[kMaxDevices];  // never destroyed: tensors may outlive static destructors
  std::call_once(flags[device], [&] {
    warn_about_settings();
    pools[device] = new DevicePool(device);
  });
  return *pools[device];
}

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  if (in_bad_fork()) return;  // another thread of the parent may have held the pool's lock
  pool_of(block->segment->device).free(block);
}

class NeuronAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return allocate_on(current_device(), bytes); }
  // No deleter for raw pointers: a block is found by its context, not by its address.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    copy_device_bytes(destination, source, bytes);
  }
  bool initialized() override { return trnsim::aten::initialized(); }
  void emptyCache(c10::MempoolId_t) override {
    const DeviceUse use;
    if (!trnsim::aten::initialized()) return;
    for (int i = 0; i < device_count(); ++i)
      if (DevicePool& pool = pool_of(static_cast<c10::DeviceIndex>(i)); pool.reserved_bytes() > 0)
        pool.empty_cache();
  }
  // One queue runs everything in order, so no stream can see a block after its reuse.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  DeviceStats getDeviceStats(c10::DeviceIndex device) override { return pool_of(device).stats(); }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    pool_of(device).reset_stats([](auto& stat) { stat.reset_accumulated(); });
    pool_of(device).reset_counters();
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    pool_of(device).reset_stats([](auto& stat) { stat.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override { return memory_info(device); }
};

NeuronAllocator allocator_instance;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &allocator_instance);

}  // namespace

size_t rounded_size(size_t bytes) {
  if (bytes >= kRoundLimitBytes) return bytes;
  if (bytes <= kMinBlockBytes) return kMinBlockBytes;
  // Eight classes per power of two, never finer than the smallest block.
  const size_t step = std::max(kMinBlockBytes, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

c10::DeviceAllocator& device_allocator() { return allocator_instance; }

c10::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes) {
  const DeviceUse use;
  const c10::Device where(c10::DeviceType::PrivateUse1, device);
  ensure_initialized();
  if (bytes == 0) return {nullptr, where};
  Block* block = pool_of(device).allocate(bytes);
  return {block->segment->base + block->offset, block, &free_block, where};
}

Slice slice_of(const c10::DataPtr& data, const void* address, size_t bytes) {
  const Segment* segment = nullptr;
  if (data.get_deleter() == &free_block) {
    segment = static_cast<const Block*>(data.get_context())->segment;
  } else {
    segment = pool_of(data.device().index()).find_segment(address);
    TORCH_CHECK(segment != nullptr, "neuron: the tensor's memory was not allocated by this device");
  }
  return {segment->tensor, segment->id,
          static_cast<uint64_t>(static_cast<const std::byte*>(address) - segment->base), bytes};
}

c10::DeviceIndex device_of_pointer(const void* address) {
  if (!initialized()) return -1;
  for (int i = 0; i < device_count(); ++i) {
    const auto device = static_cast<c10::DeviceIndex>(i);
    if (queue_exists(device) && pool_of(device).find_segment(address) != nullptr) return device;
  }
  return -1;
}

Slice placeholder_slice(c10::DeviceIndex device) {
  static std::mutex mutex;
  static auto* memory = new std::unordered_map<int, c10::DataPtr>;  // lives as long as the process
  std::lock_guard lock(mutex);
  auto it = memory->find(device);
  if (it == memory->end()) it = memory->emplace(device, allocate_on(device, kMinBlockBytes)).first;
  return slice_of(it->second, it->second.get(), kMinBlockBytes);
}

std::pair<size_t, size_t> memory_info(c10::DeviceIndex device) {
  const size_t total = pool_of(device).total_bytes();
  const size_t reserved = pool_of(device).reserved_bytes();
  return {total - std::min(total, reserved), total};
}

}  // namespace trnsim::aten
