#include "device_plugin/compiler/lowerings/linear.h"

#include <cmath>
#include <cstring>

namespace trnsim::compiler {
namespace {

// A stand-in for the accumulator while an epilogue is built; always input 0 of the epilogue.
constexpr int32_t kAccumulatorBuffer = -2;

// What becomes of every sum: `of_sum(map, sum)` -> Ex.
template <class F>
void set_epilogue(LowerContext& c, DotKernel& k, F of_sum) {
  MapBuilder m(c, k.out.sizes);
  View accumulator;
  accumulator.buffer = kAccumulatorBuffer;
  of_sum(m, m.input(view_expanded(accumulator, k.out.sizes)));
  k.epilogue = m.kernel().exprs;
  k.extra.assign(m.kernel().inputs.begin() + 1, m.kernel().inputs.end());
}

void emit_integer_dot(LowerContext& c, const View& a, const View& b, const View& out, const View& addend,
                      double alpha, double beta) {
  int rank = static_cast<int>(out.sizes.size());
  std::vector<int64_t> domain = out.sizes;
  domain.push_back(a.sizes.back());
  MapBuilder m(c, domain, rank);
  std::vector<int> b_order;  // b[.., k, n] -> [.., n, k]
  for (int d = 0; d < rank; ++d) b_order.push_back(d);
  std::swap(b_order[static_cast<size_t>(rank) - 1], b_order[static_cast<size_t>(rank) - 2]);
  Ex x = m.cast(m.input(view_unsqueezed(a, rank - 1)), Dtype::kI32);
  Ex y = m.cast(m.input(view_unsqueezed(view_permuted(b, b_order), rank - 2)), Dtype::kI32);
  Ex r = m.reduce(ReduceOp::kSum, x * y);
  if (alpha != 1) r = r * alpha;
  if (addend.buffer >= 0 && beta != 0) {
    Ex e = m.row_input(addend);
    r = r + (beta == 1 ? e : e * beta);
  }
  m.row_output(out, r);
  m.emit();
}

}  // namespace

void emit_dot(LowerContext& c, const View& a, const View& b, const View& out, const View& addend,
              double alpha, double beta) {
  if (view_empty(out)) return;
  if (!isa::is_float(out.dtype)) {  // factors in the type of the result
    alpha = std::trunc(alpha);
    beta = std::trunc(beta);
  }
  bool add = addend.buffer >= 0 && beta != 0;
  if (a.sizes.back() == 0 || alpha == 0) {  // an empty sum
    MapBuilder m(c, out.sizes);
    m.output(out, add ? m.input(addend) * beta : m.constant(0, compute_dtype(out.dtype)));
    m.emit();
    return;
  }
  if (!isa::is_float(a.dtype)) return emit_integer_dot(c, a, b, out, addend, alpha, beta);
  DotKernel k;
  k.a = a;
  k.b = b;
  k.out = out;
  if (add || alpha != 1) {
    set_epilogue(c, k, [&](MapBuilder& m, Ex r) {
      if (alpha != 1) r = r * alpha;
      if (!add) return r;
      Ex e = m.cast(m.input(addend), Dtype::kF32);
      return r + (beta == 1 ? e : e * beta);
    });
  }
  c.emit(std::move(k));
}

View constant_matrix(LowerContext& c, const std::vector<float>& values, const std::vector<int64_t>& sizes) {
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return c.constant_buffer(Dtype::kF32, sizes, std::move(bytes));
}

void emit_resample(LowerContext& c, const View& x, const View& out, int axis,
                   const std::vector<float>& matrix) {
  if (view_empty(out)) return;
  size_t ax = static_cast<size_t>(axis);
  int64_t in_size = x.sizes[ax], out_size = out.sizes[ax];
  View w = constant_matrix(c, matrix, {out_size, in_size});
  std::vector<int> order;
  int rank = static_cast<int>(x.sizes.size());
  for (int d = 0; d < rank; ++d) {
    if (d != axis) order.push_back(d);
  }
  order.push_back(axis);
  View a = view_permuted(x, order), o = view_permuted(out, order);
  View b = view_permuted(w, {1, 0});
  if (x.dtype != Dtype::kF32) {  // operands of one dtype
    View s = c.scratch(Dtype::kF32, a.sizes);
    c.copy(s, a);
    a = s;
  }
  if (rank == 1) {
    a = view_unsqueezed(a, 0);
    o = view_unsqueezed(o, 0);
  }
  std::vector<int64_t> b_sizes(a.sizes.begin(), a.sizes.end() - 2);
  b_sizes.push_back(in_size);
  b_sizes.push_back(out_size);
  emit_dot(c, a, view_expanded(b, b_sizes), o);
}

namespace {

void lower_mm(LowerContext& c) { emit_dot(c, c.in(0), c.in(1), c.out(0)); }

// (self, a, b, beta, alpha)
void lower_addmm(LowerContext& c) {
  emit_dot(c, c.in(1), c.in(2), c.out(0), c.in(0), c.constant_or_refuse(4, "alpha"),
           c.constant_or_refuse(3, "beta"));
}

// (self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum): FP8 operands, a factor for each or for
// each row and column. The CPU does not read scale_result either; sums are FP32 in any case.
void lower_scaled_mm(LowerContext& c) {
  View a = c.in(0), b = c.in(1), out = c.out(0);
  if (view_empty(out)) return;
  if (a.sizes.back() == 0) {
    MapBuilder m(c, out.sizes);
    m.output(out, c.is_tensor(4) ? m.cast(m.operand(4), Dtype::kF32) : m.constant(0));
    return m.emit();
  }
  if (a.dtype != b.dtype) {  // every FP8 value is a BF16 value
    for (View* v : {&a, &b}) {
      View wide = c.scratch(Dtype::kBF16, v->sizes);
      c.copy(wide, *v);
      *v = wide;
    }
  }
  DotKernel k;
  k.a = a;
  k.b = b;
  k.out = out;
  set_epilogue(c, k, [&](MapBuilder& m, Ex sum) {
    Ex r = sum * m.operand(2) * m.operand(3);
    return c.is_tensor(4) ? r + m.cast(m.operand(4), Dtype::kF32) : r;
  });
  c.emit(std::move(k));
}

View column(const View& v) { return view_unsqueezed(v, 1); }

void lower_mv(LowerContext& c) { emit_dot(c, c.in(0), column(c.in(1)), column(c.out(0))); }

void lower_addmv(LowerContext& c) {  // (self, mat, vec, beta, alpha)
  View out = column(c.out(0));
  View self = view_expanded(c.in(0), c.out(0).sizes);
  emit_dot(c, c.in(1), column(c.in(2)), out, column(self), c.constant_or_refuse(4, "alpha"),
           c.constant_or_refuse(3, "beta"));
}

void lower_dot(LowerContext& c) {
  MapBuilder m(c, c.type(0).sizes, 0);
  m.row_output(c.out(0), m.reduce(ReduceOp::kSum, m.operand(0) * m.operand(1)));
  m.emit();
}

void lower_addr(LowerContext& c) {  // beta * self + alpha * outer(vec1, vec2)
  View out = c.out(0);
  MapBuilder m(c, out.sizes);
  Dtype t = compute_dtype(out.dtype);
  double beta = c.constant_or_refuse(3, "beta"), alpha = c.constant_or_refuse(4, "alpha");
  Ex r = m.cast(m.input(column(c.in(1))), t) * m.cast(m.operand(2), t);
  if (alpha != 1) r = r * alpha;
  if (beta != 0) r = r + m.cast(m.operand(0), t) * beta;
  m.output(out, r);
  m.emit();
}

// (self, batch1, batch2, beta, alpha): the batch is part of the sum
void lower_addbmm(LowerContext& c) {
  View a = c.in(1), b = c.in(2), out = c.out(0);
  View wide = c.scratch(a.dtype, {a.sizes[1], a.sizes[0], a.sizes[2]});
  c.copy(view_permuted(wide, {1, 0, 2}), a);
  View tall = c.scratch(b.dtype, b.sizes);
  c.copy(tall, b);
  int64_t k = a.sizes[0] * a.sizes[2];
  emit_dot(c, *view_reshaped(wide, {a.sizes[1], k}), *view_reshaped(tall, {k, b.sizes[2]}), out, c.in(0),
           c.constant_or_refuse(4, "alpha"), c.constant_or_refuse(3, "beta"));
}

void lower_outer(LowerContext& c) {
  View out = c.out(0);
  MapBuilder m(c, out.sizes);
  m.output(out, m.input(column(c.in(0))) * m.operand(1));
  m.emit();
}

// linalg_cross(self, other, dim)
void lower_cross(LowerContext& c) {
  View out = c.out(0);
  int d = static_cast<int>(wrap_dim(c.int_arg(2), static_cast<int64_t>(out.sizes.size())));
  View a = view_expanded(c.in_unaliased(0), out.sizes), b = view_expanded(c.in_unaliased(1), out.sizes);
  for (int i = 0; i < 3; ++i) {
    int j = (i + 1) % 3, k = (i + 2) % 3;
    View o = view_selected(out, d, i);
    MapBuilder m(c, o.sizes);
    m.output(o, m.input(view_selected(a, d, j)) * m.input(view_selected(b, d, k)) -
                    m.input(view_selected(a, d, k)) * m.input(view_selected(b, d, j)));
    m.emit();
  }
}

constexpr uint64_t kBetaAlpha = const_arg(3) | const_arg(4);

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::mm", lower_mm},
    {"aten::_scaled_mm", lower_scaled_mm},
    {"aten::bmm", lower_mm},
    {"aten::addmm", lower_addmm, kBetaAlpha},
    {"aten::baddbmm", lower_addmm, kBetaAlpha},
    {"aten::addbmm", lower_addbmm, kBetaAlpha},
    {"aten::mv", lower_mv},
    {"aten::addmv", lower_addmv, kBetaAlpha},
    {"aten::dot", lower_dot},
    {"aten::vdot", lower_dot},
    {"aten::addr", lower_addr, kBetaAlpha},
    {"aten::outer", lower_outer},
    {"aten::linalg_cross", lower_cross},
});

}  // namespace
}  // namespace trnsim::compiler
