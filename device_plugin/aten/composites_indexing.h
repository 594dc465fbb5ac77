// Positions of elements, shared by composites.
#pragma once

#include <ATen/core/Tensor.h>

namespace trnsim::aten {

// 0, 1, .. n - 1 as int64 on the device of `like`.
at::Tensor counting(int64_t n, const at::Tensor& like);

// Where a flat bool tensor is true, in order. Reads the count back.
at::Tensor true_positions(const at::Tensor& mask);

}  // namespace trnsim::aten
