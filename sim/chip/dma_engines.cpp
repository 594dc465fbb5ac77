// DMA queues and engines: non-preemptive packets, round robin over the queues, one shared HBM stack.
#include <algorithm>
#include <functional>

#include "sim/chip/modules.h"

namespace trnsim::chip {

DmaEngines::DmaEngines(const sc_core::sc_module_name& name, CoreModule& core)
    : sc_module(name), core_(core) {}

void DmaEngines::start_run() {
  armed_ = kNever;
  EngineState empty;
  empty.head.fill(-1);
  empty.tail.fill(-1);
  engines_.assign(static_cast<size_t>(core_.program->dma_engines), empty);
  group_.assign((engines_.size() + kGroup - 1) / kGroup, kNever);
  next_.assign(group_.size() * kGroup, kNever);
  nodes_.clear();
  free_node_ = -1;
  transfers_.clear();
  free_transfer_ = -1;
  for (Queue& q : queues_) {
    q.open = 0;
    q.done_at.clear();
    q.room_waiters = 0;
    q.exchanges = 0;
    q.ring_free = 0;
  }
  for (Flow& f : flows_) {
    f.coming.clear();
    f.active = 0;
  }
  in_flight_ = 0;
  software_free_ = busy_ = busy_end_ = last_completion_ = 0;
  read_bytes_ = written_bytes_ = descriptors_ = 0;
}

int32_t DmaEngines::new_node() {
  if (free_node_ < 0) {
    nodes_.emplace_back();
    return static_cast<int32_t>(nodes_.size() - 1);
  }
  const int32_t n = free_node_;
  free_node_ = nodes_[n].next;
  return n;
}

uint32_t DmaEngines::new_transfer() {
  if (free_transfer_ < 0) {
    transfers_.emplace_back();
    return static_cast<uint32_t>(transfers_.size() - 1);
  }
  const auto t = static_cast<uint32_t>(free_transfer_);
  free_transfer_ = transfers_[t].next_free;
  return t;
}

bool DmaEngines::has_room(int queue, Ps now, Ps* room_at) {
  Queue& q = queues_[queue];
  if (q.exchanges > 0) {
    *room_at = kNever;
    return false;
  }
  // Transfers whose completion is known but lies ahead still hold their slot.
  q.done_at.erase(std::remove_if(q.done_at.begin(), q.done_at.end(), [&](Ps at) { return at <= now; }),
                  q.done_at.end());
  if (q.open + static_cast<int>(q.done_at.size()) < core_.program->queue_depth) return true;
  *room_at = q.done_at.empty() ? kNever : *std::min_element(q.done_at.begin(), q.done_at.end());
  return false;
}

void DmaEngines::trigger(int engine, uint32_t index, const TimedOp& op, Ps now) {
  const TimedProgram& program = *core_.program;
  const cost::Dma& dma = program.transfers[op.dma];
  read_bytes_ += dma.read_bytes;
  written_bytes_ += dma.written_bytes;
  descriptors_ += dma.descriptors;
  Ps begin = now;
  if (dma.software) {
    begin = std::max(now, software_free_);
    software_free_ = begin + program.software_spacing;
  }
  const Ps first = begin + op.latency;
  const uint32_t t = new_transfer();
  Transfer& transfer = transfers_[t];
  transfer.op = &op;
  transfer.dma = &dma;
  transfer.jobs_left = static_cast<uint32_t>(dma.jobs.size());
  transfer.complete = first + dma.ack;
  transfer.number = core_.pair.next_transfer();
  transfer.arrived = false;
  ++queues_[op.queue].open;
  ++in_flight_;
  if (core_.observer != nullptr) {
    core_.observer->trigger(transfer.number, static_cast<isa::Engine>(engine), index, now, first);
  }
  if (op.exchange) {
    auto& waiting = core_.pair.halves[op.value];
    if (waiting.empty() || isa::core_of_stream(waiting.front().stream) == core_.number) {
      waiting.push_back({isa::stream_number(core_.number, static_cast<isa::Engine>(engine)), index, t});
      ++queues_[op.queue].exchanges;
      return;
    }
    const uint32_t other = waiting.front().transfer;
    waiting.pop_front();
    const Ps at = now + program.remote_visible;
    transfer.other = other;
    core_.pair.other(core_).dma.begin_exchange(other, t, at, now);
    core_.other_core_notified();
    start_jobs(t, at + op.latency);
    return;
  }
  if (dma.jobs.empty()) {
    complete(t, now);
    return;
  }
  start_jobs(t, first);
}

void DmaEngines::begin_exchange(uint32_t t, uint32_t other, Ps at, Ps now) {
  const TimedOp& op = *transfers_[t].op;
  transfers_[t].other = other;
  Queue& q = queues_[op.queue];
  --q.exchanges;
  start_jobs(t, at + op.latency);
  wake_room_waiters(q, now);
}

// Hands the parts of a transfer to the DMA engines; its first packet is there at `first`.
void DmaEngines::start_jobs(uint32_t t, Ps first) {
  Transfer& transfer = transfers_[t];
  const TimedOp& op = *transfer.op;
  const cost::Dma& dma = *transfer.dma;
  transfer.complete = first + dma.ack;
  // The rings of a queue fetch their descriptors in turn, a burst after the other.
  Queue& q = queues_[op.queue];
  const Ps fetch = dma.ring > 0 ? std::max(first, q.ring_free) : first;
  q.ring_free = std::max(q.ring_free, fetch + dma.ring);
  Ps ready = fetch + dma.read_latency;
  for (size_t f = 0; f < flows_.size(); ++f) {
    if (f == 0 ? dma.read_bytes == 0 : dma.written_bytes == 0) continue;
    flows_[f].coming.push_back(ready);
    std::push_heap(flows_[f].coming.begin(), flows_[f].coming.end(), std::greater<>());
  }
  Ps soonest = kNever;
  for (const cost::DmaJob& job : dma.jobs) {
    const int32_t n = new_node();
    Node& node = nodes_[n];
    node.ready = ready;
    node.job = &job;
    node.packets_left = job.packets;
    node.transfer = t;
    node.next = -1;
    EngineState& e = engines_[job.engine];
    if (e.tail[op.queue] >= 0) {
      nodes_[e.tail[op.queue]].next = n;
    } else {
      e.head[op.queue] = n;
      e.occupied = static_cast<uint16_t>(e.occupied | (1u << op.queue));
    }
    e.tail[op.queue] = n;
    const Ps next = std::min(next_[job.engine], std::max(e.busy_until, ready));
    next_[job.engine] = next;
    Ps& group = group_[job.engine / kGroup];
    group = std::min(group, next);
    soonest = std::min(soonest, next);
    ready += core_.program->dma_stagger;
  }
  arm(soonest);
}

void DmaEngines::arm(Ps at) {
  if (at >= armed_) return;
  armed_ = at;
  core_.notify(CoreModule::kDma, at);
}

// Nothing triggered from now on reaches the engines before the lookahead has passed, so everything up to
// there can be decided at once, in time order.
void DmaEngines::act(Ps now) {
  armed_ = kNever;
  const Ps lookahead = core_.run_ahead ? std::max<Ps>(core_.program->dma_lookahead - 1, 0) : 0;
  // The stack serves the packets of both cores in time order.
  const bool two_cores = core_.program->cores > 1;
  for (;;) {
    if (core_.failed()) return;
    Ps horizon = now + lookahead;
    if (two_cores) {
      const Ps other = PairModule::bound(core_, core_.pair.other(core_).due(CoreModule::kDma));
      horizon = std::min(horizon, other - 1);
    }
    Ps next = kNever;
    for (;;) {
      // Selected without branches: the order is not predictable. Of equal times the lowest number wins.
      size_t group = 0;
      next = kNever;
      for (size_t g = 0; g < group_.size(); ++g) {
        const bool sooner = group_[g] < next;
        next = sooner ? group_[g] : next;
        group = sooner ? g : group;
      }
      if (next > horizon) break;
      size_t first = group * kGroup;
      while (next_[first] != next) ++first;
      serve(first, next, now);
    }
    if (next == kNever) return;
    if (!core_.quiet_until(next)) {
      arm(next);
      return;
    }
    now = next;
  }
}

// True when data flows the other way at `at`; times must not decrease.
bool DmaEngines::opposed(const cost::Dma& dma, Ps at) {
  bool found = false;
  for (size_t f = 0; f < flows_.size(); ++f) {
    Flow& flow = flows_[f];
    while (!flow.coming.empty() && flow.coming.front() <= at) {
      std::pop_heap(flow.coming.begin(), flow.coming.end(), std::greater<>());
      flow.coming.pop_back();
      ++flow.active;
    }
    found |= flow.active > 0 && (f == 0 ? dma.written_bytes > 0 : dma.read_bytes > 0);
  }
  return found;
}

void DmaEngines::set_next(size_t engine, Ps at) {
  next_[engine] = at;
  const size_t first = engine / kGroup * kGroup;
  group_[engine / kGroup] =
      std::min(std::min(next_[first], next_[first + 1]), std::min(next_[first + 2], next_[first + 3]));
}

Ps DmaEngines::next_ready(const EngineState& e, Ps from) const {
  Ps soonest = kNever;
  for (unsigned q = e.occupied; q != 0; q &= q - 1) {
    soonest = std::min(soonest, nodes_[e.head[static_cast<size_t>(__builtin_ctz(q))]].ready);
  }
  return soonest == kNever ? kNever : std::max(soonest, from);
}

// `at` is the time of the action; `now` the time up to which everything else is known.
void DmaEngines::serve(size_t engine, Ps at, Ps now) {
  EngineState& e = engines_[engine];
  // Occupied queues in turn, from the one after the last served. Of transfers in several traffic classes the most
  // urgent go first.
  unsigned urgent = 0xff;
  if (core_.program->traffic_classes) {
    for (unsigned q = e.occupied; q != 0; q &= q - 1) {
      const Node& node = nodes_[e.head[static_cast<size_t>(__builtin_ctz(q))]];
      if (node.ready <= at) urgent = std::min<unsigned>(urgent, transfers_[node.transfer].op->priority);
    }
  }
  const unsigned first = static_cast<unsigned>(e.last_queue) + 1;
  const unsigned both = e.occupied | static_cast<unsigned>(e.occupied) << isa::kNumDmaQueues;
  for (unsigned turn = (both >> first) & ((1u << isa::kNumDmaQueues) - 1); turn != 0; turn &= turn - 1) {
    const unsigned q = (first + static_cast<unsigned>(__builtin_ctz(turn))) % isa::kNumDmaQueues;
    const int32_t n = e.head[q];
    Node& node = nodes_[n];
    if (node.ready > at || transfers_[node.transfer].op->priority > urgent) continue;
    e.last_queue = static_cast<int>(q);
    const bool last = --node.packets_left == 0;
    const cost::DmaJob& job = *node.job;
    const Ps service = opposed(*transfers_[node.transfer].dma, at)
                           ? (last ? job.last_packet_mixed : job.packet_mixed)
                           : (last ? job.last_packet : job.packet);
    const Ps hbm = last ? job.last_packet_hbm : job.packet_hbm;
    Ps end = at + service;
    if (hbm > 0) end = std::max(end, core_.hbm.serve(at, hbm));
    if (end > busy_end_) {
      busy_ += end - std::max(at, busy_end_);
      busy_end_ = end;
    }
    e.busy_until = end;
    node.ready += job.packet_fetch;
    const uint32_t t = node.transfer;
    Transfer& transfer = transfers_[t];
    if (core_.observer != nullptr) {
      core_.observer->packet(transfer.number, node.job->engine, node.ready, at, end);
    }
    if (last) {
      e.head[q] = node.next;
      if (node.next < 0) {
        e.tail[q] = -1;
        e.occupied = static_cast<uint16_t>(e.occupied & ~(1u << q));
      }
      node.next = free_node_;
      free_node_ = n;
      transfer.complete = std::max(transfer.complete, end + transfer.dma->ack);
      if (--transfer.jobs_left == 0) {
        flows_[0].active -= transfer.dma->read_bytes > 0;
        flows_[1].active -= transfer.dma->written_bytes > 0;
        if (transfer.op->exchange) {
          complete_exchange(t, now);
        } else {
          complete(t, now);
        }
      }
    }
    set_next(engine, next_ready(e, end));
    return;
  }
  set_next(engine, next_ready(e, at));
}

// Both cores are told when both tiles have arrived: only then may either overwrite what it has sent.
void DmaEngines::complete_exchange(uint32_t t, Ps now) {
  DmaEngines& partner = core_.pair.other(core_).dma;
  Transfer& own = transfers_[t];
  Transfer& other = partner.transfers_[own.other];
  if (!other.arrived) {
    own.arrived = true;
    return;
  }
  own.complete = other.complete = std::max(own.complete, other.complete);
  partner.complete(own.other, now);
  core_.other_core_notified();
  complete(t, now);
}

void DmaEngines::wake_room_waiters(Queue& q, Ps at) {
  for (uint8_t waiting = q.room_waiters; waiting != 0;
       waiting = static_cast<uint8_t>(waiting & (waiting - 1))) {
    core_.engines[static_cast<size_t>(__builtin_ctz(waiting))]->room_in_queue(at);
  }
  q.room_waiters = 0;
}

// Called when the completion time is known; it may lie ahead of `now`.
void DmaEngines::complete(uint32_t t, Ps now) {
  Transfer& transfer = transfers_[t];
  const TimedOp& op = *transfer.op;
  const Ps at = transfer.complete;
  if (core_.observer != nullptr) core_.observer->complete(transfer.number, at);
  if (op.update != isa::SemOp::kNone) {
    core_.semaphores.update(op.update_semaphore, op.update, op.update_value, at + core_.program->visible,
                            now);
  }
  last_completion_ = std::max(last_completion_, at);
  Queue& q = queues_[op.queue];
  --q.open;
  --in_flight_;
  // Only a queue that was ever close to full needs the exact times of its free slots.
  if (q.done_at.size() >= 64) {
    q.done_at.erase(std::remove_if(q.done_at.begin(), q.done_at.end(), [&](Ps d) { return d <= now; }),
                    q.done_at.end());
  }
  q.done_at.push_back(at);
  wake_room_waiters(q, at);
  transfer.next_free = free_transfer_;
  free_transfer_ = static_cast<int32_t>(t);
}

}  // namespace trnsim::chip
