// The map tiler: pointwise expressions and row chains (softmax, norms, reductions) over strided views.
//
// Axes are brought into memory order and merged where every operand allows it. Without reductions the
// outermost axes go to the partitions. With reductions there are two ways: rows on partitions (the reduced
// axes lie in the free dims), or, when there are few rows or the rows are contiguous across memory (a bias
// gradient), reduced axes on partitions: every partition reduces its share and the shares are combined. Both at once
// where shares alone would leave partitions idle: batch statistics with (image, some channels) on a partition, as they
// lie in memory. A row that does not fit is processed in pieces, once per level of reductions, recomputing the
// expression.
//
// Where the elements lie is also a question of the kernels around: what one of them just stored from as many partitions
// in the same order is read from SBUF, and what another is going to read is best left in the order of memory.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "device_plugin/compiler/cost.h"
#include "device_plugin/compiler/tilers/access_math.h"
#include "device_plugin/compiler/tilers/map_tiles.h"

namespace trnsim::compiler {

namespace {

// Shortest run that partitions may cut the innermost axis into.
constexpr int64_t kRunElements[] = {128, 64, 32, 16};
constexpr int64_t kTargetFree =
    2048;  // elements per partition of one tile, for overlap of DMA and computation
constexpr int64_t kBudgetBytes = 88 * 1024;  // live tiles of one iteration; two iterations overlap
constexpr int64_t kStaggeredBytes =
    48 * 1024;                                // of a long chain: two iterations compute, two are on their way
constexpr int64_t kMostRowsAcross = 4;        // each of them costs instructions
constexpr int64_t kSingleBytes = 180 * 1024;  // a row that fits this is processed in one piece

int64_t magnitude(int64_t v) { return v < 0 ? -v : v; }

class MapTiler {
 public:
  MapTiler(const MapKernel& kernel, const KernelContext& context, TileBuilder& tile)
      : kernel_(kernel), tile_(tile), tiles_(kernel, context, tile) {}

  void run() {
    int rank = static_cast<int>(kernel_.domain.size());
    int64_t rows = 1, row_length = 1;
    for (int i = 0; i < rank; ++i) (i < kernel_.num_kept ? rows : row_length) *= kernel_.domain[i];
    if (rows == 0 || tiles_.outputs().empty()) return;
    if (row_length == 0) {
      empty_rows();
      return;
    }
    Box box = make_box();
    order_axes(box);
    box.merge();
    bytes_per_element_ = std::max<int64_t>(1, tiles_.bytes_per_element());
    const int64_t budget = tiles_.is_long_chain() ? kStaggeredBytes : kBudgetBytes;
    limit_ = std::clamp<int64_t>(budget / bytes_per_element_, 1, 32768);
    single_limit_ = std::clamp<int64_t>(kSingleBytes / bytes_per_element_, 1, 65536);
    max_partition_axes_ = tiles_.has_iota() ? 1 : 2;
    tile_.add_work(static_cast<uint64_t>(rows * row_length) * tiles_.operations(), tiles_.traffic_bytes());
    if (!tiles_.has_reduced_axes()) {
      plain(box);
    } else if (reduce_on_partitions(box)) {
      partition_rows(box);
    } else {
      free_rows(box);
    }
  }

 private:
  // Reductions over nothing: every kReduce is its identity and only row outputs have elements.
  void empty_rows() {
    MapKernel k;
    k.domain.assign(kernel_.domain.begin(), kernel_.domain.begin() + kernel_.num_kept);
    k.num_kept = kernel_.num_kept;
    k.exprs = kernel_.exprs;
    for (Expr& e : k.exprs) {
      if (e.op != ExprOp::kReduce) continue;
      Dtype from = kernel_.exprs[e.a].dtype;
      bool integer = isa::is_32bit_integer(from);
      e.op = ExprOp::kConst;
      switch (e.reduce) {
        case ReduceOp::kSum:
        case ReduceOp::kAny:
          e.value = 0;
          break;
        case ReduceOp::kProd:
        case ReduceOp::kAll:
          e.value = 1;
          break;
        case ReduceOp::kMax:
          e.value = integer ? -2147483648.0 : -HUGE_VAL;
          break;
        case ReduceOp::kMin:
          e.value = integer ? 2147483647.0 : HUGE_VAL;
          break;
      }
      e.a = -1;
    }
    for (View v : kernel_.inputs) {
      if (static_cast<int>(v.sizes.size()) > k.num_kept) {
        v.sizes.resize(k.num_kept);
        v.strides.resize(k.num_kept);
      }
      k.inputs.push_back(v);
    }
    for (const auto& o : kernel_.outputs) {
      if (static_cast<int>(o.view.sizes.size()) == k.num_kept && o.view.numel() > 0) k.outputs.push_back(o);
    }
    tile_map(k, tiles_.context(), tile_);
  }

  Box make_box() {
    Box b;
    b.sizes = kernel_.domain;
    for (size_t i = 0; i < kernel_.domain.size(); ++i) {
      bool reduced = static_cast<int>(i) >= kernel_.num_kept;
      b.roles.push_back(static_cast<int>(reduced ? AxisRole::kReduced : AxisRole::kKept));
    }
    b.views = tiles_.views();
    return b;
  }

  // Memory order of the operand that matters most: the largest one, outputs before inputs.
  void order_axes(Box& b) {
    const View* lead = nullptr;
    int64_t most = -1;
    for (int v : tiles_.views_by_weight()) {
      int64_t n = 1;
      for (int i = 0; i < b.rank(); ++i) n *= b.views[v].strides[i] != 0 ? b.sizes[i] : 1;
      if (n > most) {
        most = n;
        lead = &b.views[v];
      }
    }
    if (!lead) return;
    std::vector<int> order(b.rank());
    std::iota(order.begin(), order.end(), 0);
    std::vector<int64_t> strides = lead->strides;
    std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
      // Axes this operand does not have stay outside.
      int64_t sx = strides[x] ? magnitude(strides[x]) : INT64_MAX,
              sy = strides[y] ? magnitude(strides[y]) : INT64_MAX;
      return sx > sy;
    });
    Box r = b;
    for (int i = 0; i < b.rank(); ++i) {
      r.sizes[i] = b.sizes[order[i]];
      r.roles[i] = b.roles[order[i]];
    }
    for (size_t v = 0; v < b.views.size(); ++v) r.views[v] = view_permute(b.views[v], order);
    b = r;
  }

  // Short runs are slower to transfer, few partitions slower to compute: the laws of time decide.
  std::vector<Box> partitions(const Box& box, AxisRole role) const {
    std::vector<Box> best;
    double least_ns = HUGE_VAL;
    for (int64_t run : kRunElements) {
      std::vector<Box> parts = choose_partitions(box, role, max_partition_axes_, run);
      const double ns = time_ns(parts);
      if (ns >= least_ns) continue;
      least_ns = ns;
      best = std::move(parts);
    }
    if (role != AxisRole::kReduced || max_partition_axes_ < 2) return best;
    if (const std::optional<Box> shared = choose_shares_of_rows(box)) {
      const int64_t rows = shared->product(AxisRole::kPartition);
      if (rows <= kMostRowsAcross && time_ns({*shared}) + own_rows_ns(*shared) < least_ns) best = {*shared};
    }
    return best;
  }

  // Every partition takes the sums of its own row, per level of reductions.
  double own_rows_ns(const Box& box) const {
    isa::Instruction i;
    i.opcode = isa::Opcode::kCopyPredicated;
    const int64_t rows = box.product(AxisRole::kPartition);
    i.dst = i.src0 =
        dense_access(isa::Space::kSbuf, box.partitions(), {rows * box.product(AxisRole::kKept)}, Dtype::kF32);
    i.src1 =
        dense_access(isa::Space::kSbuf, box.partitions(), {rows * box.product(AxisRole::kKept)}, Dtype::kU8);
    return static_cast<double>(tiles_.reduce_levels().size()) * static_cast<double>(rows) *
           compute_time(i, isa::Engine::kVector, target_config(tile_.target())).latency_ns;
  }

  double transfer_latency_ns(int64_t partitions) const {
    isa::Instruction i;
    i.opcode = isa::Opcode::kDmaCopy;
    i.dst = i.src0 = dense_access(isa::Space::kSbuf, partitions, {1}, Dtype::kF32);
    return transfer_time(i, target_config(tile_.target())).latency_ns;
  }

  double time_ns(const std::vector<Box>& parts) const {
    const config::Config& config = target_config(tile_.target());
    double ns = 0;
    for (const Box& part : parts) {
      const int64_t rows = part.partitions();
      int64_t elements = 1;
      for (int64_t s : part.sizes) elements *= s;
      const int64_t engines = std::min<int64_t>(static_cast<int64_t>(config.dma.engines), (rows + 7) / 8);
      for (int view = 0; view < static_cast<int>(part.views.size()); ++view) {
        const MapTiles::Source source = tiles_.source(part, view);
        if (source == MapTiles::Source::kResident) continue;
        if (tiles_.is_read_turned(part, view)) ns += transfer_latency_ns(rows);
        if (source == MapTiles::Source::kComputed) ns += 2 * transfer_latency_ns(rows);
        if (source == MapTiles::Source::kInSbuf) ns += transfer_latency_ns(rows);
        const View& v = part.views[static_cast<size_t>(view)];
        int64_t run = 1, moved = 1;
        bool dense = true;
        for (int i = part.rank() - 1; i >= 0; --i) {
          if (v.strides[i] == 0 || part.sizes[i] == 1) continue;
          moved *= part.sizes[i];
          dense = dense && !part.on_partition(i) && v.strides[i] == run;
          if (dense) run *= part.sizes[i];
        }
        const int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(v.dtype));
        ns +=
            static_cast<double>(cost::descriptor_time(moved * bytes / engines, run * bytes, false, config)) /
            1e3;
      }
      isa::Instruction i;
      i.opcode = isa::Opcode::kTensorTensor;
      i.dst = i.src0 = i.src1 = dense_access(isa::Space::kSbuf, rows, {elements / rows}, Dtype::kF32);
      ns += static_cast<double>(tiles_.element_operations()) *
            compute_time(i, isa::Engine::kVector, config).issue_ns;
    }
    return ns;
  }

  void plain(const Box& box) {
    int64_t target = std::min(limit_, kTargetFree);
    for (const Box& part : partitions(box, AxisRole::kKept)) {
      int64_t free = part.product(AxisRole::kKept);
      // A tile somewhat over the target is not worth cutting.
      int64_t limit = free <= std::min(limit_, target * 3 / 2) ? free : target;
      for_each_piece(
          part, AxisRole::kKept, limit, 3, [&](Box piece) { tiles_.emit(std::move(piece), {}); },
          [&](const Box& first, int64_t count, const std::vector<int64_t>& steps) {
            return tiles_.emit_loop(first, count, steps, {});
          });
    }
  }

  bool reduce_on_partitions(const Box& box) const {
    int64_t rows = box.product(AxisRole::kKept), length = box.product(AxisRole::kReduced);
    if (rows < 32 && length >= 512 && length >= rows) return true;
    // Rows that lie across memory: the innermost axis is a kept one.
    bool across =
        box.rank() > 0 && box.role(box.rank() - 1) == AxisRole::kKept && box.sizes[box.rank() - 1] >= 8;
    if (across && length >= 16)
      return tiles_.only_float_sums() || length * shortest_run(box) > limit_ ||
             across_ns(box) < time_ns(kept_partitions(box));
    if (length < 512 || rows > 1024 || !tiles_.only_float_sums()) return false;
    // What is gained on few partitions has to pay for combining the partitions' sums.
    return time_ns(partitions(box, AxisRole::kReduced)) + combine_ns() < time_ns(kept_partitions(box));
  }

  // Elements of the innermost axis, a kept one, that rows beside each other on a partition should have.
  static int64_t shortest_run(const Box& box) {
    return std::min<int64_t>(box.sizes[box.rank() - 1],
                             *std::min_element(std::begin(kRunElements), std::end(kRunElements)));
  }

  // Partitions of free_rows. A row stays whole.
  std::vector<Box> kept_partitions(const Box& box) const {
    return box.rank() > 0 && box.role(box.rank() - 1) == AxisRole::kKept
               ? partitions(box, AxisRole::kKept)
               : choose_partitions(box, AxisRole::kKept, max_partition_axes_, 1);
  }

  // Reduced axes on partitions where the partitions' shares meet in one of them and go back to all.
  double across_ns(const Box& box) const {
    const config::Config& config = target_config(tile_.target());
    const int64_t rows = std::min<int64_t>(box.product(AxisRole::kKept), isa::kMaxPartitions);
    const int64_t shares = std::min<int64_t>(box.product(AxisRole::kReduced), isa::kMaxPartitions);
    isa::Instruction gather;
    gather.opcode = isa::Opcode::kDmaCopy;
    gather.src0 = dense_access(isa::Space::kSbuf, shares, {rows}, Dtype::kF32);
    gather.dst = dense_access(isa::Space::kSbuf, 1, {shares * rows}, Dtype::kF32);
    isa::Instruction spread = gather;
    std::swap(spread.src0, spread.dst);
    isa::Instruction reduce;
    reduce.opcode = isa::Opcode::kTensorReduce;
    reduce.dst = dense_access(isa::Space::kSbuf, 1, {rows}, Dtype::kF32);
    reduce.src0 = gather.dst;
    const TransferTime there = transfer_time(gather, config), back = transfer_time(spread, config);
    const double combine_ns =
        there.service_ns + back.service_ns + compute_time(reduce, isa::Engine::kVector, config).latency_ns;
    return time_ns(partitions(box, AxisRole::kReduced)) + there.latency_ns + back.latency_ns +
           static_cast<double>(tiles_.reduce_levels().size()) *
               static_cast<double>(ceil_div(box.product(AxisRole::kKept), rows)) * combine_ns;
  }

  // A sum over partitions per level of reductions: to the tensor engine and back.
  double combine_ns() const {
    const config::Config& config = target_config(tile_.target());
    isa::Instruction i;
    i.opcode = isa::Opcode::kMultiplyMoving;
    i.src0 = dense_access(isa::Space::kSbuf, isa::kMaxPartitions, {1}, Dtype::kF32);
    isa::Instruction copy = i;
    copy.opcode = isa::Opcode::kCopy;
    copy.src0.space = isa::Space::kPsum;
    copy.dst = i.src0;
    const double handoff_ns = config.semaphore.visible_ns + config.semaphore.wake_ns;
    return static_cast<double>(tiles_.reduce_levels().size()) *
           (compute_time(i, isa::Engine::kTensor, config).latency_ns +
            compute_time(copy, isa::Engine::kVector, config).latency_ns + 2 * handoff_ns);
  }

  void free_rows(const Box& box) {
    int64_t length = box.product(AxisRole::kReduced);
    for (const Box& part : kept_partitions(box)) {
      if (length <= single_limit_) {
        int64_t rows = std::max<int64_t>(1, std::min(limit_, kTargetFree * 2) / length);
        if (part.rank() > 0 && part.role(part.rank() - 1) == AxisRole::kKept)
          rows = std::max(rows, std::min(shortest_run(part), limit_ / length));
        int reduced_axes = 0;
        for (int i = 0; i < part.rank(); ++i)
          reduced_axes += part.role(i) == AxisRole::kReduced && part.sizes[i] > 1;
        if (reduced_axes <= 2) {
          for_each_piece(
              part, AxisRole::kKept, rows, 3 - reduced_axes,
              [&](Box piece) { tiles_.emit(std::move(piece), {}); },
              [&](const Box& first, int64_t count, const std::vector<int64_t>& steps) {
                return tiles_.emit_loop(first, count, steps, {});
              });
          continue;
        }
      }
      for_each_piece(part, AxisRole::kKept, 1, 0, [&](Box row) {
        std::vector<Box> pieces;
        for_each_piece(row, AxisRole::kReduced, std::min(limit_, 2 * kTargetFree), 3,
                       [&](Box piece) { pieces.push_back(std::move(piece)); });
        passes(pieces, 0);
      });
    }
  }

  void partition_rows(const Box& box) {
    // The combination of float sums is a matrix product per PSUM bank; others go through one partition.
    int64_t rows = tiles_.only_float_sums() ? 1024 : 128;
    for_each_piece(box, AxisRole::kKept, std::min(rows, limit_), 2, [&](Box chunk) {
      int kept_axes = 0;
      for (int i = 0; i < chunk.rank(); ++i)
        kept_axes += chunk.role(i) == AxisRole::kKept && chunk.sizes[i] > 1;
      std::vector<Box> pieces;
      int across = 1;
      for (const Box& part : partitions(chunk, AxisRole::kReduced)) {
        const int64_t kept = part.product(AxisRole::kKept);
        across = static_cast<int>(part.product(AxisRole::kPartition));
        for_each_piece(part, AxisRole::kReduced,
                       std::max<int64_t>(1, std::min(limit_, 2 * kTargetFree) / kept), 3 - kept_axes,
                       [&](Box piece) { pieces.push_back(std::move(piece)); });
      }
      passes(pieces, across);
    });
  }

  // One pass over the pieces of a row per level of reductions, then one for the outputs. `across`: EmitOptions.
  void passes(const std::vector<Box>& pieces, int across) {
    if (pieces.size() == 1) {
      tiles_.emit(pieces[0], {.across = across});
      return;
    }
    RowValues known;
    for (const std::vector<int32_t>& level : tiles_.reduce_levels()) {
      // Partial results: one set per number of partitions.
      std::map<int, std::vector<Access>> partial;
      for (const Box& piece : pieces) {
        int partitions = static_cast<int>(piece.partitions());
        std::vector<Access> values = tiles_.emit_partials(piece, level, known, across);
        auto [it, fresh] = partial.try_emplace(partitions, values);
        if (fresh) continue;
        for (size_t i = 0; i < level.size(); ++i) tiles_.accumulate(it->second[i], values[i], level[i]);
      }
      for (size_t i = 0; i < level.size(); ++i) {
        Access total;
        for (auto& [partitions, values] : partial) {
          Access v = across > 0
                         ? tiles_.combine(values[i], level[i], isa::kMaxPartitions / across * across, across)
                         : values[i];
          if (total.present()) {
            tiles_.accumulate(total, v, level[i]);
          } else {
            total = v;
          }
        }
        known[level[i]] = total;
      }
    }
    tiles_.emit(pieces[0], {.known = &known, .across = across, .full_outputs = false});
    if (!tiles_.has_full_outputs()) return;
    for (const Box& piece : pieces) {
      tiles_.emit(piece, {.known = &known, .across = across, .row_outputs = false});
    }
  }

  const MapKernel& kernel_;
  TileBuilder& tile_;
  MapTiles tiles_;
  int64_t bytes_per_element_ = 4, limit_ = 1, single_limit_ = 1;
  int max_partition_axes_ = 2;
};

}  // namespace

void tile_map(const MapKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  MapTiler(kernel, context, tile).run();
}

}  // namespace trnsim::compiler
