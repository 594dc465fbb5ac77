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

template <typename T>
bool reduce_identity(isa::AluOp op, T* value) {
  using Limits = std::numeric_limits<T>;
  switch (op) {
    case isa::AluOp::kBitOr:
    case isa::AluOp::kBitXor:
      if (!Limits::is_integer) return false;
      [[fallthrough]];
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
    case isa::AluOp::kBitAnd:
      *value = -1;
      return Limits::is_integer;
    case isa::AluOp::kMax:
      *value = Limits::is_integer ? Limits::min() : -Limits::infinity();
      return true;
    case isa::AluOp::kMin:
    case isa::AluOp::kAbsMin:
      *value = Limits::is_integer ? Limits::max() : Limits::infinity();
      return true;
    default:
      return false;
  }
}
template bool reduce_identity(isa::AluOp op, float* value);
template bool reduce_identity(isa::AluOp op, int64_t* value);

}  // namespace trnsim::exec
