// A complex tensor as two real ones.
#pragma once

#include <ATen/core/Tensor.h>

#include "device_plugin/aten/composite_kernel.h"

namespace trnsim::aten {

struct Pair {
  at::Tensor re, im;
};

Pair pair_of(const at::Tensor& t);  // of a real tensor too; resolves conjugation and negation
at::Tensor complex_of(const at::Tensor& re, const at::Tensor& im);  // new memory; equal real types
inline at::Tensor complex_of(const Pair& p) { return complex_of(p.re, p.im); }
Pair times(const Pair& a, const Pair& b);
Pair rotated(const at::Tensor& size, const at::Tensor& angle);  // from polar form

// Forms of operators for complex tensors beside those of composites_complex.cpp.
Composites complex_function_forms();
Composites complex_move_forms();

}  // namespace trnsim::aten
