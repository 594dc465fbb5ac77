// The hooks through which PyTorch's generic code reaches the device, and the pinned host allocator.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>

#include <map>
#include <mutex>

#include "device_plugin/aten/generator.h"
#include "device_plugin/aten/queue.h"
#include "device_plugin/aten/storage.h"

namespace trnsim::aten {
namespace {

// "Pinned" memory is ordinary host memory that is remembered as pinned: the simulated DMA engines reach all
// of it.
class PinnedAllocator final : public at::HostAllocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(bytes);
    void* address = memory.get();
    if (address == nullptr) return memory;
    {
      std::lock_guard lock(mutex_);
      blocks_[address] = bytes;
      stats_.allocations.increase(1);
      stats_.allocated_bytes.increase(bytes);
      stats_.active_bytes.increase(bytes);
    }
    // The context owns the CPU block.
    auto* owned = new c10::DataPtr(std::move(memory));
    return {address, owned, &free_block, c10::Device(c10::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }  // copies finish before they return
  void empty_cache() override {}                                          // nothing is cached
  at::HostStats get_stats() override {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_accumulated_stats() override {
    std::lock_guard lock(mutex_);
    stats_.allocations.reset_accumulated();
    stats_.allocated_bytes.reset_accumulated();
    stats_.active_bytes.reset_accumulated();
  }
  void reset_peak_stats() override {
    std::lock_guard lock(mutex_);
    stats_.allocations.reset_peak();
    stats_.allocated_bytes.reset_peak();
    stats_.active_bytes.reset_peak();
  }

  bool holds(const void* pointer) {
    std::lock_guard lock(mutex_);
    auto it = blocks_.upper_bound(const_cast<void*>(pointer));
    if (it == blocks_.begin()) return false;
    --it;
    return static_cast<const std::byte*>(pointer) < static_cast<const std::byte*>(it->first) + it->second;
  }

 private:
  static void free_block(void* context);

  std::mutex mutex_;
  std::map<void*, size_t> blocks_;
  at::HostStats stats_;
};

PinnedAllocator& pinned_allocator() {
  static auto* allocator = new PinnedAllocator;  // outlives every tensor
  return *allocator;
}

void PinnedAllocator::free_block(void* context) {
  auto* owned = static_cast<c10::DataPtr*>(context);
  PinnedAllocator& self = pinned_allocator();
  {
    std::lock_guard lock(self.mutex_);
    auto it = self.blocks_.find(owned->get());
    if (it != self.blocks_.end()) {
      self.stats_.allocations.decrease(1);
      self.stats_.allocated_bytes.decrease(it->second);
      self.stats_.active_bytes.decrease(it->second);
      self.blocks_.erase(it);
    }
  }
  delete owned;
}

class NeuronHooks final : public at::PrivateUse1HooksInterface {
 public:
  void init() const override { ensure_initialized(); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return initialized() && queue_exists(device);
  }
  c10::DeviceIndex deviceCount() const override {
    const int count = device_count();
    if (count == 0) report_device_problem();
    return static_cast<c10::DeviceIndex>(count);
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return exchange_current_device(device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchange_current_device(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return new_generator(device); }
  at::Device getDeviceFromPtr(void* pointer) const override {
    const c10::DeviceIndex device = device_of_pointer(pointer);
    TORCH_CHECK(device >= 0, "user error: the pointer is not memory of a neuron device");
    return {c10::DeviceType::PrivateUse1, device};
  }
  bool isPinnedPtr(const void* pointer) const override { return pinned_allocator().holds(pointer); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

const bool registered = [] {
  c10::register_privateuse1_backend("neuron");  // the name, also in programs without Python
  static NeuronHooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  at::setHostAllocator(at::DeviceType::PrivateUse1, &pinned_allocator());
  return true;
}();

}  // namespace
}  // namespace trnsim::aten
