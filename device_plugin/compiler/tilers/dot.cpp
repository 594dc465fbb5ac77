// Batched matrix product on the tensor engine. The contraction axis lies on partitions (panel.h); the result
// tile has the rows of `a` on partitions and at most 512 columns of `b` in one PSUM bank.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "device_plugin/compiler/tilers/access_math.h"
#include "device_plugin/compiler/tilers/panel.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {
namespace {

// SBUF budget per partition for operand panels; the rest holds natural rows, output tiles and the next
// panels.
constexpr int64_t kResidentBytes = 96 * 1024;
constexpr int64_t kBothResidentBytes = 136 * 1024;
constexpr int64_t kBatchPanelBytes = 24 * 1024;
constexpr int64_t kRowBlockBytes = 16 * 1024;
constexpr int64_t kMaxRowTiles = 8;        // row tiles per block when its panels are small
constexpr int64_t kStreamingRowTiles = 4;  // PSUM banks accumulating while the right operand streams by
constexpr int64_t kOutputColumns = 2048;   // columns of one output tile, so one store moves up to 1 MiB

bool is_zero_dot(const DotKernel& k) { return k.a.sizes.back() == 0; }

// The same result from the map tiler: exact integers, empty contractions, plain inner products.
void dot_by_map(const DotKernel& k, const KernelContext& context, TileBuilder& tile) {
  const size_t batch = k.out.sizes.size() - 2;
  const int64_t contraction = k.a.sizes[batch + 1];
  const bool integer = isa::is_integer(k.a.dtype);
  const Dtype type = integer ? Dtype::kI32 : Dtype::kF32;
  MapKernel map;
  map.domain = k.out.sizes;
  map.num_kept = static_cast<int32_t>(batch + 2);
  const bool reduced = contraction > 0;
  if (reduced) map.domain.push_back(contraction);
  auto add_input = [&](View v, std::vector<int64_t> strides) {
    if (reduced) {
      v.sizes = map.domain;
      v.strides = std::move(strides);
    } else {
      v.sizes = map.domain;
      v.strides = k.out.strides;
    }
    map.inputs.push_back(std::move(v));
  };
  auto node = [&](ExprOp op, int32_t a = -1, int32_t b = -1) {
    Expr e;
    e.op = op;
    e.dtype = type;
    e.a = a;
    e.b = b;
    map.exprs.push_back(e);
    return static_cast<int32_t>(map.exprs.size() - 1);
  };
  int32_t accumulator;
  int32_t first_extra = 0;
  if (reduced) {
    std::vector<int64_t> sa(k.a.strides.begin(), k.a.strides.begin() + batch),
        sb(k.b.strides.begin(), k.b.strides.begin() + batch);
    sa.insert(sa.end(), {k.a.strides[batch], 0, k.a.strides[batch + 1]});
    sb.insert(sb.end(), {0, k.b.strides[batch + 1], k.b.strides[batch]});
    add_input(k.a, sa);
    add_input(k.b, sb);
    const int32_t a = node(ExprOp::kInput), b = node(ExprOp::kInput);
    map.exprs[b].index = 1;
    accumulator = node(ExprOp::kReduce, node(ExprOp::kMul, a, b));
    map.exprs[accumulator].reduce = ReduceOp::kSum;
    first_extra = 2;
  } else {
    accumulator = node(ExprOp::kConst);
  }
  for (const View& extra : k.extra) {
    std::vector<int64_t> strides = extra.strides;
    strides.push_back(0);
    if (reduced) {
      add_input(extra, strides);
    } else {
      map.inputs.push_back(extra);
    }
  }
  int32_t result = accumulator;
  if (!k.epilogue.empty()) {
    std::vector<int32_t> renamed;
    for (const Expr& e : k.epilogue) {
      if (e.op == ExprOp::kInput && e.index == 0) {
        renamed.push_back(accumulator);
        continue;
      }
      Expr copy = e;
      if (e.op == ExprOp::kInput) copy.index = first_extra + e.index - 1;
      for (int32_t* operand : {&copy.a, &copy.b, &copy.c})
        if (*operand >= 0) *operand = renamed[*operand];
      map.exprs.push_back(copy);
      renamed.push_back(static_cast<int32_t>(map.exprs.size() - 1));
    }
    result = renamed.back();
  }
  map.outputs.push_back({k.out, result});
  tile_map(map, context, tile);
}

// Axis `axis` of v merged with the row axis `row`: [.., B, .., R] -> [.., B*R] at `row`, when strides allow.
bool can_merge(const View& v, int axis, int row) { return v.strides[axis] == v.sizes[row] * v.strides[row]; }
void merge(View& v, int axis, int row) {
  v.sizes[row] *= v.sizes[axis];
  v.sizes.erase(v.sizes.begin() + axis);
  v.strides.erase(v.strides.begin() + axis);
}
void drop_axis(View& v, int axis) {
  v.sizes.erase(v.sizes.begin() + axis);
  v.strides.erase(v.strides.begin() + axis);
}
void swap_last(View& v) {
  const size_t r = v.sizes.size();
  std::swap(v.sizes[r - 1], v.sizes[r - 2]);
  std::swap(v.strides[r - 1], v.strides[r - 2]);
}

// Chooses which operand is stationary: the store of the result should move long runs.
void choose_roles(DotKernel& k) {
  const size_t r = k.out.sizes.size();
  const int64_t m = k.out.sizes[r - 2], n = k.out.sizes[r - 1];
  const int64_t run = k.out.strides[r - 1] == 1 ? n : 1;
  const int64_t swapped_run = k.out.strides[r - 2] == 1 ? m : 1;
  const auto tiles = [](int64_t rows, int64_t columns) {
    return ceil_div(rows, kPartitions) * ceil_div(columns, kPsumColumns);
  };
  const bool swap = swapped_run > run || (swapped_run == run && tiles(n, m) < tiles(m, n));
  if (!swap) return;
  swap_last(k.a);
  swap_last(k.b);
  std::swap(k.a, k.b);
  swap_last(k.out);
  for (View& e : k.extra) swap_last(e);
}

// Drops batch axes of size 1, folds batch axes into rows or columns where one operand does not depend on
// them, and merges neighbouring batch axes.
void fold_batches(DotKernel& k) {
  auto rank = [&] { return static_cast<int>(k.out.sizes.size()); };
  for (int axis = 0; axis < rank() - 2;) {
    if (k.out.sizes[axis] != 1) {
      ++axis;
      continue;
    }
    for (View* v : {&k.a, &k.b, &k.out}) drop_axis(*v, axis);
    for (View& e : k.extra) drop_axis(e, axis);
  }
  bool changed = true;
  while (changed && rank() > 2) {
    changed = false;
    const int axis = rank() - 3, row = rank() - 2, column = rank() - 1;
    const auto all_extra = [&](int target) {
      return std::all_of(k.extra.begin(), k.extra.end(),
                         [&](const View& e) { return can_merge(e, axis, target); });
    };
    if (k.b.strides[axis] == 0 && can_merge(k.a, axis, row) && can_merge(k.out, axis, row) &&
        all_extra(row)) {
      merge(k.a, axis, row);
      merge(k.out, axis, row);
      for (View& e : k.extra) merge(e, axis, row);
      drop_axis(k.b, axis);
      changed = true;
    } else if (k.a.strides[axis] == 0 && can_merge(k.b, axis, column) && can_merge(k.out, axis, column) &&
               all_extra(column)) {
      merge(k.b, axis, column);
      merge(k.out, axis, column);
      for (View& e : k.extra) merge(e, axis, column);
      drop_axis(k.a, axis);
      changed = true;
    }
  }
  // Neighbouring batch axes.
  for (int axis = rank() - 4; axis >= 0; --axis) {
    bool ok =
        can_merge(k.a, axis, axis + 1) && can_merge(k.b, axis, axis + 1) && can_merge(k.out, axis, axis + 1);
    for (const View& e : k.extra) ok = ok && can_merge(e, axis, axis + 1);
    if (!ok) continue;
    for (View* v : {&k.a, &k.b, &k.out}) merge(*v, axis, axis + 1);
    for (View& e : k.extra) merge(e, axis, axis + 1);
  }
  // The longest batch axis is the one whose members share instructions: put it last.
  if (rank() > 3) {
    int longest = 0;
    for (int axis = 1; axis < rank() - 2; ++axis)
      if (k.out.sizes[axis] >= k.out.sizes[longest]) longest = axis;
    for (View* v : {&k.a, &k.b, &k.out}) {
      std::swap(v->sizes[longest], v->sizes[rank() - 3]);
      std::swap(v->strides[longest], v->strides[rank() - 3]);
    }
    for (View& e : k.extra) {
      std::swap(e.sizes[longest], e.sizes[rank() - 3]);
      std::swap(e.strides[longest], e.strides[rank() - 3]);
    }
  }
}

class DotTiler {
 public:
  DotTiler(const DotKernel& k, const KernelContext& context, TileBuilder& tile)
      : k_(k), context_(context), tile_(tile) {
    const size_t r = k.out.sizes.size();
    m_ = k.out.sizes[r - 2];
    n_ = k.out.sizes[r - 1];
    contraction_ = k.a.sizes[r - 1];
    batch_ = r > 2 ? k.out.sizes[r - 3] : 1;
    const auto batch_stride = [&](const View& v) { return r > 2 ? v.strides[r - 3] : 0; };
    a_ = {k.a, batch_stride(k.a), k.a.strides[r - 2], k.a.strides[r - 1], contraction_, Dtype::kF32};
    b_ = {k.b, batch_stride(k.b), k.b.strides[r - 1], k.b.strides[r - 2], contraction_, Dtype::kF32};
    out_batch_stride_ = batch_stride(k.out);
    a_.load_dtype = b_.load_dtype = load_dtype();
    bytes_ = static_cast<int64_t>(isa::dtype_bytes(a_.load_dtype));
    k_tiles_ = ceil_div(contraction_, kPartitions);
    if (k_.epilogue.empty()) return;
    roots_ = {static_cast<int32_t>(k_.epilogue.size() - 1)};
  }

  void run() {
    // Every combination of the outer batch axes.
    const size_t outer = k_.out.sizes.size() > 3 ? k_.out.sizes.size() - 3 : 0;
    std::vector<int64_t> index(outer, 0);
    while (true) {
      shift(index);
      run_batches();
      size_t axis = outer;
      while (axis > 0 && ++index[axis - 1] == k_.out.sizes[axis - 1]) index[--axis] = 0;
      if (axis == 0) break;
    }
  }

 private:
  Dtype load_dtype() const {
    const Dtype d = tile_dtype(k_.a.dtype);
    // The tensor engine transposes 2- and 4-byte elements; every FP8 value is a BF16 value.
    if (d == Dtype::kF8E4M3FN) return Dtype::kBF16;
    if (isa::dtype_bytes(d) == 1 && (loads_natural(a_, m_) || loads_natural(b_, n_))) return Dtype::kBF16;
    return d;
  }

  void shift(const std::vector<int64_t>& index) {
    const auto offset = [&](const View& v) {
      int64_t o = v.offset;
      for (size_t i = 0; i < index.size(); ++i) o += index[i] * v.strides[i];
      return o;
    };
    a_.base.offset = offset(k_.a);
    b_.base.offset = offset(k_.b);
    out_ = k_.out;
    out_.offset = offset(k_.out);
    extra_ = k_.extra;
    for (size_t i = 0; i < extra_.size(); ++i) extra_[i].offset = offset(k_.extra[i]);
  }

  void run_batches() {
    const int64_t per_batch = k_tiles_ * std::max(m_, n_) * bytes_;
    if (batch_ > 1 && m_ <= kPartitions && n_ <= kPsumColumns && 2 * per_batch <= kBatchPanelBytes) {
      const int64_t group = std::min(batch_, kBatchPanelBytes / per_batch);
      // Equal groups, so that the last is not a straggler.
      const int64_t nb = ceil_div(batch_, ceil_div(batch_, group));
      for (int64_t b = 0; b < batch_; b += nb) run_group(b, std::min(nb, batch_ - b));
      return;
    }
    for (int64_t b = 0; b < batch_; ++b) run_blocks(b);
  }

  // Results of several row tiles (or batches) side by side: [rows, slots, columns]. The last row tile may be
  // short.
  struct OutputTile {
    Access tile;
    int64_t b0, nb, row0, rows, column0, columns;
    int64_t slots;
    std::vector<Access> extra;     // like `tile`; slot stride 0 when the same for every slot
    std::vector<Access> columns_;  // per-partition extras, [rows, slots]
  };

  // Several whole small products: one load per operand, results of as many batches as fit share a PSUM bank.
  void run_group(int64_t b0, int64_t nb) {
    const Panel a = load_panel(a_, b0, nb, 0, m_, 0, k_tiles_, context_, tile_);
    const Panel b = load_panel(b_, b0, nb, 0, n_, 0, k_tiles_, context_, tile_);
    const OutputTile out = output_tile(b0, nb, 0, m_, 0, n_);
    const int64_t quads = run_quads(a, b, out, nb);
    const int64_t per_bank = std::min(nb, kPsumColumns / n_);
    for (int64_t first = 4 * quads; first < nb; first += per_bank) {
      const int64_t count = std::min(per_bank, nb - first);
      Access bank = tile_.psum(static_cast<int>(m_), {count, n_});
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t kt = 0; kt < k_tiles_; ++kt) {
          tile_.matmul(columns_of(bank, i * n_, n_), a.at(kt, (first + i) * m_, m_),
                       b.at(kt, (first + i) * n_, n_), kt > 0);
        }
      }
      epilogue(out, first, count, 0, n_, bank);
    }
    store(out);
  }

  // Products of at most 32 rows, four per matrix product: the stationary matrix holds 32 columns of each of
  // four batches, so result rows 32 i .. of columns n i .. are batch i (the other blocks are products across
  // batches, which nobody reads). Where a batch has fewer than 32 rows its columns are followed by the next
  // batch's. Returns the number of quadruples done; the rest needs the general way.
  int64_t run_quads(const Panel& a, const Panel& b, const OutputTile& out, int64_t nb) {
    constexpr int64_t kQuadrant = 32, kBatches = 4, kMaxColumns = 64;
    if (!k_.epilogue.empty() || m_ > kQuadrant || n_ > kMaxColumns) return 0;
    // The last column read is 32 behind the start of the last batch.
    const int64_t last = nb - ceil_div(kQuadrant, m_);  // largest batch that may be the last of a quadruple
    const int64_t quads = last < 0 ? 0 : (last + 1) / kBatches;
    const int64_t columns = kBatches * n_, per_bank = kPsumColumns / columns;
    for (int64_t first = 0; first < quads; first += per_bank) {
      const int64_t count = std::min(per_bank, quads - first);
      Access bank = tile_.psum(static_cast<int>(kPartitions), {count, columns});
      for (int64_t q = 0; q < count; ++q) {
        const int64_t batch = (first + q) * kBatches;
        for (int64_t kt = 0; kt < k_tiles_; ++kt) {
          const Access stationary = with_dims(a.at(kt, batch * m_, 1), 0, {{m_, kBatches}, {1, kQuadrant}});
          tile_.matmul(columns_of(bank, q * columns, columns), stationary, b.at(kt, batch * n_, columns),
                       kt > 0);
        }
      }
      for (int64_t i = 0; i < kBatches; ++i) {
        const Access source = slice_partitions(with_dims(bank, i * n_, {{columns, count}, {1, n_}}),
                                               static_cast<int>(i * kQuadrant), static_cast<int>(m_));
        tile_.copy(with_dims(out.tile, (first * kBatches + i) * n_, {{columns, count}, {1, n_}}), source);
      }
    }
    return quads;
  }

  // ---- one product in blocks ----
  // Panels of one operand: all kept (by block number), or only the current one.
  class Cache {
   public:
    void keep_all(bool keep) { keep_all_ = keep; }
    template <typename Load>
    const Panel& get(int64_t key, Load load) {
      auto found = panels_.find(key);
      if (found != panels_.end()) return found->second;
      if (!keep_all_) panels_.clear();
      return panels_.emplace(key, load()).first->second;
    }
    void clear() { panels_.clear(); }

   private:
    bool keep_all_ = false;
    std::map<int64_t, Panel> panels_;
  };

  void run_blocks(int64_t batch) {
    const int64_t row_bytes = k_tiles_ * kPartitions * bytes_;  // of a row tile's panel, per partition
    const int64_t a_bytes = k_tiles_ * m_ * bytes_, b_bytes = k_tiles_ * n_ * bytes_;
    const int64_t row_tiles = ceil_div(m_, kPartitions);
    const bool both = a_bytes + b_bytes <= kBothResidentBytes;
    const bool keep_b =
        both || (b_bytes <= kResidentBytes && (b_bytes >= a_bytes || a_bytes > kResidentBytes));
    const bool keep_a = both || (!keep_b && a_bytes <= kResidentBytes);
    if (!keep_a && !keep_b) {
      run_streaming(batch);
      return;
    }
    // Panels of the operand that streams are bounded so that two of them fit beside the resident one.
    int64_t block_tiles =
        std::clamp<int64_t>(kRowBlockBytes / row_bytes, 1, std::min(kMaxRowTiles, row_tiles));
    const int64_t block_rows = block_tiles * kPartitions;
    int64_t columns = std::min(n_, kPsumColumns);
    while (!keep_b && columns > 64 && k_tiles_ * columns * bytes_ > kResidentBytes / 3) columns /= 2;
    Cache a_panels, b_panels;
    a_panels.keep_all(keep_a);
    b_panels.keep_all(keep_b);
    const int64_t group_columns = std::max(columns, kOutputColumns / block_tiles / columns * columns);
    const auto block = [&](int64_t row0, int64_t column0, int64_t column_count) {
      const int64_t rows = std::min(block_rows, m_ - row0);
      const Panel& a = a_panels.get(
          row0, [&] { return load_panel(a_, batch, 1, row0, rows, 0, k_tiles_, context_, tile_); });
      const OutputTile out = output_tile(batch, 1, row0, rows, column0, column_count);
      for (int64_t c = column0; c < column0 + column_count; c += columns) {
        const int64_t cn = std::min(columns, column0 + column_count - c);
        const Panel& b =
            b_panels.get(c, [&] { return load_panel(b_, batch, 1, c, cn, 0, k_tiles_, context_, tile_); });
        for (int64_t r = 0; r < rows; r += kPartitions) {
          const int64_t rn = std::min(kPartitions, rows - r);
          Access bank = tile_.psum(static_cast<int>(rn), {cn});
          for (int64_t kt = 0; kt < k_tiles_; ++kt)
            tile_.matmul(bank, a.at(kt, r, rn), b.at(kt, 0, cn), kt > 0);
          epilogue(out, r / kPartitions, 1, c - column0, cn, bank);
        }
      }
      store(out);
    };
    if (keep_b) {
      for (int64_t r = 0; r < m_; r += block_rows)
        for (int64_t c = 0; c < n_; c += group_columns) block(r, c, std::min(group_columns, n_ - c));
    } else {
      for (int64_t c = 0; c < n_; c += columns)
        for (int64_t r = 0; r < m_; r += block_rows) block(r, c, std::min(columns, n_ - c));
    }
  }

  // Neither operand fits: a block of rows (kept whole when it fits) meets the other operand piece by piece.
  void run_streaming(int64_t batch) {
    const int64_t row_bytes = k_tiles_ * kPartitions * bytes_;
    const int64_t fit = kResidentBytes / row_bytes;
    const int64_t tiles =
        std::clamp<int64_t>(fit, std::min<int64_t>(2, ceil_div(m_, kPartitions)), kStreamingRowTiles);
    const bool keep_rows = fit >= tiles;
    const int64_t block_rows = tiles * kPartitions;
    const int64_t piece_tiles = std::max<int64_t>(1, kRowBlockBytes / (kPsumColumns * bytes_));
    Cache a_panels;
    a_panels.keep_all(keep_rows);
    for (int64_t r0 = 0; r0 < m_; r0 += block_rows) {
      const int64_t rows = std::min(block_rows, m_ - r0);
      a_panels.clear();
      for (int64_t c0 = 0; c0 < n_; c0 += kPsumColumns) {
        const int64_t cn = std::min(kPsumColumns, n_ - c0);
        const OutputTile out = output_tile(batch, 1, r0, rows, c0, cn);
        std::vector<Access> banks;
        for (int64_t r = 0; r < rows; r += kPartitions)
          banks.push_back(tile_.psum(static_cast<int>(std::min(kPartitions, rows - r)), {cn}));
        for (int64_t kt0 = 0; kt0 < k_tiles_; kt0 += piece_tiles) {
          const int64_t kn = std::min(piece_tiles, k_tiles_ - kt0);
          const Panel& a =
              a_panels.get(kt0, [&] { return load_panel(a_, batch, 1, r0, rows, kt0, kn, context_, tile_); });
          const Panel b = load_panel(b_, batch, 1, c0, cn, kt0, kn, context_, tile_);
          for (size_t i = 0; i < banks.size(); ++i) {
            for (int64_t kt = kt0; kt < kt0 + kn; ++kt) {
              tile_.matmul(banks[i], a.at(kt, static_cast<int64_t>(i) * kPartitions, banks[i].num_partitions),
                           b.at(kt, 0, cn), kt > 0);
            }
          }
        }
        for (size_t i = 0; i < banks.size(); ++i) epilogue(out, static_cast<int64_t>(i), 1, 0, cn, banks[i]);
        store(out);
      }
    }
  }

  // ---- output ----
  OutputTile output_tile(int64_t b0, int64_t nb, int64_t row0, int64_t rows, int64_t column0,
                         int64_t columns) {
    OutputTile o;
    o.b0 = b0, o.nb = nb, o.row0 = row0, o.rows = rows, o.column0 = column0, o.columns = columns;
    o.slots = nb > 1 ? nb : ceil_div(rows, kPartitions);
    const int partitions = static_cast<int>(std::min(rows, kPartitions));
    o.tile = tile_.sbuf(partitions, {o.slots, columns}, tile_dtype(k_.out.dtype));
    for (const View& e : extra_) {
      const size_t r = e.sizes.size();
      const bool per_row = e.strides[r - 1] == 0;
      // One FP32 value per row: used as an instruction's scalar operand.
      Access t = tile_.sbuf(partitions,
                            per_row ? std::vector<int64_t>{o.slots} : std::vector<int64_t>{o.slots, columns},
                            per_row && isa::is_float(e.dtype) ? Dtype::kF32 : tile_dtype(e.dtype));
      transfer(o, e, t, per_row ? 1 : columns,
               [&](const Access& sbuf, const Access& hbm) { tile_.load(sbuf, hbm); });
      o.extra.push_back(t);
    }
    return o;
  }

  // Moves an output-shaped tile between SBUF and the view: all full row tiles in one DMA, a short one in
  // another.
  template <typename Move>
  void transfer(const OutputTile& o, const View& v, const Access& t, int64_t columns, Move move) {
    const size_t r = v.sizes.size();
    const int64_t row_stride = v.strides[r - 2], column_stride = v.strides[r - 1];
    const int64_t batch_stride = r > 2 ? v.strides[r - 3] : 0;
    const int64_t at = o.b0 * batch_stride + o.row0 * row_stride + o.column0 * column_stride;
    const auto part = [&](int64_t first_slot, int64_t slots, int64_t rows, int64_t slot_stride) {
      const Access sbuf = slice_partitions(
          with_dims(t, first_slot * columns, {{columns, slots}, {1, columns}}), 0, static_cast<int>(rows));
      move(sbuf, hbm_view(context_, window_of(v, at + first_slot * slot_stride, {rows, slots, columns},
                                              {row_stride, slot_stride, column_stride})));
    };
    if (o.nb > 1) {
      part(0, o.nb, o.rows, batch_stride);
      return;
    }
    const int64_t full = o.rows / kPartitions;
    if (full > 0) part(0, full, kPartitions, kPartitions * row_stride);
    if (o.rows % kPartitions != 0) part(full, 1, o.rows % kPartitions, kPartitions * row_stride);
  }

  void store(const OutputTile& o) {
    transfer(o, out_, o.tile, o.columns,
             [&](const Access& sbuf, const Access& hbm) { tile_.store(hbm, sbuf); });
  }

  // PSUM bank [rows, slots x columns] -> columns [column, column + count) of `slots` slots of the output
  // tile.
  void epilogue(const OutputTile& o, int64_t slot, int64_t slots, int64_t column, int64_t count,
                const Access& bank) {
    const int rows = bank.num_partitions;
    const std::vector<int64_t> dims =
        slots > 1 ? std::vector<int64_t>{slots, count} : std::vector<int64_t>{count};
    const auto place = [&](const Access& t, int64_t slot_step) {
      const int64_t at = slot * slot_step + column;
      Access a =
          slots > 1 ? with_dims(t, at, {{slot_step, slots}, {1, count}}) : with_dims(t, at, {{1, count}});
      return slice_partitions(a, 0, rows);
    };
    const Access target = place(o.tile, o.columns);
    const Access source = slots > 1 ? bank : columns_of(bank, 0, count);
    if (k_.epilogue.empty()) {
      tile_.copy(target, source);
      return;
    }
    ExprTiles tiles;
    tiles.partitions = rows;
    tiles.dims = dims;
    tiles.inputs.push_back(source);
    tiles.columns.push_back(Access{});
    for (size_t i = 0; i < extra_.size(); ++i) {
      const bool per_row = extra_[i].strides.back() == 0;
      if (!per_row) {
        tiles.inputs.push_back(place(o.extra[i], o.columns));
        tiles.columns.push_back(Access{});
      } else if (slots == 1) {
        tiles.inputs.push_back(Access{});
        tiles.columns.push_back(slice_partitions(columns_of(o.extra[i], slot, 1), 0, rows));
      } else {
        tiles.inputs.push_back(
            slice_partitions(with_dims(o.extra[i], slot, {{1, slots}, {0, count}}), 0, rows));
        tiles.columns.push_back(Access{});
      }
    }
    const Access into[1] = {target};
    emit_expr(tile_, k_.epilogue, roots_, tiles, into);
  }

  const DotKernel& k_;
  const KernelContext& context_;
  TileBuilder& tile_;
  MatrixOperand a_, b_;
  View out_;
  std::vector<View> extra_;
  std::vector<int32_t> roots_;
  int64_t m_, n_, contraction_, batch_, k_tiles_, bytes_;
  int64_t out_batch_stride_ = 0;
};

}  // namespace

void tile_dot(const DotKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  if (kernel.out.numel() == 0) return;
  const size_t r = kernel.out.sizes.size();
  if (r < 2 || kernel.a.sizes.size() != r || kernel.b.sizes.size() != r)
    throw_internal("dot: operands and result need equal rank of at least 2");
  for (const View& e : kernel.extra)
    if (e.sizes.size() != r) throw_internal("dot: epilogue operands must be broadcast to the result");
  const int64_t m = kernel.out.sizes[r - 2], n = kernel.out.sizes[r - 1];
  if (is_zero_dot(kernel) || isa::is_integer(kernel.a.dtype) || (m == 1 && n == 1)) {
    dot_by_map(kernel, context, tile);
    return;
  }
  for (const Expr& e : kernel.epilogue)
    if (e.op == ExprOp::kIota || e.op == ExprOp::kReduce)
      throw_internal("dot: an epilogue cannot hold index or reduction nodes");
  DotKernel k = kernel;
  choose_roles(k);
  fold_batches(k);
  const int64_t contraction = kernel.a.sizes[r - 1];
  const auto bytes = [](const View& v) {
    int64_t distinct = 1;
    for (size_t i = 0; i < v.sizes.size(); ++i)
      if (v.strides[i] != 0) distinct *= v.sizes[i];
    return static_cast<uint64_t>(distinct) * isa::dtype_bytes(v.dtype);
  };
  uint64_t traffic = bytes(k.a) + bytes(k.b) + bytes(k.out);
  for (const View& e : k.extra) traffic += bytes(e);
  tile.add_work(2 * static_cast<uint64_t>(kernel.out.numel()) * static_cast<uint64_t>(contraction), traffic);
  DotTiler(k, context, tile).run();
}

}  // namespace trnsim::compiler
