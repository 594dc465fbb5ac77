// Eigenvalues of symmetric matrices and singular values by Jacobi's rotations. The pairs of a round share no column, so
// a round is one product with a matrix of rotations; a sweep is as many rounds as it takes to meet every pair once.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/_linalg_svd.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/hypot.h>
#include <ATen/ops/linalg_matrix_rank_native.h>
#include <ATen/ops/linalg_pinv_native.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "device_plugin/aten/batches.h"
#include "device_plugin/aten/composite_kernel.h"

namespace trnsim::aten {
namespace {

using at::Tensor;

// LAPACK's words where a matrix has an element that is not finite, or no sweep makes it diagonal.
class Refusal {
 public:
  Refusal(const char* name, const Tensor& a) : name_(name), one_matrix_(a.dim() == 2) {}
  void if_any(const Tensor& bad, int info) const {
    if (bad.any().item<bool>()) at::_linalg_check_errors(bad.to(at::kInt) * info, name_, one_matrix_);
  }

 private:
  const char* name_;
  bool one_matrix_;
};

// Sweeps until what is left off the diagonal is negligible. Rounding may keep it above that for ever, but not far above.
template <class Sweep>
void sweep_until_diagonal(int64_t n, const Refusal& refusal, Sweep sweep) {
  constexpr int kMaxSweeps = 16;
  constexpr double kFar = 1e3;
  Tensor rest;  // the largest element left of each matrix, in parts of what is negligible
  for (int i = 0; n > 1 && i < kMaxSweeps; ++i) {
    rest = sweep().cpu();
    if (rest.le(1).all().template item<bool>()) return;
  }
  if (rest.defined()) refusal.if_any(rest.le(kFar).logical_not(), 1);
}

Tensor parts_of(const Tensor& rest, const Tensor& negligible) {
  return rest / negligible.clamp_min(std::numeric_limits<float>::min());
}

// The pairs of every round of a tournament of n players, and where the four elements of their rotations are.
class Tournament {
 public:
  Tournament(int64_t n, const c10::Device& device) : n_(n) {
    const int64_t players = n + n % 2;  // with an odd number one rests
    for (int64_t r = 0; r < players - 1; ++r) {
      std::vector<int64_t> p, q, place;
      for (int64_t i = 0; i < players / 2; ++i) {
        // Player 0 stays, the others move round the table.
        auto seat = [&](int64_t s) { return s == 0 ? int64_t{0} : (s - 1 + r) % (players - 1) + 1; };
        int64_t a = seat(i), b = seat(players - 1 - i);
        if (a >= n || b >= n) continue;
        if (a > b) std::swap(a, b);
        p.push_back(a);
        q.push_back(b);
      }
      for (size_t i = 0; i < p.size(); ++i) place.push_back(p[i] * n + p[i]);
      for (size_t i = 0; i < p.size(); ++i) place.push_back(q[i] * n + q[i]);
      for (size_t i = 0; i < p.size(); ++i) place.push_back(p[i] * n + q[i]);
      for (size_t i = 0; i < p.size(); ++i) place.push_back(q[i] * n + p[i]);
      auto index = [&](const std::vector<int64_t>& v) { return at::tensor(v, at::kLong).to(device); };
      rounds_.push_back({index(p), index(q), index(place)});
    }
  }

  struct Round {
    Tensor p, q, place;
  };
  const std::vector<Round>& rounds() const { return rounds_; }

  // [batch, n, n] with the rotations that make the off-diagonal elements `between` of [[first, between], [between,
  // second]] zero.
  Tensor rotations(const Round& round, const Tensor& first, const Tensor& second,
                   const Tensor& between) const {
    const Tensor none = between.eq(0);
    const Tensor tau = (second - first) / (2 * at::where(none, at::ones_like(between), between));
    // The smaller angle; hypot would do more work than needed here.
    const Tensor t = at::where(tau.lt(0), at::full_like(tau, -1.0), at::ones_like(tau)) /
                     (tau.abs() + at::hypot(tau, at::ones_like(tau)));
    const Tensor tangent = at::where(none, at::zeros_like(t), t);
    const Tensor c = 1 / (1 + tangent * tangent).sqrt(), s = tangent * c;
    const int64_t batch = first.size(0);
    const Tensor eye = at::eye(n_, first.options()).reshape({1, n_ * n_}).repeat({batch, 1});
    const Tensor place = round.place.unsqueeze(0).expand({batch, round.place.size(0)}).contiguous();
    return eye.scatter(1, place, at::cat({c, c, s, -s}, 1)).reshape({batch, n_, n_});
  }

 private:
  int64_t n_;
  std::vector<Round> rounds_;
};

// Columns in the order of `order` [batch, n].
Tensor columns_in_order(const Tensor& a, const Tensor& order) {
  return a.gather(2, order.unsqueeze(1).expand({a.size(0), a.size(1), order.size(1)}).contiguous());
}

// ---- symmetric
// -------------------------------------------------------------------------------------------------------
std::tuple<Tensor, Tensor> eigh(const Tensor& self, c10::string_view uplo, bool compute_v) {
  const int64_t n = self.size(-1);
  const std::vector<int64_t> batch = batch_of(self);
  const bool upper = uplo == "U" || uplo == "u";
  if (self.numel() == 0)
    return {at::empty(with(batch, {n}), self.options()),
            compute_v ? at::empty(self.sizes(), self.options()) : at::empty({0}, self.options())};
  const Tensor given = flat_batch(self).contiguous();
  Tensor a = upper ? given.triu() + given.triu(1).mT() : given.tril() + given.tril(-1).mT();
  Tensor v = at::eye(n, self.options()).expand(a.sizes()).contiguous();
  const Tensor off_diagonal = 1 - at::eye(n, self.options());
  const Tournament tournament(n, self.device());
  const Refusal refusal("linalg.eigh", self);
  if (n > 1) refusal.if_any(a.abs().amax(at::IntArrayRef{1, 2}).isfinite().logical_not(), 1);
  sweep_until_diagonal(n, refusal, [&] {
    for (const Tournament::Round& round : tournament.rounds()) {
      const Tensor diagonal = a.diagonal(0, 1, 2).contiguous();
      const Tensor between = a.reshape({a.size(0), n * n}).index_select(1, round.p * n + round.q);
      const Tensor j = tournament.rotations(round, diagonal.index_select(1, round.p),
                                            diagonal.index_select(1, round.q), between);
      a = at::bmm(at::bmm(j.mT(), a), j);
      v = at::bmm(v, j);
    }
    a = (a + a.mT()) * 0.5;
    return parts_of((a * off_diagonal).abs().amax(at::IntArrayRef{1, 2}),
                    a.abs().amax(at::IntArrayRef{1, 2}) * 2e-8);
  });
  auto [values, order] = a.diagonal(0, 1, 2).sort(-1);
  return {values.reshape(with(batch, {n})),
          compute_v ? columns_in_order(v, order).reshape(self.sizes()) : at::empty({0}, self.options())};
}

// ---- singular values
// -------------------------------------------------------------------------------------------------
struct Svd {
  Tensor u, s, v;  // [batch, m, m or n], [batch, n], [batch, n, n]
};

// Columns of w [batch, m, n], m >= n, made orthogonal; the product of the rotations is V.
Svd decomposed(Tensor w, bool compute_uv, bool full, const Refusal& refusal) {
  constexpr int kNotFinite = -4;  // the number of the operand that gesdd refuses
  const int64_t n = w.size(2);
  const Tensor largest = w.abs().amax(at::IntArrayRef{1, 2}, /*keepdim=*/true);
  refusal.if_any(largest.isfinite().logical_not(), kNotFinite);
  // The squares of what is too large or too small for them leave FP32.
  const Tensor scale = at::where(largest.gt(1e15).logical_or(largest.lt(1e-15).logical_and(largest.gt(0))),
                                 largest, at::ones_like(largest));
  w = w / scale;
  Tensor v = at::eye(n, w.options()).expand({w.size(0), n, n}).contiguous();
  const Tensor off_diagonal = 1 - at::eye(n, w.options());
  const Tournament tournament(n, w.device());
  sweep_until_diagonal(n, refusal, [&] {
    for (const Tournament::Round& round : tournament.rounds()) {
      const Tensor p = w.index_select(2, round.p), q = w.index_select(2, round.q);
      const Tensor j = tournament.rotations(round, (p * p).sum(1), (q * q).sum(1), (p * q).sum(1));
      w = at::bmm(w, j);
      v = at::bmm(v, j);
    }
    const Tensor products = at::bmm(w.mT(), w), norms = products.diagonal(0, 1, 2).clamp_min(0).sqrt();
    const Tensor both = norms.unsqueeze(2) * norms.unsqueeze(1);
    // Columns that vanish beside the largest one have no direction to speak of.
    const Tensor floor = norms.amax(1, true).unsqueeze(2) * norms.unsqueeze(1) * 1e-7;
    return parts_of((products * off_diagonal).abs(), at::maximum(both * 3e-7, floor))
        .amax(at::IntArrayRef{1, 2});
  });
  auto [s, order] =
      (at::linalg_vector_norm(w, 2, at::IntArrayRef{1}) * scale.squeeze(2)).sort(-1, /*descending=*/true);
  if (!compute_uv) return {Tensor(), s, Tensor()};
  // The orthogonal factor is U up to signs, and orthonormal where singular values are zero too.
  auto [q, r] = at::linalg_qr(columns_in_order(w, order), full ? "complete" : "reduced");
  const Tensor diagonal = r.diagonal(0, 1, 2).contiguous();
  Tensor sign = at::where(diagonal.lt(0), at::full_like(diagonal, -1.0), at::ones_like(diagonal));
  if (q.size(2) > n) sign = at::cat({sign, at::ones({sign.size(0), q.size(2) - n}, sign.options())}, 1);
  return {q * sign.unsqueeze(1), s, columns_in_order(v, order)};
}

std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& self, bool full_matrices, bool compute_uv,
                                       std::optional<c10::string_view> /*driver*/) {
  const int64_t m = self.size(-2), n = self.size(-1), k = std::min(m, n);
  const std::vector<int64_t> batch = batch_of(self);
  const int64_t rows = full_matrices ? m : k, columns = full_matrices ? n : k;
  auto none = [&] { return at::empty({0}, self.options()); };
  if (self.numel() == 0) {
    const Tensor s = at::empty(with(batch, {k}), self.options());
    if (!compute_uv) return {none(), s, none()};
    auto eye = [&](int64_t size, std::initializer_list<int64_t> sizes) {
      return at::eye(size, self.options())
          .expand(with(batch, {size, size}))
          .slice(-2, 0, *sizes.begin())
          .slice(-1, 0, *(sizes.begin() + 1))
          .contiguous();
    };
    return {eye(m, {m, rows}), s, eye(n, {columns, n})};
  }
  const bool tall = m >= n;
  const Tensor flat = flat_batch(tall ? self : self.mT()).contiguous();
  const Svd d = decomposed(flat, compute_uv, full_matrices, Refusal("linalg.svd", self));
  const Tensor s = d.s.reshape(with(batch, {k}));
  if (!compute_uv) return {none(), s, none()};
  const Tensor u = tall ? d.u : d.v, vh = (tall ? d.v : d.u).mT();
  return {u.reshape(with(batch, {m, rows})), s, vh.reshape(with(batch, {columns, n}))};
}

// ---- least squares
// ---------------------------------------------------------------------------------------------------
// The solution of least norm; singular values below rcond times the largest count as 0.
std::tuple<Tensor, Tensor, Tensor, Tensor> lstsq(const Tensor& self, const Tensor& b,
                                                 std::optional<double> rcond,
                                                 std::optional<c10::string_view> driver) {
  const int64_t less = self.dim() - b.dim();
  TORCH_CHECK(self.dim() >= 2, "torch.linalg.lstsq: input must have at least 2 dimensions.");
  TORCH_CHECK(b.dim() >= 1, "torch.linalg.lstsq: other must have at least 1 dimension.");
  TORCH_CHECK(self.scalar_type() == b.scalar_type(),
              "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype ",
              self.scalar_type(), " and other's dtype ", b.scalar_type());
  TORCH_CHECK(0 <= less && less <= 1,
              "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - "
              "other.dim()) <= 1");
  TORCH_CHECK(self.size(-2) == b.size(less == 0 ? -2 : -1),
              "torch.linalg.lstsq: input.size(-2) should match other.size(", less == 0 ? "-2)" : "-1)");
  const int64_t m = self.size(-2), n = self.size(-1), k = std::min(m, n);
  const bool vector = self.dim() - 1 == b.dim() &&
                      b.sizes().equals(self.sizes().slice(0, static_cast<size_t>(self.dim() - 1)));
  const Tensor right = vector ? b.unsqueeze(-1) : b;
  const c10::string_view how = driver.value_or("gelsy");
  TORCH_CHECK(how == "gels" || how == "gelsy" || how == "gelsd" || how == "gelss",
              "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  const double limit = rcond.value_or(1.1920928955078125e-07 * static_cast<double>(std::max(m, n)));
  auto [u, s, vh] = at::_linalg_svd(self, false, true);
  const std::vector<int64_t> batch = batch_of(self);
  auto none = [&] { return at::empty({0}, self.options()); };
  Tensor rank = at::zeros(batch, self.options().dtype(at::kLong)), kept;
  if (k > 0) {
    kept = s.gt(s.amax(-1, true) * limit);
    rank = kept.sum(-1);
  }
  Tensor x;
  if (self.numel() == 0) {
    x = at::zeros(with(batch, {n, right.size(-1)}), right.options());
  } else {
    const Tensor inverse = at::where(kept, 1 / s, at::zeros_like(s)).unsqueeze(-1);
    x = at::matmul(vh.mT(), inverse * at::matmul(u.mT(), right));
  }
  Tensor residuals = none();
  if (m > n && how != "gelsy" && k > 0 && rank.eq(n).all().item<bool>())
    residuals = (at::matmul(self, x) - right).square().sum(-2);
  const bool ranked = how != "gels", values = how == "gelsd" || how == "gelss";
  return {vector ? x.squeeze(-1) : x, residuals, ranked ? rank : at::empty({0}, rank.options()),
          values ? s : none()};
}

// ---- what counts as zero
// -----------------------------------------------------------------------------------------------
// The default tolerances follow the type, and float64 is computed as float32.
Tensor as_computed(const Tensor& t) { return t.scalar_type() == at::kDouble ? t.to(at::kFloat) : t; }

Tensor pinv(const Tensor& self, const std::optional<Tensor>& atol, const std::optional<Tensor>& rtol,
            bool hermitian) {
  return at::native::linalg_pinv(as_computed(self), atol, rtol, hermitian).to(self.scalar_type());
}

// For PyTorch these are made of other operators, which would not know where a tolerance comes from.
template <class Tolerance>
Tensor rank(const Tensor& self, const std::optional<Tolerance>& atol, const std::optional<Tolerance>& rtol,
            bool hermitian) {
  return at::native::linalg_matrix_rank(as_computed(self), atol, rtol, hermitian);
}
template <class Tolerance>
Tensor& rank_out(const Tensor& self, const std::optional<Tolerance>& atol,
                 const std::optional<Tolerance>& rtol, bool hermitian, Tensor& out) {
  return at::native::linalg_matrix_rank_out(as_computed(self), atol, rtol, hermitian, out);
}
Tensor rank_by_numbers(const Tensor& self, std::optional<double> atol, std::optional<double> rtol,
                       bool hermitian) {
  return rank(self, atol, rtol, hermitian);
}
Tensor& rank_by_numbers_out(const Tensor& self, std::optional<double> atol, std::optional<double> rtol,
                            bool hermitian, Tensor& out) {
  return rank_out(self, atol, rtol, hermitian, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("linalg_matrix_rank.atol_rtol_tensor", &rank<Tensor>);
  m.impl("linalg_matrix_rank.atol_rtol_tensor_out", &rank_out<Tensor>);
  m.impl("linalg_matrix_rank.atol_rtol_float", &rank_by_numbers);
  m.impl("linalg_matrix_rank.atol_rtol_float_out", &rank_by_numbers_out);
}

}  // namespace

Composites eigen_composites() {
  return {composite("aten::linalg_pinv.atol_rtol_tensor", &pinv, {.complex = true}),
          composite("aten::_linalg_eigh", &eigh), composite("aten::_linalg_svd", &svd),
          composite("aten::linalg_lstsq", &lstsq, {.trial = Trial::kNone})};
}

}  // namespace trnsim::aten
