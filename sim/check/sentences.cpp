// The words of the finds that concern two instructions.
#include <algorithm>

#include "isa/names.h"
#include "sim/check/checker.h"

namespace trnsim::check {

using isa::ErrorClass;
using isa::Instruction;
using isa::Space;

namespace {

std::string number(int64_t v) { return std::to_string(v); }

std::string bytes_text(const Place& p) { return "bytes " + number(p.lo) + "-" + number(p.hi - 1); }

const char* verb(Use u) {
  return u == Use::kRead     ? "reads"
         : u == Use::kWrite  ? "writes"
         : u == Use::kUpdate ? "updates"
                             : "accumulates on";
}
const char* infinitive(Use u) {
  return u == Use::kRead     ? "read"
         : u == Use::kWrite  ? "write"
         : u == Use::kUpdate ? "update"
                             : "accumulate on";
}

}  // namespace

const Instruction& Checker::instruction(const Epoch& e) const { return program_.streams[e.stream][e.index]; }

std::string Checker::short_label(const Epoch& e) const {
  return isa::stream_label(program_, e.stream) + " instruction " + number(e.index);
}

std::string Checker::label(const Epoch& e) const {
  std::string text = isa::instruction_label(program_, e.stream, e.index);
  const Instruction& i = instruction(e);
  if (i.is_dma() && !text.empty() && text.back() == ')') {
    text.pop_back();
    text += "; DMA queue " + number(i.queue) + ")";
  }
  return text;
}

std::string Checker::where(const Operand& o, const Place& p) const {
  if (o.space == Space::kHbm) return bytes_text(p) + " of tensor '" + program_.tensors[o.tensor].name + "'";
  std::string text = o.space == Space::kPsum ? "PSUM" : "SBUF";
  text +=
      " partitions " + number(p.first_partition) + "-" + number(p.end_partition - 1) + " " + bytes_text(p);
  if (o.space == Space::kPsum) text += " (bank " + number(p.lo / isa::kPsumBankBytes) + ")";
  return text;
}

// What has to be added so that `second` starts after the end of `first`.
std::string Checker::missing_edge(const Epoch& first, const Epoch& second) const {
  std::string text =
      "Missing: the end of " + short_label(first) + " before the start of " + short_label(second) + "; ";
  if (isa::core_of_stream(first.stream) != isa::core_of_stream(second.stream)) {
    return text +
           "the two cores share no semaphore: let both reach a core_barrier between the two, on engines that "
           "wait for the first and that the second waits for";
  }
  const Instruction& from = instruction(first);
  const Instruction& to = instruction(second);
  Order::Signal signal = order_.signal_of(first);
  if (!signal.present && from.sync.update == isa::SemOp::kAdd &&
      order_.counted(semaphore_id(first.stream, from.sync.update_semaphore))) {
    // Still in the middle of it: the update comes next.
    const int64_t step = from.is_dma() ? isa::kDmaCompletionIncrement : from.sync.update_value;
    signal = {true, true, from.sync.update_semaphore,
              order_.value(semaphore_id(first.stream, from.sync.update_semaphore)) + step};
  }
  const std::string place = to.sync.num_waits < 2
                                ? "to " + short_label(second)
                                : "to a semaphore instruction before " + short_label(second);
  if (signal.present) {
    const std::string wait = "s" + number(signal.semaphore) + ">=" + number(signal.value);
    for (int w = 0; w < to.sync.num_waits; ++w) {
      const isa::SemWait& have = to.sync.waits[w];
      if (have.semaphore != signal.semaphore) continue;
      const bool by_register = have.value_register != isa::kNoRegister;
      return text + "raise the wait of " + short_label(second) + " for semaphore " + number(have.semaphore) +
             (by_register ? " (r" + number(have.value_register) + "+" + number(have.value) + ") to what is "
                          : " from " + number(have.value) + " to ") +
             number(signal.value) + (by_register ? " in this execution" : "") + ", the value after " +
             short_label(first);
    }
    return text + "add `wait " + wait + "` " + place + " (" +
           (signal.at_once ? short_label(first) : "an instruction behind " + short_label(first)) +
           " takes semaphore " + number(signal.semaphore) + " to " + number(signal.value) + ")";
  }
  if (from.sync.update != isa::SemOp::kNone && !from.is_control()) {
    return text + "wait for semaphore " + number(from.sync.update_semaphore) +
           " only with a value that all its updates together cannot reach without " + short_label(first) +
           ", or give " + short_label(first) + " a semaphore of its own";
  }
  std::array<bool, isa::kNumSemaphores> used{};
  for (const auto& stream : program_.streams) {
    for (const Instruction& i : stream) {
      for (int w = 0; w < i.sync.num_waits; ++w) used[i.sync.waits[w].semaphore] = true;
      if (i.sync.update != isa::SemOp::kNone) used[i.sync.update_semaphore] = true;
    }
  }
  const auto free = std::find(used.begin(), used.end(), false) - used.begin();
  const int step = from.is_dma() ? isa::kDmaCompletionIncrement : 1;
  return text + "add `then s" + number(free) + "+=" + number(step) + "` to " + short_label(first) +
         " and `wait s" + number(free) + ">=" + number(step) + "` " + place;
}

bool Checker::waits_for(const Epoch& waiter, uint8_t agent) const {
  const auto& stream = program_.streams[waiter.stream];
  const auto names = [&](const Instruction& i) {
    for (int w = 0; w < i.sync.num_waits; ++w) {
      for (size_t e = 0; e < program_.streams.size(); ++e) {
        for (const Instruction& u : program_.streams[e]) {
          if (u.sync.update != isa::SemOp::kNone && u.sync.update_semaphore == i.sync.waits[w].semaphore &&
              isa::core_of_stream(e) == isa::core_of_stream(waiter.stream) && order_.agent_of(u, e) == agent)
            return true;
        }
      }
    }
    return false;
  };
  if (names(stream[waiter.index])) return true;
  for (uint32_t n = waiter.index; n > 0 && stream[n - 1].opcode == isa::Opcode::kSemaphore; --n) {
    if (names(stream[n - 1])) return true;
  }
  return false;
}

// Two accesses without order: which one did the program mean to come first? The observed order is one of two
// that can happen. The edge that lacks fewer signals is the missing one; at a tie the side that has no wait for
// the other forgot it; else a read is meant to see the write.
bool Checker::second_should_come_first(const Epoch& first, Use first_use, const Epoch& second,
                                       Use second_use) const {
  const auto lacking = [&](const Epoch& before, const Epoch& after) {
    const uint32_t knows = order_.clock(after.stream)[before.agent];
    const bool signals = instruction(before).sync.update != isa::SemOp::kNone;
    const bool to_come = signals && !order_.signal_of(before).at_once;  // in the middle of it
    const uint32_t from = std::min(knows, before.clock);
    return std::max<int64_t>(1, order_.updates_between(before.agent, from, before.clock) + to_come);
  };
  const int64_t as_seen = lacking(first, second), turned = lacking(second, first);
  if (as_seen != turned) return turned < as_seen;
  const bool second_waits = waits_for(second, first.agent), first_waits = waits_for(first, second.agent);
  if (second_waits != first_waits) return second_waits;
  return first_use == Use::kRead && second_use != Use::kRead;
}

std::string Checker::race_sentence(const Epoch& first, Use first_use, const Epoch& second, Use second_use,
                                   const Operand& o, const Place& place) const {
  return "race: " + label(second) + " " + verb(second_use) + " " + where(o, place) + " while " +
         label(first) + " may still " + infinitive(first_use) + " it: nothing orders the two. " +
         missing_edge(first, second);
}

void Checker::race(const Access& a, const Epoch& other, Use other_use, Meant meant, const Place& place) {
  // Whatever the order in which they are met, it is one find.
  const bool swap = std::make_pair(a.self.stream, a.self.index) < std::make_pair(other.stream, other.index);
  if (!is_new(Kind::kRace, swap ? a.self : other, swap ? other : a.self)) return;
  was_read_[a.self.stream][a.self.index] = was_read_[other.stream][other.index] = 1;  // or meant to be
  const Operand& o = *a.operand;
  bool turn = second_should_come_first(other, other_use, a.self, o.use);
  if (o.use == Use::kRead && meant != Meant::kUnknown) turn = meant == Meant::kReadFirst;
  const auto early = too_early_.find({{other.stream, other.index}, static_cast<uint8_t>(o.space)});
  if (early != too_early_.end() && other_use == Use::kRead) {
    turn = true;
    too_early_.erase(early);
  }
  add(Kind::kRace, ErrorClass::kUserError,
      turn ? race_sentence(a.self, o.use, other, other_use, o, place)
           : race_sentence(other, other_use, a.self, o.use, o, place),
      a.self, other, o.use == Use::kWrite && other_use == Use::kWrite);
}

// What explains most comes first. A buffer that is filled again too early races with the writer before as well
// as with the reader in between; the reader is the one to wait for.
void Checker::sort_finds() {
  const auto& finds = report_.findings;
  const auto has_reader = [&](const Finding& f) {
    return std::any_of(finds.begin(), finds.end(), [&](const Finding& g) {
      if (g.kind != Kind::kRace || g.between_writes) return false;
      return std::any_of(f.instructions.begin(), f.instructions.end(),
                         [&](const auto& i) { return i == g.instructions[0] || i == g.instructions[1]; });
    });
  };
  std::vector<std::pair<int, size_t>> order;
  for (size_t n = 0; n < finds.size(); ++n) {
    const Finding& f = finds[n];
    order.emplace_back(f.kind == Kind::kNeverRead          ? 3
                       : f.kind == Kind::kRingOverflow     ? 2
                       : f.between_writes && has_reader(f) ? 1
                                                           : 0,
                       n);
  }
  std::sort(order.begin(), order.end());
  std::vector<Finding> sorted;
  for (const auto& [weight, n] : order) sorted.push_back(std::move(report_.findings[n]));
  report_.findings = std::move(sorted);
}

void Checker::unwritten(const Access& a, const Place& place) {
  if (too_early_.size() >= kMaxFindings || !is_new(Kind::kUnwritten, a.self, a.self)) return;
  const Operand& o = *a.operand;
  if (o.use == Use::kAccumulate) {
    add(Kind::kAccumulate, ErrorClass::kIllegalOnHardware,
        "PSUM accumulate: " + label(a.self) + " accumulates on " + where(o, place) +
            ", which nothing has written; the first multiplication of a group must not have the flag "
            "accumulate",
        a.self, a.self);
    return;
  }
  too_early_.insert({{{a.self.stream, a.self.index}, static_cast<uint8_t>(o.space)}, {o, place, a.self}});
}

void Checker::other_buffer(const Access& a, const Epoch& writer, uint32_t buffer, const Place& place) {
  if (!is_new(Kind::kLiveOverlap, a.self, writer)) return;
  const Operand& o = *a.operand;
  add(Kind::kLiveOverlap, ErrorClass::kUserError,
      "overlap of live buffers: " + label(a.self) + " reads " + name(o.name) + " of buffer #" +
          number(o.tensor) + " at " + where(o, place) + ", which " + label(writer) +
          " has overwritten through buffer #" + number(buffer) +
          "; place the two apart, or end the life of the first before the second begins",
      a.self, writer);
}

void Checker::accumulates_on_other(const Access& a, const Epoch& writer, const Place& place) {
  if (!is_new(Kind::kAccumulate, a.self, a.self)) return;
  add(Kind::kAccumulate, ErrorClass::kIllegalOnHardware,
      "PSUM accumulate: " + label(a.self) + " accumulates on " + where(*a.operand, place) + ", which " +
          label(writer) +
          " wrote, not a multiplication; the result is undefined before trn3. Start the group without the "
          "flag "
          "accumulate and add the other data afterwards",
      a.self, writer);
}

void Checker::accumulates_on_read(const Access& a, const Epoch& reader, const Place& place) {
  if (!is_new(Kind::kAccumulate, a.self, a.self)) return;
  add(Kind::kAccumulate, ErrorClass::kUserError,
      "PSUM accumulate: " + label(a.self) + " accumulates on " + where(*a.operand, place) + ", a sum that " +
          label(reader) +
          " has read already: the group has no start; its first multiplication must not have the flag "
          "accumulate",
      a.self, reader);
}

}  // namespace trnsim::check
