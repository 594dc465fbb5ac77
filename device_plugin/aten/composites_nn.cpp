// Bags of embeddings, segments, losses over sequences and labels, and noise.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/take.h>
#include <ATen/ops/triu_indices.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "device_plugin/aten/composite_kernel.h"
#include "device_plugin/aten/composites_indexing.h"
#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
constexpr double kInf = std::numeric_limits<double>::infinity();

// ---- embedding_bag
// --------------------------------------------------------------------------------------------------
enum class Bag : int64_t { kSum, kMean, kMax };

// The bag of every element: how many bags begin at or before it.
Tensor bag_of_element(const Tensor& offsets, int64_t num_bags, int64_t elements) {
  return at::searchsorted(offsets.slice(0, 0, num_bags).contiguous(),
                          counting(elements, offsets).to(offsets.dtype()), false, /*right=*/true) -
         1;
}

// Every result depends on these values: one reading for all of them, and the error belongs to the call.
void check_bags(const Tensor& offsets, const Tensor& indices, int64_t rows) {
  const int64_t n = indices.size(0);
  std::vector<Tensor> read;
  if (offsets.size(0) > 0) read = {offsets.select(0, 0), offsets.select(0, -1)};
  if (n > 0) read.insert(read.end(), {indices.min().to(offsets.dtype()), indices.max().to(offsets.dtype())});
  if (read.empty()) return;
  const Tensor host = at::stack(read).to(at::kCPU, at::kLong);
  const int64_t* value = host.const_data_ptr<int64_t>();
  if (offsets.size(0) > 0) {
    TORCH_CHECK(
        value[0] == 0,
        "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
        "However, got ",
        value[0]);
    TORCH_CHECK(value[1] <= n, "offsets[-1] can not be greater than input's length ", n,
                " but got offsets[-1] of ", value[1]);
  }
  if (n == 0) return;
  const int64_t smallest = value[read.size() - 2], largest = value[read.size() - 1];
  TORCH_CHECK(smallest >= 0 && largest < rows,
              "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be ",
              smallest < 0 ? smallest : largest);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_bag(const Tensor& weight, const Tensor& indices,
                                                         const Tensor& offsets, bool /*scale_grad_by_freq*/,
                                                         int64_t mode, bool /*sparse*/,
                                                         const OptionalTensor& per_sample_weights,
                                                         bool include_last_offset, int64_t padding_idx) {
  const int64_t bags = offsets.size(0) - (include_last_offset ? 1 : 0), n = indices.size(0);
  TORCH_CHECK(bags >= 0, "include_last_offset: number of offset should be at least 1");
  check_bags(offsets, indices, weight.size(0));
  const at::ScalarType counting_type = c10::promoteTypes(indices.scalar_type(), offsets.scalar_type());
  if (bags == 0) {
    const Tensor none = at::zeros({0}, indices.options().dtype(counting_type));
    return {at::zeros({0, weight.size(1)}, weight.options()), at::zeros({n}, none.options()), none,
            none.clone()};
  }
  const Tensor long_indices = indices.to(at::kLong);
  const Tensor bag = bag_of_element(offsets, bags, n);
  const Tensor counts = long_indices.ne(padding_idx);
  const Tensor size = at::zeros({bags}, bag.options()).index_add(0, bag, counts.to(at::kLong));
  Tensor rows = weight.index_select(0, long_indices);
  const Tensor counts_column = counts.unsqueeze(1);
  Tensor out, largest = at::zeros({0}, bag.options());
  if (static_cast<Bag>(mode) == Bag::kMax) {
    rows = at::where(counts_column, rows, at::full({}, -kInf, rows.options()));
    out = at::full({bags, weight.size(1)}, -kInf, weight.options()).index_reduce(0, bag, rows, "amax");
    // The first element that holds the maximum of its bag.
    const Tensor hit = rows.eq(out.index_select(0, bag)).logical_and(counts_column);
    const Tensor position =
        at::where(hit, counting(n, bag).unsqueeze(1), at::full({}, n, bag.options())).expand_as(rows);
    largest = at::full_like(out, n, bag.options()).index_reduce(0, bag, position.contiguous(), "amin");
    const Tensor filled = size.unsqueeze(1).gt(0);
    out = zero_unless(filled, out);
    largest =
        n == 0 ? at::zeros_like(largest)
               : zero_unless(filled, at::take(long_indices, largest.clamp(0, std::max<int64_t>(n - 1, 0))));
  } else {
    if (given(per_sample_weights)) rows = rows * per_sample_weights->unsqueeze(1);
    out = at::zeros({bags, weight.size(1)}, weight.options())
              .index_add(0, bag, zero_unless(counts_column, rows));
    if (static_cast<Bag>(mode) == Bag::kMean)
      out = out / size.clamp_min(1).unsqueeze(1).to(out.scalar_type());
  }
  return {out, bag.to(counting_type), size.to(counting_type), largest.to(counting_type)};
}

Tensor embedding_bag_backward(const Tensor& grad, const Tensor& indices, const Tensor& offsets,
                              const Tensor& /*offset2bag*/, const Tensor& bag_size,
                              const Tensor& maximum_indices, int64_t num_weights, bool scale_grad_by_freq,
                              int64_t mode, bool sparse, const OptionalTensor& per_sample_weights,
                              int64_t padding_idx) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !sparse,
      "not simulated: embedding_bag(sparse=True): the neuron device has no sparse tensors. "
      "Use sparse=False.");
  const Tensor sums = at::zeros({num_weights, grad.size(1)}, grad.options());
  if (bag_size.size(0) == 0) return sums;
  if (static_cast<Bag>(mode) == Bag::kMax)
    return sums.scatter_add(0, maximum_indices.to(at::kLong), zero_unless(bag_size.gt(0).unsqueeze(1), grad));
  const int64_t n = indices.size(0);
  const Tensor bag = bag_of_element(offsets, bag_size.size(0), n), rows = indices.to(at::kLong);
  Tensor g = grad;
  if (static_cast<Bag>(mode) == Bag::kMean) g = g / bag_size.clamp_min(1).unsqueeze(1).to(g.scalar_type());
  g = g.index_select(0, bag);
  if (given(per_sample_weights)) g = g * per_sample_weights->unsqueeze(1);
  if (scale_grad_by_freq) {
    const Tensor uses = at::zeros({num_weights}, grad.options().dtype(at::kFloat))
                            .index_add(0, rows, at::ones({n}, grad.options().dtype(at::kFloat)));
    g = g / uses.index_select(0, rows).unsqueeze(1).to(g.scalar_type());
  }
  return sums.index_add(0, rows, zero_unless(rows.ne(padding_idx).unsqueeze(1), g));
}

Tensor embedding_bag_weights_backward(const Tensor& grad, const Tensor& weight, const Tensor& indices,
                                      const Tensor& /*offsets*/, const Tensor& offset2bag, int64_t /*mode*/,
                                      int64_t padding_idx) {
  const Tensor rows = indices.to(at::kLong);
  if (grad.size(0) == 0) return at::zeros({indices.size(0)}, grad.options());
  const Tensor g = (grad.index_select(0, offset2bag.to(at::kLong)) * weight.index_select(0, rows)).sum(1);
  return zero_unless(rows.ne(padding_idx), g);
}

// One factor per operand, or one per row and column; the other recipes the CPU refuses.
Tensor scaled_mm(const Tensor& self, const Tensor& mat2, at::TensorList scale_a, at::IntArrayRef /*recipe_a*/,
                 at::IntArrayRef /*swizzle_a*/, at::TensorList scale_b, at::IntArrayRef /*recipe_b*/,
                 at::IntArrayRef /*swizzle_b*/, const OptionalTensor& bias,
                 std::optional<at::ScalarType> out_dtype, at::IntArrayRef /*contraction_dim*/,
                 bool use_fast_accum) {
  return at::_scaled_mm(self, mat2, scale_a[0], scale_b[0], bias, {}, out_dtype, use_fast_accum);
}

// Rows that are used and longer than max_norm, made that long.
Tensor& embedding_renorm_(Tensor& self, const Tensor& indices, double max_norm, double norm_type) {
  TORCH_CHECK(self.dim() == 2, "embedding_renorm_: expected a 2-dimensional weight, got ", self.dim(),
              " dimensions");
  TORCH_CHECK(
      indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
      "Expected tensor for argument #2 'indices' to have one of the following scalar types: Long, Int; "
      "but got ",
      indices.scalar_type(), " instead");
  if (indices.numel() == 0) return self;
  const Tensor used = indices.reshape({-1}).to(at::kLong);
  const Tensor rows = self.index_select(0, used);
  const Tensor norm = at::linalg_vector_norm(rows.to(at::kFloat), norm_type, at::IntArrayRef{1}, true);
  const Tensor factor = at::where(norm.gt(max_norm), max_norm / (norm + 1e-7), at::ones_like(norm));
  return self.index_copy_(0, used, (rows * factor).to(self.scalar_type()));
}

// ---- segments
// -------------------------------------------------------------------------------------------------------
struct Segments {
  Segments(const Tensor& data, const OptionalTensor& lengths, const OptionalTensor& offsets, int64_t axis_)
      : axis(axis_) {
    TORCH_CHECK(given(lengths) || given(offsets),
                "segment_reduce(): Either lengths or offsets must be defined.");
    const Tensor end = given(offsets) ? offsets->slice(axis, 1) : lengths->cumsum(axis);
    length = given(offsets) ? offsets->diff(1, axis) : *lengths;
    count = length.size(axis);
    std::vector<int64_t> outer = data.sizes().slice(0, static_cast<size_t>(axis)).vec();
    outer.push_back(data.size(axis));
    // Elements behind the last segment belong to one more, which is dropped.
    Tensor id = at::searchsorted(end.contiguous(),
                                 counting(data.size(axis), data).to(end.dtype()).expand(outer).contiguous(),
                                 false, /*right=*/true);
    while (id.dim() < data.dim()) id = id.unsqueeze(-1);
    of = id.expand_as(data).contiguous();
  }
  std::vector<int64_t> sizes(const Tensor& data, int64_t n) const {
    std::vector<int64_t> s = data.sizes().vec();
    s[static_cast<size_t>(axis)] = n;
    return s;
  }
  Tensor reduced(const Tensor& data, double initial, c10::string_view how) const {
    const Tensor start = at::full(sizes(data, count + 1), initial, data.options());
    return start.scatter_reduce(axis, of, data, how, /*include_self=*/true)
        .narrow(axis, 0, count)
        .contiguous();
  }
  // The value of its segment for every element.
  Tensor spread(const Tensor& value) const {
    return at::cat({value, at::zeros(sizes(value, 1), value.options())}, axis).gather(axis, of);
  }
  Tensor lengths_like(const Tensor& value) const {
    Tensor l = length.to(value.scalar_type());
    while (l.dim() < value.dim()) l = l.unsqueeze(-1);
    return l;
  }
  int64_t axis, count = 0;
  Tensor length, of;
};

Tensor segment_reduce(const Tensor& data, c10::string_view reduce, const OptionalTensor& lengths,
                      const OptionalTensor& indices, const OptionalTensor& offsets, int64_t axis, bool unsafe,
                      const std::optional<at::Scalar>& initial) {
  TORCH_CHECK(!given(indices), "segment_reduce(): indices based reduction is not supported yet.");
  axis = at::maybe_wrap_dim(axis, data.dim());
  const Segments s(data, lengths, offsets, axis);
  if (!unsafe && given(lengths) && lengths->numel() > 0) {
    TORCH_CHECK(lengths->min().item<int64_t>() >= 0, "lengths contains negative value!");
    TORCH_CHECK(
        lengths->sum(axis).eq(data.size(axis)).all().item<bool>(),
        "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when "
        "!unsafe.");
  }
  const bool mean = reduce == "mean";
  const double identity = reduce == "max" ? -kInf : reduce == "min" ? kInf : reduce == "prod" ? 1 : 0;
  const Tensor out = s.reduced(data, initial ? initial->toDouble() : identity,
                               mean              ? "sum"
                               : reduce == "max" ? "amax"
                               : reduce == "min" ? "amin"
                                                 : reduce);
  if (!mean) return out;
  const Tensor n = s.lengths_like(out);
  if (!initial) return out / n;
  return at::where(n.gt(0), out / n, out);
}

Tensor segment_reduce_backward(const Tensor& grad, const Tensor& output, const Tensor& data,
                               c10::string_view reduce, const OptionalTensor& lengths,
                               const OptionalTensor& offsets, int64_t axis,
                               const std::optional<at::Scalar>& initial) {
  axis = at::maybe_wrap_dim(axis, data.dim());
  const Segments s(data, lengths, offsets, axis);
  if (reduce == "sum") return s.spread(grad);
  if (reduce == "mean") return s.spread(grad / s.lengths_like(grad));
  if (reduce == "prod") {
    // The product of the others: by division, or without what divides badly.
    const Tensor no_number = data.isnan(), apart = data.eq(0).logical_or(no_number);
    auto counted = [&](const Tensor& t) { return s.spread(s.reduced(t.to(data.scalar_type()), 0, "sum")); };
    const Tensor others =
        s.reduced(at::where(apart, at::ones_like(data), data), initial ? initial->toDouble() : 1, "prod");
    const Tensor product = at::where(counted(no_number).gt(no_number.to(data.scalar_type())), NAN,
                                     zero_unless(counted(apart).eq(1), s.spread(others)));
    return s.spread(grad) * at::where(apart, product, s.spread(output) / data);
  }
  const Tensor hit = data.eq(s.spread(output)).logical_or(data.isnan());
  const Tensor hits = s.reduced(hit.to(data.scalar_type()), 0, "sum");
  return zero_unless(hit, s.spread(grad / hits.clamp_min(1)));
}

// ---- CTC
// ------------------------------------------------------------------------------------------------------------
// Labels between blanks: position 2 i + 1 of a row of 2 S + 1 is target i.
struct CtcLattice {
  CtcLattice(const Tensor& log_probs, const Tensor& targets, at::IntArrayRef input_lengths,
             at::IntArrayRef target_lengths, int64_t blank) {
    steps = log_probs.size(0);
    batch = log_probs.size(1);
    int64_t longest = 0;
    for (int64_t l : target_lengths) longest = std::max(longest, l);
    if (targets.dim() == 2) longest = std::max(longest, targets.size(1));
    width = 2 * longest + 1;
    const auto integers = at::TensorOptions().dtype(at::kLong);
    Tensor where = at::zeros({batch, longest}, integers), ends = at::zeros({batch, 2}, integers),
           last = at::zeros({batch, 1}, integers);
    int64_t begin = 0;
    for (int64_t n = 0; n < batch; ++n) {
      const auto i = static_cast<size_t>(n);
      const int64_t length = target_lengths[i];
      if (targets.dim() == 2) begin = n * targets.size(1);
      for (int64_t s = 0; s < length; ++s) where.data_ptr<int64_t>()[n * longest + s] = begin + s;
      begin += length;
      ends.data_ptr<int64_t>()[2 * n] = 2 * length;
      ends.data_ptr<int64_t>()[2 * n + 1] = std::max<int64_t>(2 * length - 1, 0);
      last.data_ptr<int64_t>()[n] = input_lengths[i] - 1;
    }
    const c10::Device device = log_probs.device();
    end = ends.to(device);
    last_step = last.to(device);
    labels = at::full({batch, width}, blank, log_probs.options().dtype(at::kLong));
    if (longest > 0 && targets.numel() > 0)
      labels.slice(1, 1, width, 2)
          .copy_(targets.reshape({-1})
                     .to(at::kLong)
                     .index_select(0, where.to(device).reshape({-1}))
                     .reshape({batch, longest}));
    if (width > 2) {
      const Tensor here = labels.slice(1, 2), before = labels.slice(1, 0, width - 2);
      skips = here.ne(blank).logical_and(here.ne(before));  // may follow the label two places before
    }
    emissions =
        log_probs.to(at::kFloat).gather(2, labels.unsqueeze(0).expand({steps, batch, width}).contiguous());
    impossible = at::full({batch, width}, -kInf, emissions.options());
    position = at::arange(width, labels.options()).unsqueeze(0);
    empty_target = end.select(1, 0).eq(0).unsqueeze(1);
  }
  // log sum exp of a row with itself moved by one and, where allowed, by two places.
  Tensor step(const Tensor& row, bool forward) const {
    Tensor one = impossible, two = impossible;
    if (width > 1)
      one = at::cat(forward ? std::vector<Tensor>{impossible.slice(1, 0, 1), row.slice(1, 0, width - 1)}
                            : std::vector<Tensor>{row.slice(1, 1), impossible.slice(1, 0, 1)},
                    1);
    if (width > 2) {
      const Tensor moved =
          at::where(skips, forward ? row.slice(1, 0, width - 2) : row.slice(1, 2), impossible.slice(1, 2));
      two = at::cat(forward ? std::vector<Tensor>{impossible.slice(1, 0, 2), moved}
                            : std::vector<Tensor>{moved, impossible.slice(1, 0, 2)},
                    1);
    }
    const Tensor top = at::maximum(at::maximum(row, one), two);
    const Tensor base = at::where(top.eq(-kInf), at::zeros_like(top), top);
    return ((row - base).exp() + (one - base).exp() + (two - base).exp()).log() + base;
  }
  int64_t steps = 0, batch = 0, width = 0;
  Tensor labels, skips, emissions, impossible, position, empty_target;
  Tensor end;        // [batch, 2]: the last positions of a complete row
  Tensor last_step;  // [batch, 1]
};

std::tuple<Tensor, Tensor> ctc_loss(const Tensor& log_probs, const Tensor& targets,
                                    at::IntArrayRef input_lengths, at::IntArrayRef target_lengths,
                                    int64_t blank, bool /*zero_infinity*/) {
  const CtcLattice l(log_probs, targets, input_lengths, target_lengths, blank);
  const Tensor starts =
      l.position.eq(0).logical_or(l.position.eq(1).logical_and(l.empty_target.logical_not()));
  std::vector<Tensor> alpha;
  for (int64_t t = 0; t < l.steps; ++t) {
    const Tensor emission = l.emissions.select(0, t);
    alpha.push_back(t == 0 ? at::where(starts, emission, l.impossible)
                           : l.step(alpha.back(), true) + emission);
  }
  const Tensor all = at::stack(alpha, 1);  // [batch, steps, width]
  const Tensor row =
      all.gather(1, l.last_step.clamp_min(0).unsqueeze(2).expand({l.batch, 1, l.width}).contiguous())
          .squeeze(1);
  const Tensor ends = row.gather(1, l.end);
  const Tensor other = at::where(l.empty_target.squeeze(1), l.impossible.select(1, 0), ends.select(1, 1));
  Tensor loss = -at::logaddexp(ends.select(1, 0), other);
  const Tensor no_input = l.last_step.squeeze(1).lt(0);
  loss = at::where(
      no_input, at::where(l.empty_target.squeeze(1), at::zeros_like(loss), at::full_like(loss, kInf)), loss);
  return {loss.to(log_probs.scalar_type()), all.to(log_probs.scalar_type())};
}

Tensor ctc_loss_backward(const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                         at::IntArrayRef input_lengths, at::IntArrayRef target_lengths,
                         const Tensor& neg_log_likelihood, const Tensor& log_alpha, int64_t blank,
                         bool zero_infinity) {
  const CtcLattice l(log_probs, targets, input_lengths, target_lengths, blank);
  const Tensor is_end =
      l.position.eq(l.end.slice(1, 0, 1))
          .logical_or(l.position.eq(l.end.slice(1, 1, 2)).logical_and(l.empty_target.logical_not()));
  std::vector<Tensor> beta(static_cast<size_t>(l.steps));
  for (int64_t t = l.steps - 1; t >= 0; --t) {
    const Tensor emission = l.emissions.select(0, t);
    const Tensor last = at::where(is_end, emission, l.impossible);
    Tensor row = last;
    if (t + 1 < l.steps) {
      const Tensor next = l.step(beta[static_cast<size_t>(t + 1)], false) + emission;
      row = at::where(l.last_step.eq(t), last, at::where(l.last_step.gt(t), next, l.impossible));
    } else {
      row = at::where(l.last_step.eq(t), last, l.impossible);
    }
    beta[static_cast<size_t>(t)] = row;
  }
  const Tensor loss = neg_log_likelihood.to(at::kFloat).reshape({1, l.batch, 1});
  const Tensor through =
      log_alpha.to(at::kFloat).transpose(0, 1) + at::stack(beta, 0);  // both hold the emission
  const Tensor none = through.eq(-kInf).logical_and(loss.ne(kInf));
  const Tensor probability = at::where(none, at::zeros_like(through), (through + loss - l.emissions).exp());
  const Tensor lp = log_probs.to(at::kFloat);
  const Tensor expected = at::zeros_like(lp).scatter_add(
      2, l.labels.unsqueeze(0).expand({l.steps, l.batch, l.width}).contiguous(), probability);
  Tensor result = (lp.exp() - expected) * grad.to(at::kFloat).reshape({1, l.batch, 1});
  const Tensor step = at::arange(l.steps, l.labels.options()).reshape({l.steps, 1, 1});
  Tensor counts = step.le(l.last_step.unsqueeze(0));
  if (zero_infinity) counts = counts.logical_and(loss.ne(kInf));
  return zero_unless(counts.expand_as(result), result).to(log_probs.scalar_type());
}

std::vector<int64_t> numbers(const Tensor& t) {
  const Tensor host = t.to(at::kCPU, at::kLong).contiguous();
  return {host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel()};
}

std::tuple<Tensor, Tensor> ctc_loss_tensor(const Tensor& log_probs, const Tensor& targets,
                                           const Tensor& input_lengths, const Tensor& target_lengths,
                                           int64_t blank, bool zero_infinity) {
  return at::_ctc_loss(log_probs, targets, numbers(input_lengths), numbers(target_lengths), blank,
                       zero_infinity);
}

Tensor ctc_loss_backward_tensor(const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                                const Tensor& input_lengths, const Tensor& target_lengths,
                                const Tensor& neg_log_likelihood, const Tensor& log_alpha, int64_t blank,
                                bool zero_infinity) {
  return ctc_loss_backward(grad, log_probs, targets, numbers(input_lengths), numbers(target_lengths),
                           neg_log_likelihood, log_alpha, blank, zero_infinity);
}

// ---- margins
// --------------------------------------------------------------------------------------------------------
Tensor reduced(const Tensor& loss, int64_t reduction) {
  return reduction == at::Reduction::Mean ? loss.mean() : reduction == at::Reduction::Sum ? loss.sum() : loss;
}

// The margin by which every class comes too close to the target; 0 for the target itself.
struct Margin {
  Margin(const Tensor& self, const Tensor& target, const at::Scalar& margin, const OptionalTensor& weight)
      : x(self.dim() == 2 ? self : self.reshape({1, -1})), t(target.reshape({-1, 1})) {
    const Tensor z = (x - x.gather(1, t) + margin).clamp_min(0);
    is_target = at::arange(x.size(1), t.options()).unsqueeze(0).eq(t);
    excess = at::where(is_target, at::zeros_like(z), z);
    if (given(weight)) scale = weight->index_select(0, t.reshape({-1})).unsqueeze(1);
  }
  Tensor weighted(const Tensor& v) const { return scale.defined() ? v * scale : v; }
  Tensor x, t, is_target, excess, scale;
};

Tensor multi_margin_loss(const Tensor& self, const Tensor& target, const at::Scalar& p,
                         const at::Scalar& margin, const OptionalTensor& weight, int64_t reduction) {
  if (self.numel() == 0)
    return at::zeros(reduction == at::Reduction::None ? target.sizes() : at::IntArrayRef(), self.options());
  const Margin m(self, target, margin, weight);
  const Tensor loss = m.weighted(p.toDouble() == 1 ? m.excess : m.excess * m.excess).mean(1);
  return reduced(loss.reshape(target.sizes()), reduction);
}

Tensor multi_margin_loss_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                                  const at::Scalar& p, const at::Scalar& margin, const OptionalTensor& weight,
                                  int64_t reduction) {
  if (self.numel() == 0) return at::zeros_like(self);
  const Margin m(self, target, margin, weight);
  Tensor slope = m.weighted(p.toDouble() == 1 ? m.excess.gt(0).to(self.scalar_type()) : m.excess * 2);
  slope = at::where(m.is_target, -slope.sum(1, true), slope);
  const auto rows = static_cast<double>(m.x.size(0)), classes = static_cast<double>(m.x.size(1));
  slope = slope / (reduction == at::Reduction::Mean ? rows * classes : classes);
  return (slope * grad.reshape({-1, 1})).reshape(self.sizes());
}

// Targets are the labels before the first -1.
struct Labels {
  Labels(const Tensor& self, const Tensor& target)
      : x(self.dim() == 2 ? self : self.reshape({1, -1})), t(target.reshape(x.sizes())) {
    const Tensor valid = t.ge(0).to(at::kInt).cumprod(1).ne(0);
    label = zero_unless(valid, t).to(at::kLong);
    const Tensor mark = valid.to(self.scalar_type());
    is_target = at::zeros_like(x).scatter_add(1, label, mark).gt(0);
    // [row, label, class]
    const Tensor z = (x.unsqueeze(1) - x.gather(1, label).unsqueeze(2) + 1).clamp_min(0);
    excess = zero_unless(valid.unsqueeze(2).logical_and(is_target.unsqueeze(1).logical_not()), z);
  }
  Tensor x, t, label, is_target, excess;
};

std::tuple<Tensor, Tensor> multilabel_margin_loss_forward(const Tensor& self, const Tensor& target,
                                                          int64_t reduction) {
  if (self.numel() == 0)
    return {at::zeros(reduction == at::Reduction::None && self.dim() == 2
                          ? at::IntArrayRef(self.sizes().data(), 1)
                          : at::IntArrayRef(),
                      self.options()),
            at::zeros(target.sizes(), self.options())};
  const Labels l(self, target);
  const Tensor loss = l.excess.sum(at::IntArrayRef{1, 2}) / static_cast<double>(l.x.size(1));
  const bool single = self.dim() < 2;
  return {reduced(single ? loss.reshape({}) : loss, reduction),
          l.is_target.to(self.scalar_type()).reshape(target.sizes())};
}

Tensor multilabel_margin_loss_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                                       int64_t reduction, const Tensor& /*is_target*/) {
  if (self.numel() == 0) return at::zeros_like(self);
  const Labels l(self, target);
  const Tensor slope = l.excess.gt(0).to(self.scalar_type());
  const Tensor sum = slope.sum(1).scatter_add(1, l.label, -slope.sum(2));
  const auto rows = static_cast<double>(l.x.size(0)), classes = static_cast<double>(l.x.size(1));
  return (sum * grad.reshape({-1, 1}) / (reduction == at::Reduction::Mean ? rows * classes : classes))
      .reshape(self.sizes());
}

// ---- distances between the rows of one matrix
// ---------------------------------------------------------------------
struct Pairs {
  explicit Pairs(const Tensor& self) {
    const Tensor both = at::triu_indices(self.size(0), self.size(0), 1, self.options().dtype(at::kLong));
    first = both.select(0, 0).contiguous();
    second = both.select(0, 1).contiguous();
    difference = self.index_select(0, first) - self.index_select(0, second);
  }
  Tensor first, second, difference;
};

Tensor pdist(const Tensor& self, double p) {
  if (self.size(0) < 2) return at::empty({0}, self.options());
  if (self.size(1) == 0) return at::zeros({self.size(0) * (self.size(0) - 1) / 2}, self.options());
  return at::linalg_vector_norm(Pairs(self).difference, p, 1);
}

Tensor pdist_backward(const Tensor& grad, const Tensor& self, double p, const Tensor& distance) {
  if (self.numel() == 0 || self.size(0) < 2 || p == 0) return at::zeros_like(self);
  const Pairs pairs(self);
  const Tensor &d = pairs.difference, size = d.abs(), norm = distance.unsqueeze(1), g = grad.unsqueeze(1);
  Tensor slope;
  if (p == 1)
    slope = g * d.sign();
  else if (p == kInf)
    slope = g * d.sign() * size.eq(norm).to(d.scalar_type());
  else
    slope = zero_unless(norm.ne(0).logical_and(d.ne(0)),
                        p == 2 ? g * d / norm : g * d.sign() * (size / norm).pow(p - 1));
  return at::zeros_like(self).index_add(0, pairs.first, slope).index_add(0, pairs.second, -slope);
}

// ---- noise
// ----------------------------------------------------------------------------------------------------------
Tensor noisy_rrelu(const Tensor& self, Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
                   bool training, std::optional<at::Generator> generator) {
  TORCH_CHECK(self.sym_sizes() == noise.sym_sizes() || !training,
              "rrelu_with_noise: noise tensor shape must match self");
  if (!training) return at::leaky_relu(self, (lower.toDouble() + upper.toDouble()) / 2);
  const Tensor slope =
      at::empty_like(self).uniform_(lower.toDouble(), upper.toDouble(), std::move(generator));
  noise.copy_(at::where(self.le(0), slope, at::ones_like(slope)));
  return self * noise;
}

Tensor& rrelu_with_noise_(Tensor& self, Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
                          bool training, std::optional<at::Generator> generator) {
  return self.copy_(noisy_rrelu(self, noise, lower, upper, training, std::move(generator)));
}

Tensor scaled_normal(const Tensor& like, const Tensor& mean, const Tensor& std, at::IntArrayRef sizes,
                     std::optional<at::Generator> generator) {
  TORCH_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  if (std.numel() > 0) TORCH_CHECK(std.min().ge(0).item<bool>(), "normal expects all elements of std >= 0.0");
  return at::empty(sizes, like.options())
      .normal_(0, 1, std::move(generator))
      .mul(std)
      .add(mean)
      .to(like.scalar_type());
}

Tensor normal_mean(const Tensor& mean, double std, std::optional<at::Generator> generator) {
  TORCH_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
  return at::empty(mean.sizes(), mean.options()).normal_(0, std, std::move(generator)).add(mean);
}

Tensor normal_std(double mean, const Tensor& std, std::optional<at::Generator> generator) {
  return scaled_normal(std, at::full({}, mean, std.options()), std, std.sizes(), std::move(generator));
}

Tensor normal_both(const Tensor& mean, const Tensor& std, std::optional<at::Generator> generator) {
  return scaled_normal(mean, mean, std, at::infer_size(mean.sizes(), std.sizes()), std::move(generator));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("embedding_renorm_", &embedding_renorm_);
  m.impl("_ctc_loss.Tensor", &ctc_loss_tensor);
  m.impl("_ctc_loss_backward.Tensor", &ctc_loss_backward_tensor);
  m.impl("rrelu_with_noise_", &rrelu_with_noise_);
}

}  // namespace

Composites nn_composites() {
  return {composite("aten::_embedding_bag", &embedding_bag),
          composite("aten::_embedding_bag_forward_only", &embedding_bag),
          composite("aten::_embedding_bag_backward", &embedding_bag_backward),
          composite("aten::_embedding_bag_per_sample_weights_backward", &embedding_bag_weights_backward),
          composite("aten::segment_reduce", &segment_reduce, {.trial = Trial::kNone}),
          composite("aten::_segment_reduce_backward", &segment_reduce_backward, {.trial = Trial::kNone}),
          composite("aten::_scaled_mm_v2", &scaled_mm),
          composite("aten::_ctc_loss", &ctc_loss),
          composite("aten::_ctc_loss_backward", &ctc_loss_backward),
          composite("aten::multi_margin_loss", &multi_margin_loss),
          composite("aten::multi_margin_loss_backward", &multi_margin_loss_backward),
          composite("aten::multilabel_margin_loss_forward", &multilabel_margin_loss_forward),
          composite("aten::multilabel_margin_loss_backward", &multilabel_margin_loss_backward),
          composite("aten::_pdist_forward", &pdist),
          composite("aten::_pdist_backward", &pdist_backward),
          composite("aten::rrelu_with_noise", &noisy_rrelu),
          composite("aten::normal.Tensor_float", &normal_mean),
          composite("aten::normal.float_Tensor", &normal_std),
          composite("aten::normal.Tensor_Tensor", &normal_both)};
}

}  // namespace trnsim::aten
