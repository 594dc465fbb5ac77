// Gradients of scaled dot-product attention: probabilities are made again from scores and the log of their sums.
//
// A step takes one tile of 128 queries and a block of up to 512 keys:
//   p = exp(score - lse), dp = grad_out v^T, ds = p (dp - delta) with delta = sum(grad_out * out) per query,
//   dv += p^T grad_out, dk += ds^T q (over the queries, in PSUM), dq += ds k (over the keys, in SBUF).
// Steps overlap as those of attention.cpp do.
#include <deque>
#include <memory>

#include "device_plugin/compiler/tilers/attention.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kResidentBytes = 80 * 1024;      // of queries and gradients of one head, per partition
constexpr int64_t kAccumulatorBytes = 112 * 1024;  // of gradients that wait for more
constexpr int64_t kChunkTiles = 4;                 // tiles of queries loaded together
constexpr size_t kStepsInFlight = 2;

class FlashGrad {
 public:
  FlashGrad(const AttentionGradKernel& k, const KernelContext& context, TileBuilder& tile)
      : k_(k), f_(k.forward), context_(context), tile_(tile), mask_(k.forward, context, tile) {
    queries_ = f_.q.sizes[2];
    keys_ = f_.k.sizes[2];
    d_ = f_.q.sizes[3];
    e_ = f_.v.sizes[3];
    group_ = f_.q.sizes[1] / f_.k.sizes[1];
    dtype_ = tile_dtype(f_.q.dtype);
    if (std::max(d_, e_) > kPsumColumns)
      throw_unsupported("gradients of attention with heads wider than " + std::to_string(kPsumColumns));
    key_tiles_ = std::clamp<int64_t>(kPsumColumns / std::max(d_, e_), 1, 4);
    const int64_t query_tiles = ceil_div(queries_, kPartitions);
    const int64_t accumulated =
        4 * (query_tiles * d_ + (group_ > 1 ? ceil_div(keys_, kPartitions) * (d_ + e_) : 0));
    if (accumulated > kAccumulatorBytes) {
      throw_unsupported("gradients of attention over " + std::to_string(queries_) + " queries and " +
                        std::to_string(keys_) + " keys: " + std::to_string(accumulated) +
                        " bytes per partition wait for more, the limit is " +
                        std::to_string(kAccumulatorBytes));
    }
    const int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(dtype_));
    resident_ = bytes * (query_tiles * (d_ + e_) +
                         queries_ * (ceil_div(d_, kPartitions) + ceil_div(e_, kPartitions))) <=
                kResidentBytes;
  }

  void run() {
    for (int64_t b = 0; b < f_.q.sizes[0]; ++b) {
      for (int64_t kh = 0; kh < f_.k.sizes[1]; ++kh) {
        key_sums_.clear();
        for (int64_t g = 0; g < group_; ++g) run_head(b, kh, kh * group_ + g, g);
      }
    }
  }

 private:
  struct Chunk {  // of queries: rows on partitions, and columns on partitions
    Panel q, q_turned, grad, grad_turned;
  };
  struct Keys {  // a block of keys
    int64_t j0, count;
    Panel k_turned, v_turned, k;
    std::vector<Access> dk, dv;  // PSUM, one per key tile
    bool started = false;
  };
  struct QueryTile {
    int64_t i0, rows;
    Access bias, delta;  // -lse and the sum of grad_out * out, [rows, 1]
    Access dq;           // not present until the first step
  };
  struct Step {
    std::shared_ptr<Keys> keys;
    std::shared_ptr<Chunk> chunk;
    QueryTile* tile;
    int64_t head, batch;
    Access score, dp;  // PSUM
    Access p, ds;      // [queries, keys]
    std::vector<Access> turned;
  };

  void run_head(int64_t b, int64_t kh, int64_t head, int64_t g) {
    chunks_.clear();
    std::vector<QueryTile> tiles;
    for (int64_t i = 0; i < queries_; i += kPartitions)
      tiles.push_back(query_tile(b, head, i, std::min(kPartitions, queries_ - i)));
    const int64_t block = key_tiles_ * kPartitions;
    for (int64_t j0 = 0; j0 < keys_; j0 += block) {
      std::shared_ptr<Keys> keys;
      for (QueryTile& t : tiles) {
        const KeyRange seen = visible_keys(f_, t.i0, t.i0 + t.rows - 1);
        if (seen.begin >= std::min(j0 + block, keys_) || seen.end <= j0) continue;
        if (!keys) keys = load_keys(b, kh, j0, std::min(block, keys_ - j0));
        advance({keys, chunk(b, head, t.i0), &t, head, b, {}, {}, {}, {}, {}});
      }
      drain();
      store_keys(b, kh, g, j0, std::min(block, keys_ - j0), keys.get());
    }
    if (k_.grad_q.buffer < 0) return;
    for (const QueryTile& t : tiles) {
      Access out = tile_.sbuf(static_cast<int>(t.rows), {d_}, tile_dtype(k_.grad_q.dtype));
      finish(out, t.dq, f_.scale);
      store_rows(k_.grad_q, b, head, t.i0, out);
    }
  }

  Access column(int64_t rows) { return tile_.sbuf(static_cast<int>(rows), {1}, Dtype::kF32); }

  Access rows_of(const View& v, int64_t b, int64_t head, int64_t i0, int64_t rows) {
    const bool matrix = v.sizes.size() == 4;
    const int64_t columns = matrix ? v.sizes[3] : 1;
    Access t = tile_.sbuf(static_cast<int>(rows), {columns}, tile_dtype(v.dtype));
    tile_.load(t, hbm_view(context_, window_of(v, b * v.strides[0] + head * v.strides[1] + i0 * v.strides[2],
                                               {rows, columns}, {v.strides[2], matrix ? v.strides[3] : 1})));
    return t;
  }
  void store_rows(const View& v, int64_t b, int64_t head, int64_t i0, const Access& rows) {
    tile_.store(
        hbm_view(context_, window_of(v, b * v.strides[0] + head * v.strides[1] + i0 * v.strides[2],
                                     {rows.num_partitions, v.sizes[3]}, {v.strides[2], v.strides[3]})),
        rows);
  }

  QueryTile query_tile(int64_t b, int64_t head, int64_t i0, int64_t rows) {
    QueryTile t{i0, rows, column(rows), column(rows), {}};
    tile_.tensor_scalar(t.bias, rows_of(f_.lse, b, head, i0, rows), AluOp::kMultiply, TileBuilder::imm(-1));
    Access product = tile_.sbuf(static_cast<int>(rows), {e_}, Dtype::kF32);
    tile_.tensor_tensor(product, rows_of(k_.grad_out, b, head, i0, rows), rows_of(f_.out, b, head, i0, rows),
                        AluOp::kMultiply);
    tile_.reduce(t.delta, product, AluOp::kAdd, 1);
    return t;
  }

  std::shared_ptr<Chunk> chunk(int64_t b, int64_t head, int64_t i0) {
    const int64_t number = i0 / (kChunkTiles * kPartitions), first = number * kChunkTiles * kPartitions;
    const auto found = chunks_.find(number);
    if (found != chunks_.end()) return found->second;
    if (!resident_) chunks_.clear();
    const int64_t rows = std::min(kChunkTiles * kPartitions, queries_ - first);
    const auto natural = [&](const View& v) {
      return load_panel(head_operand(v, b, head, true), 0, 1, 0, v.sizes[3], first / kPartitions,
                        ceil_div(rows, kPartitions), context_, tile_);
    };
    const auto turned = [&](const View& v) {
      return load_panel(head_operand(v, b, head, false), 0, 1, first, rows, 0,
                        ceil_div(v.sizes[3], kPartitions), context_, tile_);
    };
    return chunks_[number] = std::make_shared<Chunk>(
               Chunk{natural(f_.q), turned(f_.q), natural(k_.grad_out), turned(k_.grad_out)});
  }

  std::shared_ptr<Keys> load_keys(int64_t b, int64_t kh, int64_t j0, int64_t count) {
    const auto turned = [&](const View& v) {
      return load_panel(head_operand(v, b, kh, false), 0, 1, j0, count, 0, ceil_div(v.sizes[3], kPartitions),
                        context_, tile_);
    };
    auto keys =
        std::make_shared<Keys>(Keys{j0,
                                    count,
                                    turned(f_.k),
                                    turned(f_.v),
                                    load_panel(head_operand(f_.k, b, kh, true), 0, 1, 0, d_, j0 / kPartitions,
                                               ceil_div(count, kPartitions), context_, tile_),
                                    {},
                                    {},
                                    false});
    // The key tiles share a bank.
    const int64_t tiles = ceil_div(count, kPartitions);
    const int rows = static_cast<int>(std::min(kPartitions, count));
    const Access dk = tile_.psum(rows, {tiles, d_}), dv = tile_.psum(rows, {tiles, e_});
    for (int64_t i = 0; i < tiles; ++i) {
      const int n = static_cast<int>(std::min(kPartitions, count - i * kPartitions));
      keys->dk.push_back(slice_partitions(columns_of(dk, i * d_, d_), 0, n));
      keys->dv.push_back(slice_partitions(columns_of(dv, i * e_, e_), 0, n));
    }
    return keys;
  }

  void advance(Step&& step) {
    const bool full = waiting_.size() == kStepsInFlight;
    if (full) turn(waiting_.front());
    score(step);
    soften(step);
    waiting_.push_back(std::move(step));
    if (!full) return;
    multiply(waiting_.front());
    waiting_.pop_front();
  }
  void drain() {
    for (Step& s : waiting_) {
      turn(s);
      multiply(s);
    }
    waiting_.clear();
  }

  static int64_t row_in_chunk(const Step& s) { return s.tile->i0 % (kChunkTiles * kPartitions); }

  void score(Step& s) {
    const int rows = static_cast<int>(s.tile->rows);
    s.score = tile_.psum(rows, {s.keys->count});
    for (int64_t d = 0; d < ceil_div(d_, kPartitions); ++d) {
      tile_.matmul(s.score, s.chunk->q_turned.at(d, row_in_chunk(s), rows),
                   s.keys->k_turned.at(d, 0, s.keys->count), d > 0);
    }
    s.dp = tile_.psum(rows, {s.keys->count});
    for (int64_t e = 0; e < ceil_div(e_, kPartitions); ++e) {
      tile_.matmul(s.dp, s.chunk->grad_turned.at(e, row_in_chunk(s), rows),
                   s.keys->v_turned.at(e, 0, s.keys->count), e > 0);
    }
  }

  void soften(Step& s) {
    const int rows = static_cast<int>(s.tile->rows);
    const Access score = mask_.apply(s.score, s.batch, s.head, s.tile->i0, s.keys->j0);
    s.p = tile_.sbuf(rows, {s.keys->count}, dtype_);
    s.ds = tile_.sbuf(rows, {s.keys->count}, dtype_);
    tile_.activation(s.p, score, ActFunc::kExp, TileBuilder::imm(static_cast<float>(mask_.unit())),
                     TileBuilder::column(s.tile->bias));
    tile_.scalar_tensor_tensor(s.ds, s.dp, AluOp::kSubtract, TileBuilder::column(s.tile->delta),
                               AluOp::kMultiply, s.p);
  }

  int64_t tile_keys(const Step& s, int64_t i) const {
    return std::min(kPartitions, s.keys->count - i * kPartitions);
  }

  void turn(Step& s) {
    if (k_.grad_q.buffer < 0) return;
    const int64_t rows = s.tile->rows, count = static_cast<int64_t>(s.keys->dk.size());
    for (int64_t i = 0; i < count;) {
      const int64_t keys = tile_keys(s, i);
      const int64_t tiles = std::max<int64_t>(1, s.keys->count / kPartitions - i);
      Access bank = tile_.psum(static_cast<int>(keys), {tiles, rows}, dtype_);
      for (int64_t t = 0; t < tiles; ++t)
        tile_.transpose(columns_of(bank, t * rows, rows), columns_of(s.ds, (i + t) * kPartitions, keys));
      Access turned = tile_.sbuf(static_cast<int>(keys), {tiles, rows}, dtype_);
      tile_.copy(turned, bank);
      for (int64_t t = 0; t < tiles; ++t) s.turned.push_back(columns_of(turned, t * rows, rows));
      i += tiles;
    }
  }

  void multiply(Step& s) {
    const int64_t first_tile = s.tile->i0 / kPartitions, j_tile = s.keys->j0 / kPartitions;
    for (size_t i = 0; i < s.keys->dk.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i) * kPartitions, keys = tile_keys(s, static_cast<int64_t>(i));
      if (k_.grad_v.buffer >= 0)
        tile_.matmul(s.keys->dv[i], columns_of(s.p, at, keys), s.chunk->grad.at(first_tile, 0, e_),
                     s.keys->started);
      if (k_.grad_k.buffer >= 0)
        tile_.matmul(s.keys->dk[i], columns_of(s.ds, at, keys), s.chunk->q.at(first_tile, 0, d_),
                     s.keys->started);
    }
    s.keys->started = true;
    if (k_.grad_q.buffer < 0) return;
    QueryTile& t = *s.tile;
    Access product = tile_.psum(static_cast<int>(t.rows), {d_});
    for (size_t i = 0; i < s.turned.size(); ++i)
      tile_.matmul(product, s.turned[i], s.keys->k.at(j_tile + static_cast<int64_t>(i), 0, d_), i > 0);
    add_to(t.dq, product);
  }

  // sum += part, or sum = part.
  void add_to(Access& sum, const Access& part) {
    if (sum.present()) {
      tile_.tensor_tensor(sum, sum, part, AluOp::kAdd);
      return;
    }
    sum = tile_.sbuf(part.num_partitions, {part.free_elements()}, Dtype::kF32);
    tile_.copy(sum, part);
  }

  // out = sum * scale; zeros where nothing was summed.
  void finish(const Access& out, const Access& sum, double scale) {
    if (!sum.present()) {
      tile_.memset(out, 0);
    } else if (scale == 1) {
      tile_.copy(out, sum);
    } else {
      tile_.tensor_scalar(out, sum, AluOp::kMultiply, TileBuilder::imm(static_cast<float>(scale)));
    }
  }

  // Gradients of a block of keys, when the last head of the group has added its part.
  void store_keys(int64_t b, int64_t kh, int64_t g, int64_t j0, int64_t count, const Keys* keys) {
    for (int64_t i = 0; i * kPartitions < count; ++i) {
      const int64_t j = j0 + i * kPartitions, rows = std::min(kPartitions, count - i * kPartitions);
      const auto out = [&](const View& v, bool of_k) {
        if (v.buffer < 0) return;
        Access sum;
        if (keys != nullptr) sum = (of_k ? keys->dk : keys->dv)[static_cast<size_t>(i)];
        if (group_ > 1) {
          Access& waiting = key_sums_[{j, of_k}];
          if (sum.present()) add_to(waiting, sum);
          if (g + 1 < group_) return;
          sum = waiting;
        }
        Access t = tile_.sbuf(static_cast<int>(rows), {v.sizes[3]}, tile_dtype(v.dtype));
        finish(t, sum, of_k ? f_.scale : 1);
        store_rows(v, b, kh, j, t);
      };
      out(k_.grad_k, true);
      out(k_.grad_v, false);
    }
  }

  const AttentionGradKernel& k_;
  const AttentionKernel& f_;
  const KernelContext& context_;
  TileBuilder& tile_;
  AttentionMask mask_;
  int64_t queries_, keys_, d_, e_, group_, key_tiles_;
  Dtype dtype_;
  bool resident_;
  std::map<int64_t, std::shared_ptr<Chunk>> chunks_;
  std::map<std::pair<int64_t, bool>, Access> key_sums_;
  std::deque<Step> waiting_;
};

}  // namespace

void tile_attention_grad(const AttentionGradKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  if (kernel.forward.q.numel() == 0 || kernel.forward.k.numel() == 0) {
    for (const View* v : {&kernel.grad_q, &kernel.grad_k, &kernel.grad_v}) {
      if (v->buffer < 0) continue;
      MapKernel zeros;
      zeros.domain = v->sizes;
      zeros.num_kept = static_cast<int32_t>(v->sizes.size());
      zeros.exprs.resize(1);
      zeros.outputs = {{*v, 0}};
      tile_map(zeros, context, tile);
    }
    return;
  }
  FlashGrad(kernel, context, tile).run();
}

}  // namespace trnsim::compiler
