// Operand forms and single instructions.
#include "device_plugin/compiler/tilers/expr.h"

namespace trnsim::compiler {

namespace {
// A [P, 1] column seen as a tile of `dims`.
Access spread(const Access& column, const std::vector<int64_t>& dims, int partitions) {
  Access a = column;
  a.num_partitions = static_cast<uint16_t>(partitions);
  a.num_dims = static_cast<uint8_t>(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    a.size[i] = static_cast<uint32_t>(dims[i]);
    a.step[i] = 0;
  }
  return a;
}
}  // namespace

std::optional<AluOp> compare_op(ExprOp op) {
  switch (op) {
    case ExprOp::kEq:
      return AluOp::kEqual;
    case ExprOp::kNe:
      return AluOp::kNotEqual;
    case ExprOp::kLt:
      return AluOp::kLess;
    case ExprOp::kLe:
      return AluOp::kLessEqual;
    case ExprOp::kGt:
      return AluOp::kGreater;
    case ExprOp::kGe:
      return AluOp::kGreaterEqual;
    default:
      return std::nullopt;
  }
}

std::optional<AluOp> arithmetic_op(ExprOp op) {
  switch (op) {
    case ExprOp::kAdd:
      return AluOp::kAdd;
    case ExprOp::kSub:
      return AluOp::kSubtract;
    case ExprOp::kMul:
      return AluOp::kMultiply;
    case ExprOp::kMax:
      return AluOp::kMax;
    case ExprOp::kMin:
      return AluOp::kMin;
    default:
      return std::nullopt;
  }
}

std::optional<ActFunc> activation_func(ExprOp op) {
  switch (op) {
    case ExprOp::kSqrt:
      return ActFunc::kSqrt;
    case ExprOp::kRsqrt:
      return ActFunc::kRsqrt;
    case ExprOp::kExp:
      return ActFunc::kExp;
    case ExprOp::kLog:
      return ActFunc::kLog;
    case ExprOp::kTanh:
      return ActFunc::kTanh;
    case ExprOp::kErf:
      return ActFunc::kErf;
    case ExprOp::kSigmoid:
      return ActFunc::kSigmoid;
    case ExprOp::kGelu:
      return ActFunc::kGelu;
    case ExprOp::kGeluTanh:
      return ActFunc::kGeluTanh;
    case ExprOp::kSilu:
      return ActFunc::kSilu;
    case ExprOp::kSoftplus:
      return ActFunc::kSoftplus;
    case ExprOp::kMish:
      return ActFunc::kMish;
    default:
      return std::nullopt;
  }
}

Access Ops::as_tile(const Src& s, Dtype dtype) {
  if (s.tile()) return s.access;
  if (s.kind == Src::Kind::kColumn) return spread(s.access, dims_, partitions_);
  if (isa::is_32bit_integer(dtype)) return int_constant(static_cast<int64_t>(s.value), dtype);
  Access column = b.sbuf(partitions_, {1}, dtype);
  b.memset(column, static_cast<float>(s.value));
  return spread(column, dims_, partitions_);
}

Access Ops::typed_tile(const Src& s, Dtype dtype) {
  Access a = as_tile(s, dtype);
  if (a.dtype == dtype) return a;
  if (isa::is_32bit_integer(a.dtype) && isa::is_32bit_integer(dtype)) {
    a.dtype = dtype;
    return a;
  }
  return cast(a, dtype);
}

ScalarOperand Ops::as_scalar(const Src& s) {
  if (s.kind == Src::Kind::kConst) return TileBuilder::imm(static_cast<float>(s.value));
  if (s.access.dtype == Dtype::kF32) return TileBuilder::column(s.access);
  Access column = b.sbuf(partitions_, {1}, Dtype::kF32);
  Access src = s.access;
  src.num_partitions = static_cast<uint16_t>(partitions_);
  b.copy(column, src);
  return TileBuilder::column(column);
}

Access Ops::binary(AluOp op, const Src& x, const Src& y, const Access& dst, Dtype dtype) {
  Access d = target(dst, dtype);
  if (x.tile() && y.tile()) {
    Access p = x.access;
    if (p.space == isa::Space::kPsum && y.access.space == isa::Space::kPsum) p = cast(p, Dtype::kF32);
    b.tensor_tensor(d, p, y.access, op);
  } else if (x.tile()) {
    b.tensor_scalar(d, x.access, op, as_scalar(y));
  } else if (y.tile()) {
    b.tensor_scalar(d, y.access, op, as_scalar(x), AluOp::kNone, {}, true);
  } else {
    b.tensor_scalar(d, as_tile(x, Dtype::kF32), op, as_scalar(y));
  }
  return d;
}

Access Ops::scalar(const Access& x, AluOp op0, float s0, const Access& dst, Dtype dtype) {
  Access d = target(dst, dtype);
  b.tensor_scalar(d, x, op0, TileBuilder::imm(s0));
  return d;
}

Access Ops::scalar2(const Access& x, AluOp op0, float s0, AluOp op1, float s1, const Access& dst,
                    Dtype dtype) {
  Access d = target(dst, dtype);
  b.tensor_scalar(d, x, op0, TileBuilder::imm(s0), op1, TileBuilder::imm(s1));
  return d;
}

Access Ops::fused(const Access& x, AluOp op0, const ScalarOperand& s, AluOp op1, const Access& y,
                  bool reverse, const Access& dst, Dtype dtype) {
  Access d = target(dst, dtype);
  isa::Instruction i;
  i.opcode = isa::Opcode::kScalarTensorTensor;
  i.engine = Engine::kVector;
  i.dst = d;
  i.src0 = x;
  i.src1 = y;
  if (x.space == isa::Space::kPsum && y.space == isa::Space::kPsum) i.src1 = cast(y, Dtype::kF32);
  i.op0 = op0;
  i.op1 = op1;
  i.imm0 = s;
  if (reverse) i.flags |= isa::kFlagReverse1;
  b.emit(std::move(i));
  return d;
}

Access Ops::act(ActFunc f, const Access& x, const ScalarOperand& scale, const ScalarOperand& bias,
                const Access& dst) {
  Access d = target(dst, Dtype::kF32);
  b.activation(d, x, f, scale, bias);
  return d;
}
// No bias where there is none: adding 0 would lose the sign of zero.
Access Ops::act(ActFunc f, const Access& x, float scale, float bias) {
  return act(f, x, TileBuilder::imm(scale), bias == 0 ? ScalarOperand{} : TileBuilder::imm(bias));
}

Access Ops::cast(const Access& x, Dtype dtype, const Access& dst) {
  Access d = target(dst, dtype);
  b.copy(d, x);
  return d;
}

Access Ops::abs(const Access& x) { return as_float(bits(x, AluOp::kShiftLeft, 1, AluOp::kShiftRight, 1)); }

Access Ops::compare_magnitude(const Access& x, AluOp op, float bound, Dtype dtype) {
  return scalar2(x, AluOp::kPower, 2, op, bound * bound, {}, dtype);
}

Access Ops::word(const Access& x) {
  return viewed(isa::dtype_bytes(x.dtype) == 4 ? x : cast(x, Dtype::kF32), Dtype::kU32);
}

Access Ops::bits(const Access& x, AluOp op0, uint32_t c0, AluOp op1, uint32_t c1) {
  Access d = temp(Dtype::kU32);
  b.tensor_scalar(d, word(x), op0, TileBuilder::imm(static_cast<float>(c0)), op1,
                  op1 == AluOp::kNone ? ScalarOperand{} : TileBuilder::imm(static_cast<float>(c1)));
  return d;
}

Access Ops::or_bits(const Access& value, const Access& set) {
  return as_float(int_binary(AluOp::kBitOr, word(value), set));
}

Access Ops::flip_sign(const Access& value, const Access& sign_of) {
  return as_float(int_binary(AluOp::kBitXor, word(value), sign_bits(sign_of)));
}

Access Ops::recip(const Access& x) {
  Access d = temp(Dtype::kF32);
  b.reciprocal(d, x);
  return d;
}

}  // namespace trnsim::compiler
