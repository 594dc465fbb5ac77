// The passes over the flow of a kernel list. Each file states its law of legality.
#pragma once

#include "device_plugin/compiler/fusion/flow.h"

namespace trnsim::compiler::fusion {

// Copies and casts go into the kernels that read them (forward_copies.cpp).
void forward_copies(Flow& flow);
// Maps into maps: producers into consumers, rows into their chains (fuse_maps.cpp).
void fuse_maps(Flow& flow);
// Maps that read the same tensor (fuse_siblings.cpp).
void fuse_siblings(Flow& flow);
// Maps behind a matrix product or a convolution into its epilogue (epilogue.cpp).
void fuse_epilogues(Flow& flow);
// A softmax between two products (attention.cpp).
void recognise_attention(Flow& flow);
// The order of the kernels (schedule.cpp).
void schedule(Flow& flow);

}  // namespace trnsim::compiler::fusion
