// Waits on semaphores that several agents count, or that are set or lowered: which updates must have happened
// for a wait to end?
//
// For every such wait all other streams are run as far as they could get while the waiting one stands still;
// what the semaphore can reach without an update shows whether the wait needs it. Streams advance on the
// largest value that a semaphore could have, and pass barriers and exchanges with the other core without it, so an
// order is claimed only where no timing could break it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/check/order.h"

namespace trnsim::check {

class SharedSemaphores {
 public:
  struct Wait {
    SemaphoreId semaphore = 0;
    int64_t threshold = 0;
  };
  // The part of an executed instruction that concerns semaphores.
  struct Event {
    uint8_t stream = 0;
    uint8_t agent = 0;
    uint8_t num_waits = 0;
    isa::SemOp update = isa::SemOp::kNone;
    SemaphoreId update_semaphore = 0;
    int32_t update_value = 0;
    std::array<Wait, 2> waits{};
  };

  // `events` of a whole run, in an order that happened.
  void solve(const std::vector<Event>& events, const Order& order);
  // Of wait `slot` of event `event`; empty for waits on counted semaphores.
  const std::vector<Guarantee>& of(size_t event, int slot) const;

 private:
  struct Update {
    uint8_t agent = 0;
    isa::SemOp op = isa::SemOp::kNone;
    int64_t value = 0;
  };
  // What one stream can tell of the value of a semaphore.
  struct View {
    int64_t base = 0;        // value it wrote last, or 0
    int64_t consumed = 0;    // additions that are known to lie before that, and its subtractions since
    int64_t known_adds = 0;  // additions that must have happened, from its own waits
  };
  // The streams while `stuck` stands still.
  struct State {
    std::array<size_t, isa::kNumStreams> reach{};
    std::array<int64_t, kAllSemaphores> adds{};
    std::array<std::vector<Update>, kAllSemaphores> updates;
    std::array<std::array<View, kAllSemaphores>, isa::kNumStreams> views{};
    // Largest value each stream has written, with the base that is only its own.
    std::array<std::array<int64_t, kAllSemaphores>, isa::kNumStreams> written{};
  };

  bool possible(const State& state, const Event& e) const;
  void pass(State& state, const Event& e) const;
  void run_ahead(State& state, size_t stuck) const;
  std::vector<Guarantee> needed(const State& state, const Event& e, const Wait& wait) const;
  static int64_t bound(const State& state, size_t stream, SemaphoreId semaphore);

  const std::vector<Event>* events_ = nullptr;
  std::array<std::vector<size_t>, isa::kNumStreams> streams_;
  std::map<std::pair<size_t, int>, std::vector<Guarantee>> guarantees_;
};

}  // namespace trnsim::check
