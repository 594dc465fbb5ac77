// Batched products, softmax and attention.
#include <algorithm>

#include "tools/fidelity/kernels/kernels.h"
#include "tools/fidelity/kernels/split.h"

namespace trnsim::fidelity {

using isa::ActFunc;
using isa::AluOp;
using isa::Dtype;
using isa::Engine;

namespace {
constexpr int64_t kTile = 128, kColumns = 512;

Engine alternate(int* turn) { return (*turn)++ % 2 == 0 ? Engine::kScalar : Engine::kVector; }
}  // namespace

// out[b] = lhs[b] rhs[b], optionally softmax over the columns. rhs[b] stays in SBUF; `sub` row tiles are transposed
// together before their products.
isa::Program bmm(const Params& p, const config::Config& c) {
  const int64_t batch = p.number("batch"), m = p.number("m"), depth = p.number("k"), n = p.number("n");
  const int64_t sub = p.number("sub", 1);
  const Dtype main = p.dtype("main");
  const bool softmax = p.number("softmax", 0) != 0, negated = p.number("negated_max", 0) != 0;
  const bool fused_sum = p.number("fused_sum", 0) != 0;
  Kernel k("bmm", c);
  const auto rows = static_cast<int>(depth);
  Ring rhs = k.sbuf(2, n, Dtype::kF32, rows), rhs_main = k.sbuf(main == Dtype::kF32 ? 0 : 2, n, main, rows);
  Ring lhs = k.sbuf(static_cast<int>(std::max<int64_t>(4, sub)), depth),
       turned = k.sbuf(static_cast<int>(sub), kTile, main, rows);
  Ring small = k.psum(4, kTile), psum = k.psum(4, kColumns);
  Ring out = k.sbuf(softmax ? 2 : 8, softmax ? n : kColumns), column = k.sbuf(32, 1);
  int turn = 0;
  for (int64_t b = 0; b < batch; ++b) {
    Tile r = rhs.next();
    k.load(r, 0);
    if (main != Dtype::kF32) {
      const Tile cast = rhs_main.next();
      k.copy(Engine::kVector, cast, r);
      r = cast;
    }
    for (int64_t i = 0; i < m / kTile; i += sub) {
      std::vector<Tile> left;
      for (int64_t s = 0; s < sub; ++s) {
        const Tile x = lhs.next(), t = small.next().rows(depth);
        k.load(x, 1);
        k.transpose(t, x);
        left.push_back(turned.next());
        k.copy(alternate(&turn), left.back(), t);
      }
      for (const Tile& l : left) {
        if (!softmax) {
          for (int64_t j = 0; j < n / kColumns; ++j) {
            const Tile acc = psum.next(), y = out.next();
            k.matmul(acc, l, r.columns(j * kColumns, kColumns), false);
            k.copy(alternate(&turn), y, acc);
            k.store(y, 2);
          }
          continue;
        }
        const Tile y = out.next();
        for (int64_t j = 0; j < n / kColumns; ++j) {
          const Tile acc = psum.next();
          k.matmul(acc, l, r.columns(j * kColumns, kColumns), false);
          k.copy(Engine::kScalar, y.columns(j * kColumns, kColumns), acc);
        }
        const Tile top = column.next(), sum = column.next();
        k.reduce(top, y, AluOp::kMax);
        if (!negated) k.tensor_scalar(top, top);
        if (fused_sum) {
          k.activation_sum(ActFunc::kExp, y, y, top, sum);
        } else {
          k.activation(ActFunc::kExp, y, y, top);
          k.reduce(sum, y, AluOp::kAdd);
        }
        k.reciprocal(sum, sum);
        k.tensor_scalar(y, y, sum);
        k.store(y, 2);
      }
    }
  }
  return k.finish();
}

// Attention with Q, K and V resident. fused: one pass on the chip, division after the second product. Otherwise three
// passes over all rows with the score rows in HBM between them.
isa::Program attention(const Params& p, const config::Config& c) {
  const int64_t length = p.number("length");
  const Dtype in = p.dtype("dtype");
  const bool fused = p.text("variant", "fused") == "fused";
  Kernel k("attention", c);
  p.dma_mode(&k);
  const Tile q = k.one(length, in), keys = k.one(length, in), values = k.one(length, in);
  const Dtype inner = Dtype::kF32;
  k.load(q, 0);
  k.load(keys, 1);
  k.load(values, 2);
  // The second product runs on fp32 exponentials, so 16-bit values are widened once.
  Tile v = values;
  if (in != inner) {
    v = k.one(length, inner);
    k.copy(Engine::kVector, v, values);
  }
  Ring scores = k.psum(2, kColumns), turned = k.psum(4, kTile), result = k.psum(2, kTile);
  Ring row = k.sbuf(2, length), weights = k.sbuf(2, length), column = k.sbuf(64, 1);
  Ring parts = k.sbuf(8, std::max<int64_t>(length / kColumns, 1)), kept = k.sbuf(8, kTile),
       out = k.sbuf(2, kTile);
  const int64_t blocks = length / kColumns, tiles = length / kTile;
  std::vector<Tile> spill_scores, spill_weights;
  int turn = 0;

  const auto product = [&](int64_t i, const Tile& y) {
    for (int64_t j = 0; j < blocks; ++j) {
      const Tile acc = scores.next();
      k.matmul(acc, q.columns(i * kTile, kTile), keys.columns(j * kColumns, kColumns), false);
      k.copy(Engine::kScalar, y.columns(j * kColumns, kColumns), acc);
    }
  };
  // Returns the reciprocal of the row sum.
  const auto softmax = [&](const Tile& y, const Tile& e) {
    const Tile tops = parts.next(), sums = parts.next(), top = column.next(), sum = column.next();
    for (int64_t j = 0; j < blocks; ++j)
      k.reduce(tops.columns(j, 1), y.columns(j * kColumns, kColumns), AluOp::kMax);
    k.reduce(top, tops, AluOp::kMax);
    k.tensor_scalar(top, top);
    for (int64_t j = 0; j < blocks; ++j) {
      const Tile part = e.columns(j * kColumns, kColumns);
      k.activation(ActFunc::kExp, part, y.columns(j * kColumns, kColumns), top);
      k.reduce(sums.columns(j, 1), part, AluOp::kAdd);
    }
    k.reduce(sum, sums, AluOp::kAdd);
    k.reciprocal(sum, sum);
    return sum;
  };
  const auto context = [&](const Tile& e) {
    const Tile acc = result.next();
    std::vector<Tile> left;
    for (int64_t t = 0; t < tiles; ++t) {
      const Tile x = turned.next(), y = kept.next();
      k.transpose(x, e.columns(t * kTile, kTile));
      k.copy(alternate(&turn), y, x);
      k.matmul(acc, y, v.columns(t * kTile, kTile), t > 0);
    }
    return acc;
  };

  const int64_t count = length / kTile;
  if (fused) {
    for (int64_t i = 0; i < count; ++i) {
      const Tile y = row.next(), e = weights.next(), o = out.next();
      product(i, y);
      const Tile scale = softmax(y, e);
      k.tensor_scalar(o, context(e), scale);
      k.store(o, 3);
    }
    return k.finish();
  }
  for (int64_t i = 0; i < count; ++i) {
    const Tile y = row.next();
    product(i, y);
    spill_scores.push_back(k.scratch(kTile, length));
    k.store_to(spill_scores.back(), y, 4);
  }
  for (int64_t i = 0; i < count; ++i) {
    const Tile y = row.next(), e = weights.next();
    k.load_from(y, spill_scores[static_cast<size_t>(i)], 5);
    const Tile scale = softmax(y, e);
    k.tensor_scalar(e, e, scale);
    spill_weights.push_back(k.scratch(kTile, length));
    k.store_to(spill_weights.back(), e, 6);
  }
  for (int64_t i = 0; i < count; ++i) {
    const Tile e = weights.next(), o = out.next();
    k.load_from(e, spill_weights[static_cast<size_t>(i)], 7);
    k.copy(Engine::kVector, o, context(e));
    k.store(o, 3);
  }
  return k.finish();
}

// Grouped-query attention over whole rows of scores, fp32: one row of 16 KiB per partition, so the row tiles follow
// one another; Scalar empties the PSUM.
isa::Program gqa(const Params& p, const config::Config& c) {
  const int64_t length = p.number("length"), heads = p.number("heads"), groups = p.number("kv_heads");
  const int64_t sub = p.number("sub", 1);
  const bool two_phase = p.number("two_phase", 1) != 0, fold = p.number("fold_scale", 0) != 0;
  const bool deferred = p.number("deferred", 0) != 0, no_max = p.number("no_max", 0) != 0;
  const int64_t score_products = p.number("score_products", 1);
  Kernel k("gqa", c);
  const int64_t blocks = length / kColumns, tiles = length / kTile;
  Ring keys = k.sbuf(2, length), values = k.sbuf(2, length), raw = k.sbuf(3, kTile);
  const bool split = score_products > 1;
  Ring keys_high = k.sbuf(split ? 2 : 0, length, Dtype::kBF16),
       keys_low = k.sbuf(split ? 2 : 0, length, Dtype::kBF16);
  Ring q_high = k.sbuf(split ? 4 : 0, kTile, Dtype::kBF16),
       q_low = k.sbuf(split ? 4 : 0, kTile, Dtype::kBF16);
  std::optional<Splitter> split_keys, split_query;
  if (split) {
    split_keys.emplace(&k, kColumns);
    split_query.emplace(&k, kTile);
  }
  Ring query = k.sbuf(static_cast<int>(2 * sub), kTile), row = k.sbuf(1, length), column = k.sbuf(32, 1);
  Ring kept = k.sbuf(static_cast<int>(tiles), kTile), out = k.sbuf(3, kTile);
  const Tile zero = k.one(1);
  k.memset(Engine::kVector, zero);
  Ring scores = k.psum(2, kColumns), turned = k.psum(4, kTile), result = k.psum(2, kTile);
  const auto turn_in = [&](const Tile& dst) {
    const Tile x = raw.next(), t = turned.next();
    k.load(x, 1);
    k.transpose(t, x);
    k.copy(Engine::kScalar, dst, t);
  };
  Tile kt, v, kh, kl;
  for (int64_t h = 0; h < heads; ++h) {
    if (h % (heads / groups) == 0) {
      kt = keys.next();
      v = values.next();
      for (int64_t t = 0; t < tiles; ++t) {
        turn_in(kt.columns(t * kTile, kTile));
        k.load(v.columns(t * kTile, kTile), 0);
      }
      if (split) {
        kh = keys_high.next();
        kl = keys_low.next();
        for (int64_t j = 0; j < blocks; ++j) {
          const auto part = [&](const Tile& t) { return t.columns(j * kColumns, kColumns); };
          (*split_keys)(part(kt), {part(kh), part(kl)});
        }
      }
    }
    for (int64_t i = 0; i < tiles; i += sub) {
      std::vector<Tile> qs;
      for (int64_t s = 0; s < sub; ++s) {
        qs.push_back(query.next());
        turn_in(qs.back());
      }
      for (const Tile& q : qs) {
        const Tile y = row.next(), top = column.next(), sum = column.next();
        Tile qh, ql;
        if (split) {
          qh = q_high.next();
          ql = q_low.next();
          (*split_query)(q, {qh, ql});
        }
        for (int64_t j = 0; j < blocks; ++j) {
          const Tile acc = scores.next();
          if (split) {
            k.matmul(acc, qh, kh.columns(j * kColumns, kColumns), false);
            k.matmul(acc, qh, kl.columns(j * kColumns, kColumns), true);
            k.matmul(acc, ql, kh.columns(j * kColumns, kColumns), true);
          } else {
            k.matmul(acc, q, kt.columns(j * kColumns, kColumns), false);
          }
          k.copy(Engine::kScalar, y.columns(j * kColumns, kColumns), acc);
        }
        if (!fold) k.tensor_scalar(y, y);
        if (!no_max) {
          k.reduce(top, y, AluOp::kMax);
          k.tensor_scalar(top, top);
        }
        k.activation(ActFunc::kExp, y, y, no_max ? zero : top);
        k.reduce(sum, y, AluOp::kAdd);
        k.reciprocal(sum, sum);
        if (!deferred) k.tensor_scalar(y, y, sum);
        const Tile acc = result.next(), o = out.next();
        std::vector<Tile> left;
        for (int64_t t = 0; t < tiles; ++t) {
          const Tile x = turned.next();
          left.push_back(kept.next());
          k.transpose(x, y.columns(t * kTile, kTile));
          k.copy(Engine::kScalar, left.back(), x);
          if (!two_phase) k.matmul(acc, left.back(), v.columns(t * kTile, kTile), t > 0);
        }
        for (int64_t t = 0; t < tiles && two_phase; ++t)
          k.matmul(acc, left[static_cast<size_t>(t)], v.columns(t * kTile, kTile), t > 0);
        if (deferred) {
          k.tensor_scalar(o, acc, sum);
        } else {
          k.copy(Engine::kVector, o, acc);
        }
        k.store(o, 2);
      }
    }
  }
  return k.finish();
}

}  // namespace trnsim::fidelity
