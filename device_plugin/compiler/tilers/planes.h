// Row-wise kernels (pooling, top-k): all leading axes become one channel axis for the partitions where
// strides allow.
#pragma once

#include <vector>

#include "device_plugin/compiler/kernels.h"
#include "device_plugin/compiler/tilers/conv_geometry.h"

namespace trnsim::compiler {

// One image (n = 1) per view, same channels in all of them.
struct Planes {
  std::vector<ImageView> views;
};

// The leading axes (all but the last `axes`, of equal sizes in every view) merge into the channel axis; those
// that cannot are looped over: one Planes per combination, the longest axis stays the channel axis.
std::vector<Planes> planes_of(const std::vector<View>& views, size_t axes);

}  // namespace trnsim::compiler
