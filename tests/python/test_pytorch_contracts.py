"""What PyTorch's own tests ask of every device, and a program may meet (tools/upstream runs those tests)."""

import itertools
import warnings

import numpy as np
import pytest
import torch


def messages(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(w.message) for w in caught]


def test_a_mask_of_bytes_is_deprecated():
    x, mask = torch.arange(3.0, device="neuron"), torch.tensor([1, 0, 1], dtype=torch.uint8, device="neuron")
    assert any("torch.uint8 is now deprecated" in m for m in messages(lambda: x[mask]))
    assert any("torch.uint8 is now deprecated" in m for m in messages(lambda: x.index_put_((mask,), x[1:].clone())))
    assert not any("uint8" in m for m in messages(lambda: x[mask.bool()]))
    assert x.tolist() == [1.0, 1.0, 2.0]
    with pytest.raises(RuntimeError, match="masked_fill_ only supports boolean masks"):
        x[mask] = 1.0


@pytest.mark.parametrize("call", ["index_fill_(0, i, 1.0)", "index_put_((i,), v)", "masked_fill_(i == 0, 1.0)"])
def test_writing_to_an_expanded_tensor_warns(call):
    x, i, v = torch.rand(1, device="neuron").expand(5), torch.tensor([0] * 5, device="neuron"), torch.ones(1)
    scope = {"x": x, "i": i, "v": v.to("neuron")}
    assert any("on expanded tensors is deprecated" in m for m in messages(lambda: eval(f"x.{call}", scope)))
    assert x.tolist() == [1.0] * 5
    if "masked" in call:  # out of place nothing is written to it
        assert not any("expanded" in m for m in messages(lambda: x.masked_fill(i == 0, 2.0)))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float32, torch.int16])
def test_expanded_tensors_are_filled(dtype):
    x = torch.ones(2, 1, dtype=dtype, device="neuron").expand(2, 4)
    assert x.fill_(3).tolist() == [[3] * 4] * 2
    assert x.zero_().tolist() == [[0] * 4] * 2
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        x.add_(1)


def test_complex_half_is_called_experimental():
    torch.set_warn_always(True)
    try:
        caught = messages(lambda: torch.empty(3, dtype=torch.complex32, device="neuron"))
    finally:
        torch.set_warn_always(False)
    assert any("ComplexHalf support is experimental" in m for m in caught)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float64, torch.uint64])
def test_expanded_tensors_of_every_type_are_read(dtype):
    x = torch.tensor([1, 2, 3], dtype=dtype)
    assert torch.equal(x.to("neuron").expand(2, 3).cpu(), x.expand(2, 3))
    assert torch.equal(x.to("neuron")[:, None].expand(3, 2).t().cpu(), x.expand(2, 3))


def test_tensors_set_to_one_memory_know_it():
    x = torch.empty(2, 3, device="neuron")
    same = torch.empty(0, device="neuron").set_(x)
    assert x.is_set_to(same) and same.is_set_to(x)
    assert not x.is_set_to(x.view(3, 2)) and not x.is_set_to(x.clone())


@pytest.mark.parametrize("value", [2**31 - 1, 2**31, 2**32 - 1])
def test_uint32_beyond_int32(value):
    x = torch.full((3,), value, dtype=torch.uint32, device="neuron")
    assert x.cpu().tolist() == [value] * 3
    assert x.fill_(value - 1).cpu().tolist() == [value - 1] * 3
    assert (x == value - 1).all() and not (x == value).any()


def test_uint64_beyond_int64():
    assert torch.zeros(2, dtype=torch.uint64, device="neuron").fill_(2**64 - 1).tolist() == [2**64 - 1] * 2


@pytest.mark.parametrize("transposed_gradient", [False, True])
def test_the_cpu_library_has_no_say_in_shapes(transposed_gradient):
    """A transposed convolution whose shape the CPU's library refuses when it is tried on a small scale."""
    torch.manual_seed(0)
    x, w, g = torch.randn(2, 64, 16), torch.randn(64, 128, 16) / 32, torch.randn(2, 136, 128)
    g = g.transpose(1, 2) if transposed_gradient else g.transpose(1, 2).contiguous()
    arguments = ([128], [8], [0], [1], True, [0], 1, [True, True, True])
    expected = torch.ops.aten.convolution_backward(g, x, w, *arguments)
    got = torch.ops.aten.convolution_backward(g.to("neuron"), x.to("neuron"), w.to("neuron"), *arguments)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-5, atol=1e-4)


def test_quantized_tensors_are_refused_by_name():
    with pytest.raises(NotImplementedError, match="not simulated: .*quantized tensors on the neuron device"):
        torch.quantize_per_tensor(torch.ones(3, device="neuron"), 1.0, 0, torch.qint8).clone()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_nested_tensors_are_refused_when_they_are_made(requires_grad):
    parts = [torch.ones(n, 2, device="neuron", requires_grad=requires_grad) for n in (2, 3)]
    with pytest.raises(NotImplementedError, match="not simulated: .*nested tensors on the neuron device"):
        torch.nested.as_nested_tensor(parts)


def masked(x):
    x[x < 50] = 1.0
    return x


@pytest.mark.filterwarnings("ignore")
def test_torchscript_indexes_by_masks():
    x = torch.arange(100, dtype=torch.float32)
    scripted = torch.jit.script(masked)
    for _ in range(3):
        assert torch.equal(scripted(x.to("neuron")).cpu(), masked(x.clone()))


@pytest.mark.parametrize("op", [torch.add, torch.eq, torch.maximum, lambda x, y, **k: torch.exp(x, **k)])
@pytest.mark.parametrize("order", [(0, 2, 1), (2, 0, 1)])
def test_an_out_tensor_that_is_resized_keeps_the_layout_of_fresh_results(op, order):
    x = torch.arange(24.0).reshape(2, 3, 4)
    for slice_of in (lambda t: t.permute(order), lambda t: t[:, :, ::2].permute(order)):
        layouts = {}
        for device in ("cpu", "neuron"):
            a = slice_of(x.to(device))
            fresh = op(a, a)
            out = op(a, a, out=torch.empty(0, dtype=fresh.dtype, device=device))
            assert torch.equal(out, fresh)
            layouts[device] = (fresh.stride(), out.stride())
        assert layouts["neuron"] == layouts["cpu"]


@pytest.mark.parametrize("format", [torch.channels_last, torch.contiguous_format, torch.preserve_format])
def test_complex_tensors_have_layouts(format):
    x = torch.randn(2, 3, 4, 5, dtype=torch.complex64)
    layouts = (
        lambda t: t,
        lambda t: t.to(memory_format=torch.channels_last),
        lambda t: t.permute(3, 0, 2, 1)[::2],
        lambda t: t[:, :1].expand(2, 3, 4, 5),
    )
    calls = (
        lambda t: t.clone(memory_format=format),
        lambda t: t.conj().clone(memory_format=format),
        lambda t: t * t,
        lambda t: t.exp(),
    )
    for layout, call in itertools.product(layouts, calls):
        got, expected = call(layout(x.to("neuron"))), call(layout(x))
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_sizes_of_complex_numbers_are_rounded_once():
    torch.manual_seed(0)
    x = torch.randn(20000, dtype=torch.complex64)
    for scale in (1, 1e-30, 1e30):
        sizes = (x * scale).to("neuron").abs().cpu().double()
        exact = (x * scale).to(torch.complex128).abs()
        assert ((sizes - exact).abs() / exact).max() < 0.6 * 2**-23
    edges = torch.tensor([0.0, -0.0, 1, -2, float("inf"), float("-inf"), float("nan"), 1e-45, 3e38])
    assert torch.equal(
        torch.hypot(edges[:, None].to("neuron"), edges.to("neuron")).cpu().view(torch.int32) & 0x7FFFFFFF,
        torch.hypot(edges[:, None], edges).view(torch.int32) & 0x7FFFFFFF,
    )


@pytest.mark.parametrize("op", [torch.sum, torch.nansum, torch.nanmean, torch.mean, torch.amax, torch.var])
@pytest.mark.parametrize("keepdim", [False, True])
def test_an_empty_list_of_dimensions_reduces_all(op, keepdim):
    x = torch.tensor([[1.0, 2.0], [torch.nan, 4.0]])
    for operand in (x, x.nan_to_num(), x[0, 0]):
        expected = op(operand, dim=[], keepdim=keepdim)
        torch.testing.assert_close(op(operand.to("neuron"), dim=[], keepdim=keepdim).cpu(), expected, equal_nan=True)


def warnings_of(call):  # without the device's own
    return [m.partition(" (Triggered")[0] for m in messages(call) if not m.startswith("neuron:")]


@pytest.mark.parametrize(
    "op",
    [
        lambda d, out: torch.arange(6, out=out),
        lambda d, out: torch.linspace(0, 1, 6, out=out),
        lambda d, out: torch.full((6,), 2.0, out=out),
        lambda d, out: torch.add(torch.ones(6, device=d), 1, out=out),
        lambda d, out: torch.sum(torch.ones(6, 5, device=d), 1, out=out),
        lambda d, out: torch.complex(torch.ones(6, device=d), torch.ones(6, device=d), out=out.to(torch.complex64)),
        lambda d, out: torch.linspace(0, 1j, 6, out=out.to(torch.complex64)),
        lambda d, out: torch.add(torch.ones(6, device=d), 1j, out=out.to(torch.complex64)),
        lambda d, out: torch.fft.fftfreq(6, out=out),
    ],
)
@pytest.mark.parametrize("sizes", [(2, 3), (6,), (4,), (0,)])
def test_out_tensors_of_wrong_sizes_warn_as_on_the_cpu_at_every_call(op, sizes):
    expected = warnings_of(lambda: op("cpu", torch.empty(sizes)))
    for _ in range(2):
        assert warnings_of(lambda: op("neuron", torch.empty(sizes, device="neuron"))) == expected


def test_random_out_tensors_of_wrong_sizes_do_not_warn():
    assert warnings_of(lambda: torch.randperm(6, out=torch.empty(4, dtype=torch.int64, device="neuron"))) == []


COMPLEX_NUMBERS = {
    "fill_": lambda t: t.fill_(2 + 0j),
    "full": lambda t: torch.full((2,), 1 + 0j, dtype=t.dtype, device=t.device),
    "masked_fill": lambda t: t.masked_fill(t == 1, 2 + 0j),
    "alpha": lambda t: torch.add(t.float(), t.float(), alpha=2 + 0j),
    "clamp": lambda t: torch.clamp(t.float(), 2 + 0j),
    "pow of 1": lambda t: torch.pow(1 + 0j, t),
    "pow of a number": lambda t: torch.pow(1.5 - 0.5j, t),
    "pow by a number": lambda t: torch.pow(t, 1j),
    "rsub": lambda t: torch.rsub(t, 1j),
    "eq": lambda t: t == 1 + 0j,
    "eq with an imaginary part": lambda t: t == 1 + 1j,
    "ne with an imaginary part": lambda t: t != 1 + 1j,
    "with an imaginary part": lambda t: t.fill_(2 + 1j),
    "alpha with an imaginary part": lambda t: torch.add(t.float(), t.float(), alpha=1j),
}


@pytest.mark.parametrize("name", COMPLEX_NUMBERS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_complex_numbers_beside_real_tensors(name, dtype):
    call, t = COMPLEX_NUMBERS[name], torch.tensor([1, 3], dtype=dtype)
    try:
        expected = call(t.clone())
    except RuntimeError as e:
        words = str(e).partition("converted to type")[0]
        for _ in range(2):
            with pytest.raises(RuntimeError, match=words):
                call(t.to("neuron"))
        return
    for _ in range(2):  # a call seen before goes another way
        got = call(t.to("neuron"))
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_powers_of_complex_numbers_and_narrow_tensors(dtype):
    x = torch.tensor([0.0, 1.0, 2.5, -1.5], dtype=dtype)
    for number in (0.5j, 1 + 1j, 2.2 - 1.6j, 2 + 0j):
        for power in (torch.pow, lambda a, b: torch.pow(b, a)):
            for c in (number, torch.tensor(number)):
                wide = torch.complex32 if dtype is torch.float16 else torch.complex64
                expected = power(torch.tensor(number).to(wide).to(torch.complex64), x.float()).to(wide)
                got = power(c, x.to("neuron")).cpu()
                assert got.dtype == expected.dtype
                tolerance = 5e-3 if dtype is torch.float16 else 1e-5
                a, b = got.to(torch.complex64), expected.to(torch.complex64)
                torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("op", [torch.logaddexp, torch.pow, torch.mul, torch.atan2])
def test_real_operands_with_a_complex_out(op):
    x, y = torch.tensor([0.5, 2.0, float("nan")]), torch.tensor([1.0, 3.0, 1.0], dtype=torch.float64)
    out = torch.empty(3, dtype=torch.complex64, device="neuron")
    assert op(x.to("neuron"), y.to("neuron"), out=out) is out
    torch.testing.assert_close(out.cpu(), op(x, y).to(torch.complex64), equal_nan=True)


def test_complex_powers_of_zero():
    zeros = torch.zeros(7, dtype=torch.complex64)
    exponents = torch.tensor([0.5j, 1 + 1j, -1 + 1j, -1 + 0j, 1e-9 + 3j, 2 + 0j, 0j])
    got, expected = torch.pow(zeros.to("neuron"), exponents.to("neuron")).cpu(), torch.pow(zeros, exponents)
    expected[-1] = 1  # as numpy; NaN on the CPU
    torch.testing.assert_close(torch.view_as_real(got), torch.view_as_real(expected), equal_nan=True)


def test_complex_exponentials_at_the_ends():
    inf, nan = float("inf"), float("nan")
    reals, angles = [-inf, -2.0, 0.0, 88.8, 89.0, inf, nan], [0.0, -0.0, 1e-3, 2.0, inf, nan]
    x = torch.tensor([complex(re, im) for re in reals for im in angles], dtype=torch.complex64)
    got, expected = (torch.view_as_real(y) for y in (x.to("neuron").exp().cpu(), torch.from_numpy(np.exp(x.numpy()))))
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_sign_is_copied_to_everything(dtype):
    nan = torch.tensor([0x7FC00000, -0x400000], dtype=torch.int32).view(torch.float32)
    x = torch.cat([nan, torch.tensor([0.0, -0.0, float("inf"), float("-inf"), 2.0, -3.0])]).to(dtype)
    for sign in (x, torch.tensor(-0.0), 1.0):
        got = torch.copysign(x[:, None].to("neuron"), sign.to("neuron") if isinstance(sign, torch.Tensor) else sign)
        expected = torch.copysign(x[:, None], sign)
        assert torch.equal(got.cpu().signbit(), expected.signbit())
        torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0, equal_nan=True)


class Tagged(torch.nn.Parameter):
    pass


def test_parameters_keep_class_attributes_and_hooks_when_their_module_moves():
    layer, seen = torch.nn.Linear(2, 2), []
    layer.weight = Tagged(torch.ones(2, 2))
    layer.weight.axis, layer.bias.decays = 1, False
    handle = layer.weight.register_hook(lambda g: seen.append(g.device.type))
    layer.bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    for device in ("neuron", "cpu"):
        layer.to(device)
        assert type(layer.weight) is Tagged and layer.weight.axis == 1 and layer.bias.decays is False
        layer.zero_grad()
        layer(torch.ones(1, 2, device=device)).sum().backward()
        assert sorted(map(str, seen)) == ["[1.0, 1.0]", device]
        seen.clear()
    handle.remove()
    layer(torch.ones(1, 2)).sum().backward()
    assert seen == [[2.0, 2.0]]


@pytest.mark.parametrize("lazy", [lambda: torch.nn.LazyLinear(3), lambda: torch.nn.LazyConv1d(3, 2)])
def test_lazy_modules_stay_lazy_when_they_move(lazy):
    module = lazy().to("neuron")
    assert isinstance(module.weight, torch.nn.UninitializedParameter)
    out = module(torch.ones(2, 4, 5, device="neuron"))
    assert out.device.type == "neuron" and module.weight.device.type == "neuron"
    assert module.weight.shape[:2] == ((3, 5) if out.shape[1] == 4 else (3, 4))


@pytest.mark.filterwarnings("ignore")
def test_an_encoder_with_padding_needs_no_nested_tensors():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()  # enable_nested_tensor is PyTorch's default
    x, padding = torch.randn(2, 5, 8), torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]).bool()
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding)
        out = encoder.to("neuron")(x.to("neuron"), src_key_padding_mask=padding.to("neuron")).cpu()
    assert out.shape == expected.shape
    torch.testing.assert_close(out[~padding], expected[~padding], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_dropout_loses_no_nan(value):
    x = torch.full((64,), value, device="neuron")
    kept = torch.nn.functional.dropout(x, 0.5)
    assert not kept.isfinite().any() and kept.isnan().any()
    assert torch.nn.functional.dropout(torch.ones(64, device="neuron"), 1.0).tolist() == [0.0] * 64
    assert set(torch.nn.functional.dropout(torch.ones(64, device="neuron"), 0.75).tolist()) <= {0.0, 4.0}
