// Where two views of one memory meet.
#pragma once

#include "device_plugin/compiler/kernels.h"

namespace trnsim::compiler::fusion {

enum class Meeting : uint8_t {
  kDisjoint,  // no element in common
  kOverlap,   // perhaps some
  kCovers     // every element of the second is one of the first
};

// `first` and `second` lie in the same memory. Exact where both are boxes of one strided array (slices of a tensor);
// otherwise by their first and last element.
Meeting meet(const View& first, const View& second);

// The view names every element at most once: no broadcast, no overlapping window.
bool is_injective(const View& view);

// Elements of the view that differ: broadcast axes count once.
int64_t distinct_elements(const View& view);

}  // namespace trnsim::compiler::fusion
