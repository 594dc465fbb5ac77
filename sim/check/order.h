// Who is known to be over when something starts: vector clocks over engine order, DMA queues and semaphores.
//
// Agents complete work in order: the five engines, and every DMA queue per engine that triggers it. A queue
// completes its transfers in order, but moves their bytes side by side. An engine starts an instruction after
// the ones before it; a trigger does not wait for its transfer.
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

constexpr int kMaxAgents = isa::kNumEngines * (1 + isa::kNumDmaQueues);
constexpr uint8_t kNoAgent = 0xff;

// One execution of an instruction.
struct Epoch {
  uint32_t clock = 0;  // of the agent, from 1 on
  uint32_t index = 0;  // in the stream of `engine`
  uint8_t agent = kNoAgent;
  uint8_t engine = 0;
  bool present() const { return agent != kNoAgent; }
};

using Clock = std::array<uint32_t, kMaxAgents + 3>;  // rounded up for vector instructions

// "The first `count` updates of the agent on this semaphore have happened."
struct Guarantee {
  uint8_t agent = 0;
  uint32_t count = 0;
};

class Order {
 public:
  void begin(const isa::Program& program);

  int agents() const { return agents_; }
  bool is_engine(uint8_t agent) const { return agent < isa::kNumEngines; }
  uint8_t agent_of(const isa::Instruction& i, isa::Engine engine) const {
    return i.is_dma() ? dma_agent_[static_cast<size_t>(engine)][i.queue] : static_cast<uint8_t>(engine);
  }
  // Counted upwards by one agent: its waits are decided as they come.
  bool counted(uint8_t semaphore) const { return counters_[semaphore].kind == Kind::kCounted; }
  bool any_shared_wait() const { return any_shared_wait_; }

  void wait(isa::Engine engine, uint8_t semaphore, int64_t threshold);                // counted ones
  void wait(isa::Engine engine, uint8_t semaphore, const Guarantee* list, size_t n);  // shared ones
  // The next instruction of the engine starts.
  Epoch start(isa::Engine engine, uint32_t index, uint8_t agent);
  // It will update the semaphore when it is over; after start().
  void update(const Epoch& self, uint8_t semaphore, isa::SemOp op, int32_t value);

  const Clock& clock(isa::Engine engine) const { return clocks_[static_cast<size_t>(engine)]; }
  bool known(const Epoch& e, isa::Engine engine) const {
    return clocks_[static_cast<size_t>(engine)][e.agent] >= e.clock;
  }
  // Least clock of an agent over a set of engines (bit mask).
  uint32_t known_to_all(uint8_t agent, uint8_t engines) const;

  // The first update at or behind `e` of a counted semaphore by its agent: what a wait has to name.
  struct Signal {
    bool present = false;
    bool at_once = false;  // by `e` itself, not by a later instruction
    uint8_t semaphore = 0;
    int64_t value = 0;
  };
  Signal signal_of(const Epoch& e) const;
  // Updates of the agent behind `clock` up to and with `until`: how far off a knowledge is.
  int64_t updates_between(uint8_t agent, uint32_t clock, uint32_t until) const;
  int64_t value(uint8_t semaphore) const { return counters_[semaphore].value; }

 private:
  enum class Kind : uint8_t { kUnused, kCounted, kShared };
  struct Entry {
    int64_t total = 0;      // value once this update is visible
    uint32_t self = 0;      // clock of the agent
    uint32_t issuer = 0;    // clock of the engine that issued it
    uint32_t snapshot = 0;  // number of the clock that holds what else is known
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

  void join(isa::Engine engine, const uint32_t* other);
  void forget_old(Counter& c) const;

  int agents_ = 0;
  size_t lanes_ = 0;  // agents_ rounded up
  std::array<std::array<uint8_t, isa::kNumDmaQueues>, isa::kNumEngines> dma_agent_{};
  std::array<Clock, isa::kNumEngines> clocks_{};
  std::vector<Clock> completed_;  // per agent, DMA: what is known once its newest transfer is over
  std::array<uint32_t, kMaxAgents> issued_{};  // DMA: triggers so far
  // Changes whenever the knowledge behind updates of the agent does.
  std::array<uint64_t, kMaxAgents> version_{};
  std::array<uint64_t, kMaxAgents> seen_version_{};
  std::array<Counter, isa::kNumSemaphores> counters_;
  bool any_shared_wait_ = false;
};

}  // namespace trnsim::check
