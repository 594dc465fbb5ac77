// Conversions between memory and FP32 / int64 rows, raw copies and transposes.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "isa/dtype.h"
#include "sim/exec/rows_fill.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sim/exec/rows_convert.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace trnsim::exec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Converters: T in memory, to() / from() one element. The loops below vectorise around them.
template <typename Memory>
struct Plain {
  using T = Memory;
  static HWY_INLINE float to(T v) { return static_cast<float>(v); }
};
struct F32 : Plain<float> {
  static HWY_INLINE float from(float v) { return v; }
};
struct F64 : Plain<double> {
  static HWY_INLINE double from(float v) { return v; }
};
struct BF16 {
  using T = uint16_t;
  static HWY_INLINE float to(T v) { return std::bit_cast<float>(static_cast<uint32_t>(v) << 16); }
  static HWY_INLINE T from(float v) {
    const uint32_t bits = std::bit_cast<uint32_t>(v);
    const uint32_t nan = (bits >> 16) | 0x40u;
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    return static_cast<T>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
};
struct F16 {
  using T = uint16_t;
  static HWY_INLINE float to(T v) { return isa::f32_from_f16(v); }
  static HWY_INLINE T from(float v) { return isa::f16_from_f32(v); }
};
template <isa::Dtype kDtype>
struct F8 {
  using T = uint8_t;
  static HWY_INLINE float to(T v) { return isa::f32_from_fp8(kDtype, v); }
  static HWY_INLINE T from(float v) { return isa::fp8_from_f32(kDtype, v); }
};
// Round to nearest even, saturate, NaN to 0: adding 1.5 * 2^52 leaves the integer in the low bits of a
// double.
template <typename Memory>
struct Integer : Plain<Memory> {
  using T = Memory;
  static HWY_INLINE T from(float v) {
    constexpr double kLow = static_cast<double>(std::numeric_limits<T>::min());
    constexpr double kHigh = static_cast<double>(std::numeric_limits<T>::max());
    double d = v;
    d = d == d ? d : 0.0;
    d = d < kLow ? kLow : d;
    d = d > kHigh ? kHigh : d;
    return static_cast<T>(std::bit_cast<uint64_t>(d + 6755399441055744.0));
  }
};
struct Bool : Plain<uint8_t> {
  static HWY_INLINE uint8_t from(float v) { return v != 0.0f ? 1 : 0; }
};
struct I64 : Plain<int64_t> {
  static HWY_INLINE int64_t from(float v) {
    int64_t r;
    isa::store_from_f32(isa::Dtype::kI64, &r, v);
    return r;
  }
};

template <class C>
void load_rows(const std::byte* src, ptrdiff_t pitch, ptrdiff_t step, float* out, ptrdiff_t out_pitch,
               int rows, int n) {
  using T = typename Unaligned<typename C::T>::type;
  for (int r = 0; r < rows; ++r) {
    const std::byte* s = src + r * pitch;
    float* o = out + r * out_pitch;
    if (step == static_cast<ptrdiff_t>(sizeof(typename C::T))) {
      const T* t = reinterpret_cast<const T*>(s);
#pragma GCC ivdep
      for (int j = 0; j < n; ++j) o[j] = C::to(t[j]);
    } else if (step == 0) {
      const float v = C::to(*reinterpret_cast<const T*>(s));
      for (int j = 0; j < n; ++j) o[j] = v;
    } else {
      for (int j = 0; j < n; ++j) o[j] = C::to(*reinterpret_cast<const T*>(s + j * step));
    }
  }
}

template <class C>
void store_rows(const float* in, ptrdiff_t in_pitch, std::byte* dst, ptrdiff_t pitch, ptrdiff_t step,
                int rows, int n) {
  using T = typename Unaligned<typename C::T>::type;
  for (int r = 0; r < rows; ++r) {
    const float* i = in + r * in_pitch;
    std::byte* d = dst + r * pitch;
    if (step == static_cast<ptrdiff_t>(sizeof(typename C::T))) {
      T* t = reinterpret_cast<T*>(d);
#pragma GCC ivdep
      for (int j = 0; j < n; ++j) t[j] = C::from(i[j]);
    } else {
      for (int j = 0; j < n; ++j) *reinterpret_cast<T*>(d + j * step) = C::from(i[j]);
    }
  }
}

template <typename M>
void load_int_rows(const std::byte* src, ptrdiff_t pitch, ptrdiff_t step, int64_t* out, ptrdiff_t out_pitch,
                   int rows, int n) {
  using T = typename Unaligned<M>::type;
  for (int r = 0; r < rows; ++r) {
    const std::byte* s = src + r * pitch;
    int64_t* o = out + r * out_pitch;
    if (step == static_cast<ptrdiff_t>(sizeof(M))) {
      const T* t = reinterpret_cast<const T*>(s);
#pragma GCC ivdep
      for (int j = 0; j < n; ++j) o[j] = static_cast<int64_t>(t[j]);
    } else {
      for (int j = 0; j < n; ++j) o[j] = static_cast<int64_t>(*reinterpret_cast<const T*>(s + j * step));
    }
  }
}

template <typename M, bool kBool>
void store_int_rows(const int64_t* in, ptrdiff_t in_pitch, std::byte* dst, ptrdiff_t pitch, ptrdiff_t step,
                    int rows, int n) {
  using T = typename Unaligned<M>::type;
  for (int r = 0; r < rows; ++r) {
    const int64_t* i = in + r * in_pitch;
    std::byte* d = dst + r * pitch;
    if (step == static_cast<ptrdiff_t>(sizeof(M))) {
      T* t = reinterpret_cast<T*>(d);
#pragma GCC ivdep
      for (int j = 0; j < n; ++j) t[j] = kBool ? static_cast<M>(i[j] != 0) : static_cast<M>(i[j]);
    } else {
      for (int j = 0; j < n; ++j) {
        *reinterpret_cast<T*>(d + j * step) = kBool ? static_cast<M>(i[j] != 0) : static_cast<M>(i[j]);
      }
    }
  }
}

// FP16 with the host's conversion instructions, which agree with isa on every bit (NaN payloads included).
// The emulations of older targets are not relied upon.
#define TRNSIM_HOST_F16                                    \
  (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && \
   !(HWY_ARCH_X86 && (HWY_TARGET == HWY_SSE2 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4)))

void load_f16_rows(const std::byte* src, ptrdiff_t pitch, ptrdiff_t step, float* out, ptrdiff_t out_pitch,
                   int rows, int n) {
#if TRNSIM_HOST_F16
  if (step == 2) {
    const hn::ScalableTag<float> df;
    const hn::Rebind<hwy::float16_t, decltype(df)> dh;
    const int lanes = static_cast<int>(hn::Lanes(df));
    for (int r = 0; r < rows; ++r) {
      const std::byte* s = src + r * pitch;
      float* o = out + r * out_pitch;
      int j = 0;
      for (; j + lanes <= n; j += lanes) {
        hn::StoreU(hn::PromoteTo(df, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(s + 2 * j))), df,
                   o + j);
      }
      if (j < n) load_rows<F16>(s + 2 * j, 0, 2, o + j, 0, 1, n - j);
    }
    return;
  }
#endif
  load_rows<F16>(src, pitch, step, out, out_pitch, rows, n);
}

void store_f16_rows(const float* in, ptrdiff_t in_pitch, std::byte* dst, ptrdiff_t pitch, ptrdiff_t step,
                    int rows, int n) {
#if TRNSIM_HOST_F16
  if (step == 2) {
    const hn::ScalableTag<float> df;
    const hn::Rebind<hwy::float16_t, decltype(df)> dh;
    const int lanes = static_cast<int>(hn::Lanes(df));
    for (int r = 0; r < rows; ++r) {
      const float* i = in + r * in_pitch;
      std::byte* d = dst + r * pitch;
      int j = 0;
      for (; j + lanes <= n; j += lanes) {
        hn::StoreU(hn::DemoteTo(dh, hn::LoadU(df, i + j)), dh, reinterpret_cast<hwy::float16_t*>(d + 2 * j));
      }
      if (j < n) store_rows<F16>(i + j, 0, d + 2 * j, 0, 2, 1, n - j);
    }
    return;
  }
#endif
  store_rows<F16>(in, in_pitch, dst, pitch, step, rows, n);
}

template <typename M>
void copy_raw(const std::byte* src, ptrdiff_t src_pitch, ptrdiff_t src_step, std::byte* dst,
              ptrdiff_t dst_pitch, ptrdiff_t dst_step, int64_t rows, int64_t n) {
  using T = typename Unaligned<M>::type;
  constexpr ptrdiff_t kBytes = sizeof(M);
  if (src_step == kBytes && dst_step == kBytes) {
    const size_t bytes = static_cast<size_t>(n) * kBytes;
    for (int64_t r = 0; r < rows; ++r) std::memmove(dst + r * dst_pitch, src + r * src_pitch, bytes);
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* s = src + r * src_pitch;
    std::byte* d = dst + r * dst_pitch;
    if (src_step == 0 && dst_step == kBytes) {
      std::fill_n(reinterpret_cast<T*>(d), n, *reinterpret_cast<const T*>(s));
    } else if (src_step == 0) {
      const M v = *reinterpret_cast<const T*>(s);
      for (int64_t j = 0; j < n; ++j) *reinterpret_cast<T*>(d + j * dst_step) = v;
    } else if (dst_step == kBytes) {
      for (int64_t j = 0; j < n; ++j)
        reinterpret_cast<T*>(d)[j] = *reinterpret_cast<const T*>(s + j * src_step);
    } else {
      for (int64_t j = 0; j < n; ++j) {
        *reinterpret_cast<T*>(d + j * dst_step) = *reinterpret_cast<const T*>(s + j * src_step);
      }
    }
  }
}

// A tile of 16x16 elements stays in registers or the first-level cache; both sides touch whole lines.
template <typename M>
void transpose_block(const std::byte* src, ptrdiff_t src_pitch, std::byte* dst, ptrdiff_t dst_pitch, int rows,
                     int columns) {
  using T = typename Unaligned<M>::type;
  constexpr int kTile = 16;
  for (int r0 = 0; r0 < rows; r0 += kTile) {
    for (int c0 = 0; c0 < columns; c0 += kTile) {
      M tile[kTile][kTile];
      const int nr = std::min(kTile, rows - r0), nc = std::min(kTile, columns - c0);
      if (nr == kTile && nc == kTile) {
        for (int r = 0; r < kTile; ++r) {
          std::memcpy(tile[r], src + (r0 + r) * src_pitch + c0 * static_cast<ptrdiff_t>(sizeof(M)),
                      sizeof tile[r]);
        }
        for (int c = 0; c < kTile; ++c) {
          T* d = reinterpret_cast<T*>(dst + (c0 + c) * dst_pitch) + r0;
          for (int r = 0; r < kTile; ++r) d[r] = tile[r][c];
        }
      } else {
        for (int c = 0; c < nc; ++c) {
          T* d = reinterpret_cast<T*>(dst + (c0 + c) * dst_pitch) + r0;
          for (int r = 0; r < nr; ++r) d[r] = reinterpret_cast<const T*>(src + (r0 + r) * src_pitch)[c0 + c];
        }
      }
    }
  }
}

// FP32 to TF32 (10 mantissa bits), round to nearest even; infinities and NaN pass.
void round_tf32(const float* a, ptrdiff_t ap, float* d, ptrdiff_t dp, int rows, int n) {
  for (int r = 0; r < rows; ++r) {
    const float* x = a + r * ap;
    float* o = d + r * dp;
#pragma GCC ivdep
    for (int j = 0; j < n; ++j) {
      const uint32_t bits = std::bit_cast<uint32_t>(x[j]);
      const uint32_t rounded = (bits + 0xfffu + ((bits >> 13) & 1)) & ~0x1fffu;
      o[j] = std::bit_cast<float>((bits & 0x7f800000u) == 0x7f800000u ? bits : rounded);
    }
  }
}

// Philox4x32-10 (Salmon et al. 2011). Sixteen counters side by side fill the vector lanes.
void philox_words(uint64_t key, uint64_t offset, uint64_t first_word, uint32_t* out, int n) {
  constexpr int kLanes = 16;
  uint64_t counter = first_word / 4;
  int skip = static_cast<int>(first_word % 4);
  while (n > 0) {
    uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      const uint64_t c = offset + counter + static_cast<uint64_t>(l);
      c0[l] = static_cast<uint32_t>(c);
      c1[l] = static_cast<uint32_t>(c >> 32);
      c2[l] = 0;
      c3[l] = 0;
    }
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int l = 0; l < kLanes; ++l) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * c0[l];
        const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2[l];
        const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1[l] ^ k0;
        const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3[l] ^ k1;
        c0[l] = n0;
        c1[l] = static_cast<uint32_t>(p1);
        c2[l] = n2;
        c3[l] = static_cast<uint32_t>(p0);
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    uint32_t words[4 * kLanes];
    for (int l = 0; l < kLanes; ++l) {
      words[4 * l] = c0[l];
      words[4 * l + 1] = c1[l];
      words[4 * l + 2] = c2[l];
      words[4 * l + 3] = c3[l];
    }
    const int take = std::min(n, 4 * kLanes - skip);
    std::memcpy(out, words + skip, static_cast<size_t>(take) * 4);
    out += take;
    n -= take;
    skip = 0;
    counter += kLanes;
  }
}

void fill_convert(RowKernels* k) {
  using isa::Dtype;
  const auto at = [](Dtype d) { return static_cast<int>(d); };
  const auto floats = [&]<class C>(Dtype d, C) {
    k->load[at(d)] = load_rows<C>;
    k->store[at(d)] = store_rows<C>;
  };
  floats(Dtype::kF32, F32{});
  floats(Dtype::kF32R, F32{});
  floats(Dtype::kF64, F64{});
  floats(Dtype::kBF16, BF16{});
  floats(Dtype::kF8E4M3, F8<Dtype::kF8E4M3>{});
  floats(Dtype::kF8E4M3FN, F8<Dtype::kF8E4M3FN>{});
  floats(Dtype::kF8E5M2, F8<Dtype::kF8E5M2>{});
  floats(Dtype::kF8E3M4, F8<Dtype::kF8E3M4>{});
  floats(Dtype::kI32, Integer<int32_t>{});
  floats(Dtype::kI16, Integer<int16_t>{});
  floats(Dtype::kI8, Integer<int8_t>{});
  floats(Dtype::kU32, Integer<uint32_t>{});
  floats(Dtype::kU16, Integer<uint16_t>{});
  floats(Dtype::kU8, Integer<uint8_t>{});
  floats(Dtype::kBool, Bool{});
  floats(Dtype::kI64, I64{});
  k->load[at(Dtype::kF16)] = load_f16_rows;
  k->store[at(Dtype::kF16)] = store_f16_rows;

  const auto ints = [&]<typename M>(Dtype d, M) {
    k->load_int[at(d)] = load_int_rows<M>;
    k->store_int[at(d)] = store_int_rows<M, false>;
  };
  ints(Dtype::kI32, int32_t{});
  ints(Dtype::kI16, int16_t{});
  ints(Dtype::kI8, int8_t{});
  ints(Dtype::kU32, uint32_t{});
  ints(Dtype::kU16, uint16_t{});
  ints(Dtype::kU8, uint8_t{});
  ints(Dtype::kI64, int64_t{});
  k->load_int[at(Dtype::kBool)] = load_int_rows<uint8_t>;
  k->store_int[at(Dtype::kBool)] = store_int_rows<uint8_t, true>;

  k->copy_raw[1] = copy_raw<uint8_t>;
  k->copy_raw[2] = copy_raw<uint16_t>;
  k->copy_raw[4] = copy_raw<uint32_t>;
  k->copy_raw[8] = copy_raw<uint64_t>;
  k->transpose[1] = transpose_block<uint8_t>;
  k->transpose[2] = transpose_block<uint16_t>;
  k->transpose[4] = transpose_block<uint32_t>;
  k->round_tf32 = round_tf32;
  k->philox = philox_words;
}

}  // namespace HWY_NAMESPACE
}  // namespace trnsim::exec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trnsim::exec {
HWY_EXPORT(fill_convert);
void fill_convert_kernels(RowKernels* k) { HWY_DYNAMIC_DISPATCH(fill_convert)(k); }
}  // namespace trnsim::exec
#endif
