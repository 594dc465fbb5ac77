#include "sim/exec/rows.h"

#include <limits>

#include "sim/exec/rows_fill.h"

namespace trnsim::exec {

const RowKernels& row_kernels() {
  static const RowKernels table = [] {
    RowKernels k{};
    fill_convert_kernels(&k);
    fill_alu_kernels(&k);
    fill_alu_int_kernels(&k);
    fill_activation_kernels(&k);
    return k;
  }();
  return table;
}

bool reduce_identity(isa::AluOp op, float* value) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  switch (op) {
    case isa::AluOp::kAdd:
    case isa::AluOp::kLogicalOr:
    case isa::AluOp::kLogicalXor:
    case isa::AluOp::kAbsMax:
      *value = 0;
      return true;
    case isa::AluOp::kMultiply:
    case isa::AluOp::kLogicalAnd:
      *value = 1;
      return true;
    case isa::AluOp::kMax:
      *value = -kInf;
      return true;
    case isa::AluOp::kMin:
    case isa::AluOp::kAbsMin:
      *value = kInf;
      return true;
    default:
      return false;
  }
}

bool reduce_identity_int(isa::AluOp op, int64_t* value) {
  switch (op) {
    case isa::AluOp::kAdd:
    case isa::AluOp::kLogicalOr:
    case isa::AluOp::kLogicalXor:
    case isa::AluOp::kAbsMax:
    case isa::AluOp::kBitOr:
    case isa::AluOp::kBitXor:
      *value = 0;
      return true;
    case isa::AluOp::kMultiply:
    case isa::AluOp::kLogicalAnd:
      *value = 1;
      return true;
    case isa::AluOp::kBitAnd:
      *value = -1;
      return true;
    case isa::AluOp::kMax:
      *value = std::numeric_limits<int64_t>::min();
      return true;
    case isa::AluOp::kMin:
    case isa::AluOp::kAbsMin:
      *value = std::numeric_limits<int64_t>::max();
      return true;
    default:
      return false;
  }
}

}  // namespace trnsim::exec
