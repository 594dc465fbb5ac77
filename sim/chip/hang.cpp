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
std::vector<int> find_ring(const std::array<unsigned, isa::kNumEngines>& waits_for) {
  for (int start = 0; start < isa::kNumEngines; ++start) {
    std::array<int, isa::kNumEngines> from;
    from.fill(kNone);
    std::vector<int> open{start};
    while (!open.empty()) {
      const int e = open.back();
      open.pop_back();
      for (int next = 0; next < isa::kNumEngines; ++next) {
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
std::string CoreModule::explain_hang() {
  const isa::Program& source = *program->source;
  std::string text;
  bool unreachable = false;
  std::array<unsigned, isa::kNumEngines> waits_for{};
  for (size_t e = 0; e < engines.size(); ++e) {
    if (engines[e]->halted()) continue;
    const TimedOp& op = program->streams[e].ops[engines[e]->pc()];
    text +=
        (text.empty() ? "" : "; ") + isa::instruction_label(source, static_cast<Engine>(e), engines[e]->pc());
    bool waits = false;
    for (int w = 0; w < op.num_waits; ++w) {
      const isa::SemWait& wait = op.waits[w];
      int64_t threshold = wait.value;
      if (wait.value_register != isa::kNoRegister) threshold += engines[e]->reg(wait.value_register);
      const int64_t value = semaphores.final_value(wait.semaphore);
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
      for (size_t p = 0; p < engines.size(); ++p) {
        const auto& ops = program->streams[p].ops;
        const auto updates = [&](const TimedOp& o) {
          return o.update != isa::SemOp::kNone && o.update_semaphore == wait.semaphore;
        };
        if (std::none_of(ops.begin(), ops.end(), updates)) continue;
        raisers += raisers.empty() ? "" : ", or ";
        const auto ahead = std::find_if(ops.begin() + engines[p]->pc(), ops.end(), updates);
        if (engines[p]->halted() || ahead == ops.end()) {
          raisers +=
              std::string(isa::engine_label(static_cast<Engine>(p))) + ", which has made all its updates";
          continue;
        }
        somebody = true;
        waits_for[e] |= 1u << p;
        raisers += p == e ? "itself, later"
                          : isa::instruction_label(source, static_cast<Engine>(p),
                                                   static_cast<size_t>(ahead - ops.begin())) +
                                ", which has not been reached";
      }
      text += raisers.empty() ? ", which no instruction updates" : ", which would be raised by " + raisers;
      unreachable = unreachable || !somebody;
    }
    if (!waits) {
      text += op.kind == OpKind::kDma ? " waits for room in DMA queue " + std::to_string(op.queue)
                                      : " does not advance";
    }
  }
  std::string cause = unreachable ? " (missing signal)" : "";
  if (const std::vector<int> ring = find_ring(waits_for); !ring.empty()) {
    cause = " (deadlock: ";
    for (size_t n = 0; n < ring.size(); ++n)
      cause += (n == 0 ? "" : " waits for ") + std::string(isa::engine_label(static_cast<Engine>(ring[n])));
    cause += " waits for " +
             (ring.size() == 1 ? "itself" : std::string(isa::engine_label(static_cast<Engine>(ring[0])))) +
             ")";
  }
  return "user error: the program hangs" + cause + ": " + text +
         ". Compare the waits with the updates of these semaphores.";
}

}  // namespace trnsim::chip
