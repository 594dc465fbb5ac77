// How much work a kernel list is, for the roofline: floating-point operations and the HBM traffic that no
// schedule can avoid.
#pragma once

#include <cstdint>

#include "device_plugin/compiler/kernels.h"

namespace trnsim::compiler {

struct Work {
  uint64_t flops = 0;
  uint64_t hbm_bytes = 0;
};
Work count_work(const KernelList& list);

}  // namespace trnsim::compiler
