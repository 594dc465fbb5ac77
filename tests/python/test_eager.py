"""Eager execution: fallback, out=, errors in PyTorch's words, statistics."""

import warnings

import pytest
import torch


def test_strict_fallback_raises_with_operator_and_reason(run_python):
    out = run_python(
        """
import torch
try:
    torch.linalg.ldl_factor(torch.eye(3, device="neuron"))
except RuntimeError as e:
    print(e)
""",
        TRNSIM_FALLBACK="error",
    ).stdout
    assert "linalg" in out and "TRNSIM_FALLBACK=error" in out and "not simulated" in out


def test_unknown_value_of_a_variable_is_refused(run_python):
    result = run_python(
        "import torch; torch.linalg.ldl_factor(torch.eye(3, device='neuron'))", check=False, TRNSIM_FALLBACK="maybe"
    )
    assert result.returncode != 0 and "TRNSIM_FALLBACK" in result.stderr


def test_out_tensors_are_resized_and_bound():
    x = torch.arange(12.0, device="neuron").reshape(3, 4)
    out = torch.empty(0, device="neuron")
    torch.mul(x, 2, out=out)
    torch.testing.assert_close(out.cpu(), x.cpu() * 2)
    pointer = out.data_ptr()
    torch.mul(x, 3, out=out)
    assert out.data_ptr() == pointer
    torch.testing.assert_close(out.cpu(), x.cpu() * 3)


def test_a_type_of_a_later_chip_is_illegal_on_hardware():
    with pytest.raises(RuntimeError, match="illegal on hardware.*trn3"):
        torch.ones(3, dtype=torch.float8_e4m3fn, device="neuron")


def test_host_scalars_mix_and_host_tensors_do_not():
    x = torch.arange(3.0, device="neuron")
    assert ((x * torch.tensor(2.0)).cpu() == torch.tensor([0.0, 2.0, 4.0])).all()
    assert (x + torch.tensor(1, dtype=torch.int64)).dtype == torch.float32
    with pytest.raises(RuntimeError, match="same device.*neuron:0 and cpu"):
        x + torch.ones(3)


def test_shape_errors_have_the_words_of_pytorch():
    x = torch.ones(3, 4, device="neuron")
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        x + torch.ones(3, 5, device="neuron")
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.ones(2, dtype=torch.int32, device="neuron").add_(0.5)
    with pytest.raises(IndexError):
        x.sum(5)


def test_conjugate_views_do_not_recurse():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        z = torch.tensor([1 + 2j, 3 - 1j], device="neuron")
        assert torch.equal((z.conj() + 1).cpu(), z.cpu().conj() + 1)
        assert torch.equal(z.imag.cpu(), z.cpu().imag)


@pytest.mark.parametrize("plain_first", [True, False])
def test_a_plan_of_a_plain_operand_is_not_that_of_a_lazily_negated_one(plain_first):
    """Both have the same type and layout; the second call must not find the program of the first."""
    host = torch.arange(-5.0, 6.0 + plain_first)
    x = host.to("neuron")
    for plain in (plain_first, not plain_first):
        view, expected = (x, host) if plain else (torch._neg_view(x), -host)
        assert torch.equal(view.clone().cpu(), expected)
        assert torch.equal((view[0] / 2).cpu(), expected[0] / 2)
        assert torch.equal(torch.trapezoid(view).cpu(), torch.trapezoid(expected))
        assert torch.equal(torch.cat([x, view]).cpu(), torch.cat([host, expected]))
        assert torch.equal((x * view).cpu(), host * expected)


def test_a_plan_of_a_complex_operand_is_not_that_of_its_conjugate():
    host = torch.complex(torch.arange(7.0), torch.arange(7.0) - 3)
    z = host.to("neuron")
    for view, expected in ((z, host), (z.conj(), host.conj()), (z, host)):
        assert torch.equal(view.clone().cpu(), expected.resolve_conj())
        assert torch.equal((z * view).cpu(), host * expected)


def test_printing_needs_no_fallback(run_python):
    out = run_python("import torch; print(torch.arange(3., device='neuron'))", TRNSIM_FALLBACK="error").stdout
    assert out.strip() == "tensor([0., 1., 2.], device='neuron:0')"


def test_a_host_result_of_device_operands_is_refused():
    with pytest.raises(RuntimeError, match="same device"):
        torch.tensor(1.0).add_(torch.tensor(2.0, device="neuron"))
    with pytest.raises(RuntimeError, match="same device"):
        torch.add(torch.ones(2, device="neuron"), 1, out=torch.empty(2))


def test_batch_norm_updates_its_statistics_only_in_training():
    x = torch.randn(16, 4, 5, 5)
    host, device = torch.nn.BatchNorm2d(4), torch.nn.BatchNorm2d(4).to("neuron")
    for model, data in ((host, x), (device, x.to("neuron"))):
        model.train()
        model(data)
        model.eval()
        model(data)
    torch.testing.assert_close(device.running_mean.cpu(), host.running_mean)
    torch.testing.assert_close(device.running_var.cpu(), host.running_var)


def test_running_sums_do_not_stall():
    """A float32 sum stands still at 2^24 when ones are added to it; the CPU sums rows in double precision."""
    steps = torch.ones(3, 5000)
    steps[1, 0], steps[2, 4000] = 2.0**24, float("inf")
    steps[2, 4500] = -float("inf")
    scaled = torch.randn(4, 5000, generator=torch.Generator().manual_seed(1)) * torch.logspace(-4, 6, 5000)
    for m in (steps, scaled):
        torch.testing.assert_close(m.to("neuron").cumsum(1).cpu(), m.cumsum(1), rtol=3e-7, atol=1e-5, equal_nan=True)
