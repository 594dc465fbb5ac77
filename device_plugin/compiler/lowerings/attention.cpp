// Scaled dot-product attention.
#include <cmath>

#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler {
namespace {

// (query, key, value, attn_bias, dropout_p, is_causal, return_debug_mask, scale)
//   -> (output, logsumexp, cum_seq_q, cum_seq_k, philox_seed, philox_offset, debug_attn_mask)
void lower_attention(LowerContext& c) {
  if (c.constant_or_refuse(4, "dropout_p") != 0) throw_unsupported("attention with dropout in one kernel");
  AttentionKernel k;
  k.q = c.in(0);
  k.k = c.in(1);
  k.v = c.in(2);
  if (!c.is_none(3))
    k.mask = view_expanded(c.in(3), {k.q.sizes[0], k.q.sizes[1], k.q.sizes[2], k.k.sizes[2]});
  if (c.flag(5)) k.ahead = 0;
  k.scale =
      c.is_none(7) ? 1 / std::sqrt(static_cast<double>(k.q.sizes[3])) : c.constant_or_refuse(7, "scale");
  k.out = c.out(0);
  if (c.wanted(1)) k.lse = c.out(1);
  c.emit(std::move(k));
}

TRNSIM_LOWER("aten::_scaled_dot_product_fused_attention_overrideable", lower_attention,
             const_arg(4) | const_arg(7));

}  // namespace
}  // namespace trnsim::compiler
