// Random numbers from one Philox4x32-10 stream. Element n of the result (row-major order) depends on the key,
// the offset and n alone, whatever the tiling:
//   uniform    word n, its upper bits as a fraction: 24 bits, fewer for 16-bit results so that rounding
//   cannot reach
//              the upper bound
//   normal     Box-Muller on the words of the pair (n with its last bit cleared, and the next one): radius
//   from the
//              first, angle from the second; even elements take the cosine, odd ones the sine
//   bernoulli  uniform (24 bits) < probability
#include <algorithm>

#include "device_plugin/compiler/tilers/access_math.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kColumns = 1024;  // elements per partition of one chunk; even, so that pairs stay together
constexpr float kPi = 3.14159265358979f;

// Elements [first, first + partitions * columns), of which `count` are wanted.
struct Chunk {
  int64_t first;
  int partitions;
  int64_t columns, count;
};

std::vector<Chunk> chunks_of(int64_t total) {
  std::vector<Chunk> out;
  for (int64_t first = 0; first < total;) {
    const int64_t left = total - first;
    if (left < 2 * kPartitions) {
      out.push_back({first, 1, round_up(left, 2), left});
      break;
    }
    const int64_t columns = std::min(kColumns, left / kPartitions / 2 * 2);
    out.push_back({first, static_cast<int>(kPartitions), columns, kPartitions * columns});
    first += kPartitions * columns;
  }
  return out;
}

class RandomTiler {
 public:
  RandomTiler(const RandomKernel& k, const KernelContext& context, TileBuilder& tile)
      : k_(k), local_(context), tile_(tile) {}

  void run() {
    using Dist = RandomKernel::Dist;
    const bool dense = is_dense(k_.out);
    out_ = dense ? k_.out : local_.scratch(tile_, k_.out.dtype, k_.out.sizes);
    if (k_.dist == Dist::kBernoulli && k_.probability.buffer >= 0) {
      probability_ = k_.probability;
      if (!is_dense(probability_)) {
        probability_ = local_.scratch(tile_, k_.probability.dtype, k_.probability.sizes);
        tile_move(MoveKernel{k_.probability, probability_}, local_.context(), tile_);
      }
    }
    state_ = tile_.sbuf(1, {4}, Dtype::kU32);
    for (int i = 0; i < 4; ++i) {
      const ScalarOperand word = tile_.param(k_.philox_slot + i, Dtype::kI32);
      tile_.copy(columns_of(state_, i, 1), reinterpret(slice_partitions(word.pointer, 0, 1), Dtype::kU32));
    }
    if (k_.dist == Dist::kUniform && k_.param_a >= 0 && k_.param_b >= 0) {
      width_ = tile_.sbuf(static_cast<int>(kPartitions), {1}, Dtype::kF32);
      tile_.tensor_tensor(width_, tile_.param(k_.param_b).pointer, tile_.param(k_.param_a).pointer,
                          AluOp::kSubtract);
    }
    for (const Chunk& c : chunks_of(k_.out.numel())) {
      switch (k_.dist) {
        case Dist::kBits:
          bits(c);
          break;
        case Dist::kUniform:
          uniform(c);
          break;
        case Dist::kNormal:
          normal(c);
          break;
        case Dist::kBernoulli:
          bernoulli(c);
          break;
      }
    }
    if (!dense) tile_move(MoveKernel{out_, k_.out}, local_.context(), tile_);
  }

 private:
  Access tile(const Chunk& c, Dtype d) { return tile_.sbuf(c.partitions, {c.columns}, d); }

  Access words(const Chunk& c) {
    Access w = tile(c, Dtype::kU32);
    tile_.philox(w, state_, c.first);
    return w;
  }
  // Upper `bits` bits of `src` as FP32 (exact), still to be scaled by 2^-bits.
  Access fraction(const Chunk& c, const Access& src, int bits) {
    Access shifted = tile_.sbuf(c.partitions, {src.free_elements()}, Dtype::kU32);
    tile_.tensor_scalar(shifted, src, AluOp::kShiftRight, TileBuilder::imm(static_cast<float>(32 - bits)));
    Access f = tile_.sbuf(c.partitions, {src.free_elements()}, Dtype::kF32);
    tile_.copy(f, shifted);
    return f;
  }
  static float scale(int bits) { return 1.0f / static_cast<float>(int64_t{1} << bits); }

  void store(const Chunk& c, const Access& value) {
    if (c.partitions > 1) {
      tile_.store(hbm_view(local_.context(), window_of(out_, c.first, {c.count}, {1})), value);
    } else {
      tile_.store(hbm_view(local_.context(), window_of(out_, c.first, {c.count}, {1})),
                  columns_of(value, 0, c.count));
    }
  }

  void bits(const Chunk& c) {
    const Access w = reinterpret(words(c), Dtype::kI32);
    const Dtype d = tile_dtype(k_.out.dtype);
    if (d == Dtype::kI32 || d == Dtype::kU32) {
      store(c, reinterpret(w, d));
      return;
    }
    Access v = tile(c, d);
    emit_cast(tile_, v, w);
    store(c, v);
  }

  int uniform_bits() const {
    switch (k_.out.dtype) {
      case Dtype::kBF16:
        return 8;
      case Dtype::kF16:
        return 11;
      default:
        return 24;
    }
  }

  void uniform(const Chunk& c) {
    const int bits = uniform_bits();
    const Access f = fraction(c, words(c), bits);
    Access v = tile(c, tile_dtype(k_.out.dtype));
    if (!width_.present()) {
      tile_.tensor_scalar(v, f, AluOp::kMultiply, TileBuilder::imm(scale(bits)));
      store(c, v);
      return;
    }
    Access u = tile(c, Dtype::kF32);
    tile_.tensor_scalar(u, f, AluOp::kMultiply, TileBuilder::imm(scale(bits)));
    tile_.tensor_scalar(v, u, AluOp::kMultiply, TileBuilder::column(width_), AluOp::kAdd,
                        tile_.param(k_.param_a));
    store(c, v);
  }

  void normal(const Chunk& c) {
    const Access w = words(c);
    const int64_t pairs = c.columns / 2;
    const auto half = [&](Dtype d) { return tile_.sbuf(c.partitions, {pairs}, d); };
    // Radius: sqrt(-2 ln u) with u in (0, 1].
    const Access f = fraction(c, with_dims(w, 0, {{2, pairs}}), 24);
    Access u = half(Dtype::kF32), logarithm = half(Dtype::kF32), radius = half(Dtype::kF32);
    tile_.tensor_scalar(u, f, AluOp::kMultiply, TileBuilder::imm(scale(24)), AluOp::kAdd,
                        TileBuilder::imm(scale(24)));
    tile_.activation(logarithm, u, ActFunc::kLog);
    tile_.activation(radius, logarithm, ActFunc::kSqrt, TileBuilder::imm(-2.0f));
    // Angle in [-pi, pi), where the sine of the scalar engine is defined; cos t = sin(pi/2 - |t|).
    const Access g = fraction(c, with_dims(w, 1, {{2, pairs}}), 24);
    Access angle = half(Dtype::kF32), size = half(Dtype::kF32), sine = half(Dtype::kF32),
           cosine = half(Dtype::kF32);
    tile_.tensor_scalar(angle, g, AluOp::kMultiply, TileBuilder::imm(2.0f * kPi * scale(24)), AluOp::kAdd,
                        TileBuilder::imm(-kPi));
    tile_.activation(size, angle, ActFunc::kAbs);
    tile_.activation(sine, angle, ActFunc::kSin);
    tile_.activation(cosine, size, ActFunc::kSin, TileBuilder::imm(-1.0f), TileBuilder::imm(0.5f * kPi));
    const Dtype d = tile_dtype(k_.out.dtype);
    const bool affine = k_.param_a >= 0 && k_.param_b >= 0;
    Access z = tile(c, affine ? Dtype::kF32 : d);
    tile_.tensor_tensor(with_dims(z, 0, {{2, pairs}}), radius, cosine, AluOp::kMultiply);
    tile_.tensor_tensor(with_dims(z, 1, {{2, pairs}}), radius, sine, AluOp::kMultiply);
    if (!affine) {
      store(c, z);
      return;
    }
    Access v = tile(c, d);
    tile_.tensor_scalar(v, z, AluOp::kMultiply, tile_.param(k_.param_b), AluOp::kAdd,
                        tile_.param(k_.param_a));
    store(c, v);
  }

  void bernoulli(const Chunk& c) {
    const Access f = fraction(c, words(c), 24);
    Access v = tile(c, tile_dtype(k_.out.dtype));
    if (probability_.buffer < 0) {
      if (k_.param_a < 0) throw_internal("random: bernoulli needs a probability");
      tile_.tensor_scalar(v, f, AluOp::kMultiply, TileBuilder::imm(scale(24)), AluOp::kLess,
                          tile_.param(k_.param_a));
      store(c, v);
      return;
    }
    Access p = tile(c, Dtype::kF32);
    const Access wanted = c.partitions > 1 ? p : columns_of(p, 0, c.count);
    tile_.load(wanted, hbm_view(local_.context(), window_of(probability_, c.first, {c.count}, {1})));
    const auto part = [&](const Access& t) { return c.partitions > 1 ? t : columns_of(t, 0, c.count); };
    Access u = tile(c, Dtype::kF32);
    tile_.tensor_scalar(u, f, AluOp::kMultiply, TileBuilder::imm(scale(24)));
    tile_.tensor_tensor(part(v), part(u), wanted, AluOp::kLess);
    store(c, v);
  }

  const RandomKernel& k_;
  LocalContext local_;
  TileBuilder& tile_;
  View out_, probability_;
  Access state_, width_;
};

}  // namespace

void tile_random(const RandomKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  if (kernel.out.numel() == 0) return;
  RandomTiler(kernel, context, tile).run();
}

}  // namespace trnsim::compiler
