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

CoreModule::CoreModule(const sc_core::sc_module_name& name, PairModule& owner, int core)
    : sc_module(name),
      number(core),
      pair(owner),
      semaphores("semaphores", *this),
      ports("ports"),
      hbm(owner.hbm),
      dma("dma", *this) {
  static const char* const kNames[] = {"tensor", "vector", "scalar", "gpsimd", "sync"};
  for (size_t e = 0; e < engines.size(); ++e)
    engines[e] = new EngineModule(kNames[e], *this, static_cast<Engine>(e));
}

void CoreModule::start_run(DataHook* data_hook, Observer* watcher) {
  hook = data_hook;
  observer = watcher;
  semaphores.start_run();
  ports.start_run();
  due_.fill(kNever);
  dma.start_run();
  for (EngineModule* e : engines) e->start_run();
}

Ps CoreModule::act_until(Ps end) {
  end_ = end;
  Ps last = 0;
  for (;;) {
    size_t actor = 0;
    Ps next = kNever;
    for (size_t a = 0; a < due_.size(); ++a) {
      const bool sooner = due_[a] < next;
      next = sooner ? due_[a] : next;
      actor = sooner ? a : actor;
    }
    if (next >= end_) return last;
    last = next;
    due_[actor] = kNever;
    if (actor == kDma) {
      dma.act(next);
    } else {
      engines[actor]->act(next);
    }
  }
}

void CoreModule::other_core_notified() {
  end_ = std::min(end_, PairModule::bound(*this, pair.other(*this).next_due()));
}

void CoreModule::fail(Status status, std::string message) { pair.fail(status, std::move(message)); }

// ---- the pair ----

PairModule::PairModule(const sc_core::sc_module_name& name) : sc_module(name), hbm("hbm") {
  SC_METHOD(dispatch);
  sensitive << event_;
  dont_initialize();
  cores[0] = new CoreModule("core0", *this, 0);
  cores[1] = new CoreModule("core1", *this, 1);
}

// Lets the cores act in time order, up to the next activity of other modules.
void PairModule::dispatch() {
  const Ps kernel_now = static_cast<Ps>(sc_core::sc_time_stamp().value()) - base_;
  const auto resume_at = [&](Ps at) {
    event_.notify(sc_core::sc_time::from_value(static_cast<uint64_t>(std::max<Ps>(at - kernel_now, 0))));
  };
  Ps foreign = kNever;  // others may act from here on; what is due now goes first
  if (sc_core::sc_pending_activity_at_current_time()) {
    foreign = kernel_now + 1;
  } else if (sc_core::sc_pending_activity_at_future_time()) {
    foreign = kernel_now + static_cast<Ps>(sc_core::sc_time_to_pending_activity().value());
  }
  Ps last = kernel_now;
  for (;;) {
    const Ps next[] = {cores[0]->next_due(), program_->cores > 1 ? cores[1]->next_due() : kNever};
    const size_t core = next[1] < next[0] ? 1 : 0;
    if (next[core] == kNever) break;
    if (next[core] >= foreign) {
      resume_at(next[core]);
      return;
    }
    last = std::max(last, cores[core]->act_until(std::min(foreign, bound(*cores[core], next[1 - core]))));
  }
  if (last > kernel_now) resume_at(last);  // the clock of the kernel follows
}

void PairModule::fail(Status status, std::string message) {
  if (failed()) return;
  result_.status = status;
  result_.message = std::move(message);
}

TimingResult PairModule::run(const TimedProgram& p, const config::Config& c, const DataHooks* hooks,
                             Observer* o) {
  program_ = &p;
  result_ = TimingResult{};
  base_ = static_cast<Ps>(sc_core::sc_time_stamp().value());
  hbm.start_run();
  halves.clear();
  transfers_ = 0;
  for (int n = 0; n < p.cores; ++n) {
    CoreModule& core = *cores[static_cast<size_t>(n)];
    core.program = &p;
    core.config = &c;
    core.run_ahead = run_ahead;
    Observer* const watcher = o == nullptr || n == 0 ? o : o->of_second_core();
    core.start_run(hooks != nullptr ? hooks->of_core[n] : nullptr, watcher);
  }
  event_.notify(sc_core::SC_ZERO_TIME);

  sc_core::sc_start();

  if (!failed()) {
    bool stuck = std::any_of(halves.begin(), halves.end(), [](const auto& h) { return !h.second.empty(); });
    for (int n = 0; n < p.cores; ++n) {
      for (const EngineModule* e : cores[static_cast<size_t>(n)]->engines) stuck = stuck || !e->halted();
    }
    if (stuck) fail(Status::kHang, explain_hang());
  }
  fill_stats(c);
  return result_;
}

void PairModule::fill_stats(const config::Config& c) {
  LaunchStats& sum = result_.stats;
  sum.cores = program_->cores;
  Ps end = 0;
  for (int n = 0; n < program_->cores; ++n) {
    const CoreModule& core = *cores[static_cast<size_t>(n)];
    CoreStats& s = sum.of_core[static_cast<size_t>(n)];
    end = std::max(end, core.dma.last_completion());
    for (size_t e = 0; e < core.engines.size(); ++e) {
      end = std::max(end, core.engines[e]->last_end());
      s.engines[e].busy_ps = core.engines[e]->busy();
      s.engines[e].instructions = core.engines[e]->instructions();
      s.instructions += core.engines[e]->instructions();
    }
    s.dma_busy_ps = core.dma.busy();
    s.dma_bytes_read = core.dma.read_bytes();
    s.dma_bytes_written = core.dma.written_bytes();
    s.dma_descriptors = core.dma.descriptors();
    sum.add(s);
  }
  sum.total_ps = cost::ps(c.launch.start_ns) + end + cost::ps(c.launch.end_ns);
}

}  // namespace trnsim::chip
