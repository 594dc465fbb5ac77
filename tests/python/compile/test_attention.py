"""Attention in compiled graphs: forward and gradients are its kernels, with the numbers of eager execution."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

# By type: against eager execution, which runs the same kernels, and against the CPU.
TOLERANCES = {torch.float32: (1e-5, 1e-4), torch.bfloat16: (2e-2, 3e-2)}


class Kernels:
    """The kernels, after fusion, of the programs graph.KIND. A program that the process has made is not made again:
    sizes differ from test to test."""

    def __init__(self, folder):
        self.folder = folder

    def _found(self, kind, pattern):
        texts = [f.read_text() for f in self.folder.glob(f"graph.{kind}*.fused.txt")]
        return [found for text in texts for found in re.findall(pattern, text, re.MULTILINE)]

    def __call__(self, kind):
        return self._found(kind, r"^  (\w+)")

    def ahead(self, kind):
        """How many keys a query sees beyond itself, of every attention."""
        return self._found(kind, r"^  attention.* ahead (\S+)")


@pytest.fixture
def kernels(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))
    return Kernels(tmp_path)


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
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
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


# ---- attention written out
def rotated(x):
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


def causal_mask(q, k):
    return torch.full((q.size(-2), k.size(-2)), -torch.inf, device=q.device, dtype=q.dtype).triu(1)


def repeated(x, n):
    b, h, t, d = x.shape
    return x[:, :, None].expand(b, h, n, t, d).reshape(b, h * n, t, d)


def plain(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v


def rows_of_three_axes(q, k, v):
    q, k, v = q[0], k[0], v[0]
    return torch.bmm(F.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.2, dim=2), v)


def causal(q, k, v):
    scores = torch.matmul(q, k.mT) * 0.3 + causal_mask(q, k)
    return torch.matmul(F.dropout(scores.softmax(-1), 0.1, training=False), v).transpose(1, 2).flatten(2)


def causal_where(q, k, v):
    seen = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).tril()
    scores = torch.where(seen, q * 0.2 @ k.mT, torch.tensor(-torch.inf, device=q.device, dtype=q.dtype))
    return scores.softmax(-1) @ v


def causal_lowest(q, k, v):  # as transformers makes masks
    i, j = torch.arange(q.size(-2), device=q.device), torch.arange(k.size(-2), device=q.device)
    mask = torch.where(j[None] > i[:, None], torch.finfo(q.dtype).min, 0.0)[None, None].to(q.dtype)
    return F.softmax(q @ k.mT * 0.3 + mask, dim=-1, dtype=torch.float32).to(q.dtype) @ v


def grouped(q, k, v):
    k, v = repeated(k, 2), repeated(v, 2)
    return torch.softmax(q @ k.transpose(2, 3) * 0.3 + causal_mask(q, k), -1) @ v


def einsum(q, k, v):
    return torch.einsum("bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, k).div(6).softmax(-1), v)


def a_frozen_key(q, k, v):
    return torch.softmax(q * 0.2 @ k.detach().mT, -1) @ v + k


WRITTEN = {
    plain: {"queries": 78, "keys": 131},
    rows_of_three_axes: {"queries": 79},
    causal: {"queries": 80, "keys": 80},
    causal_where: {"queries": 81, "keys": 81},
    causal_lowest: {"queries": 82, "keys": 82},
    grouped: {"heads": 4, "queries": 83, "keys": 83},
    einsum: {"queries": 84, "value_width": 24},
    a_frozen_key: {"queries": 85, "keys": 85},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", WRITTEN)
def test_attention_written_out(function, dtype, kernels):
    compare(function, operands(dtype, **WRITTEN[function]))
    assert holds_the_kernels(kernels)
    if function.__name__.startswith(("causal", "grouped")):
        assert kernels.ahead("forward") == ["0"] and kernels.ahead("backward") == ["0"]


@pytest.mark.parametrize("kind", ["added", "filled", "blind"])
def test_masks_of_attention_written_out(kind, kernels):
    draw = torch.Generator().manual_seed(3)
    queries = {"added": 31, "filled": 32, "blind": 33}[kind]
    mask = torch.randn(2, 1, queries, 40, generator=draw)
    if kind == "filled":
        mask = mask > 1
    elif kind == "blind":  # the softmax of a query that sees nothing is NaN, and gradients with it
        mask[0, :, 3] = -torch.inf

    def f(q, k, v):
        scores, given = q @ k.mT * 0.3, mask.to(q.device)
        scores = scores.masked_fill(given, -torch.inf) if kind == "filled" else scores + given
        return torch.softmax(scores, -1) @ v

    compare(f, operands(torch.float32, queries=queries, keys=40, width=8))
    assert holds_the_kernels(kernels)


def test_a_checkpoint_of_attention_written_out(kernels):
    def f(q, k, v):
        return torch.utils.checkpoint.checkpoint(causal, q.sin(), k, v, use_reentrant=False)

    compare(f, operands(torch.float32, queries=86, keys=86))
    assert "attention_grad" in kernels("backward")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inference_of_attention_written_out(dtype, kernels):
    q, k, v = (t.to("neuron") for t in operands(dtype, queries=87, keys=87))
    actual = torch.compile(causal, backend="neuron", fullgraph=True)(q, k, v)
    torch.testing.assert_close(actual, causal(q, k, v), rtol=TOLERANCES[dtype][0], atol=TOLERANCES[dtype][0])
    assert kernels("inference")[0] == "attention" and kernels.ahead("inference") == ["0"]


def test_an_argument_that_is_changed_is_read_before(kernels):
    def f(q, k, v, cache):
        kept = cache.transpose(1, 2)
        out = plain(q, kept + 0 * k, v) + plain(q, kept, v)
        cache.add_(1)
        return out

    q, k, v = (t.to("neuron").requires_grad_() for t in operands(torch.float32, queries=88, keys=88))
    results = []
    for function in (f, torch.compile(f, backend="neuron", fullgraph=True)):
        cache = torch.linspace(-1, 1, 2 * 88 * 2 * 40, device="neuron").view(2, 88, 2, 40)
        q.grad = None
        function(q, k, v, cache).square().sum().backward()
        results.append((q.grad.clone(), cache))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


def read_scores(q, k, v):
    scores = q @ k.mT
    return torch.softmax(scores, -1) @ v + scores.mean()


def returned_probabilities(q, k, v):
    p = torch.softmax(q @ k.mT, -1)
    return torch.cat([p @ v, p], -1)


def scaled_mask(q, k, v):  # the factor is that of the mask too
    mask = torch.linspace(-1, 1, k.size(-2), device=q.device)
    return torch.softmax((q @ k.mT + mask) * 0.3, -1) @ v


def softmax_of_columns(q, k, v):
    return torch.softmax(q @ k.mT, -2) @ v


def finite_fill(q, k, v):  # a query that sees nothing sees all alike
    hidden = (q[..., :1] > 0) & (k[..., 0] > -1)[:, :, None]
    return torch.softmax((q @ k.mT).masked_fill(hidden, -1e9), -1) @ v


def narrow_scores(q, k, v):
    return (torch.softmax((q.bfloat16() @ k.bfloat16().mT).float(), -1) @ v).mul(1e-3)


def wide_factor(q, k, v):
    return torch.softmax((q.bfloat16() @ k.bfloat16().mT).float() * 0.3, -1).bfloat16() @ v.bfloat16()


NOT_ATTENTION = [
    read_scores, returned_probabilities, scaled_mask, softmax_of_columns, finite_fill, narrow_scores, wide_factor,
]  # fmt: skip


@pytest.mark.parametrize("function", NOT_ATTENTION)
def test_what_looks_like_attention_stays(function, kernels):
    keys = 20 + NOT_ATTENTION.index(function)
    assert without_kernels(function, operands(torch.float32, queries=20, keys=keys), kernels)


def test_a_learned_bias_of_scores_stays(kernels):
    def f(q, k, v, bias):
        return torch.softmax(q @ k.mT + bias, -1) @ v

    draw = torch.Generator().manual_seed(0)
    bias = torch.randn(1, 2, 30, 30, generator=draw)
    assert without_kernels(f, [*operands(torch.float32, queries=30, keys=30), bias], kernels)


def test_two_layers(kernels):
    def f(x, w):
        for _ in range(2):
            q, k, v = (x @ w).view(2, 24, 3, 4, 8).permute(2, 0, 3, 1, 4)
            x = x + causal(q, k, v)
        return x

    draw = torch.Generator().manual_seed(0)
    compare(f, [torch.randn(2, 24, 32, generator=draw), 0.1 * torch.randn(32, 96, generator=draw)])
    assert kernels("forward").count("attention") == 2 and kernels("backward").count("attention_grad") == 2
