#include "sim/runtime/error_band.h"

#include <algorithm>
#include <cmath>

namespace trnsim::runtime {
namespace {

constexpr double kPsPerNs = 1000.0;
constexpr size_t kShares = 6;  // tensor, vector, scalar, gpsimd, DMA, launch

struct Family {
  const char* name;
  double error;
  std::array<double, kShares> shares;
};
constexpr Family kFamilies[] = {
#include "sim/runtime/measured_families.inc"
};

std::array<double, kShares> busy_ns(const config::Config& c, const Activity& a) {
  const auto engine = [&](isa::Engine e) {
    return static_cast<double>(a.busy_ps[static_cast<size_t>(e)]) / kPsPerNs;
  };
  return {engine(isa::Engine::kTensor),
          engine(isa::Engine::kVector),
          engine(isa::Engine::kScalar),
          engine(isa::Engine::kGpSimd),
          static_cast<double>(a.dma_busy_ps) / kPsPerNs,
          static_cast<double>(a.launches) * (c.launch.start_ns + c.launch.end_ns)};
}

double parameter_band(const config::Config& c, const std::array<double, kShares>& busy) {
  static constexpr const char* kGroups[kShares] = {"tensor.", "vector.", "scalar.",
                                                   "gpsimd.", "dma.",    "launch."};
  const auto parameters = config::describe(c);
  double weight = 0, sum = 0;
  for (size_t g = 0; g < kShares; ++g) {
    double band = 0;
    int n = 0;
    for (const auto& p : parameters) {
      if (p.is_text || p.key.rfind(kGroups[g], 0) != 0) continue;
      band += p.band;
      ++n;
    }
    if (n == 0) continue;
    weight += busy[g];
    sum += busy[g] * band / n;
  }
  return weight > 0 ? sum / weight : 0.0;
}

}  // namespace

void Activity::add(const Activity& other) {
  launches += other.launches;
  simulated_ps += other.simulated_ps;
  for (size_t e = 0; e < busy_ps.size(); ++e) busy_ps[e] += other.busy_ps[e];
  dma_busy_ps += other.dma_busy_ps;
}

void Activity::add(const chip::LaunchStats& launch) {
  launches += launch.cores;
  simulated_ps += launch.total_ps * launch.cores;  // the busy times are sums over the cores
  for (size_t e = 0; e < busy_ps.size(); ++e) busy_ps[e] += launch.engines[e].busy_ps;
  dma_busy_ps += launch.dma_busy_ps;
}

ErrorBand error_band(const config::Config& c, const Activity& a) {
  ErrorBand band;
  if (a.simulated_ps <= 0) return band;
  const std::array<double, kShares> busy = busy_ns(c, a);
  band.parameters = parameter_band(c, busy);
  const double total = static_cast<double>(a.simulated_ps) / kPsPerNs;
  double nearest = HUGE_VAL;
  for (const Family& f : kFamilies) {
    double distance = 0;
    for (size_t s = 0; s < kShares; ++s) distance += std::fabs(busy[s] / total - f.shares[s]);
    if (distance >= nearest) continue;
    nearest = distance;
    band.measured = f.error;
    band.family = f.name;
  }
  band.relative = std::hypot(band.parameters, band.measured);
  return band;
}

}  // namespace trnsim::runtime
