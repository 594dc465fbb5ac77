// Rules of the rows beyond the first compiler's needs: what each refuses, in which words.
#include "isa/names.h"
#include "isa/validator.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/isa/operands.h"

using namespace trnsim::isa;
using namespace trnsim::isa::test;

namespace {

Access with_offset(Access a, int64_t offset) {
  a.offset = offset;
  return a;
}
Access hbm(const std::vector<uint32_t>& sizes, Dtype d = Dtype::kF32) {
  return tile(Space::kHbm, 0, sizes, d);
}

std::string messages(const std::vector<Instruction>& code, Generation g,
                     const ValidateOptions& options = {}) {
  Program p;
  p.tensors.push_back({"x", TensorKind::kInput, Dtype::kU8, {1 << 24}, 1 << 24, {}});
  p.locations.push_back({});
  for (const Instruction& i : code) p.streams[static_cast<int>(i.engine)].push_back(i);
  std::string text;
  for (const Diagnostic& d : validate(p, g, options)) text += d.message + "\n";
  return text;
}
void accepts(const Instruction& i, Generation g = Generation::kTrn3) { CHECK(messages({i}, g) == ""); }
void refuses(const Instruction& i, const std::string& kind, const std::string& words,
             Generation g = Generation::kTrn3) {
  CHECK_THAT(messages({i}, g), ContainsSubstring(kind + ": ") && ContainsSubstring(words));
}
void illegal(const Instruction& i, const std::string& words, Generation g = Generation::kTrn3) {
  refuses(i, "illegal on hardware", words, g);
}
void user(const Instruction& i, const std::string& words, Generation g = Generation::kTrn3) {
  refuses(i, "user error", words, g);
}

}  // namespace

TEST_CASE("generations are data: rows, engines, flags, dtypes and operators of trn3") {
  const Instruction exponential = make(Opcode::kExponential, Engine::kVector, sbuf(128, 64), sbuf(128, 64));
  accepts(exponential);
  illegal(exponential, "exists from trn3 on; the program is for trn2", Generation::kTrn2);
  Instruction activation = make(Opcode::kActivation, Engine::kGpSimd, sbuf(128, 64), sbuf(128, 64));
  accepts(activation);
  illegal(activation, "the gpsimd engine has the instruction from trn3 on", Generation::kTrn2);
  Instruction add = make(Opcode::kDmaCopy, Engine::kSync, sbuf(128, 64), hbm({128, 64}));
  add.flags = kFlagAccumulate;
  accepts(add);
  illegal(add, "flag accumulate exists from trn3 on", Generation::kTrn2);
  add.flags = 0;
  add.priority = 3;
  accepts(add);
  illegal(add, "traffic classes exist from trn3 on", Generation::kTrn2);
  add.priority = 4;
  illegal(add, "the traffic classes are 0 to 3");
  Instruction square = make(Opcode::kTensorScalar, Engine::kVector, sbuf(128, 64), sbuf(128, 64));
  square.op0 = AluOp::kSquare;
  accepts(square);
  illegal(square, "operator square exists from trn3 on", Generation::kTrn2);
  square.op0 = AluOp::kAbs;
  accepts(square, Generation::kTrn2);
  accepts(
      make(Opcode::kCopy, Engine::kVector, sbuf(128, 64, Dtype::kF4E2M1x4), sbuf(128, 64, Dtype::kF4E2M1x4)));
  illegal(
      make(Opcode::kCopy, Engine::kVector, sbuf(128, 64, Dtype::kF4E2M1x4), sbuf(128, 64, Dtype::kF4E2M1x4)),
      "fp4x4, which takes part in arithmetic from trn3 on", Generation::kTrn2);
}

TEST_CASE(
    "what two cores of a logical core do together needs two cores, and tiles of one shape that lie apart") {
  const Access tile = sbuf(128, 64), behind = with_offset(tile, 4096);
  Instruction exchange = make(Opcode::kSendRecv, Engine::kGpSimd, behind, tile);
  exchange.count = 1;
  user(exchange, "works with the other core of a logical core of two; write `cores 2`");
  const Instruction barrier = make(Opcode::kCoreBarrier, Engine::kSync, {}, hbm({4}));
  user(barrier, "the program runs on one physical core");
  const auto on_two = [](Instruction i, int core = 0) {
    Program p;
    p.cores = 2;
    p.tensors.push_back({"x", TensorKind::kInput, Dtype::kU8, {1 << 24}, 1 << 24, {}});
    p.streams[stream_number(core, i.engine)].push_back(i);
    std::string text;
    for (const Diagnostic& d : validate(p, Generation::kTrn2)) text += d.message + "\n";
    return text;
  };
  CHECK(on_two(barrier) == "");
  CHECK(on_two(exchange) == "");
  CHECK_THAT(on_two(exchange, 1),
             ContainsSubstring("user error: gpsimd of core 1 instruction 0 (send_recv): count is 1; core 1 "
                               "exchanges with core 0"));
  CHECK_THAT(on_two(with(exchange, [](Instruction& i) { i.imm = -1; })),
             ContainsSubstring("pipes are numbered from 0 on"));
  CHECK_THAT(on_two(with(exchange, [&](Instruction& i) { i.dst = with_offset(tile, 64); })),
             ContainsSubstring("src0 and dst overlap"));
  CHECK_THAT(on_two(with(exchange, [&](Instruction& i) { i.dst = with_offset(sbuf(128, 32), 4096); })),
             ContainsSubstring("elements"));
  CHECK_THAT(on_two(with(exchange,
                         [&](Instruction& i) {
                           i.dge = DgeMode::kSoftware;
                           i.src0 = sbuf(128, 257, Dtype::kU8);
                           i.dst = with_offset(i.src0, 4096);
                         })),
             ContainsSubstring("257 elements per partition; software descriptors exchange 256 at most"));
  Program p;
  p.streams[stream_number(1, Engine::kSync)].resize(1);
  CHECK_THAT(validate(p, Generation::kTrn2)[0].message,
             ContainsSubstring("the program has one physical core and instructions for core 1"));
  p.cores = 3;
  CHECK_THAT(validate(p, Generation::kTrn2)[0].message, ContainsSubstring("a logical core has 1 or 2"));
}

TEST_CASE("tiles of the systolic array") {
  Instruction load = make(Opcode::kLoadStationary, Engine::kTensor, {}, sbuf(32, 32, Dtype::kBF16));
  load.tile = {32, 64, 32, 32};
  accepts(load, Generation::kTrn2);
  illegal(with(load, [](Instruction& i) { i.tile = {16, 0, 32, 32}; }), "each is a multiple of its size");
  illegal(with(load, [](Instruction& i) { i.tile = {0, 0, 16, 32}; }), "rows and columns are 32, 64 or 128");
  illegal(with(load, [](Instruction& i) { i.src0 = sbuf(64, 32, Dtype::kBF16); }),
          "src0 has 64 partitions, the tile 32 rows");
  illegal(with(load, [](Instruction& i) { i.src0 = sbuf(32, 40, Dtype::kBF16); }), "40 columns, the tile 32");
  ValidateOptions options;
  options.rules.pe_column_tiling = false;
  CHECK_THAT(messages({load}, Generation::kTrn2, options), ContainsSubstring("rules.pe_column_tiling"));
  Instruction pairs =
      make(Opcode::kLoadStationary, Engine::kTensor, {}, tile(Space::kSbuf, 128, {2, 128}, Dtype::kF8E4M3));
  pairs.flags = kFlagDoubleRow;
  accepts(pairs, Generation::kTrn2);
  illegal(with(pairs,
               [](Instruction& i) {
                 i.tile = {0, 0, 128, 64};
               }),
          "double_row does not work with column tiles");
  illegal(with(pairs,
               [](Instruction& i) {
                 i.src0 = tile(Space::kSbuf, 128, {2, 64}, Dtype::kBF16);
               }),
          "double_row multiplies fp8e4, fp8e4fn and fp8e5");
  illegal(with(pairs, [](Instruction& i) { i.src0 = sbuf(128, 128, Dtype::kF8E4M3); }),
          "double_row needs [K, 2, ...]");
  illegal(with(pairs, [](Instruction& i) { i.flags = 0; }), "the limit is 128");
}

TEST_CASE("sparse products") {
  Instruction load = make(Opcode::kLoadStationarySparse, Engine::kTensor, {}, sbuf(128, 64, Dtype::kBF16),
                          sbuf(128, 16, Dtype::kU16, 4096));
  load.count = 4;
  accepts(load);
  illegal(with(load, [](Instruction& i) { i.count = 5; }),
          "the array has 4:8, 4:12 and 4:16, counts 2, 3 and 4");
  illegal(with(load, [](Instruction& i) { i.src0.num_partitions = i.src1.num_partitions = 30; }),
          "not a multiple of 4: four hold what is kept of a block");
  illegal(with(load, [](Instruction& i) { i.src0.size[0] = 62; }), "62 columns, not a multiple of 4");
  illegal(with(load, [](Instruction& i) { i.src1.size[0] = 15; }), "instead of [128, 16]: four positions");
  illegal(with(load, [](Instruction& i) { i.src0.dtype = Dtype::kF32; }), "src0 has dtype fp32");
  Instruction multiply = make(Opcode::kMultiplyMovingSparse, Engine::kTensor, psum(64, 256),
                              tile(Space::kSbuf, 128, {4, 256}, Dtype::kBF16));
  multiply.count = 4;
  CHECK(messages({load, multiply}, Generation::kTrn2) == "");
  illegal(with(multiply, [](Instruction& i) { i.count = 2; }), "a product with count 2 needs [K, 2, ...]");
  const Instruction three = with(multiply, [](Instruction& i) {
    i.count = 3;
    i.src0.size[0] = 3;
  });
  CHECK_THAT(
      messages({load, three}, Generation::kTrn2),
      ContainsSubstring("the stationary matrix is sparse with count 4, the product sparse with count 3"));
  const Instruction dense =
      make(Opcode::kMultiplyMoving, Engine::kTensor, psum(64, 256), sbuf(128, 256, Dtype::kBF16));
  CHECK_THAT(messages({load, dense}, Generation::kTrn2),
             ContainsSubstring("the stationary matrix is sparse with count 4, the product dense"));
}

TEST_CASE("microscaling operands and scales") {
  const Instruction load = make(Opcode::kLoadStationaryMx, Engine::kTensor, {},
                                sbuf(128, 64, Dtype::kF8E4M3FNx4), sbuf(100, 64, Dtype::kF8E8M0, 4096));
  accepts(load);
  illegal(with(load, [](Instruction& i) { i.src0 = sbuf(100, 64, Dtype::kF8E4M3FNx4); }),
          "not a multiple of 32");
  illegal(with(load, [](Instruction& i) { i.src0.size[0] = i.src1.size[0] = 63; }), "M must be even");
  illegal(with(load, [](Instruction& i) { i.src1.num_partitions = 16; }), "4 rows in each quadrant");
  illegal(with(load, [](Instruction& i) { i.src1.start_partition = 16; }),
          "start at its partition 0, 4, 8 or 12");
  accepts(with(load, [](Instruction& i) { i.src1.start_partition = 12; }));
  illegal(with(load,
               [](Instruction& i) {
                 i.tile = {0, 0, 128, 64};
               }),
          "microscaling products tile rows only");
  Instruction quantize = make(Opcode::kQuantizeMx, Engine::kVector, sbuf(64, 16, Dtype::kF8E5M2x4),
                              sbuf(64, 64, Dtype::kBF16, 4096), {}, sbuf(36, 16, Dtype::kU8, 8192));
  accepts(quantize);
  illegal(with(quantize, [](Instruction& i) { i.src0.size[0] = 62; }), "not a multiple of 4");
  illegal(with(quantize, [](Instruction& i) { i.src0.dtype = Dtype::kF32; }), "src0 has dtype fp32");
  illegal(with(quantize, [](Instruction& i) { i.src0.space = Space::kPsum; }), "src0 lies in psum");
  Instruction zero = make(Opcode::kMemset, Engine::kVector, sbuf(64, 16, Dtype::kF8E5M2x4));
  zero.imm0 = constant(0);
  accepts(zero);
  zero.imm0 = constant(1);
  illegal(zero, "set to 0 only");
  Instruction multiply = make(Opcode::kMultiplyMovingMx, Engine::kTensor, psum(64, 1024),
                              sbuf(128, 1024, Dtype::kF8E4M3FNx4), sbuf(100, 1024, Dtype::kU8, 8192));
  CHECK(messages({load, multiply}, Generation::kTrn3) == "");
  ValidateOptions options;
  options.rules.mx_moving_columns = 512;
  CHECK_THAT(messages({load, multiply}, Generation::kTrn3, options),
             ContainsSubstring("1024 columns; the limit is 512"));
}

TEST_CASE("accumulators") {
  Instruction reduce =
      make(Opcode::kTensorScalarReduce, Engine::kVector, sbuf(128, 64), sbuf(128, 64), {}, sbuf(128, 1));
  reduce.op0 = AluOp::kMultiply;
  reduce.imm0 = constant(2);
  user(reduce, "aux is given, but reduce is idle", Generation::kTrn2);
  reduce.reduce_op = AluOp::kMax;
  user(reduce, "reduce_op is given, but reduce is idle", Generation::kTrn2);
  reduce.reduce = ReduceCmd::kResetReduce;
  accepts(reduce, Generation::kTrn2);
  user(with(reduce, [](Instruction& i) { i.imm1 = constant(1); }), "needs reduce=load_reduce",
       Generation::kTrn2);
  user(with(reduce, [](Instruction& i) { i.reduce = ReduceCmd::kLoadReduce; }), "load_reduce needs imm1",
       Generation::kTrn2);
  illegal(with(reduce, [](Instruction& i) { i.reduce_op = AluOp::kAbsMax; }), "not possible as reduce_op",
          Generation::kTrn2);
  illegal(with(reduce, [](Instruction& i) { i.op0 = AluOp::kBitAnd; }), "not possible as op0",
          Generation::kTrn2);
  Instruction activation = make(Opcode::kActivation, Engine::kGpSimd, sbuf(128, 64), sbuf(128, 64));
  activation.reduce_op = AluOp::kAdd;
  activation.reduce = ReduceCmd::kResetReduce;
  illegal(activation, "gpsimd has no accumulator");
  activation.engine = Engine::kScalar;
  illegal(with(activation, [](Instruction& i) { i.reduce = ReduceCmd::kLoadReduce; }),
          "cannot be loaded here");
  user(with(activation, [](Instruction& i) { i.param = 1; }), "param is the slope of prelu");
  Instruction two = make(Opcode::kActivate2, Engine::kScalar, sbuf(128, 64), sbuf(128, 64));
  two.op0 = AluOp::kAdd;
  two.op1 = AluOp::kBypass;
  two.imm0 = constant(1);
  accepts(two);
  illegal(with(two,
               [](Instruction& i) {
                 i.op1 = AluOp::kAdd;
                 i.imm1 = constant(1);
               }),
          "(op0, op1) is (add, add)");
  user(with(two, [](Instruction& i) { i.flags = kFlagReverse1; }), "without its operator");
}

TEST_CASE("selections, shuffles and lists") {
  Instruction range = make(Opcode::kRangeSelect, Engine::kVector, sbuf(128, 64), sbuf(128, 64));
  range.op0 = AluOp::kGreaterEqual;
  range.op1 = AluOp::kLess;
  range.imm0 = range.imm1 = column(sbuf(128, 1, Dtype::kF32, 100000));
  accepts(range, Generation::kTrn2);
  illegal(with(range, [](Instruction& i) { i.imm = 1 << 24; }), "indices are compared in FP32",
          Generation::kTrn2);
  illegal(with(range, [](Instruction& i) { i.imm = INT64_MAX; }), "to more than 2^63 leaves 0 to 2^24",
          Generation::kTrn2);
  illegal(with(range, [](Instruction& i) { i.op1 = AluOp::kNotEqual; }), "not possible as op1",
          Generation::kTrn2);
  Instruction iota = make(Opcode::kIota, Engine::kGpSimd, sbuf(128, 64, Dtype::kI32));
  accepts(iota, Generation::kTrn2);
  user(with(iota, [](Instruction& i) { i.pattern.base = INT64_MIN; }), "the limit is 2^62",
       Generation::kTrn2);
  Instruction copy =
      make(Opcode::kCopyPredicated, Engine::kVector, sbuf(128, 64), {}, sbuf(128, 64, Dtype::kU8));
  user(copy, "give src0 or imm0", Generation::kTrn2);
  copy.imm0 = constant(1);
  accepts(copy, Generation::kTrn2);
  Instruction shuffle = make(Opcode::kStreamShuffle, Engine::kVector, sbuf(64, 8), sbuf(64, 8));
  accepts(shuffle, Generation::kTrn2);
  illegal(with(shuffle, [](Instruction& i) { i.mask[3] = 40; }), "the mask names partition 40",
          Generation::kTrn2);
  illegal(make(Opcode::kStreamShuffle, Engine::kVector, sbuf(33, 8), sbuf(33, 8)), "quadrants of 32",
          Generation::kTrn2);
  Instruction gather =
      make(Opcode::kLocalGather, Engine::kGpSimd, sbuf(32, 64), sbuf(32, 100), sbuf(32, 2, Dtype::kU16));
  gather.count = 2;
  accepts(gather, Generation::kTrn2);
  illegal(with(gather, [](Instruction& i) { i.count = 3; }), "1, 2, 4, 8, 16 or 32 elements",
          Generation::kTrn2);
  user(with(gather, [](Instruction& i) { i.imm = 100; }), "100 indices of 32", Generation::kTrn2);
  Instruction top = make(Opcode::kTopk, Engine::kGpSimd, sbuf(16, 2, Dtype::kBF16),
                         sbuf(16, 10, Dtype::kBF16), {}, sbuf(16, 2, Dtype::kU32));
  top.imm = 160;
  top.count = 20;
  accepts(top, Generation::kTrn2);
  illegal(with(top, [](Instruction& i) { i.imm = 4; }), "8 to 65535", Generation::kTrn2);
  illegal(with(top, [](Instruction& i) { i.count = 200; }), "1 to 32767 and at most imm", Generation::kTrn2);
  illegal(with(top, [](Instruction& i) { i.imm = 1000; }), "1000 values need 63", Generation::kTrn2);
}

TEST_CASE("indirect operands") {
  Instruction copy = make(Opcode::kCopy, Engine::kVector, sbuf(128, 64), sbuf(128, 64));
  copy.src0.indirect = true;
  copy.src0.index_offset = 8192;
  accepts(copy);
  illegal(copy, "src0 is indirect, which exists from trn3 on", Generation::kTrn2);
  illegal(with(copy, [](Instruction& i) { i.src0.index_partition = 32; }),
          "starts at partition 32, src0 at 0");
  illegal(with(copy, [](Instruction& i) { i.src0.index_partition = 16; }), "allowed: 0, 32, 64, 96");
  illegal(with(copy, [](Instruction& i) { i.src0.index_dtype = Dtype::kF32; }),
          "allowed: uint16, uint32, int32");
  illegal(with(copy, [](Instruction& i) { i.src0.index_offset = 262144; }), "covers bytes 262144");
  // The index of a single entry is multiplied too.
  illegal(with(make(Opcode::kCopy, Engine::kVector, sbuf(128, 1), copy.src0),
               [](Instruction& i) {
                 i.src0.size[0] = 1;
                 i.src0.step[0] = INT64_MAX;
               }),
          "a step has 16 bits");
  illegal(with(make(Opcode::kReciprocal, Engine::kVector, sbuf(128, 64), sbuf(128, 64)),
               [](Instruction& i) { i.src0.indirect = true; }),
          "src0 of reciprocal cannot be indirect");
  Instruction scatter = make(Opcode::kCopy, Engine::kScalar, psum(128, 64), sbuf(128, 64));
  scatter.dst.indirect = true;
  illegal(scatter, "the scalar engine cannot scatter to psum");
}

TEST_CASE("DMA forms") {
  Instruction sum = make(Opcode::kDmaCompute, Engine::kSync, sbuf(128, 64), hbm({4, 128, 64}));
  accepts(sum, Generation::kTrn2);
  illegal(with(sum,
               [](Instruction& i) {
                 i.src0 = hbm({17, 128, 64});
               }),
          "17 sources; the limit is 16", Generation::kTrn2);
  user(with(sum, [](Instruction& i) { i.src0 = hbm({129, 64}); }), "whole sources", Generation::kTrn2);
  illegal(with(sum, [](Instruction& i) { i.dge = DgeMode::kHardware; }), "static descriptors",
          Generation::kTrn2);
  Instruction add = make(Opcode::kDmaCopy, Engine::kSync, sbuf(128, 64), hbm({128, 64}, Dtype::kBF16));
  add.flags = kFlagAccumulate;
  illegal(add, "bf16 or fp32 on both sides");
  Instruction transpose =
      make(Opcode::kDmaTranspose, Engine::kSync, sbuf(64, 16, Dtype::kBF16), hbm({16, 64}, Dtype::kBF16));
  transpose.dge = DgeMode::kHardware;
  accepts(transpose, Generation::kTrn2);
  illegal(with(transpose,
               [](Instruction& i) {
                 i.src0 = hbm({32, 64}, Dtype::kBF16);
                 i.dst = sbuf(64, 32, Dtype::kBF16);
               }),
          "hardware descriptors transpose [16, up to 128]", Generation::kTrn2);
  ValidateOptions options;
  options.rules.hardware_transpose_128 = true;
  CHECK_THAT(messages({transpose}, Generation::kTrn2, options),
             ContainsSubstring("a multiple of 128, not 64"));
  Instruction three = make(Opcode::kDmaTranspose, Engine::kSync, tile(Space::kSbuf, 20, {3, 4}, Dtype::kF32),
                           hbm({4, 3, 20}));
  three.count = 3;
  accepts(three, Generation::kTrn2);
  illegal(with(three, [](Instruction& i) { i.count = 4; }), "has 3 dims, count says 4", Generation::kTrn2);
  Instruction rows = make(Opcode::kDmaTranspose, Engine::kGpSimd, sbuf(64, 32, Dtype::kBF16),
                          hbm({100, 64}, Dtype::kBF16), sbuf(32, 1, Dtype::kU32, 4096));
  illegal(rows, "software descriptor generation", Generation::kTrn2);
  rows.dge = DgeMode::kSoftware;
  accepts(rows, Generation::kTrn2);
  illegal(with(rows,
               [](Instruction& i) {
                 i.src1.num_partitions = 20;
                 i.dst.size[0] = 20;
               }),
          "a multiple of 16", Generation::kTrn2);
}
