// Time: pure functions from a decoded instruction and the configuration to durations. Knows no data and no
// simulator. All times are integer picoseconds. C++17.
//
// Each law names its source in sim/config/config.proto beside the parameters it uses.
#pragma once

#include <cstdint>
#include <vector>

#include "isa/instruction.h"
#include "sim/config/config.h"

namespace trnsim::cost {

using Ps = int64_t;

inline Ps ps(double ns) { return static_cast<Ps>(ns * 1000.0 + 0.5); }
inline Ps ps_of_cycles(double cycles, double ghz) { return static_cast<Ps>(cycles * 1000.0 / ghz + 0.5); }

// Elements and dtypes of one operand as the timing laws see them.
int64_t innermost_stride_bytes(const isa::Access& a);  // 0 for a broadcast, the element size when contiguous
// Distinct 16-byte sectors that one partition of the operand touches.
int64_t sectors(const isa::Access& a);

// ---- Vector, Scalar and GpSimd instructions ----

struct Compute {
  Ps issue = 0;              // start to the earliest start of the next instruction of the engine
  Ps latency = 0;            // start to visible results (semaphore delay not included)
  Ps stream = 0;             // time the operands stream through the memory ports
  int8_t table_set = -1;     // Scalar: activation table set that must be resident, -1 = any
  uint8_t psum_banks = 0;    // banks read or written
  bool loads_table = false;  // is itself the table load
  bool shared_bus = false;   // uses the SBUF bus that Vector and GpSimd share
};
Compute vector_cost(const isa::Instruction& i, const config::Config& c);
Compute scalar_cost(const isa::Instruction& i, const config::Config& c);
Compute gpsimd_cost(const isa::Instruction& i, const config::Config& c);
Compute compute_cost(const isa::Instruction& i, const config::Config& c);  // by engine

// Time added to the instruction when the Scalar engine holds another table set (or none: -1).
inline Ps table_load(const Compute& cost, int resident, const config::Config& c) {
  return cost.table_set >= 0 && cost.table_set != resident && !cost.loads_table ? ps(c.scalar.table_load_ns)
                                                                                : 0;
}

uint8_t psum_banks(const isa::Access& a);  // 0 when not PSUM or the address comes from a register

// ---- Tensor engine ----

// A weight load (also the load half of a transpose).
struct WeightLoad {
  Ps occupancy = 0;          // time the load path is busy; the next matmul waits for it
  Ps fixed = 0;              // clock-independent part of the duration, occupancy included
  int64_t shift_cycles = 0;  // part at the governed clock
};
WeightLoad weight_load(const isa::Instruction& i, const config::Config& c);

// A matmul (also the streaming half of a transpose).
struct Matmul {
  int passes = 1;
  int64_t cycles = 0;  // busy cycles of one pass
  int rows = 0;        // active rows of the array, for the governor
  uint8_t psum_banks = 0;
};
Matmul matmul(const isa::Instruction& i, const config::Config& c);

// Clock of the systolic array: windows on a fixed phase from the launch on; the use of one window decides the
// clock of the next. `run` is the only place that turns array cycles into time.
class PeClock {
 public:
  explicit PeClock(const config::Config& c) { reset(c); }
  PeClock() = default;
  void reset(const config::Config& c);

  // Streams `cycles` from `start` on; `rows` of 128 rows are active. Returns the end. Starts must not decrease, but
  // runs may overlap (tiles of the array): the clock of a window is decided by the runs that are known when the first
  // of them leaves it.
  Ps run(Ps start, int64_t cycles, int rows);
  // Time of `cycles` at the clock that holds at `at`, without counting as activity.
  Ps idle_cycles(Ps at, int64_t cycles);
  bool full_at(Ps at);
  double last_window_use() const { return static_cast<double>(last_activity_) / full_activity_; }

 private:
  void advance_to(Ps at);
  void next_window();

  // Of the window before the present one, where a run on another tile has gone ahead.
  double per_cycle_before() const { return full_before_ ? full_ps_ : cold_ps_; }

  double full_ps_ = 0, cold_ps_ = 0;  // per cycle
  Ps window_ = 0;
  Ps window_end_ = 0;
  double full_activity_ = 1;
  int64_t raise_ = 0, drop_ = 0;  // activity thresholds, cycles x rows
  int64_t activity_ = 0, last_activity_ = 0;
  bool full_ = false, full_before_ = false;
};

// ---- DMA ----

// Work of one DMA engine for one transfer.
struct DmaJob {
  uint16_t engine = 0;
  uint32_t packets = 1;
  uint32_t descriptors = 1;
  Ps packet = 0;       // service time of one packet
  Ps last_packet = 0;  // of the final one
  // The same while data flows in the other direction too.
  Ps packet_mixed = 0, last_packet_mixed = 0;
  Ps packet_hbm = 0, last_packet_hbm = 0;  // time the HBM stack is occupied
  Ps packet_fetch = 0;                     // time the fetch of the descriptors of a packet takes on its ring
};

struct Dma {
  Ps trigger = 0;                             // time the sequencer is busy with the trigger
  Ps first_packet = 0;                        // trigger start to the first packet at the engines
  Ps read_latency = 0;                        // first packet to the first data, pipelined across transfers
  Ps ack = 0;                                 // last data written to completion
  bool software = false;                      // needs the software descriptor generator
  int64_t read_bytes = 0, written_bytes = 0;  // HBM traffic
  int64_t descriptors = 0;
  Ps ring = 0;               // time the fetch of all its descriptors takes on one ring (host-built rings)
  std::vector<DmaJob> jobs;  // by engine number
};
Dma dma(const isa::Instruction& i, const config::Config& c);

// Service time of one descriptor of `bytes` made of contiguous runs of `run` bytes.
Ps descriptor_time(int64_t bytes, int64_t run, bool store, const config::Config& c);

}  // namespace trnsim::cost
