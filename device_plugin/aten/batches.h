// Batches of matrices: every dimension but the last two.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace trnsim::aten {

inline std::vector<int64_t> batch_of(const at::Tensor& a) {
  return a.sizes().slice(0, static_cast<size_t>(a.dim() - 2)).vec();
}

inline std::vector<int64_t> with(std::vector<int64_t> sizes, std::initializer_list<int64_t> more) {
  sizes.insert(sizes.end(), more);
  return sizes;
}

// [.., m, n] -> [batch, m, n]
inline at::Tensor flat_batch(const at::Tensor& a) {
  return a.reshape({c10::multiply_integers(batch_of(a)), a.size(-2), a.size(-1)});
}

}  // namespace trnsim::aten
