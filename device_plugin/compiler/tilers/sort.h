// Stable sorting of rows by a bitonic network (sort.cpp).
#pragma once

#include "device_plugin/compiler/kernels.h"
#include "device_plugin/compiler/tile.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {

// Same contract as tile_top, for any k and every dtype but uint32; exact.
void sort_rows(const TopKernel& kernel, const KernelContext& context, TileBuilder& tile);

}  // namespace trnsim::compiler
