// One instruction per row of the instruction table: what the timing tests and the support page stand on.
#include "isa/table.h"
#include "sim/chip/probe_programs.h"

namespace trnsim::chip::probe {
namespace {

using isa::AluOp;
using isa::DgeMode;
using isa::ScalarOperand;

constexpr int64_t kDst = 0, kSrc0 = 32 * 1024, kSrc1 = 64 * 1024, kAux = 96 * 1024, kColumns = 128 * 1024;
constexpr uint64_t kTensorBytes = 16 << 20;

Access rows(uint32_t tensor, int64_t count, int64_t n, Dtype dtype = Dtype::kF32) {
  Access a = hbm(tensor, n, dtype);
  a.num_dims = 2;
  a.size = {static_cast<uint32_t>(count), static_cast<uint32_t>(n)};
  a.step = {n, 1};
  return a;
}

ScalarOperand constant(float v) {
  ScalarOperand s;
  s.kind = ScalarOperand::Kind::kImmediate;
  s.value = v;
  return s;
}
ScalarOperand pointer(int64_t offset) {
  ScalarOperand s;
  s.kind = ScalarOperand::Kind::kPointer;
  s.pointer = sbuf(1, Dtype::kF32, kColumns + offset);
  return s;
}

AluOp first(isa::AluSet set) {
  for (AluOp op : {AluOp::kMultiply, AluOp::kAdd, AluOp::kMax, AluOp::kGreaterEqual, AluOp::kLessEqual}) {
    if (isa::contains(set, op)) return op;
  }
  return AluOp::kNone;
}

Dtype dtype_of(const isa::OperandRule& rule) {
  for (Dtype d : {Dtype::kF32, Dtype::kU32, Dtype::kI32, Dtype::kU16, Dtype::kBF16, Dtype::kU8}) {
    if (isa::contains(rule.dtypes, d)) return d;
  }
  for (int d = 0; d < isa::kNumDtypes; ++d) {
    if (isa::contains(rule.dtypes, static_cast<Dtype>(d))) return static_cast<Dtype>(d);
  }
  return Dtype::kF32;
}

void dma_operands(Instruction* i, int64_t n) {
  i->dge = DgeMode::kStatic;
  switch (i->opcode) {
    case Opcode::kDmaTranspose:
      i->src0 = rows(0, 128, 128, Dtype::kBF16);
      i->dst = sbuf(128, Dtype::kBF16, kDst);
      return;
    case Opcode::kDmaGather:
    case Opcode::kDmaScatter: {
      i->dge = DgeMode::kSoftware;
      Access table = rows(0, 1024, n);
      const bool gather = i->opcode == Opcode::kDmaGather;
      (gather ? i->src0 : i->dst) = table;
      (gather ? i->dst : i->src0) = sbuf(n, Dtype::kF32, kDst);
      i->src1 = sbuf(1, Dtype::kI32, kSrc1);
      return;
    }
    case Opcode::kDmaCompute:
      i->src0 = hbm(0, 2 * 128 * n);
      i->dst = sbuf(n, Dtype::kF32, kDst);
      return;
    case Opcode::kSendRecv:
      i->src0 = sbuf(n, Dtype::kF32, kSrc0);
      i->dst = sbuf(n, Dtype::kF32, kDst);
      return;
    default:
      i->src0 = hbm(0, 128 * n);
      i->dst = sbuf(n, Dtype::kF32, kDst);
  }
}

}  // namespace

std::vector<uint64_t> row_probe_tensors() { return {kTensorBytes, kTensorBytes}; }

std::vector<Instruction> row_probe(Opcode opcode, Engine engine, int64_t n) {
  const isa::Row& row = isa::row(opcode);
  Instruction i;
  i.opcode = opcode;
  i.engine = engine;
  if (i.is_dma()) {
    dma_operands(&i, n);
    return {i};
  }
  // Tiles of n elements, then what single rows want otherwise.
  const auto set = [&](isa::Slot s, Access* a, int64_t offset) {
    const isa::OperandRule& rule = row.operand(s);
    if (rule.role != isa::Role::kNone && rule.required) *a = sbuf(n, dtype_of(rule), offset);
  };
  set(isa::Slot::kDst, &i.dst, kDst);
  set(isa::Slot::kSrc0, &i.src0, kSrc0);
  set(isa::Slot::kSrc1, &i.src1, kSrc1);
  set(isa::Slot::kAux, &i.aux, kAux);
  i.op0 = first(row.op0);
  i.op1 = first(row.op1);
  if (row.uses(isa::kFieldFunc)) i.func = isa::ActFunc::kExp;
  if (row.imm0 & isa::kScalarImmediate) i.imm0 = constant(1.0f);
  if (row.imm1 & isa::kScalarImmediate) i.imm1 = constant(2.0f);
  switch (opcode) {
    case Opcode::kLoadStationary:
      i.src0 = sbuf(128, Dtype::kBF16, kSrc0);
      break;
    case Opcode::kMultiplyMoving:
      i.src0 = sbuf(n, Dtype::kBF16, kSrc0);
      i.dst = psum(n);
      return {load_stationary(sbuf(128, Dtype::kBF16, kSrc1)), i};
    case Opcode::kLoadStationaryMx:
      i.src0 = sbuf(128, Dtype::kF8E4M3FNx4, kSrc0);
      i.src1 = sbuf(128, Dtype::kU8, kSrc1, 100);
      break;
    case Opcode::kMultiplyMovingMx: {
      Instruction load = row_probe(Opcode::kLoadStationaryMx, engine, n)[0];
      i.src0 = sbuf(n, Dtype::kF8E4M3FNx4, kDst);
      i.src1 = sbuf(n, Dtype::kU8, kAux, 100);
      i.dst = psum(n);
      return {load, i};
    }
    case Opcode::kLoadStationarySparse:
      i.count = 4;
      i.src0 = sbuf(128, Dtype::kBF16, kSrc0);
      i.src1 = sbuf(32, Dtype::kU16, kSrc1);
      break;
    case Opcode::kMultiplyMovingSparse: {
      const Instruction load = row_probe(Opcode::kLoadStationarySparse, engine, n)[0];
      i.count = load.count;
      i.src0 = sbuf(4 * n, Dtype::kBF16, kDst);
      i.src0.num_dims = 2;
      i.src0.size = {4, static_cast<uint32_t>(n)};
      i.src0.step = {n, 1};
      i.dst = psum(n);
      return {load, i};
    }
    case Opcode::kTranspose:
      if (engine == Engine::kTensor) {
        i.src0 = sbuf(128, Dtype::kBF16, kSrc0);
        i.dst = psum(128, Dtype::kBF16);
      }
      break;
    case Opcode::kCopyPredicated:
      i.src0 = sbuf(n, Dtype::kF32, kSrc0);
      i.imm0 = ScalarOperand{};
      break;
    case Opcode::kQuantizeMx:
      i.src0 = sbuf(n, Dtype::kBF16, kSrc0);
      i.dst = sbuf(n / 4, Dtype::kF8E4M3FNx4, kDst);
      i.aux = sbuf(n / 4, Dtype::kU8, kAux, 100);
      break;
    case Opcode::kRangeSelect:
      i.imm0 = pointer(0);
      i.imm1 = pointer(64);
      break;
    case Opcode::kExponential:
    case Opcode::kTensorScalarReduce:
      i.imm1 = ScalarOperand{};
      break;
    case Opcode::kTensorScalarCumulative:
      i.imm1 = ScalarOperand{};
      i.op0 = AluOp::kAdd;
      i.reduce_op = i.op1;
      i.reduce = isa::ReduceCmd::kResetReduce;
      break;
    case Opcode::kTensorReduce:
      i.op0 = AluOp::kMax;
      i.reduce_dims = 1;
      i.dst = sbuf(1, Dtype::kF32, kDst);
      break;
    case Opcode::kPartitionReduce:
      i.dst = sbuf(n, Dtype::kF32, kDst, 1);
      break;
    case Opcode::kBnStats:
      i.dst = sbuf(6, Dtype::kF32, kDst);
      break;
    case Opcode::kBnAggr:
      i.src0 = sbuf(3 * n, Dtype::kF32, kSrc0);
      i.dst = sbuf(2, Dtype::kF32, kDst);
      break;
    case Opcode::kMax8:
    case Opcode::kMaxIndex8:
      i.dst.size[0] = 8;
      if (i.src1.present()) i.src1.size[0] = 8;
      break;
    case Opcode::kMatchReplace8:
      i.src1.size[0] = 8;
      break;
    case Opcode::kLocalGather:
      i.count = 1;
      i.src1.size[0] = static_cast<uint32_t>(n / 16);
      break;
    case Opcode::kSequenceBounds:
      i.src0.num_partitions = i.dst.num_partitions = 1;
      i.dst.size[0] = static_cast<uint32_t>(2 * n);
      break;
    case Opcode::kNonzeroWithCount:
      i.dst.size[0] = static_cast<uint32_t>(n + 1);
      i.imm0 = constant(-1);
      break;
    case Opcode::kTopk:
      i.imm = 16 * n;
      i.count = 64;
      i.dst.size[0] = i.aux.size[0] = 4;
      break;
    case Opcode::kPhilox:
      i.src0 = sbuf(4, Dtype::kU32, kSrc0, 1);
      break;
    case Opcode::kSetRngSeed:
      i.src0 = sbuf(1, Dtype::kU32, kSrc0, 1);
      break;
    case Opcode::kRandGetState:
    case Opcode::kRandSetState:
      (opcode == Opcode::kRandGetState ? i.dst : i.src0).size[0] = engine == Engine::kGpSimd ? 6 : 24;
      break;
    case Opcode::kCoreBarrier:
      i.src0 = hbm(0, 1);
      break;
    case Opcode::kRegLoad:
      i.src0 = sbuf(1, Dtype::kI32, kSrc0, 1);
      break;
    case Opcode::kRegStore:
      i.dst = sbuf(1, Dtype::kI32, kDst, 1);
      break;
    case Opcode::kActivation:
      i.op0 = i.op1 = AluOp::kNone;
      break;
    case Opcode::kActivate2:
      i.op1 = AluOp::kAdd;
      break;
    case Opcode::kTensorScalar:
      if (engine == Engine::kScalar) i.op1 = AluOp::kAdd;
      break;
    case Opcode::kDropout:
      i.imm0 = constant(0.5f);
      break;
    case Opcode::kTensorTensorScan:
      i.op1 = AluOp::kAdd;
      break;
    default:
      break;
  }
  return {i};
}

}  // namespace trnsim::chip::probe
