// Operators without a NeuronCore program run on the host, in place on the mapped HBM. Every call is counted
// and named.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <string>
#include <vector>

namespace trnsim::aten {

enum class FallbackKind : uint8_t {
  kNotLowered,   // the operator has no lowering
  kUnsupported,  // it has one, but not for this case
};

// Throws when TRNSIM_FALLBACK=error forbids it, with the operator and the reason.
void run_on_host(const c10::OperatorHandle& op, c10::Stack* stack, const std::string& reason,
                 FallbackKind kind);

// Counts a host execution that does not go through run_on_host, under the same rules.
void note_fallback(const std::string& op, const std::string& reason, FallbackKind kind);

struct FallbackCount {
  std::string op, reason;
  uint64_t count = 0;
};
std::vector<FallbackCount> fallback_counts();
void reset_fallback_counts();

// ---- op tracking: one entry per call, from the first clear_op_tracking() on
void clear_op_tracking();
void note_executed(const std::string& op);
std::vector<std::string> executed_ops();
std::vector<std::string> fallback_ops();

}  // namespace trnsim::aten
