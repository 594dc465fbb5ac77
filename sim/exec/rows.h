// SIMD kernels over blocks of rows. Every kernel handles `rows` rows of `n` elements; pitches are the
// distance between rows, in elements for float / int64 buffers and in bytes for memory. Outputs may be the
// same block as an input (in place), but not a shifted one. The table is chosen once for the host processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa/instruction.h"

namespace trnsim::exec {

struct RowKernels {
  // Memory (element step `step` bytes, 0 broadcasts) to dense FP32 or int64 rows, and back.
  using Load = void (*)(const std::byte* src, ptrdiff_t pitch, ptrdiff_t step, float* out,
                        ptrdiff_t out_pitch, int rows, int n);
  using Store = void (*)(const float* in, ptrdiff_t in_pitch, std::byte* dst, ptrdiff_t pitch, ptrdiff_t step,
                         int rows, int n);
  using LoadInt = void (*)(const std::byte* src, ptrdiff_t pitch, ptrdiff_t step, int64_t* out,
                           ptrdiff_t out_pitch, int rows, int n);
  using StoreInt = void (*)(const int64_t* in, ptrdiff_t in_pitch, std::byte* dst, ptrdiff_t pitch,
                            ptrdiff_t step, int rows, int n);
  // Raw copies of elements of 1, 2, 4 or 8 bytes.
  using CopyRaw = void (*)(const std::byte* src, ptrdiff_t src_pitch, ptrdiff_t src_step, std::byte* dst,
                           ptrdiff_t dst_pitch, ptrdiff_t dst_step, int64_t rows, int64_t n);

  using Binary = void (*)(const float* a, ptrdiff_t ap, const float* b, ptrdiff_t bp, float* d, ptrdiff_t dp,
                          int rows, int n);
  // b is one value per row: s[row * s_step].
  using BinaryScalar = void (*)(const float* a, ptrdiff_t ap, const float* s, ptrdiff_t s_step, float* d,
                                ptrdiff_t dp, int rows, int n);
  using BinaryScalar2 = void (*)(const float* a, ptrdiff_t ap, const float* s0, ptrdiff_t s0_step,
                                 const float* s1, ptrdiff_t s1_step, float* d, ptrdiff_t dp, int rows, int n);
  // `bits`: width of the first operand, for logical right shifts.
  using BinaryInt = void (*)(const int64_t* a, ptrdiff_t ap, const int64_t* b, ptrdiff_t bp, int64_t* d,
                             ptrdiff_t dp, int rows, int n, int bits);
  using BinaryScalarInt = void (*)(const int64_t* a, ptrdiff_t ap, const int64_t* s, ptrdiff_t s_step,
                                   int64_t* d, ptrdiff_t dp, int rows, int n, int bits);
  using Unary = void (*)(const float* a, ptrdiff_t ap, float* d, ptrdiff_t dp, int rows, int n);
  // acc[row] = op(acc[row], elements of the row). Sums run in 16 fixed lanes on every host, so that the
  // result does not depend on the host's vector width.
  using Reduce = void (*)(const float* a, ptrdiff_t ap, float* acc, int rows, int n);
  using ReduceInt = void (*)(const int64_t* a, ptrdiff_t ap, int64_t* acc, int rows, int n);

  static constexpr int kAlu = static_cast<int>(isa::AluOp::kCount);

  Load load[isa::kNumDtypes];
  Store store[isa::kNumDtypes];
  LoadInt load_int[isa::kNumDtypes];    // null for float dtypes
  StoreInt store_int[isa::kNumDtypes];  // null for float dtypes
  CopyRaw copy_raw[9];                  // by element size

  Binary binary[kAlu];                  // null: not a float operation
  BinaryScalar binary_scalar[2][kAlu];  // [1]: operands swapped (reverse flag)
  BinaryScalar2 fused[kAlu][kAlu];      // (a op0 s0) op1 s1 in one pass; null: use two
  BinaryInt binary_int[kAlu];           // null: not an integer operation
  BinaryScalarInt binary_scalar_int[2][kAlu];
  Unary activation[static_cast<int>(isa::ActFunc::kCount)];
  Reduce reduce[kAlu];         // null: not a reduction
  ReduceInt reduce_int[kAlu];  // null: not a reduction
  // Blocked transpose: dst[c][r] = src[r][c], elements of 1, 2 or 4 bytes; pitches in bytes.
  void (*transpose[5])(const std::byte* src, ptrdiff_t src_pitch, std::byte* dst, ptrdiff_t dst_pitch,
                       int rows, int columns);
  void (*round_tf32)(const float* a, ptrdiff_t ap, float* d, ptrdiff_t dp, int rows, int n);
  // Words first_word .. first_word + n - 1 of the Philox4x32-10 stream.
  void (*philox)(uint64_t key, uint64_t offset, uint64_t first_word, uint32_t* out, int n);
};

const RowKernels& row_kernels();

// Start value of a reduction of float or int64_t. False when the operation has none (it then starts with the
// first element).
template <typename T>
bool reduce_identity(isa::AluOp op, T* value);

}  // namespace trnsim::exec
