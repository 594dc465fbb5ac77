"""Floating-point special values: zeros of both signs, denormals, infinities, NaN, edges of every function's domain.

Every pointwise operator of the compiler's table with one or two tensors, on a grid of special values (for two tensors:
all pairs), on the device and on the CPU. NaN, infinity and the sign of zero must agree exactly, numbers within a few
units in the last place. Where the CPU itself loses digits or overflows on the way (its float32 vector functions are
approximations, its bfloat16 and float16 ones round in between), the value in float64 is right too.
"""

import opinfo_cases as cases
import pytest
import torch

torch.set_num_threads(1)

MAGNITUDES = [
    0.0, 1e-45, 1e-39, 1.17549435e-38, 2e-38, 1e-30, 6e-8, 1e-4, 0.1, 0.25, 0.4999999701976776, 0.5, 0.75,
    0.9999999403953552, 1.0, 1.0000001192092896, 1.5, 2.0, 2.5, 3.0, 3.5, 3.1415927410125732, 4.7, 8.0, 10.0, 20.0,
    34.0, 88.0, 89.5, 100.0, 127.0, 1000.5, 32768.0, 65504.0, 1e5, 8388607.5, 16777216.0, 1e9, 1e15, 1e20, 1e30, 2e38,
    3.4028234663852886e38, float("inf"), float("nan"),
]  # fmt: skip
GRID = torch.tensor(MAGNITUDES + [-m for m in MAGNITUDES], dtype=torch.float64)
NUMBERS = (0.0, -0.0, 3.0, -0.7, 1e-39, 1e38, float("inf"), float("-inf"), float("nan"))

DTYPES = [torch.float32, torch.bfloat16, torch.float16]

# Arguments after the tensors for which the schema has no default, or whose other values are other functions.
ARGUMENTS = {
    "aten::div.Tensor_mode": [{"rounding_mode": "floor"}, {"rounding_mode": "trunc"}],
    "aten::gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
    "aten::gelu_backward": [{"approximate": "none"}, {"approximate": "tanh"}],
    "aten::round.decimals": [{"decimals": 2}, {"decimals": -2}],
    "aten::logit": [{}, {"eps": 1e-3}],
    "aten::pow.Tensor_Scalar": [{"exponent": e} for e in (-2, -1, -0.5, 0, 0.5, 1, 2, 3, 4, 5, 0.3, -2.5)],
    "aten::pow.Scalar": [{"self": s} for s in (-2.0, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, float("inf"))],
    "aten::clamp": [{"min": -1.0, "max": 2.0}, {"min": float("-inf")}, {"max": 0.0}],
    "aten::clamp_min": [{"min": 0.0}, {"min": float("nan")}],
    "aten::clamp_max": [{"max": 0.0}, {"max": float("nan")}],
    "aten::threshold": [{"threshold": 0.0, "value": 0.0}],
    "aten::threshold_backward": [{"threshold": 0.0}],
    "aten::leaky_relu_backward": [{"negative_slope": 0.01, "self_is_result": False}],
    "aten::softplus_backward": [{"beta": 1.0, "threshold": 20.0}],
    "aten::hardshrink_backward": [{"lambd": 0.5}],
    "aten::softshrink_backward": [{"lambd": 0.5}],
    "aten::hardtanh_backward": [{"min_val": -1.0, "max_val": 1.0}],
    "aten::elu_backward": [{"alpha": 1.0, "scale": 1.0, "input_scale": 1.0, "is_result": False}],
    "aten::lerp.Scalar": [{"weight": 0.25}],
    "aten::binary_cross_entropy_with_logits": [{"reduction": 0}],
    "aten::mse_loss": [{"reduction": 0}],
    "aten::huber_loss": [{"reduction": 0}],
    "aten::smooth_l1_loss": [{"reduction": 0}],
    "aten::div.Scalar_mode": [{"other": v, "rounding_mode": mode} for v in NUMBERS for mode in ("floor", "trunc")],
}
for scalar_form in (
    "add.Scalar", "sub.Scalar", "rsub.Scalar", "mul.Scalar", "div.Scalar", "floor_divide.Scalar", "fmod.Scalar",
    "remainder.Scalar", "copysign.Scalar", "eq.Scalar", "ne.Scalar", "lt.Scalar", "le.Scalar", "gt.Scalar",
    "ge.Scalar", "xlogy.Scalar_Other", "special_xlog1py.other_scalar",
):  # fmt: skip
    ARGUMENTS["aten::" + scalar_form] = [{"other": v} for v in NUMBERS]
for scalar_form in ("remainder.Scalar_Tensor", "xlogy.Scalar_Self", "special_xlog1py.self_scalar"):
    ARGUMENTS["aten::" + scalar_form] = [{"self": v} for v in NUMBERS]

# Takes tensors only, but is not a function of the elements.
NOT_POINTWISE = {
    "aten::bernoulli", "aten::bernoulli.Tensor", "aten::bucketize.Tensor", "aten::cauchy", "aten::exponential",
    "aten::log_normal", "aten::normal_functional", "aten::random", "aten::searchsorted.Tensor", "aten::uniform",
    "aten::slice_scatter", "aten::isin.Tensor_Tensor",
    # In test_composites.py: neighbours are those of a type; the CPU's zeta function is NaN where it underflows.
    "aten::nextafter", "aten::special_zeta",
}  # fmt: skip

# Functions with zeros that their terms do not have: errors are relative to the largest term, a function of the tensors.
TERMS = {
    "aten::tan": lambda x: 1 + torch.tan(x) ** 2,  # the slope: relative to 1 in the angle
    "aten::sinc": lambda x: 1 / (1 + x.abs()),
    "aten::gelu": lambda x: x.abs(),  # x * (1 + erf), on the CPU
    "aten::gelu_backward": lambda g, x: g.abs() * (1 + x.abs() + x.abs() ** 3),
    "aten::logaddexp": lambda a, b: 1 + torch.maximum(a.abs(), b.abs()),
    "aten::logaddexp2": lambda a, b: 1 + torch.maximum(a.abs(), b.abs()),
    "aten::binary_cross_entropy_with_logits": lambda x, y: 1 + x.abs() * (1 + y.abs()),
    "aten::lgamma": lambda x: 1 + x.abs() * (1 + (1 + x.abs()).log()),
    "aten::digamma": lambda x: 1 + x.abs().reciprocal() + (1 + torch.tan(torch.pi * x) ** 2) * (x < 0),
    "aten::special_bessel_j0": lambda x: 1 + 0 * x,
    "aten::special_bessel_j1": lambda x: x.abs().clamp(max=1),
    "aten::special_bessel_y0": lambda x: 1 + x.log().abs(),
    "aten::special_bessel_y1": lambda x: 1 + x.reciprocal(),
    "aten::special_airy_ai": lambda x: (1 + x.abs()) ** 1.25,  # the phase grows with the power 1.5
    "aten::special_spherical_bessel_j0": lambda x: 1 / (1 + x.abs()),
}

# Series in FP32: units in the last place, where 4 are too few.
UNITS = {
    name: 16
    for name in (
        "aten::i0", "aten::special_i0e", "aten::special_i1", "aten::special_i1e", "aten::special_modified_bessel_i0",
        "aten::special_modified_bessel_i1", "aten::special_modified_bessel_k0", "aten::special_modified_bessel_k1",
        "aten::special_scaled_modified_bessel_k0", "aten::special_scaled_modified_bessel_k1", "aten::special_bessel_j0",
        "aten::special_bessel_j1", "aten::special_bessel_y0", "aten::special_bessel_y1", "aten::special_airy_ai",
        "aten::lgamma", "aten::digamma", "aten::special_ndtri", "aten::special_log_ndtr",
    )
}  # fmt: skip

# An underflow to zero keeps its sign in a fused multiply-add, or in a product that rounds once.
UNDERFLOWS = {"aten::lerp.Scalar", "aten::logaddexp2"}


def operands(count, dtype):
    grid = GRID.to(dtype)
    if count == 2:
        n = grid.numel()
        pair = [grid.repeat_interleave(n), grid.repeat(n)]
    else:
        pair = [grid]
    # Whole vectors only: the CPU's scalar loop over the rest treats NaN in its own way in several operators.
    return [torch.nn.functional.pad(t, (0, -t.numel() % 64), value=1.0) for t in pair]


def table():
    for name in cases.LOWERED_OVERLOADS:
        if name in NOT_POINTWISE:
            continue
        packet, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if op is None or [str(r.type) for r in op._schema.returns] != ["Tensor"]:
            continue
        # PyTorch runs a composite operator as the others that it is made of.
        if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
            continue
        required = [a for a in op._schema.arguments if not a.has_default_value()]
        tensors = [a.name for a in required if str(a.type) == "Tensor"]
        given = set(tensors) | set(ARGUMENTS.get(name, [{}])[0])
        if len(tensors) not in (1, 2) or any(a.name not in given for a in required):
            continue
        values = operands(len(tensors), torch.float32)
        for extra in ARGUMENTS.get(name, [{}]):
            try:
                result = op(**dict(zip(tensors, values, strict=True)), **extra)
            except (RuntimeError, NotImplementedError, IndexError):
                continue  # not for floating point, or not for vectors
            if result.shape == values[0].shape:
                label = name.removeprefix("aten::") + "".join(f"-{v}" for v in extra.values())
                yield pytest.param(name, op, tensors, extra, id=label)


def agree(computed, expected, units, terms, underflows):
    """Equal NaN, infinity and sign of zero; numbers within `units` units of the result's type."""
    if not expected.dtype.is_floating_point:
        return computed == expected
    info = torch.finfo(expected.dtype)
    c, e = computed.double(), expected.double()
    same = (c == e) & (torch.signbit(c) == torch.signbit(e)) | (c.isnan() & e.isnan())
    size = e.abs() if terms is None else torch.maximum(e.abs(), terms)
    size = size.nan_to_num(0, 0, 0).clamp(min=info.smallest_normal)
    near = ((c - e).abs() <= units * torch.exp2(torch.floor(torch.log2(size))) * info.eps) & c.isfinite() & e.isfinite()
    return same | (near & (torch.tensor(underflows) | (c != 0) | (e != 0)))


def number_as(dtype, value):
    return torch.tensor(value, dtype=dtype).item() if isinstance(value, float) else value


def on_cpu(op, arguments, dtype):
    try:
        return op(**arguments)
    except RuntimeError as error:  # no CPU kernel for the type
        assert "not implemented for" in str(error)
        wide = {k: v.float() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
        return op(**wide).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("name, op, tensors, extra", list(table()))
def test_grid(name, op, tensors, extra, dtype):
    values = operands(len(tensors), dtype)
    expected = on_cpu(op, {**dict(zip(tensors, values, strict=True)), **extra}, dtype)
    computed = op(**{n: v.to("neuron") for n, v in zip(tensors, values, strict=True)}, **extra).cpu()
    assert computed.dtype == expected.dtype
    units = UNITS.get(name, 4) if dtype == torch.float32 else 1
    terms = TERMS[name](*(v.double() for v in values)) if name in TERMS else None
    good = agree(computed, expected, units, terms, name in UNDERFLOWS)
    if not good.all() and expected.dtype.is_floating_point:
        wide = {n: v.double() for n, v in zip(tensors, values, strict=True)}
        # The CPU rounds numbers to the tensor's type for some operators, and not for others.
        for numbers in (extra, {k: number_as(dtype, v) for k, v in extra.items()}):
            exact = op(**wide, **numbers).to(expected.dtype)
            good |= agree(computed, exact, units, terms, name in UNDERFLOWS)
    wrong = torch.nonzero(~good).flatten().tolist()
    lines = [
        f"{[v[i].item() for v in values]}: {computed[i].item()!r}, CPU {expected[i].item()!r}"
        for i in wrong[:: max(1, len(wrong) // 12)]
    ]
    assert not wrong, f"{name} {extra}: {len(wrong)} of {expected.numel()} differ\n" + "\n".join(lines)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("function", [torch.fmod, torch.remainder, torch.floor_divide])
def test_remainders_of_any_quotient_are_exact(function, dtype):
    torch.manual_seed(0)
    exponents = torch.randint(-14, 15, (2, 4096)) * (8 if dtype != torch.float16 else 0.7)
    x, y = (torch.randn(2, 4096) * torch.exp2(exponents.float())).to(dtype)
    # The CPU's float32 function loses large quotients.
    expected = torch.fmod(x.double(), y.double()).float()
    if function is torch.floor_divide:  # in bfloat16 and float16 the quotient is rounded before its floor is taken
        expected = function(x, y).float()
    if function is torch.remainder:
        other_sign = (expected != 0) & ((expected < 0) != (y < 0))
        expected = torch.where(other_sign, expected + y.float(), expected)
    computed = function(x.to("neuron"), y.to("neuron")).cpu()
    torch.testing.assert_close(computed, expected.to(dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("function", [torch.sin, torch.cos])
def test_angles_of_any_size(function):
    torch.manual_seed(0)
    x = torch.randn(4096) * torch.exp2(torch.randint(0, 120, (4096,)).float())
    error = (function(x.to("neuron")).cpu().double() - function(x.double())).abs().max().item()
    assert error < 3e-7


@pytest.mark.parametrize("function", [torch.sin, torch.cos, torch.tan])
def test_angles_next_to_zeros_and_poles_keep_their_digits(function):
    nearest = (torch.arange(-2600, 2601).double() * (torch.pi / 2)).float()
    up = nearest
    x = [nearest, nearest + 1e-3, nearest * (1 - 1e-5)]
    for _ in range(3):
        up = up.nextafter(torch.tensor(float("inf")))
        x.append(up)
    x = torch.cat(x)
    x = x[x.abs() < 4096]  # beyond, an angle has 32 digits of a turn
    exact = function(x.double())
    error = ((function(x.to("neuron")).cpu().double() - exact) / exact).nan_to_num(0).abs()
    worst = error.argmax()
    assert error[worst] < 4e-7, (x[worst].item(), error[worst].item())


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 7, 9, 20])
def test_top_k_tells_the_extremes_apart(k, largest):
    torch.manual_seed(0)
    big = torch.finfo(torch.float32).max
    extremes = torch.tensor([float("nan"), float("inf"), big, big * 0.9999999, 0.0, -1.0, -big, float("-inf")])
    x = extremes[torch.randint(0, len(extremes), (64, 100))]
    x[:32] = torch.where(torch.isnan(x[:32]), torch.tensor(float("-inf")), x[:32])
    # Rows with little else than the values that come last.
    x[::2, k // 2 :] = extremes[[0, 1, 2] if not largest else [5, 6, 7]][torch.randint(0, 3, (32, 100 - k // 2))]
    expected, order = torch.sort(x, dim=1, descending=largest, stable=True)
    values, indices = torch.topk(x.to("neuron"), k, largest=largest)
    torch.testing.assert_close(values.cpu(), expected[:, :k], rtol=0, atol=0, equal_nan=True)
    assert torch.equal(indices.cpu(), order[:, :k])


def test_scatter_add_keeps_infinity_and_nan_in_their_rows():
    torch.manual_seed(0)
    rows = torch.randn(200, 6)
    rows[5] = float("inf")
    rows[17] = float("nan")
    rows[40] = float("-inf")
    rows[90] = float("inf")
    index = torch.arange(200) % 60  # 5, 65, 125, 185 meet; 40 and 100 meet
    index[90] = 40  # both infinities: NaN
    zeros = torch.zeros(60, 6)
    expected = zeros.index_add(0, index, rows)
    computed = zeros.to("neuron").index_add(0, index.to("neuron"), rows.to("neuron")).cpu()
    torch.testing.assert_close(computed, expected, equal_nan=True)
