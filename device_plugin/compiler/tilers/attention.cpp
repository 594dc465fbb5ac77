// Scaled dot-product attention without the score matrix in HBM.
//
// Queries lie on partitions. A step takes one tile of 128 queries and a group of up to 1024 keys: scores in PSUM, their
// row maxima, exp with the row sums on the Scalar engine, the probabilities transposed on the tensor engine, and the
// product with the values accumulated in PSUM over the group. Between groups the running maximum, sum and result of a
// row stay in SBUF (online softmax). The products of a step are issued behind the scores of the steps after it, so the
// tensor engine works while Vector and Scalar make the probabilities. Keys that no query of the tile sees are skipped.
#include "device_plugin/compiler/tilers/attention.h"

#include <deque>
#include <limits>
#include <memory>

namespace trnsim::compiler {
namespace {

constexpr int64_t kResidentBytes = 96 * 1024;  // of keys and values of one head, per partition
constexpr int64_t kQueryTiles = 4;             // tiles of queries that take turns on a group of keys
constexpr int64_t kTransposesPerBank = 4;
constexpr float kSmallestSum =
    0x1p-60f;  // of a row that sees a key the sum is 1 or more; log is defined down to 2^-64
constexpr int64_t kStatistics = 64;   // query tiles whose logs are made together
constexpr size_t kStepsInFlight = 2;  // steps whose probabilities are being made

class Flash {
 public:
  Flash(const AttentionKernel& k, const KernelContext& context, TileBuilder& tile)
      : k_(k), context_(context), tile_(tile), mask_(k, context, tile) {
    queries_ = k.q.sizes[2];
    keys_ = k.k.sizes[2];
    width_ = k.q.sizes[3];
    value_width_ = k.v.sizes[3];
    dtype_ = tile_dtype(k.q.dtype);
    const int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(dtype_));
    resident_ =
        (ceil_div(width_, kPartitions) * keys_ + ceil_div(keys_, kPartitions) * value_width_) * bytes <=
        kResidentBytes;
    // Scores are compared before they are scaled: the smallest that stays finite with the scale.
    lowest_ = std::numeric_limits<float>::lowest() / std::max(1.0f, static_cast<float>(mask_.unit()));
  }

  void run() {
    const int64_t heads_per_key_head = k_.q.sizes[1] / k_.k.sizes[1];
    for (int64_t b = 0; b < k_.q.sizes[0]; ++b) {
      for (int64_t kh = 0; kh < k_.k.sizes[1]; ++kh) {
        groups_.clear();
        for (int64_t g = 0; g < heads_per_key_head; ++g) {
          for (int64_t i0 = 0; i0 < queries_; i0 += kQueryTiles * kPartitions)
            run_block(b, kh, kh * heads_per_key_head + g, i0);
        }
      }
    }
    for (Step& s : waiting_) {
      turn(s);
      multiply(s);
    }
    for (auto& [rows, statistics] : statistics_) store_statistics(rows, statistics);
  }

 private:
  struct Group {  // keys and values of one group
    Panel k, v;
  };
  struct QueryTile {
    int64_t b, head, i0, rows;
    int64_t last_group;
    std::shared_ptr<Panel> q;
    int64_t q_column;
    bool started = false;
    Access maximum, sum, result;  // running; [rows, 1], [rows, 1], [rows, value width]
  };
  struct Step {
    std::shared_ptr<QueryTile> tile;
    std::shared_ptr<Group> group;
    int64_t number, j0, j1;
    std::vector<Access> scores;  // per PSUM bank
    Access probabilities;        // [rows, j1 - j0]
    Access correction, sums;  // exp of what the maximum rose by (not in the first step); row sums, per bank
    std::vector<Access> turned;
  };

  struct Place {
    int64_t b, head, i0;
  };
  struct Statistics {  // of finished query tiles, one column each
    Access maximum, sum;
    std::vector<Place> tiles;
  };

  std::shared_ptr<Group> group(int64_t b, int64_t kh, int64_t number) {
    const auto found = groups_.find(number);
    if (found != groups_.end()) return found->second;
    if (!resident_) groups_.clear();
    const int64_t j0 = number * kAttentionGroup, n = std::min(kAttentionGroup, keys_ - j0);
    auto g = std::make_shared<Group>(
        Group{load_panel(head_operand(k_.k, b, kh, false), 0, 1, j0, n, 0, ceil_div(width_, kPartitions),
                         context_, tile_),
              load_panel(head_operand(k_.v, b, kh, true), 0, 1, 0, value_width_, j0 / kPartitions,
                         ceil_div(n, kPartitions), context_, tile_)});
    return groups_[number] = g;
  }

  void run_block(int64_t b, int64_t kh, int64_t head, int64_t i0) {
    const int64_t rows = std::min(kQueryTiles * kPartitions, queries_ - i0);
    const auto q = std::make_shared<Panel>(load_panel(head_operand(k_.q, b, head, false), 0, 1, i0, rows, 0,
                                                      ceil_div(width_, kPartitions), context_, tile_));
    std::vector<std::shared_ptr<QueryTile>> tiles;
    int64_t groups = 0;
    for (int64_t r = 0; r < rows; r += kPartitions) {
      const int64_t n = std::min(kPartitions, rows - r);
      const KeyRange seen = visible_keys(k_, i0 + r, i0 + r + n - 1);
      const auto t = std::make_shared<QueryTile>(
          QueryTile{b, head, i0 + r, n, ceil_div(seen.end, kAttentionGroup) - 1, q, r, false, {}, {}, {}});
      if (seen.begin == seen.end) {
        store_blind(*t);
        continue;
      }
      groups = std::max(groups, t->last_group + 1);
      tiles.push_back(t);
    }
    for (int64_t g = 0; g < groups; ++g) {
      for (const auto& t : tiles) {
        const KeyRange seen = visible_keys(k_, t->i0, t->i0 + t->rows - 1);
        const int64_t j0 = std::max(seen.begin, g * kAttentionGroup),
                      j1 = std::min(seen.end, (g + 1) * kAttentionGroup);
        if (j0 >= j1) continue;
        advance(Step{t, group(b, kh, g), g, j0, j1, {}, {}, {}, {}, {}});
      }
    }
  }

  // The transposes of an old step go first: their copies are done when the tensor engine has made the new scores.
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

  Access column(int64_t rows) { return tile_.sbuf(static_cast<int>(rows), {1}, Dtype::kF32); }

  void score(Step& s) {
    const QueryTile& t = *s.tile;
    const int64_t group_begin = s.number * kAttentionGroup, d_tiles = ceil_div(width_, kPartitions);
    for (int64_t j = s.j0; j < s.j1; j += kPsumColumns) {
      const int64_t count = std::min(kPsumColumns, s.j1 - j);
      s.scores.push_back(tile_.psum(static_cast<int>(t.rows), {count}));
      for (int64_t d = 0; d < d_tiles; ++d) {
        tile_.matmul(s.scores.back(), t.q->at(d, t.q_column, t.rows),
                     s.group->k.at(d, j - group_begin, count), d > 0);
      }
    }
  }

  // From scores to probabilities.
  void soften(Step& s) {
    QueryTile& t = *s.tile;
    std::vector<Access>& scores = s.scores;
    const int64_t n = s.j1 - s.j0, banks = static_cast<int64_t>(scores.size());
    Access maxima = tile_.sbuf(static_cast<int>(t.rows), {banks}, Dtype::kF32);
    for (int64_t i = 0; i < banks; ++i) {
      Access& block = scores[static_cast<size_t>(i)];
      block = mask_.apply(block, t.b, t.head, t.i0, s.j0 + i * kPsumColumns);
      tile_.reduce(columns_of(maxima, i, 1), block, AluOp::kMax, 1);
    }
    Access maximum = maxima;
    if (banks > 1) {
      maximum = column(t.rows);
      tile_.reduce(maximum, maxima, AluOp::kMax, 1);
    }
    if (t.started) {
      Access risen = column(t.rows);
      tile_.tensor_tensor(risen, maximum, t.maximum, AluOp::kMax);
      maximum = risen;
    }
    const float unit = static_cast<float>(mask_.unit());
    Access bias = column(t.rows);
    if (mask_.hides()) {
      // A maximum of -inf would make exp(-inf + inf).
      Access bounded = column(t.rows);
      tile_.tensor_scalar(bounded, maximum, AluOp::kMax, TileBuilder::imm(lowest_));
      maximum = bounded;
    }
    tile_.tensor_scalar(bias, maximum, AluOp::kMultiply, TileBuilder::imm(-unit));
    if (t.started) {
      s.correction = column(t.rows);
      tile_.activation(s.correction, t.maximum, ActFunc::kExp, TileBuilder::imm(unit),
                       TileBuilder::column(bias));
    }
    t.maximum = maximum;
    s.probabilities = tile_.sbuf(static_cast<int>(t.rows), {n}, dtype_);
    s.sums = tile_.sbuf(static_cast<int>(t.rows), {banks}, Dtype::kF32);
    for (int64_t i = 0; i < banks; ++i) {
      const Access sum = columns_of(s.sums, i, 1);
      const Access& block = scores[static_cast<size_t>(i)];
      tile_.activation(columns_of(s.probabilities, i * kPsumColumns, block.free_elements()), block,
                       ActFunc::kExp, TileBuilder::imm(unit), TileBuilder::column(bias), &sum);
    }
    t.started = true;
  }

  // Of a step whose exponentials are done: the Vector engine must not wait for them in front of the maxima of the next.
  void add_sums(Step& s) {
    QueryTile& t = *s.tile;
    if (s.sums.free_elements() > 1) {
      Access sum = column(t.rows);
      tile_.reduce(sum, s.sums, AluOp::kAdd, 1);
      s.sums = sum;
    }
    if (s.correction.present()) {
      Access sum = column(t.rows);
      tile_.scalar_tensor_tensor(sum, t.sum, AluOp::kMultiply, TileBuilder::column(s.correction), AluOp::kAdd,
                                 s.sums);
      t.sum = sum;
    } else {
      t.sum = s.sums;
    }
  }

  // Probabilities with keys on partitions, in chunks of key tiles: [keys, tile, query].
  void turn(Step& s) {
    const int64_t n = s.j1 - s.j0, rows = s.tile->rows;
    for (int64_t kt = 0; kt * kPartitions < n;) {
      const int64_t keys = std::min(kPartitions, n - kt * kPartitions);
      const int64_t tiles = std::max<int64_t>(1, std::min(kTransposesPerBank, n / kPartitions - kt));
      Access bank = tile_.psum(static_cast<int>(keys), {tiles, rows}, dtype_);
      for (int64_t i = 0; i < tiles; ++i) {
        tile_.transpose(columns_of(bank, i * rows, rows),
                        columns_of(s.probabilities, (kt + i) * kPartitions, keys));
      }
      s.turned.push_back(tile_.sbuf(static_cast<int>(keys), {tiles, rows}, dtype_));
      tile_.copy(s.turned.back(), bank);
      kt += tiles;
    }
  }

  // Probabilities times values, added to the running result.
  void multiply(Step& s) {
    QueryTile& t = *s.tile;
    Access product = tile_.psum(static_cast<int>(t.rows), {value_width_});
    int64_t kt = 0;
    for (const Access& chunk : s.turned) {
      for (uint32_t i = 0; i < chunk.size[0]; ++i, ++kt) {
        tile_.matmul(product, columns_of(chunk, i * t.rows, t.rows),
                     s.group->v.at(s.j0 / kPartitions + kt, 0, value_width_), kt > 0);
      }
    }
    add_sums(s);
    if (s.correction.present()) {
      Access sum = tile_.sbuf(static_cast<int>(t.rows), {value_width_}, Dtype::kF32);
      tile_.scalar_tensor_tensor(sum, t.result, AluOp::kMultiply, TileBuilder::column(s.correction),
                                 AluOp::kAdd, product);
      t.result = sum;
    } else if (s.number < t.last_group) {
      t.result = tile_.sbuf(static_cast<int>(t.rows), {value_width_}, Dtype::kF32);
      tile_.copy(t.result, product);
    } else {
      t.result = product;
    }
    if (s.number == t.last_group) store(t);
  }

  void store(QueryTile& t) {
    Access sum = t.sum;
    if (mask_.may_blind()) {
      // No key seen: the result is 0 / smallest, not 0 / 0.
      sum = column(t.rows);
      tile_.tensor_scalar(sum, t.sum, AluOp::kMax, TileBuilder::imm(kSmallestSum));
    }
    // Of no key the sum is 0 and the result 0 * inf, unless that is to be 0.
    Access inverse = column(t.rows);
    tile_.reciprocal(inverse, k_.blind_is_nan ? t.sum : sum);
    Access out = tile_.sbuf(static_cast<int>(t.rows), {value_width_}, tile_dtype(k_.out.dtype));
    tile_.tensor_scalar(out, t.result, AluOp::kMultiply, TileBuilder::column(inverse));
    store_rows(k_.out, t.b, t.head, t.i0, out);
    if (k_.lse.buffer >= 0) keep_statistics(t);
  }

  // Logs come later, many tiles at once: Scalar loads a table to change from exp to log.
  void keep_statistics(const QueryTile& t) {
    Statistics& s = statistics_[t.rows];
    if (s.tiles.empty()) {
      for (Access* a : {&s.maximum, &s.sum})
        *a = tile_.sbuf(static_cast<int>(t.rows), {kStatistics}, Dtype::kF32);
    }
    const int64_t at = static_cast<int64_t>(s.tiles.size());
    tile_.copy(columns_of(s.maximum, at, 1), t.maximum);
    tile_.copy(columns_of(s.sum, at, 1), t.sum);
    s.tiles.push_back({t.b, t.head, t.i0});
    if (at + 1 == kStatistics) store_statistics(t.rows, s);
  }

  // Logs of the sums of exp(score).
  void store_statistics(int64_t rows, Statistics& s) {
    const int64_t n = static_cast<int64_t>(s.tiles.size());
    if (n == 0) return;
    const auto fresh = [&] { return tile_.sbuf(static_cast<int>(rows), {n}, Dtype::kF32); };
    const Access maximum = columns_of(s.maximum, 0, n), sum = columns_of(s.sum, 0, n);
    Access log = fresh(), lse = fresh();
    Access positive = sum;
    if (mask_.may_blind()) {
      positive = fresh();
      tile_.tensor_scalar(positive, sum, AluOp::kMax, TileBuilder::imm(kSmallestSum));
    }
    tile_.activation(log, positive, ActFunc::kLog);
    tile_.scalar_tensor_tensor(lse, maximum, AluOp::kMultiply,
                               TileBuilder::imm(static_cast<float>(mask_.unit())), AluOp::kAdd, log);
    if (mask_.may_blind()) {
      Access mark = fresh(), marked = fresh();
      if (k_.blind_is_nan) {
        tile_.reciprocal(mark, sum);
        tile_.scalar_tensor_tensor(marked, mark, AluOp::kMultiply, TileBuilder::imm(0), AluOp::kAdd, lse);
      } else {
        tile_.tensor_scalar(mark, sum, AluOp::kEqual, TileBuilder::imm(0), AluOp::kMultiply,
                            TileBuilder::imm(std::numeric_limits<float>::max()));
        // More than once: max * 4 + lse overflows to +inf whatever lse is.
        tile_.scalar_tensor_tensor(marked, mark, AluOp::kMultiply, TileBuilder::imm(4), AluOp::kAdd, lse);
      }
      lse = marked;
    }
    for (int64_t i = 0; i < n; ++i) {
      const Place& p = s.tiles[static_cast<size_t>(i)];
      store_rows(k_.lse, p.b, p.head, p.i0, columns_of(lse, i, 1));
    }
    s = {};
  }

  // Queries that see no key by the band alone.
  void store_blind(const QueryTile& t) {
    Access zero = tile_.sbuf(static_cast<int>(t.rows), {value_width_}, tile_dtype(k_.out.dtype));
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    tile_.memset(zero, k_.blind_is_nan ? kNan : 0);
    store_rows(k_.out, t.b, t.head, t.i0, zero);
    if (k_.lse.buffer < 0) return;
    Access infinite = column(t.rows);
    tile_.memset(infinite, k_.blind_is_nan ? kNan : std::numeric_limits<float>::infinity());
    store_rows(k_.lse, t.b, t.head, t.i0, infinite);
  }

  void store_rows(const View& v, int64_t b, int64_t head, int64_t i0, const Access& rows) {
    const bool matrix = v.sizes.size() == 4;
    const int64_t at = b * v.strides[0] + head * v.strides[1] + i0 * v.strides[2], n = rows.num_partitions;
    tile_.store(hbm_view(context_, matrix ? window_of(v, at, {n, v.sizes[3]}, {v.strides[2], v.strides[3]})
                                          : window_of(v, at, {n}, {v.strides[2]})),
                rows);
  }

  const AttentionKernel& k_;
  const KernelContext& context_;
  TileBuilder& tile_;
  AttentionMask mask_;
  int64_t queries_, keys_, width_, value_width_;
  Dtype dtype_;
  bool resident_;
  float lowest_;
  std::map<int64_t, std::shared_ptr<Group>> groups_;
  std::deque<Step> waiting_;
  std::map<int64_t, Statistics> statistics_;  // by rows of a tile
};

}  // namespace

void tile_attention(const AttentionKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  if (kernel.out.numel() == 0) return;
  Flash(kernel, context, tile).run();
}

}  // namespace trnsim::compiler
