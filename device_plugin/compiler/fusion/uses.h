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
std::vector<Use> uses_of(Kernel& kernel);  // without those that have no buffer

// Per buffer, whether a kernel reads it.
std::vector<bool> read_buffers(const KernelList& list);

// Per buffer, the buffer whose memory it is: an output that aliases an input lies in that, others in their own.
std::vector<int> memory_of_buffers(const std::vector<Buffer>& buffers);

}  // namespace trnsim::compiler::fusion
