// Copies through SBUF: for views that disagree about what is near, where a transfer from HBM to HBM would take
// element after element. Loads and stores then move runs; between them elements change places, along the free axis by
// an engine that reads in the order of the result, or between partitions and the free axis by a transpose.
#include "device_plugin/compiler/tilers/move_tiles.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>

#include "device_plugin/compiler/cost.h"
#include "device_plugin/compiler/tilers/access_math.h"
#include "device_plugin/compiler/tilers/map_box.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kTileBytes = 16 * 1024;  // per partition; two tiles of a piece, of two pieces at a time
constexpr int64_t kMaxGap = 8;             // elements of a run that are loaded for one that is wanted
constexpr int64_t kTurnTiles = 4;          // 128x128 blocks along either side of a piece
constexpr size_t kFreeDims = 4;            // of a tile
constexpr double kWorthNs = 2000;          // a transfer that takes less stays as it is

struct Axis {
  int64_t size, from, to;  // strides of the source and of the result, in elements
};

struct Region {
  int64_t from = 0, to = 0;  // offsets of the first element
  std::vector<Axis> axes;    // outermost of the result first, none of size 1

  Region sliced(size_t axis, int64_t begin, int64_t count) const {
    Region r = *this;
    r.from += begin * axes[axis].from;
    r.to += begin * axes[axis].to;
    r.axes[axis].size = count;
    return r;
  }
  // `axis` as its parts of `inner` elements, and the elements of a part; a rest is left out.
  Region split(size_t axis, int64_t inner) const {
    Region r = *this;
    Axis& a = r.axes[axis];
    const Axis within{inner, a.from, a.to};
    a = {a.size / inner, a.from * inner, a.to * inner};
    r.axes.insert(r.axes.begin() + static_cast<long>(axis) + 1, within);
    return r;
  }
};

// Axes of one element dropped, in the order of the result, neighbours that are one run for both merged.
void tidy(Region& r) {
  std::erase_if(r.axes, [](const Axis& a) { return a.size == 1; });
  std::stable_sort(r.axes.begin(), r.axes.end(),
                   [](const Axis& a, const Axis& b) { return std::abs(a.to) > std::abs(b.to); });
  std::vector<Axis> merged;
  for (const Axis& a : r.axes) {
    if (!merged.empty() && merged.back().from == a.from * a.size && merged.back().to == a.to * a.size) {
      merged.back() = {merged.back().size * a.size, a.from, a.to};
    } else {
      merged.push_back(a);
    }
  }
  r.axes = std::move(merged);
}

struct Plan {
  enum class Kind : uint8_t { kDirect, kPermute, kTurn, kTurnByDma } kind = Kind::kDirect;
  double ns = std::numeric_limits<double>::infinity();
  size_t partition = 0;        // kPermute: the axis on partitions
  int64_t inner = 0;           // kPermute: unless 0, only parts of so many elements of it
  size_t row = 0, column = 0;  // turns: the axes along which the source and the result have runs
  std::vector<int64_t> chunk;  // elements of every axis in a piece
};

// A piece of a permuting plan in SBUF: the free axes in the order of the source, what is skipped between two elements
// of a run included, and in the order of the result.
struct Layout {
  std::vector<size_t> loaded;     // axes of the loaded tile
  std::vector<int64_t> sizes;     // of its dims
  std::vector<int64_t> steps;     // per axis of the region: step in the loaded tile; 0 where it repeats
  std::vector<size_t> result;     // axes of the stored tile
  std::vector<int64_t> extents;   // of its dims
  int64_t start = 0;              // in the loaded tile, of the first element of the result
  int64_t lowest = 0;             // in the source, of the first element loaded
  std::vector<int64_t> distance;  // per loaded axis, in the source
  bool same_order = false;        // the loaded tile is the stored one
};

class Mover {
 public:
  Mover(const MoveKernel& kernel, const KernelContext& context, TileBuilder& tile)
      : kernel_(kernel), context_(context), tile_(tile), config_(target_config(tile.target())) {
    const auto bytes = static_cast<int64_t>(isa::dtype_bytes(kernel.src.dtype));
    bytes_ = std::min<int64_t>(bytes, 4);
    dtype_ = bytes == 8 ? Dtype::kU32 : bytes == 1 ? Dtype::kU8 : kernel.src.dtype;
    const int64_t words = bytes / bytes_;  // per element
    all_.from = kernel.src.offset * words;
    all_.to = kernel.dst.offset * words;
    for (size_t d = 0; d < kernel.dst.sizes.size(); ++d)
      all_.axes.push_back(
          {kernel.dst.sizes[d], kernel.src.strides[d] * words, kernel.dst.strides[d] * words});
    if (words > 1) all_.axes.push_back({words, 1, 1});
    tidy(all_);
    const Buffer& source = context.list->buffers[static_cast<size_t>(kernel.src.buffer)];
    gaps_ = source.kind == Buffer::Kind::kInput || source.kind == Buffer::Kind::kConstant;
  }

  bool run() {
    const std::optional<Plan> plan = best_plan(all_);
    if (!plan) return false;
    move(all_, *plan);
    return true;
  }

 private:
  View view(const View& of, int64_t at, std::vector<int64_t> sizes, std::vector<int64_t> strides) const {
    View v = window_of(of, 0, std::move(sizes), std::move(strides));
    v.dtype = dtype_;
    v.offset = at;
    return v;
  }
  Access source(int64_t at, std::vector<int64_t> sizes, std::vector<int64_t> strides) const {
    return hbm_view_exact(context_, view(kernel_.src, at, std::move(sizes), std::move(strides)));
  }
  Access result(int64_t at, std::vector<int64_t> sizes, std::vector<int64_t> strides) const {
    return hbm_view_exact(context_, view(kernel_.dst, at, std::move(sizes), std::move(strides)));
  }

  // ---- plans
  double transfer_ns(const Access& dst, const Access& src, isa::Opcode opcode = isa::Opcode::kDmaCopy) const {
    isa::Instruction i;
    i.opcode = opcode;
    i.dst = dst;
    i.src0 = src;
    return transfer_time(i, config_).service_ns;
  }
  double compute_ns(isa::Opcode opcode, Engine engine, const Access& dst, const Access& src) const {
    isa::Instruction i;
    i.opcode = opcode;
    i.dst = dst;
    i.src0 = src;
    return compute_time(i, engine, config_).issue_ns;
  }

  // Nothing where the transfer from HBM to HBM is as good.
  std::optional<Plan> best_plan(const Region& r) const {
    if (r.axes.empty() || r.axes.back().to <= 0) return std::nullopt;
    if (r.axes.back().from == 1 && r.axes.back().to == 1 && r.axes.back().size * bytes_ >= kFullRunBytes)
      return std::nullopt;
    Plan best;
    best.ns = direct_ns(r);
    if (best.ns < kWorthNs) return std::nullopt;
    const auto offer = [&](const std::optional<Plan>& p) {
      if (p && p->ns < best.ns) best = *p;
    };
    for (size_t p = 0; p < r.axes.size(); ++p) {
      const int64_t n = r.axes[p].size;
      offer(permuting(r, p, 0));
      for (const int64_t inner : {n / kPartitions, kFullRunBytes / 4 / bytes_, kFullRunBytes / bytes_})
        if (inner > 1 && 2 * inner <= n && inner * bytes_ <= kTileBytes)
          offer(permuting(r.split(p, inner), p, inner));
    }
    offer(turning(r, /*by_dma=*/false));
    offer(turning(r, /*by_dma=*/true));
    if (best.kind == Plan::Kind::kDirect) return std::nullopt;
    return best;
  }

  double direct_ns(const Region& r) const {
    // Of one slice that fits a descriptor.
    Region part = r;
    double times = 1;
    while (part.axes.size() > isa::kMaxDims) {
      times *= static_cast<double>(part.axes.front().size);
      part.axes.erase(part.axes.begin());
    }
    std::vector<int64_t> sizes, from, to;
    for (const Axis& a : part.axes) {
      sizes.push_back(a.size);
      from.push_back(a.from);
      to.push_back(a.to);
    }
    return times * transfer_ns(result(part.to, sizes, to), source(part.from, sizes, from));
  }

  size_t nearest(const Region& r, int64_t Axis::*stride) const {
    size_t best = r.axes.size();
    for (size_t a = 0; a < r.axes.size(); ++a) {
      if (r.axes[a].*stride == 0) continue;
      if (best == r.axes.size() || std::abs(r.axes[a].*stride) < std::abs(r.axes[best].*stride)) best = a;
    }
    return best;
  }

  double pieces(const Region& r, const std::vector<int64_t>& chunk) const {
    double n = 1;
    for (size_t a = 0; a < r.axes.size(); ++a) n *= static_cast<double>(ceil_div(r.axes[a].size, chunk[a]));
    return n;
  }

  Region first_piece(const Region& r, const std::vector<int64_t>& chunk) const {
    Region piece = r;
    for (size_t a = 0; a < r.axes.size(); ++a) piece.axes[a].size = std::min(chunk[a], r.axes[a].size);
    return piece;
  }

  // `p` on partitions, the free axes as long as a tile holds, both runs first.
  std::optional<Plan> permuting(const Region& r, size_t p, int64_t inner) const {
    const size_t s = nearest(r, &Axis::from), d = nearest(r, &Axis::to);
    if (s == r.axes.size() || p == s || p == d || r.axes[d].to != 1) return std::nullopt;
    Plan plan;
    plan.kind = Plan::Kind::kPermute;
    plan.partition = p;
    plan.inner = inner;
    plan.chunk.assign(r.axes.size(), 1);
    plan.chunk[p] = balanced(r.axes[p].size, kPartitions);
    int64_t room = kTileBytes / bytes_;
    if (std::abs(r.axes[s].from) > 1 && s == d) room /= std::min(std::abs(r.axes[s].from), kMaxGap);
    size_t dims = 0;
    const auto fill = [&](size_t a, int64_t most) {
      if (a == p || dims == kFreeDims) return;
      const int64_t before = plan.chunk[a], n = std::min({r.axes[a].size, room * before, most});
      if (n <= before) return;
      if (before == 1) ++dims;
      plan.chunk[a] = n;
      room = std::max<int64_t>(1, room * before / n);
    };
    const int64_t run = kFullRunBytes / bytes_;
    fill(d, run);
    fill(s, run);
    fill(d, r.axes[d].size);
    for (size_t a = r.axes.size(); a-- > 0;) fill(a, r.axes[a].size);
    for (size_t a = 0; a < r.axes.size(); ++a) plan.chunk[a] = balanced(r.axes[a].size, plan.chunk[a]);

    const Region piece = first_piece(r, plan.chunk);
    const Layout l = layout(piece, p);
    if (l.same_order || l.loaded.size() > kFreeDims) return std::nullopt;
    const Access loaded = dense_access(isa::Space::kSbuf, piece.axes[p].size, l.sizes, dtype_),
                 stored = dense_access(isa::Space::kSbuf, piece.axes[p].size, l.extents, dtype_);
    const double dma = transfer_ns(loaded, load_of(piece, p, l)) + transfer_ns(store_of(piece, p, l), stored);
    const double copy = compute_ns(isa::Opcode::kCopy, Engine::kVector, stored, in_result_order(loaded, l));
    plan.ns = pieces(r, plan.chunk) * std::max(dma, copy);
    return plan;
  }

  Layout layout(const Region& piece, size_t p) const {
    Layout l;
    l.steps.assign(piece.axes.size(), 0);
    l.lowest = piece.from;
    for (size_t a = 0; a < piece.axes.size(); ++a) {
      if (a == p || piece.axes[a].size == 1) continue;
      l.result.push_back(a);
      l.extents.push_back(piece.axes[a].size);
      if (piece.axes[a].from != 0) l.loaded.push_back(a);
    }
    std::stable_sort(l.loaded.begin(), l.loaded.end(), [&](size_t a, size_t b) {
      return std::abs(piece.axes[a].from) > std::abs(piece.axes[b].from);
    });
    for (size_t a : l.loaded) {
      l.sizes.push_back(piece.axes[a].size);
      l.distance.push_back(std::abs(piece.axes[a].from));
      if (piece.axes[a].from < 0) l.lowest += (piece.axes[a].size - 1) * piece.axes[a].from;
    }
    // A run with gaps is loaded whole.
    int64_t unit = 1;
    if (!l.loaded.empty() && l.distance.back() > 1 && l.distance.back() <= kMaxGap && gaps_) {
      unit = l.distance.back();
      l.sizes.back() = (l.sizes.back() - 1) * unit + 1;
      l.distance.back() = 1;
    }
    int64_t step = 1;
    for (size_t k = l.loaded.size(); k-- > 0;) {
      const Axis& a = piece.axes[l.loaded[k]];
      l.steps[l.loaded[k]] = (k + 1 == l.loaded.size() ? unit : step) * (a.from < 0 ? -1 : 1);
      if (a.from < 0) l.start += (a.size - 1) * std::abs(l.steps[l.loaded[k]]);
      step *= l.sizes[k];
    }
    l.same_order = unit == 1 && l.loaded == l.result;
    for (size_t a : l.loaded) l.same_order = l.same_order && piece.axes[a].from > 0;
    return l;
  }

  Access load_of(const Region& piece, size_t p, const Layout& l) const {
    std::vector<int64_t> sizes{piece.axes[p].size}, strides{piece.axes[p].from};
    sizes.insert(sizes.end(), l.sizes.begin(), l.sizes.end());
    strides.insert(strides.end(), l.distance.begin(), l.distance.end());
    return source(l.lowest, std::move(sizes), std::move(strides));
  }
  Access store_of(const Region& piece, size_t p, const Layout& l) const {
    std::vector<int64_t> sizes{piece.axes[p].size}, strides{piece.axes[p].to};
    for (size_t a : l.result) {
      sizes.push_back(piece.axes[a].size);
      strides.push_back(piece.axes[a].to);
    }
    return result(piece.to, std::move(sizes), std::move(strides));
  }
  Access in_result_order(const Access& loaded, const Layout& l) const {
    std::vector<std::pair<int64_t, int64_t>> dims;
    for (size_t k = 0; k < l.result.size(); ++k) dims.emplace_back(l.steps[l.result[k]], l.extents[k]);
    return with_dims(loaded, l.start, dims);
  }

  // The run of the result on partitions, that of the source behind it, turned.
  std::optional<Plan> turning(const Region& r, bool by_dma) const {
    Plan plan;
    plan.kind = by_dma ? Plan::Kind::kTurnByDma : Plan::Kind::kTurn;
    plan.row = nearest(r, &Axis::from);
    plan.column = nearest(r, &Axis::to);
    if (plan.row == r.axes.size() || plan.row == plan.column || r.axes[plan.row].from != 1 ||
        r.axes[plan.column].to != 1)
      return std::nullopt;
    if (by_dma && (bytes_ == 1 || r.axes[plan.row].size % 16 != 0 || r.axes[plan.column].size % 16 != 0))
      return std::nullopt;
    plan.chunk.assign(r.axes.size(), 1);
    for (size_t a : {plan.row, plan.column}) {
      const int64_t n = r.axes[a].size;
      plan.chunk[a] = n < kPartitions ? n : std::min(n / kPartitions, kTurnTiles) * kPartitions;
    }
    const Region piece = first_piece(r, plan.chunk);
    const Turned t = turned(piece, plan);
    int64_t room = kTileBytes / bytes_ / std::max(t.blocks * t.columns, t.row_blocks() * t.rows_of_source());
    size_t others = 0;
    for (size_t a = r.axes.size(); a-- > 0;) {
      if (a == plan.row || a == plan.column || others == 2) continue;
      const int64_t n = std::min(r.axes[a].size, room);
      if (n <= 1) continue;
      plan.chunk[a] = balanced(r.axes[a].size, n);
      room /= plan.chunk[a];
      ++others;
    }
    return priced(r, std::move(plan));
  }

  // Blocks of a turned piece. Rows of the source lie along its columns' partitions first.
  struct Turned {
    int64_t rows, row_tiles;        // of the source's run: partitions of the result, and how many such tiles
    int64_t columns, column_tiles;  // of the result's run in one block (partitions of the source), and blocks
    int64_t others = 1;             // elements of the other axes
    std::vector<size_t> other_axes;
    int64_t blocks = 0;  // of [columns, rows]
    int64_t row_blocks() const { return column_tiles * others; }
    int64_t rows_of_source() const { return rows * row_tiles; }
  };
  Turned turned(const Region& piece, const Plan& plan) const {
    Turned t;
    const int64_t rows = piece.axes[plan.row].size, columns = piece.axes[plan.column].size;
    t.rows = std::min(rows, kPartitions);
    t.row_tiles = rows / t.rows;
    t.columns = std::min(columns, kPartitions);
    t.column_tiles = columns / t.columns;
    for (size_t a = 0; a < piece.axes.size(); ++a) {
      if (a == plan.row || a == plan.column || piece.axes[a].size == 1) continue;
      t.others *= piece.axes[a].size;
      t.other_axes.push_back(a);
    }
    t.blocks = t.row_tiles * t.others * t.column_tiles;
    return t;
  }

  std::optional<Plan> priced(const Region& r, Plan plan) const {
    const Region piece = first_piece(r, plan.chunk);
    const Turned t = turned(piece, plan);
    const Access stored = dense_access(isa::Space::kSbuf, t.rows, {t.blocks * t.columns}, dtype_);
    double dma = transfer_ns(stored_to(piece, plan, t), stored), tensor = 0, drain = 0;
    if (plan.kind == Plan::Kind::kTurnByDma) {
      dma += static_cast<double>(t.row_tiles * t.others) *
             transfer_ns(dense_access(isa::Space::kSbuf, t.rows, {t.columns * t.column_tiles}, dtype_),
                         turned_block(piece, plan, t, 0, 0, t.columns * t.column_tiles),
                         isa::Opcode::kDmaTranspose);
    } else {
      dma += transfer_ns(
          dense_access(isa::Space::kSbuf, t.columns, {t.row_blocks() * t.rows_of_source()}, dtype_),
          loaded_from(piece, plan, t));
      const Access block = dense_access(isa::Space::kSbuf, t.columns, {t.rows}, dtype_);
      Access bank = dense_access(isa::Space::kPsum, t.rows, {t.columns}, dtype_);
      tensor =
          static_cast<double>(t.blocks) * compute_ns(isa::Opcode::kTranspose, Engine::kTensor, bank, block);
      const int64_t per_bank = blocks_per_bank(t);
      bank = dense_access(isa::Space::kPsum, t.rows, {per_bank * t.columns}, dtype_);
      drain = static_cast<double>(ceil_div(t.blocks, per_bank)) *
              compute_ns(isa::Opcode::kCopy, Engine::kVector,
                         dense_access(isa::Space::kSbuf, t.rows, {per_bank * t.columns}, dtype_), bank);
    }
    plan.ns = pieces(r, plan.chunk) * std::max({dma, tensor, drain});
    return plan;
  }

  int64_t blocks_per_bank(const Turned& t) const {
    const int64_t wide = std::max<int64_t>(bytes_, 2);  // the tensor engine pads bytes
    return std::min(t.blocks, std::max<int64_t>(1, isa::kPsumBankBytes / (t.columns * wide)));
  }

  // [columns, column tile, others..., source run]
  Access loaded_from(const Region& piece, const Plan& plan, const Turned& t) const {
    const auto [sizes, strides] =
        lines(piece, plan.column, t.columns, t.column_tiles, t, t.rows_of_source(), &Axis::from);
    return source(piece.from, sizes, strides);
  }
  // [rows, row tile, others..., result run]
  Access stored_to(const Region& piece, const Plan& plan, const Turned& t) const {
    const auto [sizes, strides] =
        lines(piece, plan.row, t.rows, t.row_tiles, t, t.columns * t.column_tiles, &Axis::to);
    return result(piece.to, sizes, strides);
  }
  // Sizes and strides of one side of a turned piece: `axis` on partitions in tiles, and runs behind them.
  using Lines = std::pair<std::vector<int64_t>, std::vector<int64_t>>;
  Lines lines(const Region& piece, size_t axis, int64_t partitions, int64_t tiles, const Turned& t,
              int64_t run, int64_t Axis::*stride) const {
    const int64_t step = piece.axes[axis].*stride;
    Lines l{{partitions, tiles}, {step, step * partitions}};
    for (size_t a : t.other_axes) {
      l.first.push_back(piece.axes[a].size);
      l.second.push_back(piece.axes[a].*stride);
    }
    l.first.push_back(run);
    l.second.push_back(1);
    return l;
  }
  // `count` columns of one row tile and one element of the other axes, as the source has them: [count, rows].
  Access turned_block(const Region& piece, const Plan& plan, const Turned& t, int64_t row_tile, int64_t other,
                      int64_t count) const {
    int64_t at = piece.from + row_tile * t.rows;
    for (size_t k = t.other_axes.size(); k-- > 0;) {
      const Axis& a = piece.axes[t.other_axes[k]];
      at += other % a.size * a.from;
      other /= a.size;
    }
    return source(at, {count, t.rows}, {piece.axes[plan.column].from, 1});
  }

  // ---- pieces
  void move(const Region& r, const Plan& plan) {
    // Turned blocks are whole tiles of 128 or the whole axis: what is left over has plans of its own.
    if (plan.kind == Plan::Kind::kTurn || plan.kind == Plan::Kind::kTurnByDma) {
      for (size_t a : {plan.row, plan.column}) {
        const int64_t n = r.axes[a].size, main = n < kPartitions ? n : n / kPartitions * kPartitions;
        if (main == n) continue;
        move(r.sliced(a, 0, main), plan);
        move_rest(r.sliced(a, main, n - main));
        return;
      }
    }
    if (plan.inner > 0) {
      Plan whole = plan;
      whole.inner = 0;
      const int64_t n = r.axes[plan.partition].size, main = n / plan.inner * plan.inner;
      move(r.split(plan.partition, plan.inner), whole);
      if (main < n) move_rest(r.sliced(plan.partition, main, n - main));
      return;
    }
    for_each_piece(r, plan.chunk,
                   [&](const Region& piece, int64_t count, int64_t from_step, int64_t to_step) {
                     const auto body = [&] { move_piece(piece, plan, from_step * bytes_, to_step * bytes_); };
                     if (count > 1) {
                       tile_.loop(count, body);
                     } else {
                       body();
                     }
                   });
  }

  void move_rest(Region r) {
    tidy(r);
    if (const std::optional<Plan> plan = best_plan(r)) return move(r, *plan);
    move_direct(r);
  }

  void move_direct(const Region& r) {
    if (r.axes.size() > isa::kMaxDims) {
      for (int64_t i = 0; i < r.axes[0].size; ++i) {
        Region part = r.sliced(0, i, 1);
        tidy(part);
        move_direct(part);
      }
      return;
    }
    std::vector<int64_t> sizes, from, to;
    for (const Axis& a : r.axes) {
      sizes.push_back(a.size);
      from.push_back(a.from);
      to.push_back(a.to);
    }
    if (sizes.empty()) sizes = from = to = {1};
    tile_.dma(result(r.to, sizes, to), source(r.from, sizes, from));
  }

  using PieceFn = std::function<void(const Region&, int64_t count, int64_t from_step, int64_t to_step)>;
  // Every piece; those of equal size along one axis as a loop when there are many.
  void for_each_piece(const Region& r, const std::vector<int64_t>& chunk, const PieceFn& fn) {
    size_t longest = 0;
    for (size_t a = 1; a < r.axes.size(); ++a)
      if (r.axes[a].size / chunk[a] > r.axes[longest].size / chunk[longest]) longest = a;
    const int64_t equal = r.axes[longest].size / chunk[longest];
    const bool loops = equal >= kMinLoopPieces && !tile_.in_loop();
    std::vector<int64_t> at(r.axes.size(), 0);
    while (true) {
      Region piece = r;
      for (size_t a = 0; a < r.axes.size(); ++a)
        piece = piece.sliced(a, at[a], std::min(chunk[a], r.axes[a].size - at[a]));
      if (loops && at[longest] == 0) {
        const Axis& a = r.axes[longest];
        fn(piece, equal, a.from * chunk[longest], a.to * chunk[longest]);
        at[longest] = (equal - 1) * chunk[longest];
      } else {
        fn(piece, 1, 0, 0);
      }
      // The longest axis turns fastest.
      size_t turned_over = 0;
      for (size_t k = 0; k < r.axes.size(); ++k) {
        const size_t a = k == 0 ? longest : k <= longest ? k - 1 : k;
        at[a] += chunk[a];
        if (at[a] < r.axes[a].size) break;
        at[a] = 0;
        ++turned_over;
      }
      if (turned_over == r.axes.size()) return;
    }
  }

  Access moving(const Access& a, int64_t step_bytes) {
    return step_bytes == 0 ? a : tile_.advance(a, step_bytes);
  }

  void move_piece(const Region& piece, const Plan& plan, int64_t from_bytes, int64_t to_bytes) {
    if (plan.kind == Plan::Kind::kPermute) {
      const Layout l = layout(piece, plan.partition);
      const auto partitions = static_cast<int>(piece.axes[plan.partition].size);
      const Access stored = tile_.sbuf(partitions, l.extents, dtype_);
      const Access loaded = l.same_order ? stored : tile_.sbuf(partitions, l.sizes, dtype_);
      tile_.load(loaded, moving(load_of(piece, plan.partition, l), from_bytes));
      if (!l.same_order) tile_.copy(stored, in_result_order(loaded, l));
      tile_.store(moving(store_of(piece, plan.partition, l), to_bytes), stored);
      return;
    }
    const Turned t = turned(piece, plan);
    const Access stored = tile_.sbuf(static_cast<int>(t.rows), {t.blocks * t.columns}, dtype_);
    if (plan.kind == Plan::Kind::kTurnByDma) {
      const int64_t run = t.columns * t.column_tiles;
      for (int64_t tile = 0; tile < t.row_tiles; ++tile) {
        for (int64_t other = 0; other < t.others; ++other)
          tile_.load_transposed(columns_of(stored, (tile * t.others + other) * run, run),
                                moving(turned_block(piece, plan, t, tile, other, run), from_bytes));
      }
    } else {
      turn_on_tensor(piece, plan, t, stored, from_bytes);
    }
    tile_.store(moving(stored_to(piece, plan, t), to_bytes), stored);
  }

  void turn_on_tensor(const Region& piece, const Plan& plan, const Turned& t, const Access& stored,
                      int64_t from_bytes) {
    const Access loaded =
        tile_.sbuf(static_cast<int>(t.columns), {t.row_blocks() * t.rows_of_source()}, dtype_);
    tile_.load(loaded, moving(loaded_from(piece, plan, t), from_bytes));
    const int64_t per_bank = blocks_per_bank(t), pad = bytes_ == 1 ? 2 : 1;
    for (int64_t first = 0; first < t.blocks; first += per_bank) {
      const int64_t n = std::min(per_bank, t.blocks - first);
      const Access bank = tile_.psum(static_cast<int>(t.rows), {n * t.columns * pad}, dtype_);
      for (int64_t i = 0; i < n; ++i) {
        // Blocks in the order of the stored tile: row tile, other axes, column tile.
        const int64_t block = first + i, column_tile = block % t.column_tiles,
                      other = block / t.column_tiles % t.others, row_tile = block / t.column_tiles / t.others;
        tile_.transpose(
            with_dims(bank, i * t.columns * pad, {{pad, t.columns}}),
            columns_of(loaded, (column_tile * t.others + other) * t.rows_of_source() + row_tile * t.rows,
                       t.rows));
      }
      tile_.copy(columns_of(stored, first * t.columns, n * t.columns),
                 with_dims(bank, 0, {{pad, n * t.columns}}));
    }
  }

  const MoveKernel& kernel_;
  const KernelContext& context_;
  TileBuilder& tile_;
  const config::Config& config_;
  Region all_;
  Dtype dtype_;    // in SBUF: a word of 1, 2 or 4 bytes
  int64_t bytes_;  // of it
  bool gaps_;      // what lies between the elements of the source may be read
};

}  // namespace

bool move_through_sbuf(const MoveKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  return Mover(kernel, context, tile).run();
}

}  // namespace trnsim::compiler
