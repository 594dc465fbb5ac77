// Masks that are computed from index values alone: which are bands?
#pragma once

#include <cstdint>
#include <optional>

#include "device_plugin/compiler/fusion/map_form.h"

namespace trnsim::compiler::fusion {

// Column index minus row index, j - i, decides: `low` where it is at most `last`, `high` beyond.
struct Band {
  double low = 0, high = 0;
  int64_t last = 0;
};

// The result of a map without inputs as a function of j - i, where i runs along axis `row` and j along axis `column`.
// Nothing when it is not of that kind.
std::optional<Band> band_of(const MapForm& form, int row, int column);

}  // namespace trnsim::compiler::fusion
