// The graph level of the compiler: passes over the kernel list between lowering and tiling. Same values, fewer kernels,
// less traffic.
#pragma once

#include "device_plugin/compiler/kernels.h"

namespace trnsim::compiler {

struct FusionReport {
  size_t kernels_before = 0, kernels_after = 0;
  int64_t scratch_bytes_before = 0, scratch_bytes_after = 0;  // of HBM
};

FusionReport fuse_kernels(KernelList& list);

}  // namespace trnsim::compiler
