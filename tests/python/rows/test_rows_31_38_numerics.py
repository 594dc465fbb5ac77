"""Checklist rows 31 to 38: wide types, complex numbers, matrix products, views, autocast, the gradient scaler."""

import pytest
import torch


def both(function, *tensors):
    """The same in-place program on both devices; compares what is left in the tensors."""
    host = [t.clone() for t in tensors]
    device = [t.to("neuron") for t in tensors]
    function(*host)
    function(*device)
    for a, b in zip(host, device, strict=True):
        torch.testing.assert_close(b.cpu(), a)


def test_row_31_float64_is_computed_as_float32_with_one_warning(run_python):
    out = run_python(
        """
import warnings, torch
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = torch.tensor([1.0], dtype=torch.float64, device="neuron")
    for _ in range(3):
        y = x + 2.0**-30
print(y.dtype, y.item() == 1.0, sum("float64" in str(w.message) for w in caught))
"""
    ).stdout
    assert out.split() == ["torch.float64", "True", "1"]


def test_row_32_int64(run_python):
    script = """
import torch
x = torch.tensor([2**31 - 1, 5], device="neuron")
print((x + 1).cpu().tolist(), torch.arange(5, device="neuron").cpu().tolist())
print(torch.tensor([2**40], device="neuron").clone().cpu().tolist())
"""
    narrow = run_python(script, TRNSIM_INT64="narrow").stdout.split("\n")
    assert narrow[0] == f"[{-(2**31)}, 6] [0, 1, 2, 3, 4]"
    assert narrow[1] == str([2**40])
    exact = run_python(script, TRNSIM_INT64="exact").stdout.split("\n")
    assert exact[0] == f"[{2**31}, 6] [0, 1, 2, 3, 4]"


def test_row_34_mixed_dtype_matmul_is_refused():
    with pytest.raises(RuntimeError, match="dtype"):
        torch.ones(4, 4, device="neuron") @ torch.ones(4, 4, device="neuron", dtype=torch.bfloat16)


def test_row_35_in_place_on_views():
    m = torch.arange(48.0).reshape(6, 8)
    both(lambda m: m[:, 3].add_(2), m)
    both(lambda m: m[::2].mul_(3), m)
    both(lambda m: m[:, 1::2].copy_(m[:, 0::2]), m)
    both(lambda m: m.t()[2:5].zero_(), m)
    both(lambda m: m.t().copy_(torch.ones(8, 6, device=m.device).cumsum(0)), m)
    both(lambda m: m[1:].add_(m[:-1].clone()), m)
    both(lambda m: m.diagonal().fill_(-1), m)
    both(lambda m: m.view(-1)[5:].clamp_(3, 17), m)


def test_row_36_channels_last_convolution_and_group_norm():
    x, conv, norm = torch.randn(2, 8, 9, 9), torch.nn.Conv2d(8, 6, 3), torch.nn.GroupNorm(2, 6)
    expected = norm(conv(x)).detach()
    conv, norm = conv.to("neuron"), norm.to("neuron")
    got = norm(conv(x.to("neuron").to(memory_format=torch.channels_last)))
    torch.testing.assert_close(got.detach().cpu(), expected, rtol=1e-4, atol=1e-5)


def test_row_37_autocast():
    layer, x = torch.nn.Linear(8, 8).to("neuron"), torch.randn(4, 8, device="neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16):
        y = layer(x)
        assert y.dtype == torch.bfloat16
        assert torch.softmax(y, -1).dtype == torch.float32
    assert layer.weight.dtype == torch.float32
    y.float().sum().backward()
    assert layer.weight.grad.dtype == torch.float32


@pytest.mark.filterwarnings("ignore:neuron")
def test_row_38_grad_scaler_skips_a_step_that_overflows():
    layer = torch.nn.Linear(4, 4).to("neuron")
    optimizer, scaler = torch.optim.SGD(layer.parameters(), lr=0.1), torch.amp.GradScaler("neuron", init_scale=4.0)
    before = layer.weight.detach().cpu().clone()
    scaler.scale(layer(torch.full((2, 4), float("inf"), device="neuron")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(layer.weight.detach().cpu(), before)
    assert scaler.get_scale() == 2.0


@pytest.mark.filterwarnings("ignore:neuron")
def test_row_33_rotary_embedding_by_complex_numbers_equals_the_real_form():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 6, 8, generator=generator).to("neuron").requires_grad_()
    angle = torch.outer(torch.arange(6.0), 10000 ** (-torch.arange(0, 8, 2) / 8))
    turn = torch.polar(torch.ones_like(angle), angle).to("neuron")
    rotated = torch.view_as_real(torch.view_as_complex(x.reshape(2, 6, 4, 2)) * turn).flatten(2)
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angle.cos().to("neuron"), angle.sin().to("neuron")
    real = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(2)
    torch.testing.assert_close(rotated, real)
    cotangent = torch.randn(2, 6, 8, generator=generator).to("neuron")
    for_complex, for_real = (torch.autograd.grad(y, x, cotangent)[0] for y in (rotated, real))
    torch.testing.assert_close(for_complex, for_real)
