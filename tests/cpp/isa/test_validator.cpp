#include <ctime>
#include <functional>
#include <iostream>

#include "isa/names.h"
#include "isa/random_program.h"
#include "isa/validator.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/isa/operands.h"

using namespace trnsim::isa;
using test::column;
using test::constant;
using test::psum;
using test::sbuf;
using test::tile;
using test::with;

namespace {

Access hbm(uint32_t rows, uint32_t columns, Dtype dtype = Dtype::kF32, uint32_t tensor = 0) {
  Access a = tile(Space::kHbm, 0, {rows, columns}, dtype);
  a.tensor = tensor;
  return a;
}
// At the source location that the messages are to name.
Instruction make(Opcode opcode, Engine engine, const Access& dst = {}, const Access& src0 = {},
                 const Access& src1 = {}) {
  Instruction i = test::make(opcode, engine, dst, src0, src1);
  i.location = 1;
  return i;
}
Instruction copy() { return make(Opcode::kCopy, Engine::kVector, sbuf(128, 64), sbuf(128, 64)); }
Instruction add() {
  Instruction i = make(Opcode::kTensorTensor, Engine::kVector, sbuf(128, 64), sbuf(128, 64), sbuf(128, 64));
  i.op0 = AluOp::kAdd;
  return i;
}
Instruction scale() {
  Instruction i = make(Opcode::kTensorScalar, Engine::kVector, sbuf(128, 64), sbuf(128, 64));
  i.op0 = AluOp::kMultiply;
  i.imm0 = constant(2);
  return i;
}
Instruction stationary(int k = 128, uint32_t m = 128, Dtype d = Dtype::kBF16) {
  return make(Opcode::kLoadStationary, Engine::kTensor, {}, sbuf(k, m, d));
}
Instruction moving(int k = 128, uint32_t n = 512, Dtype d = Dtype::kBF16, int m = 128) {
  return make(Opcode::kMultiplyMoving, Engine::kTensor, psum(m, n), sbuf(k, n, d));
}
Instruction load() { return make(Opcode::kDmaCopy, Engine::kSync, sbuf(128, 64), hbm(128, 64)); }
Instruction gather() {
  Instruction i =
      make(Opcode::kDmaGather, Engine::kGpSimd, sbuf(128, 64), hbm(128, 64), sbuf(128, 1, Dtype::kI32));
  i.dge = DgeMode::kSoftware;
  return i;
}

Program program(std::vector<Instruction> instructions) {
  Program p;
  p.tensors.push_back({"x", TensorKind::kInput, Dtype::kF32, {128, 64}, 128 * 64 * 8, {}});
  p.tensors.push_back({"w", TensorKind::kConstant, Dtype::kF32, {128, 64}, 128 * 64 * 8, {}});
  p.locations.push_back({"model.py", 12, "x + y"});
  for (const Instruction& i : instructions) p.streams[static_cast<int>(i.engine)].push_back(i);
  return p;
}

std::string messages(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const Diagnostic& d : diagnostics) text += d.message + "\n";
  return text;
}

void accepts(std::vector<Instruction> instructions, Generation g = Generation::kTrn2) {
  CHECK(messages(validate(program(std::move(instructions)), g)).empty());
}

void refuses(std::vector<Instruction> instructions, const std::string& kind, const std::string& words,
             Generation g = Generation::kTrn2) {
  const auto diagnostics = validate(program(std::move(instructions)), g);
  const std::string text = messages(diagnostics);
  INFO(text);
  REQUIRE_FALSE(diagnostics.empty());
  CHECK_THAT(text,
             ContainsSubstring(kind + ": ") && ContainsSubstring(words) && ContainsSubstring("model.py:12"));
}
void illegal(Instruction i, const std::string& words, Generation g = Generation::kTrn2) {
  refuses({i}, "illegal on hardware", words, g);
}
void user(Instruction i, const std::string& words) { refuses({i}, "user error", words); }

}  // namespace

TEST_CASE("plain instructions are accepted") {
  accepts({copy(), add(), scale(), load(), gather()});
  accepts({stationary(), moving(), moving(128, 256), stationary(64, 32), moving(64, 100, Dtype::kBF16, 32)});
}

TEST_CASE("engine and stream") {
  illegal(with(copy(), [](Instruction& i) { i.engine = Engine::kTensor; }), "runs on vector, scalar, gpsimd");
  Program p = program({copy()});
  p.streams[0] = p.streams[1];
  CHECK_THAT(messages(validate(p)),
             ContainsSubstring("names engine vector but lies in the stream of tensor"));
  user(with(copy(), [](Instruction& i) { i.opcode = static_cast<Opcode>(200); }), "unknown opcode 200");
}

TEST_CASE("fields") {
  user(with(copy(), [](Instruction& i) { i.flags = kFlagNegate; }), "flag negate has no meaning here");
  illegal(with(add(), [](Instruction& i) { i.op0 = AluOp::kBypass; }),
          "operator bypass is not possible as op0");
  illegal(with(add(), [](Instruction& i) { i.op0 = AluOp::kAbsMax; }), "exists from trn3 on");
  accepts({with(add(), [](Instruction& i) { i.op0 = AluOp::kAbsMax; })}, Generation::kTrn3);
  illegal(with(load(), [](Instruction& i) { i.queue = 16; }), "queues 0 to 15");
  illegal(with(load(), [](Instruction& i) { i.dge = DgeMode::kSoftware; }), "runs on gpsimd only");
  illegal(with(make(Opcode::kDmaCopy, Engine::kVector, sbuf(128, 64), hbm(128, 64)),
               [](Instruction& i) { i.dge = DgeMode::kHardware; }),
          "sync or the scalar engine only");
  illegal(with(make(Opcode::kRegMove, Engine::kSync), [](Instruction& i) { i.reg_dst = 64; }), "has 64");
  illegal(with(make(Opcode::kRegMove, Engine::kSync), [](Instruction& i) { i.imm = int64_t{1} << 32; }),
          "32-bit register");
  const Instruction wide = with(make(Opcode::kRegMove, Engine::kSync), [](Instruction& i) {
    i.flags = kFlagWide;
    i.imm = int64_t{1} << 40;
  });
  accepts({wide});
  illegal(with(wide, [](Instruction& i) { i.reg_dst = 63; }), "flag wide takes it and the next one, 0 to 62");
  illegal(with(make(Opcode::kRegAlu, Engine::kSync),
               [](Instruction& i) {
                 i.op0 = AluOp::kBitAnd;
                 i.flags = kFlagWide;
               }),
          "64-bit registers add, subtract and multiply; op0 is bitwise_and");
  illegal(with(make(Opcode::kRegLoad, Engine::kSync, {}, hbm(1, 1, Dtype::kI32)),
               [](Instruction& i) { i.flags = kFlagWide; }),
          "flag wide moves int64");
  illegal(make(Opcode::kRegLoad, Engine::kSync, {}, hbm(1, 1, Dtype::kI64)), "int64 needs flag wide");
  user(with(make(Opcode::kJump, Engine::kSync), [](Instruction& i) { i.target = 1; }),
       "outside the stream of 1");
  Program p = program({copy()});
  p.streams[1][0].location = 9;
  CHECK_THAT(messages(validate(p)), ContainsSubstring("source location 9 does not exist"));
}

TEST_CASE("semaphores") {
  illegal(with(copy(), [](Instruction& i) { i.sync.num_waits = 3; }), "holds 2");
  illegal(with(copy(),
               [](Instruction& i) {
                 i.sync.num_waits = 1;
                 i.sync.waits[0].value_register = 70;
               }),
          "register 70");
  illegal(with(load(),
               [](Instruction& i) {
                 i.sync.update = SemOp::kAdd;
                 i.sync.update_value = 1;
               }),
          "adds 16");
  const auto d = validate(program({with(copy(), [](Instruction& i) {
    i.sync.num_waits = 1;
    i.sync.waits[0].semaphore = 7;
    i.sync.waits[0].value = 1;
  })}));
  REQUIRE(d.size() == 1);
  CHECK(d[0].severity == Severity::kWarning);
  CHECK(first_error(d) == nullptr);
  CHECK_THAT(d[0].message, ContainsSubstring("semaphore 7 >= 1, which no instruction updates"));
}

TEST_CASE("operand memories, dtypes and limits") {
  user(with(copy(), [](Instruction& i) { i.src0 = {}; }), "operand src0 is missing");
  user(with(copy(), [](Instruction& i) { i.src1 = i.src0; }), "src1 is given but not used");
  illegal(with(copy(), [](Instruction& i) { i.src0 = hbm(128, 64); }),
          "src0 lies in hbm; allowed: sbuf, psum");
  illegal(make(Opcode::kCopy, Engine::kGpSimd, psum(128, 64), sbuf(128, 64)),
          "the gpsimd engine cannot write");
  illegal(make(Opcode::kDmaCopy, Engine::kSync, psum(128, 64), hbm(128, 64)), "dst lies in psum");
  illegal(with(copy(), [](Instruction& i) { i.src0.dtype = Dtype::kI64; }), "src0 has dtype int64");
  illegal(make(Opcode::kDmaCopy, Engine::kSync, sbuf(128, 64, Dtype::kI64), hbm(128, 64, Dtype::kI64)),
          "64-bit elements exist in HBM only");
  illegal(make(Opcode::kCopy, Engine::kVector, sbuf(128, 64), sbuf(128, 64, Dtype::kF8E4M3FN)),
          "from trn3 on");
  accepts({make(Opcode::kCopy, Engine::kVector, sbuf(128, 64), sbuf(128, 64, Dtype::kF8E4M3FN))},
          Generation::kTrn3);
  accepts({make(Opcode::kDmaCopy, Engine::kSync, sbuf(128, 64, Dtype::kF8E4M3FN),
                hbm(128, 64, Dtype::kF8E4M3FN))});
  illegal(with(copy(),
               [](Instruction& i) {
                 i.src0.num_dims = 5;
                 i.src0.size = {64, 1, 1, 1, 1};
               }),
          "src0 has 5 dims; the limit is 4");
  illegal(with(copy(), [](Instruction& i) { i.src0.address_register = 99; }), "address register 99");
  user(with(copy(), [](Instruction& i) { i.src0.size[0] = 0; }), "src0 is empty");
  illegal(with(copy(),
               [](Instruction& i) {
                 i.src0.size[0] = i.dst.size[0] = 70000;
                 i.src0.step[0] = i.dst.step[0] = 0;
               }),
          "a size has 16 bits");
  illegal(with(copy(), [](Instruction& i) { i.src0.step[0] = 40000; }), "a step has 16 bits");
  const auto one_entry = [](int64_t step) {
    return with(copy(), [&](Instruction& i) {
      i.src0.num_dims = 2;
      i.src0.size = {1, 64};
      i.src0.step = {step, 1};
    });
  };
  accepts({one_entry(INT64_MAX)});  // a step that is never taken
  accepts({one_entry(INT64_MIN)});
  CHECK(strided_box(one_entry(INT64_MIN).src0).extent() == 256);
  illegal(make(Opcode::kCopy, Engine::kVector, psum(128, 4100, Dtype::kU8), psum(128, 4100, Dtype::kU8)),
          "4100 elements per partition; the limit is 4096");
  illegal(with(copy(), [](Instruction& i) { i.src0.offset = 2; }), "not a multiple of the element size 4");
  illegal(with(copy(), [](Instruction& i) { i.src0.offset = 229376; }),
          "of a sbuf partition, which has 229376");
  accepts({with(copy(), [](Instruction& i) { i.src0.offset = 229376; })}, Generation::kTrn3);
  illegal(with(copy(), [](Instruction& i) { i.src0.offset = -4; }), "covers bytes -4 to 252");
  accepts({with(copy(), [](Instruction& i) {
    i.src0.offset = 229376;
    i.src0.address_register = 3;  // checked when it runs
  })});
  for (const int64_t far : {(int64_t{1} << 40) + 4, -(int64_t{1} << 40) - 4, INT64_MAX - 3}) {
    user(with(copy(),
              [&](Instruction& i) {
                i.src0.offset = far;
                i.src0.address_register = 3;
              }),
         "no memory has more than 2^40");
    user(with(make(Opcode::kDmaCopy, Engine::kSync, sbuf(128, 64), hbm(128, 64)),
              [&](Instruction& i) {
                i.src0.step[0] = far;
                i.src0.address_register = 3;
              }),
         "no memory has more than 2^40");
  }
}

TEST_CASE("partitions") {
  auto at = [](int start, int n) {
    Instruction i = make(Opcode::kCopy, Engine::kVector, sbuf(n, 8), sbuf(n, 8));
    i.src0.start_partition = static_cast<uint16_t>(start);
    return i;
  };
  for (int start : {0, 32, 64, 96}) accepts({at(start, 32)});
  for (int start : {0, 64}) accepts({at(start, 64)});
  illegal(at(1, 1), "starts at partition 1 with 1 partitions; allowed starts: 0, 32, 64, 96");
  illegal(at(32, 33), "allowed starts: 0, 64");
  illegal(at(32, 65), "allowed starts: 0");
  illegal(at(96, 33), "partitions 96 to 128; the memory has 0 to 127");
  Instruction dma = load();
  dma.dst.start_partition = 3;
  dma.dst.num_partitions = 64;
  dma.src0 = hbm(64, 64);
  accepts({dma});
  illegal(with(copy(), [](Instruction& i) { i.src0.num_partitions = 64; }),
          "src0 has 64 partitions, dst 128");
}

TEST_CASE("tensors") {
  user(with(load(), [](Instruction& i) { i.src0.tensor = 5; }), "names tensor 5; the program has 2");
  user(with(load(), [](Instruction& i) { i.src0.offset = 128 * 64 * 4 + 4; }),
       "of tensor x, which has 65536");
  user(with(load(), [](Instruction& i) { i.src0.offset = -4; }), "covers bytes -4");
  user(make(Opcode::kDmaCopy, Engine::kSync, hbm(128, 64, Dtype::kF32, 1), sbuf(128, 64)),
       "writes the constant tensor w");
  user(with(load(),
            [](Instruction& i) {
              i.src0.size = {0xffffffffu, 0xffffffffu};
              i.src0.step = {INT64_MAX, INT64_MIN};
            }),
       "more than 2^40 elements");
  Program p = program({});
  p.tensors.push_back(p.tensors[0]);
  CHECK_THAT(messages(validate(p)), ContainsSubstring("two tensors are named x"));
  p = program({});
  p.tensors[1].constant = {1, 2, 3};
  CHECK_THAT(messages(validate(p)), ContainsSubstring("has 3 bytes of contents but a size of 65536"));
  p = program({});
  p.target = "trn9";
  CHECK_THAT(messages(validate(p)), ContainsSubstring("unknown target 'trn9'"));
}

TEST_CASE("elementwise rules") {
  illegal(with(add(), [](Instruction& i) { i.src1.size[0] = 1; }), "tiles do not broadcast");
  illegal(with(add(), [](Instruction& i) { i.src0 = i.src1 = psum(128, 64); }),
          "src0 and src1 both lie in PSUM");
  illegal(with(add(), [](Instruction& i) { i.op0 = AluOp::kBitAnd; }), "bitwise operators do not cast");
  illegal(with(add(), [](Instruction& i) { i.op0 = AluOp::kPower; }), "gpsimd only");
  illegal(with(scale(),
               [](Instruction& i) {
                 i.op1 = AluOp::kBitAnd;
                 i.imm1 = constant(1);
               }),
          "mix bitwise and arithmetic");
  illegal(with(scale(),
               [](Instruction& i) {
                 i.op0 = AluOp::kShiftLeft;
                 i.src0.dtype = i.dst.dtype = Dtype::kI32;
                 i.imm0 = constant(1.5f);
               }),
          "need an integer constant");
  user(with(scale(), [](Instruction& i) { i.imm0 = {}; }), "imm0 is missing");
  illegal(with(scale(), [](Instruction& i) { i.imm0 = column(sbuf(1, 1)); }), "one value per partition");
  illegal(with(scale(), [](Instruction& i) { i.imm0 = column(sbuf(128, 1, Dtype::kBF16)); }),
          "imm0 has dtype bf16");
  illegal(with(scale(), [](Instruction& i) { i.imm0 = column(psum(128, 1)); }), "imm0 lies in psum");
  illegal(with(scale(), [](Instruction& i) { i.imm0 = column(sbuf(128, 2)); }),
          "2 elements per partition; the limit is 1");
  accepts({with(scale(), [](Instruction& i) { i.imm0 = column(sbuf(128, 1)); })});
  illegal(with(scale(),
               [](Instruction& i) {
                 i.engine = Engine::kScalar;
                 i.op0 = AluOp::kMax;
               }),
          "the scalar engine computes");
  illegal(with(scale(),
               [](Instruction& i) {
                 i.engine = Engine::kGpSimd;
                 i.op0 = AluOp::kMax;
               }),
          "gpsimd has add, subtract, multiply, power and rsqrt");
  Instruction memset = make(Opcode::kMemset, Engine::kVector, sbuf(128, 64));
  memset.imm0 = column(sbuf(128, 1));
  illegal(memset, "imm0 has to be a constant");
  illegal(make(Opcode::kCopyPredicated, Engine::kVector, sbuf(128, 64), sbuf(128, 64), sbuf(128, 64)),
          "src1 has dtype fp32");
  illegal(make(Opcode::kCopyPredicated, Engine::kVector, sbuf(128, 64), sbuf(128, 64, Dtype::kBF16),
               sbuf(128, 64, Dtype::kU8)),
          "does not cast");
  Instruction activation = make(Opcode::kActivation, Engine::kScalar, sbuf(128, 64), psum(128, 64));
  accepts({activation});
  activation.aux = sbuf(128, 1);
  user(activation, "aux is given, but reduce is idle");
  activation.reduce = ReduceCmd::kResetReduce;
  illegal(activation, "operator none is not possible as reduce_op");
  activation.reduce_op = AluOp::kAdd;
  activation.aux = Access{};
  accepts({activation});  // read out by a later one
  activation.aux = sbuf(128, 2);
  illegal(activation, "aux has 2 elements per partition; the limit is 1");
  activation.aux = sbuf(128, 1);
  accepts({activation});
  activation.imm1 = column(sbuf(128, 1, Dtype::kBF16));
  accepts({activation});
  activation.imm0 = column(sbuf(128, 1, Dtype::kBF16));
  illegal(activation, "imm0 has dtype bf16");
}

TEST_CASE("tensor engine rules") {
  illegal(make(Opcode::kLoadStationary, Engine::kTensor, {}, sbuf(128, 129, Dtype::kBF16)),
          "the limit is 128");
  refuses({moving()}, "user error", "no stationary matrix is loaded");
  refuses({stationary(64), moving()}, "user error", "src0 has K = 128 partitions, the stationary matrix 64");
  refuses({stationary(128, 64), moving()}, "user error",
          "dst has 128 partitions, the stationary matrix M = 64 columns");
  refuses({stationary(), moving(128, 513)}, "illegal on hardware", "513 columns; the limit is 512");
  accepts({stationary(), moving(128, 1024)}, Generation::kTrn3);
  refuses({stationary(), with(moving(128, 256), [](Instruction& i) { i.dst.offset = 1536; })},
          "illegal on hardware", "within one bank of 2048 bytes");
  refuses({stationary(), moving(128, 64, Dtype::kF32)}, "illegal on hardware", "these do not mix");
  refuses({stationary(128, 128, Dtype::kF8E4M3), moving(128, 64, Dtype::kF8E4M3FN)}, "illegal on hardware",
          "these do not mix", Generation::kTrn3);
  accepts({stationary(128, 128, Dtype::kF8E4M3), moving(128, 64, Dtype::kBF16)});
  refuses({stationary(), with(moving(), [](Instruction& i) { i.dst.dtype = Dtype::kBF16; })},
          "illegal on hardware", "dst has dtype bf16; allowed: fp32 (the dtype given: from trn3 on)");
  refuses({stationary(), with(moving(), [](Instruction& i) { i.dst = sbuf(128, 512); })},
          "illegal on hardware", "dst lies in sbuf");
  const Instruction transpose = make(Opcode::kTranspose, Engine::kTensor, psum(64, 128), sbuf(128, 64));
  accepts({transpose});
  refuses({stationary(), transpose, moving()}, "user error", "a transpose destroys it");
  illegal(with(transpose, [](Instruction& i) { i.dst = psum(128, 64); }), "sides swapped");
  illegal(with(transpose, [](Instruction& i) { i.src0 = sbuf(128, 129); }), "at most 128x128");
  illegal(make(Opcode::kTranspose, Engine::kTensor, psum(64, 128, Dtype::kU8), sbuf(128, 64, Dtype::kU8)),
          "innermost step of 2");
  illegal(make(Opcode::kTranspose, Engine::kVector, sbuf(40, 64), sbuf(40, 64)), "whole 32x32");
  illegal(make(Opcode::kTranspose, Engine::kVector, sbuf(64, 32), sbuf(32, 64)), "transposed in its place");
  accepts({make(Opcode::kTranspose, Engine::kVector, sbuf(20, 32), sbuf(32, 20))});
  accepts({make(Opcode::kTranspose, Engine::kVector, sbuf(64, 96), sbuf(64, 96))});
  // A loop around the multiplications: the stationary matrix may come from either path.
  Instruction loop = make(Opcode::kLoop, Engine::kTensor);
  loop.target = 1;
  accepts({stationary(), moving(), stationary(64, 64), moving(64, 64, Dtype::kBF16, 64), loop});
}

TEST_CASE("reductions, statistics and top 8") {
  Instruction reduce = make(Opcode::kTensorReduce, Engine::kVector, sbuf(128, 1), sbuf(128, 64));
  reduce.op0 = AluOp::kAdd;
  reduce.reduce_dims = 1;
  accepts({reduce});
  illegal(with(reduce, [](Instruction& i) { i.reduce_dims = 2; }), "reduce_dims is 2; src0 has 1 free dims");
  illegal(with(reduce, [](Instruction& i) { i.dst = sbuf(128, 2); }),
          "dst has 2 elements per partition instead of 1");
  illegal(with(reduce, [](Instruction& i) { i.op0 = AluOp::kPower; }), "operator power is not possible");
  Instruction partition = make(Opcode::kPartitionReduce, Engine::kGpSimd, sbuf(1, 64), sbuf(128, 64));
  partition.op0 = AluOp::kAdd;
  accepts({partition});
  illegal(with(partition, [](Instruction& i) { i.dst = sbuf(2, 64); }), "2 partitions instead of 1");
  illegal(with(partition, [](Instruction& i) { i.op0 = AluOp::kMin; }), "operator min is not possible");
  illegal(make(Opcode::kBnStats, Engine::kVector, sbuf(128, 6), sbuf(128, 513)), "the limit is 512");
  illegal(make(Opcode::kBnStats, Engine::kVector, sbuf(128, 5), sbuf(128, 64)),
          "5 elements per partition instead of 6");
  illegal(make(Opcode::kBnAggr, Engine::kVector, sbuf(128, 2), sbuf(128, 7)), "not a multiple of 3");
  illegal(make(Opcode::kMax8, Engine::kVector, sbuf(128, 8), sbuf(128, 7)), "8 to 16384 are allowed");
  illegal(make(Opcode::kMax8, Engine::kVector, sbuf(128, 8), sbuf(128, 16385)), "the limit is 16384");
  illegal(make(Opcode::kMax8, Engine::kVector, sbuf(128, 4), sbuf(128, 64)),
          "dst has 4 elements per partition instead of 8");
  illegal(make(Opcode::kMaxIndex8, Engine::kVector, sbuf(128, 8, Dtype::kU32), sbuf(128, 64), sbuf(128, 4)),
          "src1 has 4 elements per partition instead of 8");
  illegal(make(Opcode::kMaxIndex8, Engine::kVector, sbuf(128, 8), sbuf(128, 64), sbuf(128, 8)),
          "dst has dtype fp32");
  Instruction scan =
      make(Opcode::kTensorTensorScan, Engine::kVector, sbuf(128, 64), sbuf(128, 64), sbuf(128, 64));
  scan.op0 = AluOp::kMultiply;
  scan.op1 = AluOp::kAdd;
  user(scan, "imm0 is missing");
  scan.imm0 = constant(0);
  accepts({scan});
  illegal(make(Opcode::kPhilox, Engine::kGpSimd, sbuf(128, 64, Dtype::kU32), sbuf(2, 4, Dtype::kU32)),
          "instead of [1, 4]");
}

TEST_CASE("DMA rules") {
  user(with(load(), [](Instruction& i) { i.dst = sbuf(128, 63); }),
       "has 8064 elements, src0 [128, 64] has 8192");
  illegal(with(load(),
               [](Instruction& i) {
                 i.dge = DgeMode::kHardware;
                 i.dst.dtype = Dtype::kBF16;
               }),
          "hardware descriptor generation does not cast");
  illegal(with(load(), [](Instruction& i) { i.src0.dtype = Dtype::kI64; }), "pairs int64 with int32");
  accepts({make(Opcode::kDmaCopy, Engine::kSync, sbuf(128, 64, Dtype::kI32), hbm(128, 64, Dtype::kI64))});
  illegal(make(Opcode::kDmaTranspose, Engine::kSync, sbuf(128, 64), hbm(128, 64)), "sides swapped");
  accepts({make(Opcode::kDmaTranspose, Engine::kSync, sbuf(64, 128), hbm(128, 64))});
  illegal(make(Opcode::kDmaTranspose, Engine::kSync, sbuf(64, 128, Dtype::kU8), hbm(128, 64, Dtype::kU8)),
          "dst has dtype uint8");
  illegal(with(gather(), [](Instruction& i) { i.dge = DgeMode::kStatic; }), "dge software");
  illegal(with(gather(), [](Instruction& i) { i.src1 = sbuf(64, 1, Dtype::kI32); }), "the indices 64");
  illegal(with(gather(), [](Instruction& i) { i.dst = sbuf(128, 63); }),
          "63 elements per partition instead of 1 rows of 64");
  illegal(with(gather(), [](Instruction& i) { i.src1.dtype = Dtype::kI16; }), "src1 has dtype int16");
  Instruction reg = make(Opcode::kRegLoad, Engine::kSync, {}, hbm(1, 2, Dtype::kI32));
  illegal(reg, "the limit is 1");
  reg.src0 = sbuf(2, 1, Dtype::kI32);
  user(reg, "not a single element");
}

TEST_CASE("the number of messages is bounded") {
  std::vector<Instruction> many(1000, with(copy(), [](Instruction& i) { i.src0 = {}; }));
  ValidateOptions options;
  options.max_diagnostics = 7;
  CHECK(validate(program(many), options).size() == 7);
  // A warning does not take the place of an error.
  Instruction waiting = copy();
  waiting.sync.num_waits = 1;
  waiting.sync.waits[0].value = 1;
  options.max_diagnostics = 1;
  CHECK(first_error(validate(program({waiting, waiting, many[0]}), options)) != nullptr);
}

TEST_CASE("random legal instructions are accepted, every opcode on every engine it runs on") {
  RandomProgram random(1);
  for (Generation g : {Generation::kTrn2, Generation::kTrn3}) {
    for (int n = 0; n < 40; ++n) {
      const Program p = random.legal_program(200, g, 1 + n % 2);
      const auto diagnostics = validate(p);
      REQUIRE(messages(diagnostics) == "");
    }
  }
}

TEST_CASE("arbitrary instructions are refused or accepted, never a crash") {
  RandomProgram random(2);
  size_t refused = 0;
  for (int n = 0; n < 50; ++n) {
    Program p = random.any_program(100);
    for (auto& stream : p.streams) {
      for (Instruction& i : stream) {
        if (random.chance(20)) i.src0.num_dims = static_cast<uint8_t>(random.below(256));
        if (random.chance(5)) i.dst.dtype = static_cast<Dtype>(random.below(256));
      }
    }
    ValidateOptions options;
    options.max_diagnostics = 100000;
    refused += validate(p, options).size();
  }
  CHECK(refused > 1000);
}

TEST_CASE("speed of validation", "[.][benchmark]") {
  RandomProgram random(3);
  const Program p = random.legal_program(200000);
  size_t n = 0;
  for (const auto& s : p.streams) n += s.size();
  const auto t0 = std::clock();
  REQUIRE(validate(p).empty());
  const auto t1 = std::clock();
  std::cout << "validate " << 1e9 * static_cast<double>(t1 - t0) / CLOCKS_PER_SEC / static_cast<double>(n)
            << " ns/instruction\n";
}
