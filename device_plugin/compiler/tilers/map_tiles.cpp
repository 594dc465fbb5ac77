#include "device_plugin/compiler/tilers/map_tiles.h"

#include <algorithm>

#include "device_plugin/compiler/tilers/expr.h"

namespace trnsim::compiler {

MapTiles::MapTiles(const MapKernel& kernel, const KernelContext& context, TileBuilder& tile)
    : kernel_(kernel), context_(context), tile_(tile), live_(kernel.exprs.size(), false) {
  size_t rank = kernel.domain.size();
  num_reduced_axes_ = static_cast<int>(rank) - kernel.num_kept;
  mark_live();
  input_view_.assign(kernel.inputs.size(), -1);
  for (size_t i = 0; i < kernel.exprs.size(); ++i) {
    const Expr& e = kernel.exprs[i];
    if (!live_[i]) continue;
    if (e.op == ExprOp::kInput) {
      const View& v = kernel.inputs.at(e.index);
      if (v.sizes.size() != rank) throw_internal("an input of a map does not have the rank of the domain");
      if (input_view_[e.index] < 0) {
        input_view_[e.index] = static_cast<int>(views_.size());
        views_.push_back(v);
      }
    } else if (e.op == ExprOp::kIota && !iotas_.contains(e.index)) {
      View v;
      v.buffer = -1;
      v.dtype = Dtype::kI32;
      v.sizes = kernel.domain;
      v.strides.assign(rank, 0);
      v.strides.at(e.index) = 1;
      iotas_[e.index] = static_cast<int>(views_.size());
      views_.push_back(v);
    } else if (e.op != ExprOp::kConst && e.op != ExprOp::kParam) {
      ++operations_;
    }
  }
  for (const auto& o : kernel.outputs) {
    View v = o.view;
    bool row = v.sizes.size() != rank;
    if (row && static_cast<int>(v.sizes.size()) != kernel.num_kept) {
      throw_internal("an output of a map has neither the rank of the domain nor of a row value");
    }
    if (row) {
      for (size_t i = v.sizes.size(); i < rank; ++i) {
        v.sizes.push_back(kernel.domain[i]);
        v.strides.push_back(0);
      }
    }
    outputs_.push_back({static_cast<int>(views_.size()), o.expr, row});
    views_.push_back(v);
  }
}

void MapTiles::mark_live() {
  for (const auto& o : kernel_.outputs) live_.at(o.expr) = true;
  for (int i = static_cast<int>(live_.size()) - 1; i >= 0; --i) {
    if (!live_[i]) continue;
    for (int32_t o : {kernel_.exprs[i].a, kernel_.exprs[i].b, kernel_.exprs[i].c}) {
      if (o >= 0) live_.at(o) = true;
    }
  }
}

std::vector<int> MapTiles::views_by_weight() const {
  std::vector<int> order;
  for (const Output& o : outputs_) order.push_back(o.view);
  for (int v : input_view_) {
    if (v >= 0) order.push_back(v);
  }
  for (const auto& [axis, v] : iotas_) order.push_back(v);
  return order;
}

bool MapTiles::has_full_outputs() const {
  return std::any_of(outputs_.begin(), outputs_.end(), [](const Output& o) { return !o.row; });
}

bool MapTiles::only_float_sums() const {
  for (size_t i = 0; i < kernel_.exprs.size(); ++i) {
    const Expr& e = kernel_.exprs[i];
    if (!live_[i] || e.op != ExprOp::kReduce) continue;
    if (e.reduce != ReduceOp::kSum || kernel_.exprs[e.a].dtype != Dtype::kF32) return false;
  }
  return true;
}

bool MapTiles::is_long_chain() const {
  constexpr uint64_t kMinOperations = 8;
  return operations_ >= kMinOperations && !has_reduced_axes() && !has_iota();
}

uint64_t MapTiles::element_operations() const {
  std::vector<bool> element(kernel_.exprs.size(), false);
  uint64_t count = 0;
  for (size_t i = 0; i < kernel_.exprs.size(); ++i) {
    const Expr& e = kernel_.exprs[i];
    if (!live_[i]) continue;
    if (e.op == ExprOp::kInput || e.op == ExprOp::kIota) {
      const View& v = views_[e.op == ExprOp::kInput ? input_view_[e.index] : iotas_.at(e.index)];
      for (size_t d = static_cast<size_t>(kernel_.num_kept); d < v.strides.size(); ++d)
        element[i] = element[i] || (v.strides[d] != 0 && v.sizes[d] > 1);
      element[i] = element[i] || num_reduced_axes_ == 0;
      continue;
    }
    bool all = false;
    for (int32_t o : {e.a, e.b, e.c}) all = all || (o >= 0 && element[o]);
    count += all;
    element[i] = all && e.op != ExprOp::kReduce;
  }
  return count;
}

uint64_t MapTiles::traffic_bytes() const {
  uint64_t bytes = 0;
  for (const View& v : views_) {
    if (v.buffer < 0) continue;
    uint64_t n = isa::dtype_bytes(v.dtype);
    for (size_t i = 0; i < v.sizes.size(); ++i)
      n *= v.strides[i] != 0 ? static_cast<uint64_t>(v.sizes[i]) : 1;
    bytes += n;
  }
  return bytes;
}

std::vector<std::vector<int32_t>> MapTiles::reduce_levels() const {
  std::vector<int> depth(kernel_.exprs.size(), 0);
  std::vector<std::vector<int32_t>> levels;
  for (size_t i = 0; i < kernel_.exprs.size(); ++i) {
    const Expr& e = kernel_.exprs[i];
    for (int32_t o : {e.a, e.b, e.c}) {
      if (o >= 0) depth[i] = std::max(depth[i], depth[o]);
    }
    if (e.op != ExprOp::kReduce || !live_[i]) continue;
    ++depth[i];
    if (static_cast<int>(levels.size()) < depth[i]) levels.resize(depth[i]);
    levels[depth[i] - 1].push_back(static_cast<int32_t>(i));
  }
  return levels;
}

int64_t MapTiles::bytes_per_element() const {
  constexpr int64_t kElements = 256;
  TileBuilder aside("aside");
  ExprTiles t;
  t.partitions = 1;
  t.dims = {kElements};
  t.reduced = {num_reduced_axes_ > 0};
  std::vector<int32_t> roots;
  std::vector<Access> into;
  Access hbm = aside.tensor("hbm", isa::TensorKind::kInput, Dtype::kU8, {8 * kElements});
  auto made = [&](Dtype dtype) {
    Access a = aside.sbuf(1, {kElements}, dtype);
    Access src = hbm;
    src.dtype = dtype;
    src.size[0] = kElements;
    aside.load(a, src);
    return a;
  };
  for (int v : input_view_) t.inputs.push_back(v >= 0 ? made(tile_dtype(views_[v].dtype)) : Access{});
  t.iota = [&](int) { return made(Dtype::kI32); };
  if (num_reduced_axes_ == 0) t.row_value = [&](int) { return Access{}; };
  for (const Output& o : outputs_) {
    roots.push_back(o.expr);
    into.push_back(o.row ? Access{} : aside.sbuf(1, {kElements}, tile_dtype(views_[o.view].dtype)));
  }
  std::vector<Access> values = emit_expr(aside, kernel_.exprs, roots, t, into);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!into[i].present()) continue;
    Access dst = hbm;
    dst.dtype = into[i].dtype;
    dst.size[0] = kElements;
    aside.store(dst, into[i]);
  }
  return (aside.peak_sbuf_bytes() + kElements - 1) / kElements;
}

// ---- one tile
// ----------------------------------------------------------------------------------------------------

struct MapTiles::Frame {
  Box box;
  int num_partition_axes = 0;
  ExprTiles tiles;
};

// Which expression nodes are evaluated for the roots, known row values cut off.
std::vector<bool> MapTiles::needed(const std::vector<int32_t>& roots, const RowValues* known) const {
  std::vector<bool> need(kernel_.exprs.size(), false);
  for (int32_t r : roots) need[r] = true;
  for (int i = static_cast<int>(need.size()) - 1; i >= 0; --i) {
    if (!need[i] || (known && known->contains(i))) continue;
    for (int32_t o : {kernel_.exprs[i].a, kernel_.exprs[i].b, kernel_.exprs[i].c}) {
      if (o >= 0) need[o] = true;
    }
  }
  return need;
}

MapTiles::Frame MapTiles::make_frame(Box box) {
  Frame f;
  box.merge();
  f.box = std::move(box);
  const Box& b = f.box;
  while (f.num_partition_axes < b.rank() && b.on_partition(f.num_partition_axes)) ++f.num_partition_axes;
  f.tiles.partitions = static_cast<int>(b.partitions());
  for (int i = f.num_partition_axes; i < b.rank(); ++i) {
    f.tiles.dims.push_back(b.sizes[i]);
    f.tiles.reduced.push_back(b.role(i) == AxisRole::kReduced);
  }
  if (f.tiles.dims.empty()) {
    f.tiles.dims.push_back(1);
    f.tiles.reduced.push_back(false);
  }
  if (f.tiles.dims.size() > 4)
    throw_unsupported("a map over strided operands that needs more than 4 free dims");
  return f;
}

Access MapTiles::box_access(const Box& box, int view, const std::vector<int>& dims) const {
  const View& v = box.views[view];
  View part = v;
  part.sizes.clear();
  part.strides.clear();
  for (int i = 0; i < box.rank(); ++i) {
    if (!box.on_partition(i) && std::find(dims.begin(), dims.end(), i) == dims.end()) continue;
    part.sizes.push_back(v.sizes[i]);
    part.strides.push_back(v.strides[i]);
  }
  return hbm_view(context_, part);
}

MapTiles::Source MapTiles::source(Box box, int view) const {
  box.merge();
  const View& v = box.views[view];
  if (v.buffer < 0 || box.rank() > isa::kMaxDims) return Source::kGiven;
  const Buffer::Kind kind = context_.list->buffers[static_cast<size_t>(v.buffer)].kind;
  const bool written = kind == Buffer::Kind::kScratch || kind == Buffer::Kind::kOutput;
  if (!written || std::find(input_view_.begin(), input_view_.end(), view) == input_view_.end())
    return Source::kGiven;
  std::vector<int> dims;
  for (int d = 0; d < box.rank(); ++d)
    if (v.strides[d] != 0) dims.push_back(d);
  const int64_t from = tile_.stored_from(box_access(box, view, dims));
  return from == 0 ? Source::kComputed : from == box.partitions() ? Source::kResident : Source::kInSbuf;
}

bool MapTiles::is_read_turned(Box box, int view) const {
  const auto is_view = [&](const Output& o) { return o.view == view && !o.row; };
  if (std::none_of(outputs_.begin(), outputs_.end(), is_view)) return false;
  const View& v = box.views[view];
  const auto buffer = static_cast<size_t>(v.buffer);  // of the list, or private to a tiler
  if (buffer >= context_.read.size() || !context_.read[buffer]) return false;
  for (int& r : box.roles) r = 0;
  box.views = {v};
  box.merge();
  return box.rank() > 1;
}

// Loads the free dims `dims` (axes of the box) of an operand; the other free dims have stride 0.
Access MapTiles::load(const Box& box, int view, const std::vector<int>& dims) {
  const View& v = box.views[view];
  const int partitions = static_cast<int>(box.partitions());
  std::vector<int64_t> tile_dims;
  for (int d : dims) tile_dims.push_back(v.sizes[d]);
  if (tile_dims.empty()) tile_dims.push_back(1);
  Access hbm = box_access(box, view, dims);
  int64_t step = step_bytes(view);
  if (step != 0) hbm = tile_.advance(hbm, step);
  Cached& cached = cache_[view];
  if (cached.tile.present() && cached.hbm == hbm && cached.partitions == partitions) {
    Access a = cached.tile;
    return reshape(a, tile_dims);
  }
  Access a = tile_.sbuf(partitions, tile_dims, tile_dtype(v.dtype));
  if (step != 0) {
    tile_.load(a, hbm);
  } else {
    tile_.before_loop([&] { tile_.load(a, hbm); });
  }
  cached = {hbm, a, partitions};
  return a;
}

namespace {

// A tile of the free axes `dims` as an access over all free axes from `first` on, stride 0 elsewhere.
Access spread(const Access& tile, const Box& box, int first, const std::vector<int>& dims,
              const std::function<bool(int)>& wanted) {
  Access a = tile;
  a.num_dims = 0;
  size_t at = 0;
  for (int i = first; i < box.rank(); ++i) {
    bool own = at < dims.size() && dims[at] == i;
    if (wanted(i)) {
      a.size[a.num_dims] = static_cast<uint32_t>(box.sizes[i]);
      a.step[a.num_dims] = own ? tile.step[at] : 0;
      ++a.num_dims;
    }
    if (own) ++at;
  }
  if (a.num_dims == 0) {
    a.num_dims = 1;
    a.size[0] = 1;
    a.step[0] = 1;
  }
  return a;
}

}  // namespace

// The integers offset + sum index_i * stride_i.
Access MapTiles::iota_tile(const Frame& f, int view) {
  const View& v = f.box.views[view];
  std::vector<int> dims;
  std::vector<int64_t> sizes;
  isa::AffinePattern pattern;
  pattern.base = v.offset;
  if (f.num_partition_axes > 0) {
    if (f.num_partition_axes > 1) throw_internal("index values over two partition axes");
    pattern.partition_step = static_cast<int32_t>(v.strides[0]);
  }
  for (int i = f.num_partition_axes; i < f.box.rank(); ++i) {
    if (v.strides[i] == 0) continue;
    pattern.step[dims.size()] = static_cast<int32_t>(v.strides[i]);
    dims.push_back(i);
    sizes.push_back(f.box.sizes[i]);
  }
  if (sizes.empty()) sizes.push_back(1);
  Access a = tile_.sbuf(f.tiles.partitions, sizes, Dtype::kI32);
  tile_.iota(a, pattern);
  return spread(a, f.box, f.num_partition_axes, dims, [](int) { return true; });
}

namespace {

constexpr int64_t kBankElements = isa::kPsumBankBytes / 4;

// With one more dim of stride 0.
Access repeated(const Access& a, int dim, int64_t count) {
  Access r = a;
  for (int d = r.num_dims; d > dim; --d) {
    r.size[d] = r.size[d - 1];
    r.step[d] = r.step[d - 1];
  }
  ++r.num_dims;
  r.size[dim] = static_cast<uint32_t>(count);
  r.step[dim] = 0;
  return r;
}

}  // namespace

Access MapTiles::ones(int partitions) {
  Access& a = ones_[partitions];
  if (!a.present()) {
    a = tile_.sbuf(partitions, {isa::kMaxPartitions}, Dtype::kF32);
    tile_.before_loop([&] { tile_.memset(a, 1); });
  }
  return a;
}

// 1 where a partition (share, row) is of row r, [partitions, rows].
Access MapTiles::own_row(int partitions, int rows) {
  Access& a = own_row_[{partitions, rows}];
  if (a.present()) return a;
  a = tile_.sbuf(partitions, {rows}, Dtype::kU8);
  tile_.before_loop([&] {
    const int shares = partitions / rows;
    Access one = tile_.sbuf(partitions, {shares, rows}, Dtype::kF32);
    tile_.memset(one, 1);
    isa::AffinePattern pattern;  // 0 at the one (share, row) of the partition
    pattern.partition_step = 1;
    pattern.step[0] = -rows;
    pattern.step[1] = -1;
    tile_.affine_select(one, one, pattern, AluOp::kEqual, 0);
    tile_.tensor_scalar(a, reduce_dims(tile_, one, {true, false}, ReduceOp::kMax, Dtype::kF32),
                        AluOp::kNotEqual, TileBuilder::imm(0));
  });
  return a;
}

Access MapTiles::combine(const Access& partial, int32_t reduce, int partitions, int rows) {
  const Expr& e = kernel_.exprs[reduce];
  return combine_values(partial, e.reduce, kernel_.exprs[e.a].dtype, partitions, rows);
}

void MapTiles::accumulate(const Access& acc, const Access& value, int32_t reduce) {
  const Expr& e = kernel_.exprs[reduce];
  reduce_into(tile_, acc, value, e.reduce, kernel_.exprs[e.a].dtype);
}

// Float sums: a product with ones, which leaves the sum over the partitions in every partition. Others: all
// shares go to one partition, are reduced there and are sent back to all. Partitions (share, row): as many rows take
// part side by side, and every partition takes its own; a product with zeros would carry an infinity from row to row.
Access MapTiles::combine_values(const Access& partial, ReduceOp op, Dtype expr_class, int partitions,
                                int rows) {
  std::vector<int64_t> dims(partial.size.begin(), partial.size.begin() + partial.num_dims);
  if (partial.num_partitions == rows && partitions == rows) return partial;
  int64_t n = partial.free_elements();
  Access share = partial;
  bool float_sum = op == ReduceOp::kSum && expr_class == Dtype::kF32;
  if (!share.contiguous() || (float_sum && share.dtype != Dtype::kF32)) {
    share = tile_.sbuf(partial.num_partitions, dims, float_sum ? Dtype::kF32 : partial.dtype);
    tile_.copy(share, partial);
  }
  share = reshape(share, {n});
  Access result = tile_.sbuf(partitions, {n}, share.dtype);
  if (float_sum && rows > 1) {
    const Access apart = tile_.sbuf(share.num_partitions, {rows, n}, Dtype::kF32);
    tile_.memset(apart, 0);
    const Access own = own_row(share.num_partitions, rows);
    tile_.copy_predicated(apart, repeated(share, 0, rows), repeated(own, 1, n));
    const Access weights = slice(ones(share.num_partitions), 0, 0, partitions);
    const int64_t part = std::min<int64_t>(n, kBankElements / rows);
    for (int64_t at = 0; at < n; at += part) {
      const int64_t count = std::min(part, n - at);
      const Access sums = tile_.psum(partitions, {rows, count});
      tile_.matmul(sums, weights, slice(apart, 1, at, count), false);
      const Access dst = slice(result, 0, at, count);
      const auto of_row = [&](int r) {
        Access a = slice(sums, 0, r, 1);
        return reshape(a, {count});
      };
      tile_.copy(dst, of_row(0));
      for (int r = 1; r < rows; ++r)
        tile_.copy_predicated(dst, of_row(r), broadcast(slice(own_row(partitions, rows), 0, r, 1), 0, count));
    }
    return reshape(result, dims);
  }
  if (float_sum) {
    Access weights = slice(ones(partial.num_partitions), 0, 0, partitions);
    for (int64_t at = 0; at < n; at += kBankElements) {
      int64_t count = std::min(kBankElements, n - at);
      Access sum = tile_.psum(partitions, {count});
      tile_.matmul(sum, weights, slice(share, 0, at, count), false);
      tile_.copy(slice(result, 0, at, count), sum);
    }
    return reshape(result, dims);
  }
  const int64_t shares = partial.num_partitions / rows, all = rows * n;
  Access total = share;
  if (partial.num_partitions > 1) {
    Access gathered = tile_.sbuf(1, {shares, all}, share.dtype);
    tile_.dma(gathered, share);
    total = reduce_dims(tile_, gathered, {true, false}, op, expr_class);
    if (!total.contiguous()) {
      Access dense = tile_.sbuf(1, {all}, total.dtype);
      tile_.copy(dense, total);
      total = dense;
    }
  }
  tile_.dma(result, repeated(reshape(total, {all}), 0, partitions / rows));
  return reshape(result, dims);
}

std::vector<Access> MapTiles::emit_partials(Box box, const std::vector<int32_t>& reduces,
                                            const RowValues& known, int across) {
  EmitOptions options;
  options.known = &known;
  options.across = across;
  Frame f = make_frame(std::move(box));
  std::vector<Access> values = emit_roots(f, options, reduces, {}, nullptr, true);
  // Accumulators must be tiles of their own, dense and in the dtype of the class.
  for (size_t i = 0; i < values.size(); ++i) {
    Access& v = values[i];
    std::vector<int64_t> dims(v.size.begin(), v.size.begin() + v.num_dims);
    Access own = tile_.sbuf(v.num_partitions, dims, v.dtype);
    tile_.copy(own, v);
    v = own;
  }
  return values;
}

void MapTiles::emit(Box box, const EmitOptions& options) {
  Frame f = make_frame(std::move(box));
  std::vector<int32_t> roots;
  std::vector<Access> into;
  std::vector<const Output*> list;
  std::vector<size_t> tile_of;  // per output: its place in `into`
  std::vector<int64_t> row_dims;
  for (size_t i = 0; i < f.tiles.dims.size(); ++i) {
    if (!f.tiles.reduced[i]) row_dims.push_back(f.tiles.dims[i]);
  }
  if (row_dims.empty()) row_dims.push_back(1);
  for (const Output& o : outputs_) {
    if (o.row ? !options.row_outputs : !options.full_outputs) continue;
    list.push_back(&o);
  }
  // Where rows are summed over partitions a value takes long to go there and back. What others wait for comes first and
  // is stored at once.
  if (options.across > 0)
    std::stable_sort(list.begin(), list.end(),
                     [](const Output* x, const Output* y) { return x->row < y->row; });
  for (const Output* o : list) {
    const Dtype dtype = tile_dtype(views_[o->view].dtype);
    // One tile for results that are stored to several places.
    size_t same = 0;
    while (same < roots.size() && (roots[same] != o->expr || into[same].dtype != dtype)) ++same;
    tile_of.push_back(same);
    if (same < roots.size()) continue;
    roots.push_back(o->expr);
    into.push_back(tile_.sbuf(f.tiles.partitions, o->row ? row_dims : f.tiles.dims, dtype));
  }
  if (roots.empty()) return;
  const auto store = [&](size_t root) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (tile_of[i] != root) continue;
      const Output& o = *list[i];
      const View& v = f.box.views[o.view];
      View part = v;
      part.sizes.clear();
      part.strides.clear();
      for (int d = 0; d < f.box.rank(); ++d) {
        if (o.row && (f.box.role(d) == AxisRole::kReduced || f.box.role(d) == AxisRole::kShare)) continue;
        part.sizes.push_back(v.sizes[d]);
        part.strides.push_back(v.strides[d]);
      }
      const Access& tile = into[root];
      const Access src = o.row && options.across > 0 ? slice_partitions(tile, 0, options.across) : tile;
      const Access dst = hbm_view(context_, part);
      const int64_t step = step_bytes(o.view);
      tile_.store(step != 0 ? tile_.advance(dst, step) : dst, src);
    }
  };
  if (options.across > 0) {
    emit_roots(f, options, roots, into, store, false);
    return;
  }
  emit_roots(f, options, roots, into, nullptr, false);
  for (size_t r = 0; r < roots.size(); ++r) store(r);
}

bool MapTiles::emit_loop(const Box& first, int64_t count, const std::vector<int64_t>& steps,
                         const EmitOptions& options) {
  // An index value is part of the instruction.
  for (const auto& [axis, view] : iotas_) {
    if (steps[view] != 0) return false;
  }
  // Tiles of earlier pieces serve the loop only where the operand does not move.
  auto forget = [&] {
    for (size_t v = 0; v < steps.size(); ++v) {
      if (steps[v] != 0) cache_.erase(static_cast<int>(v));
    }
  };
  forget();
  loop_steps_ = &steps;
  tile_.loop(
      count, [&] { emit(first, options); }, is_long_chain());
  loop_steps_ = nullptr;
  forget();
  return true;
}

std::vector<Access> MapTiles::emit_roots(Frame& f, const EmitOptions& options,
                                         const std::vector<int32_t>& roots, const std::vector<Access>& into,
                                         const std::function<void(size_t)>& done, bool partial) {
  const Box& b = f.box;
  std::vector<bool> need = needed(roots, options.known);
  ExprTiles& t = f.tiles;
  t.inputs.assign(kernel_.inputs.size(), {});
  t.columns.assign(kernel_.inputs.size(), {});
  t.rows.assign(kernel_.inputs.size(), {});
  int first = f.num_partition_axes;
  // A value per row does not change along reduced axes, wherever they are.
  auto is_row = [&](const View& v) {
    if (num_reduced_axes_ == 0) return false;
    for (int i = 0; i < b.rank(); ++i) {
      const bool reduced = b.role(i) == AxisRole::kReduced || b.role(i) == AxisRole::kShare;
      if (reduced && v.strides[i] != 0) return false;
    }
    return true;
  };
  // Loads leave in order: those of what is there from the start before those that may wait for another kernel's store.
  std::vector<size_t> loads;
  for (const bool waits : {false, true}) {
    for (size_t i = 0; i < kernel_.exprs.size(); ++i) {
      const Expr& e = kernel_.exprs[i];
      if (!need[i] || e.op != ExprOp::kInput) continue;
      const Buffer::Kind kind =
          context_.list->buffers[static_cast<size_t>(b.views[input_view_[e.index]].buffer)].kind;
      if (waits == (kind == Buffer::Kind::kScratch || kind == Buffer::Kind::kOutput)) loads.push_back(i);
    }
  }
  for (size_t i : loads) {
    const Expr& e = kernel_.exprs[i];
    int view = input_view_[e.index];
    if (t.inputs[e.index].present() || t.columns[e.index].present() || t.rows[e.index].present()) continue;
    const View& v = b.views[view];
    std::vector<int> dims;
    for (int d = first; d < b.rank(); ++d) {
      if (v.strides[d] != 0) dims.push_back(d);
    }
    Access a = load(b, view, dims);
    if (dims.empty()) {
      t.columns[e.index] = a;
    } else if (is_row(v)) {
      t.rows[e.index] = spread(a, b, first, dims, [&](int d) { return b.role(d) != AxisRole::kReduced; });
    } else {
      t.inputs[e.index] = spread(a, b, first, dims, [](int) { return true; });
    }
  }
  std::map<int, Access> indices;
  t.iota = [&](int axis) {
    Access& a = indices[axis];
    if (!a.present()) a = iota_tile(f, iotas_.at(axis));
    if (!is_row(b.views[iotas_.at(axis)])) return a;
    // The row shape: without the reduced dims, along which it has stride 0.
    Access row = a;
    row.num_dims = 0;
    for (int d = first; d < b.rank(); ++d) {
      if (b.role(d) == AxisRole::kReduced) continue;
      row.size[row.num_dims] = a.size[d - first];
      row.step[row.num_dims] = a.step[d - first];
      ++row.num_dims;
    }
    if (row.num_dims == 0) {
      row.num_dims = 1;
      row.size[0] = 1;
      row.step[0] = 1;
    }
    return row;
  };
  t.iota_is_row = [&](int axis) { return iotas_.contains(axis) && is_row(b.views[iotas_.at(axis)]); };
  t.row_value = [&](int expr) {
    if (!options.known) return Access{};
    auto it = options.known->find(expr);
    if (it == options.known->end()) return Access{};
    return slice_partitions(it->second, 0, t.partitions);
  };
  if (options.across > 0 && !partial) {
    t.combine_partitions = [&](const Access& share, ReduceOp op, Dtype expr_class) {
      return combine_values(share, op, expr_class, t.partitions, options.across);
    };
  }
  return emit_expr(tile_, kernel_.exprs, roots, t, into, done);
}

}  // namespace trnsim::compiler
