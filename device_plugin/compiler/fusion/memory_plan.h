// Scratch buffers share HBM by liveness.
#pragma once

#include "device_plugin/compiler/kernels.h"

namespace trnsim::compiler::fusion {

int64_t scratch_bytes(const KernelList& list);

// A scratch buffer takes the place of one that no later kernel touches. Buffers that no kernel touches become empty.
// Legal for buffers that every run writes before it reads them, which scratch is by definition. Sharing orders kernels
// that were free to overlap, so only large buffers share, and the one free for the longest time is taken first.
void plan_memory(KernelList& list);

}  // namespace trnsim::compiler::fusion
