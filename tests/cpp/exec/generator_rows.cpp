// Random instructions of the rows beyond plain arithmetic, and random indirect operands.
#include <algorithm>
#include <numeric>

#include "isa/table.h"
#include "tests/cpp/exec/generator.h"

namespace trnsim::test {

using isa::Access;
using isa::AluOp;
using isa::Dtype;
using isa::Engine;
using isa::Instruction;
using isa::Opcode;
using isa::ReduceCmd;
using isa::ScalarOperand;
using isa::Space;

// Columns, accumulator results and index lists share the fourth slot.
constexpr int64_t kAuxOffset = 3 * kSlotBytes + 256, kListOffset = 3 * kSlotBytes + 512, kListBytes = 256;

Access Generator::aux_column(Dtype d, int partitions) {
  Access a = tile(Space::kSbuf, d, partitions, 1, 3, false);
  a.offset = kAuxOffset;
  return a;
}

void Generator::accumulator(Instruction* in, std::initializer_list<AluOp> ops, bool can_load) {
  if (in->engine == Engine::kGpSimd || chance(40)) return;
  in->reduce_op = pick(ops);
  in->reduce =
      pick({ReduceCmd::kReset, ReduceCmd::kReduce, ReduceCmd::kResetReduce, ReduceCmd::kResetReduce});
  // Products over many instructions leave the range of FP32.
  if (in->reduce_op == AluOp::kMultiply) in->reduce = ReduceCmd::kResetReduce;
  if (can_load && chance(25)) {
    in->reduce = ReduceCmd::kLoadReduce;
    in->imm1 = scalar(Dtype::kF32, in->dst.num_partitions, 128);
  }
  if (chance(70))
    in->aux = aux_column(pick({Dtype::kF32, Dtype::kF32, Dtype::kBF16}), in->dst.num_partitions);
}

Access Generator::scales(Dtype d, int data_partitions, int n, int slot) {
  const bool spread = data_partitions > 32;
  Access a =
      plain(Space::kSbuf, d, spread ? (data_partitions / 32 - 1) * 32 + 4 : data_partitions / 8, {n}, slot);
  a.start_partition = static_cast<uint16_t>(4 * below(4));
  return a;
}

std::vector<Instruction> Generator::sparse_product(Opcode op) {
  Instruction load, multiply;
  load.opcode = Opcode::kLoadStationarySparse;
  multiply.opcode = Opcode::kMultiplyMovingSparse;
  load.engine = multiply.engine = Engine::kTensor;
  load.count = multiply.count = static_cast<uint32_t>(2 + below(3));
  const int k = pick({4, 32, 124, 128}), m = pick({4, 20, 64, 128}), n = pick({1, 5, 100});
  const Dtype d = pick({Dtype::kBF16, Dtype::kF16, Dtype::kF8E4M3, Dtype::kF8E5M2});
  load.src0 = tile(Space::kSbuf, d, k, m, 1, true);
  load.src1 = tile(Space::kSbuf, Dtype::kU16, k, m / 4, 3, true);
  multiply.src0 = plain(Space::kSbuf, d, k, {static_cast<int>(multiply.count), n}, 2);
  multiply.dst = tile(Space::kPsum, chance(70) ? Dtype::kF32 : Dtype::kBF16, m, n, 0, false);
  if (chance(50)) multiply.flags = isa::kFlagAccumulate;
  if (op == load.opcode) return {load};
  return {load, multiply};
}

// Instructions for the opcode; the last one is it.
std::vector<Instruction> Generator::sequence(Opcode op, Engine engine) {
  if (op == Opcode::kLoadStationarySparse || op == Opcode::kMultiplyMovingSparse) return sparse_product(op);
  const bool mx = op == Opcode::kLoadStationaryMx || op == Opcode::kMultiplyMovingMx;
  if (!mx && op != Opcode::kLoadStationary && op != Opcode::kMultiplyMoving) return {row(op, engine)};
  Instruction load, multiply;
  load.opcode = mx ? Opcode::kLoadStationaryMx : Opcode::kLoadStationary;
  multiply.opcode = mx ? Opcode::kMultiplyMovingMx : Opcode::kMultiplyMoving;
  load.engine = multiply.engine = Engine::kTensor;
  const bool pairs = !mx && chance(30);
  int k = mx ? 32 * (1 + below(4)) : pick({1, 3, 32, 127, 128}),
      m = mx ? 2 * (1 + below(40)) : pick({1, 17, 64, 127, 128});
  const int n = pick({1, 5, 16, 100});
  if (chance(30)) {  // a tile of the array
    const auto rows = pick<uint8_t>({32, 64, 128}),
               columns = mx || pairs ? uint8_t{128} : pick<uint8_t>({32, 64, 128});
    load.tile = {static_cast<uint8_t>(rows * below(128 / rows)),
                 static_cast<uint8_t>(columns * below(128 / columns)), rows, columns};
    multiply.tile = load.tile;
    k = std::min<int>(k, rows);
    m = std::min<int>(m, columns);
  }
  const Dtype d =
      mx      ? pick({Dtype::kF8E5M2x4, Dtype::kF8E4M3FNx4, Dtype::kF4E2M1x4})
      : pairs ? pick({Dtype::kF8E4M3, Dtype::kF8E4M3FN, Dtype::kF8E5M2})
              : pick({Dtype::kF32, Dtype::kF32R, Dtype::kBF16, Dtype::kF16, Dtype::kF8E4M3, Dtype::kF8E3M4});
  const auto operand = [&](int columns, int slot) {
    if (!pairs) return tile(Space::kSbuf, d, k, columns, slot, true);
    return plain(Space::kSbuf, d, k, {2, columns}, slot);
  };
  load.src0 = operand(m, 1);
  multiply.src0 = operand(n, 2);
  if (pairs) load.flags = multiply.flags = isa::kFlagDoubleRow;
  if (mx) {
    load.src1 = scales(pick({Dtype::kU8, Dtype::kF8E8M0}), k, m, 3);
    multiply.src1 = scales(Dtype::kF8E8M0, k, n, 0);
  }
  multiply.dst = tile(Space::kPsum, chance(70) ? Dtype::kF32 : Dtype::kBF16, m, n, 0, false);
  if (chance(50)) multiply.flags |= isa::kFlagAccumulate;
  if (op == load.opcode) return {load};
  return {load, multiply};
}

Instruction Generator::row(Opcode op, Engine engine) {
  Instruction in;
  in.opcode = op;
  in.engine = engine;
  const int p = partitions();
  const auto n_of = [&](Dtype a, Dtype b) { return std::min(elements(a), elements(b)); };
  const auto unary = [&](Dtype d, Dtype s) {
    const int n = n_of(d, s);
    in.dst = tile(d, p, n, 0, false);
    in.src0 = tile(s, p, n, 1, true);
  };
  switch (op) {
    case Opcode::kActivation:
    case Opcode::kActivate2:
      unary(any_dtype(), any_dtype());
      in.func = static_cast<isa::ActFunc>(below(static_cast<int>(isa::ActFunc::kCount)));
      if (in.func == isa::ActFunc::kPrelu) in.param = 0.3f;
      if (op == Opcode::kActivation) {
        if (chance(60)) in.imm0 = scalar(Dtype::kF32, p, 64);
        if (chance(60)) in.imm1 = scalar(pick({Dtype::kF32, Dtype::kBF16}), p, 128);
        accumulator(&in, {AluOp::kAdd}, false);
      } else {
        in.op0 = pick({AluOp::kMultiply, AluOp::kAdd, AluOp::kSubtract});
        in.op1 = in.op0 == AluOp::kMultiply ? pick({AluOp::kAdd, AluOp::kSubtract, AluOp::kBypass})
                                            : AluOp::kBypass;
        in.imm0 = scalar(Dtype::kF32, p, 64);
        if (in.op1 != AluOp::kBypass) in.imm1 = scalar(Dtype::kF32, p, 128);
        if (chance(30)) in.flags |= isa::kFlagReverse0;
        if (in.op1 != AluOp::kBypass && chance(30)) in.flags |= isa::kFlagReverse1;
        accumulator(&in, {AluOp::kAdd, AluOp::kMax, AluOp::kMin, AluOp::kAbsMax, AluOp::kAbsMin}, false);
      }
      return in;
    case Opcode::kExponential:
      unary(any_dtype(), any_dtype());
      if (chance(70)) in.imm0 = scalar(Dtype::kF32, p, 64);
      accumulator(&in, {AluOp::kAdd}, true);
      return in;
    case Opcode::kTensorScalarReduce:
      unary(any_dtype(), any_dtype());
      in.op0 = arithmetic();
      in.imm0 = scalar(Dtype::kF32, p, 64);
      if (chance(30)) in.flags = isa::kFlagNegate;
      accumulator(&in, {AluOp::kAdd, AluOp::kMultiply, AluOp::kMax, AluOp::kMin}, true);
      return in;
    case Opcode::kTensorScalarCumulative:
      unary(float_dtype(), float_dtype());
      in.op0 = pick({AluOp::kAdd, AluOp::kMultiply, AluOp::kMax, AluOp::kBypass});
      in.op1 = in.reduce_op =
          pick({AluOp::kAdd, AluOp::kSubtract, AluOp::kMultiply, AluOp::kMax, AluOp::kMin});
      in.imm0 = scalar(Dtype::kF32, p, 64);
      in.reduce = pick({ReduceCmd::kResetReduce, ReduceCmd::kReduce, ReduceCmd::kLoadReduce});
      if (in.reduce == ReduceCmd::kLoadReduce) in.imm1 = scalar(Dtype::kF32, p, 128);
      return in;
    case Opcode::kRangeSelect: {
      unary(float_dtype(), float_dtype());
      const auto compare = [&] {
        return pick({AluOp::kEqual, AluOp::kGreaterEqual, AluOp::kGreater, AluOp::kLessEqual, AluOp::kLess});
      };
      in.op0 = compare();
      in.op1 = compare();
      in.imm = below(3);
      for (ScalarOperand* s : {&in.imm0, &in.imm1}) {
        s->kind = ScalarOperand::Kind::kPointer;
        s->pointer = tile(Space::kSbuf, Dtype::kF32, p, 1, 3, true);
        s->pointer.offset = 3 * kSlotBytes + (s == &in.imm0 ? 64 : 128);
      }
      accumulator(&in, {AluOp::kMax}, false);
      return in;
    }
    case Opcode::kSelectReduce: {
      unary(any_dtype(), pick({Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kI16, Dtype::kU8}));
      in.src1 = tile(pick({Dtype::kU8, Dtype::kI16, Dtype::kBool}), p,
                     static_cast<int>(in.dst.free_elements()), 2, true);
      in.imm0 = scalar(Dtype::kF32, p, 64);
      if (chance(30)) in.flags = isa::kFlagNegate;
      accumulator(&in, {AluOp::kMax}, false);
      return in;
    }
    case Opcode::kQuantizeMx: {
      const int rows = 32 * (1 + below(4)), n = pick({1, 3, 17, 64});
      in.src0 = plain(Space::kSbuf, pick({Dtype::kBF16, Dtype::kF16}), rows, {4 * n}, 1);
      in.dst = tile(Space::kSbuf, pick({Dtype::kF8E5M2x4, Dtype::kF8E4M3FNx4}), rows, n, 0, false);
      in.aux = scales(pick({Dtype::kU8, Dtype::kF8E8M0}), rows, n, 3);
      return in;
    }
    case Opcode::kStreamShuffle: {
      const Dtype d = any_dtype();
      const int rows = 32 * (1 + below(4)), n = elements(d);
      in.dst = tile(d, rows, n, 0, false);
      in.src0 = tile(d, rows, n, 1, true);
      if (chance(20)) in.src0 = in.dst;
      for (uint8_t& m : in.mask) m = chance(15) ? isa::kShuffleKeep : static_cast<uint8_t>(below(32));
      return in;
    }
    case Opcode::kLocalGather: {
      const Dtype d = any_dtype();
      const int rows = 16 * (1 + below(8)), per = 1 + below(3);
      in.count = static_cast<uint32_t>(pick({1, 2, 4}));
      const int most = static_cast<int>(kSlotBytes / 2) / static_cast<int>(isa::dtype_bytes(d)) /
                       static_cast<int>(in.count);
      in.imm = chance(50) || 16 * per > most ? 1 + below(std::min(16 * per, most)) : 0;
      in.src0 = tile(Space::kSbuf, d, rows, 40, 1, true);
      in.src1 = plain(Space::kSbuf, Dtype::kU16, rows, {per}, 2);
      in.dst = tile(Space::kSbuf, d, rows, static_cast<int>((in.imm > 0 ? in.imm : 16 * per) * in.count), 0,
                    false);
      return in;
    }
    case Opcode::kNGather: {
      const Dtype d = any_dtype();
      const int n = pick({1, 7, 64, 100});
      in.src0 = tile(Space::kSbuf, d, p, 40, 1, true);
      in.src1 = tile(Space::kSbuf, Dtype::kU32, p, n, 2, true);
      in.dst = tile(Space::kSbuf, d, p, n, 0, false);
      return in;
    }
    case Opcode::kSequenceBounds: {
      const int n = pick({1, 2, 30, 100});
      in.src0 = tile(Space::kSbuf, pick({Dtype::kF32, Dtype::kI32}), 1, n, 1, false);
      in.dst = tile(Space::kSbuf, pick({Dtype::kF32, Dtype::kI32}), 1, 2 * n, 0, false);
      return in;
    }
    case Opcode::kNonzeroWithCount: {
      const int n = pick({1, 2, 30, 100});
      in.src0 = tile(Space::kSbuf, pick({Dtype::kF32, Dtype::kI32}), p, n, 1, true);
      in.dst = tile(Space::kSbuf, Dtype::kI32, p, n + 1, 0, false);
      in.imm = below(50);
      in.imm0.kind = ScalarOperand::Kind::kImmediate;
      in.imm0.value = -1;
      return in;
    }
    case Opcode::kTopk: {
      const int rows = 16 * (1 + below(8)), n = 8 + below(300);
      in.imm = n;
      in.count = static_cast<uint32_t>(1 + below(n));
      in.src0 = tile(Space::kSbuf, Dtype::kBF16, rows, (n + 15) / 16, 1, false);
      in.dst = tile(Space::kSbuf, Dtype::kBF16, rows, static_cast<int>(in.count + 15) / 16, 0, false);
      in.aux = plain(Space::kSbuf, Dtype::kU32, rows, {static_cast<int>(in.count + 15) / 16}, 3);
      return in;
    }
    case Opcode::kCustom:
      unary(any_dtype(), any_dtype());
      return in;
    case Opcode::kRng:
      in.dst.dtype = pick({Dtype::kU32, Dtype::kI32, Dtype::kU16, Dtype::kI8});
      in.dst = tile(in.dst.dtype, p, elements(in.dst.dtype), 0, false);
      return in;
    case Opcode::kRand2:
      in.dst.dtype = pick({Dtype::kF32, Dtype::kBF16, Dtype::kI16});
      in.dst = tile(in.dst.dtype, p, elements(in.dst.dtype), 0, false);
      in.imm0 = scalar(Dtype::kF32, p, 64);
      in.imm1 = scalar(Dtype::kF32, p, 128);
      return in;
    case Opcode::kDropout: {
      const Dtype d = any_dtype();
      unary(d, d);
      in.imm0 = scalar(Dtype::kF32, p, 64);
      return in;
    }
    case Opcode::kSetRngSeed:
      in.src0 = tile(Space::kSbuf, Dtype::kU32, 1, 1, 1, false);
      return in;
    case Opcode::kRandGetState:
    case Opcode::kRandSetState:
      (op == Opcode::kRandGetState ? in.dst : in.src0) =
          tile(Space::kSbuf, Dtype::kU32, p, engine == Engine::kVector ? 24 : 6, 0, false);
      return in;
    case Opcode::kDmaCompute: {
      const Dtype d = any_dtype(), s = any_dtype();
      const int rows = partitions(), n = pick({1, 5, 32, 60}), sources = 1 + below(4);
      in.dst = chance(50) ? tile(Space::kSbuf, d, rows, n, 0, false) : hbm(0, d, {rows, n}, false);
      in.src0 = hbm(1, s, {sources, rows, n}, true);
      if (chance(50))
        in.src1 =
            chance(50) ? plain(Space::kSbuf, s, rows, {2, n}, 2) : tile(Space::kSbuf, s, rows, n, 2, true);
      return in;
    }
    case Opcode::kRegMove:
    case Opcode::kRegAlu:
      in.reg_dst = static_cast<uint8_t>(below(8));
      in.reg_a = static_cast<uint8_t>(below(8));
      in.reg_b = static_cast<uint8_t>(below(8));
      in.imm = below(1000000) - 500000;
      if (chance(30)) {  // 64 bits in two registers
        in.flags = isa::kFlagWide;
        for (uint8_t* r : {&in.reg_dst, &in.reg_a, &in.reg_b}) *r = static_cast<uint8_t>(*r % 7);
        in.imm = in.imm * 10000019 * 1009;
        if (op == Opcode::kRegMove) return in;
        if (chance(50)) in.flags |= isa::kFlagImmediate;
        in.op0 = pick({AluOp::kAdd, AluOp::kSubtract, AluOp::kMultiply});
        return in;
      }
      if (op == Opcode::kRegMove) return in;
      if (chance(50)) in.flags = isa::kFlagImmediate;
      in.op0 = pick({AluOp::kAdd, AluOp::kSubtract, AluOp::kMultiply, AluOp::kMax, AluOp::kMin, AluOp::kEqual,
                     AluOp::kLess, AluOp::kBitAnd, AluOp::kBitXor, AluOp::kShiftLeft, AluOp::kShiftRight});
      if (in.op0 == AluOp::kShiftLeft || in.op0 == AluOp::kShiftRight) {
        in.flags = isa::kFlagImmediate;
        in.imm = below(40);
      }
      return in;
    case Opcode::kRegLoad:
      in.reg_dst = static_cast<uint8_t>(below(8));
      if (chance(30)) in.flags = isa::kFlagWide;
      in.src0 = plain(Space::kSbuf, in.has(isa::kFlagWide) ? Dtype::kI64 : Dtype::kI32, 1, {1}, 1);
      return in;
    case Opcode::kRegStore:
      in.reg_a = static_cast<uint8_t>(below(8));
      if (chance(30)) in.flags = isa::kFlagWide;
      in.dst = plain(Space::kSbuf, in.has(isa::kFlagWide) ? Dtype::kI64 : Dtype::kI32, 1, {1}, 0);
      return in;
    default:
      in = instruction(op);
      in.engine = op == Opcode::kTranspose ? in.engine : engine;
      return in;
  }
}

// Makes one operand of the instruction indirect where its row allows it, and writes the index list.
void Generator::indirection(Instruction* in, Memory& m) {
  const isa::Row& r = isa::row(in->opcode);
  int list = 0;
  for (isa::Slot s : {isa::Slot::kDst, isa::Slot::kSrc0, isa::Slot::kSrc1}) {
    Access& a = isa::operand(*in, s);
    if (!r.operand(s).indirect || !a.present() || a.num_dims == 0 || !chance(60)) continue;
    const bool pairs = in->has(isa::kFlagDoubleRow);
    if (!in->tile.whole() || pairs || a.size[0] > 60) continue;
    const int n = static_cast<int>(a.size[0]);
    // Dense rows of dims[1..]; entries that stay in the slot, each once.
    const int slot = static_cast<int>(a.offset / kSlotBytes);
    int64_t row = 1;
    for (int d = a.num_dims - 1; d > 0; --d) {
      const auto u = static_cast<size_t>(d);
      a.step[u] = row;
      row *= a.size[u];
    }
    a.step[0] = row;
    const int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(a.dtype));
    const auto room = static_cast<int>(kSlotBytes / (row * bytes));
    if (room < n) continue;
    a.offset = slot * kSlotBytes;
    a.indirect = true;
    a.index_dtype = pick({Dtype::kU16, Dtype::kU32, Dtype::kI32});
    a.index_partition = static_cast<uint16_t>(32 * below(4));
    a.index_offset = static_cast<uint32_t>(kListOffset + list++ * kListBytes);
    std::vector<int> entries(static_cast<size_t>(room));
    std::iota(entries.begin(), entries.end(), 0);
    std::shuffle(entries.begin(), entries.end(), random_);
    const Access where = isa::index_list(a, in->engine);
    for (int i = 0; i < n; ++i) {
      isa::store_from_int(a.index_dtype, m.at(where, i % where.num_partitions, i / where.num_partitions),
                          entries[static_cast<size_t>(i)]);
    }
  }
}

}  // namespace trnsim::test
