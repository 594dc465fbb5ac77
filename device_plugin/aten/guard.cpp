// Device guard: current device, streams and events for PyTorch's generic code (autograd threads,
// torch.accelerator).
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <memory>

#include "device_plugin/aten/dtypes.h"
#include "device_plugin/aten/queue.h"

namespace trnsim::aten {
namespace {

// An event is a place in the queue and the simulated time when the queue got there.
struct Event {
  c10::DeviceIndex device = 0;
  bool timed = false;
  uint64_t sequence = 0;
  std::shared_ptr<std::atomic<int64_t>> simulated_ps = std::make_shared<std::atomic<int64_t>>(0);
};

class NeuronGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::DeviceIndex previous = exchange_current_device(device.index());
    return {c10::DeviceType::PrivateUse1, previous};
  }
  c10::Device getDevice() const override { return {c10::DeviceType::PrivateUse1, current_device()}; }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    try {
      if (device.has_index()) set_current_device(device.index());
    } catch (...) {  // destructors call this; an index that was valid before stays valid
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }

  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
#define TRNSIM_TYPE_BIT(ctype, name)             \
  if (to_isa(c10::ScalarType::name).has_value()) \
    capability.capability_data.capability_bits |= uint64_t{1} << c10::kIndex_##name;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(TRNSIM_TYPE_BIT)
#undef TRNSIM_TYPE_BIT
    return capability;
  }

  c10::Stream getStream(c10::Device device) const override { return current_stream(index_of(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::DeviceType::PrivateUse1, index_of(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return new_stream(index_of(device));
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return new_stream(index_of(device)); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<intptr_t>(stream.id()));
  }

  bool queryStream(const c10::Stream& stream) const override {
    if (!queue_exists(stream.device_index())) return true;
    Queue& q = queue(stream.device_index());
    return q.reached(q.last_submitted());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronizeDevice(stream.device_index());
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    const c10::DeviceIndex index = device < 0 ? current_device() : device;
    if (queue_exists(index)) queue(index).synchronize();
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    if (*event == nullptr) {
      auto* fresh = new Event;
      fresh->timed = flag == c10::EventFlag::BACKEND_DEFAULT;
      *event = fresh;
    }
    auto* e = static_cast<Event*>(*event);
    e->device = stream.device_index();
    const c10::DeviceIndex device = e->device;
    auto time = std::make_shared<std::atomic<int64_t>>(0);
    e->simulated_ps = time;
    e->sequence = queue(device).submit([&](Command& command) {
      command.call = [time, device] {
        time->store(nrt().trnsim_simulated_ps(static_cast<uint32_t>(device)));
      };
    });
  }
  // One queue per device: everything after this call runs after the event. Events of another device are
  // waited for.
  void block(void* event, const c10::Stream& stream) const override {
    const auto* e = static_cast<const Event*>(event);
    if (e != nullptr && e->device != stream.device_index()) queue(e->device).synchronize_to(e->sequence);
  }
  bool queryEvent(void* event) const override {
    const auto* e = static_cast<const Event*>(event);
    return e == nullptr || queue(e->device).reached(e->sequence);
  }
  void synchronizeEvent(void* event) const override {
    const auto* e = static_cast<const Event*>(event);
    if (e != nullptr) queue(e->device).synchronize_to(e->sequence);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    const auto* a = static_cast<const Event*>(first);
    const auto* b = static_cast<const Event*>(second);
    TORCH_CHECK(a != nullptr && b != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    TORCH_CHECK(a->timed && b->timed,
                "Both events must be created with argument 'enable_timing=True' to measure elapsed time.");
    TORCH_CHECK(queryEvent(first) && queryEvent(second),
                "Both events must be completed before calculating elapsed time.");
    return static_cast<double>(b->simulated_ps->load() - a->simulated_ps->load()) * 1e-9;  // ps -> ms
  }

 private:
  static c10::DeviceIndex index_of(c10::Device device) {
    return device.has_index() ? device.index() : current_device();
  }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, NeuronGuard);

}  // namespace trnsim::aten
