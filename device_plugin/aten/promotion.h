// What PyTorch's pointwise kernels do before they compute: every operand is converted to the common type of all.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstdint>
#include <optional>

#include "device_plugin/aten/op_table.h"
#include "isa/dtype.h"

namespace trnsim::aten {

// Per argument the type it has to be converted to. Nothing: it is no operand, or the type it is computed in holds it
// exactly as the common type would.
using OperandTypes = c10::SmallVector<std::optional<c10::ScalarType>, 8>;
// torch.set_float32_matmul_precision("medium"): the factors of float32 products are rounded to bfloat16.
bool rounds_factors();

OperandTypes operand_types(const Overload& overload, const c10::Stack& stack, size_t begin);

// Whether a number at this argument divides: the program takes the parts of its inverse too.
bool is_divisor(const Overload& overload, const c10::Stack& stack, size_t begin, size_t argument);
constexpr int32_t kInverseWords = 3;
std::array<uint32_t, kInverseWords> inverse_words(uint32_t bits, isa::Dtype type);

// A parameter of a program in another type: float16 and bfloat16 travel as float32, small integers as int32.
isa::Dtype param_dtype(c10::ScalarType type);
uint32_t converted_param(uint32_t bits, isa::Dtype from, c10::ScalarType to);

}  // namespace trnsim::aten
