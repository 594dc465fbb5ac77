// Factorizations and solves, column by column: every step is a few programs over the whole matrix with masks, so that
// one program serves all columns, and batches go together. Accuracy is that of the unblocked algorithms in FP32.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/hypot.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "device_plugin/aten/batches.h"
#include "device_plugin/aten/composite_kernel.h"
#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

using at::Tensor;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Tensor own_copy(const Tensor& a) { return flat_batch(a).clone(at::MemoryFormat::Contiguous); }

Tensor places(int64_t n, const Tensor& like) { return at::arange(n, like.options().dtype(at::kInt)); }
Tensor products(const Tensor& column, const Tensor& row) { return column.unsqueeze(2) * row.unsqueeze(1); }

// info of LAPACK: the first step that failed, counted from 1.
class Info {
 public:
  explicit Info(const Tensor& batch) : info_(at::zeros({batch.size(0)}, batch.options().dtype(at::kInt))) {}
  void note(const Tensor& failed, int64_t step) {
    info_ = at::where(failed.logical_and(info_.eq(0)), at::full_like(info_, step + 1), info_);
  }
  Tensor shaped(const std::vector<int64_t>& batch) const { return info_.reshape(batch); }

 private:
  Tensor info_;
};

// ---- Cholesky
// -------------------------------------------------------------------------------------------------------
Two cholesky_factor(const Tensor& self, bool upper) {
  Tensor a = own_copy(upper ? self.mT() : self);
  const int64_t n = a.size(1);
  const Tensor row = places(n, a);
  Tensor l = at::zeros_like(a);
  Info info(a);
  for (int64_t k = 0; k < n; ++k) {
    const Tensor column = a.select(2, k), pivot = column.slice(1, k, k + 1);
    info.note(pivot.squeeze(1).gt(0).logical_not(), k);
    const Tensor c = zero_unless(row.ge(k), column / pivot.sqrt());
    l.select(2, k).copy_(c);
    a.sub_(products(c, c));
  }
  l = l.reshape(self.sizes());
  return {upper ? l.mT() : l, info.shaped(batch_of(self))};
}

Two cholesky_ex(const Tensor& self, bool upper, bool check_errors) {
  auto [l, info] = cholesky_factor(self, upper);
  if (check_errors) at::_linalg_check_errors(info, "linalg.cholesky_ex", self.dim() == 2);
  return {l, info};
}

Tensor cholesky(const Tensor& self, bool upper) {
  auto [l, info] = cholesky_factor(self, upper);
  at::_linalg_check_errors(info, "cholesky", self.dim() == 2);
  return l;
}

// ---- triangular systems
// ---------------------------------------------------------------------------------------------
// a x = b by substitution; other triangle of `a` is not read. [batch, n, n] and [batch, n, k]
Tensor substituted(const Tensor& a, const Tensor& b, bool upper, bool unit) {
  Tensor x = b.clone(at::MemoryFormat::Contiguous);
  const int64_t n = a.size(1);
  const Tensor row = places(n, a);
  for (int64_t step = 0; step < n; ++step) {
    const int64_t k = upper ? n - 1 - step : step;
    const Tensor column = a.select(2, k);
    Tensor solved = x.select(1, k);
    if (!unit) solved.copy_(solved / column.slice(1, k, k + 1));
    // What is solved stays: nothing times NaN is subtracted from it.
    const Tensor open = (upper ? row.lt(k) : row.gt(k)).unsqueeze(1);
    x.copy_(at::where(open, x - products(column, solved), x));
  }
  return x;
}

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left, bool unitriangular) {
  if (!left) return solve_triangular(a.mT(), b.mT(), !upper, true, unitriangular).mT();
  const std::vector<int64_t> batch = at::infer_size(batch_of(a), batch_of(b));
  const Tensor wide_a = a.expand(with(batch, {a.size(-2), a.size(-1)})),
               wide_b = b.expand(with(batch, {b.size(-2), b.size(-1)}));
  if (wide_b.numel() == 0) return at::empty(wide_b.sizes(), b.options());
  return substituted(flat_batch(wide_a), flat_batch(wide_b), upper, unitriangular).reshape(wide_b.sizes());
}

Tensor linalg_solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left, bool unitriangular) {
  return solve_triangular(a, b, upper, left, unitriangular);
}

Two triangular_solve_with_copy(const Tensor& self, const Tensor& a, bool upper, bool transpose,
                               bool unitriangular) {
  const std::vector<int64_t> batch = at::infer_size(batch_of(a), batch_of(self));
  return {solve_triangular(transpose ? a.mT() : a, self, upper != transpose, true, unitriangular),
          a.expand(with(batch, {a.size(-2), a.size(-1)})).contiguous()};
}

// a = l l^T or u^T u
Tensor cholesky_solved(const Tensor& factor, const Tensor& b, bool upper) {
  const Tensor l = upper ? factor.mT() : factor;
  return solve_triangular(l.mT(), solve_triangular(l, b, false, true, false), true, true, false);
}

Tensor cholesky_solve(const Tensor& self, const Tensor& a, bool upper) {
  return cholesky_solved(a, self, upper);
}

Tensor identity_like(const Tensor& a) { return at::eye(a.size(-1), a.options()).expand(a.sizes()); }

Tensor cholesky_inverse(const Tensor& self, bool upper) {
  return self.numel() == 0 ? at::empty_like(self) : cholesky_solved(self, identity_like(self), upper);
}

// ---- LU
// -------------------------------------------------------------------------------------------------------------
Three lu_factored(const Tensor& self, bool pivoting) {
  Tensor a = own_copy(self);
  const int64_t batch = a.size(0), m = a.size(1), n = a.size(2), steps = std::min(m, n);
  const Tensor row = places(m, a), column_place = places(n, a);
  Tensor pivots = at::zeros({batch, steps}, row.options());
  Info info(a);
  for (int64_t k = 0; k < steps; ++k) {
    if (pivoting) {
      const Tensor size = at::where(row.ge(k), a.select(2, k).abs(), at::full({}, -1.0, a.options()));
      const Tensor best = size.argmax(1);
      pivots.select(1, k).copy_(best + 1);
      const Tensor index = best.reshape({batch, 1, 1}).expand({batch, 1, n}).contiguous();
      const Tensor chosen = a.gather(1, index), moved = a.slice(1, k, k + 1).clone();
      a.scatter_(1, index, moved);
      a.slice(1, k, k + 1).copy_(chosen);
    } else {
      pivots.select(1, k).fill_(k + 1);
    }
    const Tensor column = a.select(2, k).clone(), pivot = column.slice(1, k, k + 1), no_pivot = pivot.eq(0);
    info.note(no_pivot.squeeze(1), k);
    // Without pivoting a zero divides all the same, as in LAPACK's way of doing it.
    const Tensor divided = pivoting ? at::where(no_pivot, column, column / pivot) : column / pivot;
    const Tensor open = row.gt(k).unsqueeze(1).logical_and(column_place.gt(k));
    a.copy_(at::where(open, a - products(divided, a.select(1, k)), a));
    a.select(2, k).copy_(at::where(row.gt(k), divided, column));
  }
  return {a.reshape(self.sizes()), pivots.reshape(with(batch_of(self), {steps})),
          info.shaped(batch_of(self))};
}

Three lu_factor_ex(const Tensor& a, bool pivot, bool check_errors) {
  auto [lu, pivots, info] = lu_factored(a, pivot);
  if (check_errors) at::_linalg_check_errors(info, "torch.linalg.lu_factor_ex", a.dim() == 2);
  return {lu, pivots, info};
}

// The order of rows that the swaps of `pivots` leave, [batch, rows]: row i of P^T b is row order[i] of b.
Tensor row_order(const Tensor& pivots, int64_t rows) {
  const int64_t steps = pivots.size(-1), batch = steps == 0 ? c10::multiply_integers(pivots.sizes().slice(
                                                                  0, static_cast<size_t>(pivots.dim() - 1)))
                                                            : pivots.numel() / steps;
  const Tensor swaps = pivots.reshape({batch, steps}).to(at::kCPU, at::kLong).contiguous();
  Tensor order = at::arange(rows, at::kLong).repeat({batch, 1});
  for (int64_t b = 0; b < batch; ++b) {
    int64_t* o = order.data_ptr<int64_t>() + b * rows;
    for (int64_t k = 0; k < steps; ++k) {
      const int64_t other = swaps.const_data_ptr<int64_t>()[b * steps + k] - 1;
      if (other >= 0 && other < rows) std::swap(o[k], o[other]);
    }
  }
  return order.to(pivots.device());
}

// P of a = P L U
Tensor permutation(const Tensor& pivots, int64_t rows, const at::TensorOptions& options) {
  const Tensor order = row_order(pivots, rows);
  const Tensor place = at::arange(rows, order.options());
  const Tensor p = place.reshape({1, rows, 1}).eq(order.unsqueeze(1)).to(options.dtype().toScalarType());
  return p.reshape(with(pivots.sizes().slice(0, static_cast<size_t>(pivots.dim() - 1)).vec(), {rows, rows}));
}

Three unpacked_lu(const Tensor& lu, const Tensor& pivots, bool unpack_data, bool unpack_pivots) {
  const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
  auto none = [&] { return at::empty({0}, lu.options()); };
  Tensor p = unpack_pivots ? permutation(pivots, m, lu.options()) : none();
  if (!unpack_data) return {p, none(), none()};
  const Tensor l = lu.slice(-1, 0, k).tril(-1) + at::eye(m, k, lu.options());
  return {p, l, lu.slice(-2, 0, k).triu()};
}

Three linalg_lu(const Tensor& a, bool pivot) {
  auto [lu, pivots, info] = lu_factored(a, pivot);
  auto [p, l, u] = unpacked_lu(lu, pivots, true, pivot);
  return {p, l, u};
}

Tensor lu_solved(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left, bool adjoint) {
  if (!left) return lu_solved(lu, pivots, b.mT(), true, !adjoint).mT();
  const std::vector<int64_t> batch = at::infer_size(batch_of(lu), batch_of(b));
  if (b.numel() == 0 || lu.numel() == 0) return at::zeros(with(batch, {b.size(-2), b.size(-1)}), b.options());
  const Tensor p = permutation(pivots, lu.size(-2), lu.options());
  if (!adjoint)
    return solve_triangular(lu, solve_triangular(lu, at::matmul(p.mT(), b), false, true, true), true, true,
                            false);
  const Tensor y = solve_triangular(lu.mT(), b, false, true, false);
  return at::matmul(p, solve_triangular(lu.mT(), y, true, true, true));
}

Tensor linalg_lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left, bool adjoint) {
  return lu_solved(lu, pivots, b, left, adjoint);
}

Four solve_ex(const Tensor& a, const Tensor& b, bool left, bool check_errors) {
  auto [lu, pivots, info] = lu_factored(a, true);
  if (check_errors) at::_linalg_check_errors(info, "torch.linalg.solve_ex", a.dim() == 2);
  // One vector per matrix: b lacks the last axis.
  const bool vector =
      b.dim() == 1 ||
      (a.dim() - 1 == b.dim() && b.sizes().equals(a.sizes().slice(0, static_cast<size_t>(a.dim() - 1))));
  const Tensor x = lu_solved(lu, pivots, vector ? b.unsqueeze(-1) : b, left, false);
  return {vector ? x.squeeze(-1) : x, lu, pivots, info};
}

Two inv_ex(const Tensor& a, bool check_errors) {
  auto [lu, pivots, info] = lu_factored(a, true);
  if (check_errors) at::_linalg_check_errors(info, "linalg.inv_ex", a.dim() == 2);
  if (a.numel() == 0) return {at::empty_like(a), info};
  return {lu_solved(lu, pivots, identity_like(a), true, false), info};
}

// (-1)^swaps, [batch..]
Tensor swap_sign(const Tensor& pivots, const Tensor& like) {
  const Tensor still = at::arange(1, pivots.size(-1) + 1, pivots.options());
  return (1 - 2 * pivots.ne(still).sum(-1).remainder(2)).to(like.scalar_type());
}

// The gradients of determinants expect the factors of the transpose when the matrix is contiguous.
Three lu_of_determinant(const Tensor& a) { return lu_factored(a.is_contiguous() ? a.mT() : a, true); }

Three det(const Tensor& a) {
  auto [lu, pivots, info] = lu_of_determinant(a);
  const Tensor diagonal = lu.diagonal(0, -2, -1);
  return {diagonal.prod(-1) * swap_sign(pivots, a), lu, pivots};
}

Four slogdet(const Tensor& a) {
  auto [lu, pivots, info] = lu_of_determinant(a);
  const Tensor diagonal = lu.diagonal(0, -2, -1);
  return {diagonal.sign().prod(-1) * swap_sign(pivots, a), diagonal.abs().log().sum(-1), lu, pivots};
}

// ---- Householder reflections
// ----------------------------------------------------------------------------------------
// Vectors below the diagonal with a leading 1 that is not stored, and the factors of I - tau v v^T.
Two householder_vectors(const Tensor& self) {
  Tensor a = own_copy(self);
  const int64_t m = a.size(1), n = a.size(2), steps = std::min(m, n);
  const Tensor row = places(m, a), column_place = places(n, a);
  Tensor tau = at::zeros({a.size(0), steps}, a.options());
  for (int64_t k = 0; k < steps; ++k) {
    const Tensor column = a.select(2, k).clone(), alpha = column.slice(1, k, k + 1);
    const Tensor below = zero_unless(row.gt(k), column);
    const Tensor rest = at::linalg_vector_norm(below, 2, at::IntArrayRef{1}, true);
    const Tensor norm = at::hypot(alpha, rest);
    const Tensor beta = at::where(alpha.lt(0), norm, -norm), none = rest.eq(0);
    const Tensor factor = zero_unless(none.logical_not(), (beta - alpha) / beta);
    const Tensor v = at::where(row.eq(k), at::ones_like(column),
                               at::where(none, at::zeros_like(column), below / (alpha - beta)));
    tau.slice(1, k, k + 1).copy_(factor);
    // Columns behind this one; this one holds beta and the vector.
    const Tensor product = at::matmul(v.unsqueeze(1), a).squeeze(1);
    a.sub_(products(v * factor, zero_unless(column_place.gt(k), product)));
    const Tensor diagonal = at::where(none, alpha, beta);
    a.select(2, k).copy_(at::where(row.gt(k), v, at::where(row.eq(k), diagonal, column)));
  }
  return {a.reshape(self.sizes()), tau.reshape(with(batch_of(self), {steps}))};
}

// H_0 H_1 .. b, or from the other end.
Tensor reflected(const Tensor& vectors, const Tensor& tau, const Tensor& b, bool transpose) {
  Tensor x = b.clone(at::MemoryFormat::Contiguous);
  const int64_t steps = tau.size(1);
  const Tensor row = places(vectors.size(1), vectors);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t k = transpose ? step : steps - 1 - step;
    const Tensor column = vectors.select(2, k);
    const Tensor v = at::where(row.eq(k), at::ones_like(column), zero_unless(row.gt(k), column));
    const Tensor product = at::matmul(v.unsqueeze(1), x).squeeze(1);
    x.sub_(products(v * tau.slice(1, k, k + 1), product));
  }
  return x;
}

Tensor householder_product(const Tensor& a, const Tensor& tau) {
  if (a.numel() == 0) return at::empty_like(a);
  const Tensor vectors = flat_batch(a), factors = tau.reshape({vectors.size(0), tau.size(-1)});
  const Tensor eye = at::eye(a.size(-2), a.size(-1), a.options()).expand(vectors.sizes());
  return reflected(vectors, factors, eye, false).reshape(a.sizes());
}

Two linalg_qr(const Tensor& a, c10::string_view mode) {
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  auto [vectors, tau] = householder_vectors(a);
  const bool complete = mode == "complete";
  const Tensor r = (complete ? vectors : vectors.slice(-2, 0, k)).triu();
  if (mode == "r") return {at::empty({0}, a.options()), r};
  const int64_t columns = complete ? m : k;
  const Tensor eye = at::eye(m, columns, a.options()).expand(with(batch_of(a), {m, columns}));
  if (eye.numel() == 0) return {eye.clone(), r};
  const Tensor flat = flat_batch(vectors);
  const Tensor q = reflected(flat, tau.reshape({flat.size(0), k}), flat_batch(eye), false);
  return {q.reshape(eye.sizes()), r};
}

Tensor applied_q(const Tensor& self, const Tensor& tau, const Tensor& other, bool left, bool transpose) {
  if (!left) return applied_q(self, tau, other.mT(), true, !transpose).mT();
  if (other.numel() == 0) return at::empty_like(other);
  const Tensor vectors = flat_batch(self);
  return reflected(vectors, tau.reshape({vectors.size(0), tau.size(-1)}), flat_batch(other), transpose)
      .reshape(other.sizes());
}

Tensor linalg_ormqr(const Tensor& self, const Tensor& tau, const Tensor& other, bool left, bool transpose) {
  return applied_q(self, tau, other, left, transpose);
}

// ---- matrix_exp
// -----------------------------------------------------------------------------------------------------
// Taylor's series of the matrix halved until its norm is small enough, and as many squarings, each of which doubles the
// error.
Tensor matrix_exp(const Tensor& given) {
  if (given.numel() == 0) return given.clone();
  const Tensor self = given.to(at::kFloat);
  const auto norm = self.abs().sum(-2).max().item<double>();
  constexpr double largest = 3;
  const int squarings = std::isfinite(norm) && norm > largest
                            ? std::min(static_cast<int>(std::ceil(std::log2(norm / largest))), 64)
                            : 0;
  const Tensor a = self * std::ldexp(1.0, -squarings), one = identity_like(self);
  constexpr int terms = 20;  // largest^21 / 21! is below FP32
  Tensor sum = one + a / static_cast<double>(terms);
  for (int k = terms - 1; k >= 1; --k) sum = one + at::matmul(a, sum) / static_cast<double>(k);
  for (int i = 0; i < squarings; ++i) sum = at::matmul(sum, sum);
  return sum.to(given.scalar_type());
}

}  // namespace

Composites linalg_composites() {
  return {composite("aten::linalg_cholesky_ex", &cholesky_ex),
          composite("aten::cholesky", &cholesky),
          composite("aten::cholesky_inverse", &cholesky_inverse),
          composite("aten::_cholesky_solve_helper", &cholesky_solve),
          composite("aten::linalg_solve_triangular", &linalg_solve_triangular),
          composite("aten::triangular_solve", &triangular_solve_with_copy),
          composite("aten::linalg_lu_factor_ex", &lu_factor_ex),
          composite("aten::linalg_lu", &linalg_lu),
          composite("aten::lu_unpack", &unpacked_lu, {.trial = Trial::kShapes}),
          composite("aten::linalg_lu_solve", &linalg_lu_solve, {.trial = Trial::kShapes}),
          composite("aten::_linalg_solve_ex", &solve_ex),
          composite("aten::linalg_inv_ex", &inv_ex),
          composite("aten::_linalg_det", &det),
          composite("aten::_linalg_slogdet", &slogdet),
          composite("aten::geqrf", &householder_vectors),
          composite("aten::linalg_householder_product", &householder_product),
          composite("aten::linalg_qr", &linalg_qr),
          composite("aten::ormqr", &linalg_ormqr),
          composite("aten::linalg_matrix_exp", &matrix_exp)};
}

}  // namespace trnsim::aten
