// PyTorch element types <-> element types of the NeuronCore.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "isa/dtype.h"

namespace trnsim::aten {

// Nothing for types the hardware has no form of (complex, quantized, 64-bit unsigned, fnuz floats).
inline std::optional<isa::Dtype> to_isa(c10::ScalarType t) {
  switch (t) {
    case c10::ScalarType::Float:
      return isa::Dtype::kF32;
    case c10::ScalarType::BFloat16:
      return isa::Dtype::kBF16;
    case c10::ScalarType::Half:
      return isa::Dtype::kF16;
    case c10::ScalarType::Double:
      return isa::Dtype::kF64;
    case c10::ScalarType::Long:
      return isa::Dtype::kI64;
    case c10::ScalarType::Int:
      return isa::Dtype::kI32;
    case c10::ScalarType::Short:
      return isa::Dtype::kI16;
    case c10::ScalarType::Char:
      return isa::Dtype::kI8;
    case c10::ScalarType::Byte:
      return isa::Dtype::kU8;
    case c10::ScalarType::Bool:
      return isa::Dtype::kBool;
    case c10::ScalarType::UInt16:
      return isa::Dtype::kU16;
    case c10::ScalarType::UInt32:
      return isa::Dtype::kU32;
    case c10::ScalarType::Float8_e4m3fn:
      return isa::Dtype::kF8E4M3FN;
    case c10::ScalarType::Float8_e5m2:
      return isa::Dtype::kF8E5M2;
    default:
      return std::nullopt;
  }
}

// Why a type without a form on the hardware sends an operator to the host. Some types the compiler refuses instead.
inline std::string no_hardware_type(c10::ScalarType t) {
  TORCH_CHECK(
      t != c10::ScalarType::Float8_e4m3fnuz && t != c10::ScalarType::Float8_e5m2fnuz,
      "illegal on hardware: the NeuronCore has no ", c10::toString(t),
      " (NCC_EVRF005) and only moves its elements; use float8_e5m2, float8_e4m3fn (computed from trn3 on) "
      "or bfloat16.");
  return "the hardware has no " + std::string(c10::toString(t)) + " type";
}

// TRNSIM_INT64=exact: int64 is computed on the host instead of in 32 bits.
inline bool int64_exact() {
  static const bool value = [] {
    const char* variable = std::getenv("TRNSIM_INT64");
    if (variable == nullptr || *variable == 0) return false;
    const std::string text = variable;
    TORCH_CHECK_VALUE(text == "narrow" || text == "exact", "user error: TRNSIM_INT64=", text,
                      " is unknown; use narrow or exact.");
    return text == "exact";
  }();
  return value;
}

}  // namespace trnsim::aten
