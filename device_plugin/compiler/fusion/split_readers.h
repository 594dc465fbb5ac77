// Readers of what several kernels wrote part by part (concatenations, padded gradients).
#pragma once

#include "device_plugin/compiler/kernels.h"

namespace trnsim::compiler::fusion {

// A pointwise map that reads a scratch buffer whose parts along one axis come from different maps or copies becomes one map
// per part, so that each can take in its writer and the buffer goes: a rotary embedding reads halves of its operand
// instead of a rotated copy. Legal for any map without reductions. Taken when all readers of the buffer are such maps, and
// the parts keep runs of kMinRunBytes or are small.
void split_readers(KernelList& list);

}  // namespace trnsim::compiler::fusion
