// Copies through SBUF (internal to move.cpp).
#pragma once

#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {

// Moves equal dtypes through SBUF where that is faster than a transfer from HBM to HBM by the laws of the target;
// otherwise false, and nothing is emitted.
bool move_through_sbuf(const MoveKernel& kernel, const KernelContext& context, TileBuilder& tile);

}  // namespace trnsim::compiler
