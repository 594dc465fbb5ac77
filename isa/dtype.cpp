#include "isa/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

namespace trnsim::isa {
namespace {

constexpr std::array<std::string_view, kNumDtypes> kNames = {
    "fp32",   "fp32r", "bf16", "fp16",  "fp8e4", "fp8e4fn", "fp8e5", "int32",   "int16",     "int8", "uint32",
    "uint16", "uint8", "bool", "int64", "fp64",  "fp8e3",   "e8m0",  "fp8e5x4", "fp8e4fnx4", "fp4x4"};

// Narrows the bits of an FP32 to a format with kExp exponent and kMan mantissa bits, round to nearest even.
// With kIeee the highest exponent holds infinity and NaN; without it only the all-ones code is NaN (OCP
// e4m3fn).
template <int kExp, int kMan, bool kIeee>
constexpr uint32_t narrow(uint32_t bits) {
  constexpr int kBias = (1 << (kExp - 1)) - 1;
  constexpr int kShift = 23 - kMan;
  constexpr uint32_t kExpOnes = ((1u << kExp) - 1) << kMan;
  constexpr uint32_t kAllOnes = (1u << (kExp + kMan)) - 1;
  constexpr uint32_t kOverflow = kIeee ? kExpOnes : kAllOnes;
  const uint32_t sign = (bits >> 31) << (kExp + kMan);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    // NaN stays NaN: sign and leading payload bits are kept, the quiet bit is set.
    if (!kIeee) return sign | kAllOnes;
    return sign | kExpOnes | (1u << (kMan - 1)) | ((magnitude & 0x7fffffu) >> kShift);
  }
  if (magnitude >= static_cast<uint32_t>(128 - kBias) << 23) {
    uint32_t r = magnitude - (static_cast<uint32_t>(127 - kBias) << 23);
    r = (r + (1u << (kShift - 1)) - 1 + ((r >> kShift) & 1)) >> kShift;
    return sign | (r >= kOverflow ? kOverflow : r);
  }
  // Subnormal result: an integer number of 2^(1 - bias - mantissa bits).
  const int exponent = static_cast<int>(magnitude >> 23);
  const int drop = 151 - kBias - kMan - exponent;
  if (exponent == 0 || drop > 24) return sign;
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t kept = mantissa >> drop;
  const uint32_t rest = mantissa & ((1u << drop) - 1);
  const uint32_t half = 1u << (drop - 1);
  return sign | (kept + (rest > half || (rest == half && (kept & 1)) ? 1 : 0));
}

template <int kExp, int kMan, bool kIeee>
constexpr uint32_t widen(uint32_t v) {
  constexpr int kBias = (1 << (kExp - 1)) - 1;
  constexpr uint32_t kMaxExp = (1u << kExp) - 1;
  const uint32_t sign = (v >> (kExp + kMan)) << 31;
  const uint32_t exponent = (v >> kMan) & kMaxExp;
  uint32_t mantissa = v & ((1u << kMan) - 1);
  if (kIeee && exponent == kMaxExp) {
    return sign | 0x7f800000u | (mantissa << (23 - kMan)) | (mantissa != 0 ? 0x400000u : 0u);
  }
  if (!kIeee && exponent == kMaxExp && mantissa == (1u << kMan) - 1) return sign | 0x7fc00000u;
  if (exponent == 0) {
    if (mantissa == 0) return sign;
    int e = 128 - kBias;
    while ((mantissa & (1u << kMan)) == 0) {
      mantissa <<= 1;
      --e;
    }
    return sign | (static_cast<uint32_t>(e) << 23) | ((mantissa & ((1u << kMan) - 1)) << (23 - kMan));
  }
  return sign | ((exponent + 127 - kBias) << 23) | (mantissa << (23 - kMan));
}

template <int kExp, int kMan, bool kIeee>
constexpr std::array<uint32_t, 256> widen_table() {
  std::array<uint32_t, 256> t{};
  for (uint32_t i = 0; i < 256; ++i) t[i] = widen<kExp, kMan, kIeee>(i);
  return t;
}
constexpr auto kE4M3 = widen_table<4, 3, true>();
constexpr auto kE4M3FN = widen_table<4, 3, false>();
constexpr auto kE5M2 = widen_table<5, 2, true>();
constexpr auto kE3M4 = widen_table<3, 4, true>();
constexpr float kE2M1[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

template <typename T>
T load(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <typename T>
void store(void* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

// Round to nearest even and saturate; NaN becomes 0. Adding 1.5 * 2^52 leaves the rounded integer in the low
// mantissa bits of a double, without a library call and in the rounding mode the processor starts in.
template <typename T>
T integer_from_f32(float v) {
  if (v != v) return 0;
  constexpr double kLow = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double kHigh = static_cast<double>(std::numeric_limits<T>::max());
  const double d = v;
  if (d <= kLow) return std::numeric_limits<T>::min();
  if (d >= kHigh) return std::numeric_limits<T>::max();
  if constexpr (sizeof(T) == 8) {
    // FP32 values from 2^23 on are integers.
    if (d >= 8388608.0 || d <= -8388608.0) return static_cast<T>(v);
  }
  constexpr double kMagic = 6755399441055744.0;
  return static_cast<T>(
      static_cast<int64_t>(std::bit_cast<uint64_t>(d + kMagic) - std::bit_cast<uint64_t>(kMagic)));
}

}  // namespace

std::string_view dtype_name(Dtype d) {
  const auto i = static_cast<size_t>(d);
  return i < kNames.size() ? kNames[i] : std::string_view("invalid");
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

float f32_from_bf16(uint16_t v) { return std::bit_cast<float>(static_cast<uint32_t>(v) << 16); }

uint16_t bf16_from_f32(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

float f32_from_f16(uint16_t v) {
  const uint32_t magnitude = v & 0x7fffu;
  const uint32_t sign = static_cast<uint32_t>(v & 0x8000u) << 16;
  if (magnitude - 0x400u < 0x7800u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  return std::bit_cast<float>(widen<5, 10, true>(v));
}

uint16_t f16_from_f32(float v) {
  return static_cast<uint16_t>(narrow<5, 10, true>(std::bit_cast<uint32_t>(v)));
}

float f32_from_fp8(Dtype d, uint8_t v) {
  switch (d) {
    case Dtype::kF8E4M3FN:
      return std::bit_cast<float>(kE4M3FN[v]);
    case Dtype::kF8E5M2:
      return std::bit_cast<float>(kE5M2[v]);
    case Dtype::kF8E3M4:
      return std::bit_cast<float>(kE3M4[v]);
    default:
      assert(d == Dtype::kF8E4M3);
      return std::bit_cast<float>(kE4M3[v]);
  }
}

uint8_t fp8_from_f32(Dtype d, float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  switch (d) {
    case Dtype::kF8E4M3FN:
      return static_cast<uint8_t>(narrow<4, 3, false>(bits));
    case Dtype::kF8E5M2:
      return static_cast<uint8_t>(narrow<5, 2, true>(bits));
    case Dtype::kF8E3M4:
      return static_cast<uint8_t>(narrow<3, 4, true>(bits));
    default:
      assert(d == Dtype::kF8E4M3);
      return static_cast<uint8_t>(narrow<4, 3, true>(bits));
  }
}

float f32_from_e8m0(uint8_t v) {
  if (v == 0xff) return std::numeric_limits<float>::quiet_NaN();
  // 2^-127 is subnormal in FP32.
  return std::bit_cast<float>(v == 0 ? 0x400000u : static_cast<uint32_t>(v) << 23);
}

float f32_from_e2m1(uint8_t v) { return (v & 8) != 0 ? -kE2M1[v & 7] : kE2M1[v & 7]; }

uint8_t e2m1_from_f32(float v) {
  const uint8_t sign = std::signbit(v) ? 8 : 0;
  const float a = std::fabs(v);
  if (!(a < 6.0f)) return sign | 7;
  uint8_t code = 0;
  while (kE2M1[code + 1] <= a) ++code;
  const float middle = (kE2M1[code] + kE2M1[code + 1]) / 2;
  if (a > middle || (a == middle && (code & 1) != 0)) ++code;
  return static_cast<uint8_t>(sign | code);
}

float f32_from_cfp8(uint8_t v, int mantissa_bits, int bias) {
  const int exponent = (v & 0x7f) >> mantissa_bits, mantissa = v & ((1 << mantissa_bits) - 1);
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits)
                                        : std::ldexp(static_cast<float>((1 << mantissa_bits) + mantissa),
                                                     exponent - bias - mantissa_bits);
  return (v & 0x80) != 0 ? -magnitude : magnitude;
}

uint8_t cfp8_from_f32(float v, int mantissa_bits, int bias) {
  const uint8_t sign = std::signbit(v) ? 0x80 : 0;
  const double a = std::fabs(static_cast<double>(v));
  if (!(a < f32_from_cfp8(0x7f, mantissa_bits, bias))) return sign | 0x7f;
  // Codes are in the order of their values.
  int low = 0, high = 0x7f;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (f32_from_cfp8(static_cast<uint8_t>(middle), mantissa_bits, bias) <= a ? low : high) = middle;
  }
  const double below = a - f32_from_cfp8(static_cast<uint8_t>(low), mantissa_bits, bias);
  const double above = f32_from_cfp8(static_cast<uint8_t>(high), mantissa_bits, bias) - a;
  return static_cast<uint8_t>(sign | (below < above || (below == above && low % 2 == 0) ? low : high));
}

float f32_from_packed(Dtype d, const void* p, int i) {
  const auto* bytes = static_cast<const uint8_t*>(p);
  switch (d) {
    case Dtype::kF8E5M2x4:
      return f32_from_fp8(Dtype::kF8E5M2, bytes[i]);
    case Dtype::kF8E4M3FNx4:
      return f32_from_fp8(Dtype::kF8E4M3FN, bytes[i]);
    default:
      assert(d == Dtype::kF4E2M1x4);
      return f32_from_e2m1(static_cast<uint8_t>(bytes[i / 2] >> (4 * (i % 2))));
  }
}

namespace {
struct FloatFormat {
  int mantissa_bits, bias;
  float largest;
};
FloatFormat float_format(Dtype d) {
  switch (d) {
    case Dtype::kBF16:
      return {7, 127, std::bit_cast<float>(0x7f7f0000u)};
    case Dtype::kF16:
      return {10, 15, 65504.0f};
    case Dtype::kF8E4M3:
      return {3, 7, 240.0f};
    case Dtype::kF8E4M3FN:
      return {3, 7, 448.0f};
    case Dtype::kF8E5M2:
      return {2, 15, 57344.0f};
    case Dtype::kF8E3M4:
      return {4, 3, 15.5f};
    default:
      return {23, 127, std::numeric_limits<float>::max()};
  }
}
}  // namespace

float largest_finite(Dtype d) { return float_format(d).largest; }

float round_stochastic(Dtype d, float v, uint32_t random) {
  const FloatFormat f = float_format(d);
  const uint32_t bits = std::bit_cast<uint32_t>(v), magnitude = bits & 0x7fffffffu;
  if (f.mantissa_bits == 23 || magnitude >= 0x7f800000u || magnitude == 0) return v;
  // Weight of the last bit that `d` keeps; subnormals of `d` all have the same.
  const int exponent = std::max<int>(static_cast<int>(magnitude >> 23), 1) - 127;
  const int last = std::max(exponent, 1 - f.bias) - f.mantissa_bits;
  const double unit = std::ldexp(1.0, last);
  const double scaled = std::fabs(static_cast<double>(v)) / unit;  // exact: both are multiples of 2^-149
  const double whole = std::floor(scaled);
  const double up = scaled - whole > static_cast<double>(random) * 0x1p-32 ? 1.0 : 0.0;
  const auto r = static_cast<float>((whole + up) * unit);
  return std::signbit(v) ? -r : r;
}

float load_as_f32(Dtype d, const void* p) {
  switch (d) {
    case Dtype::kF32:
    case Dtype::kF32R:
      return load<float>(p);
    case Dtype::kBF16:
      return f32_from_bf16(load<uint16_t>(p));
    case Dtype::kF16:
      return f32_from_f16(load<uint16_t>(p));
    case Dtype::kF8E4M3:
    case Dtype::kF8E4M3FN:
    case Dtype::kF8E5M2:
    case Dtype::kF8E3M4:
      return f32_from_fp8(d, load<uint8_t>(p));
    case Dtype::kF8E8M0:
      return f32_from_e8m0(load<uint8_t>(p));
    case Dtype::kF8E5M2x4:
    case Dtype::kF8E4M3FNx4:
    case Dtype::kF4E2M1x4:
      break;
    case Dtype::kF64:
      return static_cast<float>(load<double>(p));
    default:
      return static_cast<float>(load_as_int(d, p));
  }
  assert(false && "packed values have no single value");
  return 0;
}

void store_from_f32(Dtype d, void* p, float v) {
  switch (d) {
    case Dtype::kF32:
    case Dtype::kF32R:
      return store(p, v);
    case Dtype::kBF16:
      return store(p, bf16_from_f32(v));
    case Dtype::kF16:
      return store(p, f16_from_f32(v));
    case Dtype::kF8E4M3:
    case Dtype::kF8E4M3FN:
    case Dtype::kF8E5M2:
    case Dtype::kF8E3M4:
      return store(p, fp8_from_f32(d, v));
    case Dtype::kF64:
      return store(p, static_cast<double>(v));
    case Dtype::kI32:
      return store(p, integer_from_f32<int32_t>(v));
    case Dtype::kI16:
      return store(p, integer_from_f32<int16_t>(v));
    case Dtype::kI8:
      return store(p, integer_from_f32<int8_t>(v));
    case Dtype::kU32:
      return store(p, integer_from_f32<uint32_t>(v));
    case Dtype::kU16:
      return store(p, integer_from_f32<uint16_t>(v));
    case Dtype::kU8:
      return store(p, integer_from_f32<uint8_t>(v));
    case Dtype::kBool:
      // Truth, not rounding: 0.25 and NaN are true.
      return store(p, static_cast<uint8_t>(v != 0.0f ? 1 : 0));
    case Dtype::kI64:
      return store(p, integer_from_f32<int64_t>(v));
    default:
      break;
  }
  assert(false && "no conversion to this dtype");
}

int64_t load_as_int(Dtype d, const void* p) {
  switch (d) {
    case Dtype::kI64:
      return load<int64_t>(p);
    case Dtype::kI32:
      return load<int32_t>(p);
    case Dtype::kI16:
      return load<int16_t>(p);
    case Dtype::kI8:
      return load<int8_t>(p);
    case Dtype::kU32:
      return load<uint32_t>(p);
    case Dtype::kU16:
      return load<uint16_t>(p);
    default:
      assert(d == Dtype::kU8 || d == Dtype::kBool);
      return load<uint8_t>(p);
  }
}

void store_from_int(Dtype d, void* p, int64_t v) {
  switch (d) {
    case Dtype::kI64:
      return store(p, v);
    case Dtype::kI32:
    case Dtype::kU32:
      return store(p, static_cast<uint32_t>(v));
    case Dtype::kI16:
    case Dtype::kU16:
      return store(p, static_cast<uint16_t>(v));
    case Dtype::kBool:
      return store(p, static_cast<uint8_t>(v != 0 ? 1 : 0));
    default:
      assert(d == Dtype::kI8 || d == Dtype::kU8);
      return store(p, static_cast<uint8_t>(v));
  }
}

}  // namespace trnsim::isa
