// How far off a simulated time may be.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "isa/instruction.h"
#include "sim/chip/device.h"
#include "sim/config/config.h"

namespace trnsim::runtime {

// What kept the chip during some launches.
struct Activity {
  int64_t launches = 0;  // and the time, once for each physical core
  int64_t simulated_ps = 0;
  std::array<int64_t, isa::kNumEngines> busy_ps{};
  int64_t dma_busy_ps = 0;
  void add(const Activity& other);
  void add(const chip::LaunchStats& launch);
};

struct ErrorBand {
  double relative = 0;  // both parts together
  double parameters =
      0;  // mean band of the timing parameters, weighted by how much of the time each group explains
  double measured =
      0;  // mean error of the family of measured kernels that keeps the chip in the most similar way
  std::string family;
};
ErrorBand error_band(const config::Config& config, const Activity& activity);

}  // namespace trnsim::runtime
