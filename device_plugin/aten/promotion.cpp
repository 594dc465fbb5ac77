#include "device_plugin/aten/promotion.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TypeProperties.h>

#include <bit>
#include <cmath>
#include <unordered_set>

#include "device_plugin/compiler/inverse.h"

namespace trnsim::aten {
namespace {

using c10::ScalarType;

std::string base_name(const std::string& functional) { return functional.substr(0, functional.find('.')); }

bool promotes(const std::string& functional) {
  static const std::unordered_set<std::string> kBases = {
      "aten::add",         "aten::sub",         "aten::rsub",
      "aten::mul",         "aten::div",         "aten::true_divide",
      "aten::addcmul",     "aten::addcdiv",     "aten::floor_divide",
      "aten::remainder",   "aten::fmod",        "aten::maximum",
      "aten::minimum",     "aten::fmax",        "aten::fmin",
      "aten::atan2",       "aten::hypot",       "aten::copysign",
      "aten::xlogy",       "aten::logaddexp",   "aten::special_xlog1py",
      "aten::logaddexp2",  "aten::eq",          "aten::ne",
      "aten::lt",          "aten::le",          "aten::gt",
      "aten::ge",          "aten::logical_and", "aten::logical_or",
      "aten::logical_xor", "aten::bitwise_and", "aten::bitwise_or",
      "aten::bitwise_xor", "aten::__lshift__",  "aten::bitwise_left_shift",
      "aten::__rshift__",  "aten::clamp",       "aten::bitwise_right_shift",
      "aten::clamp_min",   "aten::clamp_max",   "aten::addr"};
  static const std::unordered_set<std::string> kOverloads = {"aten::max.other", "aten::min.other",
                                                             "aten::pow.Tensor_Tensor", "aten::pow.Scalar"};
  return kBases.count(base_name(functional)) != 0 || kOverloads.count(functional) != 0;
}

bool is_operand(const std::string& argument) {
  static const std::unordered_set<std::string> kNames = {"self",    "other",   "exponent", "min", "max",
                                                         "tensor1", "tensor2", "vec1",     "vec2"};
  return kNames.count(argument) != 0;
}

bool given(const c10::IValue& v) { return !v.isNone() && (!v.isTensor() || v.toTensor().defined()); }

// A quotient that is not rounded to an integer.
bool divides(const Overload& overload, const c10::Stack& stack, size_t begin) {
  const std::string base = base_name(overload.functional);
  if (base != "aten::div") return base == "aten::true_divide";
  for (size_t i = 0; i < overload.arg_names.size(); ++i)
    if (overload.arg_names[i] == "rounding_mode") return stack[begin + i].isNone();
  return true;
}

// Integers become floating point there, each from its own type.
bool computes_in_floats(const Overload& overload, const c10::Stack& stack, size_t begin) {
  static const std::unordered_set<std::string> kBases = {"aten::atan2", "aten::copysign", "aten::xlogy",
                                                         "aten::hypot", "aten::special_xlog1py"};
  return divides(overload, stack, begin) || kBases.count(base_name(overload.functional)) != 0;
}

bool is_reduced(ScalarType type) { return type == ScalarType::Half || type == ScalarType::BFloat16; }

// The kernels of products and quotients for float16 and bfloat16 take a single element in float32.
bool keeps_single_element(const Overload& overload, size_t argument) {
  const std::string base = base_name(overload.functional);
  if (base == "aten::mul") return true;
  return (base == "aten::div" || base == "aten::true_divide" || base == "aten::floor_divide") &&
         overload.arg_names[argument] == "other";
}

bool single_element(const c10::IValue& v) { return !v.isTensor() || v.toTensor().numel() == 1; }

// Whether converting changes a value beyond what computing in 32 bits does.
bool may_change(ScalarType from, ScalarType to) {
  if (from == to || from == ScalarType::Bool) return false;
  if (is_reduced(to)) return from != ScalarType::Byte && from != ScalarType::Char;
  return c10::isIntegralType(to, false) && c10::elementSize(to) < 4;
}

}  // namespace

bool rounds_factors() {
  return at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::MEDIUM;
}

OperandTypes operand_types(const Overload& overload, const c10::Stack& stack, size_t begin) {
  OperandTypes types(overload.kinds.size());
  if (overload.matrix_product && rounds_factors()) {
    static const std::unordered_set<std::string> kFactors = {"self", "mat1", "mat2", "batch1", "batch2",
                                                             "mat",  "vec",  "vec1", "vec2",   "tensor"};
    const bool adds =
        overload.functional.compare(0, 9, "aten::add") == 0 || overload.functional == "aten::baddbmm";
    for (size_t i = 0; i < overload.kinds.size(); ++i) {
      const bool is_factor =
          kFactors.count(overload.arg_names[i]) != 0 && !(adds && overload.arg_names[i] == "self");
      const c10::IValue& v = stack[begin + i];
      if (is_factor && v.isTensor() && v.toTensor().scalar_type() == ScalarType::Float)
        types[i] = ScalarType::BFloat16;
    }
    return types;
  }
  if (!promotes(overload.functional)) return types;
  at::native::ResultTypeState state = {};
  c10::SmallVector<size_t, 4> operands;
  for (size_t i = 0; i < overload.kinds.size(); ++i) {
    const c10::IValue& v = stack[begin + i];
    if (!is_operand(overload.arg_names[i]) || !given(v)) continue;
    operands.push_back(i);
    state = v.isTensor() ? at::native::update_result_type_state(v.toTensor(), state)
                         : at::native::update_result_type_state(v.toScalar(), state);
  }
  const ScalarType common = at::native::result_type(state);
  if (c10::isIntegralType(common, true) && computes_in_floats(overload, stack, begin)) return types;
  bool kept = false;
  for (size_t k = operands.size(); k-- > 0;) {  // of two single elements the second is kept
    const size_t i = operands[k];
    const c10::IValue& v = stack[begin + i];
    if (!kept && is_reduced(common) && single_element(v) && keeps_single_element(overload, i)) {
      kept = true;
      continue;
    }
    // Of a number only its value counts, so that 0.5 as a Python float has a type as wide as can be.
    const ScalarType own = v.isTensor()   ? v.toTensor().scalar_type()
                           : v.isDouble() ? ScalarType::Double
                           : v.isBool()   ? ScalarType::Bool
                                          : ScalarType::Long;
    if (may_change(own, common)) types[i] = common;
  }
  return types;
}

bool is_divisor(const Overload& overload, const c10::Stack& stack, size_t begin, size_t argument) {
  return overload.arg_names[argument] == "other" && divides(overload, stack, begin);
}

std::array<uint32_t, kInverseWords> inverse_words(uint32_t bits, isa::Dtype type) {
  const auto [scale, high, low] = compiler::inverse_parts(
      type == isa::Dtype::kF32 ? std::bit_cast<float>(bits) : static_cast<float>(static_cast<int32_t>(bits)));
  return {std::bit_cast<uint32_t>(scale), std::bit_cast<uint32_t>(high), std::bit_cast<uint32_t>(low)};
}

isa::Dtype param_dtype(ScalarType type) { return is_reduced(type) ? isa::Dtype::kF32 : isa::Dtype::kI32; }

uint32_t converted_param(uint32_t bits, isa::Dtype from, ScalarType to) {
  const double value = from == isa::Dtype::kF32 ? static_cast<double>(std::bit_cast<float>(bits))
                                                : static_cast<double>(static_cast<int32_t>(bits));
  if (to == ScalarType::Half)
    return std::bit_cast<uint32_t>(static_cast<float>(c10::Half(static_cast<float>(value))));
  if (to == ScalarType::BFloat16)
    return std::bit_cast<uint32_t>(static_cast<float>(c10::BFloat16(static_cast<float>(value))));
  // The low bits of the integer, whatever its size.
  const auto low = static_cast<uint32_t>(static_cast<int32_t>(std::fmod(value, 65536.0)));
  switch (to) {
    case ScalarType::Byte:
      return static_cast<uint8_t>(low);
    case ScalarType::Char:
      return static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(low)));
    case ScalarType::Short:
      return static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(low)));
    default:  // UInt16
      return static_cast<uint16_t>(low);
  }
}

}  // namespace trnsim::aten
