// The parts of the kernel table, each compiled for every SIMD target in its own file.
#pragma once

#include "sim/exec/rows.h"

namespace trnsim::exec {

void fill_convert_kernels(RowKernels* k);
void fill_alu_kernels(RowKernels* k);
void fill_alu_int_kernels(RowKernels* k);
void fill_activation_kernels(RowKernels* k);

// Element types for memory of any alignment.
template <typename T>
struct Unaligned {
  typedef T type __attribute__((aligned(1), may_alias));
};

}  // namespace trnsim::exec
