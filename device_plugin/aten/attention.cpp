#include "device_plugin/aten/attention.h"

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

using Attention = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                             const OptionalTensor&, bool, double, bool, bool);
using AttentionBackward = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                             const Tensor&, const OptionalTensor&,
                                                             const Tensor&, const Tensor&, bool, double,
                                                             bool);

// The result has the order of the query's axes in memory: heads next to each other stay so.
std::tuple<Tensor, Tensor> attention_shape(const Tensor& query, const Tensor& key, const Tensor& value,
                                           const OptionalTensor& mask, bool causal, double scale,
                                           bool blind_is_nan, bool round_scores) {
  const bool tokens_first = query.sym_stride(1) < query.sym_stride(2);
  const c10::SymInt b = query.sym_size(0), h = query.sym_size(1), n = query.sym_size(2),
                    e = value.sym_size(3);
  const Tensor out = tokens_first ? at::empty_symint({b, n, h, e}, query.options()).transpose(1, 2)
                                  : at::empty_symint({b, h, n, e}, query.options());
  return {out, at::empty_symint({b, h, n}, query.options().dtype(at::kFloat))};
}

std::tuple<Tensor, Tensor, Tensor> attention_backward_shape(const Tensor& grad_out, const Tensor& query,
                                                            const Tensor& key, const Tensor& value,
                                                            const OptionalTensor& mask, const Tensor& out,
                                                            const Tensor& logsumexp, bool causal,
                                                            double scale, bool round_scores) {
  return {at::empty_like(query), at::empty_like(key), at::empty_like(value)};
}

double scale_of(const Tensor& query, std::optional<double> scale) {
  return scale ? *scale : 1 / std::sqrt(static_cast<double>(query.size(-1)));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> fused_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& bias, double dropout_p,
    bool causal, bool return_debug_mask, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(dropout_p == 0 && !return_debug_mask,
                              "not simulated: _scaled_dot_product_fused_attention_overrideable has no "
                              "dropout on neuron; select the math "
                              "backend.");
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("trnsim::attention", "").typed<Attention>();
  auto [out, lse] = op.call(query, key, value, bias, causal, scale_of(query, scale), false, false);
  // No dropout, no random state.
  const Tensor none = at::empty({}, query.options().dtype(at::kLong));
  return {out, lse, Tensor(), Tensor(), query.sym_size(2), key.sym_size(2), none, none, Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> fused_attention_backward(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
    std::array<bool, 4> wanted, const Tensor& out, const Tensor& logsumexp, const Tensor& cum_seq_q,
    const Tensor& cum_seq_k, c10::SymInt max_q, c10::SymInt max_k, double dropout_p, bool causal,
    const Tensor& philox_seed, const Tensor& philox_offset, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !(wanted[3] && bias.defined()),
      "not simulated: the gradient of an attention mask on neuron; select the math backend.");
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("trnsim::attention_backward", "")
                             .typed<AttentionBackward>();
  auto [q, k, v] =
      op.call(grad_out, query, key, value, bias.defined() ? OptionalTensor(bias) : OptionalTensor(), out,
              logsumexp, causal, scale_of(query, scale), false);
  return {q, k, v, Tensor()};
}

// Nothing while a trace knows sizes as symbols only.
std::optional<std::vector<int64_t>> known_sizes(const Tensor& t) {
  std::vector<int64_t> sizes;
  for (const c10::SymInt& size : t.sym_sizes()) {
    const std::optional<int64_t> known = size.maybe_as_int();
    if (!known) return std::nullopt;
    sizes.push_back(*known);
  }
  return sizes;
}

// Where the kernels of attention can serve scaled_dot_product_attention; the rest takes PyTorch's composition of
// products and a softmax.
bool can_fuse(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& mask,
              double dropout_p, bool grouped) {
  constexpr int64_t kMaxWidth = 512, kMaxTokensTimesWidth = int64_t{1} << 21;
  if (dropout_p != 0 || query.is_nested()) return false;
  const auto type = query.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf) return false;
  if (key.scalar_type() != type || value.scalar_type() != type) return false;
  const auto known_q = known_sizes(query), known_k = known_sizes(key), known_v = known_sizes(value);
  if (!known_q || !known_k || !known_v) return false;
  const std::vector<int64_t>&q = *known_q, &k = *known_k, &v = *known_v;
  if (q.size() != 4 || k.size() != 4 || v.size() != 4) return false;
  if (q[0] != k[0] || q[0] != v[0] || q[3] != k[3]) return false;
  if (k[1] != v[1] || k[2] != v[2] || k[1] == 0) return false;
  if (q[1] != k[1] && !(grouped && q[1] % k[1] == 0)) return false;
  for (const auto* sizes : {&q, &k, &v}) {
    if (std::count(sizes->begin(), sizes->end(), 0) != 0) return false;
  }
  const int64_t width = std::max(q[3], v[3]);
  if (width > kMaxWidth) return false;
  if (given(mask) && (mask->requires_grad() || mask->dim() > 4)) return false;
  // The gradients of a head are summed up on the chip.
  const bool trains =
      at::GradMode::is_enabled() && (query.requires_grad() || key.requires_grad() || value.requires_grad());
  return !trains || std::max(q[2], 2 * k[2]) * width <= kMaxTokensTimesWidth;
}

// Tensors that Python dispatches, but for those of a trace, may know PyTorch's composition only (DTensor).
bool knows_fused_operator(const Tensor& t) {
  using c10::DispatchKey;
  using c10::impl::TorchDispatchModeKey, c10::impl::TorchDispatchModeTLS;
  return !t.key_set().has(DispatchKey::Python) || t.key_set().has(DispatchKey::Functionalize) ||
         TorchDispatchModeTLS::get_mode(TorchDispatchModeKey::FAKE).has_value();
}

int64_t choose(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& mask,
               double dropout_p, bool causal, std::optional<double> scale, bool grouped) {
  const at::Context& context = at::globalContext();
  const bool fuse = context.userEnabledOverrideableSDP() && knows_fused_operator(query) &&
                    can_fuse(query, key, value, mask, dropout_p, grouped);
  if (!fuse && !context.userEnabledMathSDP()) return static_cast<int64_t>(at::SDPBackend::error);
  return static_cast<int64_t>(fuse ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

}  // namespace

void define_attention() {
  static auto* schemas = new torch::Library(torch::Library::DEF, "trnsim", std::nullopt, __FILE__, __LINE__);
  schemas->def(
      "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool is_causal, float scale, "
      "bool blind_is_nan=False, bool round_scores=False) -> (Tensor, Tensor)");
  schemas->def(
      "attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor out, "
      "Tensor "
      "logsumexp, bool is_causal, float scale, bool round_scores=False) -> (Tensor, Tensor, Tensor)");
  static auto* shapes =
      new torch::Library(torch::Library::IMPL, "trnsim", c10::DispatchKey::Meta, __FILE__, __LINE__);
  shapes->impl("attention", &attention_shape);
  shapes->impl("attention_backward", &attention_backward_shape);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable", &fused_attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", &fused_attention_backward);
}

}  // namespace trnsim::aten

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &trnsim::aten::choose)
}  // namespace at::native
