// Stores of FP32 rows when the core is set to round otherwise than to nearest even (Numerics).
#pragma once

#include "isa/dtype.h"
#include "sim/exec/rows.h"

namespace trnsim::exec {

struct Rounding {
  bool stochastic = false, saturate = false;
  uint64_t key = 0;      // of the instruction
  uint64_t counter = 0;  // values rounded so far
};
// Set while an instruction of such a core executes on this thread, else null.
extern thread_local Rounding* current_rounding;

void store_rounded(isa::Dtype d, const float* in, ptrdiff_t in_pitch, std::byte* dst, ptrdiff_t pitch,
                   ptrdiff_t step, int rows, int n);

// Every store of FP32 values to memory goes through here.
inline void store_rows(isa::Dtype d, const float* in, ptrdiff_t in_pitch, std::byte* dst, ptrdiff_t pitch,
                       ptrdiff_t step, int rows, int n) {
  if (current_rounding != nullptr) return store_rounded(d, in, in_pitch, dst, pitch, step, rows, n);
  row_kernels().store[static_cast<int>(d)](in, in_pitch, dst, pitch, step, rows, n);
}

// Mixes a key and a counter into a random word (splitmix64).
inline uint64_t mixed(uint64_t key, uint64_t counter) {
  uint64_t z = key + (counter + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace trnsim::exec
