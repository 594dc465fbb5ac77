// Which keys a query sees: bands (causal, sliding window) and masks given as tensors.
#include <cmath>
#include <limits>

#include "device_plugin/compiler/tilers/attention.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kAll = AttentionKernel::kUnbounded;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

}  // namespace

KeyRange visible_keys(const AttentionKernel& k, int64_t first, int64_t last) {
  const int64_t keys = k.k.sizes[2];
  KeyRange r{0, keys};
  if (k.behind != kAll) r.begin = std::clamp<int64_t>(first - k.behind, 0, keys) / kPartitions * kPartitions;
  if (k.ahead != kAll)
    r.end = std::min(keys, round_up(std::clamp<int64_t>(last + k.ahead + 1, 0, keys), kPartitions));
  r.end = std::max(r.begin, r.end);
  return r;
}

bool crosses_band(const AttentionKernel& k, int64_t i0, int64_t queries, int64_t j0, int64_t keys) {
  const int64_t lowest = j0 - (i0 + queries - 1), highest = j0 + keys - 1 - i0;
  return (k.behind != kAll && lowest < -k.behind) || (k.ahead != kAll && highest > k.ahead);
}

AttentionMask::AttentionMask(const AttentionKernel& k, const KernelContext& context, TileBuilder& tile)
    : k_(k), context_(context), tile_(tile) {
  const int64_t queries = k.q.sizes[2], keys = k.k.sizes[2];
  const bool given = k.mask.buffer >= 0;
  // The largest score is looked for before the scale is applied, which needs a positive one.
  // Rounded scores stay rounded under a scale that is a power of two.
  int exponent;
  rounds_ = k.round_scores && k.q.dtype != Dtype::kF32;
  scaled_ = given || !(k.scale > 0) || (rounds_ && std::frexp(k.scale, &exponent) != 0.5);
  hides_ = given || crosses_band(k, 0, queries, 0, keys);
  may_blind_ = given;
  for (int64_t i : {int64_t{0}, queries - 1}) {  // the band moves with the query: the ends decide
    const bool left = k.ahead != kAll && i + k.ahead < 0, right = k.behind != kAll && i - k.behind >= keys;
    may_blind_ = may_blind_ || left || right;
  }
}

// 0 where query i0 + p sees key j0 + c, -inf elsewhere; delta = j0 - i0.
Access AttentionMask::band(int64_t queries, int64_t keys, int64_t delta) {
  const auto [found, fresh] = bands_.try_emplace({queries, keys, delta});
  if (!fresh) return found->second;
  Access t = tile_.sbuf(static_cast<int>(queries), {keys}, Dtype::kF32);
  tile_.memset(t, 0);
  isa::AffinePattern pattern;
  if (k_.ahead != kAll) {  // ahead + i - j >= 0
    pattern.base = k_.ahead - delta;
    pattern.partition_step = 1;
    pattern.step[0] = -1;
    tile_.affine_select(t, t, pattern, AluOp::kGreaterEqual, kMinusInfinity);
  }
  if (k_.behind != kAll) {  // behind + j - i >= 0
    pattern.base = k_.behind + delta;
    pattern.partition_step = -1;
    pattern.step[0] = 1;
    tile_.affine_select(t, t, pattern, AluOp::kGreaterEqual, kMinusInfinity);
  }
  return found->second = t;
}

// The block of the mask as something to add.
Access AttentionMask::given(int64_t batch, int64_t head, int64_t i0, int64_t queries, int64_t j0,
                            int64_t keys) {
  const View& m = k_.mask;
  Access t = tile_.sbuf(static_cast<int>(queries), {keys}, tile_dtype(m.dtype));
  const int64_t at = batch * m.strides[0] + head * m.strides[1] + i0 * m.strides[2] + j0 * m.strides[3];
  tile_.load(t, hbm_view(context_, window_of(m, at, {queries, keys}, {m.strides[2], m.strides[3]})));
  if (isa::is_float(m.dtype)) return t;
  // 1 - 1 / mask: 0 for true, -inf for false.
  Access added = tile_.sbuf(static_cast<int>(queries), {keys}, Dtype::kF32);
  tile_.tensor_scalar(added, t, AluOp::kPower, TileBuilder::imm(-1), AluOp::kSubtract, TileBuilder::imm(1),
                      false, true);
  return added;
}

Access AttentionMask::apply(const Access& scores, int64_t batch, int64_t head, int64_t i0, int64_t j0) {
  const int64_t queries = scores.num_partitions, keys = scores.free_elements();
  const bool crosses = crosses_band(k_, i0, queries, j0, keys);
  const Dtype dtype = rounds_ ? tile_dtype(k_.q.dtype) : Dtype::kF32;
  Access sum = scores;
  const auto next = [&] {
    const Access last = sum;
    sum = tile_.sbuf(static_cast<int>(queries), {keys}, dtype);
    return last;
  };
  const auto scale = TileBuilder::imm(static_cast<float>(k_.scale));
  if (rounds_) {
    const Access last = next();
    tile_.copy(sum, last);
  }
  if (k_.mask.buffer >= 0 && !rounds_) {
    const Access last = next();
    tile_.scalar_tensor_tensor(sum, last, AluOp::kMultiply, scale, AluOp::kAdd,
                               given(batch, head, i0, queries, j0, keys));
  } else if (scaled_ && k_.scale != 1) {
    const Access last = next();
    tile_.tensor_scalar(sum, last, AluOp::kMultiply, scale);
  }
  if (k_.mask.buffer >= 0 && rounds_) {
    const Access last = next();
    tile_.tensor_tensor(sum, last, given(batch, head, i0, queries, j0, keys), AluOp::kAdd);
  }
  if (crosses) {
    const Access last = next();
    tile_.tensor_tensor(sum, last, band(queries, keys, j0 - i0), AluOp::kAdd);
  }
  return sum;
}

MatrixOperand head_operand(const View& v, int64_t batch, int64_t head, bool contract_rows) {
  MatrixOperand x;
  x.base = v;
  x.base.offset += batch * v.strides[0] + head * v.strides[1];
  x.w_stride = v.strides[contract_rows ? 3 : 2];
  x.k_stride = v.strides[contract_rows ? 2 : 3];
  x.k = v.sizes[contract_rows ? 2 : 3];
  x.load_dtype = tile_dtype(v.dtype);
  return x;
}

}  // namespace trnsim::compiler
