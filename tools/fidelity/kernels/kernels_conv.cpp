// 3x3 convolutions as one matmul per tap.
#include <algorithm>

#include "tools/fidelity/kernels/kernels.h"

namespace trnsim::fidelity {

using isa::AluOp;
using isa::Dtype;
using isa::Engine;

// 256 -> 256 channels, 32x16 -> 30x14, one image, one tile of output channels after the other: its weights are brought
// into the layout of the array, then 18 matmuls accumulate. The weights come as rows of output channels; every 128x128
// slice of a tap (stride 9) is transposed on the array, through two PSUM tiles in turn. Transposes at either clock in the
// traces (MB-24, MB-30) say that they stand between the matmuls, as the program has them.
//   weights  "rows": `weight_loads` transfers per tile; "elements": the transfer itself makes the layout
//   slices   "contiguous" copies a slice before its transpose, `scalar_slices` of the 36 on Scalar
//   scalar_drains  of the 36 turned tiles, the rest on Vector; words: 16-bit tiles leave PSUM as 4-byte words
//   bias     "psum" adds straight from PSUM, otherwise after a cast
isa::Program conv_small(const Params& p, const config::Config& c) {
  const Dtype dtype = p.dtype("dtype");
  const int64_t tiles = 2, taps = 9, height = 30, width = 14, pitch = 16;
  const bool contiguous = p.is("slices", "contiguous"), bias_from_psum = p.is("bias", "psum");
  const bool by_element = p.is("weights", "elements");
  const bool words = p.number("words", 0) != 0 && dtype != Dtype::kF32, pool = p.number("pool", 0) != 0;
  const int64_t scalar_drains = p.number("scalar_drains", 36), scalar_slices = p.number("scalar_slices", 0);
  const int64_t weight_loads = p.number("weight_loads", 1);
  Kernel k("conv_small", c);
  k.keep_order(Engine::kTensor);
  const int64_t columns = tiles * 128 * taps, all = tiles * tiles * taps;
  Ring kept = k.sbuf(static_cast<int>(all), 128, dtype);
  std::vector<Tile> weights, inputs;
  for (int64_t o = 0; o < tiles && !by_element; ++o) weights.push_back(k.one(columns, dtype));
  for (int64_t l = 0; l < weight_loads; ++l) {
    const int64_t part = columns / weight_loads;
    for (const Tile& w : weights) k.load(w.columns(l * part, part), 0);
  }
  for (int64_t i = 0; i < tiles; ++i) {
    inputs.push_back(k.one(32 * 16, dtype));
    k.load(inputs.back(), 0);
  }
  const Tile bias = k.one(tiles);
  k.load(bias, 0);
  Ring slices = k.sbuf(contiguous ? 4 : 0, 128, dtype);
  Ring turned = k.psum(2, 128, dtype), sums = k.psum(2, height * width);
  Ring cast = k.sbuf(2, height * width, dtype), out = k.sbuf(2, height * width, dtype);
  Ring pooled = k.sbuf(2, height * width / 4, dtype), half = k.sbuf(2, height * width / 2, dtype);
  int64_t done = 0;
  // Spreads `share` of all slices evenly over Scalar.
  const auto engine = [&](int64_t share) {
    return done * share / all != (done + 1) * share / all ? Engine::kScalar : Engine::kVector;
  };
  for (int64_t o = 0; o < tiles; ++o) {
    std::vector<Tile> ready;
    for (int64_t s = 0; s < tiles * taps; ++s, ++done) {
      ready.push_back(kept.next());
      const Tile& y = ready.back();
      if (by_element) {
        k.load(y, 0, 1);
        continue;
      }
      Tile slice = weights[static_cast<size_t>(o)].columns(s / taps * 128 * taps + s % taps, 128, taps);
      if (contiguous) {
        const Tile dense = slices.next();
        k.copy(engine(scalar_slices), dense, slice);
        slice = dense;
      }
      const Tile x = turned.next();
      k.transpose(x, slice);
      k.copy(engine(scalar_drains), words ? y.as(Dtype::kF32) : y, words ? x.as(Dtype::kF32) : x);
    }
    const Tile acc = sums.next();
    for (int64_t s = 0; s < tiles * taps; ++s) {
      const int64_t t = s % taps;
      Tile window = inputs[static_cast<size_t>(s / taps)].shaped({height, width}, {pitch, 1});
      window.access.offset += (t / 3 * pitch + t % 3) * static_cast<int64_t>(isa::dtype_bytes(dtype));
      k.matmul(acc, ready[static_cast<size_t>(s)], window, s > 0);
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
