// Every opcode against the oracle, on random operands.
#include "isa/names.h"
#include "isa/table.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/exec/generator.h"

using namespace trnsim;
using namespace trnsim::test;
using isa::Instruction;
using isa::Opcode;

namespace {

constexpr uint64_t kTensorBytes = 4 << 20;

void check(Pair& pair, const Instruction& in) {
  pair.to_core();
  REQUIRE(execute_oracle(in, pair.memory));
  const exec::Status status = pair.core.execute(pair.program, in, pair.bindings());
  INFO(status.message);
  REQUIRE(status.ok());
  const std::string difference = pair.compare(in);
  INFO(difference);
  REQUIRE(difference.empty());
}

Generator::Values values_for(Generator& g, const Instruction& in) {
  switch (agreement(in)) {
    case Agreement::kSums:
      return Generator::Values::kModerate;
    case Agreement::kUlps:
      if (in.opcode == Opcode::kBnStats) return Generator::Values::kModerate;
      return Generator::Values::kAny;
    default:
      return g.chance(50) ? Generator::Values::kAny : Generator::Values::kSmallIntegers;
  }
}

// What an instruction reads, beyond values that suit every instruction.
void fill_operands(Generator& g, Pair& pair, const Instruction& in) {
  Memory& m = pair.memory;
  const auto values = values_for(g, in);
  g.fill(in.dst, m, values);
  g.fill(in.src0, m, values);
  g.fill(in.src1, m, in.is_dma() ? Generator::Values::kModerate : values);
  if (in.opcode == Opcode::kMaxIndex8 || in.opcode == Opcode::kMatchReplace8) {
    g.fill(in.src1, m, Generator::Values::kSmallIntegers);
  }
  if (in.opcode == Opcode::kSequenceBounds || in.opcode == Opcode::kNonzeroWithCount) {
    g.fill(in.src0, m, Generator::Values::kSmallIntegers);
  }
  const bool scales = in.opcode == Opcode::kLoadStationaryMx || in.opcode == Opcode::kMultiplyMovingMx;
  const bool indices = in.opcode == Opcode::kLocalGather || in.opcode == Opcode::kNGather;
  if (scales || indices || (in.opcode == Opcode::kDmaTranspose && in.src1.present())) {
    for (int64_t p = 0; p < in.src1.num_partitions; ++p) {
      for (int64_t k = 0; k < in.src1.free_elements(); ++k) {
        const int code = 125 + g.below(4);
        if (in.src1.dtype == isa::Dtype::kF8E8M0) {
          *m.at(in.src1, p, k) = static_cast<std::byte>(code);
        } else {
          isa::store_from_int(in.src1.dtype, m.at(in.src1, p, k), scales ? code : g.below(36));
        }
      }
    }
  }
  if (in.opcode == Opcode::kLoadStationarySparse) {  // positions lie in their block
    for (int64_t p = 0; p < in.src1.num_partitions; ++p) {
      for (int64_t k = 0; k < in.src1.free_elements(); ++k) {
        int64_t tags = 0;
        for (int t = 0; t < 4; ++t) tags = tags << 4 | g.below(4 * static_cast<int>(in.count));
        isa::store_from_int(in.src1.dtype, m.at(in.src1, p, k), tags);
      }
    }
  }
  if (in.opcode == Opcode::kBnAggr) {  // counts are positive
    for (int64_t p = 0; p < in.src0.num_partitions; ++p) {
      for (int64_t k = 0; k < in.src0.free_elements(); k += 3) {
        isa::store_from_f32(in.src0.dtype, m.at(in.src0, p, k), static_cast<float>(1 + g.below(5)));
        isa::store_from_f32(in.src0.dtype, m.at(in.src0, p, k + 1), static_cast<float>(g.below(50)) / 8);
        isa::store_from_f32(in.src0.dtype, m.at(in.src0, p, k + 2), static_cast<float>(g.below(50)) / 4);
      }
    }
  }
  for (const isa::ScalarOperand* s : {&in.imm0, &in.imm1}) {
    if (s->kind == isa::ScalarOperand::Kind::kPointer) {
      g.fill(s->pointer, m, values == Generator::Values::kAny ? Generator::Values::kModerate : values);
    }
  }
}

void random_cases(Opcode op, int count, Pair& pair, isa::Engine engine = isa::Engine::kVector) {
  Generator g(1234 + static_cast<uint64_t>(op));
  for (int i = 0; i < count; ++i) {
    for (Instruction in : g.sequence(op, engine)) {
      if (in.opcode == Opcode::kTensorTensor && in.dst.dtype == in.src0.dtype && g.chance(10))
        in.dst = in.src0 = in.src1;
      if (i % 20 == 0) g.noise(pair.memory);
      if (g.chance(30)) g.indirection(&in, pair.memory);
      pair.memory.index_partitions = isa::index_partitions(in.engine);
      fill_operands(g, pair, in);
      INFO("case " << i << " of " << isa::name(op) << " on " << isa::name(engine));
      check(pair, in);
    }
  }
}

}  // namespace

// The coverage test of docs/support.md: a row without operands in the generator or without an oracle fails.
TEST_CASE("every row agrees with the oracle") {
  for (const isa::Row& r : isa::all_rows()) {
    const bool sequencer =
        r.opcode == Opcode::kSemaphore || (r.opcode >= Opcode::kBranch && r.opcode <= Opcode::kHalt);
    if (sequencer || r.has_rule(isa::Rule::kTwoCores)) continue;  // test_run.cpp, test_pair.cpp
    for (int e = 0; e < isa::kNumEngines; ++e) {
      const auto engine = static_cast<isa::Engine>(e);
      if (!r.runs_on(engine)) continue;
      if (r.engines == (1u << isa::kNumEngines) - 1 && engine != isa::Engine::kSync) continue;
      Pair pair({kTensorBytes / 4, kTensorBytes / 4});
      for (auto* words : {&pair.memory.generators[1], &pair.memory.generators[3]}) {
        // The core starts from seed 0.
        Instruction seed;
        seed.opcode = Opcode::kSetRngSeed;
        seed.engine = words == &pair.memory.generators[1] ? isa::Engine::kVector : isa::Engine::kGpSimd;
        seed.src0 = Generator(1).plain(isa::Space::kSbuf, isa::Dtype::kU32, 1, {1}, 0);
        execute_oracle(seed, pair.memory);
      }
      const bool fresh =
          r.cost == isa::CostClass::kRandom || r.uses(isa::kFieldReduce) || r.uses(isa::kFieldMask);
      random_cases(r.opcode, fresh ? 80 : 25, pair, engine);
    }
  }
}

TEST_CASE("the vector engine of trn3 has another generator") {
  Pair pair;
  exec::Numerics numerics;
  numerics.vector_xorwow = pair.memory.vector_xorwow = true;
  pair.core.set_numerics(numerics);
  for (Opcode op : {Opcode::kSetRngSeed, Opcode::kRng, Opcode::kRand2, Opcode::kRandSetState,
                    Opcode::kDropout, Opcode::kRandGetState}) {
    random_cases(op, 15, pair);
  }
}

TEST_CASE("elementwise instructions agree with the oracle") {
  Pair pair;
  random_cases(Opcode::kTensorTensor, 400, pair);
  random_cases(Opcode::kTensorScalar, 400, pair);
  random_cases(Opcode::kScalarTensorTensor, 400, pair);
}

TEST_CASE("copies and selections agree with the oracle") {
  Pair pair;
  random_cases(Opcode::kCopy, 300, pair);
  random_cases(Opcode::kCopyPredicated, 200, pair);
  random_cases(Opcode::kAffineSelect, 200, pair);
  random_cases(Opcode::kMemset, 100, pair);
  random_cases(Opcode::kIota, 100, pair);
  random_cases(Opcode::kReciprocal, 100, pair);
}

TEST_CASE("activations agree with the oracle") {
  Pair pair;
  random_cases(Opcode::kActivation, 500, pair, isa::Engine::kScalar);
}

TEST_CASE("reductions agree with the oracle") {
  Pair pair;
  random_cases(Opcode::kTensorReduce, 300, pair);
  random_cases(Opcode::kPartitionReduce, 150, pair);
  random_cases(Opcode::kTensorTensorScan, 200, pair);
  random_cases(Opcode::kBnStats, 60, pair);
  random_cases(Opcode::kBnAggr, 60, pair);
}

TEST_CASE("top-8 instructions agree with the oracle") {
  Pair pair;
  random_cases(Opcode::kMax8, 100, pair);
  random_cases(Opcode::kMaxIndex8, 100, pair);
  random_cases(Opcode::kMatchReplace8, 100, pair);
}

TEST_CASE("transposes and random words agree with the oracle") {
  Pair pair;
  random_cases(Opcode::kTranspose, 200, pair);
  random_cases(Opcode::kPhilox, 60, pair);
}

TEST_CASE("DMA agrees with the oracle") {
  Pair pair({kTensorBytes / 4, kTensorBytes / 4});
  random_cases(Opcode::kDmaCopy, 400, pair);
  random_cases(Opcode::kDmaTranspose, 100, pair);
  random_cases(Opcode::kDmaGather, 150, pair);
  random_cases(Opcode::kDmaScatter, 150, pair);
}

TEST_CASE("matrix products agree with the oracle") {
  Pair pair;
  Generator g(99);
  g.noise(pair.memory);
  for (int i = 0; i < 60; ++i) {
    const int k = g.pick({1, 3, 32, 127, 128}), m = g.pick({1, 17, 64, 127, 128}),
              n = g.pick({1, 5, 16, 128, 511, 512});
    Instruction load, multiply;
    load.opcode = Opcode::kLoadStationary;
    multiply.opcode = Opcode::kMultiplyMoving;
    load.engine = multiply.engine = isa::Engine::kTensor;
    const isa::Dtype d = g.pick({isa::Dtype::kF32, isa::Dtype::kF32R, isa::Dtype::kBF16, isa::Dtype::kF16,
                                 isa::Dtype::kF8E4M3, isa::Dtype::kF8E5M2});
    load.src0 = g.tile(isa::Space::kSbuf, d, k, m, 1, true);
    const int columns =
        std::min<int>(n, static_cast<int>(kSlotBytes / static_cast<int64_t>(isa::dtype_bytes(d))));
    multiply.src0 = g.tile(isa::Space::kSbuf, d, k, columns, 2, true);
    const isa::Dtype out = g.chance(80) ? isa::Dtype::kF32 : isa::Dtype::kBF16;
    multiply.dst = g.tile(isa::Space::kPsum, out, m, columns, 0, false);
    g.fill(load.src0, pair.memory, Generator::Values::kModerate);
    g.fill(multiply.src0, pair.memory, Generator::Values::kModerate);
    g.fill(multiply.dst, pair.memory, Generator::Values::kModerate);
    check(pair, load);
    // The array holds the matrix: what happens to its SBUF memory afterwards does not matter.
    g.fill(load.src0, pair.memory, Generator::Values::kModerate);
    g.fill(multiply.src0, pair.memory, Generator::Values::kModerate);
    check(pair, multiply);
    multiply.flags = isa::kFlagAccumulate;
    check(pair, multiply);
  }
}

TEST_CASE("a product that does not accumulate ignores what PSUM held") {
  Pair pair;
  Generator g(5);
  Instruction load, multiply;
  load.opcode = Opcode::kLoadStationary;
  multiply.opcode = Opcode::kMultiplyMoving;
  load.src0 = g.plain(isa::Space::kSbuf, isa::Dtype::kF32, 128, {128}, 1);
  multiply.src0 = g.plain(isa::Space::kSbuf, isa::Dtype::kF32, 128, {512}, 2);
  multiply.dst = g.plain(isa::Space::kPsum, isa::Dtype::kF32, 128, {512}, 0);
  g.fill(load.src0, pair.memory, Generator::Values::kModerate);
  g.fill(multiply.src0, pair.memory, Generator::Values::kModerate);
  std::fill(pair.memory.psum.begin(), pair.memory.psum.end(), std::byte{0xff});
  check(pair, load);
  check(pair, multiply);
}

TEST_CASE("address registers move operands") {
  Pair pair({1 << 16});
  Generator g(7);
  g.noise(pair.memory);
  for (int i = 0; i < 20; ++i) {
    Instruction in;
    in.opcode = Opcode::kDmaCopy;
    in.engine = isa::Engine::kSync;
    in.dst = g.plain(isa::Space::kSbuf, isa::Dtype::kF32, 128, {8}, 0);
    in.dst.address_register = 3;
    in.src0 = g.hbm(0, isa::Dtype::kF32, {128, 8}, false);
    in.src0.address_register = 4;
    for (int r : {3, 4}) {
      const int32_t v = 4 * g.below(200);
      pair.memory.registers[r] = v;
      pair.core.set_reg(isa::Engine::kSync, r, v);
    }
    check(pair, in);
  }
}

TEST_CASE("registers are loaded and stored") {
  Pair pair({64});
  Generator g(8);
  g.noise(pair.memory);
  Instruction load, store;
  load.opcode = Opcode::kRegLoad;
  store.opcode = Opcode::kRegStore;
  load.engine = store.engine = isa::Engine::kGpSimd;
  load.src0 = g.plain(isa::Space::kSbuf, isa::Dtype::kI32, 1, {1}, 1);
  load.reg_dst = store.reg_a = 9;
  store.dst = g.hbm(0, isa::Dtype::kI32, {1}, false);
  check(pair, load);
  CHECK(pair.core.reg(isa::Engine::kGpSimd, 9) == pair.memory.registers[9]);
  check(pair, store);
}
