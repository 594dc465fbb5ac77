// A program as the timing modules see it: one compact record per instruction with its cost already computed,
// because costs depend on the instruction and the configuration alone. No SystemC here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "isa/program.h"
#include "sim/config/config.h"
#include "sim/cost/cost.h"

namespace trnsim::chip {

using cost::Ps;

enum class OpKind : uint8_t {
  kCompute,  // Vector, Scalar, GpSimd
  kLoad,     // weight load
  kMatmul,
  kPeTranspose,  // weight load of the data and the pass of an identity
  kDma,
  kSemaphore,
  kCoreBarrier,
  kRegMove,
  kRegAlu,
  kRegLoad,
  kRegStore,
  kBranch,
  kJump,
  kLoop,
  kHalt,
};

struct TimedOp {
  OpKind kind = OpKind::kHalt;
  isa::AluOp op0 = isa::AluOp::kNone;
  uint8_t num_waits = 0;
  isa::SemOp update = isa::SemOp::kNone;
  uint8_t update_semaphore = 0;
  int8_t table_set = -1;
  bool loads_table = false;   // is itself the table load
  uint8_t psum_banks = 0;     // only banks that a second engine uses too
  bool shared_bus = false;    // only when both Vector and GpSimd use it
  bool depends = false;       // reads what the compute instruction before it in the stream writes
  bool data_address = false;  // some operand address comes from a register
  bool immediate = false;
  bool exchange = false;  // DMA: half of one; `value` is the pipe
  bool wide = false;      // the registers are pairs
  uint8_t reg_dst = 0, reg_a = 0, reg_b = 0;
  uint8_t passes = 1;
  uint8_t rows = 0;
  uint8_t queue = 0;
  uint8_t priority = 0;       // DMA: traffic class
  uint16_t cells = 0xffff;    // of the systolic array
  uint16_t shift_cycles = 0;  // weight load inside a transpose
  int32_t update_value = 0;
  uint32_t target = 0;
  uint32_t dma = 0;  // index into TimedProgram::transfers; core_barrier: the tensor
  isa::SemWait waits[2];
  int64_t value = 0;  // matmul: cycles of a pass; weight load: shift cycles; register instructions: immediate
  Ps issue = 0;       // DMA: trigger time; weight load and transpose: occupancy of the load path
  Ps latency = 0;     // DMA: trigger to first packet; weight load: clock-independent part
  Ps stream = 0;
};

// Byte range of an operand, for the dependence of an instruction on its predecessor.
struct OperandRange {
  isa::Space space = isa::Space::kNone;
  uint16_t first_partition = 0, last_partition = 0;
  int64_t low = 0, high = 0;
  bool overlaps(const OperandRange& o) const {
    return space == o.space && first_partition <= o.last_partition && o.first_partition <= last_partition &&
           low <= o.high && o.low <= high;
  }
};
// Most operands of an instruction: two tiles, two scalars or index lists, and dst and aux when these are updated.
constexpr int kMaxReads = 6, kMaxWrites = 2;
struct OpRanges {
  OperandRange writes[kMaxWrites];
  OperandRange reads[kMaxReads];
  uint8_t num_writes = 0, num_reads = 0;
};

struct TimedStream {
  std::vector<TimedOp> ops;
  std::vector<OpRanges> ranges;  // same length; used where control flow joins
};

struct TimedProgram {
  std::string name;
  const isa::Program* source = nullptr;  // for messages and data-driven runs; outlives this
  int cores = 1;
  std::array<TimedStream, isa::kNumStreams> streams;  // numbered as those of the program
  std::vector<cost::Dma> transfers;                   // one per shape

  // Durations of the configuration that the modules read directly.
  Ps dispatch = 0, control = 0, branch = 0, register_memory = 0;
  Ps visible = 0, wake = 0, remote_visible = 0, table_load = 0;
  Ps matmul_overhead_cycles = 0, fill_fixed = 0, fill_cycles = 0;
  Ps dma_stagger = 0, software_spacing = 0;
  Ps fetch_restart = 0;
  int64_t fetch_window = 0;  // instructions
  int dma_engines = 0, queue_depth = 0;
  Ps dma_lookahead = 0;               // least time from a trigger to anything the DMA engines do for it
  bool traffic_classes = false;       // transfers differ in priority
  bool unresolved_registers = false;  // some register is loaded from memory
};

// `message` is filled and false returned when an instruction cannot run on the configured chip.
bool build_timed_program(const isa::Program& program, const config::Config& config, TimedProgram* out,
                         std::string* message);

bool depends_on(const OpRanges& reader, const OpRanges& writer);

}  // namespace trnsim::chip
