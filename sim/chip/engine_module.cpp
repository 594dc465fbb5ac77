// Sequencer and datapath of one engine.
#include <algorithm>
#include <cstdlib>

#include "isa/names.h"
#include "sim/chip/modules.h"
#include "sim/exec/exec.h"

namespace trnsim::chip {

using isa::Engine;
using Status = LaunchResult::Status;

EngineModule::EngineModule(const sc_core::sc_module_name& name, CoreModule& core, Engine engine)
    : sc_module(name), core_(core), engine_(engine), number_(static_cast<int>(engine)) {}

void EngineModule::start_run() {
  program_ = core_.program;
  stream_ = &program_->streams[stream_number()];
  pc_ = 0;
  phase_ = Phase::kDispatch;
  jumped_ = false;
  resume_ = start_ = free_ = result_ = load_free_ = last_end_ = busy_ = 0;
  array_.reset();
  result_index_ = UINT32_MAX;
  table_set_ = -1;
  pe_clock_.reset(*core_.config);
  instructions_ = 0;
  barriers_ = 0;
  registers_.fill(0);
  unknown_registers_ = 0;
  const TimedOp& first = stream_->ops[0];
  halted_ = first.kind == OpKind::kHalt && first.num_waits == 0 && first.update == isa::SemOp::kNone;
  if (!halted_) core_.notify(number_, 0);
}

void EngineModule::act(Ps now) {
  for (;;) {
    const Ps next = advance(now);
    if (next == kNever) return;
    if (next > now && !core_.quiet_until(next)) {
      core_.notify(number_, next);
      return;
    }
    now = next;
  }
}

Ps EngineModule::wait_time(const TimedOp& op, Ps now) {
  Ps at = now;
  for (int w = 0; w < op.num_waits; ++w) {
    const isa::SemWait& wait = op.waits[w];
    int64_t threshold = wait.value;
    if (wait.value_register != isa::kNoRegister) threshold += registers_[wait.value_register];
    at = std::max(at, core_.semaphores.satisfied_at(wait.semaphore, threshold, now));
    if (at == kNever) break;
  }
  return at;
}

void EngineModule::leave_wait(const TimedOp& op) {
  for (int w = 0; w < op.num_waits; ++w) core_.semaphores.remove_waiter(op.waits[w].semaphore, number_);
}

void EngineModule::semaphore_changed(Ps now) {
  if (phase_ != Phase::kBlocked) return;
  const Ps at = wait_time(stream_->ops[pc_], now);
  if (at == kNever) return;
  const Ps resume = at + program_->wake;
  if (resume >= resume_) return;
  resume_ = resume;
  core_.notify(number_, resume);
}

void EngineModule::room_in_queue(Ps at) {
  if (phase_ == Phase::kQueueFull) core_.notify(number_, at);
}

Ps EngineModule::advance(Ps now) {
  if (halted_ || core_.failed()) return kNever;
  const TimedOp& op = stream_->ops[pc_];
  switch (phase_) {
    case Phase::kDispatch:
      if (op.num_waits != 0) {
        for (int w = 0; w < op.num_waits; ++w) {
          const uint8_t r = op.waits[w].value_register;
          if (r != isa::kNoRegister && unresolved(r, "a semaphore wait")) return kNever;
        }
        const Ps at = wait_time(op, now);
        if (at > now) {
          for (int w = 0; w < op.num_waits; ++w) core_.semaphores.add_waiter(op.waits[w].semaphore, number_);
          phase_ = Phase::kBlocked;
          resume_ = at == kNever ? kNever : at + program_->wake;
          return resume_;
        }
      }
      break;
    case Phase::kBarrier:
      return barrier(op, now);
    case Phase::kBlocked:
      if (now < resume_) return resume_;
      leave_wait(op);
      phase_ = Phase::kGranted;
      break;
    default:
      break;
  }
  switch (op.kind) {
    case OpKind::kCompute:
      return compute(op, now, now);
    case OpKind::kLoad:
      return weight_load(op, now);
    case OpKind::kMatmul:
    case OpKind::kPeTranspose:
      return matmul(op, now, now);
    case OpKind::kDma:
      return dma(op, now, now);
    case OpKind::kCoreBarrier:
      return barrier(op, now);
    default:
      return control(op, now);
  }
}

// True when the ports are granted at `now`; otherwise the phase says when to try again.
bool EngineModule::acquire(const TimedOp& op, Ps start, Ps now, Ps* retry) {
  if (op.psum_banks == 0 && !op.shared_bus) return true;
  // Grants are given in time order, so the request waits until its start has come.
  Ps at = start;
  if (start <= now) {
    at = core_.ports.available(number_, op, now);
    if (at <= now) {
      core_.ports.reserve(number_, op, now + op.stream);
      return true;
    }
  }
  phase_ = Phase::kAcquire;
  start_ = at;
  *retry = at;
  return false;
}

Ps EngineModule::finish(const TimedOp& op, Ps start, Ps end, Ps now) {
  if (op.update != isa::SemOp::kNone) {
    core_.semaphores.update(op.update_semaphore, op.update, op.update_value, end + program_->visible, now);
  }
  if (core_.observer != nullptr) core_.observer->span(engine_, pc_, 0, start, end);
  last_end_ = std::max(last_end_, end);
  ++instructions_;
  ++pc_;
  phase_ = Phase::kDispatch;
  return start + program_->dispatch;
}

Ps EngineModule::compute(const TimedOp& op, Ps ready, Ps now) {
  Ps start = now;
  if (phase_ != Phase::kAcquire) {
    start = std::max(ready, free_);
    const bool depends = !jumped_ ? op.depends
                                  : result_index_ != UINT32_MAX &&
                                        depends_on(stream_->ranges[pc_], stream_->ranges[result_index_]);
    if (depends) start = std::max(start, result_);
  }
  Ps retry = 0;
  if (!acquire(op, start, now, &retry)) return retry;
  if (!begin()) return kNever;
  Ps table = 0;
  if (op.table_set >= 0 && op.table_set != table_set_) {
    if (!op.loads_table) table = program_->table_load;
    table_set_ = op.table_set;
  }
  const Ps end = start + table + op.latency;
  free_ = start + table + op.issue;
  busy_ += table + op.issue;
  result_ = end;
  result_index_ = pc_;
  jumped_ = false;
  return finish(op, start, end, now);
}

Ps EngineModule::weight_load(const TimedOp& op, Ps ready) {
  const Ps start = std::max({ready, load_free_, array_.at(op.cells).swapped});
  if (!begin()) return kNever;
  load_free_ = start + op.issue;
  array_.loaded(op.cells, load_free_);
  const Ps end = start + op.latency + pe_clock_.idle_cycles(start, op.value);
  return finish(op, start, end, ready);
}

Ps EngineModule::matmul(const TimedOp& op, Ps ready, Ps now) {
  Ps start = now;
  if (phase_ != Phase::kAcquire) {
    if (op.kind == OpKind::kPeTranspose) {
      // The load half goes to the second weight buffer behind the pass before.
      const Ps load = std::max({ready, load_free_, array_.at(op.cells).swapped});
      load_free_ = load + op.issue;
      array_.loaded(op.cells, load_free_);
      if (core_.observer != nullptr) {
        const Ps end = load + op.latency + pe_clock_.idle_cycles(load, op.shift_cycles);
        core_.observer->span(engine_, pc_, 1, load, end);
      }
    }
    const PeArray::Cell cell = array_.at(op.cells);
    start = std::max({ready, cell.free, cell.weights_ready});
  }
  Ps retry = 0;
  if (!acquire(op, start, now, &retry)) return retry;
  if (!begin()) return kNever;
  if (core_.observer != nullptr) core_.observer->matmul_clock(pe_clock_.full_at(start));
  Ps at = start, end = start;
  for (uint32_t p = 1; p <= op.passes; ++p) {
    const Ps pass_start = at;
    const Ps stream_end = pe_clock_.run(at, op.value, op.rows);
    at = stream_end + pe_clock_.idle_cycles(stream_end, program_->matmul_overhead_cycles);
    end = stream_end + program_->fill_fixed + pe_clock_.idle_cycles(stream_end, program_->fill_cycles);
    if (core_.observer != nullptr && op.passes > 1) core_.observer->span(engine_, pc_, p, pass_start, end);
  }
  if (at > free_) busy_ += at - std::max(start, free_);  // tiles overlap
  free_ = std::max(free_, at);
  array_.streamed(op.cells, start, at);  // the weight buffers swap when the pass begins
  return finish(op, start, end, now);
}

Ps EngineModule::dma(const TimedOp& op, Ps ready, Ps now) {
  if (phase_ != Phase::kAcquire && phase_ != Phase::kQueueFull) {
    const bool depends = !jumped_ ? op.depends
                                  : result_index_ != UINT32_MAX &&
                                        depends_on(stream_->ranges[pc_], stream_->ranges[result_index_]);
    if (depends && result_ > now) {
      phase_ = Phase::kAcquire;
      return result_;
    }
  }
  Ps room_at = kNever;
  if (!core_.dma.has_room(op.queue, now, &room_at)) {
    phase_ = Phase::kQueueFull;
    if (room_at == kNever) core_.dma.wait_for_room(op.queue, number_);
    return room_at;
  }
  if (!begin()) return kNever;
  core_.dma.trigger(number_, pc_, op, now);
  if (core_.observer != nullptr) core_.observer->span(engine_, pc_, 0, now, now + op.issue);
  if (engine_ == Engine::kSync) busy_ += op.issue;
  last_end_ = std::max(last_end_, now + op.issue);
  ++instructions_;
  ++pc_;
  phase_ = Phase::kDispatch;
  return now + std::max(op.issue, program_->dispatch);
}

// Reports the instruction and has its data effect executed, where somebody wants that.
bool EngineModule::begin() {
  if (core_.observer != nullptr && !report_issue()) return false;
  if (core_.hook == nullptr) return true;
  if (core_.hook->execute(engine_, pc_)) return true;
  core_.fail(Status::kUserError, "");  // the hook keeps the reason
  return false;
}

size_t EngineModule::stream_number() const { return isa::stream_number(core_.number, engine_); }

std::string EngineModule::label(uint32_t index) const {
  return isa::instruction_label(*program_->source, stream_number(), index);
}

bool EngineModule::report_issue() {
  if (core_.observer->issue(engine_, pc_, {registers_.data(), unknown_registers_, core_.hook})) return true;
  core_.fail(Status::kHang, core_.observer->stop_reason());
  return false;
}

bool EngineModule::unresolved(int r, const char* use) {
  if ((unknown_registers_ >> r & 1) == 0) return false;
  core_.fail(
      Status::kNotSimulated,
      "not simulated: " + label(pc_) + " uses register " + std::to_string(r) + " for " + use +
          ", and its value was loaded from memory, which a timing-only run does not have; run with mode "
          "'both'");
  return true;
}

// The n-th barrier of the engine meets the n-th of the same engine on the other core.
Ps EngineModule::barrier(const TimedOp& op, Ps now) {
  EngineModule& other = *core_.pair.other(core_).engines[static_cast<size_t>(number_)];
  if (phase_ != Phase::kBarrier) {
    if (core_.observer != nullptr && !report_issue()) return kNever;
    phase_ = Phase::kBarrier;
    start_ = now;
    resume_ = kNever;
    barrier_at_ = pc_;
    barrier_seen_ = now + program_->control + program_->remote_visible;
    ++barriers_;
    if (other.barriers_ >= barriers_) {
      const uint32_t tensor = other.stream_->ops[other.barrier_at_].dma;
      if (tensor != op.dma) {
        const auto& tensors = program_->source->tensors;
        core_.fail(Status::kIllegal, "user error: two barriers meet that name different tensors: '" +
                                         tensors[op.dma].name + "' at " + label(pc_) + ", and '" +
                                         tensors[tensor].name + "' at " + other.label(other.barrier_at_) +
                                         "; the cores have lost step");
        return kNever;
      }
      resume_ = std::max(now + program_->control, other.barrier_seen_ + program_->wake);
      if (other.phase_ == Phase::kBarrier && other.barriers_ == barriers_) {
        other.other_core_at_barrier(barrier_seen_);
        core_.other_core_notified();
      }
    }
    return resume_;
  }
  if (now < resume_) return resume_;
  if (engine_ == Engine::kSync) busy_ += program_->control;
  finish(op, start_, now, now);
  return now;
}

void EngineModule::other_core_at_barrier(Ps seen) {
  resume_ = std::max(start_ + program_->control, seen + program_->wake);
  core_.notify(number_, resume_);
}

void EngineModule::jump(uint32_t target) {
  pc_ = target;
  jumped_ = true;
}

Ps EngineModule::control(const TimedOp& op, Ps now) {
  const bool touches_memory = op.kind == OpKind::kRegLoad || op.kind == OpKind::kRegStore;
  if (core_.observer != nullptr && !touches_memory && !report_issue()) return kNever;
  if (op.kind == OpKind::kHalt) {
    halted_ = true;
    last_end_ = std::max(last_end_, now);
    if (op.update != isa::SemOp::kNone)
      core_.semaphores.update(op.update_semaphore, op.update, op.update_value, now + program_->visible, now);
    if (pc_ < program_->source->streams[stream_number()].size()) ++instructions_;
    return kNever;
  }
  const auto set_one = [&](int r, int32_t value, bool known) {
    registers_[static_cast<size_t>(r)] = value;
    const uint64_t bit = uint64_t{1} << r;
    unknown_registers_ = known ? unknown_registers_ & ~bit : unknown_registers_ | bit;
    if (core_.hook != nullptr) core_.hook->set_reg(engine_, r, value);
  };
  const auto set = [&](int64_t value, bool known) {
    int32_t words[2];
    exec::set_register_pair(words, value);
    set_one(op.reg_dst, words[0], known);
    if (op.wide) set_one(op.reg_dst + 1, words[1], known);
  };
  const auto operand_b = [&]() -> int32_t {
    return op.immediate ? static_cast<int32_t>(op.value) : registers_[op.reg_b];
  };
  const uint64_t each = op.wide ? 3 : 1;
  const uint64_t sources = each << op.reg_a | (op.immediate ? 0 : each << op.reg_b);
  const uint32_t here = pc_;
  Ps duration = program_->control;
  bool taken = false;
  switch (op.kind) {
    case OpKind::kRegMove:
      set(op.value, true);
      break;
    case OpKind::kRegAlu:
      if (op.wide) {
        const int64_t b = op.immediate ? op.value : exec::register_pair(&registers_[op.reg_b]);
        set(exec::register_alu_wide(op.op0, exec::register_pair(&registers_[op.reg_a]), b),
            (unknown_registers_ & sources) == 0);
      } else {
        set(exec::register_alu(op.op0, registers_[op.reg_a], operand_b()),
            (unknown_registers_ & sources) == 0);
      }
      break;
    case OpKind::kRegLoad:
      duration = program_->register_memory;
      if (!begin()) return kNever;
      for (int r = op.reg_dst; r <= op.reg_dst + (op.wide ? 1 : 0); ++r)
        set_one(r, core_.hook != nullptr ? core_.hook->reg(engine_, r) : 0, core_.hook != nullptr);
      break;
    case OpKind::kRegStore:
      duration = program_->register_memory;
      if (!begin()) return kNever;
      break;
    case OpKind::kBranch:
      duration = program_->branch;
      if (unresolved(op.reg_a, "a branch") || (!op.immediate && unresolved(op.reg_b, "a branch")))
        return kNever;
      taken = exec::register_alu(op.op0, registers_[op.reg_a], operand_b()) != 0;
      break;
    case OpKind::kJump:
      duration = program_->branch;
      taken = true;
      break;
    case OpKind::kLoop: {
      duration = program_->branch;
      if (unresolved(op.reg_a, "a loop")) return kNever;
      const int32_t left = static_cast<int32_t>(static_cast<uint32_t>(registers_[op.reg_a]) - 1u);
      registers_[op.reg_a] = left;
      if (core_.hook != nullptr) core_.hook->set_reg(engine_, op.reg_a, left);
      taken = left != 0;
      break;
    }
    default:  // kSemaphore
      break;
  }
  if (taken && op.target <= here && instructions_ >= core_.config->sequencer.instruction_budget) {
    core_.fail(Status::kHang, "user error: endless loop: " + label(here) + " still jumps back after " +
                                  std::to_string(instructions_) +
                                  " instructions of its stream; check the loop count, or raise the budget "
                                  "(sequencer.instruction_budget)");
    return kNever;
  }
  // The prefetcher holds the stream around the program counter; a longer jump starts it anew.
  if (taken && std::abs(static_cast<int64_t>(op.target) - here) > program_->fetch_window)
    duration += program_->fetch_restart;
  if (engine_ == Engine::kSync) busy_ += duration;
  finish(op, now, now + duration, now);
  if (taken) {
    pc_ = here;
    jump(op.target);
  }
  return now + std::max(duration, program_->dispatch);
}

}  // namespace trnsim::chip
