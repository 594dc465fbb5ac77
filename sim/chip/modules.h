// SystemC modules of a pair of NeuronCores. Elaborated once per process; every run points them at a program and its
// durations. Event driven: a module acts only at the times where something starts or ends. The pair is one process of
// the kernel that lets the engines and the DMA of its cores act in the order of their times (of equal times: core by
// core, by actor), up to the next activity of anybody else in the kernel; an engine may also run ahead of the others
// while none of them is due, which is exact because nobody could have interfered.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <systemc>
#include <vector>

#include "sim/chip/observer.h"
#include "sim/chip/pe_array.h"
#include "sim/chip/simulator.h"
#include "sim/chip/timed_program.h"

namespace trnsim::chip {

constexpr Ps kNever = INT64_MAX;

class CoreModule;
class PairModule;

// 256 counters. Updates carry the time at which they become visible; nothing is scheduled for an update that
// nobody waits for.
class SemaphoreFile : public sc_core::sc_module {
 public:
  SemaphoreFile(const sc_core::sc_module_name& name, CoreModule& core);
  void start_run();

  // Time from which value >= threshold with all updates known so far; kNever when they do not suffice.
  Ps satisfied_at(int semaphore, int64_t threshold, Ps now);
  void update(int semaphore, isa::SemOp op, int32_t value, Ps visible_at, Ps now);
  void add_waiter(int semaphore, int engine) {
    counters_[semaphore].waiters |= static_cast<uint8_t>(1u << engine);
  }
  void remove_waiter(int semaphore, int engine) {
    counters_[semaphore].waiters &= static_cast<uint8_t>(~(1u << engine));
  }
  int64_t final_value(int semaphore);

 private:
  struct Pending {
    Ps at;
    isa::SemOp op;
    int32_t value;
  };
  struct Counter {
    int64_t value = 0;
    uint32_t head = 0;  // first pending update not applied yet
    uint8_t waiters = 0;
    bool touched = false;
    std::vector<Pending> pending;
  };
  static int64_t apply(int64_t value, const Pending& p);
  static void settle(Counter& c, Ps now);

  CoreModule& core_;
  std::array<Counter, isa::kNumSemaphores> counters_;
  std::vector<uint16_t> touched_;
};

// Arbitration of PSUM banks and of the bus that fast vector modes share with GpSimd.
class MemoryPorts : public sc_core::sc_module {
 public:
  explicit MemoryPorts(const sc_core::sc_module_name& name);
  void start_run();
  // Earliest time from `now` on at which the engine may stream; reserve() takes the ports.
  Ps available(int engine, const TimedOp& op, Ps now) const;
  void reserve(int engine, const TimedOp& op, Ps end);

 private:
  struct Port {
    Ps busy_until = 0;
    int engine = -1;
  };
  std::array<Port, isa::kPsumBanks> banks_;
  Port bus_;
};

// One HBM stack, which both cores share: a bandwidth server.
class HbmPort : public sc_core::sc_module {
 public:
  explicit HbmPort(const sc_core::sc_module_name& name);
  void start_run() { free_at_ = 0; }
  // Time at which a request made at `now` that occupies the stack for `duration` has passed. Requests must come in
  // time order.
  Ps serve(Ps now, Ps duration) {
    free_at_ = (free_at_ > now ? free_at_ : now) + duration;
    return free_at_;
  }

 private:
  Ps free_at_ = 0;
};

// The DMA queues and engines of the core. An engine serves one packet of a queue, then looks at the next
// queue.
class DmaEngines : public sc_core::sc_module {
 public:
  DmaEngines(const sc_core::sc_module_name& name, CoreModule& core);
  void start_run();
  // False when the queue is full; *room_at is the time at which a slot gets free, when that is known already.
  bool has_room(int queue, Ps now, Ps* room_at);
  void wait_for_room(int queue, int engine) {
    queues_[queue].room_waiters |= static_cast<uint8_t>(1u << engine);
  }
  void trigger(int engine, uint32_t index, const TimedOp& op, Ps now);
  // The exchange of a transfer begins: the other core has come.
  void begin_exchange(uint32_t transfer, uint32_t other, Ps at, Ps now);
  void act(Ps now);  // its time has come

  Ps busy() const { return busy_; }
  Ps last_completion() const { return last_completion_; }
  int64_t read_bytes() const { return read_bytes_; }
  int64_t written_bytes() const { return written_bytes_; }
  int64_t descriptors() const { return descriptors_; }
  bool idle() const { return in_flight_ == 0; }

 private:
  struct Node {  // one engine's part of one transfer
    Ps ready = 0;
    const cost::DmaJob* job = nullptr;
    uint32_t packets_left = 0;
    uint32_t transfer = 0;
    int32_t next = -1;
  };
  struct Transfer {
    const TimedOp* op = nullptr;
    const cost::Dma* dma = nullptr;
    uint32_t jobs_left = 0;
    uint32_t number = 0;   // in trigger order
    uint32_t other = 0;    // exchange: the transfer of the other core
    bool arrived = false;  // exchange: this half is over, the other may not be
    Ps complete = 0;
    int32_t next_free = -1;
  };
  // Transfers of one direction whose data flows; those whose first packet lies ahead wait in `coming`.
  struct Flow {
    std::vector<Ps> coming;  // heap, soonest first
    int active = 0;
  };
  struct EngineState {
    Ps busy_until = 0;
    int last_queue = 0;
    uint16_t occupied = 0;  // queues with nodes
    std::array<int32_t, isa::kNumDmaQueues> head{}, tail{};
  };
  struct Queue {
    int open = 0;              // transfers whose completion time is not known yet
    std::vector<Ps> done_at;   // completion times that may lie ahead
    uint8_t room_waiters = 0;  // engines whose trigger is blocked
    int exchanges = 0;         // that wait for the other core: the queue takes nothing more
    Ps ring_free = 0;          // the fetch of all descriptors so far is over
  };

  void serve(size_t engine, Ps at, Ps now);
  void complete(uint32_t transfer, Ps now);
  void complete_exchange(uint32_t transfer, Ps now);
  void start_jobs(uint32_t transfer, Ps first);
  void wake_room_waiters(Queue& q, Ps at);
  bool opposed(const cost::Dma& dma, Ps at);
  int32_t new_node();
  uint32_t new_transfer();
  void arm(Ps at);

  CoreModule& core_;
  Ps armed_ = kNever;
  void set_next(size_t engine, Ps at);
  // When the engine has something to serve from `from` on.
  Ps next_ready(const EngineState& e, Ps from) const;
  static constexpr size_t kGroup = 4;  // engines whose earliest next action is kept

  std::vector<EngineState> engines_;
  std::vector<Ps> next_;   // time of the next action of each engine, filled up to whole groups
  std::vector<Ps> group_;  // earliest of each group
  std::vector<Node> nodes_;
  int32_t free_node_ = -1;
  std::vector<Transfer> transfers_;
  int32_t free_transfer_ = -1;
  std::array<Queue, isa::kNumDmaQueues> queues_;
  int in_flight_ = 0;
  Ps software_free_ = 0;
  std::array<Flow, 2> flows_;  // reads of HBM, writes to HBM
  Ps busy_ = 0, busy_end_ = 0, last_completion_ = 0;
  int64_t read_bytes_ = 0, written_bytes_ = 0, descriptors_ = 0;
};

// One engine: the in-order sequencer with its registers and the datapath behind it.
class EngineModule : public sc_core::sc_module {
 public:
  EngineModule(const sc_core::sc_module_name& name, CoreModule& core, isa::Engine engine);
  void start_run();
  void semaphore_changed(Ps now);  // an awaited semaphore got a new update
  void room_in_queue(Ps at);
  void other_core_at_barrier(Ps seen);  // the awaited one has come
  void act(Ps now);                     // its time has come

  uint64_t barriers() const { return barriers_; }
  bool at_barrier() const { return phase_ == Phase::kBarrier; }

  bool halted() const { return halted_; }
  uint32_t pc() const { return pc_; }
  Ps last_end() const { return last_end_; }
  Ps busy() const { return busy_; }
  int64_t instructions() const { return instructions_; }
  int32_t reg(int index) const { return registers_[index]; }

 private:
  enum class Phase : uint8_t { kDispatch, kBlocked, kGranted, kAcquire, kQueueFull, kBarrier };

  Ps advance(Ps now);  // acts once; returns the time of the next action, kNever to sleep
  Ps wait_time(const TimedOp& op, Ps now);
  void leave_wait(const TimedOp& op);
  bool acquire(const TimedOp& op, Ps start, Ps now, Ps* retry);
  Ps compute(const TimedOp& op, Ps ready, Ps now);
  Ps weight_load(const TimedOp& op, Ps ready);
  Ps matmul(const TimedOp& op, Ps ready, Ps now);
  Ps dma(const TimedOp& op, Ps ready, Ps now);
  Ps control(const TimedOp& op, Ps now);
  Ps barrier(const TimedOp& op, Ps now);
  Ps finish(const TimedOp& op, Ps start, Ps end, Ps now);
  bool begin();
  bool report_issue();
  size_t stream_number() const;
  std::string label(uint32_t index) const;  // of an instruction, for messages
  bool unresolved(int reg, const char* use);
  void jump(uint32_t target);

  CoreModule& core_;
  const isa::Engine engine_;
  const int number_;

  const TimedProgram* program_ = nullptr;
  const TimedStream* stream_ = nullptr;
  uint32_t pc_ = 0;
  Phase phase_ = Phase::kDispatch;
  bool halted_ = true;
  bool jumped_ = false;
  bool track_ranges_ = false;
  Ps resume_ = 0, start_ = 0;
  Ps free_ = 0;    // datapath (tensor: the last of the tiles)
  Ps result_ = 0;  // end of the newest compute instruction
  uint32_t result_index_ = UINT32_MAX;
  Ps load_free_ = 0;  // the path of weight loads
  PeArray array_;
  int table_set_ = -1;
  cost::PeClock pe_clock_;
  Ps last_end_ = 0, busy_ = 0;
  int64_t instructions_ = 0;
  uint64_t barriers_ = 0;    // reached so far
  Ps barrier_seen_ = 0;      // when the other core sees the newest one
  uint32_t barrier_at_ = 0;  // the operation
  std::array<int32_t, isa::kNumRegisters> registers_{};
  uint64_t unknown_registers_ = 0;
};

// A NeuronCore and the state of the current run.
class CoreModule : public sc_core::sc_module {
 public:
  CoreModule(const sc_core::sc_module_name& name, PairModule& pair, int number);
  void start_run(DataHook* data_hook, Observer* watcher);

  // Who acts: the engines by their number, then the DMA.
  static constexpr int kDma = isa::kNumEngines;
  static constexpr int kActors = kDma + 1;
  // Has `actor` act at `at`, or when it is due already, if that is sooner.
  void notify(int actor, Ps at) {
    Ps& due = due_[static_cast<size_t>(actor)];
    if (at < due) due = at;
  }
  Ps due(int actor) const { return due_[static_cast<size_t>(actor)]; }
  Ps next_due() const {
    Ps next = kNever;
    for (Ps due : due_) next = due < next ? due : next;
    return next;
  }
  // Acts while it is due before `end`. Returns the time of the last action.
  Ps act_until(Ps end);
  // True when nobody acts before or at `at`: the caller, who is running, may go on to it at once.
  bool quiet_until(Ps at) const { return run_ahead && at < end_ && at < next_due(); }
  // The running actor has given the other core something to do.
  void other_core_notified();
  void fail(LaunchResult::Status status, std::string message);
  bool failed() const;

  const int number;
  PairModule& pair;
  const TimedProgram* program = nullptr;
  const config::Config* config = nullptr;
  DataHook* hook = nullptr;
  Observer* observer = nullptr;
  // False: every action is taken alone, in the order of time (tests compare the two).
  bool run_ahead = true;

  SemaphoreFile semaphores;
  MemoryPorts ports;
  HbmPort& hbm;
  DmaEngines dma;
  std::array<EngineModule*, isa::kNumEngines> engines{};

 private:
  Ps end_ = kNever;  // somebody outside of the core may act from here on
  std::array<Ps, kActors> due_{};
};

// The two cores beside one HBM stack, and what they do together.
class PairModule : public sc_core::sc_module {
 public:
  SC_HAS_PROCESS(PairModule);
  explicit PairModule(const sc_core::sc_module_name& name);
  // `hooks` and `observer` may be null.
  TimingResult run(const TimedProgram& program, const config::Config& config, const DataHooks* hooks,
                   Observer* observer);

  CoreModule& other(const CoreModule& core) { return *cores[static_cast<size_t>(1 - core.number)]; }
  // Time before which a core may act without regard to the other one, whose next action is at `next`.
  static Ps bound(const CoreModule& core, Ps next) {
    return core.number == 0 && next != kNever ? next + 1 : next;
  }

  // Half of an exchange that waits for the other core.
  struct Half {
    size_t stream = 0;
    uint32_t index = 0;  // of the instruction
    uint32_t transfer = 0;
  };
  std::map<int64_t, std::deque<Half>> halves;  // by pipe; all of a pipe are of one core

  void fail(LaunchResult::Status status, std::string message);
  bool failed() const { return result_.status != LaunchResult::Status::kOk; }
  uint32_t next_transfer() { return transfers_++; }

  bool run_ahead = true;
  HbmPort hbm;
  std::array<CoreModule*, isa::kMaxCores> cores{};

 private:
  void dispatch();
  std::string explain_hang();
  void fill_stats(const config::Config& config);

  sc_core::sc_event event_;
  const TimedProgram* program_ = nullptr;
  Ps base_ = 0;  // kernel time at which the run began
  uint32_t transfers_ = 0;
  TimingResult result_;
};

inline bool CoreModule::failed() const { return pair.failed(); }

}  // namespace trnsim::chip
