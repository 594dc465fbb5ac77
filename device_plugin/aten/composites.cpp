// Operators that PyTorch expects every accelerator to bring, made of operators with programs. PyTorch's own recurrent
// layers call the fused cells on devices like this one.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/norm_except_dim.h>
#include <ATen/ops/one_hot_native.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <array>
#include <tuple>
#include <vector>

#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor biased(const Tensor& gates, const OptionalTensor& bias) { return given(bias) ? gates + *bias : gates; }

Tensor sum_of_batch(const Tensor& grad, bool wanted) { return wanted ? grad.sum(0) : Tensor(); }

// Derivatives of sigmoid and tanh by their own value.
Tensor sigmoid_slope(const Tensor& y) { return (1 - y) * y; }
Tensor tanh_slope(const Tensor& y) { return 1 - y * y; }

// The workspace holds the gates i, f, g, o behind their functions.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cx, const OptionalTensor& input_bias,
                                             const OptionalTensor& hidden_bias) {
  const Tensor gates = biased(input_gates, input_bias) + biased(hidden_gates, hidden_bias);
  const auto parts = gates.chunk(4, 1);
  const Tensor i = parts[0].sigmoid(), f = parts[1].sigmoid(), g = parts[2].tanh(), o = parts[3].sigmoid();
  Tensor cy = f * cx + i * g;
  Tensor hy = o * cy.tanh();
  return {hy, cy, at::cat({i, f, g, o}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy,
                                                      const OptionalTensor& grad_cy, const Tensor& cx,
                                                      const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  if (!given(grad_hy) && !given(grad_cy)) return {};
  const auto gates = workspace.chunk(4, 1);
  const Tensor &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  const Tensor c = cy.tanh();
  const Tensor grad_h = given(grad_hy) ? *grad_hy : at::zeros_like(cy);
  Tensor grad_c = grad_h * o * tanh_slope(c);
  if (given(grad_cy)) grad_c = grad_c + *grad_cy;
  Tensor grad_gates = at::cat({grad_c * g * sigmoid_slope(i), grad_c * cx * sigmoid_slope(f),
                               grad_c * i * tanh_slope(g), grad_h * c * sigmoid_slope(o)},
                              1);
  return {grad_gates, grad_c * f, sum_of_batch(grad_gates, has_bias)};
}

// The workspace holds r, z, n, hx and the hidden part of n.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto in = biased(input_gates, input_bias).chunk(3, 1);
  const auto hidden = biased(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor r = (in[0] + hidden[0]).sigmoid(), z = (in[1] + hidden[1]).sigmoid();
  const Tensor n = (in[2] + r * hidden[2]).tanh();
  Tensor hy = n + z * (hx - n);
  return {hy, at::cat({r, z, n, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy,
                                                                     const Tensor& workspace, bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const Tensor &r = saved[0], &z = saved[1], &n = saved[2], &hx = saved[3], &hidden_n = saved[4];
  const Tensor grad_z = grad_hy * (hx - n) * sigmoid_slope(z);
  const Tensor grad_n = grad_hy * (1 - z) * tanh_slope(n);
  const Tensor grad_r = grad_n * hidden_n * sigmoid_slope(r);
  Tensor grad_input = at::cat({grad_r, grad_z, grad_n}, 1);
  Tensor grad_hidden = at::cat({grad_r, grad_z, grad_n * r}, 1);
  return {grad_input, grad_hidden, grad_hy * z, sum_of_batch(grad_input, has_bias),
          sum_of_batch(grad_hidden, has_bias)};
}

// Of _batch_norm_with_update, whose saved statistics are float32 here for every type.
std::tuple<Tensor, Tensor, Tensor> batch_norm_backward(
    const Tensor& grad_out, const Tensor& input, const Tensor& weight, const OptionalTensor& running_mean,
    const OptionalTensor& running_var, const OptionalTensor& save_mean, const OptionalTensor& save_var,
    bool update, double eps, std::array<bool, 3> output_mask, const Tensor& /*reserve*/) {
  return at::native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean,
                                        save_var, update, eps, output_mask);
}

// Where the number of classes comes from the values, they are read anyway. A number that is given stands, and the
// program checks the values.
Tensor one_hot(const Tensor& self, int64_t num_classes) {
  if (num_classes == -1 && self.numel() > 0)
    TORCH_CHECK(self.min().item<int64_t>() >= 0, "Class values must be non-negative.");
  return at::native::one_hot(self, num_classes);
}

// The norm of every slice along `dim`, which is the first or the last.
std::tuple<Tensor, Tensor> weight_norm(const Tensor& v, const Tensor& g, int64_t dim) {
  const bool half = v.scalar_type() == at::kHalf || v.scalar_type() == at::kBFloat16;
  Tensor norms = at::norm_except_dim(half ? v.to(at::kFloat) : v, 2, dim);
  return {(v * (g / norms)).to(v.scalar_type()), norms};
}

std::tuple<Tensor, Tensor> weight_norm_backward(const Tensor& grad_w, const Tensor& v, const Tensor& g,
                                                const Tensor& norms, int64_t dim) {
  const int64_t rank = v.dim();
  std::vector<int64_t> others;
  for (int64_t d = 0; d < rank; ++d)
    if (d != (dim + rank) % rank) others.push_back(d);
  const Tensor product = grad_w.to(norms.scalar_type()) * v;
  const Tensor along = others.empty() ? product : product.sum(others, /*keepdim=*/true);
  const Tensor grad_g = along / norms;
  const Tensor grad_v = g / norms * (grad_w - v * (grad_g / norms));
  return {grad_v.to(v.scalar_type()), grad_g.to(g.scalar_type())};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
  m.impl("batch_norm_backward", &batch_norm_backward);
  m.impl("one_hot", &one_hot);
  m.impl("_weight_norm_interface", &weight_norm);
  m.impl("_weight_norm_interface_backward", &weight_norm_backward);
}

}  // namespace trnsim::aten
