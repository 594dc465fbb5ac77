#include "sim/check/checker.h"

#include <algorithm>

#include "isa/index_check.h"
#include "isa/table.h"

namespace trnsim::check {

using isa::Engine;
using isa::ErrorClass;
using isa::Instruction;
using isa::Opcode;
using isa::Space;

namespace {

// A run whose order can be decided only at its end is kept as a list; a longer one is not checked.
constexpr size_t kMaxLogged = size_t{1} << 23;

Use use_of(const Instruction& i, isa::Role role) {
  if (role == isa::Role::kRead) return Use::kRead;
  if (role == isa::Role::kWrite) return Use::kWrite;
  return isa::is_matmul(i.opcode) ? Use::kAccumulate : Use::kUpdate;
}

Operand operand_of(const isa::Access& a, Use use, OperandName name) {
  Operand o;
  o.region = region_of(a);
  o.space = a.space;
  o.address_register = a.address_register;
  o.element_bytes = static_cast<uint8_t>(isa::dtype_bytes(a.dtype));
  o.use = use;
  o.name = name;
  o.tensor = a.tensor;
  if (a.space != Space::kHbm) {
    o.first_partition = a.start_partition;
    o.end_partition = static_cast<uint16_t>(a.start_partition + a.num_partitions);
  }
  return o;
}

// Where the elements of an indirect operand may lie.
isa::Access whole_partitions(const isa::Access& a) {
  const isa::Limits& limits = isa::limits(isa::Generation::kTrn2);
  isa::Access all = a;
  all.dtype = isa::Dtype::kU8;
  all.offset = 0;
  all.num_dims = 1;
  all.step[0] = 1;
  all.size[0] = static_cast<uint32_t>(a.space == Space::kPsum ? limits.psum_bytes_per_partition
                                                              : limits.sbuf_bytes_per_partition);
  return all;
}

// The list that picks the rows or elements of an operand; none for those of the GpSimd programs, which gather inside
// their own partitions.
isa::Access list_of(const Instruction& i, const isa::Access& a) {
  if (a.indirect) return isa::index_list(a, i.engine);
  return i.is_dma() ? i.src1 : isa::Access{};
}

bool uses_indices(const Instruction& i) {
  return isa::picked_by_indices(i, isa::Slot::kDst) || isa::picked_by_indices(i, isa::Slot::kSrc0) ||
         isa::picked_by_indices(i, isa::Slot::kSrc1);
}

// Calls fn(operand) for each entry of the first dim that the list picks.
template <typename Fn>
void each_picked(const isa::Access& a, std::vector<int64_t> indices, Use use, OperandName name, Fn&& fn) {
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  isa::Access one = a;
  one.indirect = false;
  one.size[0] = 1;
  const int64_t step =
      a.indirect ? a.step[0] * static_cast<int64_t>(isa::dtype_bytes(a.dtype)) : a.step_bytes(0);
  for (const int64_t v : indices) {
    // What is out of bounds is skipped, or ends the run.
    if (v < 0 || (!a.indirect && v >= a.size[0])) continue;
    one.offset = a.offset + v * step;
    fn(operand_of(one, use, name));
  }
}

// Reads first, as the instruction has them before it writes. Without `indices` an operand picked by a list is the whole
// of what it may touch.
template <typename Fn>
void each_operand(const Instruction& i, chip::IndexReader* indices, Fn&& fn) {
  const isa::Row& r = isa::row(i.opcode);
  const auto slot = [&](isa::Slot s, OperandName n) {
    if (r.operand(s).role == isa::Role::kNone || !isa::operand(i, s).present()) return;
    const isa::Access& a = isa::operand(i, s);
    if (a.indirect) fn(operand_of(isa::index_list(a, i.engine), Use::kRead, n));
    if (indices != nullptr && a.num_dims > 0 && isa::picked_by_indices(i, s)) {
      const isa::Access list = list_of(i, a);
      if (list.space == Space::kSbuf && list.address_register == isa::kNoRegister) {
        each_picked(a, indices->read(list), use_of(i, isa::operand_role(i, s)), n, fn);
        return;
      }
    }
    Operand o = operand_of(a.indirect ? whole_partitions(a) : a, use_of(i, isa::operand_role(i, s)), n);
    o.indexed = isa::picked_by_indices(i, s);
    fn(o);
  };
  slot(isa::Slot::kSrc0, OperandName::kSrc0);
  slot(isa::Slot::kSrc1, OperandName::kSrc1);
  if (r.uses(isa::kFieldImm0) && i.imm0.kind == isa::ScalarOperand::Kind::kPointer)
    fn(operand_of(i.imm0.pointer, Use::kRead, OperandName::kImm0));
  if (r.uses(isa::kFieldImm1) && i.imm1.kind == isa::ScalarOperand::Kind::kPointer)
    fn(operand_of(i.imm1.pointer, Use::kRead, OperandName::kImm1));
  slot(isa::Slot::kDst, OperandName::kDst);
  slot(isa::Slot::kAux, OperandName::kAux);
}

bool touches_memory(const Instruction& i) {
  return !i.is_control() || i.opcode == Opcode::kRegLoad || i.opcode == Opcode::kRegStore;
}

// Registers whose values an instruction needs to be checked later.
template <typename Fn>
void each_register(const Instruction& i, Fn&& fn) {
  for (int w = 0; w < i.sync.num_waits; ++w) {
    if (i.sync.waits[w].value_register != isa::kNoRegister) fn(i.sync.waits[w].value_register);
  }
  if (!touches_memory(i)) return;
  for (const isa::Access* a : {&i.dst, &i.src0, &i.src1, &i.aux, &i.imm0.pointer, &i.imm1.pointer}) {
    if (a->present() && a->address_register != isa::kNoRegister) fn(a->address_register);
  }
}

int64_t threshold_of(const isa::SemWait& w, const chip::RegisterView& registers) {
  return w.value + (w.value_register == isa::kNoRegister ? int64_t{0} : registers.values[w.value_register]);
}

}  // namespace

const char* name(OperandName n) {
  static const char* const kNames[] = {"dst", "src0", "src1", "aux", "imm0", "imm1"};
  return kNames[static_cast<int>(n)];
}

Options options_of(const config::Config& config) {
  Options o;
  o.sbuf_bytes = config.memory.sbuf_bytes_per_partition;
  o.psum_bytes = config.memory.psum_bytes_per_partition;
  const auto generation = isa::generation_from_target(config.chip.generation);
  o.accumulates_anything = generation && *generation >= isa::Generation::kTrn3;
  o.one_bank = generation && isa::limits(*generation).matmul_output_in_one_bank;
  o.ring_transfers = config.dma.queue_depth;
  o.instruction_budget = static_cast<uint64_t>(config.sequencer.instruction_budget);
  return o;
}

Checker::Checker(const isa::Program& program, Options options)
    : second_core_(*this),
      program_(program),
      options_(std::move(options)),
      hbm_(program, options_.tensors, this) {
  Finds* const finds = this;
  for (int core = 0; core < program.cores; ++core) {
    sbuf_.emplace_back(options_.sbuf_bytes, true, finds, &was_read_);
    psum_.emplace_back(options_.psum_bytes, options_.accumulates_anything, finds, &was_read_);
  }
  order_.begin(program, options_.counts_by_engine);
  deferred_ = order_.any_shared_wait();
  for (size_t e = 0; e < program.streams.size(); ++e) {
    was_read_[e].assign(program.streams[e].size(), 0);
    wrote_[e].assign(program.streams[e].size(), 0);
  }
}

Checker::~Checker() = default;

bool Checker::issue_on(size_t stream, uint32_t index, const chip::RegisterView& registers) {
  // A stream without a halt ends at its end.
  if (index >= program_.streams[stream].size()) return true;
  if (!moves_on(stream, index, registers)) return false;
  if (deferred_) {
    log(stream, index, registers);
  } else {
    process(stream, index, registers, 0);
  }
  return true;
}

// False when the stream will never end, or has used up its budget.
bool Checker::moves_on(size_t stream, uint32_t index, const chip::RegisterView& registers) {
  Progress& p = progress_[stream];
  const bool backward = index <= p.last_index && p.instructions > 0;
  p.last_index = index;
  if (++p.instructions > options_.instruction_budget && backward) {
    Epoch self;
    self.stream = static_cast<uint8_t>(stream);
    self.index = index;
    stop_reason_ = "user error: endless loop: " + label(self) + " is still running after " +
                   std::to_string(options_.instruction_budget) +
                   " instructions of its stream, the budget; check the loop count, or raise the budget "
                   "(sequencer.instruction_budget)";
    stopped_ = true;
    return false;
  }
  const Opcode opcode = program_.streams[stream][index].opcode;
  if (opcode == Opcode::kRegLoad) p.loaded = true;
  if (!backward) return true;
  if (index == p.saved_index && !p.loaded && std::equal(p.saved.begin(), p.saved.end(), registers.values)) {
    Epoch self;
    self.stream = static_cast<uint8_t>(stream);
    self.index = index;
    stop_reason_ =
        "user error: endless loop: the stream comes back to " + label(self) +
        " with the same registers, so it never ends; let its branch test something that the loop changes";
    stopped_ = true;
    return false;
  }
  // Brent: compare with a state that is renewed at doubling distances.
  if (++p.jumps >= p.save_at || index < p.saved_index) {
    p.save_at = p.jumps * 2;
    p.saved_index = index;
    p.loaded = false;
    std::copy_n(registers.values, isa::kNumRegisters, p.saved.begin());
  }
  return true;
}

void Checker::log(size_t stream, uint32_t index, const chip::RegisterView& registers) {
  if (log_.size() >= kMaxLogged) {
    report_.unchecked =
        "not simulated: the program shares semaphores between streams and runs for more than " +
        std::to_string(kMaxLogged) + " instructions; its order was not checked";
    return;
  }
  log_.push_back({static_cast<uint8_t>(stream), index, static_cast<uint32_t>(logged_registers_.size())});
  each_register(program_.streams[stream][index], [&](uint8_t r) {
    logged_registers_.push_back({r, registers.known(r), registers.values[r]});
  });
}

// The logged run again, now that its whole order is known.
void Checker::replay() {
  std::array<std::array<int32_t, isa::kNumRegisters>, isa::kNumStreams> values{};
  std::array<uint64_t, isa::kNumStreams> unknown{};
  const auto view = [&](const Logged& l) {
    size_t n = l.registers;
    each_register(program_.streams[l.stream][l.index], [&](uint8_t) {
      const LoggedRegister& r = logged_registers_[n++];
      values[l.stream][r.reg] = r.value;
      const uint64_t bit = uint64_t{1} << r.reg;
      unknown[l.stream] = r.known ? unknown[l.stream] & ~bit : unknown[l.stream] | bit;
    });
    return chip::RegisterView{values[l.stream].data(), unknown[l.stream]};
  };
  std::vector<SharedSemaphores::Event> events;
  events.reserve(log_.size());
  for (const Logged& l : log_) {
    const Instruction& i = program_.streams[l.stream][l.index];
    const chip::RegisterView registers = view(l);
    SharedSemaphores::Event e;
    e.stream = l.stream;
    e.agent = order_.agent_of(i, l.stream);
    e.num_waits = i.sync.num_waits;
    for (size_t w = 0; w < e.num_waits; ++w)
      e.waits[w] = {semaphore_id(l.stream, i.sync.waits[w].semaphore),
                    threshold_of(i.sync.waits[w], registers)};
    e.update = i.sync.update;
    e.update_semaphore = semaphore_id(l.stream, i.sync.update_semaphore);
    e.update_value = i.is_dma() ? isa::kDmaCompletionIncrement : i.sync.update_value;
    events.push_back(e);
  }
  shared_ = std::make_unique<SharedSemaphores>();
  shared_->solve(events, order_);
  for (size_t n = 0; n < log_.size(); ++n) {
    process(log_[n].stream, log_[n].index, view(log_[n]), n);
  }
}

void Checker::process(size_t stream, uint32_t index, const chip::RegisterView& registers, size_t event) {
  const Instruction& i = program_.streams[stream][index];
  for (int w = 0; w < i.sync.num_waits; ++w) {
    const isa::SemWait& wait = i.sync.waits[w];
    const SemaphoreId semaphore = semaphore_id(stream, wait.semaphore);
    if (order_.counted(semaphore)) {
      tell(order_.wait(stream, index, semaphore, threshold_of(wait, registers)));
    } else if (shared_ != nullptr) {
      const auto& list = shared_->of(event, w);
      order_.wait(stream, semaphore, list.data(), list.size());
    }
  }
  const Epoch self = order_.start(stream, index, order_.agent_of(i, stream));
  if (touches_memory(i)) {
    if (i.is_dma()) check_ring(i, self);
    touch(i, self, registers);
  }
  if (program_.cores > 1 && isa::row(i.opcode).has_rule(isa::Rule::kTwoCores)) {
    meet(i, self);
  } else {
    update(i, self);
  }
}

// Barriers and exchanges end when both cores have come; the run tells of nothing behind them before.
void Checker::meet(const Instruction& i, const Epoch& self) {
  const bool exchange = i.is_dma();
  auto& waiting = arrivals_[{exchange, exchange ? i.imm : static_cast<int64_t>(i.engine)}];
  if (waiting.empty() ||
      isa::core_of_stream(waiting.front().self.stream) == isa::core_of_stream(self.stream)) {
    waiting.push_back({&i, self});
    return;
  }
  const Arrival other = waiting.front();
  waiting.pop_front();
  order_.meet(self, other.self);
  update(*other.instruction, other.self);
  update(i, self);
}

void Checker::update(const Instruction& i, const Epoch& self) {
  if (i.sync.update == isa::SemOp::kNone) return;
  const SemaphoreId semaphore = semaphore_id(self.stream, i.sync.update_semaphore);
  tell(order_.update(self, semaphore, i.sync.update, i.sync.update_value));
  const int64_t value = order_.value(semaphore);
  if ((value > INT32_MAX || value < INT32_MIN) && is_new(Kind::kSemaphoreOverflow, self, self)) {
    add(Kind::kSemaphoreOverflow, ErrorClass::kIllegalOnHardware,
        "semaphore overflow: " + label(self) + " takes semaphore " + std::to_string(i.sync.update_semaphore) +
            " to " + std::to_string(value) +
            ", a semaphore holds 32 bits with sign; reset it between the parts of the program, or "
            "count in larger steps",
        self);
  }
}

void Checker::touch(const Instruction& i, const Epoch& self, const chip::RegisterView& registers) {
  Access a;
  a.self = self;
  a.engine = isa::engine_of_stream(self.stream);
  a.matmul = isa::is_matmul(i.opcode);
  a.order = &order_;
  if (registers.indices != nullptr) with_indices_ = true;
  each_operand(i, registers.indices, [&](const Operand& o) {
    a.operand = &o;
    int64_t move = 0;
    if (o.address_register != isa::kNoRegister) {
      if (!registers.known(o.address_register)) {
        report_.unchecked =
            "not simulated: the address of " + std::string(name(o.name)) + " of " + label(self) +
            " was loaded from memory, which a timing-only run does not have; its accesses were not "
            "checked, run with mode 'both'";
        return;
      }
      move = registers.values[o.address_register];
      if (!in_bounds(a, move)) return;
    } else if (with_indices_ && (o.region.lo < 0 || o.region.lo + o.region.span > bytes_of(o))) {
      return;  // an element that a list picks: the instruction itself ends the run
    }
    if (o.space == Space::kHbm) {
      hbm_.touch(a, move);
      return;
    }
    if (writes(o.use)) wrote_[self.stream][self.index] = 1;
    auto& memories = o.space == Space::kSbuf ? sbuf_ : psum_;
    memories[static_cast<size_t>(isa::core_of_stream(self.stream))].touch(a, move);
  });
  // What leaves SBUF and PSUM is somebody else's to read.
  if (i.dst.space == Space::kHbm) was_read_[self.stream][self.index] = 1;
}

int64_t Checker::bytes_of(const Operand& o) const {
  return o.space == Space::kHbm    ? static_cast<int64_t>(program_.tensors[o.tensor].bytes)
         : o.space == Space::kSbuf ? options_.sbuf_bytes
                                   : options_.psum_bytes;
}

// The validator knows the other addresses.
bool Checker::in_bounds(const Access& a, int64_t move) {
  const Operand& o = *a.operand;
  const int64_t lo = o.region.lo + move, hi = lo + o.region.span;
  const bool on_hbm = o.space == Space::kHbm;
  const int64_t limit = bytes_of(o);
  const auto what = [&] {
    return label(a.self) + ": " + name(o.name) + " with r" + std::to_string(o.address_register) + " = " +
           std::to_string(move);
  };
  if (lo < 0 || hi > limit) {
    if (is_new(Kind::kOutOfBounds, a.self, a.self)) {
      add(Kind::kOutOfBounds, ErrorClass::kIllegalOnHardware,
          "out of bounds: " + what() + " touches bytes " + std::to_string(lo) + " to " +
              std::to_string(hi - 1) + " of " +
              (on_hbm                    ? "tensor '" + program_.tensors[o.tensor].name + "'"
               : o.space == Space::kSbuf ? "an SBUF partition"
                                         : "a PSUM partition") +
              ", which has " + std::to_string(limit) +
              " bytes; correct the offset, the step of the register or the loop count",
          a.self);
    }
    return false;
  }
  if (move % o.element_bytes != 0 && is_new(Kind::kMisaligned, a.self, a.self)) {
    add(Kind::kMisaligned, ErrorClass::kIllegalOnHardware,
        "misaligned: " + what() + " starts at byte " + std::to_string(lo) + ", its elements have " +
            std::to_string(o.element_bytes) + " bytes; the address must be a multiple of them",
        a.self);
  }
  if (o.space == Space::kPsum && options_.one_bank && a.engine == Engine::kTensor && writes(o.use) &&
      lo / isa::kPsumBankBytes != (hi - 1) / isa::kPsumBankBytes && is_new(Kind::kBank, a.self, a.self)) {
    add(Kind::kBank, ErrorClass::kIllegalOnHardware,
        "PSUM bank: " + what() + " covers bytes " + std::to_string(lo) + " to " + std::to_string(hi - 1) +
            ", across a border between banks of " + std::to_string(isa::kPsumBankBytes) +
            " bytes; a result of the tensor engine lies in one bank",
        a.self);
  }
  return true;
}

// The program itself must not queue more than the ring takes: the trigger, and all that comes behind it, then
// stands still until a transfer is over.
void Checker::check_ring(const Instruction& i, const Epoch& self) {
  const int64_t in_flight = int64_t{self.clock} - int64_t{order_.clock(self.stream)[self.agent]};
  if (in_flight <= options_.ring_transfers || !is_new(Kind::kRingOverflow, self, self)) return;
  add(Kind::kRingOverflow, ErrorClass::kUserError,
      "descriptor ring overflow: " + label(self) + " queues transfer " + std::to_string(in_flight) +
          " without a wait for the ones before it, the ring of queue " + std::to_string(i.queue) + " holds " +
          std::to_string(options_.ring_transfers) +
          " (dma.queue_depth); the stream stands still until one is over. Wait for earlier transfers, or use "
          "more "
          "queues",
      self);
}

// Transfers of one semaphore side by side, and a wait for the earlier one.
void Checker::tell(const Order::StandIn& early) {
  if (!early.present) return;
  const auto epoch = [](uint8_t stream, uint32_t index) {
    Epoch e;
    e.stream = stream;
    e.index = index;
    return e;
  };
  const Epoch waiter = epoch(early.waiter_stream, early.waiter),
              transfer = epoch(early.stream, early.transfer), next = epoch(early.stream, early.next);
  if (!is_new(Kind::kStandIn, waiter, next)) return;
  add(Kind::kStandIn, ErrorClass::kUserError,
      "early count: the wait of " + label(waiter) + " for " + label(transfer) +
          " may pass before its end, because " + label(next) +
          " counts on the same semaphore and may be in flight: every DMA engine counts for itself, and one "
          "that " +
          "is done with the second stands in for one that still works on the first (checks are pedantic). "
          "Wait " +
          "for both, trigger " + short_label(next) +
          " after the end of the first, or give it a semaphore of its own",
      waiter, next);
}

void Checker::tell_never_read() {
  for (uint8_t e = 0; e < isa::kNumStreams; ++e) {
    for (uint32_t n = 0; n < wrote_[e].size(); ++n) {
      if (wrote_[e][n] == 0 || was_read_[e][n] != 0) continue;
      Epoch self;
      self.stream = e;
      self.index = n;
      const Instruction& i = program_.streams[e][n];
      // The range check of the DMA engine is what such a gather is for.
      if (i.opcode == Opcode::kDmaGather && isa::checks_indices(program_.notes, i.location)) continue;
      const Operand o = operand_of(i.dst.present() ? i.dst : i.aux, Use::kWrite, OperandName::kDst);
      add(Kind::kNeverRead, ErrorClass::kUserError,
          "never read: nothing reads what " + label(self) + " writes to " +
              where(o, {o.region.lo, o.region.lo + o.region.span, o.first_partition, o.end_partition}) +
              "; remove it, or correct the operand that should read it",
          self);
    }
  }
}

Report Checker::finish(bool complete) {
  if (deferred_ && report_.unchecked.empty()) replay();
  for (const auto& [key, early] : too_early_) {
    add(Kind::kUnwritten, ErrorClass::kUserError,
        "uninitialised read: " + label(early.reader) + " reads " + name(early.operand.name) + ", " +
            where(early.operand, early.place) +
            ", which nothing in this program has written; write it first, or correct the operand",
        early.reader);
  }
  too_early_.clear();
  if (complete && report_.unchecked.empty()) tell_never_read();
  sort_finds();
  for (const PartitionMemory& m : sbuf_)
    report_.sbuf_high_water = std::max(report_.sbuf_high_water, m.high_water());
  for (const PartitionMemory& m : psum_)
    report_.psum_high_water = std::max(report_.psum_high_water, m.high_water());
  return std::move(report_);
}

bool Checker::is_new(Kind kind, const Epoch& a, const Epoch& b) {
  if (report_.findings.size() >= kMaxFindings) return false;
  return told_.insert({kind, {{a.stream, a.index}, {b.stream, b.index}}}).second;
}

void Checker::add(Kind kind, ErrorClass error_class, const std::string& text, const Epoch& a, const Epoch& b,
                  bool between_writes) {
  if (report_.findings.size() >= kMaxFindings) return;
  report_.findings.push_back(
      {kind,
       error_class,
       std::string(isa::name(error_class)) + ": " + text,
       between_writes,
       !with_indices_ && (uses_indices(instruction(a)) || uses_indices(instruction(b))),
       {{{a.stream, a.index}, {b.stream, b.index}}}});
}

}  // namespace trnsim::check
