#include "device_plugin/compiler/cost.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "device_plugin/compiler/error.h"

namespace trnsim::compiler {
namespace {

double ns(cost::Ps ps) { return static_cast<double>(ps) / 1e3; }

ComputeTime tensor_time(const isa::Instruction& i, const config::Config& c) {
  const auto cycles_ns = [&](double cycles) { return cycles / c.tensor.clock_ghz; };
  const double fill_ns = c.tensor.fill_fixed_ns + cycles_ns(c.tensor.fill_cycles);
  ComputeTime t;
  if (i.opcode == isa::Opcode::kLoadStationary) {
    const cost::WeightLoad load = cost::weight_load(i, c);
    // Hidden behind the product before it.
    t.issue_ns = c.sequencer.dispatch_ns;
    t.latency_ns = ns(load.fixed) + cycles_ns(static_cast<double>(load.shift_cycles));
    return t;
  }
  const cost::Matmul m = cost::matmul(i, c);
  t.issue_ns = m.passes * cycles_ns(static_cast<double>(m.cycles) + c.tensor.issue_overhead_cycles);
  t.latency_ns = t.issue_ns + fill_ns;
  // Products on other tiles of the array run beside this one.
  if (!i.tile.whole()) t.issue_ns *= i.tile.rows * i.tile.columns / (128.0 * 128.0);
  return t;
}

}  // namespace

const config::Config& target_config(const std::string& target) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<const config::Config>> loaded;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<const config::Config>& entry = loaded[target];
  if (!entry) {
    std::string error;
    auto config = config::load(target, "", &error);
    if (!config) throw_user_error("no laws of time for target '" + target + "': " + error);
    entry = std::make_unique<const config::Config>(std::move(*config));
  }
  return *entry;
}

ComputeTime compute_time(const isa::Instruction& i, isa::Engine engine, const config::Config& c) {
  if (engine == isa::Engine::kTensor) return tensor_time(i, c);
  cost::Compute cost;
  switch (engine) {
    case isa::Engine::kVector:
      cost = cost::vector_cost(i, c);
      break;
    case isa::Engine::kScalar:
      cost = cost::scalar_cost(i, c);
      break;
    default:
      cost = cost::gpsimd_cost(i, c);
      break;
  }
  return {ns(cost.issue), ns(cost.latency), cost.shared_bus ? ns(cost.stream) : 0};
}

namespace {

TransferTime time_of(const isa::Instruction& i, const config::Config& c) {
  const cost::Dma dma = cost::dma(i, c);
  TransferTime t;
  for (const cost::DmaJob& job : dma.jobs) {
    const double service = ns(job.packet) * (job.packets - 1) + ns(job.last_packet);
    t.service_ns = std::max(t.service_ns, service);
  }
  t.service_ns = std::max(t.service_ns, ns(dma.ring));
  t.latency_ns = ns(dma.trigger + dma.first_packet + dma.read_latency + dma.ack);
  return t;
}

double total_ns(const TransferTime& t) { return t.service_ns + t.latency_ns; }

// With descriptors that the hardware builds; nothing where it cannot.
std::optional<TransferTime> hardware_time(const isa::Instruction& i, isa::Engine engine,
                                          const config::Config& c) {
  if ((engine != isa::Engine::kSync && engine != isa::Engine::kScalar) || i.opcode != isa::Opcode::kDmaCopy ||
      i.src0.dtype != i.dst.dtype)
    return std::nullopt;
  isa::Instruction built = i;
  built.dge = isa::DgeMode::kHardware;
  return time_of(built, c);
}

}  // namespace

isa::DgeMode descriptor_mode(const isa::Instruction& i, isa::Engine engine, const config::Config& c) {
  const std::optional<TransferTime> hardware = hardware_time(i, engine, c);
  return hardware && total_ns(*hardware) < total_ns(time_of(i, c)) ? isa::DgeMode::kHardware
                                                                   : isa::DgeMode::kStatic;
}

TransferTime transfer_time(const isa::Instruction& i, const config::Config& c) {
  const TransferTime given = time_of(i, c);
  if (i.dge != isa::DgeMode::kStatic || i.dst.space == isa::Space::kHbm) return given;
  // Loads leave on the Sync engine, in the faster mode.
  const std::optional<TransferTime> hardware = hardware_time(i, isa::Engine::kSync, c);
  return hardware && total_ns(*hardware) < total_ns(given) ? *hardware : given;
}

}  // namespace trnsim::compiler
