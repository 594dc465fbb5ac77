// Checks as the chip's launches see them: which launches are watched, and what follows from what was found.
#pragma once

#include <cstdint>
#include <memory>

#include "sim/chip/device.h"
#include "sim/config/config.h"

namespace trnsim::check {

enum class Level : uint8_t {
  kOff,
  kWarn,    // finds are warnings
  kStrict,  // the first find is the error of the launch
  // Strict, and nothing is taken for granted that the documents leave open: every DMA engine counts for itself.
  kPedantic,
};

// nullptr for Level::kOff.
std::shared_ptr<chip::Watcher> make_watcher(Level level, const config::Config& config);

}  // namespace trnsim::check
