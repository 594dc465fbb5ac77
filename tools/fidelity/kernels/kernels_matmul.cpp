// Tiled matrix multiplications and what is fused to them.
#include <algorithm>
#include <deque>
#include <optional>
#include <stdexcept>

#include "tools/fidelity/kernels/kernels.h"
#include "tools/fidelity/kernels/split.h"

namespace trnsim::fidelity {

using isa::ActFunc;
using isa::AluOp;
using isa::Dtype;
using isa::Engine;

namespace {

constexpr int64_t kTile = 128, kColumns = 512;

// Copies out of PSUM go to Scalar and Vector in turn.
class Drain {
 public:
  explicit Drain(Kernel* k) : k_(k) {}
  void operator()(const Tile& dst, const Tile& src) {
    k_->copy(scalar_ ? Engine::kScalar : Engine::kVector, dst, src);
    scalar_ = !scalar_;
  }

 private:
  Kernel* k_;
  bool scalar_ = true;
};

Operand columns(const Operand& o, int64_t first, int64_t n) {
  Operand out{o.high.columns(first, n), {}};
  if (o.low) out.low = o.low->columns(first, n);
  return out;
}

// One tile product as `products` multiplications: the plain one, or 3 or 4 of the 16-bit parts.
void multiply(Kernel* k, const Tile& dst, const Operand& weights, const Operand& moving, bool accumulate,
              int64_t products) {
  k->matmul(dst, weights.high, moving.high, accumulate);
  if (products >= 3) {
    k->matmul(dst, weights.high, *moving.low, true);
    k->matmul(dst, *weights.low, moving.high, true);
  }
  if (products >= 4) k->matmul(dst, *weights.low, *moving.low, true);
}

// Buffers for operands of `elements`: fp32, or the 16-bit parts that `products` asks for.
struct OperandRing {
  Ring high, low;
  bool two = false;
  OperandRing(Kernel* k, int copies, int64_t elements, Dtype main, int64_t products, int partitions = 128)
      : high(k->sbuf(copies, elements, main, partitions)), two(products > 1) {
    if (two) low = k->sbuf(copies, elements, main, partitions);
  }
  Operand next() {
    Operand o{high.next(), {}};
    if (two) o.low = low.next();
    return o;
  }
};

// Rows [128, depth] to `depth/128` stationary tiles side by side in `dst`.
void transpose_row(Kernel* k, Drain* drain, Ring* psum, const Tile& row, const Operand& dst, int64_t depth,
                   int64_t products, Ring* whole, Splitter* split) {
  for (int64_t t = 0; t < depth / kTile; ++t) {
    const Tile turned = psum->next().columns(0, kTile);
    k->transpose(turned, row.columns(t * kTile, kTile));
    const Operand out = columns(dst, t * kTile, kTile);
    if (products > 1) {
      const Tile f = whole->next();
      (*drain)(f, turned);
      (*split)(f, out);
    } else {
      (*drain)(out.high, turned);
    }
  }
}

}  // namespace

// C[m, n] = A[m, k] B[k, n]. `lhs` given: the left operand comes transposed and its tiles are loaded inside the k
// loop; rows: rows of it are loaded and transposed on the array. Blocks of `block_m` x `block_n` output tiles
// share the loaded tiles. `rank` > 0 adds a low-rank term (A P) Q.
isa::Program matmul(const Params& p, const config::Config& c) {
  const int64_t m = p.number("m"), depth = p.number("k"), n = p.number("n");
  const int64_t block_m = p.number("block_m", 1), block_n = p.number("block_n", 1);
  const int64_t products = p.number("products", 1), rank = p.number("rank", 0);
  const bool given = p.text("lhs", "rows") == "given";
  const Dtype in = p.dtype("dtype");
  const Dtype main = products > 1 || p.is("main", "bf16") ? Dtype::kBF16 : in;
  const bool cast = main != in;
  const int ahead = static_cast<int>(p.number("ahead", 4));
  Kernel k("matmul", c);
  p.dma_mode(&k);
  Drain drain(&k);
  if (block_m * block_n > isa::kPsumBanks)
    throw std::runtime_error("matmul: " + std::to_string(block_m * block_n) +
                             " accumulators do not fit the " + std::to_string(isa::kPsumBanks) +
                             " PSUM banks");
  const int64_t tiles = depth / kTile;
  Ring psum = k.psum(8, kColumns);
  Ring raw = k.sbuf(ahead, kColumns * block_n, in);
  std::optional<OperandRing> parts;
  if (cast) parts.emplace(&k, 4, kColumns * block_n, main, products);
  std::optional<Splitter> split;
  if (cast) split.emplace(&k, kColumns * block_n);
  Ring out = k.sbuf(4, kColumns);
  // Stationary tiles of a block of rows.
  std::optional<Ring> row, given_tiles, whole;
  std::optional<OperandRing> stationary, low_rank;
  std::optional<Tile> first_factor;
  if (given) {
    given_tiles = k.sbuf(ahead, kTile * block_m, in);
  } else {
    row = k.sbuf(block_m > 4 ? 1 : 2, depth, in);
    const int64_t bytes = depth * static_cast<int64_t>(isa::dtype_bytes(main)) * (products > 1 ? 2 : 1);
    const int copies =
        static_cast<int>(std::min<int64_t>(2 * block_m, std::max(block_m, 112 * 1024 / bytes)));
    stationary.emplace(&k, copies, depth, main, products);
    if (products > 1) whole = k.sbuf(4, kTile);
  }
  if (rank > 0) {
    low_rank.emplace(&k, static_cast<int>(2 * block_m), kTile, main, products);
    first_factor = k.one(tiles * rank, main);
    k.load(*first_factor, 5);
  }
  Ring second = k.sbuf(rank > 0 ? 2 : 0, kColumns, main);
  Ring scratch = k.sbuf(rank > 0 ? 2 : 0, kTile);

  for (int64_t mb = 0; mb < m / kTile; mb += block_m) {
    std::vector<Operand> left, projected;
    for (int64_t b = 0; b < block_m && !given; ++b) {
      const Tile x = row->next();
      k.load(x, 0);
      left.push_back(stationary->next());
      transpose_row(&k, &drain, &psum, x, left.back(), depth, products, products > 1 ? &*whole : nullptr,
                    split ? &*split : nullptr);
      if (rank > 0) {
        const Tile small = psum.next().columns(0, rank);
        for (int64_t t = 0; t < tiles; ++t)
          k.matmul(small, left.back().high.columns(t * kTile, kTile), first_factor->columns(t * rank, rank),
                   t > 0);
        const Tile kept = scratch.next();
        drain(kept, small);
        const Tile turned = psum.next().columns(0, kTile);
        k.transpose(turned, kept);
        projected.push_back(low_rank->next());
        drain(projected.back().high, turned);
      }
    }
    for (int64_t nb = 0; nb < n / kColumns; nb += block_n) {
      const std::vector<Tile> sums = psum.take(block_m * block_n);
      for (int64_t t = 0; t < tiles; ++t) {
        Tile lhs;
        if (given) {
          lhs = given_tiles->next();
          k.load(lhs, 0);
        }
        const Tile r = raw.next();
        k.load(r, 1 + static_cast<int>(t % 2));
        Operand right{r, {}};
        if (cast) {
          right = parts->next();
          (*split)(r, right);
        }
        for (int64_t b = 0; b < block_m; ++b) {
          const Operand w = given ? Operand{lhs.columns(b * kTile, kTile), {}}
                                  : columns(left[static_cast<size_t>(b)], t * kTile, kTile);
          for (int64_t j = 0; j < block_n; ++j)
            multiply(&k, sums[static_cast<size_t>(b * block_n + j)], w,
                     columns(right, j * kColumns, kColumns), t > 0, products);
        }
      }
      if (rank > 0) {
        const Tile q = second.next();
        k.load(q, 6);
        for (int64_t b = 0; b < block_m; ++b)
          k.matmul(sums[static_cast<size_t>(b)], projected[static_cast<size_t>(b)].high, q, true);
      }
      for (const Tile& s : sums) {
        const Tile y = out.next();
        drain(y, s);
        k.store(y, 4);
      }
    }
  }
  return k.finish();
}

// fp8 with pairs of rows: K in steps of 256, every operand tile read once, all output tiles accumulate at the same time.
isa::Program matmul_double_row(const Params& p, const config::Config& c) {
  const int64_t m = p.number("m"), depth = p.number("k"), n = p.number("n");
  Kernel k("matmul_double_row", c);
  Drain drain(&k);
  Ring lhs = k.sbuf(4, 2 * m, Dtype::kF8E4M3), rhs = k.sbuf(4, 2 * n, Dtype::kF8E4M3),
       out = k.sbuf(4, kColumns);
  const std::vector<Tile> sums =
      k.psum(static_cast<int>(m / kTile * (n / kColumns)), kColumns).take(m / kTile * (n / kColumns));
  for (int64_t t = 0; t < depth / (2 * kTile); ++t) {
    const Tile l = lhs.next(), r = rhs.next();
    k.load(l, 0);
    k.load(r, 1);
    for (size_t s = 0; s < sums.size(); ++s) {
      const auto i = static_cast<int64_t>(s) / (n / kColumns), j = static_cast<int64_t>(s) % (n / kColumns);
      Tile w = l.shaped({2, kTile}, {m, 1}), x = r.shaped({2, kColumns}, {n, 1});
      w.access.offset += i * kTile;
      x.access.offset += j * kColumns;
      k.matmul(sums[s], w, x, t > 0);
    }
  }
  for (const Tile& s : sums) {
    const Tile y = out.next();
    drain(y, s);
    k.store(y, 2);
  }
  return k.finish();
}

// bf16 blocks of 512 columns, 1024 deep, 512 rows; partial sums are added up in SBUF on Vector.
isa::Program matmul_accumulate(const Params& p, const config::Config& c) {
  const int64_t size = p.number("size");
  const Dtype dtype = p.dtype("dtype");
  Kernel k("matmul_accumulate", c);
  p.dma_mode(&k);
  const int64_t deep = 1024, block = 512;
  Ring rhs = k.sbuf(16, block, dtype), lhs = k.sbuf(16, block, dtype), part = k.sbuf(4, block, dtype);
  Ring sums = k.sbuf(static_cast<int>(size / kTile), block, dtype), psum = k.psum(8, block);
  for (int64_t nb = 0; nb < size / block; ++nb) {
    const std::vector<Tile> total = sums.take(size / kTile);
    for (int64_t kb = 0; kb < size / deep; ++kb) {
      const std::vector<Tile> right = rhs.take(deep / kTile);
      for (const Tile& r : right) k.load(r, 1);
      for (int64_t mb = 0; mb < size / block; ++mb) {
        const std::vector<Tile> left = lhs.take(deep / kTile);
        for (const Tile& l : left) k.load(l, 0);
        for (int64_t t = 0; t < block / kTile; ++t) {
          const Tile acc = psum.next();
          k.memset(Engine::kVector, acc);
          for (size_t d = 0; d < right.size(); ++d)
            k.matmul(acc, left[d].columns(t * kTile, kTile), right[d], true);
          const Tile& sum = total[static_cast<size_t>(mb * 4 + t)];
          if (kb == 0) {
            k.copy(Engine::kScalar, sum, acc);
          } else {
            const Tile y = part.next();
            k.copy(Engine::kScalar, y, acc);
            k.tensor_tensor(sum, sum, y, Engine::kVector, AluOp::kAdd);
          }
        }
      }
    }
    for (const Tile& t : total) k.store(t, 2);
  }
  return k.finish();
}

// Rows are normalised by their mean square and multiplied by a resident matrix. scale: before or after the
// multiplication; transpose: array, or load (a transposing DMA); order: banks in turn or four at once.
isa::Program rmsnorm_matmul(const Params& p, const config::Config& c) {
  const int64_t m = p.number("m"), depth = p.number("k"), n = p.number("n");
  const int64_t products = p.number("products", 1);
  const bool add = p.number("add", 0) != 0, after = p.is("scale", "after"),
             by_load = p.is("transpose", "load");
  const bool k_outer = p.is("order", "k outer");
  const Dtype main = products > 1 ? Dtype::kBF16 : Dtype::kF32;
  Kernel k("rmsnorm_matmul", c);
  Drain drain(&k);
  const int64_t tiles = depth / kTile;
  Ring psum = k.psum(8, kColumns), whole = k.sbuf(2, kTile);
  OperandRing weights(&k, static_cast<int>(tiles), n, main, products);
  std::vector<Operand> w;
  Ring staged = k.sbuf(products > 1 ? 2 : 0, n);
  std::optional<Splitter> split;
  if (products > 1) split.emplace(&k, n);
  for (int64_t t = 0; t < tiles; ++t) {
    w.push_back(weights.next());
    if (products > 1) {
      const Tile s = staged.next();
      k.load(s, 1);
      (*split)(s, w.back());
    } else {
      k.load(w.back().high, 1);
    }
  }
  Ring row = k.sbuf(3, depth), other = k.sbuf(add ? 3 : 0, depth), square = k.sbuf(2, depth);
  Ring column = k.sbuf(8, 1), out = k.sbuf(4, kColumns);
  const Tile zero = k.one(1);
  k.memset(Engine::kVector, zero);
  OperandRing turned(&k, 2, depth, main, products);
  for (int64_t i = 0; i < m / kTile; ++i) {
    const Tile x = row.next();
    k.load(x, 0);
    if (add) {
      const Tile y = other.next();
      k.load(y, 2);
      k.tensor_tensor(x, x, y, Engine::kVector, AluOp::kAdd);
    }
    const Tile sum = column.next(), root = column.next();
    k.activation_sum(ActFunc::kSquare, square.next(), x, zero, sum);
    k.activation(ActFunc::kRsqrt, root, sum, zero);
    if (!after) k.tensor_scalar(x, x, root);
    const Operand left = turned.next();
    if (by_load) {
      for (int64_t t = 0; t < tiles; ++t) k.load_transposed(left.high.columns(t * kTile, kTile), 3);
    } else {
      transpose_row(&k, &drain, &psum, x, left, depth, products, &whole, split ? &*split : nullptr);
    }
    const int64_t blocks = n / kColumns;
    const std::vector<Tile> sums = psum.take(blocks);
    const auto one = [&](int64_t b, int64_t t) {
      multiply(&k, sums[static_cast<size_t>(b)], columns(left, t * kTile, kTile),
               columns(w[static_cast<size_t>(t)], b * kColumns, kColumns), t > 0, products);
    };
    const auto finish = [&](int64_t b) {
      const Tile y = out.next();
      if (after) {
        k.tensor_scalar(y, sums[static_cast<size_t>(b)], root);
      } else {
        drain(y, sums[static_cast<size_t>(b)]);
      }
      k.store(y, 4);
    };
    if (k_outer) {
      for (int64_t t = 0; t < tiles; ++t)
        for (int64_t b = 0; b < blocks; ++b) one(b, t);
      for (int64_t b = 0; b < blocks; ++b) finish(b);
    } else {
      for (int64_t b = 0; b < blocks; ++b) {
        for (int64_t t = 0; t < tiles; ++t) one(b, t);
        finish(b);
      }
    }
  }
  return k.finish();
}

// down(silu(x gate) * (x up)): weights stream in for every block of `block_m` row tiles.
isa::Program swiglu(const Params& p, const config::Config& c) {
  const int64_t m = p.number("m"), depth = p.number("k"), n = p.number("n"), block_m = p.number("block_m", 1);
  const int64_t up_products = p.number("up_products", 1), down_products = p.number("down_products", 1);
  Kernel k("swiglu", c);
  Drain drain(&k);
  const auto main = [](int64_t products) { return products > 1 ? Dtype::kBF16 : Dtype::kF32; };
  Ring psum = k.psum(6, kColumns), turned_psum = k.psum(2, kTile), raw_up = k.sbuf(6, kColumns),
       raw_down = k.sbuf(6, kColumns), whole = k.sbuf(2, kTile);
  Ring row = k.sbuf(block_m > 2 ? 1 : 2, depth), activated = k.sbuf(static_cast<int>(2 * block_m), kColumns),
       out = k.sbuf(3, kColumns);
  const int copies = static_cast<int>(block_m > 2 ? block_m : 2 * block_m);
  OperandRing left(&k, copies, depth, main(up_products), up_products);
  Ring hidden = k.sbuf(2, kColumns);
  OperandRing hidden_turned(&k, static_cast<int>(block_m), n, main(down_products), down_products);
  Splitter split(&k, kTile), split_up(&k, kColumns), split_down(&k, kColumns);
  // The parts of the weights are made ahead of their products, as far as the SBUF has room: of one product 48 tiles.
  const int64_t split_products = (up_products > 1) + (down_products > 1);
  const auto parts = static_cast<int>(
      std::min<int64_t>(n / kColumns * depth / kTile,
                        split_products == 0 ? 0 : k.sbuf_left() / (2 * 2 * kColumns * split_products)));
  OperandRing up_parts(&k, up_products > 1 ? parts : 0, kColumns, Dtype::kBF16, up_products);
  OperandRing down_parts(&k, down_products > 1 ? parts : 0, kColumns, Dtype::kBF16, down_products);
  int turn = 0;
  const auto weight = [&](Ring* raw, int64_t products, OperandRing* parts, Splitter* split) {
    const Tile r = raw->next();
    k.load(r, 1 + turn++ % 2);
    if (products == 1) return Operand{r, {}};
    Operand o = parts->next();
    (*split)(r, o);
    return o;
  };
  for (int64_t mb = 0; mb < m / kTile; mb += block_m) {
    std::vector<Operand> x, h;
    for (int64_t b = 0; b < block_m; ++b) {
      const Tile r = row.next();
      k.load(r, 0);
      x.push_back(left.next());
      h.push_back(hidden_turned.next());
      transpose_row(&k, &drain, &turned_psum, r, x.back(), depth, up_products, &whole, &split);
    }
    for (int64_t j = 0; j < n / kColumns; ++j) {
      const auto product = [&] {
        const std::vector<Tile> sums = psum.take(block_m);
        for (int64_t t = 0; t < depth / kTile; ++t) {
          const Operand w = weight(&raw_up, up_products, &up_parts, &split_up);
          for (int64_t b = 0; b < block_m; ++b)
            multiply(&k, sums[static_cast<size_t>(b)], columns(x[static_cast<size_t>(b)], t * kTile, kTile),
                     w, t > 0, up_products);
        }
        return sums;
      };
      std::vector<Tile> active;
      for (const Tile& gate : product()) {
        active.push_back(activated.next());
        k.activation(ActFunc::kSilu, active.back(), gate);
      }
      const std::vector<Tile> up = product();
      for (size_t b = 0; b < up.size(); ++b) {
        const Tile y = hidden.next();
        k.tensor_tensor(y, active[b], up[b]);
        for (int64_t t = 0; t < kColumns / kTile; ++t) {
          const Tile turned = turned_psum.next();
          k.transpose(turned, y.columns(t * kTile, kTile));
          const Operand dst = columns(h[b], j * kColumns + t * kTile, kTile);
          if (down_products > 1) {
            const Tile f = whole.next();
            drain(f, turned);
            split(f, dst);
          } else {
            drain(dst.high, turned);
          }
        }
      }
    }
    for (int64_t j = 0; j < depth / kColumns; ++j) {
      const std::vector<Tile> sums = psum.take(block_m);
      for (int64_t t = 0; t < n / kTile; ++t) {
        const Operand w = weight(&raw_down, down_products, &down_parts, &split_down);
        for (int64_t b = 0; b < block_m; ++b)
          multiply(&k, sums[static_cast<size_t>(b)], columns(h[static_cast<size_t>(b)], t * kTile, kTile), w,
                   t > 0, down_products);
      }
      for (const Tile& s : sums) {
        const Tile y = out.next();
        drain(y, s);
        k.store(y, 4);
      }
    }
  }
  return k.finish();
}

// gelu(X W + b), tiles 128 x 128 x 512 with both operands loaded inside the k loop. part: gemm and gelu are the two
// kernels of the baseline; fused does both, with the table function or a series of Vector operations. The streams keep
// the order of the program, with the loads as far ahead as their buffers allow: Scalar triggers every other one, so those
// of the next tile stand behind an activation that waits for Vector.
isa::Program mlp(const Params& p, const config::Config& c) {
  const int64_t m = p.number("m"), depth = p.number("k"), n = p.number("n");
  const Dtype dtype = p.dtype("dtype");
  const std::string part = p.text("part", "fused");
  const bool series = p.is("gelu", "series");
  Kernel k("mlp", c);
  p.dma_mode(&k);
  k.keep_order(Engine::kScalar);
  k.keep_order(Engine::kSync);
  const int64_t buffers = 4, outputs = m / kTile * (n / kColumns), steps = depth / kTile;
  Ring lhs = k.sbuf(static_cast<int>(buffers), kTile, dtype),
       rhs = k.sbuf(static_cast<int>(buffers), kColumns, dtype);
  Ring bias = k.sbuf(2, kColumns), sum = k.sbuf(static_cast<int>(buffers), kColumns),
       out = k.sbuf(3, kColumns);
  Ring t1 = k.sbuf(2, kColumns), t2 = k.sbuf(2, kColumns), psum = k.psum(4, kColumns);
  const auto gelu = [&](const Tile& y, const Tile& x) {
    if (!series) {
      k.activation(ActFunc::kGelu, y, x);
      return;
    }
    const Tile a = t1.next(), b = t2.next();
    k.tensor_tensor(a, x, x);
    k.tensor_tensor(a, a, x);
    k.tensor_scalar(a, a);
    k.tensor_tensor(a, a, x, Engine::kVector, AluOp::kAdd);
    k.tensor_scalar(a, a);
    k.activation(ActFunc::kSigmoid, b, a);
    for (int i = 0; i < 4; ++i) k.tensor_scalar(a, a);
    k.tensor_tensor(y, x, b);
  };
  struct Loaded {
    Tile left, right, bias;
  };
  std::deque<Loaded> loaded;
  int64_t next = 0;
  // What step `at` needs, after the loads of the steps behind it.
  const auto take = [&](int64_t at) {
    const int64_t all = part == "gelu" ? outputs : outputs * steps;
    for (; next < std::min(all, at + buffers); ++next) {
      Loaded l;
      if (part == "gelu") {
        l.left = sum.next();
        k.load(l.left, 0);
      } else {
        if (next % steps == 0) {
          l.bias = bias.next();
          k.load(l.bias, 2);
        }
        l.left = lhs.next();
        l.right = rhs.next();
        k.load(l.left, 0);
        k.load(l.right, 1);
      }
      loaded.push_back(l);
    }
    const Loaded front = loaded.front();
    loaded.pop_front();
    return front;
  };
  for (int64_t o = 0; o < outputs; ++o) {
    Tile s;
    if (part == "gelu") {
      s = take(o).left;
    } else {
      const Tile acc = psum.next();
      Tile row;
      for (int64_t t = 0; t < steps; ++t) {
        const Loaded l = take(o * steps + t);
        if (t == 0) row = l.bias;
        k.matmul(acc, l.left, l.right, t > 0);
      }
      s = sum.next();
      k.tensor_tensor(s, row, acc, Engine::kVector, AluOp::kAdd);
    }
    if (part == "gemm") {
      k.store(s, 3);
    } else {
      const Tile y = out.next();
      gelu(y, s);
      k.store(y, 3);
    }
  }
  return k.finish();
}

}  // namespace trnsim::fidelity
