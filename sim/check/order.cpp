#include "sim/check/order.h"

#include <algorithm>

namespace trnsim::check {

namespace {
// Updates of one semaphore that are kept. An older one is known to everybody who still waits for it, or the
// waiter was that far behind that its data is gone from every buffer.
constexpr size_t kKeptUpdates = size_t{1} << 16;
}  // namespace

void Order::begin(const isa::Program& program, bool counts_by_engine) {
  *this = Order();
  counts_by_engine_ = counts_by_engine;
  streams_ = static_cast<uint8_t>(isa::stream_number(program.cores, isa::Engine::kTensor));
  agents_ = streams_;
  for (auto& row : dma_agent_) row.fill(kNoAgent);
  std::array<bool, kAllSemaphores> awaited{};
  for (size_t e = 0; e < program.streams.size(); ++e) {
    for (const isa::Instruction& i : program.streams[e]) {
      for (int w = 0; w < i.sync.num_waits; ++w) awaited[semaphore_id(e, i.sync.waits[w].semaphore)] = true;
      if (i.is_dma() && i.queue < isa::kNumDmaQueues && dma_agent_[e][i.queue] == kNoAgent) {
        dma_agent_[e][i.queue] = static_cast<uint8_t>(agents_++);
      }
      if (i.sync.update == isa::SemOp::kNone) continue;
      Counter& c = counters_[semaphore_id(e, i.sync.update_semaphore)];
      const uint8_t agent = agent_of(i, e);
      const bool adds = i.sync.update == isa::SemOp::kAdd && (i.is_dma() || i.sync.update_value >= 0);
      if (c.kind == Kind::kUnused) {
        c.kind = Kind::kCounted;
        c.agent = agent;
        c.issuer = static_cast<uint8_t>(e);
      }
      if (!adds || c.agent != agent) c.kind = Kind::kShared;
    }
  }
  lanes_ = static_cast<size_t>(agents_ + 7) / 8 * 8;
  completed_.assign(static_cast<size_t>(agents_), Clock{});
  for (size_t s = 0; s < counters_.size(); ++s) {
    if (counters_[s].kind != Kind::kShared) continue;
    counters_[s].by_agent.resize(static_cast<size_t>(agents_));
    any_shared_wait_ = any_shared_wait_ || awaited[s];
  }
}

void Order::join(size_t stream, const uint32_t* other) {
  uint32_t* own = clocks_[stream].data();
  for (size_t a = 0; a < lanes_; ++a) own[a] = std::max(own[a], other[a]);
}

Order::StandIn Order::wait(size_t stream, uint32_t index, SemaphoreId semaphore, int64_t threshold) {
  Counter& c = counters_[semaphore];
  if (threshold <= 0 || c.entries.empty()) return {};
  const auto found = std::lower_bound(c.entries.begin(), c.entries.end(), threshold,
                                      [](const Entry& e, int64_t v) { return e.total < v; });
  if (found == c.entries.end()) return {};
  if (found == c.entries.begin() && c.dropped_entries > 0) return {};
  Clock& own = clocks_[stream];
  // Whoever knows the update knows what lies behind it.
  if (own[c.agent] >= found->self) return {};
  join(stream, c.snapshots.data() + (found->snapshot - c.dropped_snapshots) * lanes_);
  own[c.agent] = std::max(own[c.agent], found->self);
  own[c.issuer] = std::max(own[c.issuer], found->issuer);
  ++version_[stream];
  if (!counts_by_engine_ || is_engine(c.agent) || found->waiter != Entry::kNobody) return {};
  found->waiter = index;
  found->waiter_stream = static_cast<uint8_t>(stream);
  return stand_in(c, *found);
}

Order::StandIn Order::stand_in(const Counter& c, const Entry& e) {
  if (e.waiter == Entry::kNobody || e.next == Entry::kNobody) return {};
  return {true, e.waiter_stream, c.issuer, e.waiter, e.index, e.next};
}

void Order::wait(size_t stream, SemaphoreId semaphore, const Guarantee* list, size_t n) {
  const Counter& c = counters_[semaphore];
  for (size_t g = 0; g < n; ++g) {
    const auto& clocks = c.by_agent[list[g].agent];
    if (list[g].count == 0 || list[g].count > clocks.size()) continue;
    join(stream, clocks[list[g].count - 1].data());
    ++version_[stream];
  }
}

Epoch Order::start(size_t stream, uint32_t index, uint8_t agent) {
  const size_t e = stream;
  const uint32_t own = ++clocks_[e][e];
  Epoch self;
  self.index = index;
  self.stream = static_cast<uint8_t>(stream);
  self.agent = agent;
  self.clock = own;
  if (is_engine(agent)) return self;
  self.clock = ++issued_[agent];
  Clock& done = completed_[agent];
  if (seen_version_[agent] != version_[e]) {
    const Clock& own_clock = clocks_[e];
    for (size_t a = 0; a < lanes_; ++a) done[a] = std::max(done[a], own_clock[a]);
    seen_version_[agent] = version_[e];
    ++version_[agent];
  }
  done[e] = own;
  done[agent] = self.clock;
  return self;
}

void Order::meet(const Epoch& a, const Epoch& b) {
  Clock both{};
  for (const Epoch* e : {&a, &b}) {
    const Clock& own = is_engine(e->agent) ? clocks_[e->stream] : completed_[e->agent];
    for (size_t n = 0; n < lanes_; ++n) both[n] = std::max(both[n], own[n]);
  }
  for (const Epoch* e : {&a, &b}) {
    (is_engine(e->agent) ? clocks_[e->stream] : completed_[e->agent]) = both;
    ++version_[e->agent];
  }
}

Order::StandIn Order::update(const Epoch& self, SemaphoreId semaphore, isa::SemOp op, int32_t value) {
  Counter& c = counters_[semaphore];
  const bool dma = !is_engine(self.agent);
  const Clock& after = dma ? completed_[self.agent] : clocks_[self.stream];
  if (op == isa::SemOp::kAdd) {
    c.value += dma ? isa::kDmaCompletionIncrement : value;
  } else {
    c.value = op == isa::SemOp::kSubtract ? c.value - value : value;
  }
  if (c.kind == Kind::kShared) {
    if (any_shared_wait_) c.by_agent[self.agent].push_back(after);
    return {};
  }
  StandIn early;
  if (counts_by_engine_ && dma && !c.entries.empty() &&
      clocks_[self.stream][self.agent] < c.entries.back().self) {
    c.entries.back().next = self.index;
    early = stand_in(c, c.entries.back());
  }
  const uint64_t version = version_[self.agent];
  if (c.snapshots.empty() || c.version != version) {
    c.snapshots.insert(c.snapshots.end(), after.begin(), after.begin() + static_cast<int64_t>(lanes_));
    c.version = version;
  }
  Entry entry;
  entry.total = c.value;
  entry.self = self.clock;
  entry.issuer = after[self.stream];
  entry.index = self.index;
  entry.snapshot = c.dropped_snapshots + static_cast<uint32_t>(c.snapshots.size() / lanes_) - 1;
  c.entries.push_back(entry);
  if (c.entries.size() >= 2 * kKeptUpdates) forget_old(c);
  return early;
}

void Order::forget_old(Counter& c) const {
  const size_t drop = c.entries.size() - kKeptUpdates;
  c.entries.erase(c.entries.begin(), c.entries.begin() + static_cast<int64_t>(drop));
  c.dropped_entries += drop;
  const uint32_t first = c.entries.front().snapshot;
  c.snapshots.erase(c.snapshots.begin(),
                    c.snapshots.begin() + static_cast<int64_t>((first - c.dropped_snapshots) * lanes_));
  c.dropped_snapshots = first;
}

uint32_t Order::known_to_all(uint8_t agent, unsigned streams) const {
  uint32_t least = UINT32_MAX;
  for (size_t e = 0; e < clocks_.size(); ++e) {
    if (streams >> e & 1) least = std::min(least, clocks_[e][agent]);
  }
  return least;
}

Order::Signal Order::signal_of(const Epoch& e) const {
  Signal best;
  uint32_t best_clock = UINT32_MAX;
  for (size_t s = 0; s < counters_.size(); ++s) {
    const Counter& c = counters_[s];
    if (c.kind != Kind::kCounted || c.agent != e.agent) continue;
    const auto found = std::lower_bound(c.entries.begin(), c.entries.end(), e.clock,
                                        [](const Entry& x, uint32_t v) { return x.self < v; });
    if (found == c.entries.end() || found->self >= best_clock) continue;
    best_clock = found->self;
    best = {true, found->self == e.clock, static_cast<uint8_t>(s % isa::kNumSemaphores), found->total};
  }
  return best;
}

int64_t Order::updates_between(uint8_t agent, uint32_t clock, uint32_t until) const {
  int64_t most = 0;
  for (const Counter& c : counters_) {
    if (c.kind != Kind::kCounted || c.agent != agent) continue;
    const auto less = [](const Entry& x, uint32_t v) { return x.self <= v; };
    const auto from = std::lower_bound(c.entries.begin(), c.entries.end(), clock, less);
    const auto to = std::lower_bound(c.entries.begin(), c.entries.end(), until, less);
    most = std::max<int64_t>(most, to - from);
  }
  return most;
}

}  // namespace trnsim::check
