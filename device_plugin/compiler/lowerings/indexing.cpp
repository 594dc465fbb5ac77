// Gathers and scatters.
#include <algorithm>

#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler {
namespace {

int dim_arg(LowerContext& c, int arg, const View& v) {
  return static_cast<int>(wrap_dim(c.int_arg(arg), static_cast<int64_t>(v.sizes.size())));
}

// ---- what an index may be: the words are those of PyTorch's CPU kernels

std::string dimension_with_size(int64_t dim, const View& v) {
  return "dimension " + std::to_string(dim) + " with size " +
         std::to_string(v.sizes[static_cast<size_t>(dim)]);
}

// index_select and embedding
IndexRule row_rule(int64_t dim, const View& table) {
  return {"IndexError: index out of range in self (index {} of " + dimension_with_size(dim, table) + ")"};
}

// gather and scatter along an axis
IndexRule along_rule(int64_t dim, const View& table) {
  return {"RuntimeError: index {} is out of bounds for " + dimension_with_size(dim, table)};
}

IndexRule wrapping_rule(int64_t dim, int64_t size) {
  return {"IndexError: index {} is out of bounds for dimension " + std::to_string(dim) + " with size " +
              std::to_string(size),
          true};
}

void emit_gather(LowerContext& c, const View& src, const View& out, int axis, std::vector<View> index,
                 std::vector<IndexRule> rules, bool along = false) {
  if (view_empty(out)) return;
  c.emit(GatherKernel{src, out, axis, std::move(index), along, std::move(rules)});
}

void emit_scatter(LowerContext& c, const View& out, const View& src, int axis, std::vector<View> index,
                  std::vector<IndexRule> rules, bool accumulate, bool along = false) {
  if (view_empty(out) || view_empty(src)) return;
  ScatterKernel k;
  k.combine = accumulate ? ScatterKernel::Combine::kAdd : ScatterKernel::Combine::kNone;
  k.out = out;
  k.src = src;
  k.axis = axis;
  k.index = std::move(index);
  k.along = along;
  k.rules = std::move(rules);
  c.emit(std::move(k));
}

void keep_self(LowerContext& c) {
  if (!c.aliases(0)) c.copy(c.out(0), c.in(0));
}

// The result while sums are gathered: the result itself when it holds a computing type, else a wider copy, so
// that long sums do not round at every step. `finish` writes it back.
struct Accumulator {
  Accumulator(LowerContext& c, bool from_self) : context(c), out(c.out(0)), sum(out) {
    // sums of more than one contribution per place need a contiguous FP32 / int32 target
    Dtype t = compute_dtype(out.dtype) == Dtype::kBool ? Dtype::kI32 : compute_dtype(out.dtype);
    if (out.dtype != t) sum = c.scratch(t, out.sizes);
    if (!from_self)
      c.fill(sum, 0);
    else if (sum.buffer != out.buffer)
      c.copy(sum, c.in(0));
    else
      keep_self(c);
  }
  void finish() {
    if (sum.buffer != out.buffer) context.copy(out, sum);
  }
  // The source in the accumulator's type.
  View source(const View& v) {
    if (v.dtype == sum.dtype) return v;
    View s = context.scratch(sum.dtype, v.sizes);
    context.copy(s, v);
    return s;
  }
  LowerContext& context;
  View out, sum;
};

// ---- whole rows
// -------------------------------------------------------------------------------------------------

void lower_index_select(LowerContext& c) {  // (self, dim, index)
  View x = view_at_least_1d(c.in(0)), out = view_at_least_1d(c.out(0));
  int d = dim_arg(c, 1, x);
  emit_gather(c, x, out, d, {view_at_least_1d(c.in(2))}, {row_rule(d, x)});
}

void lower_embedding(LowerContext& c) {
  emit_gather(c, c.in(0), c.out(0), 0, {c.in(1)}, {row_rule(0, c.in(0))});
}

// (grad, indices, num_weights, padding_idx, scale_grad_by_freq)
void lower_embedding_backward(LowerContext& c) {
  View g = c.in(0), index = c.in(1);
  int64_t padding = c.int_arg(3);
  Accumulator a(c, false);
  emit_scatter(c, a.sum, a.source(g), 0, {index}, {row_rule(0, a.out)}, true);
  View counts;
  if (c.flag(4) &&
      !view_empty(index)) {  // every contribution to a row has the same divisor: how often it was used
    counts = c.scratch(Dtype::kF32, {a.out.sizes[0]});
    c.fill(counts, 0);
    View one = c.scratch(Dtype::kF32, {});
    c.fill(one, 1);
    emit_scatter(c, counts, view_expanded(one, index.sizes), 0, {index}, {row_rule(0, a.out)}, true);
    MapBuilder m(c, a.sum.sizes);
    m.output(a.sum,
             m.input(a.sum) / m.binary(ExprOp::kMax, m.input(view_unsqueezed(counts, 1)), m.constant(1)));
    m.emit();
  }
  if (padding >= 0) c.fill(view_selected(a.sum, 0, padding), 0);
  a.finish();
}

// (self, dim, index, source, alpha)
void lower_index_add(LowerContext& c) {
  Accumulator a(c, true);
  View sum = view_at_least_1d(a.sum), src = view_at_least_1d(c.in(3));
  auto alpha = c.constant(4);
  if (alpha && *alpha == 1) {
    src = a.source(src);
  } else {
    View s = c.scratch(a.sum.dtype, src.sizes);
    MapBuilder m(c, src.sizes);
    m.output(s, m.input(src) * m.operand(4));
    m.emit();
    src = s;
  }
  int d = dim_arg(c, 1, sum);
  IndexRule rule = sum.sizes.size() == 1 ? row_rule(d, sum) : along_rule(d, sum);
  emit_scatter(c, sum, src, d, {view_at_least_1d(c.in(2))}, {rule}, true);
  a.finish();
}

void lower_index_copy(LowerContext& c) {  // (self, dim, index, source)
  keep_self(c);
  View out = view_at_least_1d(c.out(0));
  int d = dim_arg(c, 1, out);
  IndexRule rule{"IndexError: index_copy_(): index {} is out of bounds for " + dimension_with_size(d, out)};
  emit_scatter(c, out, view_at_least_1d(c.in(3)), d, {view_at_least_1d(c.in(2))}, {rule}, false);
}

// A number, or a 0-dim tensor, in the type of `out`.
View scalar_of(LowerContext& c, int arg, Dtype dtype) {
  if (c.is_tensor(arg) && c.in(arg).dtype == dtype) return c.in(arg);
  View s = c.scratch(dtype, {});
  MapBuilder m(c, {});
  m.output(s, m.operand(arg));
  m.emit();
  return s;
}

void lower_index_fill(LowerContext& c) {  // (self, dim, index, value)
  keep_self(c);
  View out = view_at_least_1d(c.out(0)), index = view_at_least_1d(c.in(2));
  int d = dim_arg(c, 1, out);
  std::vector<int64_t> sizes = out.sizes;
  sizes[static_cast<size_t>(d)] = index.sizes[0];
  emit_scatter(c, out, view_expanded(scalar_of(c, 3, out.dtype), sizes), d, {index},
               {wrapping_rule(d, out.sizes[static_cast<size_t>(d)])}, false);
}

// ---- advanced indexing
// ------------------------------------------------------------------------------------------

// x[i0, :, i2]: the indexed axes, and the shape that the index tensors broadcast to. When they are not
// neighbours the index axes come first in the result, which is what `order` (a permutation of the source)
// arranges.
struct AdvancedIndex {
  AdvancedIndex(LowerContext& c, int indices_arg, const View& src) {
    std::vector<View> list = c.in_list(indices_arg);
    std::vector<int> axes;
    for (size_t d = 0; d < list.size(); ++d) {
      if (list[d].buffer < 0) continue;
      if (list[d].dtype == Dtype::kBool || list[d].dtype == Dtype::kU8) {
        c.refuse("a boolean mask has a data-dependent shape; use torch.where or masked_fill");
      }
      // PyTorch counts the indexed dimensions alone.
      rules.push_back(wrapping_rule(static_cast<int64_t>(axes.size()), src.sizes[d]));
      axes.push_back(static_cast<int>(d));
      index.push_back(list[d]);
      sizes = broadcast_sizes(sizes, list[d].sizes);
    }
    for (View& v : index) v = view_expanded(v, sizes);
    bool adjacent = true;
    for (size_t i = 1; i < axes.size(); ++i) adjacent = adjacent && axes[i] == axes[i - 1] + 1;
    axis = adjacent && !axes.empty() ? axes[0] : 0;
    if (adjacent) {
      for (int d = 0; d < static_cast<int>(src.sizes.size()); ++d) order.push_back(d);
    } else {
      order = axes;
      for (int d = 0; d < static_cast<int>(src.sizes.size()); ++d) {
        if (std::find(axes.begin(), axes.end(), d) == axes.end()) order.push_back(d);
      }
    }
  }
  // Shape of the gathered result.
  std::vector<int64_t> result_sizes(const View& permuted) const {
    std::vector<int64_t> out(permuted.sizes.begin(), permuted.sizes.begin() + axis);
    out.insert(out.end(), sizes.begin(), sizes.end());
    out.insert(out.end(), permuted.sizes.begin() + axis + static_cast<int64_t>(index.size()),
               permuted.sizes.end());
    return out;
  }
  std::vector<View> index;
  std::vector<IndexRule> rules;
  std::vector<int64_t> sizes;
  std::vector<int> order;
  int axis = 0;
};

void lower_index(LowerContext& c) {  // (self, indices)
  View x = c.in(0);
  AdvancedIndex a(c, 1, x);
  if (a.index.empty()) return c.copy(c.out(0), x);
  emit_gather(c, view_permuted(x, a.order), c.out(0), a.axis, a.index, a.rules);
}

// Masks only and a value that broadcasts from one element: a select. Returns false when it is another case.
bool index_put_masked(LowerContext& c) {
  std::vector<View> list = c.in_list(1);
  const View* mask = nullptr;
  int axis = 0, first = 0;
  for (const View& v : list) {
    if (v.buffer >= 0) {
      if (mask || (v.dtype != Dtype::kBool && v.dtype != Dtype::kU8)) return false;
      mask = &v;
      first = axis;
    }
    ++axis;
  }
  if (!mask || c.flag(3)) return false;
  if (c.is_tensor(2) && c.type(2).numel() != 1) return false;
  View out = c.out(0);
  View m = *mask;
  while (m.sizes.size() + static_cast<size_t>(first) < out.sizes.size()) {
    m = view_unsqueezed(m, static_cast<int>(m.sizes.size()));
  }
  MapBuilder map(c, out.sizes);
  Ex value = c.is_tensor(2) ? map.input(*view_reshaped(c.in(2), {})) : map.operand(2);
  map.output(out, map.select(map.input(m), value, map.operand(0)));
  map.emit();
  return true;
}

void lower_index_put(LowerContext& c) {  // (self, indices, values, accumulate)
  if (index_put_masked(c)) return;
  View x = c.out(0);
  AdvancedIndex a(c, 1, x);
  bool accumulate = c.flag(3);
  View values = c.in(2);
  if (a.index.empty()) {
    MapBuilder m(c, x.sizes);
    m.output(x, accumulate ? m.operand(0) + m.operand(2) : m.operand(2));
    return m.emit();
  }
  // values may carry leading axes of size 1
  auto fit = [&](View v, const View& target) {
    std::vector<int64_t> sizes = a.result_sizes(target);
    while (v.sizes.size() > sizes.size() && v.sizes[0] == 1) v = view_selected(v, 0, 0);
    return view_expanded(v, sizes);
  };
  if (accumulate) {
    Accumulator acc(c, true);
    View target = view_permuted(acc.sum, a.order);
    emit_scatter(c, target, fit(acc.source(values), target), a.axis, a.index, a.rules, true);
    acc.finish();
    return;
  }
  keep_self(c);
  View target = view_permuted(x, a.order);
  emit_scatter(c, target, fit(values, target), a.axis, a.index, a.rules, false);
}

// ---- along one axis
// ---------------------------------------------------------------------------------------------

// Other axes may be larger than the index's: only the leading part takes part.
View cut_to_index(View v, const View& index, int axis) {
  for (int d = 0; d < static_cast<int>(v.sizes.size()); ++d) {
    if (d != axis) v = view_sliced(v, d, 0, index.sizes[static_cast<size_t>(d)]);
  }
  return v;
}

void lower_gather(LowerContext& c) {  // (self, dim, index, sparse_grad)
  View x = view_at_least_1d(c.in(0)), index = view_at_least_1d(c.in(2)), out = view_at_least_1d(c.out(0));
  int d = dim_arg(c, 1, x);
  emit_gather(c, cut_to_index(x, index, d), out, d, {index}, {along_rule(d, x)}, true);
}

View source_for(const View& src, const View& index) {
  View v = view_at_least_1d(src);
  for (size_t d = 0; d < v.sizes.size(); ++d) v = view_sliced(v, static_cast<int>(d), 0, index.sizes[d]);
  return v;
}

void scatter_along(LowerContext& c, bool add, bool value) {  // (self, dim, index, src or value)
  View index = view_at_least_1d(c.in(2));
  if (!add) {
    keep_self(c);
    View out = view_at_least_1d(c.out(0));
    int d = dim_arg(c, 1, out);
    View src = value ? view_expanded(scalar_of(c, 3, out.dtype), index.sizes) : source_for(c.in(3), index);
    emit_scatter(c, cut_to_index(out, index, d), src, d, {index}, {along_rule(d, out)}, false, true);
    return;
  }
  Accumulator a(c, true);
  View sum = view_at_least_1d(a.sum);
  int d = dim_arg(c, 1, sum);
  View src =
      value ? view_expanded(scalar_of(c, 3, a.sum.dtype), index.sizes) : a.source(source_for(c.in(3), index));
  emit_scatter(c, cut_to_index(sum, index, d), src, d, {index}, {along_rule(d, sum)}, true, true);
  a.finish();
}

void lower_scatter_src(LowerContext& c) { scatter_along(c, false, false); }
void lower_scatter_value(LowerContext& c) { scatter_along(c, false, true); }
void lower_scatter_add(LowerContext& c) { scatter_along(c, true, false); }

// ---- reductions at an index
// -----------------------------------------------------------------------------------------

View with_axis_last(const View& v, int axis) {
  std::vector<int> order;
  for (int d = 0; d < static_cast<int>(v.sizes.size()); ++d)
    if (d != axis) order.push_back(d);
  order.push_back(axis);
  return view_permuted(v, order);
}

Ex combined(MapBuilder& m, ReduceOp op, Ex a, Ex b) {
  return op == ReduceOp::kProd  ? a * b
         : op == ReduceOp::kMax ? m.binary(ExprOp::kMax, a, b)
                                : m.binary(ExprOp::kMin, a, b);
}

// Products and extremes of the elements that go to the same place; DMA accumulates sums only. Elements are sorted by
// place, a segmented scan in logarithmically many steps combines each run, and the last of a run is written. `index`
// and `src` [.., n]; result [.., places + 1], whose last column takes what is not the last of its run.
View reduced_by_place(LowerContext& c, const View& index, const View& src, int64_t places, ReduceOp op) {
  int last = static_cast<int>(index.sizes.size()) - 1;
  int64_t n = index.sizes.back();
  Dtype t = compute_dtype(src.dtype) == Dtype::kBool ? Dtype::kI32 : compute_dtype(src.dtype);
  View key = c.scratch(Dtype::kI32, index.sizes), place = c.scratch(Dtype::kI32, index.sizes),
       order = c.scratch(Dtype::kI32, index.sizes);
  c.copy(key, index);
  c.emit(TopKernel{key, place, order, n, false});
  View x = c.scratch(t, index.sizes), y = c.scratch(t, index.sizes), values = c.scratch(t, index.sizes);
  c.copy(values, src);
  emit_gather(c, values, x, last, {order}, {}, true);
  for (int64_t step = 1; step < n; step *= 2) {
    auto late = [&](const View& v) { return view_sliced(v, last, step, n - step); };
    auto early = [&](const View& v) { return view_sliced(v, last, 0, n - step); };
    c.copy(view_sliced(y, last, 0, step), view_sliced(x, last, 0, step));
    MapBuilder m(c, late(x).sizes);
    Ex a = m.input(late(x));
    Ex same = m.input(late(place)) == m.input(early(place));
    m.output(late(y), m.select(same, combined(m, op, a, m.input(early(x))), a));
    m.emit();
    std::swap(x, y);
  }
  View target = c.scratch(Dtype::kI32, index.sizes);
  c.copy(target, place);
  if (n > 1) {
    View body = view_sliced(target, last, 0, n - 1);
    MapBuilder m(c, body.sizes);
    Ex p = m.input(view_sliced(place, last, 0, n - 1));
    Ex ends = p != m.input(view_sliced(place, last, 1, n - 1));
    m.output(body, m.select(ends, p, m.constant(static_cast<double>(places), Dtype::kI32)));
    m.emit();
  }
  std::vector<int64_t> sizes = index.sizes;
  sizes.back() = places + 1;
  View result = c.scratch(t, sizes);
  c.fill(result, 0);
  emit_scatter(c, result, x, last, {target}, {}, false, true);
  return result;
}

// self[.., index, ..] combined with the elements of `src` (sizes of `index`) that go there.
void reduce_along(LowerContext& c, int d, View index, View src, const IndexRule& rule,
                  const std::string& reduce, bool include_self) {
  View out = view_at_least_1d(c.out(0)), self = view_at_least_1d(c.in_unaliased(0));
  c.copy(out, self);
  if (view_empty(index)) return;
  out = cut_to_index(out, index, d);
  self = cut_to_index(self, index, d);
  Dtype t = compute_dtype(out.dtype) == Dtype::kBool ? Dtype::kI32 : compute_dtype(out.dtype);
  View count = c.scratch(Dtype::kI32, out.sizes), one = c.scratch(Dtype::kI32, {});
  c.fill(count, 0);
  c.fill(one, 1);
  emit_scatter(c, count, view_expanded(one, index.sizes), d, {index}, {rule}, true, true);
  const bool sums = reduce == "mean" || reduce == "sum";
  View total;
  if (sums) {
    total = c.scratch(t, out.sizes);
    c.fill(total, 0);
    View values = c.scratch(t, index.sizes);
    c.copy(values, src);
    emit_scatter(c, total, values, d, {index}, {rule}, true, true);
  } else {
    ReduceOp op = reduce == "prod" ? ReduceOp::kProd : reduce == "amax" ? ReduceOp::kMax : ReduceOp::kMin;
    int last = static_cast<int>(index.sizes.size()) - 1;
    int64_t places = out.sizes[static_cast<size_t>(d)];
    total = view_sliced(reduced_by_place(c, with_axis_last(index, d), with_axis_last(src, d), places, op),
                        last, 0, places);
    std::vector<int> order;  // the axis back to its place
    for (int i = 0; i < last; ++i) order.push_back(i);
    order.insert(order.begin() + d, last);
    total = view_permuted(total, order);
    MapBuilder m(c, out.sizes);
    Ex old = m.cast(m.input(self), t), r = m.input(total);
    m.output(out, m.select(m.input(count) == 0.0, old, include_self ? combined(m, op, old, r) : r));
    return m.emit();
  }
  MapBuilder m(c, out.sizes);
  Ex n = m.input(count), old = m.cast(m.input(self), t), sum = m.input(total);
  if (include_self) sum = sum + old;
  if (reduce == "mean") {
    Ex divisor = include_self ? n + 1.0 : m.binary(ExprOp::kMax, n, m.constant(1, Dtype::kI32));
    sum = t == Dtype::kF32 ? sum / divisor : m.binary(ExprOp::kFloorDiv, sum, divisor);
  }
  m.output(out, m.select(n == 0.0, old, sum));
  m.emit();
}

template <bool value>
void lower_scatter_reduce_string(LowerContext& c) {  // (self, dim, index, src or value, reduce)
  if (c.str(4) == "add") return scatter_along(c, true, value);
  View out = view_at_least_1d(c.out(0)), index = view_at_least_1d(c.in(2));
  int d = dim_arg(c, 1, out);
  View src = value ? view_expanded(scalar_of(c, 3, out.dtype), index.sizes) : source_for(c.in(3), index);
  reduce_along(c, d, index, src, along_rule(d, out), "prod", true);
}

// (self, dim, index, src, reduce, include_self)
void lower_scatter_reduce(LowerContext& c) {
  if (c.str(4) == "sum" && c.flag(5)) return scatter_along(c, true, false);
  View out = view_at_least_1d(c.out(0)), index = view_at_least_1d(c.in(2));
  int d = dim_arg(c, 1, out);
  reduce_along(c, d, index, source_for(c.in(3), index), along_rule(d, out), c.str(4), c.flag(5));
}

void lower_index_reduce(LowerContext& c) {  // (self, dim, index, source, reduce, include_self)
  View out = view_at_least_1d(c.out(0)), src = view_at_least_1d(c.in(3)), index = view_at_least_1d(c.in(2));
  int d = dim_arg(c, 1, out);
  IndexRule rule{"IndexError: index_reduce(): index {} is out of bounds for " + dimension_with_size(d, out)};
  while (static_cast<size_t>(d) + index.sizes.size() < src.sizes.size())
    index = view_unsqueezed(index, static_cast<int>(index.sizes.size()));
  reduce_along(c, d, view_expanded(index, src.sizes), src, rule, c.str(4), c.flag(5));
}

void lower_take(LowerContext& c) {  // (self, index): of the flattened tensor
  View x = c.in(0);
  auto flat = view_reshaped(x, {x.numel()});
  if (!flat) {
    View s = c.scratch(x.dtype, x.sizes);
    c.copy(s, x);
    flat = view_reshaped(s, {x.numel()});
  }
  IndexRule rule{"IndexError: out of range: tried to access index {} on a tensor of " +
                     std::to_string(x.numel()) + " elements.",
                 true};
  emit_gather(c, *flat, c.out(0), 0, {c.in(1)}, {rule});
}

// masked_scatter(self, mask, source): the n-th true element takes the n-th element of the source.
void lower_masked_scatter(LowerContext& c) {
  View out = c.out(0), self = view_expanded(c.in(0), out.sizes), source = c.in(2);
  if (view_empty(out)) return;
  if (view_empty(source)) return c.copy(out, self);
  int64_t n = out.numel();
  View ones = c.scratch(Dtype::kI32, out.sizes), rank = c.scratch(Dtype::kI32, {n}),
       position = c.scratch(Dtype::kI32, {n});
  c.copy(ones, c.in(1));
  c.emit(ScanKernel{*view_reshaped(ones, {n}), rank, 0, ReduceOp::kSum});
  const double available = static_cast<double>(source.numel());
  c.check(view_selected(rank, 0, n - 1),
          "RuntimeError: Number of elements of source < number of ones in mask",
          [available](Ex total) { return total > available; });
  View flat = c.scratch(source.dtype, source.sizes), taken = c.scratch(source.dtype, {n});
  c.copy(flat, source);
  MapBuilder p(
      c, {n});  // places before the first true element, and after a short source, read something harmless
  Ex r = p.binary(ExprOp::kMax, p.input(rank) - 1.0, p.constant(0, Dtype::kI32));
  p.output(position,
           p.binary(ExprOp::kMin, r, p.constant(static_cast<double>(source.numel() - 1), Dtype::kI32)));
  p.emit();
  emit_gather(c, *view_reshaped(flat, {source.numel()}), taken, 0, {position}, {});
  MapBuilder m(c, out.sizes);
  m.output(out, m.select(m.operand(1), m.input(*view_reshaped(taken, out.sizes)), m.input(self)));
  m.emit();
}

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::index_select", lower_index_select},
    {"aten::embedding", lower_embedding},
    {"aten::embedding_dense_backward", lower_embedding_backward},
    {"aten::index_add", lower_index_add},
    {"aten::index_copy", lower_index_copy},
    {"aten::index_fill.int_Scalar", lower_index_fill},
    {"aten::index_fill.int_Tensor", lower_index_fill},
    {"aten::index.Tensor", lower_index},
    {"aten::_unsafe_index.Tensor", lower_index},
    {"aten::index_put", lower_index_put},
    {"aten::_index_put_impl", lower_index_put},
    {"aten::_unsafe_index_put", lower_index_put},
    {"aten::gather", lower_gather},
    {"aten::scatter.src", lower_scatter_src},
    {"aten::scatter.value", lower_scatter_value},
    {"aten::scatter.reduce", lower_scatter_reduce_string<false>},
    {"aten::scatter.value_reduce", lower_scatter_reduce_string<true>},
    {"aten::scatter_add", lower_scatter_add},
    {"aten::scatter_reduce.two", lower_scatter_reduce},
    {"aten::index_reduce", lower_index_reduce},
    {"aten::take", lower_take},
    {"aten::masked_scatter", lower_masked_scatter},
});

}  // namespace
}  // namespace trnsim::compiler
