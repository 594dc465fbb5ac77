"""Attention in graphs: PyTorch's operator for this device returns numbers and random states beside tensors, which a
program cannot. Graphs hold the kernels behind it instead, ``trnsim::attention`` and ``trnsim::attention_backward``."""

import math

import torch

_FUSED = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default
_FUSED_BACKWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward.default


def _scale_of(query, scale):
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _attention(
    query, key, value, attn_bias=None, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None
):  # fmt: skip
    if dropout_p or return_debug_mask:
        return NotImplemented  # refused by the operator itself
    out, logsumexp = torch.ops.trnsim.attention(query, key, value, attn_bias, is_causal, _scale_of(query, scale))
    return out, logsumexp, None, None, query.shape[2], key.shape[2], None, None, None


def _attention_backward(
    grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k,
    dropout_p, is_causal, philox_seed, philox_offset, *, scale=None,
):  # fmt: skip
    if dropout_p or (grad_input_mask[3] and attn_bias is not None):
        return NotImplemented
    grads = torch.ops.trnsim.attention_backward(
        grad_out, query, key, value, attn_bias, out, logsumexp, is_causal, _scale_of(query, scale)
    )
    return *grads, None


def decompositions():
    return {_FUSED: _attention, _FUSED_BACKWARD: _attention_backward}
