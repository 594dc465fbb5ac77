"""scaled_dot_product_attention against the CPU: values and gradients by the attention kernels, and what they leave."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import trnsim


def programs():
    return {p["name"] for p in trnsim.report()["programs"]}


def uses_kernels(names):
    return any("trnsim::attention" in n for n in names)


def operands(batch, heads, key_heads, queries, keys, width, dtype):
    generator = torch.Generator().manual_seed(queries + keys)
    shapes = [(batch, heads, queries, width), (batch, key_heads, keys, width), (batch, key_heads, keys, width)]
    return [torch.randn(s, generator=generator).to(dtype) for s in shapes]


def run(tensors, device, **options):
    q, k, v = (t.detach().to(device).requires_grad_() for t in tensors)
    options = {n: o.to(device) if isinstance(o, torch.Tensor) else o for n, o in options.items()}
    out = F.scaled_dot_product_attention(q, k, v, enable_gqa=q.size(1) != k.size(1), **options)
    weight = torch.linspace(-1, 1, out.numel(), device=device).reshape(out.shape).to(out.dtype)
    (out * weight).sum().backward()
    return [t.detach().cpu().float() for t in (out, q.grad, k.grad, v.grad)]


def compare(tensors, tolerance, **options):
    trnsim.reset_report()
    got = run(tensors, "neuron", **options)
    names = programs()
    for a, b in zip(got, run(tensors, "cpu", **options), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    return names


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_values_and_gradients(dtype, causal):
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    assert uses_kernels(compare(operands(2, 4, 2, 33, 33, 16, dtype), tolerance, is_causal=causal))


def test_several_tiles():
    assert uses_kernels(compare(operands(1, 2, 2, 140, 600, 32, torch.float32), 1e-5))


@pytest.mark.parametrize("kind", ["bool", "float", "padding", "blind"])
def test_masks(kind):
    q, k, v = operands(2, 2, 2, 20, 30, 8, torch.float32)
    mask = torch.randn(2, 1, 20, 30)
    if kind == "bool":
        mask = mask > -0.5
    elif kind == "padding":
        mask = torch.where(torch.arange(30)[None] < 25, 0.0, float("-inf"))
    elif kind == "blind":  # the first query sees nothing: its row is zero
        mask = mask > -0.5
        mask[:, :, 0] = False
    assert uses_kernels(compare((q, k, v), 1e-5, attn_mask=mask))


def test_transposed_projections():
    # As a model has them: [batch, tokens, heads * width] seen as heads; the result can be viewed back.
    x = torch.randn(2, 24, 4 * 8)
    heads = [x.view(2, 24, 4, 8).transpose(1, 2)] * 3
    out = F.scaled_dot_product_attention(*(h.to("neuron") for h in heads), is_causal=True)
    expected = F.scaled_dot_product_attention(*heads, is_causal=True)
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-5, atol=1e-5)
    assert out.transpose(1, 2).reshape(2, 24, 32).shape == (2, 24, 32)


def test_what_the_kernels_do_not_serve_takes_the_math_path():
    q, k, v = (t.to("neuron") for t in operands(1, 2, 2, 10, 10, 8, torch.float32))
    trnsim.reset_report()
    with sdpa_kernel(SDPBackend.MATH):
        math = F.scaled_dot_product_attention(q, k, v)
    mask = torch.zeros(10, 10, device="neuron", requires_grad=True)
    F.scaled_dot_product_attention(q, k, v, attn_mask=mask).sum().backward()
    assert mask.grad is not None
    F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert not uses_kernels(programs())
    torch.testing.assert_close(math.cpu(), F.scaled_dot_product_attention(q, k, v).cpu(), rtol=1e-5, atol=1e-5)


def test_dropout_is_refused_by_the_kernel_itself():
    q, k, v = (t.to("neuron") for t in operands(1, 1, 1, 4, 4, 8, torch.float32))
    with pytest.raises(NotImplementedError, match="has no dropout on neuron; select the math backend"):
        torch.ops.aten._scaled_dot_product_fused_attention_overrideable(q, k, v, None, 0.5)
