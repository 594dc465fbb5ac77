// 3x3 convolutions as one matmul per tap.
#include <algorithm>

#include "tools/fidelity/kernels/kernels.h"

namespace trnsim::fidelity {

using isa::AluOp;
using isa::Dtype;
using isa::Engine;

// 256 -> 256 channels, 32x16 -> 30x14, one image. Weights come as rows of output channels, so every 128x128 slice of a
// tap (stride 9) is transposed on the array. slices: contiguous first copies them; drains: of the turned tiles; bias:
// "psum" adds straight from PSUM, "sbuf" after a cast; words: 16-bit tiles leave PSUM as 4-byte words.
isa::Program conv_small(const Params& p, const config::Config& c) {
  const Dtype dtype = p.dtype("dtype");
  const int64_t channel_tiles = 2, taps = 9, height = 30, width = 14, pitch = 16;
  const bool contiguous = p.is("slices", "contiguous"), bias_from_psum = p.is("bias", "psum");
  const bool words = p.number("words", 0) != 0, pool = p.number("pool", 0) != 0;
  const int64_t scalar_drains = p.number("scalar_drains", 36), scalar_slices = p.number("scalar_slices", 0);
  const int64_t weight_run = p.number("weight_run", 0);
  Kernel k("conv_small", c);
  const int64_t columns = channel_tiles * 128 * taps;
  std::vector<Tile> weights, inputs;
  for (int64_t o = 0; o < channel_tiles; ++o) {
    weights.push_back(k.one(columns, dtype));
    k.load(weights.back(), static_cast<int>(o), weight_run);
  }
  for (int64_t i = 0; i < channel_tiles; ++i) {
    inputs.push_back(k.one(32 * 16, dtype));
    k.load(inputs.back(), 2 + static_cast<int>(i));
  }
  const Tile bias = k.one(channel_tiles);
  k.load(bias, 4);
  Ring slices = k.sbuf(contiguous ? 4 : 0, 128, dtype);
  Ring turned = k.psum(4, 128, dtype), sums = k.psum(2, height * width);
  Ring kept = k.sbuf(static_cast<int>(channel_tiles * channel_tiles * taps), 128, dtype);
  int64_t done = 0;
  const int64_t all = channel_tiles * channel_tiles * taps;
  std::vector<Tile> ready;
  for (int64_t o = 0; o < channel_tiles; ++o) {
    for (int64_t i = 0; i < channel_tiles; ++i) {
      for (int64_t t = 0; t < taps; ++t, ++done) {
        Tile slice = weights[static_cast<size_t>(o)].columns(i * 128 * taps + t, 128, taps);
        if (contiguous) {
          const Tile dense = slices.next();
          const bool scalar = done * scalar_slices / all != (done + 1) * scalar_slices / all;
          k.copy(scalar ? Engine::kScalar : Engine::kVector, dense, slice);
          slice = dense;
        }
        const Tile x = turned.next();
        k.transpose(x, slice);
        ready.push_back(kept.next());
        const bool scalar = done * scalar_drains / all != (done + 1) * scalar_drains / all;
        const bool packed = words && dtype != Dtype::kF32;
        k.copy(scalar ? Engine::kScalar : Engine::kVector,
               packed ? ready.back().as(Dtype::kF32) : ready.back(), packed ? x.as(Dtype::kF32) : x);
      }
    }
  }
  Ring cast = k.sbuf(2, height * width, dtype), out = k.sbuf(2, height * width, dtype);
  Ring pooled = k.sbuf(2, height * width / 4, dtype), half = k.sbuf(2, height * width / 2, dtype);
  for (int64_t o = 0; o < channel_tiles; ++o) {
    const Tile acc = sums.next();
    for (int64_t i = 0; i < channel_tiles; ++i) {
      for (int64_t t = 0; t < taps; ++t) {
        Tile window = inputs[static_cast<size_t>(i)].shaped({height, width}, {pitch, 1});
        window.access.offset += (t / 3 * pitch + t % 3) * static_cast<int64_t>(isa::dtype_bytes(dtype));
        k.matmul(acc, ready[static_cast<size_t>((o * channel_tiles + i) * taps + t)], window, i + t > 0);
      }
    }
    Tile y = out.next();
    const Tile wide = bias.columns(o, 1).shaped({height * width}, {0});
    if (bias_from_psum) {
      k.tensor_tensor(y, wide, acc, Engine::kVector, AluOp::kAdd);
    } else {
      const Tile s = cast.next();
      k.copy(Engine::kScalar, s, acc);
      k.tensor_tensor(y, s, wide, Engine::kVector, AluOp::kAdd);
    }
    if (pool) {
      const Tile h = half.next(), q = pooled.next();
      k.reduce(h, y.shaped({height, width / 2, 2}, {width, 2, 1}), AluOp::kMax);
      k.reduce(q, h.shaped({height / 2, width / 2, 2}, {width, 1, width / 2}), AluOp::kMax);
      y = q;
    }
    k.store(y, 5 + static_cast<int>(o));
  }
  return k.finish();
}

// 256 -> 256 channels, 224x224 -> 222x222, output tiles of two rows, 18 accumulating matmuls each.
isa::Program conv_large(const Params& p, const config::Config& c) {
  const Dtype dtype = p.dtype("dtype");
  const int64_t size = 224, valid = 222, taps = 9, tiles = 2, rows = p.number("rows", 6);
  const bool pool = p.number("pool", 0) != 0;
  Kernel k("conv_large", c);
  int turn = 0;
  std::vector<Tile> weights;
  Ring turned = k.psum(2, 128, dtype), sums = k.psum(6, 2 * valid);
  Ring kept = k.sbuf(static_cast<int>(tiles * tiles * taps), 128, dtype);
  Ring raw = k.sbuf(static_cast<int>(tiles), tiles * 128 * taps, dtype);
  for (int64_t o = 0; o < tiles; ++o) {
    const Tile w = raw.next();
    k.load(w, 0);
    for (int64_t i = 0; i < tiles; ++i) {
      for (int64_t t = 0; t < taps; ++t) {
        const Tile x = turned.next();
        k.transpose(x, w.columns(i * 128 * taps + t, 128, taps));
        weights.push_back(kept.next());
        k.copy(turn++ % 2 == 0 ? Engine::kScalar : Engine::kVector, weights.back(), x);
      }
    }
  }
  const Tile bias = k.one(tiles);
  k.load(bias, 1);
  Ring input = k.sbuf(static_cast<int>(2 * tiles), (rows + 2) * size, dtype);
  Ring out = k.sbuf(4, 2 * valid, dtype), half = k.sbuf(2, valid, dtype),
       quarter = k.sbuf(2, valid / 2, dtype);
  for (int64_t r = 0; r < valid; r += rows) {
    std::vector<Tile> x;
    for (int64_t i = 0; i < tiles; ++i) {
      x.push_back(input.next());
      k.load(x.back(), 2 + static_cast<int>(i));
    }
    for (int64_t o = 0; o < tiles; ++o) {
      for (int64_t y = 0; y < rows; y += 2) {
        const Tile acc = sums.next();
        for (int64_t i = 0; i < tiles; ++i) {
          for (int64_t t = 0; t < taps; ++t) {
            Tile window = x[static_cast<size_t>(i)].shaped({2, valid}, {size, 1});
            window.access.offset +=
                ((y + t / 3) * size + t % 3) * static_cast<int64_t>(isa::dtype_bytes(dtype));
            k.matmul(acc, weights[static_cast<size_t>((o * tiles + i) * taps + t)], window, i + t > 0);
          }
        }
        Tile done = out.next();
        if (turn++ % 2 == 0) {
          k.activation(isa::ActFunc::kCopy, done, acc, bias.columns(o, 1));
        } else {
          k.tensor_scalar(done, acc, bias.columns(o, 1));
        }
        if (pool) {
          const Tile h = half.next(), q = quarter.next();
          k.reduce(h, done.shaped({2, valid / 2, 2}, {valid, 2, 1}), AluOp::kMax);
          k.reduce(q, h.shaped({valid / 2, 2}, {1, valid / 2}), AluOp::kMax);
          done = q;
        }
        k.store(done, 4 + static_cast<int>(o));
      }
    }
  }
  return k.finish();
}

}  // namespace trnsim::fidelity
