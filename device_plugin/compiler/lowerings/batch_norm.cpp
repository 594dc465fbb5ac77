// Batch norm: rows are channels; statistics run over the batch and the spatial axes.
#include <limits>

#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler {
namespace {

struct ChannelMap {
  ChannelMap(LowerContext& c, const std::vector<int64_t>& sizes)
      : context(c), r(sizes, dims(sizes.size())), m(c, r.domain, r.num_kept) {
    n = static_cast<double>(m.reduced_count());
  }
  ChannelMap(const ChannelMap&) = delete;
  static std::vector<int64_t> dims(size_t rank) {
    std::vector<int64_t> d{0};
    for (size_t i = 2; i < rank; ++i) d.push_back(static_cast<int64_t>(i));
    return d;
  }
  Ex full(const View& v) { return m.cast(m.input(r.full(v)), Dtype::kF32); }
  Ex channel(int arg) { return m.cast(m.row_operand(arg), Dtype::kF32); }
  Ex sum(Ex a) { return m.reduce(ReduceOp::kSum, a); }
  bool has(int result) { return context.wanted(result) && context.out_type(result).numel() > 0; }

  LowerContext& context;
  Reduction r;
  MapBuilder m;
  double n;
};

struct BatchNormArgs {
  int weight = 1, bias = 2, running_mean = 3, running_var = 4;  // -1: the overload has no such argument
  bool training = true;
  int momentum = 6, eps = 7;
  int new_mean = 3, new_var = 4;  // results with the new running statistics
};

void batch_norm(LowerContext& c, const BatchNormArgs& a) {
  View x = c.in(0);
  ChannelMap m(c, x.sizes);
  Ex v = m.full(x);
  Ex eps = m.channel(a.eps);
  bool stats = a.running_mean >= 0 && !c.is_none(a.running_mean);
  Ex mean = v, invstd = v;  // replaced below
  if (a.training) {
    mean = m.sum(v) * (1.0 / m.n);
    Ex d = v - mean;
    Ex var = m.sum(d * d) * (1.0 / m.n);
    invstd = m.m.math(ExprOp::kRsqrt, var + eps);
    if (stats) {
      Ex momentum = m.channel(a.momentum);
      Ex unbiased = var * (m.n > 1 ? m.n / (m.n - 1) : std::numeric_limits<double>::quiet_NaN());
      if (m.has(a.new_mean)) {
        Ex old = m.channel(a.running_mean);
        m.m.row_output(c.out(a.new_mean), old + momentum * (mean - old));
      }
      if (m.has(a.new_var)) {
        Ex old = m.channel(a.running_var);
        m.m.row_output(c.out(a.new_var), old + momentum * (unbiased - old));
      }
    }
  } else {
    if (!stats) c.refuse("evaluation without running statistics");
    mean = m.channel(a.running_mean);
    invstd = m.m.math(ExprOp::kRsqrt, m.channel(a.running_var) + eps);
    // the functional form returns the statistics unchanged
    if (m.has(a.new_mean) && !c.aliases(a.running_mean, a.new_mean)) m.m.row_output(c.out(a.new_mean), mean);
    if (m.has(a.new_var) && !c.aliases(a.running_var, a.new_var)) {
      m.m.row_output(c.out(a.new_var), m.channel(a.running_var));
    }
  }
  Ex y = (v - mean) * (a.weight >= 0 && !c.is_none(a.weight) ? invstd * m.channel(a.weight) : invstd);
  if (a.bias >= 0 && !c.is_none(a.bias)) y = y + m.channel(a.bias);
  m.m.output(m.r.full(c.out(0)), y);
  if (m.has(1)) m.m.row_output(c.out(1), mean);
  if (m.has(2)) m.m.row_output(c.out(2), invstd);
  m.m.emit();
}

// (input, weight, bias, running_mean, running_var, training, momentum, eps)
void lower_batch_norm(LowerContext& c) {
  BatchNormArgs a;
  a.training = c.flag(5);
  batch_norm(c, a);
}

void lower_batch_norm_no_stats(LowerContext& c) {  // (input, weight, bias, training, momentum, eps)
  BatchNormArgs a;
  a.running_mean = a.running_var = -1;
  a.training = c.flag(3);
  a.momentum = 4;
  a.eps = 5;
  batch_norm(c, a);
}

// (input, weight, bias, running_mean, running_var, momentum, eps) -> (out, save_mean, save_rstd, reserve, ..)
template <bool training>
void lower_batch_norm_update(LowerContext& c) {
  BatchNormArgs a;
  a.training = training;
  a.momentum = 5;
  a.eps = 6;
  a.new_mean = 4;
  a.new_var = 5;
  batch_norm(c, a);
}

// (grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask)
//   -> (input, weight, bias)
void lower_batch_norm_backward(LowerContext& c) {
  View g = c.in(0), x = c.in(1);
  bool train = c.flag(7);
  ChannelMap m(c, x.sizes);
  Ex gv = m.full(g);
  Ex mean = m.channel(train ? 5 : 3);
  Ex invstd = train ? m.channel(6) : m.m.math(ExprOp::kRsqrt, m.channel(4) + m.channel(8));
  Ex d = m.full(x) - mean;
  Ex scale = c.is_none(2) ? invstd : invstd * m.channel(2);
  Ex grad_bias = m.sum(gv), grad_weight = m.sum(gv * d) * invstd;
  if (c.wanted(0)) {
    // scale (g - mean(g) - xhat mean(g xhat)) with everything but g and d gathered into values per channel.
    Ex dx = scale * gv;
    if (train) dx = dx - (d * (scale * invstd * grad_weight * (1.0 / m.n)) + scale * grad_bias * (1.0 / m.n));
    m.m.output(m.r.full(c.out(0)), dx);
  }
  if (c.wanted(1)) m.m.row_output(c.out(1), grad_weight);
  if (c.wanted(2)) m.m.row_output(c.out(2), grad_bias);
  m.m.emit();
}

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::native_batch_norm", lower_batch_norm},
    {"aten::_native_batch_norm_legit", lower_batch_norm},
    {"aten::_native_batch_norm_legit_functional", lower_batch_norm},
    {"aten::_native_batch_norm_legit.no_stats", lower_batch_norm_no_stats},
    {"aten::_batch_norm_with_update", lower_batch_norm_update<true>},
    {"aten::_batch_norm_with_update_functional", lower_batch_norm_update<true>},
    {"aten::_batch_norm_no_update", lower_batch_norm_update<false>},
    {"aten::native_batch_norm_backward", lower_batch_norm_backward},
});

}  // namespace
}  // namespace trnsim::compiler
