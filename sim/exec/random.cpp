// The random generators of the Vector and GpSimd engines. Their polynomials and seeding are not public: these
// have the documented kind and state size.
#include "sim/exec/block.h"

namespace trnsim::exec {
namespace {

using isa::Engine;

// XORWOW (Marsaglia 2003): five words of xorshift and a Weyl counter.
constexpr int kXorwowWords = 6;
uint32_t xorwow(uint32_t* s) {
  const uint32_t t = s[0] ^ (s[0] >> 2);
  s[0] = s[1];
  s[1] = s[2];
  s[2] = s[3];
  s[3] = s[4];
  s[4] = (s[4] ^ (s[4] << 4)) ^ (t ^ (t << 1));
  s[5] += 362437;
  return s[4] + s[5];
}

// Galois LFSR x^32 + x^22 + x^2 + x + 1, one word per 32 steps.
uint32_t lfsr(uint32_t* s) {
  uint32_t v = s[0];
  for (int i = 0; i < 32; ++i) v = (v >> 1) ^ ((0u - (v & 1)) & 0x80200003u);
  return s[0] = v;
}

bool has_lfsr(const Core::Impl& core, Engine e) {
  return e == Engine::kVector && !core.numerics.vector_xorwow;
}
int streams(Engine e) { return e == Engine::kVector ? 4 : 1; }

// Word of element `k` of a partition.
uint32_t next_word(Context& c, const Prepared& p, int partition, int64_t k) {
  uint32_t* s = c.core.generators[static_cast<size_t>(p.engine)].state[static_cast<size_t>(partition)].data();
  if (has_lfsr(c.core, p.engine)) return lfsr(s);
  return xorwow(s + kXorwowWords * (k % streams(p.engine)));
}

// 24 random bits as a fraction in [0, 1).
float fraction(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

}  // namespace

void seed_generators(Core::Impl& core, Engine e, uint32_t seed) {
  auto& lanes = core.generators[static_cast<size_t>(e)].state;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    for (size_t w = 0; w < kGeneratorWords; ++w) {
      // Never all zero: the generators would stay there.
      lanes[lane][w] =
          static_cast<uint32_t>(mixed(uint64_t{seed} << 32, lane * 64 + w)) | (w % kXorwowWords == 0 ? 1 : 0);
    }
  }
}

void execute_rng(Context& c, const Prepared& p) {
  const Operand& dst = *p.dst;
  std::byte* d = c.at(p, dst);
  for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
    for (int r = 0; r < rows; ++r) {
      for (int j = 0; j < n; ++j) {
        c.work.i[0][r * n + j] = next_word(c, p, dst.first_partition + partition + r, first + j);
      }
    }
    store_int_block(dst, d, partition, rows, first, n, c.work.i[0]);
  });
}

void execute_rand2(Context& c, const Prepared& p) {
  const Operand& dst = *p.dst;
  std::byte* d = c.at(p, dst);
  constexpr float kZero = 0.0f;
  const Column low = scalar_column(c, p, p.imm0, 0, &kZero);
  const Column high = scalar_column(c, p, p.imm1, 1, &kZero);
  for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
    for (int r = 0; r < rows; ++r) {
      const float a = low.data[(partition + r) * low.step], b = high.data[(partition + r) * high.step];
      for (int j = 0; j < n; ++j) {
        const float scaled =
            fraction(next_word(c, p, dst.first_partition + partition + r, first + j)) * (b - a);
        c.work.f[0][r * n + j] = scaled + a;
      }
    }
    store_block(dst, d, partition, rows, first, n, c.work.f[0]);
  });
}

void execute_dropout(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0;
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  constexpr float kZero = 0.0f;
  const Column probability = scalar_column(c, p, p.imm0, 0, &kZero);
  for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
    std::byte* values = c.work.raw[0];
    load_raw_block(src, s, partition, rows, first, n, values);
    for (int r = 0; r < rows; ++r) {
      const float drop = probability.data[(partition + r) * probability.step];
      for (int j = 0; j < n; ++j) {
        if (fraction(next_word(c, p, dst.first_partition + partition + r, first + j)) < drop) {
          std::fill_n(values + (r * n + j) * dst.bytes, dst.bytes, std::byte{0});
        }
      }
    }
    store_raw_block(dst, d, partition, rows, first, n, values);
  });
}

void execute_set_rng_seed(Context& c, const Prepared& p) {
  uint32_t seed = 0;
  load_raw_block(*p.src0, c.at(p, *p.src0), 0, 1, 0, 1, reinterpret_cast<std::byte*>(&seed));
  seed_generators(c.core, p.engine, seed);
}

void execute_rand_get_state(Context& c, const Prepared& p) {
  const Operand& dst = *p.dst;
  std::byte* d = c.at(p, dst);
  auto& lanes = c.core.generators[static_cast<size_t>(p.engine)].state;
  for (int i = 0; i < dst.rows; ++i) {
    const auto& words = lanes[static_cast<size_t>(dst.first_partition + i)];
    store_raw_block(dst, d, i, 1, 0, static_cast<int>(dst.n),
                    reinterpret_cast<const std::byte*>(words.data()));
  }
}

void execute_rand_set_state(Context& c, const Prepared& p) {
  const Operand& src = *p.src0;
  const std::byte* s = c.at(p, src);
  auto& lanes = c.core.generators[static_cast<size_t>(p.engine)].state;
  for (int i = 0; i < src.rows; ++i) {
    auto& words = lanes[static_cast<size_t>(src.first_partition + i)];
    load_raw_block(src, s, i, 1, 0, static_cast<int>(src.n), reinterpret_cast<std::byte*>(words.data()));
  }
}

}  // namespace trnsim::exec
