// Sequencer arithmetic on 32-bit registers.
#pragma once

#include <cstdint>

#include "isa/instruction.h"

namespace trnsim::chip {

inline int32_t evaluate_register(isa::AluOp op, int32_t a, int32_t b) {
  using isa::AluOp;
  const uint32_t ua = static_cast<uint32_t>(a), ub = static_cast<uint32_t>(b);
  switch (op) {
    case AluOp::kAdd:
      return static_cast<int32_t>(ua + ub);
    case AluOp::kSubtract:
      return static_cast<int32_t>(ua - ub);
    case AluOp::kMultiply:
      return static_cast<int32_t>(ua * ub);
    case AluOp::kMax:
      return a > b ? a : b;
    case AluOp::kMin:
      return a < b ? a : b;
    case AluOp::kEqual:
      return a == b;
    case AluOp::kNotEqual:
      return a != b;
    case AluOp::kGreaterEqual:
      return a >= b;
    case AluOp::kGreater:
      return a > b;
    case AluOp::kLessEqual:
      return a <= b;
    case AluOp::kLess:
      return a < b;
    case AluOp::kLogicalAnd:
      return a != 0 && b != 0;
    case AluOp::kLogicalOr:
      return a != 0 || b != 0;
    case AluOp::kLogicalXor:
      return (a != 0) != (b != 0);
    case AluOp::kBitAnd:
      return static_cast<int32_t>(ua & ub);
    case AluOp::kBitOr:
      return static_cast<int32_t>(ua | ub);
    case AluOp::kBitXor:
      return static_cast<int32_t>(ua ^ ub);
    case AluOp::kShiftLeft:
      return ub < 32 ? static_cast<int32_t>(ua << ub) : 0;
    case AluOp::kShiftRight:
      return ub < 32 ? static_cast<int32_t>(ua >> ub) : 0;
    case AluOp::kBypass:
      return a;
    default:
      return 0;
  }
}

}  // namespace trnsim::chip
