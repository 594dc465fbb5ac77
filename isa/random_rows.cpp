// Legal operands of the rows that need more than the common shapes of random_legal.cpp.
#include "isa/random_program.h"
#include "isa/table.h"

namespace trnsim::isa {

// A use of the accumulator, with aux to read it out.
void RandomProgram::legal_accumulator(Instruction& i, Shape shape) {
  const Row& r = row(i.opcode);
  const OperandRule& aux = r.operand(Slot::kAux);
  i.aux = Access{};
  const bool needed = r.has_rule(Rule::kCumulativeOperators);
  if (i.engine == Engine::kGpSimd || (!needed && chance(50))) {
    if (!r.uses(kFieldFunc) && r.uses(kFieldImm1) && !r.has_rule(Rule::kRangeBounds))
      i.imm1 = ScalarOperand{};
    return;
  }
  i.reduce_op = needed ? i.op1 : legal_operator(r.reduce_op);
  const bool can_load = r.uses(kFieldImm1) && !r.uses(kFieldFunc) && !r.has_rule(Rule::kRangeBounds);
  i.reduce = static_cast<ReduceCmd>(needed ? 2 + below(3) : 1 + below(4));
  if (i.reduce == ReduceCmd::kLoadReduce && !can_load) i.reduce = ReduceCmd::kResetReduce;
  if (can_load && i.reduce != ReduceCmd::kLoadReduce) i.imm1 = ScalarOperand{};
  if (aux.role != Role::kNone && chance(70)) {
    i.aux =
        legal_tile(legal_space(aux.spaces, i.engine, false), {shape.partitions, 1}, legal_dtype(aux.dtypes));
  }
}

// What the common elementwise operands leave open.
void RandomProgram::legal_details(Instruction& i, Shape shape) {
  const Row& r = row(i.opcode);
  switch (i.opcode) {
    case Opcode::kActivate2:
      i.op0 = AluOp::kMultiply;
      i.op1 = chance(50) ? AluOp::kAdd : AluOp::kBypass;
      if (i.op1 == AluOp::kBypass) i.flags &= static_cast<uint16_t>(~kFlagReverse1);
      break;
    case Opcode::kCopyPredicated:
      if (chance(30)) {
        i.src0 = Access{};
      } else {
        i.imm0 = ScalarOperand{};
      }
      break;
    case Opcode::kCopy:
    case Opcode::kMemset:
      if (target_ >= Generation::kTrn3 && chance(10)) {
        const Dtype packed = legal_dtype(kDtypesOpaque);
        i.dst = legal_tile(i.dst.space, shape, packed);
        if (i.src0.present()) i.src0 = legal_tile(i.src0.space, shape, packed);
        if (i.opcode == Opcode::kMemset) i.imm0.value = 0;
      }
      break;
    case Opcode::kStreamShuffle:
      for (uint8_t& m : i.mask) m = chance(10) ? kShuffleKeep : static_cast<uint8_t>(below(32));
      break;
    case Opcode::kRangeSelect:
      i.imm = static_cast<int64_t>(below(1000));
      for (ScalarOperand* s : {&i.imm0, &i.imm1}) {
        s->kind = ScalarOperand::Kind::kPointer;
        s->pointer = legal_tile(Space::kSbuf, {shape.partitions, 1}, Dtype::kF32);
      }
      break;
    default:
      break;
  }
  if (r.uses(kFieldParam) && i.func == ActFunc::kPrelu) i.param = 0.25f;
  if (r.uses(kFieldReduce)) legal_accumulator(i, shape);
}

// The scale operand of microscaling data: 4 rows in each quadrant, compact for one quadrant.
void RandomProgram::legal_scales(Access* scale, Shape data) {
  const bool spread = data.partitions > 32;
  const int rows = spread ? (data.partitions / 32 - 1) * 32 + 4 : data.partitions / 8;
  *scale = legal_tile(Space::kSbuf, {rows, data.free}, chance(50) ? Dtype::kU8 : Dtype::kF8E8M0);
  scale->start_partition = static_cast<uint16_t>(4 * below(4));
}

bool RandomProgram::legal_row(Instruction& i) {
  const Row& r = row(i.opcode);
  const auto tile = [&](Slot s, Shape shape) {
    const OperandRule& rule = r.operand(s);
    operand(i, s) = legal_tile(legal_space(rule.spaces, i.engine, rule.role == Role::kRead), shape,
                               legal_dtype(rule.dtypes));
  };
  const int p = static_cast<int>(1 + below(kMaxPartitions)), groups = static_cast<int>(16 * (1 + below(8)));
  const auto n = static_cast<int64_t>(1 + below(60));
  switch (i.opcode) {
    case Opcode::kQuantizeMx: {
      const Shape data{static_cast<int>(32 * (1 + below(4))), 4 * n};
      tile(Slot::kSrc0, data);
      tile(Slot::kDst, {data.partitions, n});
      legal_scales(&i.aux, {data.partitions, n});
      return true;
    }
    case Opcode::kLocalGather: {
      i.count = 1u << below(4);
      const auto per = static_cast<int64_t>(1 + below(4));
      if (chance(50)) i.imm = static_cast<int64_t>(1 + below(static_cast<uint64_t>(16 * per)));
      tile(Slot::kSrc0, {groups, 32 + n});
      tile(Slot::kSrc1, {groups, per});
      i.dst = legal_tile(Space::kSbuf, {groups, (i.imm > 0 ? i.imm : 16 * per) * i.count}, i.src0.dtype);
      return true;
    }
    case Opcode::kNGather:
      tile(Slot::kSrc0, {p, 8 + n});
      tile(Slot::kSrc1, {p, n});
      i.dst = legal_tile(Space::kSbuf, {p, n}, i.src0.dtype);
      return true;
    case Opcode::kSequenceBounds:
      tile(Slot::kSrc0, {1, n});
      tile(Slot::kDst, {1, 2 * n});
      return true;
    case Opcode::kNonzeroWithCount:
      tile(Slot::kSrc0, {p, n});
      tile(Slot::kDst, {p, n + 1});
      i.imm = static_cast<int64_t>(below(100));
      i.imm0.kind = ScalarOperand::Kind::kImmediate;
      i.imm0.value = -1;
      return true;
    case Opcode::kTopk: {
      i.imm = static_cast<int64_t>(8 + below(400));
      i.count = static_cast<uint32_t>(1 + below(static_cast<uint64_t>(i.imm)));
      tile(Slot::kSrc0, {groups, (i.imm + 15) / 16});
      tile(Slot::kDst, {groups, (i.count + 15) / 16});
      tile(Slot::kAux, {groups, (i.count + 15) / 16});
      return true;
    }
    case Opcode::kCustom:
      tile(Slot::kSrc0, {p, n});
      tile(Slot::kDst, {p, n});
      return true;
    case Opcode::kRng:
      tile(Slot::kDst, {p, n});
      return true;
    case Opcode::kRand2:
      tile(Slot::kDst, {p, n});
      i.imm0.kind = i.imm1.kind = ScalarOperand::Kind::kImmediate;
      i.imm0.value = -1;
      i.imm1.value = 2;
      return true;
    case Opcode::kSetRngSeed:
      tile(Slot::kSrc0, {1, 1});
      return true;
    case Opcode::kRandGetState:
      tile(Slot::kDst, {p, i.engine == Engine::kGpSimd ? 6 : 24});
      return true;
    case Opcode::kRandSetState:
      tile(Slot::kSrc0, {p, i.engine == Engine::kGpSimd ? 6 : 24});
      return true;
    default:
      return false;
  }
}

}  // namespace trnsim::isa
