// Kernels that stream rows through one or two engines.
#include <algorithm>
#include <deque>

#include "tools/fidelity/kernels/kernels.h"

namespace trnsim::fidelity {

using isa::ActFunc;
using isa::AluOp;
using isa::Dtype;
using isa::Engine;

// `iterations` times: two loads [partitions, width], one add, one store. With hardware descriptors one queue
// engine triggers all, and a store follows the loads of `lag` iterations later, as a scheduler would place it.
isa::Program vector_add(const Params& p, const config::Config& c) {
  const auto partitions = static_cast<int>(p.number("partitions"));
  const int64_t width = p.number("width"), iterations = p.number("iterations");
  const int64_t run = p.number("run", 0);
  const auto lag = static_cast<size_t>(p.number("lag", 4));
  const int copies = static_cast<int>(std::min<int64_t>(iterations, p.number("copies", 8)));
  Kernel k("vector_add", c);
  p.dma_mode(&k);
  if (k.loads.mode == isa::DgeMode::kHardware) k.stores = k.loads;
  Ring a = k.sbuf(copies, width, Dtype::kF32, partitions), b = k.sbuf(copies, width, Dtype::kF32, partitions),
       out = k.sbuf(copies, width, Dtype::kF32, partitions);
  std::deque<Tile> done;
  for (int64_t i = 0; i < iterations; ++i) {
    const Tile x = a.next(), y = b.next(), z = out.next();
    k.load(x, 0, run);
    k.load(y, 1, run);
    k.tensor_tensor(z, x, y, Engine::kVector, AluOp::kAdd);
    done.push_back(z);
    if (done.size() > lag) {
      k.store(done.front(), 2, run);
      done.pop_front();
    }
  }
  for (const Tile& z : done) k.store(z, 2, run);
  return k.finish();
}

isa::Program silu(const Params& p, const config::Config& c) {
  const int64_t width = p.number("width"), iterations = p.number("iterations");
  const auto copies = static_cast<int>(p.number("copies", 3));
  Kernel k("silu", c);
  Ring x = k.sbuf(copies, width), y = k.sbuf(copies, width);
  for (int64_t i = 0; i < iterations; ++i) {
    const Tile in = x.next(), out = y.next();
    k.load(in, 0);
    k.activation(ActFunc::kSilu, out, in);
    k.store(out, 1);
  }
  return k.finish();
}

// Four operands in, square and reciprocal root on Scalar, four fused multiply-adds on Vector, one result out.
isa::Program adamw(const Params& p, const config::Config& c) {
  const int64_t width = p.number("width"), iterations = p.number("iterations");
  const auto copies = static_cast<int>(p.number("copies", 2));
  Kernel k("adamw", c);
  Ring in[4] = {k.sbuf(copies, width), k.sbuf(copies, width), k.sbuf(copies, width), k.sbuf(copies, width)};
  Ring squared = k.sbuf(copies, width), root = k.sbuf(copies, width), out = k.sbuf(copies, width);
  for (int64_t i = 0; i < iterations; ++i) {
    Tile x[4];
    for (int o = 0; o < 4; ++o) {
      x[o] = in[o].next();
      k.load(x[o], o);
    }
    const Tile s = squared.next(), r = root.next(), y = out.next();
    k.activation(ActFunc::kSquare, s, x[1]);
    k.scalar_tensor_tensor(x[2], x[2], x[1]);  // first moment
    k.scalar_tensor_tensor(x[3], x[3], s);     // second moment
    k.activation(ActFunc::kRsqrt, r, x[3]);
    k.scalar_tensor_tensor(r, x[2], r);
    k.scalar_tensor_tensor(y, x[0], r);
    k.store(y, 4);
  }
  return k.finish();
}

// Both halves of the head dimension in 64 partitions: out1 = x1 c - x2 s, out2 = x2 c + x1 s.
isa::Program rope(const Params& p, const config::Config& c) {
  const int64_t heads = p.number("heads"), length = p.number("length"), width = p.number("width");
  const int rows = 64;
  Kernel k("rope", c);
  k.keep_order(Engine::kVector);
  const int64_t blocks = length / width;
  const int copies = width >= 4096 ? 1 : 2;
  Ring x1 = k.sbuf(copies, width, Dtype::kF32, rows), x2 = k.sbuf(copies, width, Dtype::kF32, rows);
  Ring y1 = k.sbuf(copies, width, Dtype::kF32, rows), y2 = k.sbuf(copies, width, Dtype::kF32, rows);
  Ring t = k.sbuf(2, width, Dtype::kF32, rows);
  const Tile cosine = k.one(length, Dtype::kF32, rows), sine = k.one(length, Dtype::kF32, rows);
  k.load(cosine, 2);
  k.load(sine, 3);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t b = 0; b < blocks; ++b) {
      const Tile a1 = x1.next(), a2 = x2.next(), o1 = y1.next(), o2 = y2.next();
      const Tile cs = cosine.columns(b * width, width), sn = sine.columns(b * width, width);
      k.load(a1, 0);
      k.load(a2, 1);
      const Tile u = t.next();
      k.tensor_tensor(o1, a1, cs);
      k.tensor_tensor(u, a2, sn);
      k.tensor_tensor(o1, o1, u, Engine::kVector, AluOp::kSubtract);
      const Tile v = t.next();
      k.tensor_tensor(o2, a2, cs);
      k.tensor_tensor(v, a1, sn);
      k.tensor_tensor(o2, o2, v, Engine::kVector, AluOp::kAdd);
      k.store(o1, 4);
      k.store(o2, 5);
    }
  }
  return k.finish();
}

// Selective scan: for every state and every block of the sequence, rows of B and C are spread over the partitions by a
// matmul with ones; Scalar makes exp(delta A), Vector delta u B, the scan, times C, and the sum over the states.
isa::Program mamba_scan(const Params& p, const config::Config& c) {
  const int64_t length = p.number("length"), channels = p.number("channels"), states = p.number("states");
  const int64_t width = p.number("width");
  const bool sequence_outer = p.text("order", "sequence outer") == "sequence outer";
  Kernel k("mamba_scan", c);
  k.keep_busy(Engine::kVector);
  const int64_t blocks = length / width, tiles = channels / 128;
  const Tile ones = k.one(128, Dtype::kF32, 1);
  const Tile a_rows = k.one(states);
  Ring b_row = k.sbuf(3, width, Dtype::kF32, 1), c_row = k.sbuf(3, width, Dtype::kF32, 1);
  Ring b_wide = k.psum(2, width), c_wide = k.psum(2, width);
  Ring decay = k.sbuf(3, width), input = k.sbuf(3, width), state = k.sbuf(3, width), term = k.sbuf(3, width);
  const int held = sequence_outer ? 2 : static_cast<int>(blocks);
  Ring delta = k.sbuf(held, width), du = k.sbuf(held, width), u = k.sbuf(2, width), sum = k.sbuf(held, width);
  const Tile seeds = k.one(states);
  k.memset(Engine::kGpSimd, ones);
  k.memset(Engine::kGpSimd, seeds);
  k.load(a_rows, 0);
  const auto begin = [&](Tile* d, Tile* x, Tile* y) {
    *d = delta.next();
    *x = du.next();
    *y = sum.next();
    const Tile in = u.next();
    k.load(*d, 1);
    k.load(in, 2);
    k.tensor_tensor(*x, *d, in);
  };
  const auto step = [&](int64_t s, const Tile& d, const Tile& x, const Tile& y) {
    const Tile br = b_row.next(), cr = c_row.next(), bw = b_wide.next(), cw = c_wide.next();
    k.load(br, 3);
    k.load(cr, 4);
    k.matmul(bw, ones, br, false);
    k.matmul(cw, ones, cr, false);
    const Tile e = decay.next(), i = input.next(), h = state.next(), t = term.next();
    k.activation(ActFunc::kExp, e, d, a_rows.columns(s, 1));
    k.tensor_tensor(i, x, bw);
    k.scan(h, e, i, seeds.columns(s, 1));
    k.copy(Engine::kScalar, seeds.columns(s, 1), h.columns(width - 1, 1));
    if (s == 0) {
      k.tensor_tensor(y, h, cw);
    } else {
      k.tensor_tensor(t, h, cw);
      k.tensor_tensor(y, y, t, Engine::kVector, AluOp::kAdd);
    }
  };
  for (int64_t tile = 0; tile < tiles; ++tile) {
    std::vector<Tile> d(static_cast<size_t>(blocks)), x = d, y = d;
    if (sequence_outer) {
      for (int64_t b = 0; b < blocks; ++b) {
        const auto n = static_cast<size_t>(b);
        begin(&d[n], &x[n], &y[n]);
        for (int64_t s = 0; s < states; ++s) step(s, d[n], x[n], y[n]);
        k.store(y[n], 5);
      }
    } else {
      for (size_t n = 0; n < d.size(); ++n) begin(&d[n], &x[n], &y[n]);
      for (int64_t s = 0; s < states; ++s) {
        for (size_t n = 0; n < d.size(); ++n) step(s, d[n], x[n], y[n]);
      }
      for (const Tile& done : y) k.store(done, 5);
    }
  }
  return k.finish();
}

// A square matrix tile by tile: load, transpose on the array, copy out of PSUM, store. The loads run ahead on one queue,
// the identity (the 129th transfer) behind them: of 28.3 us of transfers the published compute spans only 17.1.
isa::Program transpose_tiles(const Params& p, const config::Config& c) {
  const int64_t tiles = p.number("size") / 128;
  const Dtype dtype = p.dtype("dtype");
  Kernel k("transpose_tiles", c);
  p.dma_mode(&k);
  Ring in = k.sbuf(static_cast<int>(tiles * tiles), 128, dtype),
       out = k.sbuf(static_cast<int>(tiles * tiles), 128, dtype), turned = k.psum(8, 128, dtype);
  const std::vector<Tile> loaded = in.take(tiles * tiles);
  for (const Tile& x : loaded) k.load(x, 0);
  const Tile identity = k.one(128, dtype);
  k.load(identity, 0);
  for (const Tile& x : loaded) {
    const Tile t = turned.next(), y = out.next();
    k.transpose(t, x, identity);
    k.copy(Engine::kScalar, y, t);
    k.store(y, 1);
  }
  return k.finish();
}

}  // namespace trnsim::fidelity
