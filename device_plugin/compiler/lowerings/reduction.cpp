// Reductions over any set of axes.
#include <cmath>
#include <limits>

#include "device_plugin/compiler/lowerings/pointwise.h"

namespace trnsim::compiler {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// One map that reduces argument 0; `none_means_all` false: an empty list of dims reduces nothing.
struct ReduceMap {
  ReduceMap(LowerContext& c, int self, const std::vector<int64_t>& dims, bool empty_means_all = true)
      : context(c), r(c.type(self).sizes, dims, empty_means_all), m(c, r.domain, r.num_kept) {
    x = m.input(r.full(c.in(self)));
  }
  ReduceMap(const ReduceMap&) = delete;

  double count() const { return static_cast<double>(m.reduced_count()); }
  Ex f32() { return m.cast(x, Dtype::kF32); }
  Ex sum(Ex a) { return m.reduce(ReduceOp::kSum, a); }
  void finish(Ex value, int result = 0) { m.row_output(r.row(context.out(result)), value); }

  LowerContext& context;
  Reduction r;
  MapBuilder m;
  Ex x;
};

std::vector<int64_t> dims_of(LowerContext& c, int arg) {
  return arg < 0 ? std::vector<int64_t>{} : c.ints(arg);
}

template <int dim_arg>
void lower_sum(LowerContext& c) {
  ReduceMap m(c, 0, dims_of(c, dim_arg));
  m.finish(m.sum(m.m.cast(m.x, compute_dtype(c.out_type(0).dtype))));
  m.m.emit();
}

template <int dim_arg>
void lower_nansum(LowerContext& c) {
  ReduceMap m(c, 0, dims_of(c, dim_arg));
  Ex x = m.m.cast(m.x, compute_dtype(c.out_type(0).dtype));
  if (x.dtype == Dtype::kF32) x = m.m.select(m.m.unary(ExprOp::kIsNan, x), m.m.constant(0), x);
  m.finish(m.sum(x));
  m.m.emit();
}

template <int dim_arg>
void lower_mean(LowerContext& c) {
  ReduceMap m(c, 0, dims_of(c, dim_arg));
  // 0 / 0 (no elements) is NaN, as in PyTorch
  m.finish(m.sum(m.f32()) * m.m.constant(1.0 / m.count()));
  if (m.count() == 0) {
    c.fill(c.out(0), std::numeric_limits<double>::quiet_NaN());
    return;
  }
  m.m.emit();
}

template <int dim_arg>
void lower_prod(LowerContext& c) {
  ReduceMap m(c, 0, dims_of(c, dim_arg));
  m.finish(m.m.reduce(ReduceOp::kProd, m.m.cast(m.x, compute_dtype(c.out_type(0).dtype))));
  m.m.emit();
}

template <ReduceOp op, int dim_arg, bool empty_means_all = true>
void lower_extreme(LowerContext& c) {
  bool all = empty_means_all || dim_arg < 0 || c.is_none(dim_arg);
  ReduceMap m(c, 0, dims_of(c, dim_arg), all);
  m.finish(m.m.reduce(op, m.x));
  m.m.emit();
}

void lower_aminmax(LowerContext& c) {  // (self, dim, keepdim) -> (min, max)
  ReduceMap m(c, 0, c.ints(1));
  m.finish(m.m.reduce(ReduceOp::kMin, m.x), 0);
  m.finish(m.m.reduce(ReduceOp::kMax, m.x), 1);
  m.m.emit();
}

template <int dim_arg>
void lower_count_nonzero(LowerContext& c) {
  ReduceMap m(c, 0, c.ints(dim_arg));
  m.finish(m.sum(m.m.cast(m.m.cast(m.x, Dtype::kBool), Dtype::kI32)));
  m.m.emit();
}

// Two passes over the row: the mean first, then the squared distances from it.
template <bool root, bool with_mean>
void lower_var(LowerContext& c) {  // (self, dim, correction, keepdim) -> var or (var, mean)
  ReduceMap m(c, 0, c.ints(1));
  double correction = c.is_none(2) ? 1.0 : c.constant_or_refuse(2, "correction");
  double n = m.count();
  Ex mean = m.sum(m.f32()) * (1.0 / n);
  Ex d = m.f32() - mean;
  double freedom = std::max(n - correction, 0.0);
  Ex sum = m.sum(d * d);
  Ex var = freedom > 0 ? sum * (1.0 / freedom) : sum / 0.0;
  m.finish(root ? m.m.math(ExprOp::kSqrt, var) : var, 0);
  if (with_mean && c.wanted(1)) m.finish(mean, 1);
  if (n == 0) {
    for (int i = 0; i < (with_mean ? 2 : 1); ++i) c.fill(c.out(i), std::numeric_limits<double>::quiet_NaN());
    return;
  }
  m.m.emit();
}

// var(self, unbiased), std(self, unbiased)
template <bool root>
void lower_var_unbiased(LowerContext& c) {
  ReduceMap m(c, 0, {});
  double n = m.count(), freedom = n - (c.flag(1) ? 1 : 0);
  Ex d = m.f32() - m.sum(m.f32()) * (1.0 / n);
  Ex sum = m.sum(d * d);
  Ex var = freedom > 0 ? sum * (1.0 / freedom) : sum / 0.0;
  m.finish(root ? m.m.math(ExprOp::kSqrt, var) : var);
  if (n == 0) {
    c.fill(c.out(0), std::numeric_limits<double>::quiet_NaN());
    return;
  }
  m.m.emit();
}

Ex p_norm(ReduceMap& m, double p) {
  Ex a = m.m.unary(ExprOp::kAbs, m.f32());
  if (p == kInf) return m.m.reduce(ReduceOp::kMax, a);
  if (p == -kInf) return m.m.reduce(ReduceOp::kMin, a);
  if (p == 0) return m.sum(m.m.cast(a != 0.0, Dtype::kF32));
  if (p == 1) return m.sum(a);
  if (p == 2) return m.m.math(ExprOp::kSqrt, m.sum(m.f32() * m.f32()));
  return m.m.binary(ExprOp::kPow, m.sum(m.m.binary(ExprOp::kPow, a, m.m.constant(p))), m.m.constant(1 / p));
}

// (self, ord, dim, ...); no dims: all
template <int ord_arg, int dim_arg>
void lower_norm(LowerContext& c) {
  ReduceMap m(c, 0, dims_of(c, dim_arg));
  m.finish(p_norm(m, c.is_none(ord_arg) ? 2.0 : c.constant_or_refuse(ord_arg, "p")));
  m.m.emit();
}

void lower_logsumexp(LowerContext& c) {  // (self, dim, keepdim)
  ReduceMap m(c, 0, c.ints(1));
  Ex x = m.f32();
  Ex top = m.m.reduce(ReduceOp::kMax, x);
  // an infinite maximum would give inf - inf
  Ex safe = m.m.select(m.m.unary(ExprOp::kAbs, top) == kInf, m.m.constant(0), top);
  m.finish(m.m.math(ExprOp::kLog, m.sum(m.m.math(ExprOp::kExp, x - safe))) + safe);
  m.m.emit();
}

void lower_trace(LowerContext& c) {
  View d = view_diagonal(c.in(0));
  MapBuilder m(c, d.sizes, 0);
  m.row_output(c.out(0), m.reduce(ReduceOp::kSum, m.cast(m.input(d), compute_dtype(c.out_type(0).dtype))));
  m.emit();
}

void lower_dist(LowerContext& c) {  // (self, other, p)
  MapBuilder m(c, broadcast_sizes(c.type(0).sizes, c.type(1).sizes), 0);
  double p = c.constant_or_refuse(2, "p");
  Ex d = m.unary(ExprOp::kAbs, m.cast(m.operand(0), Dtype::kF32) - m.cast(m.operand(1), Dtype::kF32));
  Ex r = d;
  if (p == kInf)
    r = m.reduce(ReduceOp::kMax, d);
  else if (p == -kInf)
    r = m.reduce(ReduceOp::kMin, d);
  else if (p == 0)
    r = m.reduce(ReduceOp::kSum, m.cast(d != 0.0, Dtype::kF32));
  else if (p == 1)
    r = m.reduce(ReduceOp::kSum, d);
  else if (p == 2)
    r = m.math(ExprOp::kSqrt, m.reduce(ReduceOp::kSum, d * d));
  else
    r = m.binary(ExprOp::kPow, m.reduce(ReduceOp::kSum, m.binary(ExprOp::kPow, d, m.constant(p))),
                 m.constant(1 / p));
  m.row_output(c.out(0), r);
  m.emit();
}

// Whether both tensors (of equal sizes) hold the same values; a 0-dim bool.
void lower_equal(LowerContext& c) {
  MapBuilder m(c, c.type(0).sizes, 0);
  m.row_output(c.out(0), m.reduce(ReduceOp::kAll, m.operand(0) == m.operand(1)));
  m.emit();
}

// isin(elements, test_elements, assume_unique, invert): every element against every test element.
void lower_isin(LowerContext& c) {
  View out = c.out(0);
  std::vector<int64_t> domain = out.sizes;
  View x = c.in(0), t = c.in(1);
  x = view_expanded(x, out.sizes);
  size_t kept = domain.size();
  for (int64_t s : t.sizes) domain.push_back(s);
  MapBuilder m(c, domain, static_cast<int>(kept));
  Ex hit = m.reduce(ReduceOp::kAny, m.row_input(x) == m.input(t));
  m.row_output(out, c.flag(3) ? !hit : hit);
  m.emit();
}

// searchsorted(sorted_sequence [.., n], values [.., v], out_int32, right, side, sorter): the number of
// entries below the value. A one-dimensional sequence serves values of any shape.
void lower_searchsorted(LowerContext& c, View sorted, View values, bool right) {
  View out = c.out(0);
  std::vector<int64_t> domain = out.sizes;
  int64_t n = sorted.sizes.back();
  domain.push_back(n);
  if (sorted.sizes.size() > 1) sorted = view_unsqueezed(sorted, static_cast<int>(sorted.sizes.size()) - 1);
  MapBuilder m(c, domain, static_cast<int>(out.sizes.size()));
  Ex v = m.row_input(values), s = m.input(sorted);
  Ex below = right ? !(s > v) : s < v;
  if (right && s.dtype == Dtype::kF32) below = s <= v;
  if (v.dtype == Dtype::kF32) below = below || m.unary(ExprOp::kIsNan, v);  // NaN sorts last
  m.row_output(out, m.reduce(ReduceOp::kSum, m.cast(below, Dtype::kI32)));
  m.emit();
}

void lower_searchsorted_tensor(LowerContext& c) {
  View sorted = c.in(0);
  if (!c.is_none(5)) {  // the order that sorts the rows
    View rows = c.scratch(sorted.dtype, sorted.sizes);
    int last = static_cast<int>(sorted.sizes.size()) - 1;
    IndexRule rule{"RuntimeError: torch.searchsorted(): sorter index out of range (index {})"};
    if (!view_empty(rows)) c.emit(GatherKernel{sorted, rows, last, {c.in(5)}, true, {rule}});
    sorted = rows;
  }
  lower_searchsorted(c, sorted, c.in(1), c.flag(3) || (!c.is_none(4) && c.str(4) == "right"));
}
void lower_bucketize(LowerContext& c) { lower_searchsorted(c, c.in(1), c.in(0), c.flag(3)); }

// histc(self, bins, min, max); equal bounds mean the range of the data.
void lower_histc(LowerContext& c) {
  View out = c.out(0), x = c.in(0);
  double low = c.constant_or_refuse(2, "min"), high = c.constant_or_refuse(3, "max");
  double bins = static_cast<double>(c.int_arg(1));
  if (low == high && x.dtype != Dtype::kI32)
    c.check(x, "RuntimeError: torch.histc: range of the elements is not finite",
            [](Ex v) { return !(v - v == 0.0); });
  std::vector<int64_t> domain = x.sizes;
  domain.insert(domain.begin(), c.int_arg(1));
  MapBuilder m(c, domain, 1);
  Ex v = m.cast(m.input(x), Dtype::kF32);
  Ex lo = m.constant(low), hi = m.constant(high);
  if (low == high) {
    lo = m.reduce(ReduceOp::kMin, v);
    hi = m.reduce(ReduceOp::kMax, v);
    Ex flat = lo == hi;
    lo = m.select(flat, lo - 1.0, lo);
    hi = m.select(flat, hi + 1.0, hi);
  }
  Ex bin = m.unary(ExprOp::kFloor, (v - lo) * bins / (hi - lo));
  bin = m.binary(ExprOp::kMin, bin, m.constant(bins - 1));
  Ex hit = bin == m.cast(m.iota(0), Dtype::kF32) && v >= lo && v <= hi;
  m.row_output(out, m.reduce(ReduceOp::kSum, m.cast(hit, Dtype::kF32)));
  m.emit();
}

// _cdist_forward(x1 [b.., p, d], x2 [b.., r, d], p, compute_mode)
void lower_cdist(LowerContext& c) {
  View out = c.out(0), a = c.in(0), b = c.in(1);
  double p = c.constant_or_refuse(2, "p");
  std::vector<int64_t> domain = out.sizes;
  domain.push_back(a.sizes.back());
  a = view_unsqueezed(a, static_cast<int>(a.sizes.size()) - 1);
  b = view_unsqueezed(b, static_cast<int>(b.sizes.size()) - 2);
  MapBuilder m(c, domain, static_cast<int>(out.sizes.size()));
  Ex d = m.unary(ExprOp::kAbs, m.input(a) - m.input(b));
  Ex r = d;
  if (p == kInf)
    r = m.reduce(ReduceOp::kMax, d);
  else if (p == 0)
    r = m.reduce(ReduceOp::kSum, m.cast(d != 0.0, Dtype::kF32));
  else if (p == 1)
    r = m.reduce(ReduceOp::kSum, d);
  else if (p == 2)
    r = m.math(ExprOp::kSqrt, m.reduce(ReduceOp::kSum, d * d));
  else
    r = m.binary(ExprOp::kPow, m.reduce(ReduceOp::kSum, m.binary(ExprOp::kPow, d, m.constant(p))),
                 m.constant(1 / p));
  m.row_output(out, r);
  m.emit();
}

// _cdist_backward(grad [b.., p, r], x1 [b.., p, d], x2 [b.., r, d], p, distance [b.., p, r]) -> gradient of x1
void lower_cdist_backward(LowerContext& c) {
  View out = c.out(0), g = c.in(0), a = c.in(1), b = c.in(2), distance = c.in(4);
  double p = c.constant_or_refuse(3, "p");
  if (view_empty(out)) return;
  if (p == 0 || view_empty(g)) return c.fill(out, 0);
  int rank = static_cast<int>(out.sizes.size());
  std::vector<int64_t> domain = out.sizes;  // [b.., p, d], reduced over r
  domain.push_back(b.sizes[b.sizes.size() - 2]);
  auto last_two_swapped = [](const View& v) {
    std::vector<int> order;
    for (int d = 0; d < static_cast<int>(v.sizes.size()); ++d) order.push_back(d);
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    return view_permuted(v, order);
  };
  auto over_columns = [](const View& v) { return view_unsqueezed(v, static_cast<int>(v.sizes.size()) - 1); };
  MapBuilder m(c, domain, rank);
  Ex d = m.row_input(a) - m.input(view_unsqueezed(last_two_swapped(b), static_cast<int>(b.sizes.size()) - 2));
  Ex norm = m.input(over_columns(distance)), grad = m.input(over_columns(g));
  Ex size = m.unary(ExprOp::kAbs, d), sign = m.unary(ExprOp::kSign, d);
  Ex slope = sign;
  if (p == kInf) {
    slope = m.select(size == norm, sign, m.constant(0));
  } else if (p != 1) {
    Ex ratio = size / norm;
    slope = sign * (p == 2 ? ratio : m.binary(ExprOp::kPow, ratio, m.constant(p - 1)));
    slope = m.select(norm == 0.0 || d == 0.0, m.constant(0), slope);
  }
  m.row_output(out, m.reduce(ReduceOp::kSum, grad * slope));
  m.emit();
}

// renorm(self, p, dim, maxnorm): slices along `dim` whose norm is larger are scaled down to it.
void lower_renorm(LowerContext& c) {
  View x = c.in(0);
  if (view_empty(x)) return;
  std::vector<int64_t> others;
  int64_t dim = wrap_dim(c.int_arg(2), static_cast<int64_t>(x.sizes.size()));
  for (int64_t d = 0; d < static_cast<int64_t>(x.sizes.size()); ++d)
    if (d != dim) others.push_back(d);
  ReduceMap m(c, 0, others, false);
  Ex norm = p_norm(m, c.constant_or_refuse(1, "p")), limit = m.m.cast(m.m.row_operand(3), Dtype::kF32);
  Ex factor = m.m.select(norm > limit, limit / (norm + 1e-7), m.m.constant(1));
  m.m.output(m.r.full(c.out(0)), m.f32() * factor);
  m.m.emit();
}

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::sum", lower_sum<-1>},
    {"aten::sum.dim_IntList", lower_sum<1>},
    {"aten::nansum", lower_nansum<1>},
    {"aten::mean", lower_mean<-1>},
    {"aten::mean.dim", lower_mean<1>},
    {"aten::prod", lower_prod<-1>},
    {"aten::prod.dim_int", lower_prod<1>},
    {"aten::amax", lower_extreme<ReduceOp::kMax, 1>},
    {"aten::amin", lower_extreme<ReduceOp::kMin, 1>},
    {"aten::max", lower_extreme<ReduceOp::kMax, -1>},
    {"aten::min", lower_extreme<ReduceOp::kMin, -1>},
    {"aten::aminmax", lower_aminmax},
    {"aten::any", lower_extreme<ReduceOp::kAny, -1>},
    {"aten::any.dim", lower_extreme<ReduceOp::kAny, 1>},
    {"aten::any.dims", lower_extreme<ReduceOp::kAny, 1, false>},
    {"aten::all", lower_extreme<ReduceOp::kAll, -1>},
    {"aten::all.dim", lower_extreme<ReduceOp::kAll, 1>},
    {"aten::all.dims", lower_extreme<ReduceOp::kAll, 1, false>},
    {"aten::count_nonzero", lower_count_nonzero<1>},
    {"aten::count_nonzero.dim_IntList", lower_count_nonzero<1>},
    {"aten::var.correction", lower_var<false, false>, const_arg(2)},
    {"aten::std.correction", lower_var<true, false>, const_arg(2)},
    {"aten::var_mean.correction", lower_var<false, true>, const_arg(2)},
    {"aten::std_mean.correction", lower_var<true, true>, const_arg(2)},
    {"aten::var", lower_var_unbiased<false>},
    {"aten::std", lower_var_unbiased<true>},
    {"aten::linalg_vector_norm", lower_norm<1, 2>, const_arg(1)},
    {"aten::norm.Scalar", lower_norm<1, -1>, const_arg(1)},
    {"aten::norm.ScalarOpt_dtype", lower_norm<1, -1>, const_arg(1)},
    {"aten::norm.ScalarOpt_dim", lower_norm<1, 2>, const_arg(1)},
    {"aten::norm.ScalarOpt_dim_dtype", lower_norm<1, 2>, const_arg(1)},
    {"aten::logsumexp", lower_logsumexp},
    {"aten::trace", lower_trace},
    {"aten::dist", lower_dist, const_arg(2)},
    {"aten::equal", lower_equal},
    {"aten::isin.Tensor_Tensor", lower_isin},
    {"aten::isin.Tensor_Scalar", lower_isin},
    {"aten::isin.Scalar_Tensor", lower_isin},
    {"aten::searchsorted.Tensor", lower_searchsorted_tensor},
    {"aten::searchsorted.Scalar", lower_searchsorted_tensor},
    {"aten::bucketize.Tensor", lower_bucketize},
    {"aten::bucketize.Scalar", lower_bucketize},
    {"aten::histc", lower_histc, const_arg(2) | const_arg(3)},
    {"aten::_cdist_forward", lower_cdist, const_arg(2)},
    {"aten::_cdist_backward", lower_cdist_backward, const_arg(3)},
    {"aten::renorm", lower_renorm, const_arg(1)},
});

}  // namespace
}  // namespace trnsim::compiler
