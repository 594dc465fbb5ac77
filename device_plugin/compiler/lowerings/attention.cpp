// Scaled dot-product attention and its gradients, under names of our own: PyTorch's operators return more than tensors.
#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler {
namespace {

// query, key, value and mask from argument `first` on.
AttentionKernel operands(LowerContext& c, int first, int causal, int rounds) {
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
  k.round_scores = c.flag(rounds);
  k.scale = c.constant_or_refuse(causal + 1, "scale");
  return k;
}

// (query, key, value, mask, is_causal, scale, blind_is_nan, round_scores) -> (output, logsumexp)
void lower_attention(LowerContext& c) {
  AttentionKernel k = operands(c, 0, 4, 7);
  k.blind_is_nan = c.flag(6);
  k.out = c.out(0);
  if (c.wanted(1)) k.lse = c.out(1);
  c.emit(std::move(k));
}

// (grad_out, query, key, value, mask, output, logsumexp, is_causal, scale, round_scores) -> (query, key, value)
void lower_attention_backward(LowerContext& c) {
  AttentionGradKernel k;
  k.forward = operands(c, 1, 7, 9);
  k.forward.out = c.in(5);
  k.forward.lse = c.in(6);
  k.grad_out = c.in(0);
  if (c.wanted(0)) k.grad_q = c.out(0);
  if (c.wanted(1)) k.grad_k = c.out(1);
  if (c.wanted(2)) k.grad_v = c.out(2);
  c.emit(std::move(k));
}

TRNSIM_LOWER("trnsim::attention", lower_attention, const_arg(5));
TRNSIM_LOWER("trnsim::attention_backward", lower_attention_backward, const_arg(8));

}  // namespace
}  // namespace trnsim::compiler
