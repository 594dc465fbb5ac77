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

MapTiles::Frame MapTiles::make_frame(Box box, bool across, const std::vector<int32_t>& roots) {
  Frame f;
  box.merge();
  f.box = std::move(box);
  const Box& b = f.box;
  while (f.num_partition_axes < b.rank() && b.role(f.num_partition_axes) == AxisRole::kPartition) {
    ++f.num_partition_axes;
  }
  f.tiles.partitions = static_cast<int>(b.product(AxisRole::kPartition));
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

// Loads the free dims `dims` (axes of the box) of an operand; the other free dims have stride 0.
Access MapTiles::load(const Box& box, int view, const std::vector<int>& dims) {
  const View& v = box.views[view];
  View part = v;
  part.sizes.clear();
  part.strides.clear();
  int partitions = 1;
  for (int i = 0; i < box.rank() && box.role(i) == AxisRole::kPartition; ++i) {
    part.sizes.push_back(v.sizes[i]);
    part.strides.push_back(v.strides[i]);
    partitions *= static_cast<int>(v.sizes[i]);
  }
  std::vector<int64_t> tile_dims;
  for (int d : dims) {
    part.sizes.push_back(v.sizes[d]);
    part.strides.push_back(v.strides[d]);
    tile_dims.push_back(v.sizes[d]);
  }
  if (tile_dims.empty()) tile_dims.push_back(1);
  Access hbm = hbm_view(context_, part);
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

Access MapTiles::ones(int partitions) {
  Access& a = ones_[partitions];
  if (!a.present()) {
    a = tile_.sbuf(partitions, {isa::kMaxPartitions}, Dtype::kF32);
    tile_.before_loop([&] { tile_.memset(a, 1); });
  }
  return a;
}

Access MapTiles::combine(const Access& partial, int32_t reduce, int partitions) {
  const Expr& e = kernel_.exprs[reduce];
  return combine_values(partial, e.reduce, kernel_.exprs[e.a].dtype, partitions);
}

void MapTiles::accumulate(const Access& acc, const Access& value, int32_t reduce) {
  const Expr& e = kernel_.exprs[reduce];
  reduce_into(tile_, acc, value, e.reduce, kernel_.exprs[e.a].dtype);
}

// Float sums: a product with ones, which leaves the sum over the partitions in every partition. Others: all
// shares go to one partition, are reduced there and are sent back to all.
Access MapTiles::combine_values(const Access& partial, ReduceOp op, Dtype expr_class, int partitions) {
  std::vector<int64_t> dims(partial.size.begin(), partial.size.begin() + partial.num_dims);
  if (partial.num_partitions == 1 && partitions == 1) return partial;
  int64_t n = partial.free_elements();
  Access share = partial;
  bool float_sum = op == ReduceOp::kSum && expr_class == Dtype::kF32;
  if (!share.contiguous() || (float_sum && share.dtype != Dtype::kF32)) {
    share = tile_.sbuf(partial.num_partitions, dims, float_sum ? Dtype::kF32 : partial.dtype);
    tile_.copy(share, partial);
  }
  share = reshape(share, {n});
  Access result = tile_.sbuf(partitions, {n}, share.dtype);
  if (float_sum) {
    Access weights = slice(ones(partial.num_partitions), 0, 0, partitions);
    constexpr int64_t kBank = 512;
    for (int64_t at = 0; at < n; at += kBank) {
      int64_t count = std::min(kBank, n - at);
      Access sum = tile_.psum(partitions, {count});
      tile_.matmul(sum, weights, slice(share, 0, at, count), false);
      tile_.copy(slice(result, 0, at, count), sum);
    }
    return reshape(result, dims);
  }
  int64_t shares = partial.num_partitions;
  Access total = share;
  if (shares > 1) {
    Access gathered = tile_.sbuf(1, {shares, n}, share.dtype);
    tile_.dma(gathered, share);
    total = reduce_dims(tile_, gathered, {true, false}, op, expr_class);
    if (!total.contiguous()) {
      Access dense = tile_.sbuf(1, {n}, total.dtype);
      tile_.copy(dense, total);
      total = dense;
    }
  }
  Access source = reshape(total, {n});
  source.num_dims = 2;
  source.size[1] = source.size[0];
  source.step[1] = source.step[0];
  source.size[0] = static_cast<uint32_t>(partitions);
  source.step[0] = 0;
  tile_.dma(result, source);
  return reshape(result, dims);
}

std::vector<Access> MapTiles::emit_partials(Box box, const std::vector<int32_t>& reduces,
                                            const RowValues& known, bool across) {
  EmitOptions options;
  options.known = &known;
  options.across = across;
  std::vector<Access> values;
  Frame f = make_frame(std::move(box), across, reduces);
  emit_roots(
      f, options, reduces, {}, [&](const std::vector<Access>& v) { values = v; }, true);
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
  Frame f = make_frame(std::move(box), options.across, {});
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
    const Dtype dtype = tile_dtype(views_[o.view].dtype);
    // One tile for results that are stored to several places.
    size_t same = 0;
    while (same < roots.size() && (roots[same] != o.expr || into[same].dtype != dtype)) ++same;
    tile_of.push_back(same);
    if (same < roots.size()) continue;
    roots.push_back(o.expr);
    into.push_back(tile_.sbuf(f.tiles.partitions, o.row ? row_dims : f.tiles.dims, dtype));
  }
  if (roots.empty()) return;
  emit_roots(f, options, roots, into, nullptr, false);
  for (size_t i = 0; i < list.size(); ++i) {
    const Output& o = *list[i];
    const View& v = f.box.views[o.view];
    View part = v;
    part.sizes.clear();
    part.strides.clear();
    for (int d = 0; d < f.box.rank(); ++d) {
      bool dropped = o.row && (f.box.role(d) == AxisRole::kReduced ||
                               (options.across && f.box.role(d) == AxisRole::kPartition));
      if (dropped) continue;
      part.sizes.push_back(v.sizes[d]);
      part.strides.push_back(v.strides[d]);
    }
    const Access& tile = into[tile_of[i]];
    Access src = o.row && options.across ? slice_partitions(tile, 0, 1) : tile;
    Access dst = hbm_view(context_, part);
    int64_t step = step_bytes(o.view);
    tile_.store(step != 0 ? tile_.advance(dst, step) : dst, src);
  }
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

void MapTiles::emit_roots(Frame& f, const EmitOptions& options, const std::vector<int32_t>& roots,
                          const std::vector<Access>& into,
                          const std::function<void(const std::vector<Access>&)>& done, bool partial) {
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
      bool reduced = b.role(i) == AxisRole::kReduced || (options.across && b.role(i) == AxisRole::kPartition);
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
  if (options.across && !partial) {
    t.combine_partitions = [&](const Access& share, ReduceOp op, Dtype expr_class) {
      return combine_values(share, op, expr_class, t.partitions);
    };
  }
  std::vector<Access> values = emit_expr(tile_, kernel_.exprs, roots, t, into);
  if (done) done(values);
}

}  // namespace trnsim::compiler
