#include <array>
#include <cmath>

#include "tests/cpp/catch.h"
#include "tests/cpp/kernels/rig.h"

namespace trnsim::compiler::test {
namespace {

// Philox4x32-10, straight from its definition.
uint32_t philox_word(uint64_t key, uint64_t offset, uint64_t n) {
  const uint64_t counter = offset + n / 4;
  std::array<uint32_t, 4> c{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c[n % 4];
}

constexpr uint64_t kKey = 0x123456789abcdef1, kOffset = 0xfffffffffffffff0;

void stream(Rig& rig, RandomKernel* k) {
  k->philox_slot = rig.param_bits(static_cast<int32_t>(kKey));
  rig.param_bits(static_cast<int32_t>(kKey >> 32));
  rig.param_bits(static_cast<int32_t>(kOffset));
  rig.param_bits(static_cast<int32_t>(kOffset >> 32));
  k->probability.buffer = -1;
}

const std::vector<int64_t> kShapes[] = {{1}, {5}, {255}, {256}, {300, 7}, {1000, 401}};

TEST_CASE("random: bits are the words of the stream", "[random]") {
  for (const auto& shape : kShapes) {
    Rig rig;
    RandomKernel k;
    k.dist = RandomKernel::Dist::kBits;
    k.out = rig.output(Dtype::kI32, shape);
    stream(rig, &k);
    rig.run(k);
    const auto x = rig.read(k.out);
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i] != static_cast<double>(static_cast<int32_t>(philox_word(kKey, kOffset, i))))
        FAIL("element " << i);
  }
}

TEST_CASE("random: uniform is the word's upper bits", "[random]") {
  for (const auto& shape : kShapes) {
    for (Dtype d : {Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
      CAPTURE(shape, isa::dtype_name(d));
      const int bits = d == Dtype::kF32 ? 24 : d == Dtype::kBF16 ? 8 : 11;
      Rig rig;
      RandomKernel k;
      k.out = rig.output(d, shape);
      stream(rig, &k);
      rig.run(k);
      const auto x = rig.read(k.out);
      for (size_t i = 0; i < x.size(); ++i)
        if (x[i] != std::ldexp(static_cast<double>(philox_word(kKey, kOffset, i) >> (32 - bits)), -bits))
          FAIL("element " << i);
    }
  }
  Rig rig;
  RandomKernel k;
  k.out = rig.output(Dtype::kF32, {700});
  stream(rig, &k);
  k.param_a = rig.param(-3);
  k.param_b = rig.param(5);
  rig.run(k);
  const auto x = rig.read(k.out);
  for (size_t i = 0; i < x.size(); ++i)
    CHECK(x[i] == Approx(-3 + 8 * std::ldexp(static_cast<double>(philox_word(kKey, kOffset, i) >> 8), -24))
                      .margin(1e-6));
}

TEST_CASE("random: normal pairs, moments", "[random]") {
  for (const auto& shape : kShapes) {
    Rig rig;
    RandomKernel k;
    k.dist = RandomKernel::Dist::kNormal;
    k.out = rig.output(Dtype::kF32, shape);
    stream(rig, &k);
    k.param_a = rig.param(2);
    k.param_b = rig.param(3);
    rig.run(k);
    const auto x = rig.read(k.out);
    double sum = 0, squares = 0, worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double u =
          std::ldexp(static_cast<double>((philox_word(kKey, kOffset, i & ~size_t{1}) >> 8) + 1), -24);
      const double t =
          2 * M_PI * (std::ldexp(static_cast<double>(philox_word(kKey, kOffset, i | 1) >> 8), -24) - 0.5);
      const double z = std::sqrt(-2 * std::log(u)) * (i % 2 == 0 ? std::cos(t) : std::sin(t));
      worst = std::max(worst, std::fabs(x[i] - (2 + 3 * z)));
      sum += x[i];
      squares += (x[i] - 2) * (x[i] - 2);
    }
    CHECK(worst < 1e-3);
    if (x.size() > 100000) {
      CHECK(sum / static_cast<double>(x.size()) == Approx(2).margin(0.02));
      CHECK(squares / static_cast<double>(x.size()) == Approx(9).margin(0.1));
    }
  }
}

TEST_CASE("random: bernoulli with one or many probabilities, strided result", "[random]") {
  Rig rig;
  RandomKernel k;
  k.dist = RandomKernel::Dist::kBernoulli;
  k.out = rig.output(Dtype::kBool, {40, 50});
  stream(rig, &k);
  k.param_a = rig.param(0.3f);
  rig.run(k);
  const auto uniform = [](size_t i) {
    return std::ldexp(static_cast<double>(philox_word(kKey, kOffset, i) >> 8), -24);
  };
  auto x = rig.read(k.out);
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] != (uniform(i) < static_cast<double>(0.3f) ? 1 : 0)) FAIL("element " << i);
  Rig many;
  k.out = many.output(Dtype::kF32, {41, 50}, {1, 41});
  stream(many, &k);
  k.param_a = -1;
  k.probability = many.input(Dtype::kF32, {41, 50}, {0, 1});
  many.fill(k.probability, 0, 1);
  many.run(k);
  x = many.read(k.out);
  const auto p = many.read(k.probability);
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] != (uniform(i) < p[i] ? 1 : 0)) FAIL("element " << i);
}

}  // namespace
}  // namespace trnsim::compiler::test
