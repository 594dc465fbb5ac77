// Counters of one process in a shared block, one file per process in the run directory, so that a monitor in
// another process reads them without a call. One set feeds every tool (names follow the driver's public sysfs
// tree).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "sim/driver/claims.h"
#include "sim/driver/status.h"

namespace trnsim::driver {

enum class CoreCounter : uint8_t {
  kSuccess,
  kFailure,
  kTimeout,
  kExecBadInput,
  kHwError,
  kExecuteCompletedWithError,
  kExecuteCompletedWithNumError,
  kGenericError,
  kResourceError,
  kResourceNcError,
  kExecuteFailedToQueue,
  kInvalidError,
  kUnsupportedNeffVersion,
  kOobError,
  kHwCollectivesError,
  kHwHbmUeError,
  kHwNcUeError,
  kHwDmaAbortError,
  kHwRepairableHbmUeError,
  kExecuteSwNqOverflow,
  kExecuteSwSemaphoreError,
  kExecuteSwEventError,
  kExecuteSwPsumCollision,
  kExecuteSwSequencerFatal,
  kModelLoadCount,
  kResetReqCount,
  kResetFailCount,
  kInferenceCount,
  kFlopCount,
  kNcTimeInUsePs,  // simulated
  kCount,
};
const char* counter_name(CoreCounter counter);

// Device memory by category, in the driver's words.
enum class MemoryCategory : uint8_t {
  kModelCode,
  kTensors,
  kConstants,
  kModelSharedScratchpad,
  kNonsharedScratchpad,
  kRuntimeMemory,
  kDriverMemory,
  kCollectives,
  kNotifications,
  kDmaRings,
  kUncategorized,
  kCount,
};
const char* category_name(MemoryCategory category);

struct MemoryCounter {
  std::atomic<int64_t> present{0};
  std::atomic<int64_t> peak{0};
  std::atomic<int64_t> total{0};  // bytes ever allocated
};

struct CoreCounters {
  std::atomic<int64_t> value[static_cast<int>(CoreCounter::kCount)];
  MemoryCounter memory[static_cast<int>(MemoryCategory::kCount)];
};

// Layout of the file. Readers check magic, version and bytes.
struct CounterBlock {
  char magic[8];
  uint32_t version;
  uint32_t bytes;
  int32_t pid;
  uint32_t cores;
  char tag[64];
  CoreCounters core[kMaxCores];
};

class Counters {
 public:
  Counters() = default;
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;
  ~Counters();

  Status open(const std::string& directory, int cores, const std::string& tag);

  void add(int core, CoreCounter counter, int64_t amount = 1) {
    block_->core[core].value[static_cast<int>(counter)].fetch_add(amount, std::memory_order_relaxed);
  }
  int64_t get(int core, CoreCounter counter) const {
    return block_->core[core].value[static_cast<int>(counter)].load(std::memory_order_relaxed);
  }
  void add_memory(int core, MemoryCategory category, int64_t bytes);  // negative: freed
  const MemoryCounter& memory(int core, MemoryCategory category) const {
    return block_->core[core].memory[static_cast<int>(category)];
  }

 private:
  CounterBlock* block_ = nullptr;
  int fd_ = -1;
  std::string path_;
};

}  // namespace trnsim::driver
