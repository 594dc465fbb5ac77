// Fault injection: makes a chosen call of the driver fail, once or several times, to test what the layers
// above do.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "sim/driver/status.h"

namespace trnsim::driver {

enum class Fault : uint8_t {
  kMemoryAlloc,  // allocation fails
  kDmaWait,      // a host-device copy times out
  kCoreMap,      // claiming a core fails
  kHang,         // a launch never ends
  kHbmUncorrectable,
  kHbmRepairable,
  kCoreParity,
  kDmaAbort,
  kNumerical,      // a launch ends with a NaN report
  kQueueOverflow,  // notification queue
  kCount,
};
const char* fault_name(Fault fault);

class Faults {
 public:
  // The next `count` events of this kind fail, after `skip` that do not.
  void arm(Fault fault, int count = 1, int skip = 0);
  void clear();
  // "name[:count[:skip]],..."
  Status parse(const std::string& text);

  // True when this event is to fail. One relaxed load when nothing is armed.
  bool hit(Fault fault) {
    if (!any_.load(std::memory_order_relaxed)) return false;
    return hit_armed(fault);
  }

 private:
  bool hit_armed(Fault fault);

  std::atomic<bool> any_{false};
  std::atomic<int> skip_[static_cast<int>(Fault::kCount)] = {};
  std::atomic<int> count_[static_cast<int>(Fault::kCount)] = {};
};

}  // namespace trnsim::driver
