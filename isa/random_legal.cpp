// The half of RandomProgram that makes instructions the validator accepts.
#include <algorithm>
#include <array>

#include "isa/random_program.h"
#include "isa/table.h"

namespace trnsim::isa {
namespace {

constexpr int64_t kHbmBytes = 256 * 1024;  // of each tensor of legal_program()
constexpr uint32_t kInput = 0, kOutput = 1;

}  // namespace

Dtype RandomProgram::legal_dtype(DtypeSet dtypes) {
  dtypes &= ~kDtypes64;
  Dtype d;
  do {
    d = static_cast<Dtype>(below(kNumDtypes));
  } while (!contains(dtypes, d) || since(d) > target_);
  return d;
}

Space RandomProgram::legal_space(SpaceSet spaces, Engine engine, bool reads) {
  spaces &= reachable_spaces(engine, reads ? Role::kRead : Role::kWrite);
  Space s;
  do {
    s = static_cast<Space>(1 + below(3));
  } while (!contains(spaces, s));
  return s;
}

AluOp RandomProgram::legal_operator(AluSet set) {
  AluOp op;
  do {
    op = static_cast<AluOp>(below(static_cast<uint64_t>(AluOp::kCount)));
  } while (!contains(set, op) || since(op) > target_);
  return op;
}

Access RandomProgram::legal_tile(Space space, Shape shape, Dtype dtype, bool dma) {
  Access a;
  a.space = space;
  a.dtype = dtype;
  a.num_partitions = static_cast<uint16_t>(shape.partitions);
  const int unit = shape.partitions > 64 ? 128 : shape.partitions > 32 ? 64 : 32;
  a.start_partition = static_cast<uint16_t>(unit * below(kMaxPartitions / unit));
  if (dma && chance(30))
    a.start_partition = static_cast<uint16_t>(below(kMaxPartitions + 1 - shape.partitions));
  // Split the free axis into one to three dims, sometimes with gaps between the elements.
  int64_t rest = shape.free;
  while (a.num_dims < 2 && rest > 1 && chance(40)) {
    const auto factor = static_cast<int64_t>(2 + below(4));
    if (rest % factor != 0) break;
    a.size[a.num_dims++] = static_cast<uint32_t>(factor);
    rest /= factor;
  }
  a.size[a.num_dims++] = static_cast<uint32_t>(rest);
  const auto bytes = static_cast<int64_t>(dtype_bytes(dtype));
  const int64_t room = space == Space::kPsum
                           ? kPsumBankBytes
                           : std::min(sbuf_window_, limits(target_).sbuf_bytes_per_partition);
  int64_t step = shape.free * bytes * 2 <= room && chance(25) ? 2 : 1;
  for (int d = a.num_dims - 1; d >= 0; --d) {
    a.step[d] = step;
    step *= a.size[d];
  }
  const int64_t extent = std::max<int64_t>(step, 1) * bytes;
  if (extent <= room) a.offset = static_cast<int64_t>(below((room - extent) / bytes + 1)) * bytes;
  if (space == Space::kPsum && extent <= room)
    a.offset += kPsumBankBytes * static_cast<int64_t>(below(static_cast<uint64_t>(psum_window_)));
  return a;
}

Access RandomProgram::legal_hbm(std::vector<uint32_t> sizes, Dtype dtype, bool written) {
  Access a;
  a.space = Space::kHbm;
  a.dtype = dtype;
  a.tensor = written ? kOutput : kInput;
  a.num_dims = static_cast<uint8_t>(sizes.size());
  int64_t step = 1;
  for (int d = a.num_dims - 1; d >= 0; --d) {
    a.size[d] = sizes[d];
    a.step[d] = step;
    step *= sizes[d];
  }
  const auto bytes = static_cast<int64_t>(dtype_bytes(dtype));
  a.offset = static_cast<int64_t>(below((kHbmBytes - step * bytes) / bytes + 1)) * bytes;
  return a;
}

ScalarOperand RandomProgram::legal_scalar(uint8_t kinds, int partitions) {
  ScalarOperand s;
  if (contains(kinds, ScalarOperand::Kind::kPointer) && chance(40)) {
    s.kind = ScalarOperand::Kind::kPointer;
    s.pointer = legal_tile(Space::kSbuf, {partitions, 1}, Dtype::kF32);
    return s;
  }
  s.kind = ScalarOperand::Kind::kImmediate;
  s.value = static_cast<float>(static_cast<int64_t>(below(65)) - 32) / 4;
  return s;
}

void RandomProgram::legal_elementwise(Instruction& i) {
  const Row& r = row(i.opcode);
  const bool quadrants = r.has_rule(Rule::kShuffleShape);
  const Shape shape{static_cast<int>(quadrants ? 32 * (1 + below(4)) : 1 + below(kMaxPartitions)),
                    static_cast<int64_t>(1 + below(48))};
  if (r.uses(kFieldOp0)) i.op0 = legal_operator(r.op0);
  if (r.uses(kFieldOp1)) i.op1 = legal_operator(r.op1);
  if (r.has_rule(Rule::kPowerOnGpSimd) && i.engine != Engine::kGpSimd && i.op0 == AluOp::kPower)
    i.op0 = AluOp::kAdd;
  if (i.opcode == Opcode::kTensorScalar && i.engine != Engine::kVector) {
    i.op0 = AluOp::kMultiply;
    i.op1 = chance(50) ? AluOp::kAdd : AluOp::kNone;
  }
  const bool bitwise = r.has_rule(Rule::kOperatorClass) && is_bitwise(i.op0);
  if (is_bitwise(i.op0) != is_bitwise(i.op1) && r.uses(kFieldOp1)) {
    i.op1 = contains(r.op1, i.op0) ? i.op0 : AluOp::kAdd;
  }
  if (r.uses(kFieldFunc)) i.func = static_cast<ActFunc>(below(static_cast<uint64_t>(ActFunc::kCount)));
  i.flags = static_cast<uint16_t>(random_()) & r.flags;
  const Dtype common = legal_dtype(bitwise ? kDtypesInteger : kDtypesCompute);
  const bool same = bitwise || r.has_rule(Rule::kSameDtype);
  for (int s = 0; s < kNumSlots; ++s) {
    const auto slot = static_cast<Slot>(s);
    const OperandRule& rule = r.operand(slot);
    if (rule.role == Role::kNone) continue;
    const bool keep = same && contains(rule.dtypes, common) && rule.dtypes == kDtypesCompute;
    operand(i, slot) = legal_tile(legal_space(rule.spaces, i.engine, rule.role == Role::kRead), shape,
                                  keep ? common : legal_dtype(rule.dtypes & ~kDtypesOpaque));
  }
  if (i.src1.space == Space::kPsum && i.src0.space == Space::kPsum) {
    i.src1 = legal_tile(Space::kSbuf, shape, i.src1.dtype);
  }
  if (r.uses(kFieldImm0)) i.imm0 = legal_scalar(r.imm0, shape.partitions);
  if (r.uses(kFieldImm1)) i.imm1 = legal_scalar(r.imm1, shape.partitions);
  if (bitwise) {
    for (ScalarOperand* s : {&i.imm0, &i.imm1}) {
      *s = ScalarOperand{};
      s->kind = ScalarOperand::Kind::kImmediate;
      s->value = static_cast<float>(below(8));
    }
  }
  legal_details(i, shape);
  if (r.uses(kFieldPattern)) {
    i.pattern.base = any_int(16);
    i.pattern.partition_step = static_cast<int32_t>(any_int(8));
    for (int32_t& step : i.pattern.step) step = static_cast<int32_t>(any_int(8));
  }
}

void RandomProgram::legal_shaped(Instruction& i) {
  const Row& r = row(i.opcode);
  const int p = static_cast<int>(1 + below(kMaxPartitions));
  auto tile = [&](Slot s, Shape shape) {
    const OperandRule& rule = r.operand(s);
    operand(i, s) = legal_tile(legal_space(rule.spaces, i.engine, rule.role == Role::kRead), shape,
                               legal_dtype(rule.dtypes));
  };
  switch (i.opcode) {
    case Opcode::kLoadStationary:
      stationary_ = {p, static_cast<int64_t>(1 + below(kMaxPartitions))};
      tile(Slot::kSrc0, stationary_);
      stationary_dtype_ = i.src0.dtype;
      i.flags = chance(20) ? kFlagOneZero : 0;
      return;
    case Opcode::kMultiplyMoving: {
      const auto n = static_cast<int64_t>(1 + below(256));
      i.src0 = legal_tile(Space::kSbuf, {stationary_.partitions, n}, stationary_dtype_);
      i.dst = legal_tile(Space::kPsum, {static_cast<int>(stationary_.free), n}, Dtype::kF32);
      i.flags = chance(50) ? kFlagAccumulate : 0;
      return;
    }
    case Opcode::kLoadStationaryMx:
      stationary_ = {static_cast<int>(32 * (1 + below(4))), static_cast<int64_t>(2 * (1 + below(64)))};
      tile(Slot::kSrc0, stationary_);
      stationary_dtype_ = i.src0.dtype;
      return legal_scales(&i.src1, stationary_);
    case Opcode::kMultiplyMovingMx: {
      const Shape moving{stationary_.partitions, static_cast<int64_t>(1 + below(256))};
      i.src0 = legal_tile(Space::kSbuf, moving, stationary_dtype_);
      legal_scales(&i.src1, moving);
      i.dst = legal_tile(Space::kPsum, {static_cast<int>(stationary_.free), moving.free},
                         legal_dtype(r.operand(Slot::kDst).dtypes));
      i.flags = chance(50) ? kFlagAccumulate : 0;
      return;
    }
    case Opcode::kLoadStationarySparse:
      stationary_ = {static_cast<int>(4 * (1 + below(32))), static_cast<int64_t>(4 * (1 + below(32)))};
      i.count = static_cast<uint32_t>(2 + below(kMaxSparseRatio - 1));
      stationary_ratio_ = i.count;
      tile(Slot::kSrc0, stationary_);
      stationary_dtype_ = i.src0.dtype;
      return tile(Slot::kSrc1, {stationary_.partitions, stationary_.free / 4});
    case Opcode::kMultiplyMovingSparse: {
      const auto n = static_cast<int64_t>(1 + below(256));
      i.count = stationary_ratio_;
      i.src0 = legal_tile(Space::kSbuf, {stationary_.partitions, n}, stationary_dtype_);
      i.src0.num_dims = 2;
      i.src0.size = {i.count, static_cast<uint32_t>(n)};
      i.src0.step = {n, 1};
      i.src0.offset = 0;
      i.dst = legal_tile(Space::kPsum, {static_cast<int>(stationary_.free), n}, Dtype::kF32);
      i.flags = chance(50) ? kFlagAccumulate : 0;
      return;
    }
    case Opcode::kTranspose: {
      const Dtype d = legal_dtype(kDtypesCompute);
      if (i.engine == Engine::kTensor) {
        const auto f = static_cast<int64_t>(1 + below(kMaxPartitions));
        i.src0 = legal_tile(Space::kSbuf, {p, f}, d);
        i.dst = legal_tile(Space::kPsum, {static_cast<int>(f), p}, d);
        if (dtype_bytes(d) == 1) {
          i.dst.num_dims = 1;
          i.dst.size[0] = static_cast<uint32_t>(p);
          i.dst.step[0] = 2;
          i.dst.offset = 0;  // even
        }
        stationary_ = {};
      } else if (chance(50)) {
        const Shape small{static_cast<int>(1 + below(32)), static_cast<int64_t>(1 + below(32))};
        i.src0 = legal_tile(Space::kSbuf, small, d);
        i.dst = legal_tile(Space::kSbuf, {static_cast<int>(small.free), small.partitions}, d);
      } else {
        const Shape blocks{static_cast<int>(32 * (1 + below(4))), static_cast<int64_t>(32 * (1 + below(3)))};
        i.src0 = legal_tile(Space::kSbuf, blocks, d);
        i.dst = legal_tile(Space::kSbuf, blocks, d);
      }
      return;
    }
    case Opcode::kTensorReduce: {
      const bool bitwise = chance(20);
      i.op0 = bitwise
                  ? AluOp::kBitXor
                  : legal_operator(r.op0 & ~(bit(AluOp::kBitAnd) | bit(AluOp::kBitOr) | bit(AluOp::kBitXor)));
      i.flags = bitwise || chance(70) ? 0 : kFlagNegate;
      const Dtype d = legal_dtype(bitwise ? kDtypesInteger : kDtypesCompute);
      i.src0 = legal_tile(Space::kSbuf, {p, static_cast<int64_t>(1 + below(64))}, d);
      i.reduce_dims = static_cast<uint8_t>(1 + below(i.src0.num_dims));
      int64_t kept = 1;
      for (int n = 0; n < i.src0.num_dims - i.reduce_dims; ++n) kept *= i.src0.size[n];
      i.dst = legal_tile(Space::kSbuf, {p, kept}, d);
      return;
    }
    case Opcode::kPartitionReduce: {
      const auto n = static_cast<int64_t>(1 + below(64));
      i.op0 = chance(50) ? AluOp::kAdd : chance(50) ? AluOp::kMax : AluOp::kAverage;
      tile(Slot::kSrc0, {p, n});
      tile(Slot::kDst, {1, n});
      return;
    }
    case Opcode::kBnStats:
      tile(Slot::kSrc0, {p, static_cast<int64_t>(1 + below(512))});
      return tile(Slot::kDst, {p, 6});
    case Opcode::kBnAggr:
      tile(Slot::kSrc0, {p, static_cast<int64_t>(3 * (1 + below(8)))});
      return tile(Slot::kDst, {p, 2});
    case Opcode::kMax8:
    case Opcode::kMaxIndex8:
    case Opcode::kMatchReplace8: {
      const auto n = static_cast<int64_t>(8 + below(200));
      tile(Slot::kSrc0, {p, n});
      tile(Slot::kDst, {p, i.opcode == Opcode::kMatchReplace8 ? n : 8});
      if (i.opcode != Opcode::kMax8) tile(Slot::kSrc1, {p, 8});
      if (i.opcode == Opcode::kMatchReplace8 && chance(50)) tile(Slot::kAux, {p, 8});
      if (r.uses(kFieldImm0)) i.imm0 = legal_scalar(kScalarImmediate, p);
      return;
    }
    default:  // kPhilox
      tile(Slot::kSrc0, {1, 4});
      tile(Slot::kDst, {p, static_cast<int64_t>(1 + below(40))});
      i.pattern.base = static_cast<int64_t>(below(1000));
  }
}

void RandomProgram::legal_dma(Instruction& i) {
  if (target_ >= Generation::kTrn3) i.priority = static_cast<uint8_t>(below(kTrafficClasses));
  i.queue = static_cast<uint8_t>(below(kNumDmaQueues));
  const Dtype d = legal_dtype(kDtypesCompute);
  const int p = static_cast<int>(1 + below(kMaxPartitions));
  const auto n = static_cast<int64_t>(1 + below(100));
  switch (i.opcode) {
    case Opcode::kDmaCopy: {
      const bool hardware = (i.engine == Engine::kSync || i.engine == Engine::kScalar) && chance(50);
      i.dge = hardware ? DgeMode::kHardware : DgeMode::kStatic;
      const Dtype other = hardware || chance(60) ? d : legal_dtype(kDtypesCompute);
      const std::vector<uint32_t> sizes{static_cast<uint32_t>(p), static_cast<uint32_t>(n)};
      i.src0 = chance(50) ? legal_hbm(sizes, d, false) : legal_tile(Space::kSbuf, {p, n}, d, true);
      i.dst = chance(50) ? legal_hbm(sizes, other, true) : legal_tile(Space::kSbuf, {p, n}, other, true);
      if (i.src0.space == Space::kHbm && i.dst.space == Space::kSbuf && !hardware && chance(10)) {
        i.src0 = legal_hbm(sizes, Dtype::kI64, false);
        i.dst.dtype = Dtype::kI32;
        i.dst.offset = 0;
      }
      const bool adds = i.dst.dtype == i.src0.dtype && (d == Dtype::kF32 || d == Dtype::kBF16);
      if (target_ >= Generation::kTrn3 && i.dst.space == Space::kSbuf && adds && chance(50)) {
        i.flags = kFlagAccumulate;
      }
      return;
    }
    case Opcode::kDmaCompute: {
      const auto sources = static_cast<uint32_t>(1 + below(4));
      const Dtype other = legal_dtype(kDtypesCompute);
      const auto rows = static_cast<uint32_t>(p), columns = static_cast<uint32_t>(n);
      i.dst = chance(50) ? legal_hbm({rows, columns}, d, true) : legal_tile(Space::kSbuf, {p, n}, d, true);
      i.src0 = legal_hbm({sources, rows, columns}, other, false);
      if (chance(50)) i.src1 = legal_tile(Space::kSbuf, {p, n}, legal_dtype(kDtypesCompute), true);
      return;
    }
    case Opcode::kSendRecv:
      i.src0 = legal_tile(Space::kSbuf, {p, n}, d, true);
      i.dst = i.src0;  // the received tile lies behind the sent one
      i.dst.offset += strided_box(i.src0).extent();
      i.dst.offset += (-i.dst.offset) & 7;
      if (i.dst.offset + strided_box(i.dst).extent() >
          std::min(sbuf_window_, limits(target_).sbuf_bytes_per_partition)) {
        i.dst.offset -= i.src0.offset & ~int64_t{7};
        i.src0.offset &= 7;
      }
      i.count = 1;
      i.imm = static_cast<int64_t>(below(3));
      return;
    case Opcode::kDmaTranspose: {
      const Dtype wide = legal_dtype(row(i.opcode).operand(Slot::kDst).dtypes);
      const auto f = static_cast<int64_t>(1 + below(kMaxPartitions));
      i.src0 = legal_hbm({static_cast<uint32_t>(p), static_cast<uint32_t>(f)}, wide, false);
      i.dst = legal_tile(Space::kSbuf, {static_cast<int>(f), p}, wide, true);
      return;
    }
    default: {
      const bool gather = i.opcode == Opcode::kDmaGather;
      i.dge = DgeMode::kSoftware;
      i.flags = kFlagSkipOutOfBounds;
      if (chance(30)) i.op0 = AluOp::kAdd;
      const auto rows = static_cast<uint32_t>(1 + below(100)), row = static_cast<uint32_t>(1 + below(16));
      i.src1 = legal_tile(Space::kSbuf, {p, n % 4 + 1}, Dtype::kI32, true);
      const Access table = legal_hbm({rows, row}, d, !gather);
      const Access tile = legal_tile(Space::kSbuf, {p, (n % 4 + 1) * row}, d, true);
      (gather ? i.src0 : i.dst) = table;
      (gather ? i.dst : i.src0) = tile;
    }
  }
}

void RandomProgram::legal_control(Instruction& i) {
  const Row& r = row(i.opcode);
  if (r.uses(kFieldOp0)) i.op0 = legal_operator(r.op0);
  if (r.uses(kFieldRegDst)) i.reg_dst = static_cast<uint8_t>(below(kNumRegisters));
  if (r.uses(kFieldRegA)) i.reg_a = static_cast<uint8_t>(below(kNumRegisters));
  if (r.uses(kFieldRegB)) i.reg_b = static_cast<uint8_t>(below(kNumRegisters));
  if (r.uses(kFieldImm)) i.imm = any_int(31);
  i.flags = static_cast<uint16_t>(random_()) & r.flags;
  const Dtype word = i.has(kFlagWide) ? Dtype::kI64 : Dtype::kI32;
  if (i.has(kFlagWide)) {
    for (uint8_t* reg : {&i.reg_dst, &i.reg_a, &i.reg_b})
      *reg = static_cast<uint8_t>(*reg % (kNumRegisters - 1));
    static constexpr AluOp kWide[] = {AluOp::kAdd, AluOp::kSubtract, AluOp::kMultiply};
    if (r.uses(kFieldOp0)) i.op0 = kWide[below(3)];
    if (r.uses(kFieldImm)) i.imm = any_int(63);
  }
  if (i.opcode == Opcode::kCoreBarrier) i.src0 = legal_hbm({4}, Dtype::kI32, false);
  if (i.opcode == Opcode::kRegLoad) {
    i.src0 = chance(50) ? legal_hbm({1}, word, false) : legal_tile(Space::kSbuf, {1, 1}, word, true);
  }
  if (i.opcode == Opcode::kRegStore) {
    i.dst = chance(50) ? legal_hbm({1}, word, true) : legal_tile(Space::kSbuf, {1, 1}, word, true);
  }
}

Instruction RandomProgram::legal_instruction(Opcode opcode, Engine engine, Generation target) {
  const Row& r = row(opcode);
  target_ = r.runs_on(engine, target) ? target : Generation::kTrn3;
  Instruction i;
  i.opcode = opcode;
  i.engine = engine;
  if (i.is_dma()) {
    legal_dma(i);
  } else if (i.is_control()) {
    legal_control(i);
  } else if (legal_row(i)) {
  } else if (opcode == Opcode::kActTableLoad || r.has_rule(Rule::kSameElements) ||
             opcode == Opcode::kMemset || opcode == Opcode::kIota) {
    legal_elementwise(i);
  } else {
    legal_shaped(i);
  }
  if (target_ < Generation::kTrn3) i.flags &= static_cast<uint16_t>(~r.flags_trn3);
  return i;
}

// A counted loop over a few instructions of one engine; begins at `begin` in the stream. Operands in SBUF move with
// a register. Without semaphores: the caller orders it.
std::vector<Instruction> RandomProgram::legal_loop(Engine engine, uint32_t begin) {
  constexpr int64_t kStep = 64;
  constexpr uint8_t kCounter = 62, kAddress = 63;
  const auto count = static_cast<int64_t>(1 + below(6));
  const auto control = [&](Opcode opcode, uint8_t r, int64_t imm) {
    Instruction i;
    i.opcode = opcode;
    i.engine = engine;
    i.reg_dst = i.reg_a = r;
    i.imm = imm;
    return i;
  };
  std::vector<Instruction> all{control(Opcode::kRegMove, kCounter, count),
                               control(Opcode::kRegMove, kAddress, 0)};
  for (uint64_t n = 1 + below(3); n > 0; --n) {
    const auto opcode = static_cast<Opcode>(below(kNumOpcodes));
    const Row& r = row(opcode);
    if (!r.runs_on(engine, target_) || r.since > target_ || r.has_rule(Rule::kTwoCores)) continue;
    Instruction i = legal_instruction(opcode, engine, target_);
    if (i.is_control() || i.is_dma() || opcode == Opcode::kLocalGather || opcode == Opcode::kNGather)
      continue;
    for (Access* a : {&i.dst, &i.src0, &i.src1}) {
      const int64_t end = a->offset + strided_box(*a).extent() + count * kStep;
      if (a->space == Space::kSbuf && chance(50) && end <= limits(target_).sbuf_bytes_per_partition)
        a->address_register = kAddress;
    }
    all.push_back(i);
  }
  Instruction step = control(Opcode::kRegAlu, kAddress, kStep);
  step.op0 = AluOp::kAdd;
  step.flags = kFlagImmediate;
  all.push_back(step);
  Instruction loop = control(Opcode::kLoop, kCounter, 0);
  loop.target = begin + 2;
  all.push_back(loop);
  // Done when the engine has done something behind it.
  Instruction last = legal_instruction(Opcode::kMemset, engine, target_);
  all.push_back(last);
  return all;
}

// One counter for all of a core: instruction n waits until everything before it is done.
void RandomProgram::append(Program& p, int core, Instruction i, int32_t* done) const {
  auto& stream = p.streams[stream_number(core, i.engine)];
  for (Access* a : {&i.dst, &i.src0, &i.src1, &i.aux}) {  // what a core writes is its own
    if (a->space == Space::kHbm && a->tensor == kOutput) a->tensor += static_cast<uint32_t>(core);
  }
  i.target = static_cast<uint32_t>(stream.size() + 1);
  i.location = 1;
  i.sync.num_waits = 1;
  i.sync.waits[0].value = *done;
  i.sync.update = SemOp::kAdd;
  i.sync.update_value = i.is_dma() ? kDmaCompletionIncrement : 1;
  *done += i.sync.update_value;
  stream.push_back(i);
}

void RandomProgram::legal_part(Program& p, int core, int instructions, int32_t* done) {
  const auto target = *generation_from_target(p.target);
  stationary_ = {};
  Opcode loaded = Opcode::kCount;  // the load that the stationary matrix comes from
  for (int n = 0; n < instructions; ++n) {
    const auto opcode = static_cast<Opcode>(below(kNumOpcodes));
    const Row& r = row(opcode);
    if (opcode == Opcode::kHalt || r.since > target || r.has_rule(Rule::kTwoCores)) continue;
    if (opcode == Opcode::kMultiplyMoving && loaded != Opcode::kLoadStationary) continue;
    if (opcode == Opcode::kMultiplyMovingMx && loaded != Opcode::kLoadStationaryMx) continue;
    if (opcode == Opcode::kMultiplyMovingSparse && loaded != Opcode::kLoadStationarySparse) continue;
    Engine engine;
    do {
      engine = static_cast<Engine>(below(kNumEngines));
    } while (!r.runs_on(engine, target));
    if (chance(5)) {
      const Engine looping = chance(50) ? Engine::kVector : Engine::kGpSimd;
      auto& stream = p.streams[stream_number(core, looping)];
      std::vector<Instruction> loop = legal_loop(looping, static_cast<uint32_t>(stream.size()));
      loop[0].sync.num_waits = 1;
      loop[0].sync.waits[0].value = *done;
      for (size_t k = 0; k + 1 < loop.size(); ++k) stream.push_back(loop[k]);
      append(p, core, loop.back(), done);
    }
    Instruction i = legal_instruction(opcode, engine, target);
    if (is_stationary_load(opcode)) loaded = opcode;
    if (opcode == Opcode::kTranspose && engine == Engine::kTensor) loaded = Opcode::kCount;
    // Index lists whose entries are in bounds.
    Access list;
    if (opcode == Opcode::kLocalGather || opcode == Opcode::kNGather ||
        opcode == Opcode::kLoadStationarySparse)
      list = i.src1;
    const bool short_elements = engine != Engine::kTensor || dtype_bytes(i.src0.dtype) <= 2;
    if (target >= Generation::kTrn3 && r.operand(Slot::kSrc0).indirect && i.src0.present() &&
        short_elements && chance(30)) {
      i.src0.indirect = true;
      i.src0.index_partition = i.src0.start_partition;
      i.src0.index_offset = static_cast<uint32_t>(4 * below(1000));
      list = index_list(i.src0, engine);
    }
    if (list.present()) {
      Instruction fill;
      fill.opcode = Opcode::kMemset;
      fill.engine = Engine::kVector;
      fill.dst = list;
      fill.imm0.kind = ScalarOperand::Kind::kImmediate;
      append(p, core, fill, done);
    }
    append(p, core, i, done);
  }
}

void RandomProgram::meet(Program& p, std::array<int32_t, kMaxCores>& done) {
  const auto engine = static_cast<Engine>(below(kNumEngines));
  Instruction i = legal_instruction(chance(50) ? Opcode::kCoreBarrier : Opcode::kSendRecv, engine,
                                    *generation_from_target(p.target));
  for (int core = 0; core < kMaxCores; ++core) {
    if (i.is_dma()) i.count = static_cast<uint32_t>(1 - core);
    append(p, core, i, &done[static_cast<size_t>(core)]);
  }
}

Program RandomProgram::legal_program(int instructions, Generation target, int cores) {
  Program p;
  p.name = "random legal program";
  p.target = std::string(name(target));
  p.cores = cores;
  p.tensors.push_back({"x", TensorKind::kInput, Dtype::kU8, {kHbmBytes}, kHbmBytes, {}});
  for (int core = 0; core < cores; ++core) {
    p.tensors.push_back({std::string(1, static_cast<char>('y' + core)),
                         TensorKind::kOutput,
                         Dtype::kU8,
                         {kHbmBytes},
                         kHbmBytes,
                         {}});
  }
  p.locations.push_back({"random.py", 1, "random"});
  std::array<int32_t, kMaxCores> done{};
  const int parts = cores == 1 ? 1 : static_cast<int>(1 + below(6));
  for (int part = 0; part < parts; ++part) {
    for (int core = 0; core < cores; ++core)
      legal_part(p, core, std::max(instructions / (parts * cores), 1), &done[static_cast<size_t>(core)]);
    if (cores == kMaxCores) meet(p, done);
  }
  for (size_t s = 0; s < stream_number(cores, Engine::kTensor); ++s) {
    Instruction halt;
    halt.engine = engine_of_stream(s);
    p.streams[s].push_back(halt);
  }
  return p;
}

}  // namespace trnsim::isa
