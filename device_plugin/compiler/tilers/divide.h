// One kernel list on the two physical cores of a logical core.
//
// Every kernel is cut into two halves along an axis of independent results (rows of a product or a map, heads of an
// attention, images of a convolution), each core runs one half of every kernel in the order of the list, and both meet in a
// barrier in front of a kernel whose half touches what the other core has written since the last one, or writes what the
// other has touched. The cut of a kernel is the one that costs least, its barrier included; a kernel that cannot be cut, or
// is not worth a barrier, runs on the first core alone. Values stay in SBUF between kernels that are cut alike, as they do on
// one core, because no barrier stands between them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device_plugin/compiler/kernels.h"

namespace trnsim::compiler {

struct CoreStep {
  bool barrier = false;  // both cores meet here; no kernel
  std::optional<Kernel> on_core[2];
  std::string location;
};
struct CorePlan {
  std::vector<CoreStep> steps;
  std::vector<int32_t> shared;  // buffers that both cores touch and one of them writes
  int barriers = 0;
};

// Nothing where two cores are not faster than one by enough, unless `always`: then cuts and barriers cost nothing.
std::optional<CorePlan> divide(const KernelList& list, const std::string& target, bool always = false);

}  // namespace trnsim::compiler
