// The simulated device driver: devices, core claims, HBM, host-device copies, program load and launch,
// counters, reset, fault injection. It moves bytes and rings doorbells; it never looks into an instruction.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sim/chip/device.h"
#include "sim/driver/claims.h"
#include "sim/driver/counters.h"
#include "sim/driver/faults.h"
#include "sim/driver/hbm.h"
#include "sim/driver/machine.h"
#include "sim/driver/status.h"

namespace trnsim::driver {

struct Options {
  MachineSpec machine;
  chip::Mode mode = chip::Mode::kBoth;
  bool shared = true;   // one machine for all processes that name the same run directory
  std::string run_dir;  // empty: the user's default
  std::string process_tag;
  Poison poison = Poison::kSmall;
  // Makes the chip behind a device; called at its first use, so that a process pays only for chips it uses.
  std::function<std::unique_ptr<chip::Device>()> make_chip;
};

// A block of device memory. A plain value: its owner gives it back with Driver::free.
struct Allocation {
  int core = -1;  // physical core of the machine that asked for it
  int device = 0;
  int stack = 0;
  uint64_t offset = 0;   // in the stack
  uint64_t bytes = 0;    // asked for
  uint64_t rounded = 0;  // handed out
  uint64_t device_address = 0;
  std::byte* data = nullptr;  // host mapping; in timing-only runs never touched by the simulator
  MemoryCategory category = MemoryCategory::kUncategorized;

  bool valid() const { return rounded != 0; }
};

// A program on a core: its decoded form belongs to the chip, code and constants occupy device memory.
struct LoadedImage {
  int core = -1;
  std::shared_ptr<chip::LoadedProgram> program;
  Allocation code;
  std::vector<Allocation> constants;  // one per program tensor; not valid() where the tensor is no constant
};

class Driver {
 public:
  static Status open(Options options, std::unique_ptr<Driver>* out);
  ~Driver();

  const Options& options() const { return options_; }
  const std::string& run_dir() const { return directory_.path(); }

  // --- ownership: physical core numbers of the whole machine
  Status claim_range(int first, int count);
  Status claim_free(int count, int alignment, int* first);
  void release_claims();
  const std::vector<int>& claimed() const { return claims_.held(); }
  int free_cores() const { return claims_.free_cores(); }

  // --- memory of the stack beside a core
  Status allocate(int core, uint64_t bytes, uint64_t alignment, MemoryCategory category, Allocation* out);
  void free(const Allocation& allocation);
  Status copy_in(const Allocation& to, uint64_t offset, const void* from, uint64_t bytes);
  Status copy_out(const Allocation& from, uint64_t offset, void* to, uint64_t bytes);
  Status copy(const Allocation& to, uint64_t to_offset, const Allocation& from, uint64_t from_offset,
              uint64_t bytes);
  Status fill(const Allocation& to, uint64_t offset, int value, uint64_t bytes);
  uint64_t memory_limit(int core) const;  // bytes of the stack that can be handed out
  uint64_t memory_used(int core) const;
  uint64_t memory_peak() const;                  // sum over the stacks of this process
  Status map_stack(int core, std::byte** base);  // host view of the whole stack beside a core
  std::string memory_table(int core) const;      // for out-of-memory reports

  // --- programs
  Status load(int core, const uint8_t* bytes, size_t size, LoadedImage* out, chip::LoadError* error);
  void unload(LoadedImage& image);
  // Rings the doorbell and waits. `bindings`: one entry per program tensor.
  chip::LaunchResult launch(const LoadedImage& image, const std::vector<chip::Binding>& bindings);

  void reset_core(int core);
  Status set_memo(int device, bool enabled);

  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }
  Faults& faults() { return faults_; }
  // The fault of the newest failed launch on this thread, kCount when it failed by itself.
  static Fault last_launch_fault();

 private:
  struct DeviceState {
    std::mutex mutex;  // creation of the chip and of the stacks
    std::unique_ptr<chip::Device> chip;
    std::vector<std::unique_ptr<HbmStack>> stacks;
    std::atomic<uint32_t> ready_stacks{0};
  };

  explicit Driver(Options options);
  Status chip_of(int core, chip::Device** out);
  Status stack_of(int core, HbmStack** out);
  HbmStack* existing_stack(int core) const;

  Options options_;
  RunDirectory directory_;
  ClaimTable claims_;
  Counters counters_;
  Faults faults_;
  std::vector<std::unique_ptr<DeviceState>> devices_;
};

}  // namespace trnsim::driver
