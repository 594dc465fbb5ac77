// FP32 arithmetic over rows. Plain loops: the compiler vectorises them for every target.
#include <cmath>

#include "sim/exec/rows_fill.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sim/exec/rows_alu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "sim/exec/rows_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trnsim::exec {
namespace HWY_NAMESPACE {
using isa::AluOp;

// NaN in either operand gives NaN in max and min (the hardware's rule is not public; PyTorch propagates). Of
// equal operands (+0, -0) the second is taken.
HWY_INLINE float max_nan(float a, float b) { return a > b || a != a ? a : b; }
HWY_INLINE float min_nan(float a, float b) { return a < b || a != a ? a : b; }

template <AluOp kOp>
HWY_INLINE float alu(float a, float b) {
  if constexpr (kOp == AluOp::kAdd) return a + b;
  if constexpr (kOp == AluOp::kSubtract) return a - b;
  if constexpr (kOp == AluOp::kMultiply) return a * b;
  if constexpr (kOp == AluOp::kMax) return max_nan(a, b);
  if constexpr (kOp == AluOp::kMin) return min_nan(a, b);
  if constexpr (kOp == AluOp::kAbsMax) return max_nan(std::fabs(a), std::fabs(b));
  if constexpr (kOp == AluOp::kAbsMin) return min_nan(std::fabs(a), std::fabs(b));
  if constexpr (kOp == AluOp::kEqual) return a == b ? 1.0f : 0.0f;
  if constexpr (kOp == AluOp::kNotEqual) return a != b ? 1.0f : 0.0f;
  if constexpr (kOp == AluOp::kGreaterEqual) return a >= b ? 1.0f : 0.0f;
  if constexpr (kOp == AluOp::kGreater) return a > b ? 1.0f : 0.0f;
  if constexpr (kOp == AluOp::kLessEqual) return a <= b ? 1.0f : 0.0f;
  if constexpr (kOp == AluOp::kLess) return a < b ? 1.0f : 0.0f;
  // Written without a branch per element.
  if constexpr (kOp == AluOp::kLogicalAnd) return (a != 0.0f ? 1.0f : 0.0f) * (b != 0.0f ? 1.0f : 0.0f);
  if constexpr (kOp == AluOp::kLogicalOr) return (a != 0.0f ? 1 : 0) | (b != 0.0f ? 1 : 0) ? 1.0f : 0.0f;
  if constexpr (kOp == AluOp::kLogicalXor) return (a != 0.0f ? 1 : 0) ^ (b != 0.0f ? 1 : 0) ? 1.0f : 0.0f;
  if constexpr (kOp == AluOp::kAbs) return std::fabs(a);
  if constexpr (kOp == AluOp::kRsqrt) return 1.0f / std::sqrt(a);
  if constexpr (kOp == AluOp::kReciprocal) return 1.0f / a;
  if constexpr (kOp == AluOp::kSquare) return a * a;
  if constexpr (kOp == AluOp::kRelu) return a > 0.0f || a != a ? a : 0.0f;
  return a;  // kNone, kBypass
}

template <AluOp kOp>
void binary(const float* a, ptrdiff_t ap, const float* b, ptrdiff_t bp, float* d, ptrdiff_t dp, int rows,
            int n) {
  for (int r = 0; r < rows; ++r) {
    const float* x = a + r * ap;
    const float* y = b + r * bp;
    float* o = d + r * dp;
#pragma GCC ivdep
    for (int j = 0; j < n; ++j) o[j] = alu<kOp>(x[j], y[j]);
  }
}

template <AluOp kOp, bool kReverse>
void binary_scalar(const float* a, ptrdiff_t ap, const float* s, ptrdiff_t s_step, float* d, ptrdiff_t dp,
                   int rows, int n) {
  for (int r = 0; r < rows; ++r) {
    const float* x = a + r * ap;
    const float v = s[r * s_step];
    float* o = d + r * dp;
#pragma GCC ivdep
    for (int j = 0; j < n; ++j) o[j] = kReverse ? alu<kOp>(v, x[j]) : alu<kOp>(x[j], v);
  }
}

template <AluOp kOp0, AluOp kOp1>
void binary_scalar2(const float* a, ptrdiff_t ap, const float* s0, ptrdiff_t s0_step, const float* s1,
                    ptrdiff_t s1_step, float* d, ptrdiff_t dp, int rows, int n) {
  for (int r = 0; r < rows; ++r) {
    const float* x = a + r * ap;
    const float u = s0[r * s0_step], v = s1[r * s1_step];
    float* o = d + r * dp;
#pragma GCC ivdep
    for (int j = 0; j < n; ++j) o[j] = alu<kOp1>(alu<kOp0>(x[j], u), v);
  }
}

template <AluOp kOp>
void reduce(const float* a, ptrdiff_t ap, float* acc, int rows, int n) {
  constexpr int kLanes = 16;
  for (int r = 0; r < rows; ++r) {
    const float* x = a + r * ap;
    if (n < kLanes) {
      float v = acc[r];
      for (int j = 0; j < n; ++j) v = alu<kOp>(v, x[j]);
      acc[r] = v;
      continue;
    }
    float lane[kLanes];
    for (int l = 0; l < kLanes; ++l) lane[l] = x[l];
    int j = kLanes;
    for (; j + kLanes <= n; j += kLanes) {
      for (int l = 0; l < kLanes; ++l) lane[l] = alu<kOp>(lane[l], x[j + l]);
    }
    for (int l = 0; j < n; ++j, ++l) lane[l] = alu<kOp>(lane[l], x[j]);
    for (int width = kLanes / 2; width > 0; width /= 2) {
      for (int l = 0; l < width; ++l) lane[l] = alu<kOp>(lane[l], lane[l + width]);
    }
    acc[r] = alu<kOp>(acc[r], lane[0]);
  }
}

// a - x0 - x1 - ...: no order but this one.
void reduce_subtract(const float* a, ptrdiff_t ap, float* acc, int rows, int n) {
  for (int r = 0; r < rows; ++r) {
    float v = acc[r];
    for (int j = 0; j < n; ++j) v -= a[r * ap + j];
    acc[r] = v;
  }
}

// pow with the special cases of the C library. Vector lanes take finite positive bases and finite exponents;
// a block with anything else goes through the library, element by element for those.
HWY_INLINE void power_row(const float* a, ptrdiff_t a_step, const float* b, ptrdiff_t b_step, float* o,
                          int n) {
  const DD d;
  const hn::Rebind<float, DD> df;
  constexpr int kMaxLanes = static_cast<int>(HWY_MAX_BYTES / sizeof(double));
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int j = 0; j < n; j += lanes) {
    const int count = n - j < lanes ? n - j : lanes;
    float x[kMaxLanes], y[kMaxLanes], z[kMaxLanes];
    bool plain = true;
    for (int l = 0; l < lanes; ++l) {
      x[l] = l < count ? a[(j + l) * a_step] : 1.0f;
      y[l] = l < count ? b[(j + l) * b_step] : 1.0f;
      plain = plain && x[l] > 0 && x[l] < HUGE_VALF && std::fabs(y[l]) < HUGE_VALF;
    }
    if (plain) {
      const VD p = pow_positive_d(hn::PromoteTo(d, hn::LoadU(df, x)), hn::PromoteTo(d, hn::LoadU(df, y)));
      store_f32(p, z);
    } else {
      for (int l = 0; l < lanes; ++l) z[l] = static_cast<float>(std::pow(static_cast<double>(x[l]), y[l]));
    }
    for (int l = 0; l < count; ++l) o[j + l] = z[l];
  }
}

void power(const float* a, ptrdiff_t ap, const float* b, ptrdiff_t bp, float* d, ptrdiff_t dp, int rows,
           int n) {
  for (int r = 0; r < rows; ++r) power_row(a + r * ap, 1, b + r * bp, 1, d + r * dp, n);
}

template <bool kReverse>
void power_scalar(const float* a, ptrdiff_t ap, const float* s, ptrdiff_t s_step, float* d, ptrdiff_t dp,
                  int rows, int n) {
  for (int r = 0; r < rows; ++r) {
    const float* x = a + r * ap;
    const float v = s[r * s_step];
    float* o = d + r * dp;
    if (kReverse) {
      power_row(&v, 0, x, 1, o, n);
    } else if (v == 2.0f) {
      for (int j = 0; j < n; ++j) o[j] = x[j] * x[j];
    } else {
      power_row(x, 1, &v, 0, o, n);
    }
  }
}

template <AluOp kOp>
void fill_op(RowKernels* k) {
  const int i = static_cast<int>(kOp);
  k->binary[i] = binary<kOp>;
  k->binary_scalar[0][i] = binary_scalar<kOp, false>;
  k->binary_scalar[1][i] = binary_scalar<kOp, true>;
}

// Operators of one operand: a reverse flag changes nothing.
template <AluOp... kOps>
void fill_unary(RowKernels* k) {
  ((k->binary[static_cast<int>(kOps)] = binary<kOps>, k->binary_scalar[0][static_cast<int>(kOps)] =
                                                          k->binary_scalar[1][static_cast<int>(kOps)] =
                                                              binary_scalar<kOps, false>),
   ...);
}

template <AluOp kOp0, AluOp... kOps>
void fill_fused(RowKernels* k) {
  ((k->fused[static_cast<int>(kOp0)][static_cast<int>(kOps)] = binary_scalar2<kOp0, kOps>), ...);
}

void fill_alu(RowKernels* k) {
  fill_op<AluOp::kNone>(k);
  fill_op<AluOp::kBypass>(k);
  fill_op<AluOp::kAdd>(k);
  fill_op<AluOp::kSubtract>(k);
  fill_op<AluOp::kMultiply>(k);
  fill_op<AluOp::kMax>(k);
  fill_op<AluOp::kMin>(k);
  fill_op<AluOp::kAbsMax>(k);
  fill_op<AluOp::kAbsMin>(k);
  fill_op<AluOp::kEqual>(k);
  fill_op<AluOp::kNotEqual>(k);
  fill_op<AluOp::kGreaterEqual>(k);
  fill_op<AluOp::kGreater>(k);
  fill_op<AluOp::kLessEqual>(k);
  fill_op<AluOp::kLess>(k);
  fill_op<AluOp::kLogicalAnd>(k);
  fill_op<AluOp::kLogicalOr>(k);
  fill_op<AluOp::kLogicalXor>(k);
  fill_unary<AluOp::kAbs, AluOp::kRsqrt, AluOp::kReciprocal, AluOp::kSquare, AluOp::kRelu>(k);
  const int p = static_cast<int>(AluOp::kPower);
  k->binary[p] = power;
  k->binary_scalar[0][p] = power_scalar<false>;
  k->binary_scalar[1][p] = power_scalar<true>;

  fill_fused<AluOp::kMultiply, AluOp::kAdd, AluOp::kSubtract, AluOp::kMultiply, AluOp::kMax, AluOp::kMin>(k);
  fill_fused<AluOp::kAdd, AluOp::kAdd, AluOp::kSubtract, AluOp::kMultiply, AluOp::kMax, AluOp::kMin>(k);
  fill_fused<AluOp::kSubtract, AluOp::kAdd, AluOp::kSubtract, AluOp::kMultiply, AluOp::kMax, AluOp::kMin>(k);
  fill_fused<AluOp::kMax, AluOp::kAdd, AluOp::kSubtract, AluOp::kMultiply, AluOp::kMax, AluOp::kMin>(k);
  fill_fused<AluOp::kMin, AluOp::kAdd, AluOp::kSubtract, AluOp::kMultiply, AluOp::kMax, AluOp::kMin>(k);

  const auto at = [](AluOp op) { return static_cast<int>(op); };
  k->reduce[at(AluOp::kAdd)] = reduce<AluOp::kAdd>;
  k->reduce[at(AluOp::kSubtract)] = reduce_subtract;
  k->reduce[at(AluOp::kMultiply)] = reduce<AluOp::kMultiply>;
  k->reduce[at(AluOp::kMax)] = reduce<AluOp::kMax>;
  k->reduce[at(AluOp::kMin)] = reduce<AluOp::kMin>;
  k->reduce[at(AluOp::kAbsMax)] = reduce<AluOp::kAbsMax>;
  k->reduce[at(AluOp::kAbsMin)] = reduce<AluOp::kAbsMin>;
  k->reduce[at(AluOp::kLogicalAnd)] = reduce<AluOp::kLogicalAnd>;
  k->reduce[at(AluOp::kLogicalOr)] = reduce<AluOp::kLogicalOr>;
  k->reduce[at(AluOp::kLogicalXor)] = reduce<AluOp::kLogicalXor>;
}

}  // namespace HWY_NAMESPACE
}  // namespace trnsim::exec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trnsim::exec {
HWY_EXPORT(fill_alu);
void fill_alu_kernels(RowKernels* k) { HWY_DYNAMIC_DISPATCH(fill_alu)(k); }
}  // namespace trnsim::exec
#endif
