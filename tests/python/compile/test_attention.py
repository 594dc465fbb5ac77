"""Attention in compiled graphs: forward and gradients are its kernels, with the numbers of eager execution."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

# By type: against eager execution, which runs the same kernels, and against the CPU.
TOLERANCES = {torch.float32: (1e-5, 1e-4), torch.bfloat16: (2e-2, 3e-2)}


@pytest.fixture
def kernels(monkeypatch, tmp_path):
    """Names of the kernels, after fusion, of the programs graph.KIND. A program that the process has made is not made
    again: sizes differ from test to test."""
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))

    def names(kind):
        texts = [f.read_text() for f in tmp_path.glob(f"graph.{kind}*.fused.txt")]
        return [name for text in texts for name in re.findall(r"^  (\w+)", text, re.MULTILINE)]

    return names


def operands(dtype, heads=2, key_heads=2, queries=77, keys=77, width=40, value_width=None):
    draw = torch.Generator().manual_seed(queries + keys)
    sizes = [(heads, queries, width), (key_heads, keys, width), (key_heads, keys, value_width or width)]
    return [torch.randn(2, *s, generator=draw).to(dtype) for s in sizes]


def step(function, tensors, device):
    """The result and the gradients of all operands."""
    leaves = [t.detach().to(device).requires_grad_() for t in tensors]
    out = function(*leaves)
    weight = torch.linspace(-1, 1, out.numel(), device=device).reshape(out.shape).to(out.dtype)
    (out * weight).sum().backward()
    return [t.detach().cpu().float() for t in (out, *(leaf.grad for leaf in leaves))]


def compare(function, tensors):
    """Compiled, forward and backward, against eager execution and the CPU."""
    got = step(torch.compile(function, backend="neuron", fullgraph=True), tensors, "neuron")
    for device, tolerance in zip(("neuron", "cpu"), TOLERANCES[tensors[0].dtype], strict=True):
        for a, b in zip(got, step(function, tensors, device), strict=True):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    metrics = torch.neuron.get_dynamo_metrics()
    assert metrics["programs"] == 2 and metrics["host_steps"] == 0, metrics


def holds_the_kernels(kernels):
    forward, backward = kernels("forward"), kernels("backward")
    return "attention" in forward and "attention_grad" in backward and "dot" not in forward + backward


# ---- scaled_dot_product_attention
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [{}, {"heads": 4}, {"queries": 130, "keys": 300, "width": 16, "value_width": 24}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients(dtype, sizes, causal, kernels):
    grouped = sizes.get("heads", 2) != 2

    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    compare(f, operands(dtype, **sizes))
    assert holds_the_kernels(kernels)


@pytest.mark.parametrize(("kind", "queries"), [("bool", 20), ("float", 21), ("padding", 22)])
def test_masks(kind, queries, kernels):
    draw = torch.Generator().manual_seed(3)
    mask = torch.randn(2, 1, queries, 30, generator=draw)
    if kind == "bool":
        mask = mask > -0.5
    elif kind == "padding":
        mask = torch.where(torch.arange(30)[None] < 25, 0.0, float("-inf"))

    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.device), scale=0.3)

    compare(f, operands(torch.float32, queries=queries, keys=30, width=8))
    assert holds_the_kernels(kernels)


def test_projections_that_share_a_tensor(kernels):
    # As a model has them: one product, its parts seen as heads, and the result viewed back without a copy.
    def f(x):
        q, k, v = x.view(2, 24, 3, 4, 8).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 24, 32)

    compare(f, [torch.randn(2, 24, 96, generator=torch.Generator().manual_seed(0))])
    assert holds_the_kernels(kernels)


def test_inference(kernels):
    q, k, v = (t.to("neuron") for t in operands(torch.bfloat16))

    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    assert torch.equal(torch.compile(f, backend="neuron", fullgraph=True)(q, k, v), f(q, k, v))
    assert kernels("inference") == ["attention"]


def test_checkpoint(kernels):
    def f(q, k, v):
        return torch.utils.checkpoint.checkpoint(
            F.scaled_dot_product_attention, q.sin(), k, v, is_causal=True, use_reentrant=False
        )

    compare(f, operands(torch.float32))
    assert "attention_grad" in kernels("backward")


def test_sizes_that_change(kernels):
    # Dynamo makes the number of tokens a symbol at the second length, and a number again.
    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    compiled = torch.compile(f, backend="neuron", fullgraph=True)
    for tokens in (10, 20, 30):
        tensors = operands(torch.float32, queries=tokens, keys=tokens, width=8)
        for a, b in zip(step(compiled, tensors, "neuron"), step(f, tensors, "neuron"), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert kernels("backward").count("attention_grad") == 3


def without_kernels(f, tensors, kernels):
    compare(f, tensors)
    return not {"attention", "attention_grad"} & {*kernels("forward"), *kernels("backward")}


def test_a_mask_that_learns_takes_the_composition(kernels):
    def f(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    draw = torch.Generator().manual_seed(0)
    tensors = [*operands(torch.float32, queries=10, keys=10), torch.randn(10, 10, generator=draw)]
    assert without_kernels(f, tensors, kernels)


def test_the_composition_can_be_chosen(kernels):
    def f(q, k, v):
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v)

    assert without_kernels(f, operands(torch.float32), kernels)


def test_dropout_takes_the_composition(kernels):
    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    q, k, v = (t.to("neuron").requires_grad_() for t in operands(torch.float32))
    torch.neuron.manual_seed(5)
    expected = f(q, k, v)
    torch.neuron.manual_seed(5)
    actual = torch.compile(f, backend="neuron", fullgraph=True)(q, k, v)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    actual.sum().backward()
    assert "attention" not in kernels("forward")
