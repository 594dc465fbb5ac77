// Which memory a kernel uses. The tilers divide work over cores by it, so it is built with them.
#pragma once

#include <vector>

#include "device_plugin/compiler/kernels.h"

namespace trnsim::compiler::fusion {

// The views of a kernel: what it reads and what it writes (a scatter does both to its result).
struct Use {
  View* view;
  bool reads, writes;
};
std::vector<Use> uses_of(Kernel& kernel);

}  // namespace trnsim::compiler::fusion
