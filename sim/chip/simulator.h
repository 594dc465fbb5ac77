// The timing run of one program: the only door to the SystemC kernel.
#pragma once

#include <string>
#include <vector>

#include "sim/chip/device.h"
#include "sim/chip/observer.h"
#include "sim/chip/timed_program.h"

namespace trnsim::chip {

// What happened when, for tests, fidelity and traces. Times from the first instruction slot on, launch
// overhead excluded.
struct InstructionSpan {
  int core;
  isa::Engine engine;
  uint32_t index;
  // 0: the instruction. From 1 on: a pass of a matmul of several passes, or the weight load inside a
  // transpose.
  uint32_t part;
  Ps start, end;  // end: results visible to the engine (DMA trigger: end of the trigger instruction)
};
struct PacketSpan {
  uint32_t transfer;  // index of the DMA instruction in trigger order
  uint16_t engine;
  Ps ready, start, end;
};
struct TransferSpan {
  int core;
  isa::Engine engine;
  uint32_t index;
  Ps trigger, first_packet, complete;  // complete: write acknowledged on every engine
};
struct Trace {
  std::vector<InstructionSpan> instructions;
  std::vector<PacketSpan> packets;
  std::vector<TransferSpan> transfers;
  std::vector<bool> pe_windows;  // clock state (full or not) of each governor window that a matmul began in
};

// Executes the data effects of a program whose control flow depends on data, in simulated order.
class DataHook : public IndexReader {
 public:
  // False stops the run; the reason is kept by the hook.
  virtual bool execute(isa::Engine engine, uint32_t index) = 0;
  virtual int32_t reg(isa::Engine engine, int index) = 0;
  virtual void set_reg(isa::Engine engine, int index, int32_t value) = 0;
};

// By core of the program.
struct DataHooks {
  DataHook* of_core[isa::kMaxCores] = {};
};

struct TimingResult {
  LaunchResult::Status status = LaunchResult::Status::kOk;
  std::string message;
  LaunchStats stats;
};

// Runs in the calling thread, one run at a time in the process. `hooks` and `observer` may be null.
TimingResult run_timed(const TimedProgram& program, const config::Config& config, const DataHooks* hooks,
                       Observer* observer);

// Timing of a program in memory: the entry of tests and of tools/fidelity.
TimingResult run_timing(const isa::Program& program, const config::Config& config, Trace* trace = nullptr);
TimingResult run_timing(const isa::Program& program, const config::Config& config, Observer* observer);

// For tests: whether modules may run ahead of each other where nobody could interfere (the default).
void set_run_ahead(bool enabled);

// Runs of the SystemC kernel since the process began (the memo is tested with it).
uint64_t kernel_runs();

}  // namespace trnsim::chip
