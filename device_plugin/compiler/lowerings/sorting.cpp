// Order: sort, topk, argmax, max with indices; and running combinations along one axis.
#include <limits>

#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler {
namespace {

// Moves one axis to the end.
View axis_last(const View& v, int axis) {
  std::vector<int> order;
  for (int d = 0; d < static_cast<int>(v.sizes.size()); ++d) {
    if (d != axis) order.push_back(d);
  }
  order.push_back(axis);
  return view_permuted(v, order);
}

void emit_top(LowerContext& c, const View& input, const View& values, const View& indices, int64_t k,
              bool largest) {
  if (k == 0 || view_empty(input)) return;
  c.emit(TopKernel{input, values, indices, k, largest});
}

int dim_of(LowerContext& c, int arg, const View& v) {
  return static_cast<int>(wrap_dim(c.int_arg(arg), static_cast<int64_t>(v.sizes.size())));
}

// (self, k, dim, largest, sorted) -> (values, indices)
void lower_topk(LowerContext& c) {
  View x = view_at_least_1d(c.in_unaliased(0));
  int d = dim_of(c, 2, x);
  emit_top(c, axis_last(x, d), axis_last(view_at_least_1d(c.out(0)), d),
           axis_last(view_at_least_1d(c.out(1)), d), c.int_arg(1), c.flag(3));
}

// first: the argument with dim, then descending
template <int first>
void lower_sort(LowerContext& c) {
  View x = view_at_least_1d(c.in_unaliased(0));
  int d = dim_of(c, first, x);
  View values = c.wanted(0) ? axis_last(view_at_least_1d(c.out(0)), d) : View{};
  View indices = c.wanted(1) ? axis_last(view_at_least_1d(c.out(1)), d) : View{};
  emit_top(c, axis_last(x, d), values, indices, x.sizes[static_cast<size_t>(d)], c.flag(first + 1));
}

void lower_argsort_stable(LowerContext& c) {  // (self, stable, dim, descending) -> indices
  View x = view_at_least_1d(c.in(0));
  int d = dim_of(c, 2, x);
  emit_top(c, axis_last(x, d), View{}, axis_last(view_at_least_1d(c.out(0)), d),
           x.sizes[static_cast<size_t>(d)], c.flag(3));
}

// NaN wins both the maximum and the minimum. TopKernel orders NaN as the largest, so a floating-point minimum
// runs on the negated row.
View for_minimum(LowerContext& c, const View& x, bool* largest) {
  *largest = false;
  if (!isa::is_float(x.dtype)) return x;
  View s = c.scratch(x.dtype, x.sizes);
  MapBuilder m(c, x.sizes);
  m.output(s, -m.input(x));
  m.emit();
  *largest = true;
  return s;
}

// A result of sizes with or without the axis -> [.., 1]
View result_row(const View& out, size_t rank, int axis) {
  View v = out.sizes.size() < rank ? view_unsqueezed(out, axis) : out;
  return axis_last(v, axis);
}

template <bool minimum>
void lower_arg(LowerContext& c) {  // (self, dim, keepdim) -> indices
  View x = c.in(0), out = c.out(0);
  bool largest = true;
  if (c.is_none(1)) {
    auto flat = view_reshaped(x, {x.numel()});
    if (!flat) {
      View s = c.scratch(x.dtype, x.sizes);
      c.copy(s, x);
      flat = view_reshaped(s, {x.numel()});
    }
    View row = minimum ? for_minimum(c, *flat, &largest) : *flat;
    emit_top(c, row, View{}, *view_reshaped(out, {1}), 1, largest);
    return;
  }
  x = view_at_least_1d(x);
  int d = dim_of(c, 1, x);
  View row = minimum ? for_minimum(c, x, &largest) : x;
  emit_top(c, axis_last(row, d), View{}, result_row(out, x.sizes.size(), d), 1, largest);
}

template <bool minimum>
void lower_extreme_dim(LowerContext& c) {  // (self, dim, keepdim) -> (values, indices)
  View x = view_at_least_1d(c.in_unaliased(0));
  int d = dim_of(c, 1, x);
  bool largest = true;
  View row = minimum ? for_minimum(c, x, &largest) : x;
  View values = result_row(c.out(0), x.sizes.size(), d);
  View indices = result_row(c.out(1), x.sizes.size(), d);
  if (!minimum || !largest) return emit_top(c, axis_last(row, d), values, indices, 1, largest);
  View negated = c.scratch(x.dtype, values.sizes);
  emit_top(c, axis_last(row, d), negated, indices, 1, true);
  MapBuilder m(c, values.sizes);
  m.output(values, -m.input(negated));
  m.emit();
}

// The k-th smallest of every row: the last of the k smallest. Rows with NaN order it last.
void kth(LowerContext& c, const View& row, const View& values, const View& indices, int64_t k) {
  std::vector<int64_t> sizes = row.sizes;
  sizes.back() = k;
  View v = c.scratch(row.dtype, sizes), i = c.scratch(Dtype::kI32, sizes);
  emit_top(c, row, v, i, k, false);
  int last = static_cast<int>(sizes.size()) - 1;
  c.copy(values, view_sliced(v, last, k - 1, 1));
  if (indices.buffer >= 0) c.copy(indices, view_sliced(i, last, k - 1, 1));
}

void lower_kthvalue(LowerContext& c) {  // (self, k, dim, keepdim) -> (values, indices)
  View x = view_at_least_1d(c.in(0));
  int d = dim_of(c, 2, x);
  if (view_empty(x)) return;
  kth(c, axis_last(x, d), result_row(c.out(0), x.sizes.size(), d), result_row(c.out(1), x.sizes.size(), d),
      c.int_arg(1));
}

// The lower median; NaN anywhere in the row is the answer. (nan_aware: NaN is left out)
void lower_median(LowerContext& c) {  // (self)
  View x = c.in(0), out = c.out(0);
  int64_t n = x.numel();
  if (n == 0) {  // NaN, which the CPU turns into true, the smallest integer of 32 bits or more, or 0
    if (isa::is_float(out.dtype)) return c.fill(out, std::numeric_limits<double>::quiet_NaN());
    std::vector<uint8_t> smallest(isa::dtype_bytes(out.dtype));
    if (out.dtype == Dtype::kBool) smallest.back() = 1;
    if (smallest.size() >= 4) smallest.back() = 0x80;
    return c.copy(out, c.constant_buffer(out.dtype, {}, std::move(smallest)));
  }
  View s = c.scratch(x.dtype, x.sizes);
  c.copy(s, x);
  View row = *view_reshaped(s, {n}), value = c.scratch(x.dtype, {1});
  kth(c, row, value, View{}, (n + 1) / 2);
  MapBuilder m(c, {n}, 0);
  Ex v = m.row_input(*view_reshaped(value, {}));
  if (v.dtype == Dtype::kF32) {
    Ex any = m.reduce(ReduceOp::kAny, m.unary(ExprOp::kIsNan, m.input(row)));
    v = m.select(any, m.constant(std::numeric_limits<double>::quiet_NaN()), v);
  }
  m.row_output(out, v);
  m.emit();
}

// (self, dim, keepdim) -> (values, indices): the median of a row with NaN is its first NaN
void lower_median_dim(LowerContext& c) {
  View x = view_at_least_1d(c.in(0));
  int d = dim_of(c, 1, x);
  View row = axis_last(x, d);
  View values = result_row(c.out(0), x.sizes.size(), d), indices = result_row(c.out(1), x.sizes.size(), d);
  if (view_empty(x)) return;
  int64_t k = (row.sizes.back() + 1) / 2;
  if (!isa::is_float(x.dtype)) return kth(c, row, values, indices, k);
  std::vector<int64_t> sizes = row.sizes;
  sizes.back() = 1;
  View v = c.scratch(x.dtype, sizes), i = c.scratch(Dtype::kI32, sizes);
  View top = c.scratch(x.dtype, sizes), top_index = c.scratch(Dtype::kI32, sizes);
  kth(c, row, v, i, k);
  emit_top(c, row, top, top_index, 1, true);  // NaN, when there is one
  MapBuilder m(c, sizes);
  Ex nan = m.unary(ExprOp::kIsNan, m.input(top));
  m.output(values, m.select(nan, m.input(top), m.input(v)));
  m.output(indices, m.select(nan, m.input(top_index), m.input(i)));
  m.emit();
}

// ---- scans
// ------------------------------------------------------------------------------------------------------

void emit_scan(LowerContext& c, View x, View out, int64_t dim, ReduceOp op) {
  x = view_at_least_1d(x);
  out = view_at_least_1d(out);
  if (view_empty(out)) return;
  Dtype t = compute_dtype(out.dtype) == Dtype::kBool ? Dtype::kI32 : compute_dtype(out.dtype);
  if (compute_dtype(x.dtype) != t) {  // sums of bool count, sums of integers into a float result add floats
    View s = c.scratch(t, x.sizes);
    c.copy(s, x);
    x = s;
  }
  int axis = static_cast<int>(wrap_dim(dim, static_cast<int64_t>(x.sizes.size())));
  c.emit(ScanKernel{x, out, axis, op});
}

template <ReduceOp op>
void lower_scan(LowerContext& c) {
  emit_scan(c, c.in(0), c.out(0), c.int_arg(1), op);
}  // (self, dim, dtype)

// (self, dim) -> (values, indices): the last element that equals the running extreme, or the last NaN.
template <ReduceOp op>
void lower_cumulative_extreme(LowerContext& c) {
  View x = view_at_least_1d(c.in_unaliased(0)), values = view_at_least_1d(c.out(0)),
       indices = view_at_least_1d(c.out(1));
  if (view_empty(x)) return;
  int d = dim_of(c, 1, x);
  View best =
      c.scratch(compute_dtype(x.dtype) == Dtype::kBool ? Dtype::kI32 : compute_dtype(x.dtype), x.sizes);
  emit_scan(c, x, best, d, op);
  View hit = c.scratch(Dtype::kI32, x.sizes);
  MapBuilder m(c, x.sizes);
  Ex v = m.input(x), b = m.input(best);
  Ex same = v == b;
  if (v.dtype == Dtype::kF32) same = same || m.unary(ExprOp::kIsNan, v);
  m.output(hit, m.select(same, m.iota(d), m.constant(0, Dtype::kI32)));
  m.emit();
  emit_scan(c, hit, indices, d, ReduceOp::kMax);
  c.copy(values, best);
}

// The elements at `at` of the last axis; a gather keeps the type of its source.
void take_along(LowerContext& c, const View& src, const View& out, const View& at) {
  View taken = c.scratch(src.dtype, at.sizes);
  c.emit(GatherKernel{src, taken, static_cast<int>(src.sizes.size()) - 1, {at}, true, {}});
  c.copy(out, taken);
}

// (self, dim, keepdim) -> (values, indices): the value of the longest run of the sorted row, the smallest one of
// several; its last position.
void lower_mode(LowerContext& c) {
  View x = view_at_least_1d(c.in(0));
  int d = dim_of(c, 1, x);
  View row = axis_last(x, d);
  View values = result_row(c.out(0), x.sizes.size(), d), indices = result_row(c.out(1), x.sizes.size(), d);
  if (view_empty(x)) return;
  int last = static_cast<int>(row.sizes.size()) - 1;
  int64_t n = row.sizes.back();
  View sorted = c.scratch(row.dtype, row.sizes), order = c.scratch(Dtype::kI32, row.sizes);
  emit_top(c, row, sorted, order, n, false);
  // Where the run of each element begins: the running maximum of the positions of first elements.
  View first = c.scratch(Dtype::kI32, row.sizes), begin = c.scratch(Dtype::kI32, row.sizes);
  c.fill(view_sliced(first, last, 0, 1), 0);
  if (n > 1) {
    View target = view_sliced(first, last, 1, n - 1);
    MapBuilder m(c, target.sizes);
    Ex a = m.input(view_sliced(sorted, last, 1, n - 1)), b = m.input(view_sliced(sorted, last, 0, n - 1));
    m.output(target, m.select(a != b, m.iota(last) + 1.0, m.constant(0, Dtype::kI32)));
    m.emit();
  }
  c.emit(ScanKernel{first, begin, last, ReduceOp::kMax});
  View length = c.scratch(Dtype::kI32, row.sizes);
  MapBuilder m(c, row.sizes);
  m.output(length, m.iota(last) - m.input(begin));
  m.emit();
  std::vector<int64_t> one = row.sizes;
  one.back() = 1;
  View at = c.scratch(Dtype::kI32, one);
  emit_top(c, length, View{}, at, 1, true);
  take_along(c, sorted, values, at);
  take_along(c, order, indices, at);
}

// The lower median of the elements that are numbers: NaN sorts behind them, and they are counted. Rows of NaN alone
// give their first one.
void nanmedian(LowerContext& c, const View& row, const View& values, const View& indices) {
  int last = static_cast<int>(row.sizes.size()) - 1;
  int64_t n = row.sizes.back();
  View sorted = c.scratch(row.dtype, row.sizes), order = c.scratch(Dtype::kI32, row.sizes);
  emit_top(c, row, sorted, order, n, false);
  std::vector<int64_t> kept(row.sizes.begin(), row.sizes.end() - 1), one = row.sizes;
  one.back() = 1;
  View at = c.scratch(Dtype::kI32, one);
  MapBuilder m(c, row.sizes, last);
  Ex numbers = m.cast(!m.unary(ExprOp::kIsNan, m.input(row)), Dtype::kI32);
  Ex middle = m.binary(ExprOp::kMax, m.reduce(ReduceOp::kSum, numbers) - 1.0, m.constant(0, Dtype::kI32));
  m.row_output(*view_reshaped(at, kept), m.binary(ExprOp::kShr, middle, m.constant(1, Dtype::kI32)));
  m.emit();
  take_along(c, sorted, values, at);
  if (indices.buffer >= 0) take_along(c, order, indices, at);
}

void lower_nanmedian(LowerContext& c) {  // (self)
  View x = c.in(0);
  if (view_empty(x) || !isa::is_float(x.dtype)) return lower_median(c);
  View s = c.scratch(x.dtype, x.sizes), value = c.scratch(x.dtype, {1});
  c.copy(s, x);
  nanmedian(c, *view_reshaped(s, {x.numel()}), value, View{});
  c.copy(c.out(0), view_selected(value, 0, 0));
}

void lower_nanmedian_dim(LowerContext& c) {  // (self, dim, keepdim) -> (values, indices)
  View x = view_at_least_1d(c.in(0));
  if (!isa::is_float(x.dtype)) return lower_median_dim(c);
  int d = dim_of(c, 1, x);
  if (view_empty(x)) return;
  nanmedian(c, axis_last(x, d), result_row(c.out(0), x.sizes.size(), d),
            result_row(c.out(1), x.sizes.size(), d));
}

// (self, dim): every prefix relative to its own maximum, so that no small term underflows. Quadratic in the
// row.
void lower_logcumsumexp(LowerContext& c) {
  View x = view_at_least_1d(c.in_unaliased(0)), out = view_at_least_1d(c.out(0));
  if (view_empty(out)) return;
  int d = dim_of(c, 1, x);
  View row = axis_last(x, d), result = axis_last(out, d);
  int rank = static_cast<int>(row.sizes.size());
  std::vector<int64_t> domain = row.sizes;
  domain.push_back(row.sizes.back());
  MapBuilder m(c, domain, rank);
  const double inf = std::numeric_limits<double>::infinity();
  Ex term = m.cast(m.input(view_unsqueezed(row, rank - 1)), Dtype::kF32);
  term = m.select(m.iota(rank) <= m.iota(rank - 1), term, m.constant(-inf));
  Ex top = m.reduce(ReduceOp::kMax, term);
  Ex safe = m.select(m.unary(ExprOp::kAbs, top) == inf, m.constant(0), top);
  Ex sum = m.reduce(ReduceOp::kSum, m.math(ExprOp::kExp, term - safe));
  m.row_output(result, m.math(ExprOp::kLog, sum) + safe);
  m.emit();
}

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::topk", lower_topk},
    {"aten::sort", lower_sort<1>},
    {"aten::sort.stable", lower_sort<2>},
    {"aten::argsort.stable", lower_argsort_stable},
    {"aten::argmax", lower_arg<false>},
    {"aten::argmin", lower_arg<true>},
    {"aten::max.dim", lower_extreme_dim<false>},
    {"aten::min.dim", lower_extreme_dim<true>},
    {"aten::kthvalue", lower_kthvalue},
    {"aten::median", lower_median},
    {"aten::median.dim", lower_median_dim},
    {"aten::nanmedian", lower_nanmedian},
    {"aten::nanmedian.dim", lower_nanmedian_dim},
    {"aten::mode", lower_mode},
    {"aten::cummax", lower_cumulative_extreme<ReduceOp::kMax>},
    {"aten::cummin", lower_cumulative_extreme<ReduceOp::kMin>},
    {"aten::cumsum", lower_scan<ReduceOp::kSum>},
    {"aten::cumprod", lower_scan<ReduceOp::kProd>},
    {"aten::logcumsumexp", lower_logcumsumexp},
});

}  // namespace
}  // namespace trnsim::compiler
