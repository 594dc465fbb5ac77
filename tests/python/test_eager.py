"""Checklist rows 25, 28, 30, 31 to 39: plans, fallback, tracking, types, views, copies."""

import warnings

import pytest
import torch

import torch_neuronx
import trnsim
from trnsim import _C


def compiles():
    return _C.caches()[2]


def test_row_25_one_compilation_per_shape():
    x, y = torch.rand(7, 11, device="neuron"), torch.rand(3, 13, device="neuron")
    torch.neuron.synchronize()
    before = compiles()
    torch.sinc(x).cpu()
    first = compiles() - before
    assert first >= 1
    torch.sinc(x + 0).cpu()
    after_repeat = compiles()
    torch.sinc(x).cpu()
    assert compiles() == after_repeat
    torch.sinc(y).cpu()
    assert compiles() > after_repeat


def test_row_25_scalars_do_not_recompile():
    x = torch.rand(5, 9, device="neuron")
    (x * 0.1 + 1.0).cpu()
    before = compiles()
    for i in range(5):
        torch.testing.assert_close((x * (0.2 + i) + float(i)).cpu(), x.cpu() * (0.2 + i) + float(i))
    assert compiles() == before


@pytest.mark.filterwarnings("ignore:neuron")
def test_row_28_and_30_fallback_is_right_counted_and_named():
    torch_neuronx.clear_op_tracking()
    trnsim.reset_report()
    x = torch.randn(6, 6)
    value = torch.linalg.det(x.to("neuron"))
    value = torch.linalg.det(x.to("neuron"))
    assert value.device.type == "neuron"
    torch.testing.assert_close(value.cpu(), torch.linalg.det(x))
    y = torch.ones(3, device="neuron") + 1
    y = y + 1
    names = torch_neuronx.get_fallback_ops()
    assert len([n for n in names if "linalg" in n]) == 2
    assert torch_neuronx.get_executed_ops().count("aten::add.Tensor") == 2
    row = next(r for r in trnsim.fallbacks() if "linalg" in r["op"])
    assert row["count"] == 2 and row["reason"]
    torch_neuronx.clear_op_tracking()
    assert torch_neuronx.get_fallback_ops() == torch_neuronx.get_executed_ops() == []


def test_strict_fallback_raises_with_operator_and_reason(run_python):
    out = run_python(
        """
import torch
try:
    torch.linalg.det(torch.eye(3, device="neuron"))
except RuntimeError as e:
    print(e)
""",
        TRNSIM_FALLBACK="error",
    ).stdout
    assert "linalg" in out and "TRNSIM_FALLBACK=error" in out and "not simulated" in out


def test_unknown_value_of_a_variable_is_refused(run_python):
    result = run_python(
        "import torch; torch.linalg.det(torch.eye(3, device='neuron'))", check=False, TRNSIM_FALLBACK="maybe"
    )
    assert result.returncode != 0 and "TRNSIM_FALLBACK" in result.stderr


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


def both(function, *tensors):
    """The same in-place program on both devices; compares what is left in the tensors."""
    host = [t.clone() for t in tensors]
    device = [t.to("neuron") for t in tensors]
    function(*host)
    function(*device)
    for a, b in zip(host, device, strict=True):
        torch.testing.assert_close(b.cpu(), a)


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


def test_out_tensors_are_resized_and_bound():
    x = torch.arange(12.0, device="neuron").reshape(3, 4)
    out = torch.empty(0, device="neuron")
    torch.mul(x, 2, out=out)
    torch.testing.assert_close(out.cpu(), x.cpu() * 2)
    pointer = out.data_ptr()
    torch.mul(x, 3, out=out)
    assert out.data_ptr() == pointer
    torch.testing.assert_close(out.cpu(), x.cpu() * 3)


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


DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:neuron")
def test_row_39_round_trip_of_every_dtype_and_layout(dtype):
    base = (torch.arange(60) % 7).reshape(3, 4, 5).to(dtype)
    assert torch.equal(base.to("neuron").cpu().view(torch.uint8), base.view(torch.uint8))
    for view in (
        lambda t: t.transpose(0, 2),
        lambda t: t[:, 1::2],
        lambda t: t[1],
        lambda t: t[:, :, :1].expand(3, 4, 6),
    ):
        expected = view(base).float()
        assert torch.equal(view(base.to("neuron")).cpu().float(), expected)  # device to host, strided source
        assert torch.equal(view(base).to("neuron").cpu().float(), expected)  # host to device
        assert torch.equal(view(base.to("neuron")).contiguous().cpu().float(), expected)  # device to device
    if dtype == torch.float8_e4m3fn:
        return  # the compute engines know it from trn3 on; the next test
    target = torch.zeros(3, 4, 10, dtype=dtype, device="neuron")
    target[..., ::2] = base  # host to a strided destination
    assert torch.equal(target[..., ::2].cpu().float(), base.float())
    assert target[..., 1::2].cpu().float().sum() == 0


def test_a_type_of_a_later_chip_is_illegal_on_hardware():
    with pytest.raises(RuntimeError, match="illegal on hardware.*trn3"):
        torch.zeros(3, dtype=torch.float8_e4m3fn, device="neuron")


def test_row_39_casts_between_dtypes():
    x = torch.tensor([0.0, 1.5, -2.5, 100.25, 3.0])
    for dtype in (torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.int8, torch.bool):
        assert torch.equal(x.to("neuron").to(dtype).cpu(), x.to(dtype))
        assert torch.equal(x.to("neuron", dtype).cpu(), x.to(dtype))


def test_row_39_between_devices_and_non_blocking():
    x = torch.randn(100, 100)
    a = x.to("neuron:0", non_blocking=True)
    b = a.to("neuron:1")
    assert b.device.index == 1
    assert torch.equal(b.cpu(), x)
    with pytest.raises(RuntimeError, match="same device"):
        a + b
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned()
    assert torch.equal(pinned.to("neuron", non_blocking=True).cpu(), x)


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
