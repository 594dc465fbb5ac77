// Top-k with indices. Small k of floats and short integers: the vector engine's 8-wide maximum instructions,
// rows on partitions. One extreme of a 32-bit integer row: exact integer reductions. Everything else, sorts
// included: the bitonic network of sort.cpp. Long rows, or few of them, are cut into chunks whose candidates
// meet in a second round.
#include <algorithm>
#include <limits>

#include "device_plugin/compiler/tilers/access_math.h"
#include "device_plugin/compiler/tilers/planes.h"
#include "device_plugin/compiler/tilers/sort.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kMaxRow = 4096;  // elements of one row in SBUF
constexpr int64_t kShortestChunk = 512;
constexpr int64_t kMaxRounds = 8;  // of 8 values each; beyond, sorting costs less
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNanOrder = 1 << 20;  // beyond every position in a row

class TopTiler {
 public:
  TopTiler(const TopKernel& k, const KernelContext& context, TileBuilder& tile)
      : k_(k), context_(context), tile_(tile) {
    dtype_ = tile_dtype(k.input.dtype);
    n_ = k.input.sizes.back();
  }

  void run() {
    std::vector<View> views{k_.input};
    if (k_.values.buffer >= 0) views.push_back(k_.values);
    if (k_.indices.buffer >= 0) views.push_back(k_.indices);
    for (const Planes& p : planes_of(views, 1)) {
      input_ = p.views[0];
      if (k_.values.buffer >= 0) values_ = p.views[1];
      if (k_.indices.buffer >= 0) indices_ = p.views.back();
      for (int64_t r = 0; r < input_.channels; r += kPartitions) {
        row_ = r;
        rows_ = std::min(kPartitions, input_.channels - r);
        if (isa::is_32bit_integer(dtype_)) {
          extreme_of_integers();
        } else {
          by_eights();
        }
      }
    }
  }

 private:
  Access tile(std::vector<int64_t> dims, Dtype d) {
    return tile_.sbuf(static_cast<int>(rows_), std::move(dims), d);
  }
  Access load_rows() {
    Access x = tile({n_}, dtype_);
    tile_.load(x, hbm_view(context_, window_of(input_.base, row_ * input_.channel_stride, {rows_, n_},
                                               {input_.channel_stride, input_.stride[2]})));
    return x;
  }
  void store_rows(const ImageView& v, const Access& x) {
    tile_.store(hbm_view(context_, window_of(v.base, row_ * v.channel_stride, {rows_, k_.k},
                                             {v.channel_stride, v.stride[2]})),
                columns_of(x, 0, k_.k));
  }
  Access constant(float value, Dtype d = Dtype::kF32) {
    Access c = tile({1}, d);
    tile_.memset(c, value);
    return c;
  }
  static Access spread(const Access& column, int64_t n) { return with_dims(column, 0, {{0, n}}); }

  // k = 1 of 32-bit integers.
  void extreme_of_integers() {
    const Access x = load_rows();
    Access best = tile({1}, dtype_);
    tile_.reduce(best, x, k_.largest ? AluOp::kMax : AluOp::kMin, 1);
    if (k_.values.buffer >= 0) store_rows(values_, best);
    if (k_.indices.buffer < 0) return;
    Access hit = tile({n_}, Dtype::kU8), position = tile({n_}, Dtype::kI32),
           candidate = tile({n_}, Dtype::kI32);
    tile_.tensor_tensor(hit, x, spread(best, n_), AluOp::kEqual);
    isa::AffinePattern pattern;
    pattern.step[0] = 1;
    tile_.iota(position, pattern);
    tile_.memset(candidate, static_cast<float>(int64_t{1} << 30));
    tile_.copy_predicated(candidate, position, hit);
    Access first = tile({1}, Dtype::kI32);
    tile_.reduce(first, candidate, AluOp::kMin, 1);
    store_rows(indices_, first);
  }

  struct Taken {
    Access values, indices;
  };
  // The rounds * 8 largest of `key` in order. Taken values are replaced by -infinity.
  Taken take(Access key, int64_t width, int64_t rounds, bool with_indices) {
    Taken t;
    t.values = tile({rounds * 8}, Dtype::kF32);
    if (with_indices) t.indices = tile({rounds * 8}, Dtype::kU32);
    for (int64_t r = 0; r < rounds; ++r) {
      const Access v = columns_of(t.values, r * 8, 8);
      tile_.max8(v, key);
      if (with_indices) tile_.max_index8(columns_of(t.indices, r * 8, 8), key, v);
      if (r + 1 == rounds) break;
      Access next = tile({width}, Dtype::kF32);
      tile_.match_replace8(next, key, v, -kInfinity);
      key = next;
    }
    return t;
  }

  // NaN is the largest value, for the instructions too; among the smallest it comes last, behind infinity. In the
  // keys it is -infinity then, which is also what real infinities (negated) and taken values are. The elements
  // that share this key are told apart by a second row of keys: ordinary elements have 1 there and come first
  // again, an infinity has its negated position, a NaN that minus kNanOrder.
  void by_eights() {
    const bool is_float = isa::is_float(dtype_);
    const int64_t width = std::max<int64_t>(n_, 8);
    const int64_t rounds = ceil_div(k_.k, 8);
    const Access x = load_rows();
    Access key = tile({width}, Dtype::kF32);
    const Access real = columns_of(key, 0, n_);
    const auto pad = [&](const Access& t) {
      if (width > n_) tile_.memset(columns_of(t, n_, width - n_), -kInfinity);
    };
    pad(key);
    if (k_.largest) {
      tile_.copy(real, x);
    } else {
      tile_.tensor_scalar(real, x, AluOp::kMultiply, TileBuilder::imm(-1.0f));
    }
    Access order;
    if (is_float && (rounds > 1 || !k_.largest)) {
      Access position = tile({n_}, Dtype::kF32);
      isa::AffinePattern pattern;
      pattern.step[0] = -1;
      tile_.iota(position, pattern);
      if (!k_.largest) {
        Access nan = tile({n_}, Dtype::kU8), below = tile({n_}, Dtype::kF32);
        tile_.tensor_tensor(nan, x, x, AluOp::kNotEqual);
        tile_.copy_predicated(real, spread(constant(-kInfinity), n_), nan);
        tile_.scalar_tensor_tensor(below, nan, AluOp::kMultiply, TileBuilder::imm(-kNanOrder), AluOp::kAdd,
                                   position);
        position = below;
      }
      Access lowest = tile({n_}, Dtype::kU8);
      tile_.tensor_scalar(lowest, real, AluOp::kEqual, TileBuilder::imm(-kInfinity));
      order = tile({width}, Dtype::kF32);
      pad(order);
      tile_.memset(columns_of(order, 0, n_), 1.0f);
      tile_.copy_predicated(columns_of(order, 0, n_), position, lowest);
    }
    const Taken taken = take(key, width, rounds, k_.indices.buffer >= 0);
    const Access found = columns_of(taken.values, 0, k_.k);
    Access nan;
    if (order.present()) {
      const Access code = columns_of(take(order, width, rounds, false).values, 0, k_.k);
      Access lowest = tile({k_.k}, Dtype::kU8), place = tile({k_.k}, Dtype::kF32);
      tile_.tensor_scalar(lowest, found, AluOp::kEqual, TileBuilder::imm(-kInfinity));
      tile_.tensor_scalar(place, code, AluOp::kMultiply, TileBuilder::imm(-1.0f));
      if (!k_.largest) {
        Access inside = tile({k_.k}, Dtype::kF32);
        nan = tile({k_.k}, Dtype::kU8);
        tile_.tensor_scalar(nan, place, AluOp::kGreaterEqual, TileBuilder::imm(kNanOrder));
        tile_.scalar_tensor_tensor(inside, nan, AluOp::kMultiply, TileBuilder::imm(-kNanOrder), AluOp::kAdd,
                                   place);
        place = inside;
      }
      if (taken.indices.present()) {
        Access index = tile({k_.k}, Dtype::kU32);
        tile_.copy(index, place);
        tile_.copy_predicated(columns_of(taken.indices, 0, k_.k), index, lowest);
      }
    }
    if (k_.indices.buffer >= 0) store_rows(indices_, taken.indices);
    if (k_.values.buffer < 0) return;
    if (nan.present()) {
      tile_.copy_predicated(found, spread(constant(std::numeric_limits<float>::quiet_NaN()), k_.k), nan);
    }
    Access result = found;
    if (!k_.largest) {
      result = tile({k_.k}, dtype_);
      tile_.tensor_scalar(result, found, AluOp::kMultiply, TileBuilder::imm(-1.0f));
    } else if (dtype_ != Dtype::kF32) {
      result = tile({k_.k}, dtype_);
      tile_.copy(result, found);
    }
    store_rows(values_, result);
  }

  const TopKernel& k_;
  const KernelContext& context_;
  TileBuilder& tile_;
  Dtype dtype_ = Dtype::kF32;
  int64_t n_ = 0;
  ImageView input_, values_, indices_;
  int64_t row_ = 0, rows_ = 1;
};

// Chunk length for rows that are cut, or 0.
int64_t chunk_length(int64_t rows, int64_t n, int64_t k) {
  const int64_t shortest = std::max(kShortestChunk, 4 * k);
  if (n <= 2 * shortest) return 0;
  if (n <= kMaxRow && rows >= kPartitions / 4) return 0;
  // Enough chunks to fill the partitions.
  return std::clamp(round_up(ceil_div(n * std::max<int64_t>(rows, 1), kPartitions), 64), shortest, kMaxRow);
}

void top_in_chunks(const TopKernel& kernel, int64_t length, const KernelContext& context, TileBuilder& tile) {
  LocalContext local(context);
  const int64_t n = kernel.input.sizes.back(), chunks = n / length, tail = n % length;
  const int64_t per_chunk = std::min(kernel.k, length), from_tail = std::min(kernel.k, tail);
  const int64_t candidates = chunks * per_chunk + from_tail;
  const std::vector<int64_t> lead(kernel.input.sizes.begin(), kernel.input.sizes.end() - 1);
  const auto with = [&](std::initializer_list<int64_t> last) {
    std::vector<int64_t> s = lead;
    s.insert(s.end(), last);
    return s;
  };
  const View values = local.scratch(tile, kernel.input.dtype, with({candidates}));
  const View found = local.scratch(tile, Dtype::kI32, with({candidates}));
  const View global = local.scratch(tile, Dtype::kI32, with({candidates}));
  // Part of the last axis as [.., parts, count].
  const auto part = [&](const View& v, int64_t begin, int64_t parts, int64_t count) {
    View r = v;
    const int64_t s = v.strides.back();
    r.offset += begin * s;
    r.sizes.back() = parts;
    r.strides.back() = count * s;
    r.sizes.push_back(count);
    r.strides.push_back(s);
    return r;
  };
  const auto round = [&](int64_t begin, int64_t parts, int64_t count, int64_t slot, int64_t take) {
    TopKernel sub = kernel;
    sub.k = take;
    sub.input = part(kernel.input, begin, parts, count);
    sub.values = part(values, slot, parts, take);
    sub.indices = part(found, slot, parts, take);
    tile_top(sub, local.context(), tile);
    // Index within the chunk -> index within the row.
    MapKernel map;
    map.domain = sub.indices.sizes;
    map.num_kept = static_cast<int32_t>(map.domain.size());
    map.inputs.push_back(sub.indices);
    const auto node = [&](ExprOp op, int32_t a, int32_t b, int32_t index, double value) {
      Expr e;
      e.op = op;
      e.dtype = Dtype::kI32;
      e.a = a;
      e.b = b;
      e.index = index;
      e.value = value;
      map.exprs.push_back(e);
      return static_cast<int32_t>(map.exprs.size() - 1);
    };
    const int32_t index = node(ExprOp::kInput, -1, -1, 0, 0);
    const int32_t chunk = node(ExprOp::kIota, -1, -1, static_cast<int32_t>(map.domain.size()) - 2, 0);
    const int32_t start =
        node(ExprOp::kMul, chunk, node(ExprOp::kConst, -1, -1, 0, static_cast<double>(count)), 0, 0);
    const int32_t sum = node(ExprOp::kAdd, index, start, 0, 0);
    const int32_t result =
        begin == 0
            ? sum
            : node(ExprOp::kAdd, sum, node(ExprOp::kConst, -1, -1, 0, static_cast<double>(begin)), 0, 0);
    map.outputs.push_back({part(global, slot, parts, take), result});
    tile_map(map, local.context(), tile);
  };
  round(0, chunks, length, 0, per_chunk);
  if (tail > 0) round(chunks * length, 1, tail, chunks * per_chunk, from_tail);

  // Candidates are in row order among equal values, so the smallest position is the smallest index.
  TopKernel last = kernel;
  last.input = values;
  const bool indices = kernel.indices.buffer >= 0;
  if (indices) last.indices = local.scratch(tile, Dtype::kI32, with({kernel.k}));
  tile_top(last, local.context(), tile);
  if (!indices) return;
  GatherKernel gather;
  gather.src = global;
  gather.axis = static_cast<int32_t>(lead.size());
  gather.index = {last.indices};
  gather.along = true;
  gather.out = local.scratch(tile, Dtype::kI32, with({kernel.k}));
  tile_gather(gather, local.context(), tile);
  tile_move(MoveKernel{gather.out, kernel.indices}, local.context(), tile);
}

}  // namespace

void tile_top(const TopKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  if (kernel.input.sizes.empty()) throw_internal("top-k of a scalar: the lowering gives it one axis");
  const int64_t n = kernel.input.sizes.back();
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < kernel.input.sizes.size(); ++i) rows *= kernel.input.sizes[i];
  if (rows == 0 || kernel.k == 0) return;
  if (kernel.k < 0 || kernel.k > n) {
    throw_user_error("top-k: k = " + std::to_string(kernel.k) + " of a row of " + std::to_string(n) +
                     " elements");
  }
  if (kernel.values.buffer < 0 && kernel.indices.buffer < 0) return;
  const Dtype dtype = tile_dtype(kernel.input.dtype);
  const bool wide = isa::is_32bit_integer(dtype);
  const int64_t max_k = wide ? 1 : 8 * kMaxRounds;
  if (kernel.k > max_k || (kernel.k > 8 && n <= 4 * kernel.k)) {
    sort_rows(kernel, context, tile);
    return;
  }
  if (const int64_t length = chunk_length(rows, n, kernel.k); length > 0) {
    top_in_chunks(kernel, length, context, tile);
    return;
  }
  TopTiler(kernel, context, tile).run();
}

}  // namespace trnsim::compiler
