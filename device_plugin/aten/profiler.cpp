// What torch.autograd.profiler.profile(use_device="neuron", use_kineto=False) asks a device: times around operators. They are
// simulated times, like those of events.
#include <c10/util/Exception.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "device_plugin/aten/queue.h"

namespace trnsim::aten {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

struct TimeStamp {
  c10::DeviceIndex device = 0;
  uint64_t sequence = 0;
  std::atomic<int64_t> simulated_ps{0};
};

class NeuronProfilerStubs final : public torch::profiler::impl::ProfilerStubs {
 public:
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    auto stamp = std::make_shared<TimeStamp>();
    stamp->device = current_device();
    stamp->sequence = queue(stamp->device).submit([&](Command& command) {
      command.call = [stamp] {
        stamp->simulated_ps = nrt().trnsim_simulated_ps(static_cast<uint32_t>(stamp->device));
      };
    });
    if (device != nullptr) *device = stamp->device;
    if (cpu_ns != nullptr)
      *cpu_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count();
    *event = std::move(stamp);
  }

  float elapsed(const ProfilerVoidEventStub* first, const ProfilerVoidEventStub* second) const override {
    const auto* a = static_cast<const TimeStamp*>(first->get());
    const auto* b = static_cast<const TimeStamp*>(second->get());
    queue(b->device).synchronize_to(b->sequence);
    return static_cast<float>(static_cast<double>(b->simulated_ps - a->simulated_ps) * 1e-6);  // ps -> us
  }

  // Marks on a timeline: there is none to put them on.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}

  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> op) const override {
    for (int i = 0; i < device_count(); ++i) {
      const c10::DeviceIndex previous = exchange_current_device(static_cast<c10::DeviceIndex>(i));
      op(i);
      exchange_current_device(previous);
    }
  }
  void synchronize() const override {
    for (int i = 0; i < device_count(); ++i)
      if (queue_exists(static_cast<c10::DeviceIndex>(i)))
        queue(static_cast<c10::DeviceIndex>(i)).synchronize();
  }
};

[[maybe_unused]] const bool registered = [] {
  static NeuronProfilerStubs stubs;
  torch::profiler::impl::registerPrivateUse1Methods(&stubs);
  return true;
}();

}  // namespace
}  // namespace trnsim::aten
