// Integer arithmetic over int64 rows; stores wrap to the destination's width.
#include <limits>

#include "sim/exec/rows_fill.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sim/exec/rows_alu_int.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace trnsim::exec {
namespace HWY_NAMESPACE {
using isa::AluOp;

HWY_INLINE int64_t wrap(uint64_t v) { return static_cast<int64_t>(v); }
HWY_INLINE uint64_t bits_of(int64_t v) { return static_cast<uint64_t>(v); }
HWY_INLINE int64_t magnitude(int64_t v) { return v < 0 ? wrap(0 - bits_of(v)) : v; }

HWY_INLINE int64_t int_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {  // 1 / base^n, truncated
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  uint64_t result = 1, b = bits_of(base);
  for (uint64_t e = bits_of(exponent); e != 0; e >>= 1) {
    if (e & 1) result *= b;
    b *= b;
  }
  return wrap(result);
}

// Shifts by the width or more, or by a negative count, give 0. The right shift is logical: it works on the
// `bits` low bits of its operand.
template <AluOp kOp>
HWY_INLINE int64_t alu(int64_t a, int64_t b, int bits) {
  if constexpr (kOp == AluOp::kAdd) return wrap(bits_of(a) + bits_of(b));
  if constexpr (kOp == AluOp::kSubtract) return wrap(bits_of(a) - bits_of(b));
  if constexpr (kOp == AluOp::kMultiply) return wrap(bits_of(a) * bits_of(b));
  if constexpr (kOp == AluOp::kMax) return a > b ? a : b;
  if constexpr (kOp == AluOp::kMin) return a < b ? a : b;
  if constexpr (kOp == AluOp::kAbsMax) return magnitude(a) > magnitude(b) ? magnitude(a) : magnitude(b);
  if constexpr (kOp == AluOp::kAbsMin) return magnitude(a) < magnitude(b) ? magnitude(a) : magnitude(b);
  if constexpr (kOp == AluOp::kPower) return int_power(a, b);
  if constexpr (kOp == AluOp::kEqual) return a == b;
  if constexpr (kOp == AluOp::kNotEqual) return a != b;
  if constexpr (kOp == AluOp::kGreaterEqual) return a >= b;
  if constexpr (kOp == AluOp::kGreater) return a > b;
  if constexpr (kOp == AluOp::kLessEqual) return a <= b;
  if constexpr (kOp == AluOp::kLess) return a < b;
  if constexpr (kOp == AluOp::kLogicalAnd) return (a != 0) & (b != 0);
  if constexpr (kOp == AluOp::kLogicalOr) return (a != 0) | (b != 0);
  if constexpr (kOp == AluOp::kLogicalXor) return (a != 0) ^ (b != 0);
  if constexpr (kOp == AluOp::kBitAnd) return a & b;
  if constexpr (kOp == AluOp::kBitOr) return a | b;
  if constexpr (kOp == AluOp::kBitXor) return a ^ b;
  if constexpr (kOp == AluOp::kShiftLeft) return b >= 0 && b < bits ? wrap(bits_of(a) << b) : 0;
  if constexpr (kOp == AluOp::kShiftRight) {
    const uint64_t low = bits_of(a) & (~uint64_t{0} >> (64 - bits));
    return b >= 0 && b < bits ? wrap(low >> b) : 0;
  }
  if constexpr (kOp == AluOp::kInvert) return ~a;
  if constexpr (kOp == AluOp::kAbs) return magnitude(a);
  if constexpr (kOp == AluOp::kSquare) return wrap(bits_of(a) * bits_of(a));
  if constexpr (kOp == AluOp::kRelu) return a > 0 ? a : 0;
  return a;  // kNone, kBypass
}

template <AluOp kOp>
void binary(const int64_t* a, ptrdiff_t ap, const int64_t* b, ptrdiff_t bp, int64_t* d, ptrdiff_t dp,
            int rows, int n, int bits) {
  for (int r = 0; r < rows; ++r) {
    const int64_t* x = a + r * ap;
    const int64_t* y = b + r * bp;
    int64_t* o = d + r * dp;
#pragma GCC ivdep
    for (int j = 0; j < n; ++j) o[j] = alu<kOp>(x[j], y[j], bits);
  }
}

template <AluOp kOp, bool kReverse>
void binary_scalar(const int64_t* a, ptrdiff_t ap, const int64_t* s, ptrdiff_t s_step, int64_t* d,
                   ptrdiff_t dp, int rows, int n, int bits) {
  for (int r = 0; r < rows; ++r) {
    const int64_t* x = a + r * ap;
    const int64_t v = s[r * s_step];
    int64_t* o = d + r * dp;
#pragma GCC ivdep
    for (int j = 0; j < n; ++j) o[j] = kReverse ? alu<kOp>(v, x[j], bits) : alu<kOp>(x[j], v, bits);
  }
}

template <AluOp kOp>
void reduce(const int64_t* a, ptrdiff_t ap, int64_t* acc, int rows, int n) {
  for (int r = 0; r < rows; ++r) {
    const int64_t* x = a + r * ap;
    int64_t v = acc[r];
    for (int j = 0; j < n; ++j) v = alu<kOp>(v, x[j], 64);
    acc[r] = v;
  }
}

template <AluOp kOp>
void fill_op(RowKernels* k) {
  const int i = static_cast<int>(kOp);
  k->binary_int[i] = binary<kOp>;
  k->binary_scalar_int[0][i] = binary_scalar<kOp, false>;
  k->binary_scalar_int[1][i] = binary_scalar<kOp, true>;
}

template <AluOp... kOps>
void fill_ops(RowKernels* k) {
  (fill_op<kOps>(k), ...);
}
// Operators of one operand: a reverse flag changes nothing.
template <AluOp... kOps>
void fill_unary(RowKernels* k) {
  ((k->binary_int[static_cast<int>(kOps)] = binary<kOps>,
    k->binary_scalar_int[0][static_cast<int>(kOps)] = k->binary_scalar_int[1][static_cast<int>(kOps)] =
        binary_scalar<kOps, false>),
   ...);
}
template <AluOp... kOps>
void fill_reductions(RowKernels* k) {
  ((k->reduce_int[static_cast<int>(kOps)] = reduce<kOps>), ...);
}

void fill_alu_int(RowKernels* k) {
  fill_ops<AluOp::kNone, AluOp::kBypass, AluOp::kAdd, AluOp::kSubtract, AluOp::kMultiply, AluOp::kMax,
           AluOp::kMin, AluOp::kAbsMax, AluOp::kAbsMin, AluOp::kPower, AluOp::kEqual, AluOp::kNotEqual,
           AluOp::kGreaterEqual, AluOp::kGreater, AluOp::kLessEqual, AluOp::kLess, AluOp::kLogicalAnd,
           AluOp::kLogicalOr, AluOp::kLogicalXor, AluOp::kBitAnd, AluOp::kBitOr, AluOp::kBitXor,
           AluOp::kShiftLeft, AluOp::kShiftRight>(k);
  fill_unary<AluOp::kInvert, AluOp::kAbs, AluOp::kSquare, AluOp::kRelu>(k);
  fill_reductions<AluOp::kAdd, AluOp::kSubtract, AluOp::kMultiply, AluOp::kMax, AluOp::kMin, AluOp::kAbsMax,
                  AluOp::kAbsMin, AluOp::kLogicalAnd, AluOp::kLogicalOr, AluOp::kLogicalXor, AluOp::kBitAnd,
                  AluOp::kBitOr, AluOp::kBitXor>(k);
}

}  // namespace HWY_NAMESPACE
}  // namespace trnsim::exec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trnsim::exec {
HWY_EXPORT(fill_alu_int);
void fill_alu_int_kernels(RowKernels* k) { HWY_DYNAMIC_DISPATCH(fill_alu_int)(k); }
}  // namespace trnsim::exec
#endif
