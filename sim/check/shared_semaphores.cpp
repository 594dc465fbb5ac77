#include "sim/check/shared_semaphores.h"

#include <algorithm>
#include <memory>

namespace trnsim::check {

using isa::SemOp;

namespace {
constexpr int64_t kNothingWritten = INT64_MIN / 4;
}

int64_t SharedSemaphores::bound(const State& state, size_t stream, SemaphoreId s) {
  const View& v = state.views[stream][s];
  int64_t most = v.base + state.adds[s] - v.consumed;
  for (size_t e = 0; e < state.written.size(); ++e) {
    if (e != stream) most = std::max(most, state.written[e][s] + state.adds[s]);
  }
  return most;
}

bool SharedSemaphores::possible(const State& state, const Event& e) const {
  for (int w = 0; w < e.num_waits; ++w) {
    const Wait& wait = e.waits[static_cast<size_t>(w)];
    if (bound(state, e.stream, wait.semaphore) < wait.threshold) return false;
  }
  return true;
}

void SharedSemaphores::pass(State& state, const Event& e) const {
  auto& views = state.views[e.stream];
  for (int w = 0; w < e.num_waits; ++w) {
    const Wait& wait = e.waits[static_cast<size_t>(w)];
    View& v = views[wait.semaphore];
    v.known_adds = std::max(v.known_adds, wait.threshold - v.base + v.consumed);
  }
  if (e.update == SemOp::kNone) return;
  const SemaphoreId s = e.update_semaphore;
  state.updates[s].push_back({e.agent, e.update, e.update_value});
  View& v = views[s];
  switch (e.update) {
    case SemOp::kAdd:
      state.adds[s] += e.update_value;
      break;
    case SemOp::kSubtract:
      v.consumed += e.update_value;
      break;
    default:
      v.base = e.update_value;
      v.consumed = v.known_adds;
      state.written[e.stream][s] = std::max<int64_t>(state.written[e.stream][s], e.update_value);
      break;
  }
}

void SharedSemaphores::run_ahead(State& state, size_t stuck) const {
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t e = 0; e < streams_.size(); ++e) {
      if (e == stuck) continue;
      while (state.reach[e] < streams_[e].size()) {
        const Event& next = (*events_)[streams_[e][state.reach[e]]];
        if (!possible(state, next)) break;
        pass(state, next);
        ++state.reach[e];
        progress = true;
      }
    }
  }
}

std::vector<Guarantee> SharedSemaphores::needed(const State& state, const Event& e, const Wait& wait) const {
  const auto& updates = state.updates[wait.semaphore];
  const View& view = state.views[e.stream][wait.semaphore];
  std::vector<Guarantee> out;
  std::vector<uint8_t> agents;
  for (const Update& u : updates) {
    if (std::find(agents.begin(), agents.end(), u.agent) == agents.end()) agents.push_back(u.agent);
  }
  for (uint8_t a : agents) {
    int64_t others = 0, base = view.base - view.consumed;
    for (const Update& u : updates) {
      if (u.agent == a) continue;
      if (u.op == SemOp::kAdd) others += u.value;
      if (u.op == SemOp::kWrite && u.agent != e.stream) base = std::max(base, u.value);
    }
    uint32_t count = 0;
    int64_t own = 0;
    for (const Update& u : updates) {
      if (base + others + own >= wait.threshold) break;
      if (u.agent != a) continue;
      ++count;
      if (u.op == SemOp::kAdd) own += u.value;
      if (u.op == SemOp::kWrite && a != e.stream) base = std::max(base, u.value);
    }
    if (count > 0 && base + others + own >= wait.threshold) out.push_back({a, count});
  }
  return out;
}

void SharedSemaphores::solve(const std::vector<Event>& events, const Order& order) {
  events_ = &events;
  for (size_t n = 0; n < events.size(); ++n) streams_[events[n].stream].push_back(n);
  for (size_t e = 0; e < streams_.size(); ++e) {
    if (streams_[e].empty()) continue;
    // What the others can reach only grows as this stream goes on.
    auto state = std::make_unique<State>();
    for (auto& row : state->written) row.fill(kNothingWritten);
    for (size_t n : streams_[e]) {
      const Event& event = events[n];
      bool ahead = false;
      for (int w = 0; w < event.num_waits; ++w) {
        const Wait& wait = event.waits[static_cast<size_t>(w)];
        if (order.counted(wait.semaphore)) continue;
        if (!ahead) run_ahead(*state, e);
        ahead = true;
        guarantees_[{n, w}] = needed(*state, event, wait);
      }
      pass(*state, event);
      ++state->reach[e];
    }
  }
}

const std::vector<Guarantee>& SharedSemaphores::of(size_t event, int slot) const {
  static const std::vector<Guarantee> none;
  const auto found = guarantees_.find({event, slot});
  return found == guarantees_.end() ? none : found->second;
}

}  // namespace trnsim::check
