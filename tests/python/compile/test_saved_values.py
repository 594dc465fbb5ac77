"""What the forward program keeps for the backward program."""

import re

import pytest
import torch


def norm(x, w):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * w


def gradients(f, x, w):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    out = f(x, w)
    out.square().sum().backward()
    return out.detach(), x.grad, w.grad


@pytest.fixture
def wide_outputs(monkeypatch, tmp_path):
    """Elements of every float32 output of the forward programs."""
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))

    def found():
        texts = [f.read_text() for f in tmp_path.glob("graph.forward*.fused.txt")]
        return sorted(int(n) for text in texts for n in re.findall(r": output fp32 x (\d+)", text))

    return found


def test_widened_copies_are_made_again(wide_outputs):
    x = torch.randn(24, 48, generator=torch.Generator().manual_seed(0)).bfloat16().to("neuron")
    w = torch.linspace(0.5, 2, 48).bfloat16().to("neuron")
    for a, b in zip(gradients(torch.compile(norm, backend="neuron"), x, w), gradients(norm, x, w), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)
    assert wide_outputs() and max(wide_outputs()) < 24 * 48


def test_copies_of_arguments_that_change_are_kept(wide_outputs):
    def f(x, w, state):
        out = norm(state * 1, w) + norm(x, w) * state.float()
        state.add_(1)
        return out

    def step(function):
        state = torch.linspace(0, 1, 25 * 48).view(25, 48).bfloat16().to("neuron")
        x, w = torch.ones_like(state).requires_grad_(), torch.ones(48, device="neuron", dtype=torch.bfloat16)
        function(x, w, state).sum().backward()
        return x.grad, state

    for a, b in zip(step(torch.compile(f, backend="neuron")), step(f), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)
    assert max(wide_outputs()) == 25 * 48
