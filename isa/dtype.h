// Element types of the NeuronCore and their exact conversions to and from FP32.
// C++17: included by sim/chip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trnsim::isa {

// kF64 and kI64 exist in HBM only: the DMA engines narrow them to kF32 / kI32 on the way into SBUF (integers beyond
// 32 bits saturate) and widen them on the way out. No compute engine accepts them.
enum class Dtype : uint8_t {
  kF32 = 0,
  kF32R,  // FP32 storage, TF32 multiply precision on the tensor engine
  kBF16,
  kF16,
  kF8E4M3,    // exponent 15 reserved for inf/NaN, largest finite value 240
  kF8E4M3FN,  // OCP: no infinity, largest finite value 448
  kF8E5M2,
  kI32,
  kI16,
  kI8,
  kU32,
  kU16,
  kU8,
  kBool,  // one byte, 0 or 1; any non-zero value stores 1
  kI64,
  kF64,
  kF8E3M4,  // exponent 7 reserved for inf/NaN, largest finite value 15.5
  // Microscaling (trn3): moved, quantised and multiplied, nothing else.
  kF8E8M0,      // block scale 2^(code - 127), NaN 255
  kF8E5M2x4,    // four kF8E5M2, the first in the lowest byte
  kF8E4M3FNx4,  // four kF8E4M3FN
  kF4E2M1x4,    // four 1-2-1 floats without inf and NaN (largest 6), the first in the lowest nibble
  kCount,
};

constexpr int kNumDtypes = static_cast<int>(Dtype::kCount);

constexpr size_t dtype_bytes(Dtype d) {
  switch (d) {
    case Dtype::kI64:
    case Dtype::kF64:
      return 8;
    case Dtype::kF32:
    case Dtype::kF32R:
    case Dtype::kI32:
    case Dtype::kU32:
    case Dtype::kF8E5M2x4:
    case Dtype::kF8E4M3FNx4:
      return 4;
    case Dtype::kF4E2M1x4:
    case Dtype::kBF16:
    case Dtype::kF16:
    case Dtype::kI16:
    case Dtype::kU16:
      return 2;
    default:
      return 1;
  }
}

constexpr bool is_packed(Dtype d) { return d >= Dtype::kF8E5M2x4 && d <= Dtype::kF4E2M1x4; }
// No conversion from or to FP32 on the chip: moved as they are.
constexpr bool is_opaque(Dtype d) { return d >= Dtype::kF8E8M0 && d <= Dtype::kF4E2M1x4; }
constexpr bool is_float(Dtype d) {
  return d <= Dtype::kF8E5M2 || d == Dtype::kF64 || d == Dtype::kF8E3M4 || d == Dtype::kF8E8M0;
}
constexpr bool is_integer(Dtype d) { return !is_float(d) && !is_packed(d); }  // bool counts as an integer
constexpr bool is_32bit_integer(Dtype d) { return d == Dtype::kI32 || d == Dtype::kU32; }

// Text names: "fp32" "fp32r" "bf16" "fp16" "fp8e4" "fp8e4fn" "fp8e5" "int32" ... "uint8" "bool" "int64" "fp64".
std::string_view dtype_name(Dtype d);
std::optional<Dtype> dtype_from_name(std::string_view name);

// Scalar conversions, bit exact. Narrowing rounds to nearest even. Float to integer rounds to nearest even and
// saturates; NaN becomes 0. fp8e4 / fp8e5 / fp8e3 / fp16 overflow becomes infinity, fp8e4fn overflow becomes NaN.
float load_as_f32(Dtype d, const void* p);  // 32-bit integers round to FP32
void store_from_f32(Dtype d, void* p, float v);
int64_t load_as_int(Dtype d, const void* p);       // integer dtypes only
void store_from_int(Dtype d, void* p, int64_t v);  // integer dtypes only; wraps modulo 2^bits (bool: v != 0)

float f32_from_bf16(uint16_t v);
uint16_t bf16_from_f32(float v);
float f32_from_f16(uint16_t v);
uint16_t f16_from_f32(float v);
float f32_from_fp8(Dtype d, uint8_t v);  // kF8E4M3, kF8E4M3FN, kF8E5M2, kF8E3M4
uint8_t fp8_from_f32(Dtype d, float v);
float f32_from_e8m0(uint8_t v);
float f32_from_e2m1(uint8_t v);  // low 4 bits
uint8_t e2m1_from_f32(float v);  // saturates at 6, NaN becomes 6 with its sign
// FP8 with a configurable exponent bias (cFP8): 1 sign bit, 7 - mantissa_bits exponent bits, no infinity and no
// NaN; saturates, NaN becomes the largest value with its sign.
float f32_from_cfp8(uint8_t v, int mantissa_bits, int bias);
uint8_t cfp8_from_f32(float v, int mantissa_bits, int bias);

// Element `i` (0..3) of a packed value.
float f32_from_packed(Dtype d, const void* p, int i);

// Stochastic rounding of `v` to a float dtype narrower than FP32: the result is exact in `d`. `random` decides
// with probability proportional to the distance; values that `d` holds, infinity and NaN pass. What is above
// the largest finite value after rounding stays for the conversion to deal with.
float round_stochastic(Dtype d, float v, uint32_t random);
// Largest finite value of a float dtype.
float largest_finite(Dtype d);

}  // namespace trnsim::isa
