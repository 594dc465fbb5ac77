// Semaphores, memory ports and the run of one program.
#include <algorithm>

#include "sim/chip/modules.h"

namespace trnsim::chip {

using isa::Engine;
using Status = LaunchResult::Status;

// ---- semaphores ----

SemaphoreFile::SemaphoreFile(const sc_core::sc_module_name& name, CoreModule& core)
    : sc_module(name), core_(core) {}

void SemaphoreFile::start_run() {
  for (uint16_t s : touched_) {
    Counter& c = counters_[s];
    c.value = 0;
    c.head = 0;
    c.touched = false;
    c.pending.clear();
  }
  touched_.clear();
  for (Counter& c : counters_) c.waiters = 0;
}

int64_t SemaphoreFile::apply(int64_t value, const Pending& p) {
  switch (p.op) {
    case isa::SemOp::kAdd:
      return value + p.value;
    case isa::SemOp::kSubtract:
      return value - p.value;
    case isa::SemOp::kWrite:
      return p.value;
    default:
      return value;
  }
}

void SemaphoreFile::settle(Counter& c, Ps now) {
  while (c.head < c.pending.size() && c.pending[c.head].at <= now)
    c.value = apply(c.value, c.pending[c.head++]);
  if (c.head == c.pending.size()) {
    c.pending.clear();
    c.head = 0;
  } else if (c.head >= 64) {
    c.pending.erase(c.pending.begin(), c.pending.begin() + c.head);
    c.head = 0;
  }
}

Ps SemaphoreFile::satisfied_at(int semaphore, int64_t threshold, Ps now) {
  Counter& c = counters_[semaphore];
  settle(c, now);
  if (c.value >= threshold) return now;
  int64_t value = c.value;
  for (size_t i = c.head; i < c.pending.size(); ++i) {
    value = apply(value, c.pending[i]);
    if (value >= threshold) return c.pending[i].at;
  }
  return kNever;
}

void SemaphoreFile::update(int semaphore, isa::SemOp op, int32_t value, Ps visible_at, Ps now) {
  Counter& c = counters_[semaphore];
  if (!c.touched) {
    c.touched = true;
    touched_.push_back(static_cast<uint16_t>(semaphore));
  }
  settle(c, now);
  c.pending.push_back({visible_at, op, value});
  for (size_t i = c.pending.size() - 1; i > c.head && c.pending[i - 1].at > c.pending[i].at; --i) {
    std::swap(c.pending[i - 1], c.pending[i]);
  }
  for (uint8_t w = c.waiters; w != 0; w = static_cast<uint8_t>(w & (w - 1))) {
    core_.engines[static_cast<size_t>(__builtin_ctz(w))]->semaphore_changed(now);
  }
}

int64_t SemaphoreFile::final_value(int semaphore) {
  Counter& c = counters_[semaphore];
  settle(c, kNever);
  return c.value;
}

// ---- memory ports ----

MemoryPorts::MemoryPorts(const sc_core::sc_module_name& name) : sc_module(name) {}

void MemoryPorts::start_run() {
  banks_.fill(Port{});
  bus_ = Port{};
}

Ps MemoryPorts::available(int engine, const TimedOp& op, Ps now) const {
  Ps at = now;
  for (unsigned banks = op.psum_banks; banks != 0; banks &= banks - 1) {
    const Port& p = banks_[static_cast<size_t>(__builtin_ctz(banks))];
    if (p.engine != engine) at = std::max(at, p.busy_until);
  }
  if (op.shared_bus && bus_.engine != engine) at = std::max(at, bus_.busy_until);
  return at;
}

void MemoryPorts::reserve(int engine, const TimedOp& op, Ps end) {
  for (unsigned banks = op.psum_banks; banks != 0; banks &= banks - 1) {
    banks_[static_cast<size_t>(__builtin_ctz(banks))] = {end, engine};
  }
  if (op.shared_bus) bus_ = {end, engine};
}

HbmPort::HbmPort(const sc_core::sc_module_name& name) : sc_module(name) {}

// ---- core ----

CoreModule::CoreModule(const sc_core::sc_module_name& name)
    : sc_module(name), semaphores("semaphores", *this), ports("ports"), hbm("hbm"), dma("dma", *this) {
  SC_METHOD(dispatch);
  sensitive << event_;
  dont_initialize();
  static const char* const kNames[] = {"tensor", "vector", "scalar", "gpsimd", "sync"};
  for (size_t e = 0; e < engines.size(); ++e)
    engines[e] = new EngineModule(kNames[e], *this, static_cast<Engine>(e));
}

// Lets the actors act in time order, up to the next activity of other modules.
void CoreModule::dispatch() {
  const Ps kernel_now = static_cast<Ps>(sc_core::sc_time_stamp().value()) - base_;
  const auto resume_at = [&](Ps at) {
    event_.notify(sc_core::sc_time::from_value(static_cast<uint64_t>(std::max<Ps>(at - kernel_now, 0))));
  };
  foreign_ = kNever;
  if (sc_core::sc_pending_activity_at_current_time()) {
    foreign_ = kernel_now;
  } else if (sc_core::sc_pending_activity_at_future_time()) {
    foreign_ = kernel_now + static_cast<Ps>(sc_core::sc_time_to_pending_activity().value());
  }
  Ps last = kernel_now;
  for (;;) {
    size_t actor = 0;
    Ps next = kNever;
    for (size_t a = 0; a < due_.size(); ++a) {
      const bool sooner = due_[a] < next;
      next = sooner ? due_[a] : next;
      actor = sooner ? a : actor;
    }
    if (next == kNever) break;
    if (next > foreign_ || (next == foreign_ && foreign_ > kernel_now)) {
      resume_at(next);
      return;
    }
    last = next;
    due_[actor] = kNever;
    if (actor == kDma) {
      dma.act(next);
    } else {
      engines[actor]->act(next);
    }
  }
  if (last > kernel_now) resume_at(last);  // the clock of the kernel follows
}

void CoreModule::fail(Status status, std::string message) {
  if (failed()) return;
  result_.status = status;
  result_.message = std::move(message);
}

TimingResult CoreModule::run(const TimedProgram& p, const config::Config& c, DataHook* h, Observer* o) {
  program = &p;
  config = &c;
  hook = h;
  observer = o;
  result_ = TimingResult{};
  base_ = static_cast<Ps>(sc_core::sc_time_stamp().value());
  semaphores.start_run();
  ports.start_run();
  hbm.start_run();
  due_.fill(kNever);
  dma.start_run();
  for (EngineModule* e : engines) e->start_run();
  event_.notify(sc_core::SC_ZERO_TIME);

  sc_core::sc_start();

  if (!failed()) {
    const bool stuck =
        std::any_of(engines.begin(), engines.end(), [](const EngineModule* e) { return !e->halted(); });
    if (stuck) fail(Status::kHang, explain_hang());
  }
  LaunchStats& s = result_.stats;
  Ps end = dma.last_completion();
  for (size_t e = 0; e < engines.size(); ++e) {
    end = std::max(end, engines[e]->last_end());
    s.engines[e].busy_ps = engines[e]->busy();
    s.engines[e].instructions = engines[e]->instructions();
    s.instructions += engines[e]->instructions();
  }
  s.total_ps = cost::ps(c.launch.start_ns) + end + cost::ps(c.launch.end_ns);
  s.dma_busy_ps = dma.busy();
  s.dma_bytes_read = dma.read_bytes();
  s.dma_bytes_written = dma.written_bytes();
  s.dma_descriptors = dma.descriptors();
  return result_;
}

}  // namespace trnsim::chip
