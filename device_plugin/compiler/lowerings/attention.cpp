// Scaled dot-product attention and its gradients.
#include <cmath>

#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler {
namespace {

// query, key, value and attn_bias from argument `first` on.
AttentionKernel operands(LowerContext& c, int first, int dropout, int causal, int scale) {
  if (c.constant_or_refuse(dropout, "dropout_p") != 0)
    throw_unsupported("attention with dropout in one kernel");
  AttentionKernel k;
  k.q = c.in(first);
  k.k = c.in(first + 1);
  k.v = c.in(first + 2);
  if (k.q.sizes.size() != 4 || k.k.sizes.size() != 4 || k.v.sizes.size() != 4)
    throw_unsupported("attention of tensors that are not [batch, heads, tokens, width]");
  if (!c.is_none(first + 3)) {
    k.mask = view_expanded(c.in(first + 3), {k.q.sizes[0], k.q.sizes[1], k.q.sizes[2], k.k.sizes[2]});
  }
  if (c.flag(causal)) k.ahead = 0;
  k.scale = c.is_none(scale) ? 1 / std::sqrt(static_cast<double>(k.q.sizes[3]))
                             : c.constant_or_refuse(scale, "scale");
  return k;
}

// (query, key, value, attn_bias, dropout_p, is_causal, return_debug_mask, scale) -> (output, logsumexp, ...)
void lower_attention(LowerContext& c) {
  AttentionKernel k = operands(c, 0, 4, 5, 7);
  k.out = c.out(0);
  if (c.wanted(1)) k.lse = c.out(1);
  c.emit(std::move(k));
}

// (grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k,
//  dropout_p, is_causal, philox_seed, philox_offset, scale) -> (query, key, value, attn_bias)
void lower_attention_backward(LowerContext& c) {
  AttentionGradKernel k;
  k.forward = operands(c, 1, 12, 13, 16);
  k.forward.out = c.in(6);
  k.forward.lse = c.in(7);
  k.grad_out = c.in(0);
  if (c.wanted(0)) k.grad_q = c.out(0);
  if (c.wanted(1)) k.grad_k = c.out(1);
  if (c.wanted(2)) k.grad_v = c.out(2);
  if (c.wanted(3)) throw_unsupported("the gradient of an attention mask");
  c.emit(std::move(k));
}

TRNSIM_LOWER("aten::_scaled_dot_product_fused_attention_overrideable", lower_attention,
             const_arg(4) | const_arg(7));
TRNSIM_LOWER("aten::_scaled_dot_product_fused_attention_overrideable_backward", lower_attention_backward,
             const_arg(12) | const_arg(16));

}  // namespace
}  // namespace trnsim::compiler
