// Row-wise chains kept in one map: softmax, layer / group / RMS norm, and their gradients.
#include <limits>

#include "device_plugin/compiler/lowerings/pointwise.h"

namespace trnsim::compiler {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// A row map over one axis of tensors that all have the sizes of the result.
struct RowMap {
  RowMap(LowerContext& c, int64_t dim) : context(c), r(sizes(c), {dim}), m(c, r.domain, r.num_kept) {}
  RowMap(const RowMap&) = delete;

  // a tensor without axes is a row of one
  static std::vector<int64_t> sizes(LowerContext& c) {
    std::vector<int64_t> s = c.out_type(0).sizes;
    if (s.empty()) s.push_back(1);
    return s;
  }
  Ex in(int arg) { return m.cast(m.input(r.full(view_at_least_1d(context.in(arg)))), Dtype::kF32); }
  Ex sum(Ex a) { return m.reduce(ReduceOp::kSum, a); }
  // Of a value per row: a product with it is one instruction per tile, a rounded quotient about twenty.
  Ex inverse(Ex row) { return m.math(ExprOp::kReciprocal, row); }
  void finish(Ex value) {
    m.output(r.full(view_at_least_1d(context.out(0))), value);
    m.emit();
  }

  LowerContext& context;
  Reduction r;
  MapBuilder m;
};

void lower_softmax(LowerContext& c) {  // (self, dim, half_to_float)
  RowMap m(c, c.int_arg(1));
  Ex e = m.m.math(ExprOp::kExp, m.in(0) - m.m.reduce(ReduceOp::kMax, m.in(0)));
  m.finish(e * m.inverse(m.sum(e)));
}

// Rows of nothing but -inf give 0 instead of NaN.
void lower_safe_softmax(LowerContext& c) {  // (self, dim, dtype)
  RowMap m(c, c.int_arg(1));
  Ex top = m.m.reduce(ReduceOp::kMax, m.in(0));
  Ex masked = top == -kInf;
  Ex e = m.m.math(ExprOp::kExp, m.in(0) - m.m.select(masked, m.m.constant(0), top));
  Ex sum = m.sum(e);
  m.finish(e * m.inverse(m.m.select(masked, m.m.constant(1), sum)));
}

void lower_log_softmax(LowerContext& c) {
  RowMap m(c, c.int_arg(1));
  Ex x = m.in(0) - m.m.reduce(ReduceOp::kMax, m.in(0));
  m.finish(x - m.m.math(ExprOp::kLog, m.sum(m.m.math(ExprOp::kExp, x))));
}

void lower_softmax_backward(LowerContext& c) {  // (grad, output, dim, input_dtype)
  RowMap m(c, c.int_arg(2));
  Ex g = m.in(0), y = m.in(1);
  m.finish(y * (g - m.sum(g * y)));
}

void lower_log_softmax_backward(LowerContext& c) {
  RowMap m(c, c.int_arg(2));
  Ex g = m.in(0);
  m.finish(g - m.m.math(ExprOp::kExp, m.in(1)) * m.sum(g));
}

// ---- layer norm, RMS norm: rows are the last axes
// ---------------------------------------------------------------

// Statistics may arrive with or without the normalized axes as 1.
View leading(const View& v, size_t kept) {
  View out = v;
  out.sizes.resize(kept);
  out.strides.resize(kept);
  return out;
}

// Statistics of rows without elements, which leave nothing else to compute: a mean of 0, no deviation.
void fill_empty_statistics(LowerContext& c, int mean, int rstd) {
  if (mean >= 0 && c.wanted(mean) && !view_empty(c.out(mean))) c.fill(c.out(mean), 0);
  if (c.wanted(rstd) && !view_empty(c.out(rstd)))
    c.fill(c.out(rstd), std::numeric_limits<double>::quiet_NaN());
}

void lower_layer_norm(LowerContext& c) {  // (input, normalized_shape, weight, bias, eps) -> (out, mean, rstd)
  View x = c.in(0);
  size_t kept = x.sizes.size() - c.ints(1).size();
  MapBuilder m(c, x.sizes, static_cast<int>(kept));
  double n = static_cast<double>(m.reduced_count());
  Ex v = m.cast(m.input(x), Dtype::kF32);
  Ex mean = m.reduce(ReduceOp::kSum, v) * (1.0 / n);
  Ex d = v - mean;
  Ex rstd =
      m.math(ExprOp::kRsqrt, m.reduce(ReduceOp::kSum, d * d) * (1.0 / n) + m.cast(m.operand(4), Dtype::kF32));
  Ex y = d * rstd;
  if (!c.is_none(2)) y = y * m.operand(2);
  if (!c.is_none(3)) y = y + m.operand(3);
  m.output(c.out(0), y);
  if (c.wanted(1)) m.row_output(leading(c.out(1), kept), mean);
  if (c.wanted(2)) m.row_output(leading(c.out(2), kept), rstd);
  if (n == 0) return fill_empty_statistics(c, 1, 2);
  m.emit();
}

// Gradients of the affine part reduce over the rows: the axes swap their roles.
struct ColumnMap {
  ColumnMap(LowerContext& c, const std::vector<int64_t>& sizes, size_t rows)
      : context(c), r(sizes, dims(rows), false), m(c, r.domain, r.num_kept) {}
  ColumnMap(const ColumnMap&) = delete;
  static std::vector<int64_t> dims(size_t rows) {
    std::vector<int64_t> d;
    for (size_t i = 0; i < rows; ++i) d.push_back(static_cast<int64_t>(i));
    return d;
  }
  Ex in(const View& v) { return m.cast(m.input(r.full(v)), Dtype::kF32); }
  Ex stat(View v, size_t rank) {  // one value per row
    while (v.sizes.size() < rank) v = view_unsqueezed(v, static_cast<int>(v.sizes.size()));
    return in(v);
  }
  LowerContext& context;
  Reduction r;
  MapBuilder m;
};

// (grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask) -> (input, weight, bias)
void lower_layer_norm_backward(LowerContext& c) {
  View g = c.in(0), x = c.in(1);
  size_t kept = x.sizes.size() - c.ints(2).size(), rank = x.sizes.size();
  View mean = leading(c.in(3), kept), rstd = leading(c.in(4), kept);
  if (c.wanted(0)) {
    MapBuilder m(c, x.sizes, static_cast<int>(kept));
    double n = static_cast<double>(m.reduced_count());
    Ex inv = m.cast(m.row_input(rstd), Dtype::kF32);
    Ex xhat = (m.cast(m.input(x), Dtype::kF32) - m.cast(m.row_input(mean), Dtype::kF32)) * inv;
    Ex gw = m.cast(m.input(g), Dtype::kF32);
    if (!c.is_none(5)) gw = gw * m.operand(5);
    Ex a = m.reduce(ReduceOp::kSum, gw) * (1.0 / n);
    Ex b = m.reduce(ReduceOp::kSum, gw * xhat) * (1.0 / n);
    m.output(c.out(0), inv * (gw - a - xhat * b));
    if (n > 0) m.emit();
  }
  if (c.wanted(1) || c.wanted(2)) {
    ColumnMap m(c, x.sizes, kept);
    Ex gv = m.in(g);
    if (c.wanted(1)) {
      Ex xhat = (m.in(x)-m.stat(mean, rank)) * m.stat(rstd, rank);
      m.m.row_output(c.out(1), m.m.reduce(ReduceOp::kSum, gv * xhat));
    }
    if (c.wanted(2)) m.m.row_output(c.out(2), m.m.reduce(ReduceOp::kSum, gv));
    m.m.emit();
  }
}

void lower_rms_norm(LowerContext& c) {  // (input, normalized_shape, weight, eps) -> (out, rstd)
  View x = c.in(0);
  size_t kept = x.sizes.size() - c.ints(1).size();
  MapBuilder m(c, x.sizes, static_cast<int>(kept));
  double n = static_cast<double>(m.reduced_count());
  Ex v = m.cast(m.input(x), Dtype::kF32);
  // Of the type that the norm is computed in, as on the CPU.
  Ex eps = c.is_none(3) ? m.constant(x.dtype == Dtype::kF64 ? std::numeric_limits<double>::epsilon()
                                                            : std::numeric_limits<float>::epsilon())
                        : m.cast(m.operand(3), Dtype::kF32);
  Ex rstd = m.math(ExprOp::kRsqrt, m.reduce(ReduceOp::kSum, v * v) * (1.0 / n) + eps);
  Ex y = v * rstd;
  if (!c.is_none(2)) y = y * m.operand(2);
  m.output(c.out(0), y);
  if (c.wanted(1)) m.row_output(leading(c.out(1), kept), rstd);
  if (n == 0) return fill_empty_statistics(c, -1, 1);
  m.emit();
}

// (grad_out, input, normalized_shape, rstd, weight, output_mask) -> (input, weight)
void lower_rms_norm_backward(LowerContext& c) {
  View g = c.in(0), x = c.in(1);
  size_t kept = x.sizes.size() - c.ints(2).size();
  View rstd = leading(c.in(3), kept);
  if (c.wanted(0)) {
    MapBuilder m(c, x.sizes, static_cast<int>(kept));
    double n = static_cast<double>(m.reduced_count());
    Ex inv = m.cast(m.row_input(rstd), Dtype::kF32);
    Ex xhat = m.cast(m.input(x), Dtype::kF32) * inv;
    Ex gw = m.cast(m.input(g), Dtype::kF32);
    if (!c.is_none(4)) gw = gw * m.operand(4);
    m.output(c.out(0), inv * (gw - xhat * (m.reduce(ReduceOp::kSum, gw * xhat) * (1.0 / n))));
    if (n > 0) m.emit();
  }
  if (c.wanted(1)) {
    ColumnMap m(c, x.sizes, kept);
    Ex xhat = m.in(x)*m.stat(rstd, x.sizes.size());
    m.m.row_output(c.out(1), m.m.reduce(ReduceOp::kSum, m.in(g)*xhat));
    m.m.emit();
  }
}

// ---- group norm: [N, C, s..] seen as [N, G | C/G, s..]
// ----------------------------------------------------------

struct Groups {
  int64_t groups, per_group;
  View full(const View& v) const { return view_split_dim(v, 1, per_group); }
  // [C] -> [G, C/G, 1..]
  View channel(const View& v, size_t rank) const {
    View w = view_split_dim(v, 0, per_group);
    while (w.sizes.size() < rank - 1) w = view_unsqueezed(w, static_cast<int>(w.sizes.size()));
    return w;
  }
  // [N, G] (or flat [N * G]) -> [N, G, 1, 1..]
  View stat(View v, size_t rank) const {
    if (v.sizes.size() == 1) v = view_split_dim(v, 0, groups);
    while (v.sizes.size() < rank) v = view_unsqueezed(v, static_cast<int>(v.sizes.size()));
    return v;
  }
};

void lower_group_norm(LowerContext& c) {  // (input, weight, bias, N, C, HxW, group, eps) -> (out, mean, rstd)
  View x = c.in(0);
  Groups groups{c.int_arg(6), x.sizes.at(1) / c.int_arg(6)};
  View full = groups.full(x);
  MapBuilder m(c, full.sizes, 2);
  double n = static_cast<double>(m.reduced_count());
  Ex v = m.cast(m.input(full), Dtype::kF32);
  Ex mean = m.reduce(ReduceOp::kSum, v) * (1.0 / n);
  Ex d = v - mean;
  Ex rstd =
      m.math(ExprOp::kRsqrt, m.reduce(ReduceOp::kSum, d * d) * (1.0 / n) + m.cast(m.operand(7), Dtype::kF32));
  Ex y = d * rstd;
  if (!c.is_none(1)) y = y * m.input(groups.channel(c.in(1), full.sizes.size()));
  if (!c.is_none(2)) y = y + m.input(groups.channel(c.in(2), full.sizes.size()));
  m.output(groups.full(c.out(0)), y);
  if (c.wanted(1)) m.row_output(groups.stat(c.out(1), 2), mean);
  if (c.wanted(2)) m.row_output(groups.stat(c.out(2), 2), rstd);
  if (n == 0) return fill_empty_statistics(c, 1, 2);
  m.emit();
}

// (grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask) -> (input, weight, bias)
void lower_group_norm_backward(LowerContext& c) {
  View x = c.in(1), g = c.in(0);
  Groups groups{c.int_arg(8), x.sizes.at(1) / c.int_arg(8)};
  View xf = groups.full(x), gf = groups.full(g);
  size_t rank = xf.sizes.size();
  View mean = groups.stat(c.in(2), rank), rstd = groups.stat(c.in(3), rank);
  if (c.wanted(0)) {
    MapBuilder m(c, xf.sizes, 2);
    double n = static_cast<double>(m.reduced_count());
    Ex inv = m.cast(m.input(rstd), Dtype::kF32);
    Ex xhat = (m.cast(m.input(xf), Dtype::kF32) - m.cast(m.input(mean), Dtype::kF32)) * inv;
    Ex gw = m.cast(m.input(gf), Dtype::kF32);
    if (!c.is_none(4)) gw = gw * m.input(groups.channel(c.in(4), rank));
    Ex a = m.reduce(ReduceOp::kSum, gw) * (1.0 / n);
    Ex b = m.reduce(ReduceOp::kSum, gw * xhat) * (1.0 / n);
    m.output(groups.full(c.out(0)), inv * (gw - a - xhat * b));
    if (n > 0) m.emit();
  }
  if (c.wanted(1) || c.wanted(2)) {  // per channel: reduce over N and the spatial axes
    std::vector<int64_t> dims{0};
    for (size_t d = 3; d < rank; ++d) dims.push_back(static_cast<int64_t>(d));
    Reduction r(xf.sizes, dims);
    MapBuilder m(c, r.domain, r.num_kept);
    auto in = [&](const View& v) { return m.cast(m.input(r.full(v)), Dtype::kF32); };
    Ex gv = in(gf);
    if (c.wanted(1)) {
      m.row_output(view_split_dim(c.out(1), 0, groups.per_group),
                   m.reduce(ReduceOp::kSum, gv * (in(xf)-in(mean)) * in(rstd)));
    }
    if (c.wanted(2))
      m.row_output(view_split_dim(c.out(2), 0, groups.per_group), m.reduce(ReduceOp::kSum, gv));
    m.emit();
  }
}

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::_softmax", lower_softmax},
    {"aten::_safe_softmax", lower_safe_softmax},
    {"aten::_log_softmax", lower_log_softmax},
    {"aten::_softmax_backward_data", lower_softmax_backward},
    {"aten::_log_softmax_backward_data", lower_log_softmax_backward},
    {"aten::native_layer_norm", lower_layer_norm},
    {"aten::native_layer_norm_backward", lower_layer_norm_backward},
    {"aten::_fused_rms_norm", lower_rms_norm},
    {"aten::_fused_rms_norm_backward", lower_rms_norm_backward},
    {"aten::native_group_norm", lower_group_norm},
    {"aten::native_group_norm_backward", lower_group_norm_backward},
});

}  // namespace
}  // namespace trnsim::compiler
