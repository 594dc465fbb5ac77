// Numerics that are switches, and registered host functions.
#include <cmath>
#include <cstring>

#include "isa/names.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/exec/generator.h"

using namespace trnsim;
using namespace trnsim::test;
using isa::Dtype;
using isa::Instruction;
using isa::Opcode;

namespace {

Instruction cast(Generator& g, Dtype to, int n) {
  Instruction i;
  i.opcode = Opcode::kCopy;
  i.engine = isa::Engine::kVector;
  i.src0 = g.plain(isa::Space::kSbuf, Dtype::kF32, 128, {n}, 1);
  i.dst = g.plain(isa::Space::kSbuf, to, 128, {n}, 0);
  return i;
}

void run(Pair& pair, const Instruction& i) {
  pair.to_core();
  const exec::Status status = pair.core.execute(pair.program, i, pair.bindings());
  INFO(status.message);
  REQUIRE(status.ok());
}

float result(Pair& pair, const isa::Access& a, int p, int64_t k) {
  return isa::load_as_f32(
      a.dtype,
      pair.core.sbuf(a.start_partition + p, a.offset + k * static_cast<int64_t>(isa::dtype_bytes(a.dtype))));
}

}  // namespace

TEST_CASE("stochastic rounding picks a neighbour, with the right probability, the same in every run") {
  Generator g(3);
  for (Dtype d :
       {Dtype::kBF16, Dtype::kF16, Dtype::kF8E4M3, Dtype::kF8E4M3FN, Dtype::kF8E5M2, Dtype::kF8E3M4}) {
    INFO(isa::dtype_name(d));
    Pair pair, again;
    exec::Numerics numerics;
    numerics.stochastic_rounding = true;
    numerics.rounding_seed = 7;
    pair.core.set_numerics(numerics);
    again.core.set_numerics(numerics);
    const Instruction i = cast(g, d, 256);
    // A quarter of the way from 1 to the next value.
    float next = 1.0f;
    for (uint32_t code = 0; code < 65536 && next == 1.0f; ++code) {
      isa::store_from_f32(d, &code, 1.0f);
      ++code;
      next = isa::load_as_f32(d, &code);
    }
    const float x = 1.0f + (next - 1.0f) / 4;
    for (int64_t p = 0; p < 128; ++p) {
      for (int64_t k = 0; k < 256; ++k)
        isa::store_from_f32(Dtype::kF32, pair.memory.at(i.src0, p, k), p % 2 ? x : -x);
    }
    again.memory.sbuf = pair.memory.sbuf;
    run(pair, i);
    run(again, i);
    int up = 0;
    for (int p = 0; p < 128; ++p) {
      for (int k = 0; k < 256; ++k) {
        const float v = std::fabs(result(pair, i.dst, p, k));
        REQUIRE((v == 1.0f || v == next));
        REQUIRE(result(again, i.dst, p, k) == result(pair, i.dst, p, k));
        up += v == next ? 1 : 0;
      }
    }
    CHECK(up > 128 * 256 * 0.24);
    CHECK(up < 128 * 256 * 0.26);
    // The next instruction rounds otherwise.
    run(again, i);
    bool differs = false;
    for (int k = 0; k < 256; ++k)
      differs = differs || result(again, i.dst, 0, k) != result(pair, i.dst, 0, k);
    CHECK(differs);
  }
}

TEST_CASE("stochastic rounding keeps what the dtype holds, infinity and NaN") {
  for (Dtype d :
       {Dtype::kBF16, Dtype::kF16, Dtype::kF8E4M3, Dtype::kF8E4M3FN, Dtype::kF8E5M2, Dtype::kF8E3M4}) {
    const uint32_t codes = isa::dtype_bytes(d) == 1 ? 256 : 65536;
    for (uint32_t code = 0; code < codes; ++code) {
      const float v = isa::load_as_f32(d, &code);
      for (uint32_t random : {0u, 0x80000000u, 0xffffffffu}) {
        const float r = isa::round_stochastic(d, v, random);
        REQUIRE((std::memcmp(&r, &v, 4) == 0 || (std::isnan(v) && std::isnan(r))));
      }
    }
    // Subnormals of the dtype round in their own steps.
    const float tiny = isa::round_stochastic(d, 1e-40f, 0);
    CHECK((d == Dtype::kBF16 || tiny > 0));
    CHECK(isa::round_stochastic(d, d == Dtype::kBF16 ? 1e-41f : 1e-40f, 0xffffffffu) == 0.0f);
  }
}

TEST_CASE("infinity can be saturated") {
  Generator g(4);
  for (Dtype d :
       {Dtype::kBF16, Dtype::kF16, Dtype::kF8E4M3, Dtype::kF8E4M3FN, Dtype::kF8E5M2, Dtype::kF8E3M4}) {
    Pair pair;
    exec::Numerics numerics;
    numerics.saturate_infinity = true;
    pair.core.set_numerics(numerics);
    const Instruction i = cast(g, d, 4);
    const float values[4] = {HUGE_VALF, -HUGE_VALF, 3.4e38f, 1.0f};
    for (int64_t p = 0; p < 128; ++p) {
      for (int64_t k = 0; k < 4; ++k)
        isa::store_from_f32(Dtype::kF32, pair.memory.at(i.src0, p, k), values[k]);
    }
    run(pair, i);
    INFO(isa::dtype_name(d));
    CHECK(result(pair, i.dst, 0, 0) == isa::largest_finite(d));
    CHECK(result(pair, i.dst, 0, 1) == -isa::largest_finite(d));
    CHECK(result(pair, i.dst, 0, 2) == isa::largest_finite(d));
    CHECK(result(pair, i.dst, 0, 3) == 1.0f);
  }
}

TEST_CASE("activation functions may refuse what the hardware does not specify") {
  Generator g(5);
  for (bool strict : {false, true}) {
    Pair pair;
    exec::Numerics numerics;
    numerics.strict_activation_range = strict;
    pair.core.set_numerics(numerics);
    Instruction i = cast(g, Dtype::kF32, 2);
    i.opcode = Opcode::kActivation;
    i.engine = isa::Engine::kScalar;
    i.func = isa::ActFunc::kSin;
    i.dst = i.src0;  // in place
    for (int64_t p = 0; p < 128; ++p) {
      isa::store_from_f32(Dtype::kF32, pair.memory.at(i.src0, p, 0), 3.0f);
      isa::store_from_f32(Dtype::kF32, pair.memory.at(i.src0, p, 1), 9.0f);
    }
    run(pair, i);
    CHECK(result(pair, i.dst, 5, 0) == static_cast<float>(std::sin(3.0)));
    CHECK(std::isnan(result(pair, i.dst, 5, 1)) == strict);
  }
}

TEST_CASE("the scale recipe of quantize_mx is a switch") {
  Generator g(6);
  for (int offset : {0, 1}) {
    Pair pair;
    exec::Numerics numerics;
    numerics.mx_scale_offset = offset;
    pair.core.set_numerics(numerics);
    Instruction i;
    i.opcode = Opcode::kQuantizeMx;
    i.engine = isa::Engine::kVector;
    i.src0 = g.plain(isa::Space::kSbuf, Dtype::kBF16, 32, {4}, 1);
    i.dst = g.plain(isa::Space::kSbuf, Dtype::kF8E4M3FNx4, 32, {1}, 0);
    i.aux = g.plain(isa::Space::kSbuf, Dtype::kF8E8M0, 4, {1}, 3);
    for (int64_t p = 0; p < 32; ++p) {
      for (int64_t k = 0; k < 4; ++k) isa::store_from_f32(Dtype::kBF16, pair.memory.at(i.src0, p, k), 1.75f);
    }
    run(pair, i);
    CHECK(static_cast<int>(*pair.core.sbuf(0, 3 * kSlotBytes)) == 127 - 8 + offset);
    // 1.75 * 2^8 = 448 is the largest value; with the doubled scale it is half of that.
    CHECK(isa::f32_from_packed(i.dst.dtype, pair.core.sbuf(0, 0), 3) == (offset == 0 ? 448.0f : 224.0f));
  }
}

TEST_CASE("integers outside GpSimd pass through FP32 when the switch says so") {
  Generator g(8);
  const auto compute = [&](bool fp32, isa::Engine engine, Opcode opcode, Dtype d, int64_t a, int64_t b,
                           isa::AluOp op) {
    Pair pair;
    exec::Numerics numerics;
    numerics.fp32_integers = fp32;
    pair.core.set_numerics(numerics);
    Instruction i;
    i.opcode = opcode;
    i.engine = engine;
    i.op0 = op;
    i.src0 = g.plain(isa::Space::kSbuf, d, 8, {2}, 1);
    i.dst = g.plain(isa::Space::kSbuf, d, 8, {2}, 0);
    if (opcode == Opcode::kTensorTensor) i.src1 = g.plain(isa::Space::kSbuf, d, 8, {2}, 2);
    if (opcode == Opcode::kTensorScalar) {
      i.imm0.kind = isa::ScalarOperand::Kind::kImmediate;
      i.imm0.value = static_cast<float>(b);
    }
    if (opcode == Opcode::kTensorReduce) {
      i.reduce_dims = 1;
      i.dst = g.plain(isa::Space::kSbuf, d, 8, {1}, 0);
    }
    for (int64_t p = 0; p < 8; ++p) {
      for (int64_t k = 0; k < 2; ++k) {
        isa::store_from_int(d, pair.memory.at(i.src0, p, k),
                            opcode == Opcode::kTensorReduce && k == 1 ? b : a);
        if (i.src1.present()) isa::store_from_int(d, pair.memory.at(i.src1, p, k), b);
      }
    }
    run(pair, i);
    return isa::load_as_int(d, pair.core.sbuf(i.dst.start_partition, i.dst.offset));
  };
  constexpr int64_t kBig = 1 << 24;
  const isa::Engine v = isa::Engine::kVector, gpsimd = isa::Engine::kGpSimd;
  for (const Opcode opcode : {Opcode::kTensorTensor, Opcode::kTensorScalar, Opcode::kTensorReduce}) {
    INFO(isa::name(opcode));
    CHECK(compute(false, v, opcode, Dtype::kI32, kBig, 1, isa::AluOp::kAdd) == kBig + 1);
    CHECK(compute(true, v, opcode, Dtype::kI32, kBig, 1, isa::AluOp::kAdd) == kBig);
    CHECK(compute(false, v, opcode, Dtype::kU8, 250, 10, isa::AluOp::kAdd) == 4);
    CHECK(compute(true, v, opcode, Dtype::kU8, 250, 10, isa::AluOp::kAdd) == 255);
  }
  CHECK(compute(true, v, Opcode::kTensorTensor, Dtype::kI32, kBig, 1, isa::AluOp::kBitOr) == kBig + 1);
  CHECK(compute(true, gpsimd, Opcode::kTensorTensor, Dtype::kI32, kBig, 1, isa::AluOp::kAdd) == kBig + 1);
}

TEST_CASE("a sparse product refuses a position beyond its block") {
  Generator g(9);
  Pair pair;
  Instruction i;
  i.opcode = Opcode::kLoadStationarySparse;
  i.engine = isa::Engine::kTensor;
  i.count = 2;
  i.src0 = g.plain(isa::Space::kSbuf, Dtype::kBF16, 4, {4}, 1);
  i.src1 = g.plain(isa::Space::kSbuf, Dtype::kU16, 4, {1}, 2);
  for (int64_t p = 0; p < 4; ++p) isa::store_from_int(Dtype::kU16, pair.memory.at(i.src1, p, 0), 0x7777);
  run(pair, i);
  isa::store_from_int(Dtype::kU16, pair.memory.at(i.src1, 2, 0), 0x0800);
  std::copy(pair.memory.at(i.src1, 2, 0), pair.memory.at(i.src1, 2, 0) + 2, pair.core.sbuf(2, i.src1.offset));
  const exec::Status status = pair.core.execute(pair.program, i, pair.bindings());
  CHECK(!status.ok());
  CHECK_THAT(status.message,
             ContainsSubstring("position 8 of row 2, column 2 is beyond its block of 8 rows"));
}

TEST_CASE("a registered host function stands in for a GpSimd program") {
  Generator g(7);
  Pair pair;
  Instruction i = cast(g, Dtype::kF32, 8);
  i.opcode = Opcode::kCustom;
  i.engine = isa::Engine::kGpSimd;
  i.imm = 12345;
  const exec::Status missing = pair.core.execute(pair.program, i, pair.bindings());
  CHECK(!missing.ok());
  CHECK_THAT(missing.message, ContainsSubstring("custom operation 12345 has no registered host function"));
  exec::register_custom(12345, [](exec::CustomView& v) {
    using View = exec::CustomView;
    for (int p = 0; p < v.partitions(View::kDst); ++p) {
      for (int64_t k = 0; k < v.elements(View::kDst); ++k) {
        const float x = isa::load_as_f32(v.dtype(View::kSrc0), v.element(View::kSrc0, p, k));
        isa::store_from_f32(v.dtype(View::kDst), v.element(View::kDst, p, k), 2 * x + v.scalar(0, p));
      }
    }
  });
  i.imm0.kind = isa::ScalarOperand::Kind::kImmediate;
  i.imm0.value = 1.0f;
  for (int64_t k = 0; k < 8; ++k)
    isa::store_from_f32(Dtype::kF32, pair.memory.at(i.src0, 3, k), static_cast<float>(k));
  run(pair, i);
  CHECK(result(pair, i.dst, 3, 5) == 11.0f);
}

TEST_CASE("matrices of tiles of the array stand side by side until a load covers them") {
  Generator g(8);
  Pair pair;
  g.noise(pair.memory);
  const auto load = [&](isa::PeTile tile) {
    Instruction i;
    i.opcode = Opcode::kLoadStationary;
    i.engine = isa::Engine::kTensor;
    i.tile = tile;
    i.src0 = g.plain(isa::Space::kSbuf, Dtype::kBF16, 32, {32}, 1);
    return i;
  };
  const auto multiply = [&](isa::PeTile tile) {
    Instruction i;
    i.opcode = Opcode::kMultiplyMoving;
    i.engine = isa::Engine::kTensor;
    i.tile = tile;
    i.src0 = g.plain(isa::Space::kSbuf, Dtype::kBF16, 32, {64}, 2);
    i.dst = g.plain(isa::Space::kPsum, Dtype::kF32, 32, {64}, 0);
    return i;
  };
  const isa::PeTile a{0, 0, 32, 32}, b{32, 64, 32, 32};
  run(pair, load(a));
  run(pair, load(b));
  run(pair, multiply(a));
  run(pair, multiply(b));
  run(pair, load({0, 0, 64, 128}));
  for (const isa::PeTile& t : {a, b}) {
    const exec::Status status = pair.core.execute(pair.program, multiply(t), pair.bindings());
    CHECK(!status.ok());
    CHECK_THAT(status.message, ContainsSubstring("no stationary matrix is loaded in this tile"));
  }
}

TEST_CASE("a copy whose register leads outside stops the program, or is left out") {
  Generator g(9);
  Pair pair({4096});
  Instruction i;
  i.opcode = Opcode::kDmaCopy;
  i.engine = isa::Engine::kSync;
  i.dst = g.plain(isa::Space::kSbuf, Dtype::kF32, 128, {8}, 0);
  i.src0 = g.hbm(0, Dtype::kF32, {1024}, false);
  i.src0.offset = 0;
  i.src0.step[0] = 1;
  i.src0.address_register = 4;
  pair.core.set_reg(isa::Engine::kSync, 4, 4);
  pair.to_core();
  const exec::Status stopped = pair.core.execute(pair.program, i, pair.bindings());
  CHECK(stopped.kind == exec::Status::Kind::kOutOfBounds);
  i.flags = isa::kFlagSkipOutOfBounds;
  std::fill(pair.memory.sbuf.begin(), pair.memory.sbuf.end(), std::byte{1});
  run(pair, i);
  CHECK(*pair.core.sbuf(0, 0) == std::byte{1});
  pair.core.set_reg(isa::Engine::kSync, 4, 0);
  run(pair, i);
  CHECK(*pair.core.sbuf(0, 0) == std::byte{0});
}
