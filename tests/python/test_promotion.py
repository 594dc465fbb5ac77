"""Operands are converted to their common type before an operator computes, as on the CPU."""

import itertools

import pytest
import torch

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
TYPES = [torch.bool, *INTEGERS, *FLOATS]
INTEGER_VALUES = [7, -200, 257, 1001, -3, 2049, 300, -995]
FLOAT_VALUES = [0.7, 3.5, -2.75, 257.0, 2049.0, -1001.0, 60000.0, 0.3]
SINGLES = {False: [-200, 300, 70000], True: [0.1, 2049.0, 70000.0]}
OPERATORS = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "maximum": torch.maximum,
    "fmin": torch.fmin,
    "fmax": torch.fmax,
    "copysign": torch.copysign,
    "eq": torch.eq,
    "gt": torch.gt,
    "le": torch.le,
    "logical_and": torch.logical_and,
    "bitwise_xor": torch.bitwise_xor,
    "clamp_min": lambda a, b: torch.clamp(a, min=b) if isinstance(b, torch.Tensor) else a,
}


def values(dtype, device):
    plain = FLOAT_VALUES if dtype.is_floating_point else INTEGER_VALUES
    return torch.tensor(plain, dtype=torch.float64 if dtype.is_floating_point else torch.int64).to(dtype).to(device)


def outcome(function, a, b):
    try:
        return function(a, b).cpu()
    except (RuntimeError, TypeError) as error:
        return type(error)


def assert_as_on_cpu(function, a, b, device_a, device_b, case):
    expected, found = outcome(function, a, b), outcome(function, device_a, device_b)
    if isinstance(expected, type) or isinstance(found, type):
        # A division by an integer 0 that is met in the values has its own class of error on the device.
        assert isinstance(expected, type) and isinstance(found, type), f"{case}: {found} instead of {expected}"
        return
    assert found.dtype == expected.dtype, case
    wide = expected.to(torch.float64)
    tolerance = torch.finfo(expected.dtype).eps if expected.dtype.is_floating_point else 0
    torch.testing.assert_close(
        found.to(torch.float64), wide, rtol=tolerance, atol=0, equal_nan=True, msg=lambda m: f"{case}: {m}"
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_tensors_of_two_types(name):
    for first, second in itertools.product(TYPES, TYPES):
        a, b = values(first, "cpu"), values(second, "cpu").flip(0)
        assert_as_on_cpu(OPERATORS[name], a, b, a.to("neuron"), b.to("neuron"), (name, first, second))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("kind", ["number", "host", "device"])
def test_a_tensor_and_a_single_element(name, kind):
    for dtype, floating in itertools.product(TYPES, (False, True)):
        for number in SINGLES[floating]:
            a = values(dtype, "cpu")
            b = number if kind == "number" else torch.tensor(number)
            device_b = b.to("neuron") if kind == "device" else b
            assert_as_on_cpu(OPERATORS[name], a, b, a.to("neuron"), device_b, (name, dtype, number))


def tensor(data, dtype=None):
    return torch.tensor(data, dtype=dtype, device="neuron")


@pytest.mark.parametrize(
    "dtype, number", [(torch.uint8, 300), (torch.uint8, -1), (torch.int8, 200), (torch.int16, 70000)]
)
def test_a_number_beyond_an_integer_type_wraps(dtype, number):
    wrapped = torch.tensor(number).to(dtype).item()
    x = tensor([wrapped, 7], dtype)
    host = x.cpu()
    assert (x == number).tolist() == [True, False]
    assert (x >= number).tolist() == (host >= number).tolist()
    assert (x // number).tolist() == (host // number).tolist()
    assert torch.remainder(x, number).tolist() == torch.remainder(host, number).tolist()
    assert (number - x).tolist() == (number - host).tolist()


def test_16_bit_unsigned_numbers():
    single = torch.tensor(54548, dtype=torch.uint16)
    x = torch.tensor([-995], dtype=torch.int16)
    assert torch.fmax(x.to("neuron"), single.to("neuron")).tolist() == torch.fmax(x, single).tolist() == [-995]


def test_a_repeated_call_with_another_number_is_converted_too():
    x = tensor([0.1, 0.2], torch.float16)
    assert (x == 0.1).tolist() == [True, False]
    assert (x == 0.2).tolist() == [False, True]


def test_the_default_type_is_that_of_the_call():
    x = torch.arange(1, 4, device="neuron")
    functions = (
        lambda: x + 0.5,
        lambda: x / x,
        lambda: x.sin(),
        lambda: torch.where(x > 2, 1.5, 0.0),
        lambda: x.exp2(),
    )
    for default in (torch.float32, torch.float64, torch.bfloat16, torch.float32):
        try:
            torch.set_default_dtype(default)
            assert all(function().dtype is default for function in functions)
        finally:
            torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_out_of_a_wider_type_takes_what_the_common_type_can_hold(wide):
    x, small = torch.tensor([33000.0, 1.0009765625]), torch.tensor([100, -3], dtype=torch.int8)
    for device in ("cpu", "neuron"):
        half = x.to(torch.float16).to(device)
        out = torch.empty(0, dtype=wide, device=device)
        assert torch.add(half, half, out=out) is out
        assert out.tolist() == [float("inf"), 2.001953125]
        assert torch.mul(half, half, out=out[:2]).tolist() == [float("inf"), 1.001953125]
        out = torch.empty(2, dtype=torch.int32, device=device)
        assert torch.add(small.to(device), small.to(device), out=out).tolist() == [-56, -6]
        assert torch.add(small.to(device), 1000, out=out).tolist() == [76, -27]
        out = torch.empty(2, dtype=wide, device=device)
        assert torch.mul(small.to(device), 3, out=out).tolist() == [44.0, -9.0]
        assert torch.square(small.to(device), out=out).tolist() == [16.0, 9.0]
        assert torch.div(small.to(device), 0.5, out=out).tolist() == [200.0, -6.0]
        byte = torch.tensor(5, dtype=torch.uint8, device=device)
        assert torch.sub(byte, 8, out=out[0]).item() == 253.0


def test_in_place_computes_in_the_common_type():
    for x in (torch.tensor([2049.0, 0.1], dtype=torch.float16), torch.tensor([3.7, 0.1], dtype=torch.bfloat16)):
        for other in (torch.tensor([2049.0, 7.3]), torch.tensor([2049, 7])):
            expected = x.clone().sub_(other)
            assert torch.equal(x.to("neuron").sub_(other.to("neuron")).cpu(), expected)


def host_single_cases():
    x = torch.tensor([0.5, -1.5, 2.0])
    s = torch.tensor(-0.75)
    nn = torch._C._nn  # torch.nn.functional expands the target on its own device
    return {
        "dist": lambda d: torch.dist(x.to(d), torch.tensor(0.0)),
        "dist, first": lambda d: torch.dist(s, x.to(d)),
        "copysign": lambda d: torch.copysign(x.to(d), s),
        "copysign, first": lambda d: torch.copysign(s, x.to(d)),
        "floor_divide, first": lambda d: torch.floor_divide(s, x.to(d)),
        "lerp": lambda d: torch.lerp(x.to(d), x.to(d) + 1, s),
        "addcmul": lambda d: torch.addcmul(x.to(d), s, x.to(d)),
        "addcdiv": lambda d: torch.addcdiv(x.to(d), x.to(d), s),
        "where": lambda d: torch.where(x.to(d) > 0, x.to(d), s),
        "masked_fill": lambda d: x.to(d).masked_fill(x.to(d) > 0, s),
        "clamp": lambda d: torch.clamp(x.to(d), s, torch.tensor(1.0)),
        "isclose": lambda d: torch.isclose(x.to(d), torch.tensor(0.5)),
        "mse_loss": lambda d: nn.mse_loss(x.to(d), s),
        "smooth_l1_loss": lambda d: nn.smooth_l1_loss(x.to(d), s, 0),
        "huber_loss": lambda d: nn.huber_loss(x.to(d), s, 2),
        "index_fill": lambda d: x.to(d).index_fill(0, torch.tensor([1]).to(d), s),
        "pow": lambda d: torch.pow(x.to(d), torch.tensor(2.0)),
        "pow, first": lambda d: torch.pow(torch.tensor(2.0), x.to(d)),
        "xlogy": lambda d: torch.xlogy(x.to(d), torch.tensor(2.0)),
        "logaddexp": lambda d: torch.logaddexp(s, x.to(d)),
        "hypot": lambda d: torch.hypot(s, x.to(d)),
        "atan2": lambda d: torch.atan2(s, x.to(d)),
        "heaviside": lambda d: torch.heaviside(x.to(d), s),
        "nextafter": lambda d: torch.nextafter(x.to(d), s),
        "fmod": lambda d: torch.fmod(x.to(d), s),
        "in place": lambda d: x.to(d).mul_(s).add_(s),
    }


@pytest.mark.filterwarnings("ignore:Using a target size", "ignore:neuron")
@pytest.mark.parametrize("case", host_single_cases())
def test_a_single_element_on_the_host_beside_device_tensors(case):
    function = host_single_cases()[case]
    result = function("neuron")
    assert result.device.type == "neuron"
    torch.testing.assert_close(result.cpu(), function("cpu"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_rounded_quotients_of_reduced_types_round_the_quotient_first(mode, dtype):
    generator = torch.Generator().manual_seed(0)
    a = (torch.randn(4000, generator=generator) * 50).to(dtype)
    b = (torch.randn(4000, generator=generator) * 3).to(dtype)
    a[:8] = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), 5.0, -5.0, float("nan")], dtype=dtype)
    b[:8] = torch.tensor([1.0, 1.0, 0.0, 0.0, 2.0, float("inf"), float("inf"), 1.0], dtype=dtype)
    for divisor in (b, b[100], 3.3, torch.tensor([2.7], dtype=dtype)):
        on_device = divisor.neuron() if isinstance(divisor, torch.Tensor) else divisor
        expected = torch.div(a, divisor, rounding_mode=mode)
        actual = torch.div(a.neuron(), on_device, rounding_mode=mode).cpu()
        assert torch.equal(actual.isnan(), expected.isnan())
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(actual.signbit()[~actual.isnan()], expected.signbit()[~expected.isnan()])
    if mode == "floor":
        assert torch.equal((a.neuron() // b.neuron()).cpu()[8:], (a // b)[8:])


LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "soft_margin_loss",
          "kl_div", "poisson_nll_loss", "hinge_embedding_loss")  # fmt: skip


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("types", itertools.permutations([*FLOATS, torch.int64], 2))
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_mixed_types(name, types):
    """Same type of result, same gradient; a value may be closer to the exact one than the CPU's."""

    def run(device):
        x = torch.tensor([0.5, 0.25, 0.75]).to(types[0]).to(device)
        if x.is_floating_point():
            x.requires_grad_()
        y = torch.tensor([1.0, 0.0, 1.0]).to(types[1]).to(device)
        loss = getattr(torch.nn.functional, name)(x, y)
        loss.backward()
        return loss.detach().cpu(), x.grad.cpu()

    try:
        expected = run("cpu")
    except RuntimeError as e:
        with pytest.raises(type(e)):
            run("neuron")
        return
    for ours, theirs in zip(run("neuron"), expected, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16, torch.int8, torch.int64, torch.complex64])
def test_truth_values_stay_such_whatever_the_type_of_out(out):
    def results(device):
        a, b = torch.tensor([True, True, False], device=device), torch.tensor([True, False, False], device=device)
        places = [torch.empty(3, dtype=out, device=device) for _ in range(4)]
        torch.add(a, b, out=places[0]), torch.add(a, True, out=places[1]), torch.eq(a, b, out=places[2])
        return [*places[:3], torch.mul(a, b, out=places[3])]

    for got, expected in zip(results("neuron"), results("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_integers_go_into_complex_results(dtype):
    x = torch.tensor([3, -4], dtype=dtype, device="neuron")
    for function in (torch.add, torch.mul, torch.sub):
        expected = function(x.cpu(), x.cpu()).to(torch.complex64)
        torch.testing.assert_close(
            function(x, x, out=torch.empty(2, dtype=torch.complex64, device="neuron")).cpu(), expected
        )
