// Activation functions over FP32 rows.
#include <cmath>

#include "sim/exec/rows_fill.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sim/exec/rows_activation.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "sim/exec/rows_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trnsim::exec {
namespace HWY_NAMESPACE {
using isa::ActFunc;

// Functions that are exact or correctly rounded operations of the host.
template <ActFunc kFunc>
void simple(const float* a, ptrdiff_t ap, float* d, ptrdiff_t dp, int rows, int n) {
  for (int r = 0; r < rows; ++r) {
    const float* x = a + r * ap;
    float* o = d + r * dp;
#pragma GCC ivdep
    for (int j = 0; j < n; ++j) {
      const float v = x[j];
      if constexpr (kFunc == ActFunc::kCopy) o[j] = v;
      if constexpr (kFunc == ActFunc::kSquare) o[j] = v * v;
      if constexpr (kFunc == ActFunc::kSqrt) o[j] = std::sqrt(v);
      if constexpr (kFunc == ActFunc::kRsqrt) o[j] = 1.0f / std::sqrt(v);
      if constexpr (kFunc == ActFunc::kRelu) o[j] = v > 0.0f || v != v ? v : 0.0f;
      if constexpr (kFunc == ActFunc::kAbs) o[j] = std::fabs(v);
      if constexpr (kFunc == ActFunc::kSign) o[j] = v > 0.0f ? 1.0f : (v < 0.0f ? -1.0f : v);
      if constexpr (kFunc == ActFunc::kReciprocal) o[j] = 1.0f / v;
    }
  }
}

template <VD (*kFunc)(VD)>
void transcendental(const float* a, ptrdiff_t ap, float* d, ptrdiff_t dp, int rows, int n) {
  const DD dd;
  const hn::Rebind<float, DD> df;
  const int lanes = static_cast<int>(hn::Lanes(dd));
  for (int r = 0; r < rows; ++r) {
    const float* x = a + r * ap;
    float* o = d + r * dp;
    int j = 0;
    for (; j + lanes <= n; j += lanes) {
      store_f32(kFunc(hn::PromoteTo(dd, hn::LoadU(df, x + j))), o + j);
    }
    if (j < n) {
      float tail[HWY_MAX_BYTES / sizeof(double)] = {};
      for (int l = j; l < n; ++l) tail[l - j] = x[l];
      store_f32(kFunc(hn::PromoteTo(dd, hn::LoadU(df, tail))), tail);
      for (int l = j; l < n; ++l) o[l] = tail[l - j];
    }
  }
}

// The range reduction of the vector form ends at 2^22; the library takes the rest. (The hardware is only
// specified on [-pi, pi].)
void sine(const float* a, ptrdiff_t ap, float* d, ptrdiff_t dp, int rows, int n) {
  constexpr float kLimit = 4194304.0f;
  for (int r = 0; r < rows; ++r) {
    const float* x = a + r * ap;
    int outside = 0;
    for (int j = 0; j < n; ++j) outside |= std::fabs(x[j]) <= kLimit ? 0 : 1;
    if (outside == 0) {
      transcendental<sin_d>(x, 0, d + r * dp, 0, 1, n);
    } else {
      for (int j = 0; j < n; ++j) d[r * dp + j] = static_cast<float>(std::sin(static_cast<double>(x[j])));
    }
  }
}

void fill_activation(RowKernels* k) {
  const auto set = [&](ActFunc f, RowKernels::Unary u) { k->activation[static_cast<int>(f)] = u; };
  set(ActFunc::kCopy, simple<ActFunc::kCopy>);
  set(ActFunc::kSquare, simple<ActFunc::kSquare>);
  set(ActFunc::kSqrt, simple<ActFunc::kSqrt>);
  set(ActFunc::kRsqrt, simple<ActFunc::kRsqrt>);
  set(ActFunc::kRelu, simple<ActFunc::kRelu>);
  set(ActFunc::kAbs, simple<ActFunc::kAbs>);
  set(ActFunc::kSign, simple<ActFunc::kSign>);
  set(ActFunc::kReciprocal, simple<ActFunc::kReciprocal>);
  set(ActFunc::kExp, transcendental<exp_d>);
  set(ActFunc::kLog, transcendental<log_d>);
  set(ActFunc::kSigmoid, transcendental<sigmoid_d>);
  set(ActFunc::kTanh, transcendental<tanh_d>);
  set(ActFunc::kGelu, transcendental<gelu_d>);
  set(ActFunc::kGeluTanh, transcendental<gelu_tanh_d>);
  set(ActFunc::kSilu, transcendental<silu_d>);
  set(ActFunc::kErf, transcendental<erf_d>);
  set(ActFunc::kSoftplus, transcendental<softplus_d>);
  set(ActFunc::kMish, transcendental<mish_d>);
  set(ActFunc::kSin, sine);
  set(ActFunc::kArctan, transcendental<atan_d>);
  set(ActFunc::kGeluSigmoid, transcendental<gelu_sigmoid_d>);
  set(ActFunc::kGeluDx, transcendental<gelu_dx_d>);
  set(ActFunc::kGeluSigmoidDx, transcendental<gelu_sigmoid_dx_d>);
  set(ActFunc::kSiluDx, transcendental<silu_dx_d>);
  set(ActFunc::kErfDx, transcendental<erf_dx_d>);
  // kPrelu has a parameter: the executor applies it.
}

}  // namespace HWY_NAMESPACE
}  // namespace trnsim::exec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trnsim::exec {
HWY_EXPORT(fill_activation);
void fill_activation_kernels(RowKernels* k) { HWY_DYNAMIC_DISPATCH(fill_activation)(k); }
}  // namespace trnsim::exec
#endif
