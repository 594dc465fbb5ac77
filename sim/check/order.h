// Who is known to be over when something starts: vector clocks over engine order, DMA queues and semaphores.
//
// Agents complete work in order: the engines of each core (the streams of the program), and every DMA queue per
// engine that triggers it. A queue completes its transfers in order, but moves their bytes side by side. An engine
// starts an instruction after the ones before it; a trigger does not wait for its transfer.
//
// Each of the 16 DMA engines serves a queue in order, and each adds its own share to the semaphore of a transfer. While a
// later transfer of one semaphore is in flight, engines that are done with it may stand in for engines that still work
// on the earlier one; `counts_by_engine` tells of waits for the earlier one (pedantic checks).
//
// A wait for S >= v orders what must have happened for S to get there. Where one agent counts S upwards, that
// is its first updates up to v. Semaphores that several agents update, or that are set or lowered, are
// decided by SharedSemaphores once the whole run is known.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "isa/program.h"

namespace trnsim::check {

constexpr int kMaxAgents = isa::kNumStreams * (1 + isa::kNumDmaQueues);
constexpr uint8_t kNoAgent = 0xff;
static_assert(kMaxAgents < kNoAgent);

// Semaphores of all cores, numbered core by core.
using SemaphoreId = uint16_t;
constexpr int kAllSemaphores = isa::kMaxCores * isa::kNumSemaphores;
constexpr SemaphoreId semaphore_id(size_t stream, uint8_t semaphore) {
  return static_cast<SemaphoreId>(isa::core_of_stream(stream) * isa::kNumSemaphores + semaphore);
}

// One execution of an instruction.
struct Epoch {
  uint32_t clock = 0;  // of the agent, from 1 on
  uint32_t index = 0;  // in the stream
  uint8_t agent = kNoAgent;
  uint8_t stream = 0;
  bool present() const { return agent != kNoAgent; }
};

using Clock = std::array<uint32_t, kMaxAgents + 6>;  // rounded up for vector instructions

// "The first `count` updates of the agent on this semaphore have happened."
struct Guarantee {
  uint8_t agent = 0;
  uint32_t count = 0;
};

class Order {
 public:
  void begin(const isa::Program& program, bool counts_by_engine);

  int agents() const { return agents_; }
  bool is_engine(uint8_t agent) const { return agent < streams_; }
  uint8_t agent_of(const isa::Instruction& i, size_t stream) const {
    return i.is_dma() ? dma_agent_[stream][i.queue] : static_cast<uint8_t>(stream);
  }
  // Counted upwards by one agent: its waits are decided as they come.
  bool counted(SemaphoreId semaphore) const { return counters_[semaphore].kind == Kind::kCounted; }
  bool any_shared_wait() const { return any_shared_wait_; }

  // Of a wait that may pass too early: the transfer it is for, and the next one, which may stand in for it.
  struct StandIn {
    bool present = false;
    uint8_t waiter_stream = 0, stream = 0;
    uint32_t waiter = 0, transfer = 0, next = 0;  // indices in their streams
  };
  // Counted ones; `index` is the waiting instruction.
  StandIn wait(size_t stream, uint32_t index, SemaphoreId semaphore, int64_t threshold);
  void wait(size_t stream, SemaphoreId semaphore, const Guarantee* list, size_t n);  // shared ones
  // The next instruction of the stream starts.
  Epoch start(size_t stream, uint32_t index, uint8_t agent);
  // Two started instructions of different cores end together, knowing what both knew: barriers, exchanges. Neither has
  // updated anything, and its agent has started nothing since.
  void meet(const Epoch& a, const Epoch& b);
  // It will update the semaphore when it is over; after start().
  StandIn update(const Epoch& self, SemaphoreId semaphore, isa::SemOp op, int32_t value);

  const Clock& clock(size_t stream) const { return clocks_[stream]; }
  bool known(const Epoch& e, size_t stream) const { return clocks_[stream][e.agent] >= e.clock; }
  // Least clock of an agent over a set of streams (bit mask).
  uint32_t known_to_all(uint8_t agent, unsigned streams) const;

  // The first update at or behind `e` of a counted semaphore by its agent: what a wait has to name.
  struct Signal {
    bool present = false;
    bool at_once = false;   // by `e` itself, not by a later instruction
    uint8_t semaphore = 0;  // of its core
    int64_t value = 0;
  };
  Signal signal_of(const Epoch& e) const;
  // Updates of the agent behind `clock` up to and with `until`: how far off a knowledge is.
  int64_t updates_between(uint8_t agent, uint32_t clock, uint32_t until) const;
  int64_t value(SemaphoreId semaphore) const { return counters_[semaphore].value; }

 private:
  enum class Kind : uint8_t { kUnused, kCounted, kShared };
  struct Entry {
    int64_t total = 0;      // value once this update is visible
    uint32_t self = 0;      // clock of the agent
    uint32_t issuer = 0;    // clock of the engine that issued it
    uint32_t snapshot = 0;  // number of the clock that holds what else is known
    uint32_t index = 0;     // of the instruction in its stream
    // Of a transfer, with counts by engine: an instruction waits for it; the next transfer may be in flight with it.
    static constexpr uint32_t kNobody = UINT32_MAX;
    uint32_t waiter = kNobody, next = kNobody;
    uint8_t waiter_stream = 0;
  };
  struct Counter {
    Kind kind = Kind::kUnused;
    uint8_t agent = kNoAgent;
    uint8_t issuer = 0;
    int64_t value = 0;
    // Counted: the updates still kept, and the clocks they refer to, both numbered from the first of the run.
    std::vector<Entry> entries;
    std::vector<uint32_t> snapshots;  // lanes_ values each
    uint64_t dropped_entries = 0;
    uint32_t dropped_snapshots = 0;
    uint64_t version = 0;
    // Shared: the clock at every update, per agent.
    std::vector<std::vector<Clock>> by_agent;
  };

  void join(size_t stream, const uint32_t* other);
  void forget_old(Counter& c) const;
  static StandIn stand_in(const Counter& c, const Entry& e);

  int agents_ = 0;
  uint8_t streams_ = 0;
  size_t lanes_ = 0;  // agents_ rounded up
  std::array<std::array<uint8_t, isa::kNumDmaQueues>, isa::kNumStreams> dma_agent_{};
  std::array<Clock, isa::kNumStreams> clocks_{};
  std::vector<Clock> completed_;  // per agent, DMA: what is known once its newest transfer is over
  std::array<uint32_t, kMaxAgents> issued_{};  // DMA: triggers so far
  // Changes whenever the knowledge behind updates of the agent does.
  std::array<uint64_t, kMaxAgents> version_{};
  std::array<uint64_t, kMaxAgents> seen_version_{};
  std::array<Counter, kAllSemaphores> counters_;
  bool any_shared_wait_ = false, counts_by_engine_ = false;
};

}  // namespace trnsim::check
