// What decisions of the compiler cost: the laws of sim/cost, asked with the parameters of the target chip as shipped
// (overrides of a run do not change programs).
#pragma once

#include <cstdint>
#include <string>

#include "isa/instruction.h"
#include "sim/cost/cost.h"

namespace trnsim::compiler {

// Loaded once per target; an unknown target is a user error.
const config::Config& target_config(const std::string& target);

// Nanoseconds from the start of a compute instruction on its engine until the next one may start, until its results are
// visible, and (Vector's fast modes and GpSimd) on the SBUF port that both share.
struct ComputeTime {
  double issue_ns = 0, latency_ns = 0, shared_port_ns = 0;
};
ComputeTime compute_time(const isa::Instruction& i, isa::Engine engine, const config::Config& c);

// Shorter runs in memory cost a DMA engine as much as these.
constexpr int64_t kFullRunBytes = 512;

// A transfer alone: service time of its busiest engine, and what precedes and follows it.
struct TransferTime {
  double service_ns = 0, latency_ns = 0;
};
// Who builds the descriptors of a copy that `engine` issues: rings in HBM are slow to fetch where runs are short, the
// hardware generator costs its engine time.
isa::DgeMode descriptor_mode(const isa::Instruction& i, isa::Engine engine, const config::Config& c);
TransferTime transfer_time(const isa::Instruction& i, const config::Config& c);

}  // namespace trnsim::compiler
