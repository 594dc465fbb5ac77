// Why a run came to a stop: who waits for what, who would have raised it, and whether they wait for each other.
#include <algorithm>
#include <vector>

#include "isa/names.h"
#include "sim/chip/modules.h"

namespace trnsim::chip {

using isa::Engine;

namespace {

constexpr int kNone = -1;

// Engines that wait for each other in a ring, in order; empty when there is none. `waits_for[e]` is a bit mask.
std::vector<int> find_ring(const std::array<unsigned, isa::kNumStreams>& waits_for) {
  for (int start = 0; start < isa::kNumStreams; ++start) {
    std::array<int, isa::kNumStreams> from;
    from.fill(kNone);
    std::vector<int> open{start};
    while (!open.empty()) {
      const int e = open.back();
      open.pop_back();
      for (int next = 0; next < isa::kNumStreams; ++next) {
        if ((waits_for[static_cast<size_t>(e)] >> next & 1) == 0) continue;
        if (next == start) {
          std::vector<int> ring{e};
          for (int at = e; at != start; at = from[static_cast<size_t>(at)])
            ring.push_back(from[static_cast<size_t>(at)]);
          std::reverse(ring.begin(), ring.end());
          return ring;
        }
        if (from[static_cast<size_t>(next)] != kNone) continue;
        from[static_cast<size_t>(next)] = e;
        open.push_back(next);
      }
    }
  }
  return {};
}

}  // namespace

// One clause per stopped stream: what it waits for, and who would have raised that.
std::string PairModule::explain_hang() {
  const isa::Program& source = *program_->source;
  std::string text;
  bool unreachable = false;
  std::array<unsigned, isa::kNumStreams> waits_for{};
  const size_t streams = isa::stream_number(program_->cores, Engine::kTensor);
  const auto core_of = [&](size_t s) -> CoreModule& {
    return *cores[static_cast<size_t>(isa::core_of_stream(s))];
  };
  const auto engine_of = [&](size_t s) -> EngineModule& {
    return *core_of(s).engines[static_cast<size_t>(isa::engine_of_stream(s))];
  };
  // Who will do something that `does` tells, in words: the next such instruction of the stream that has not been
  // reached. Sets waits_for of `waiter`; false when the stream has none left.
  const auto ahead_of = [&](size_t s, size_t waiter, const auto& does, std::string* who) {
    const auto& ops = program_->streams[s].ops;
    const auto found = std::find_if(ops.begin() + engine_of(s).pc(), ops.end(), does);
    if (engine_of(s).halted() || found == ops.end()) return false;
    waits_for[waiter] |= 1u << s;
    *who = s == waiter ? "itself, later"
                       : isa::instruction_label(source, s, static_cast<size_t>(found - ops.begin())) +
                             ", which has not been reached";
    return true;
  };
  for (size_t s = 0; s < streams; ++s) {
    EngineModule& engine = engine_of(s);
    if (engine.halted()) continue;
    const TimedOp& op = program_->streams[s].ops[engine.pc()];
    text += (text.empty() ? "" : "; ") + isa::instruction_label(source, s, engine.pc());
    bool waits = false;
    const size_t first = isa::stream_number(isa::core_of_stream(s), Engine::kTensor);
    for (int w = 0; w < op.num_waits && !engine.at_barrier(); ++w) {
      const isa::SemWait& wait = op.waits[w];
      int64_t threshold = wait.value;
      if (wait.value_register != isa::kNoRegister) threshold += engine.reg(wait.value_register);
      const int64_t value = core_of(s).semaphores.final_value(wait.semaphore);
      if (value >= threshold) continue;
      text += std::string(waits ? " and" : " waits") + " for semaphore " + std::to_string(wait.semaphore) +
              " >= " + std::to_string(threshold) + " (value " + std::to_string(value) + ")";
      waits = true;
      if (threshold > INT32_MAX) {
        text += ", which 32 bits do not hold";
        unreachable = true;
        continue;
      }
      std::string raisers;
      bool somebody = false;
      for (size_t p = first; p < first + isa::kNumEngines; ++p) {
        const auto& ops = program_->streams[p].ops;
        const auto updates = [&](const TimedOp& o) {
          return o.update != isa::SemOp::kNone && o.update_semaphore == wait.semaphore;
        };
        if (std::none_of(ops.begin(), ops.end(), updates)) continue;
        std::string who = isa::stream_label(source, p) + ", which has made all its updates";
        for (const auto& [pipe, waiting] : halves) {
          for (const Half& half : waiting) {
            if (half.stream == p && updates(ops[half.index]))
              who = isa::instruction_label(source, p, half.index) + ", an exchange without the other core";
          }
        }
        somebody |= ahead_of(p, s, updates, &who);
        raisers += (raisers.empty() ? "" : ", or ") + who;
      }
      text += raisers.empty() ? ", which no instruction updates" : ", which would be raised by " + raisers;
      unreachable = unreachable || !somebody;
    }
    if (waits) continue;
    if (engine.at_barrier()) {
      const size_t p = isa::stream_number(1 - isa::core_of_stream(s), isa::engine_of_stream(s));
      std::string who = isa::stream_label(source, p) + " at barrier " + std::to_string(engine.barriers()) +
                        ", and it has only " + std::to_string(engine_of(p).barriers());
      unreachable |= !ahead_of(
          p, s, [](const TimedOp& o) { return o.kind == OpKind::kCoreBarrier; }, &who);
      text += " waits for " + who;
    } else {
      text += op.kind == OpKind::kDma ? " waits for room in DMA queue " + std::to_string(op.queue)
                                      : " does not advance";
    }
  }
  for (const auto& [pipe, waiting] : halves) {
    for (const Half& half : waiting) {
      text += (text.empty() ? "" : "; ") + isa::instruction_label(source, half.stream, half.index) +
              " waits for core " + std::to_string(1 - isa::core_of_stream(half.stream)) +
              " to exchange over pipe " + std::to_string(pipe);
      unreachable = true;
    }
  }
  std::string cause = unreachable ? " (missing signal)" : "";
  if (const std::vector<int> ring = find_ring(waits_for); !ring.empty()) {
    cause = " (deadlock: ";
    for (size_t n = 0; n < ring.size(); ++n)
      cause += (n == 0 ? "" : " waits for ") + isa::stream_label(source, static_cast<size_t>(ring[n]));
    cause += " waits for " +
             (ring.size() == 1 ? "itself" : isa::stream_label(source, static_cast<size_t>(ring[0]))) + ")";
  }
  return "user error: the program hangs" + cause + ": " + text +
         (program_->cores > 1
              ? ". Compare the waits with the updates of these semaphores, and the barriers and "
                "exchanges of the two cores."
              : ". Compare the waits with the updates of these semaphores.");
}

}  // namespace trnsim::chip
