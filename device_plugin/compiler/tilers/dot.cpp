// Batched matrix product on the tensor engine. The contraction axis lies on partitions (panel.h); a result tile has 128
// rows of `a` on partitions and at most 512 columns of `b` in one PSUM bank.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "device_plugin/compiler/cost.h"
#include "device_plugin/compiler/tilers/access_math.h"
#include "device_plugin/compiler/tilers/panel.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kPanelBytes =
    144 * 1024;                            // of SBUF per partition for operand panels; the rest holds results
constexpr int64_t kPieceBytes = 8 * 1024;  // of one load per partition, in the steady state
constexpr int64_t kFirstLoadBytes =
    128 * 1024;  // in all: the tensor engine starts when the first loads are there
constexpr int64_t kBatchPanelBytes = 24 * 1024;

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
    const Blocks blocks = choose_blocks();
    for (int64_t b = 0; b < batch_; ++b) run_blocks(b, blocks);
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
  // A block is `row_tiles` x `column_tiles` results that accumulate in PSUM together while the contraction goes by piece
  // by piece, so every piece serves the whole block and the tensor engine starts with the first one. Blocks of the outer
  // operand meet all blocks of the inner one in turn.
  struct Blocks {
    int64_t row_tiles = 1, column_tiles = 1;
    bool rows_outer = true;
    bool keep_a = false, keep_b = false;  // the whole operand stays in SBUF
    bool hold_outer = false;              // a block of the outer operand stays while it is used
    int64_t traffic = 0;                  // bytes per partition
    double time_ns = 0;  // the longer of loads and products, and what waits for PSUM to drain
    int64_t size() const { return row_tiles * column_tiles; }
    // What a k tile of a block loads when nothing is there yet.
    int64_t span() const { return row_tiles * kPartitions + column_tiles * kPsumColumns; }
    bool better_than(const Blocks& x) const {
      constexpr double kEqual = 1.005;
      if (time_ns * kEqual < x.time_ns || x.time_ns * kEqual < time_ns) return time_ns < x.time_ns;
      if (traffic != x.traffic) return traffic < x.traffic;
      return size() != x.size() ? size() > x.size() : span() < x.span();
    }
  };

  // Nanoseconds of a product with one k tile, of draining its bank into SBUF on the two engines that reach PSUM, and of
  // loading a byte into every partition.
  struct Rates {
    double product_ns, drain_ns, load_ns;
  };
  Rates rates() const {
    const config::Config& config = target_config(tile_.target());
    const auto whole = [](isa::Space space, Dtype dtype) {
      return dense_access(space, kPartitions, {kPsumColumns}, dtype);
    };
    const Access panel = whole(isa::Space::kSbuf, a_.load_dtype);
    const Access bank = whole(isa::Space::kPsum, Dtype::kF32);
    isa::Instruction product, copy, load;
    product.opcode = isa::Opcode::kMultiplyMoving;
    product.dst = bank;
    product.src0 = panel;
    copy.opcode = isa::Opcode::kCopy;
    copy.dst = whole(isa::Space::kSbuf, tile_dtype(k_.out.dtype));
    copy.src0 = bank;
    load.opcode = isa::Opcode::kDmaCopy;
    load.dst = load.src0 = panel;
    load.src0.space = isa::Space::kHbm;
    Rates r;
    r.product_ns = compute_time(product, Engine::kTensor, config).issue_ns;
    const double vector = compute_time(copy, Engine::kVector, config).issue_ns,
                 scalar = compute_time(copy, Engine::kScalar, config).issue_ns;
    // Every operator of an epilogue is one more pass.
    const auto passes =
        static_cast<double>(1 + std::count_if(k_.epilogue.begin(), k_.epilogue.end(), [](const Expr& e) {
                              return e.a >= 0 && e.op != ExprOp::kCast;
                            }));
    r.drain_ns = passes * vector * scalar / (vector + scalar);
    r.load_ns = transfer_time(load, config).service_ns / static_cast<double>(kPsumColumns * bytes_);
    return r;
  }

  Blocks choose_blocks() const {
    const int64_t rows = ceil_div(m_, kPartitions), columns = ceil_div(n_, kPsumColumns);
    const int64_t a_bytes = k_tiles_ * m_ * bytes_, b_bytes = k_tiles_ * n_ * bytes_;
    const Rates rate = rates();
    const double products_ns = static_cast<double>(rows * columns * k_tiles_) * rate.product_ns;
    const int64_t banks = turns_in_psum(a_, m_) || turns_in_psum(b_, n_) ? 6 : isa::kPsumBanks;
    std::optional<Blocks> best;
    for (int64_t c = 1; c <= std::min(banks, columns); ++c) {
      for (int64_t choice = 0; choice < 2 * std::min(banks / c, rows); ++choice) {
        const int64_t r = choice / 2 + 1;
        const bool rows_outer = choice % 2 == 0;
        Blocks x;
        // Blocks of equal size, so that the last is not a straggler.
        x.row_tiles = ceil_div(rows, ceil_div(rows, r));
        x.column_tiles = ceil_div(columns, ceil_div(columns, c));
        x.rows_outer = rows_outer;
        const int64_t row_blocks = ceil_div(rows, x.row_tiles),
                      column_blocks = ceil_div(columns, x.column_tiles);
        const int64_t inner_blocks = rows_outer ? column_blocks : row_blocks;
        const int64_t outer_bytes = rows_outer ? a_bytes : b_bytes,
                      inner_bytes = rows_outer ? b_bytes : a_bytes;
        const int64_t outer_blocks = rows_outer ? row_blocks : column_blocks;
        const int64_t held = ceil_div(outer_bytes, outer_blocks) * std::min<int64_t>(2, outer_blocks);
        const int64_t streaming = 6 * kPieceBytes;
        bool keep_inner = false, keep_outer = false;
        if (outer_bytes + inner_bytes <= kPanelBytes) {
          keep_inner = keep_outer = true;
        } else if (inner_bytes + std::min(held, streaming) <= kPanelBytes) {
          keep_inner = true;
        }
        x.hold_outer = keep_outer || (keep_inner ? inner_bytes : streaming) + held <= kPanelBytes;
        (rows_outer ? x.keep_a : x.keep_b) = keep_outer;
        (rows_outer ? x.keep_b : x.keep_a) = keep_inner;
        x.traffic =
            outer_bytes * (x.hold_outer ? 1 : inner_blocks) + inner_bytes * (keep_inner ? 1 : outer_blocks);
        // The next block waits for the banks of this one when they hold more than half of PSUM.
        const double stall_ns = 2 * x.size() > isa::kPsumBanks ? rate.drain_ns - rate.product_ns : 0;
        x.time_ns = std::max(products_ns, static_cast<double>(x.traffic) * rate.load_ns) +
                    static_cast<double>(rows * columns) * std::max(0.0, stall_ns);
        if (!best || x.better_than(*best)) best = x;
      }
    }
    return *best;
  }

  // Pieces of the contraction, in k tiles: small ones first.
  std::vector<int64_t> piece_bounds(const Blocks& x) const {
    const int64_t row_bytes =
        std::max(std::min(m_, x.row_tiles * kPartitions), std::min(n_, x.column_tiles * kPsumColumns)) *
        bytes_;
    const int64_t most = std::max<int64_t>(1, kPieceBytes / row_bytes);
    int64_t size = std::clamp<int64_t>(kFirstLoadBytes / (row_bytes * kPartitions), 1, most);
    std::vector<int64_t> bounds{0};
    while (bounds.back() < k_tiles_) {
      bounds.push_back(std::min(k_tiles_, bounds.back() + size));
      if (bounds.size() % 2 == 1) size = std::min(most, 2 * size);
    }
    return bounds;
  }

  // Panels in SBUF by block and piece.
  class Cache {
   public:
    template <typename Load>
    const Panel& get(int64_t block, int64_t piece, Load load) {
      const auto found = panels_.find({block, piece});
      return found != panels_.end() ? found->second
                                    : panels_.emplace(std::pair(block, piece), load()).first->second;
    }
    void clear() { panels_.clear(); }

   private:
    std::map<std::pair<int64_t, int64_t>, Panel> panels_;
  };

  void run_blocks(int64_t batch, const Blocks& x) {
    const std::vector<int64_t> bounds = piece_bounds(x);
    const int64_t block_rows = x.row_tiles * kPartitions, block_columns = x.column_tiles * kPsumColumns;
    Cache a_panels, b_panels;
    const auto block = [&](int64_t row0, int64_t column0) {
      const int64_t rows = std::min(block_rows, m_ - row0), columns = std::min(block_columns, n_ - column0);
      const OutputTile out = output_tile(batch, 1, row0, rows, column0, columns);
      std::vector<Access> banks;  // row tile by row tile
      for (int64_t r = 0; r < rows; r += kPartitions)
        for (int64_t c = 0; c < columns; c += kPsumColumns)
          banks.push_back(tile_.psum(static_cast<int>(std::min(kPartitions, rows - r)),
                                     {std::min(kPsumColumns, columns - c)}));
      for (size_t piece = 0; piece + 1 < bounds.size(); ++piece) {
        const int64_t kt0 = bounds[piece], kn = bounds[piece + 1] - kt0;
        const auto key = static_cast<int64_t>(piece);
        const Panel& a = a_panels.get(
            row0, key, [&] { return load_panel(a_, batch, 1, row0, rows, kt0, kn, context_, tile_); });
        const Panel& b = b_panels.get(column0, key, [&] {
          return load_panel(b_, batch, 1, column0, columns, kt0, kn, context_, tile_);
        });
        for (int64_t kt = kt0; kt < kt0 + kn; ++kt) {
          size_t bank = 0;
          for (int64_t r = 0; r < rows; r += kPartitions)
            for (int64_t c = 0; c < columns; c += kPsumColumns, ++bank)
              tile_.matmul(banks[bank], a.at(kt, r, banks[bank].num_partitions),
                           b.at(kt, c, banks[bank].free_elements()), kt > 0);
        }
        if (!x.keep_a && !(x.rows_outer && x.hold_outer)) a_panels.clear();
        if (!x.keep_b && !(!x.rows_outer && x.hold_outer)) b_panels.clear();
      }
      size_t bank = 0;
      for (int64_t r = 0; r < rows; r += kPartitions)
        for (int64_t c = 0; c < columns; c += kPsumColumns, ++bank)
          epilogue(out, r / kPartitions, 1, c, banks[bank].free_elements(), banks[bank]);
      store(out);
    };
    if (x.rows_outer) {
      for (int64_t r = 0; r < m_; r += block_rows) {
        if (!x.keep_a) a_panels.clear();
        for (int64_t c = 0; c < n_; c += block_columns) block(r, c);
      }
    } else {
      for (int64_t c = 0; c < n_; c += block_columns) {
        if (!x.keep_b) b_panels.clear();
        for (int64_t r = 0; r < m_; r += block_rows) block(r, c);
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
