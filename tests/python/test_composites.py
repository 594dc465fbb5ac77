"""Operators made of other operators, at sizes beyond PyTorch's samples: more rows than partitions, odd and prime
lengths, empty results, values that decide the shape. Everything runs on the device."""

import itertools
import math
import warnings

import pytest
import torch
import torch.nn.functional as F

import trnsim


@pytest.fixture(autouse=True)
def nothing_on_the_host():
    trnsim.reset_report()
    yield
    assert trnsim.fallbacks() == []


def both(function, *tensors):
    """The function on the device and on the CPU."""
    return function(*(t.to("neuron") for t in tensors)), function(*tensors)


def assert_same(function, *tensors, **tolerance):
    actual, expected = both(function, *tensors)
    actual = torch.utils._pytree.tree_map(lambda t: t.cpu(), actual)
    torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)


def random(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def whole(high, *sizes, seed=0):
    return torch.randint(0, high, sizes, generator=torch.Generator().manual_seed(seed))


# ---- shapes that depend on values
@pytest.mark.parametrize("sizes", [(), (1,), (300,), (129, 7), (3, 0, 4), (5, 6, 7)])
def test_positions(sizes):
    x = whole(3, *sizes)
    assert_same(torch.nonzero, x)
    assert_same(torch.argwhere, x)
    assert_same(lambda t: t[t > 1], x)
    assert_same(lambda t: torch.masked_select(t, t > 5), x)  # nothing
    assert_same(lambda t: torch.nonzero_static(t, size=4, fill_value=-7), x)


def test_sets():
    x = whole(40, 3, 301)
    assert_same(lambda t: torch.unique(t, return_inverse=True, return_counts=True), x)
    assert_same(lambda t: torch.unique_consecutive(t, return_inverse=True, return_counts=True), x // 30)
    assert_same(lambda t: torch.unique(t, dim=0, return_inverse=True, return_counts=True), whole(2, 200, 3))
    assert_same(lambda t: torch.unique(t, dim=1), whole(2, 3, 131))
    assert_same(torch.unique, torch.tensor([True, False, True]))
    assert_same(torch.unique, torch.empty(0))


def test_counts():
    x = whole(50, 1000)
    assert_same(torch.bincount, x)
    assert_same(lambda t, w: torch.bincount(t, w, minlength=77), x, torch.ones(1000))
    assert_same(lambda t: torch.repeat_interleave(t), whole(4, 200))
    assert_same(lambda t: torch.histogram(t, 13, range=(-2.0, 2.0)).hist, random(999))
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.bincount(torch.tensor([-1], device="neuron"))
    with pytest.raises(RuntimeError, match="can not be negative"):
        torch.repeat_interleave(torch.tensor([1, -1], device="neuron"))


@pytest.mark.parametrize("row, col, offset", [(5, 5, 0), (150, 3, -20), (3, 150, 40), (4, 4, 9), (0, 3, 0)])
def test_triangles(row, col, offset):
    for function in (torch.tril_indices, torch.triu_indices):
        assert torch.equal(function(row, col, offset, device="neuron").cpu(), function(row, col, offset))


# ---- reductions at an index
@pytest.mark.parametrize("reduce", ["prod", "amin", "amax", "mean", "sum"])
@pytest.mark.parametrize("include_self", [True, False])
def test_reductions_at_an_index(reduce, include_self):
    index = whole(11, 333, 5)
    assert_same(
        lambda x, i, s: x.scatter_reduce(0, i, s, reduce, include_self=include_self),
        random(13, 5), index, random(333, 5, seed=1) * 0.3 + 1, rtol=2e-5, atol=1e-5,
    )  # fmt: skip
    if reduce != "sum":
        assert_same(
            lambda x, i, s: x.index_reduce(1, i, s, reduce, include_self=include_self),
            random(3, 13, 2), whole(13, 200), random(3, 200, 2, seed=1) * 0.3 + 1, rtol=2e-5, atol=1e-5,
        )  # fmt: skip


def test_an_index_beyond_the_places_is_an_error():
    x, index = torch.zeros(4, device="neuron"), torch.tensor([0, 4], device="neuron")
    with pytest.raises(RuntimeError, match="index 4 is out of bounds for dimension 0 with size 4"):
        x.scatter_reduce(0, index, torch.ones(2, device="neuron"), "amax").cpu()


# ---- order
def test_running_extremes_and_modes():
    x = whole(9, 150, 37).float()
    for function in (torch.cummax, torch.cummin):
        assert_same(lambda t, f=function: f(t, 1), x)
        assert_same(lambda t, f=function: f(t, 0), torch.where(x == 4, torch.nan, x))
    assert_same(lambda t: torch.mode(t, 1).values, x)
    assert_same(lambda t: torch.nanmedian(t, 1).values, torch.where(x == 4, torch.nan, x))


def test_integers_without_common_divisors():
    pair = torch.tensor([2**31 - 1, 1836311903, 0, 0, -12, 46341]), torch.tensor([2, 1134903170, 5, 0, 18, -46340])
    assert_same(torch.gcd, *(t.int() for t in pair))
    assert_same(torch.lcm, whole(200, 300, seed=1).int(), whole(200, 300, seed=2).int())


def test_parts_of_numbers():
    x = torch.tensor([0.0, 1.0, -1.0, 0.75, 3e38, -1e-37, 2.0**-126, float("inf"), 65504.0])
    assert_same(torch.frexp, x)
    finite = x[x.isfinite()]
    for dtype in (torch.float32, torch.bfloat16):
        assert_same(torch.nextafter, finite.to(dtype), -finite.flip(0).to(dtype))
        assert_same(torch.nextafter, finite.to(dtype), torch.full_like(finite, torch.inf).to(dtype))


# ---- complex numbers and Fourier transforms
@pytest.mark.parametrize("n", [1, 2, 7, 127, 360, 1009, 1031, 4096])
def test_transforms(n):
    x = random(2, n)
    close = {"rtol": 1e-4, "atol": 2e-5 * n**0.5}
    assert_same(torch.fft.fft, x, **close)
    assert_same(lambda t: torch.fft.irfft(torch.fft.rfft(t), n=n), x, **close)
    assert_same(lambda t: torch.fft.ifft(torch.fft.fft(t)).abs(), x, **close)


def test_transforms_of_planes_and_their_gradients():
    def gradient(t):
        t = t.detach().requires_grad_()
        (torch.fft.rfft2(t).abs() ** 2).sum().backward()
        return t.grad

    assert_same(gradient, random(6, 10), rtol=1e-4, atol=1e-2)
    assert_same(lambda t: torch.stft(t, 16, window=torch.hann_window(16, device=t.device), return_complex=True),
                random(200), rtol=1e-4, atol=1e-4)  # fmt: skip


def test_complex_reductions_convert_their_operand_first():
    a = torch.complex(random(130, 5), random(130, 5, seed=1))
    for function in (torch.sum, torch.mean):
        assert_same(lambda t, f=function: f(t, dtype=torch.complex64), a)
        assert_same(lambda t, f=function: f(t.real, 0, dtype=torch.complex64), a)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the imaginary part is dropped
            assert_same(lambda t, f=function: f(t, 1, dtype=torch.float32), a)


def test_complex_arithmetic():
    a, b = torch.complex(random(130, 5), random(130, 5, seed=1)), torch.complex(random(130, 5, seed=2), random(5))
    for function in (torch.add, torch.sub, torch.mul, torch.div, torch.eq):
        assert_same(function, a, b)
        assert_same(function, a, b.real)
    for function in (
        torch.abs,
        torch.angle,
        torch.conj,
        torch.neg,
        torch.exp,
        torch.sgn,
        torch.sum,
        torch.view_as_real,
    ):
        assert_same(function, a)
    assert_same(lambda t: (2 - 3j) * t.conj() + 1j, a)
    assert_same(lambda s, t: s @ t.mT.conj(), a, b)
    assert_same(lambda t: t.mean(0), a)
    assert_same(lambda t: t.imag.clone(), a)
    assert_same(lambda t: torch.cat([t, t.conj()]), a)
    c = a.clone().to("neuron")
    c[3:] = 7 + 1j
    c.mul_(2)
    assert torch.equal(c.cpu()[3:], torch.full_like(a[3:], 14 + 2j)) and torch.equal(c.cpu()[:3], a[:3] * 2)


# ---- matrices
def matrix(n, batch=()):
    return random(*batch, n, n) + 2 * n**0.5 * torch.eye(n)


@pytest.mark.parametrize("n", [1, 2, 5, 33])
def test_factorizations(n):
    a = matrix(n, (2,))
    close = {"rtol": 1e-4, "atol": 1e-4}
    assert_same(lambda t: torch.linalg.cholesky(t @ t.mT), a, **close)
    assert_same(torch.linalg.lu, a, **close)
    assert_same(torch.linalg.qr, a, **close)
    assert_same(torch.linalg.inv, a, **close)
    assert_same(torch.linalg.slogdet, a, **close)
    assert_same(torch.linalg.eigvalsh, a + a.mT, **close)
    assert_same(torch.linalg.svdvals, a, **close)
    assert_same(torch.linalg.pinv, a, **close)
    assert_same(lambda t: torch.linalg.solve(t, t[..., :1]), a, **close)
    assert_same(lambda t: torch.matrix_exp(t / n), a, **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_counts_as_zero_is_a_matter_of_float32(dtype):
    """float64 is computed as float32, so its default tolerances are those of float32."""
    a = random(5, 3).to(dtype) @ random(3, 6, seed=1).to(dtype)
    assert torch.linalg.matrix_rank(a.to("neuron")).item() == 3
    assert torch.linalg.matrix_rank(a.to("neuron"), rtol=1e-3).item() == 3
    assert_same(torch.linalg.pinv, a, rtol=1e-3, atol=1e-4)
    assert_same(lambda t: torch.linalg.lstsq(t, t[:, :1]).solution, a, rtol=1e-3, atol=1e-4)

    def gradient(t):
        t = t.clone().requires_grad_()
        return torch.autograd.grad(torch.linalg.pinv(t, rtol=1e-3).square().sum(), t)[0]

    assert_same(gradient, a, rtol=1e-2, atol=1e-3)


def test_decompositions_give_the_matrix_back():
    for sizes in [(7, 3), (3, 7), (2, 40, 40), (1, 5)]:
        a = random(*sizes).to("neuron")
        for full in (False, True):
            u, s, vh = torch.linalg.svd(a, full_matrices=full)
            k = s.shape[-1]
            torch.testing.assert_close((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a, rtol=1e-4, atol=1e-4)
            for side in (u, vh.mT):
                eye = torch.eye(side.shape[-1]).expand(*side.shape[:-2], -1, -1)
                torch.testing.assert_close((side.mT @ side).cpu(), eye, rtol=0, atol=1e-4)
    rank_one = torch.ones(4, 3, device="neuron")
    u, s, vh = torch.linalg.svd(rank_one)
    torch.testing.assert_close(s.cpu(), torch.tensor([12**0.5, 0, 0]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close((u.mT @ u).cpu(), torch.eye(4), rtol=0, atol=1e-5)


def test_matrices_without_a_factorization():
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        torch.linalg.cholesky(torch.tensor([[1.0, 2.0], [2.0, 1.0]], device="neuron"))
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv(torch.ones(3, 3, device="neuron"))
    assert torch.linalg.det(torch.ones(3, 3, device="neuron")).item() == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "decompose",
    [torch.linalg.eigh, torch.linalg.eigvalsh, torch.linalg.svd, torch.linalg.svdvals, torch.linalg.pinv]
    + [torch.linalg.matrix_rank, torch.linalg.cond, lambda t: torch.linalg.matrix_norm(t, "nuc")],
)
def test_elements_that_are_not_finite_have_no_eigenvalues(decompose, bad):
    a = torch.eye(4)
    a[2, 1] = bad
    with pytest.raises(torch.linalg.LinAlgError, match="failed to converge"):
        decompose(a.to("neuron"))
    with pytest.raises(torch.linalg.LinAlgError, match="Batch element 1"):
        decompose(torch.stack([torch.eye(4), a]).to("neuron"))


def test_eigenvalues_read_one_triangle_only():
    a = torch.tensor([[2.0, float("nan")], [1.0, 2.0]], device="neuron")
    torch.testing.assert_close(torch.linalg.eigvalsh(a).cpu(), torch.tensor([1.0, 3.0]))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_singular_values_whose_squares_leave_float32(scale):
    a = random(5, 3)
    expected = torch.linalg.svdvals(a.double()) * scale
    actual = torch.linalg.svdvals((a * scale).to("neuron")).cpu().double()
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=0)


def test_a_solved_row_does_not_take_up_what_others_hold():
    """NaN and infinities reach the rows that depend on them, as on the CPU, and no others."""
    for bad in (float("nan"), float("inf")):
        a = torch.tensor([[2.0, 1.0, bad], [0.0, 3.0, 1.0], [0.0, 0.0, 4.0]])
        one = torch.ones(3, 1)
        for upper in (True, False):
            triangle = a if upper else a.mT.contiguous()
            assert_same(lambda t, b, upper=upper: torch.linalg.solve_triangular(t, b, upper=upper), triangle, one)
        assert_same(torch.linalg.lu_factor_ex, torch.tensor([[2.0, 1.0], [1.0, bad]]))


# ---- products, embeddings, norms
def test_products_of_float8_with_scales():
    """trn2 computes with float8_e5m2; test_float8.py has float8_e4m3fn."""
    a, b = random(33, 64).to(torch.float8_e5m2), random(48, 64, seed=1).to(torch.float8_e5m2)
    one, half, bias = torch.tensor(1.5), torch.tensor(0.5), random(48)
    rows, columns = random(33, 1).abs(), random(1, 48).abs()
    for scales in ((one, half), (rows, columns)):
        for type_, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1.6e-2), (torch.float8_e5m2, 0.25)):
            actual, expected = both(
                lambda x, y, s, t, bias, type_=type_: torch._scaled_mm(x, y.t(), s, t, bias=bias, out_dtype=type_),
                *(a, b, *scales, bias),
            )
            assert actual.dtype == type_
            torch.testing.assert_close(actual.float().cpu(), expected.float(), rtol=tolerance, atol=1e-4)
    odd = [random(7, 13).to(torch.float8_e5m2), random(5, 13, seed=1).to(torch.float8_e5m2)]  # not multiples of 16
    assert_same(
        lambda x, y, s, t: torch._scaled_mm(x, y.t(), s, t, out_dtype=torch.float32),
        *odd,
        one,
        half,
        rtol=1e-5,
        atol=1e-5,
    )
    per_row = torch.nn.functional.ScalingType.RowWise
    assert_same(
        lambda x, y, s, t: torch.nn.functional.scaled_mm(x, y.t(), s, per_row, t, per_row, output_dtype=torch.float32),
        *(a, b, rows, columns),
        rtol=1e-5,
        atol=1e-4,
    )
    with pytest.raises(ValueError, match="Invalid scaling configuration"):
        torch._scaled_mm(*(t.to("neuron") for t in (a, b.t(), rows.flatten(), columns.flatten())))


@pytest.mark.parametrize("kind", ["2d 3d", "3d 3d", "2d 2d", "3d 2d"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_groups(kind, dtype):
    sizes = {"2d 3d": [(48, 32), (3, 32, 64)], "3d 3d": [(3, 16, 32), (3, 32, 64)]}
    sizes |= {"2d 2d": [(16, 48), (48, 64)], "3d 2d": [(3, 16, 32), (32, 48)]}
    a, b = (random(*s, seed=i).to(dtype) for i, s in enumerate(sizes[kind]))
    offsets = None if kind == "3d 3d" else torch.tensor([16, 16, 48], dtype=torch.int32)

    def gradients(x, y, *ends):
        x, y = (t.detach().requires_grad_() for t in (x, y))
        out = torch.nn.functional.grouped_mm(x, y, offs=ends[0] if ends else None)
        return out.detach(), *torch.autograd.grad(out, (x, y), torch.ones_like(out))

    tolerance = {"rtol": 1.6e-2, "atol": 1e-1} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-4}
    assert_same(gradients, a, b, *([] if offsets is None else [offsets]), **tolerance)


def test_chunks_joined_and_copies_split():
    parts = [random(*s) for s in ((7, 5, 4), (3, 5, 4), (9, 2))]
    for chunks in (1, 3, 4):
        assert_same(lambda *t, chunks=chunks: torch._chunk_cat(t, 0, chunks), *parts)
    assert_same(lambda *t: torch._chunk_cat(t, 1, 3), random(3, 7, 4), random(3, 5, 4))
    wide = torch.empty(3, 27, device="neuron")  # what a sharded optimizer writes: joined and widened at once
    narrow = [p.bfloat16() for p in (random(7, 5), random(8, 3), random(2, 3))]
    assert torch._chunk_cat([p.to("neuron") for p in narrow], 0, 3, out=wide) is wide
    assert torch.equal(wide.cpu(), torch._chunk_cat(narrow, 0, 3).float())
    x = random(7, 5)
    assert_same(lambda t: torch.split_with_sizes_copy(t, [2, 0, 5]), x)
    outs = [torch.empty(7, n, device="neuron") for n in (2, 3)]
    torch.split_with_sizes_copy(x.to("neuron"), [2, 3], 1, out=outs)
    assert torch.equal(torch.cat(outs, 1).cpu(), x)


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_embeddings_of_bounded_length(norm):
    """Rows that are looked up are shortened in place, once, also when they are looked up twice."""

    def look_up(weight, index):
        weight = weight.clone()
        return torch.nn.functional.embedding(index, weight, max_norm=1.0, norm_type=norm), weight

    assert_same(look_up, random(9, 6), torch.tensor([[1, 2, 2, 0], [3, 1, 1, 8]]), rtol=1e-6, atol=1e-6)


def test_gradients_of_bags_scaled_by_how_often_a_row_is_used():
    """A row gets 1 / its uses from each; the CPU's kernel divides by the uses of another row."""
    weight = random(5, 6).to("neuron").requires_grad_()
    index = torch.tensor([[1, 2, 2, 0], [3, 1, 1, 2]], device="neuron")
    out = torch.nn.functional.embedding_bag(index, weight, mode="sum", scale_grad_by_freq=True)
    (gradient,) = torch.autograd.grad(out.sum(), weight)
    torch.testing.assert_close(gradient.cpu(), torch.tensor([1.0, 1, 1, 1, 0]).unsqueeze(1).expand(5, 6))


@pytest.mark.parametrize("types", itertools.product(("float32", "float16", "int32", "bool"), repeat=3))
def test_outer_products_promote_what_they_add(types):
    m, a, b = (torch.tensor([1, 0, 2]).to(getattr(torch, t)) for t in types)
    assert_same(torch.addr, m.expand(3, 3), a, b)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_take_indices_and_offsets_of_two_types(mode):
    def gradient(weight, index, offsets):
        weight = weight.clone().requires_grad_()
        out = F.embedding_bag(index, weight, offsets, mode=mode)
        return torch.autograd.grad(out.square().sum(), weight)[0]

    index = torch.tensor([0, 2, 3, 1, 4], dtype=torch.int32)
    assert_same(gradient, random(5, 6), index, torch.tensor([0, 2, 4]))
    bags = (random(5, 6), index, torch.tensor([0, 2]))
    types = both(lambda *tensors: [t.dtype for t in torch._embedding_bag(*tensors)], *bags)
    assert types[0] == types[1]


@pytest.mark.parametrize("index", [[-1, 1], [11, 8]])
def test_bags_refuse_rows_that_are_not_there(index):
    message = rf"Expected idx >= 0 && idx < num_embeddings but found idx to be {index[0]}"
    for device in ("cpu", "neuron"):
        with pytest.raises(RuntimeError, match=message):
            F.embedding_bag(torch.tensor([index], device=device), torch.zeros(10, 2, device=device), padding_idx=0)


def test_statistics_of_rows_without_elements():
    assert_same(lambda t: torch.native_group_norm(t, None, None, 2, 6, 0, 3, 1e-5), torch.empty(2, 6, 0))
    assert_same(lambda t: torch.native_layer_norm(t, (0,), None, None, 1e-5), torch.empty(2, 0))
    assert_same(lambda t: torch._fused_rms_norm(t, (0,), None, 1e-5), torch.empty(2, 0))


# ---- special functions over their range, against float64
RANGES = {
    "lgamma": (-9.7, 60), "digamma": (0.01, 60), "erfinv": (-0.999999, 0.999999), "i0": (-20, 20),
    "special.bessel_j0": (-60, 60), "special.bessel_j1": (-60, 60), "special.bessel_y0": (0.01, 60),
    "special.bessel_y1": (0.05, 60), "special.modified_bessel_k0": (0.01, 30), "special.modified_bessel_k1": (0.01, 30),
    "special.airy_ai": (-12, 12), "special.ndtri": (1e-30, 0.9999), "special.log_ndtr": (-30, 8),
    "special.i0e": (-80, 80), "special.i1e": (-40, 40), "special.spherical_bessel_j0": (-20, 20),
}  # fmt: skip


@pytest.mark.parametrize("name", RANGES)
def test_special_functions(name):
    function = torch
    for part in name.split("."):
        function = getattr(function, part)
    low, high = RANGES[name]
    x = torch.linspace(low, high, 400)
    exact = function(x.double())
    torch.testing.assert_close(function(x.to("neuron")).cpu().double(), exact, rtol=3e-6, atol=1e-5)


def test_zeta_functions():
    x, q = torch.meshgrid(torch.tensor([1.0, 1.5, 2, 3, 10, 21]), torch.linspace(-4.75, 30, 140), indexing="ij")
    actual = torch.special.zeta(x.to("neuron"), q.to("neuron")).cpu().double()
    exact = torch.special.zeta(x.double(), q.double())
    nearest = (q.double() - q.round()).abs().where(q < 0, 1.0) ** -x.double()  # the largest term
    good = (
        (actual == exact)
        | (actual.isnan() & exact.isnan())
        | ((actual - exact).abs() <= 3e-6 * (exact.abs() + nearest))
    )
    assert good.all()


@pytest.mark.parametrize("n", [1, 2, 5, 31, 40, 100, 169])
def test_polygamma_of_any_order(n):
    """Also where n! leaves FP32 and the product with the zeta function does not."""
    x = torch.cat([torch.linspace(0.3, 40, 200), torch.logspace(2, 4, 20), -torch.linspace(0.02, 6, 61)])
    actual = torch.special.polygamma(n, x.to("neuron")).cpu().double()
    exact = torch.special.polygamma(n, x.double())
    exact = torch.where(exact.abs() > torch.finfo(torch.float32).max, exact.sign() * float("inf"), exact)
    # As far off as an operand is whose last digit is rounded; sums of two signs in units of the nearest pole's term.
    nearest = torch.where(x < 0, (x - x.round()).abs().double(), float("inf")) ** -(n + 1.0) * float(math.factorial(n))
    torch.testing.assert_close(
        torch.where((actual - exact).abs() <= 3e-6 * (n + 1) * nearest, exact, actual),
        exact,
        rtol=3e-6 + 1.2e-7 * (n + 1),
        atol=1e-6,
    )


def test_polygamma_at_the_poles_and_at_infinity():
    x = torch.tensor([0.0, -1.0, -7.0, float("inf")])
    for n in (1, 2, 33, 34):
        pole = float("inf") if n % 2 else -float("inf")
        assert torch.special.polygamma(n, x.to("neuron")).tolist() == [pole, pole, pole, 0.0]


def test_incomplete_gamma_functions():
    """Elements that need few steps of a series keep their digits beside others that need thousands."""
    a, x = torch.meshgrid(torch.logspace(-3, 3, 60), torch.logspace(-3, 3, 60), indexing="ij")
    for function in (torch.special.gammainc, torch.special.gammaincc):
        actual = function(a.to("neuron"), x.to("neuron")).cpu()
        torch.testing.assert_close(actual.double(), function(a.double(), x.double()), rtol=1e-4, atol=4e-6)


def test_lgamma_keeps_its_digits_next_to_its_zeros():
    near = torch.logspace(-6, -0.31, 200)
    x = torch.cat([1 + near, 1 - near, 2 + near, 2 - near, torch.linspace(0.5, 20, 391)])
    torch.testing.assert_close(
        torch.lgamma(x.to("neuron")).cpu().double(), torch.lgamma(x.double()), rtol=1e-6, atol=4e-8
    )


@pytest.mark.parametrize("function", [torch.var, torch.std, torch.var_mean, torch.std_mean])
def test_too_few_elements_for_a_variance_are_warned_about(function):
    name = function.__name__
    for call in (lambda t: function(t), lambda t: function(t, dim=0, correction=3), lambda t: function(t[:0])):
        for _ in range(2):  # each time
            with pytest.warns(UserWarning, match=f"{name}.*degrees of freedom is <= 0"):
                call(torch.ones(1, device="neuron"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(torch.ones(4, device="neuron"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_numbers_in_a_row_keep_the_shape_of_out(dtype):
    calls = (
        lambda d, out: torch.linspace(0, 3, 4, out=out),
        lambda d, out: torch.logspace(0, 3, 4, base=2, out=out),
        lambda d, out: torch.arange(1, 5, out=out),
        lambda d, out: torch.arange(0, 8, 2, out=out),
    )
    for call in calls:
        results = []
        for device in ("cpu", "neuron"):
            x = torch.zeros(2, 3, dtype=dtype, device=device)
            call(device, x.narrow(1, 1, 2))
            results.append(x.tolist())
        assert results[0] == results[1]
        assert call("neuron", torch.empty(0, dtype=dtype, device="neuron")).shape == (4,)


def test_adaptive_pooling_keeps_channels_last():
    for x in (torch.randn(2, 6, 9, 7), torch.randn(2, 12, 9, 7)[:, ::2]):
        results = []
        for device in ("cpu", "neuron"):
            image = x.to(device).contiguous(memory_format=torch.channels_last).requires_grad_()
            value, index = torch.nn.functional.adaptive_max_pool2d(image, (4, 3), return_indices=True)
            value.sum().backward()
            results.append([t.cpu() for t in (value.detach(), index, image.grad)])
            assert all(t.is_contiguous(memory_format=torch.channels_last) for t in results[-1])
        torch.testing.assert_close(*results)


def channels_last(dims):
    return torch.channels_last if dims == 2 else torch.channels_last_3d


KEEP_CHANNELS_LAST = {
    "convolution": lambda x, dims: getattr(F, f"conv{dims}d")(x, x.new_full((3, 4, *[3] * dims), 0.5)),
    "convolution of such a weight": lambda x, dims: getattr(F, f"conv{dims}d")(
        x.contiguous(), x.new_full((3, 4, *[3] * dims), 0.5).to(memory_format=channels_last(dims))
    ),
    "transposed convolution": lambda x, dims: getattr(F, f"conv_transpose{dims}d")(
        x, x.new_full((4, 3, *[3] * dims), 0.5), stride=2
    ),
    "group norm": lambda x, dims: F.group_norm(x, 2),
    "reflection": lambda x, dims: F.pad(x, (1, 1) * dims, "reflect"),
    "replication": lambda x, dims: F.pad(x, (1, 1) * dims, "replicate"),
    "roll": lambda x, dims: x.roll((1, 2), (1, 2)),
    "unpooling": lambda x, dims: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "pixel shuffle": lambda x, dims: F.pixel_shuffle(x, 2),
    "channel shuffle": lambda x, dims: F.channel_shuffle(x, 2),
}


OF_IMAGES = ("unpooling", "pixel shuffle", "channel shuffle")


@pytest.mark.parametrize(
    ("name", "dims"),
    [(name, dims) for name in KEEP_CHANNELS_LAST for dims in (2, 3) if dims == 2 or name not in OF_IMAGES],
)
def test_images_and_volumes_keep_channels_last(name, dims):
    data = torch.randn(2, 4, *[6] * dims)
    results = []
    for device in ("cpu", "neuron"):
        x = data.to(device).contiguous(memory_format=channels_last(dims)).requires_grad_()
        y = KEEP_CHANNELS_LAST[name](x, dims)
        (y * y).sum().backward()
        results.append([y.detach().cpu(), x.grad.cpu()])
        kept = results[-1][: 1 if name == "group norm" else 2]  # PyTorch calls the kernel of an accelerator in rows
        assert all(t.is_contiguous(memory_format=channels_last(dims)) for t in kept)
        assert KEEP_CHANNELS_LAST[name](x.detach().contiguous(), dims).is_contiguous() or "weight" in name
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_pooling_of_volumes_keeps_channels_last(batch):
    volume = torch.randn(*(batch or (1,)), 6, 5, 6, 7).contiguous(memory_format=torch.channels_last_3d)
    volume = volume if batch else volume.squeeze(0)
    on_device = F.max_pool3d(volume.to("neuron"), 2, return_indices=True)
    on_cpu = F.max_pool3d(volume, 2, return_indices=True)
    assert [t.stride() for t in on_device] == [t.stride() for t in on_cpu]
    torch.testing.assert_close([t.cpu() for t in on_device], [*on_cpu])


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_a_convolution_without_channels(dims):
    kind = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)[dims - 1]
    for batch in (2, 0):
        convolution = kind(0, 8, 2).to("neuron")
        x = torch.randn(batch, 0, *([4] * dims), device="neuron", requires_grad=True)
        convolution(x).sum().backward()
        assert x.grad.shape == x.shape and convolution.weight.grad.shape == convolution.weight.shape
        assert convolution.bias.grad.tolist() == [0] * 8


def test_gradient_of_a_product_of_a_segment_without_a_number():
    def gradient(x):
        x = x.clone().requires_grad_()
        lengths = torch.tensor([1, 2, 3, 3], device=x.device)
        y = torch.segment_reduce(x, "prod", lengths=lengths, axis=0)
        return torch.autograd.grad(y, x, torch.ones_like(y))[0]

    nan = float("nan")
    assert_same(gradient, torch.tensor([1, nan, 3, 4, 5, 5, 0, 2, nan]))


def test_numbers_that_were_accepted_once_do_not_speak_for_others():
    x, y = random(5, 4).to("neuron"), whole(4, 5).to("neuron")
    torch.nn.functional.multi_margin_loss(x, y, p=2)
    with pytest.raises(ValueError, match="only p == 1 and p == 2 supported"):
        torch.nn.functional.multi_margin_loss(x, y, p=3)
    with pytest.raises(RuntimeError, match="[Oo]nly p == 1 and p == 2|p == 1|p == 2"):
        torch.ops.aten.multi_margin_loss(x, y, 3, 1.0, None, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("eps", [None, 1e-3])
@pytest.mark.parametrize("weighted", [True, False])
def test_rms_norm_is_one_kernel_forward_and_backward(dtype, eps, weighted):
    # Small inputs, so that a wrong epsilon shows.
    x, grad, weight = (0.05 * torch.randn(6, 40, 96)).to(dtype), torch.randn(6, 40, 96, dtype=dtype), torch.randn(96)
    results = {}
    for device in ("cpu", "neuron"):
        a, w = x.clone().to(device).requires_grad_(), weight.clone().to(device, dtype).requires_grad_()
        out = torch.nn.functional.rms_norm(a, (96,), w if weighted else None, eps)
        out.backward(grad.to(device))
        results[device] = [out, a.grad, *([w.grad] if weighted else [])]
    assert type(out.grad_fn).__name__ == "FusedRmsNormBackward0"
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for got, expected in zip(results["neuron"], results["cpu"], strict=True):
        torch.testing.assert_close(got.cpu().float(), expected.float(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("last", [False, True])
def test_no_bags(mode, last):
    """The CPU gives the same for sums and means; maxima of no bags end its process."""
    weight = torch.ones(5, 3, device="neuron", requires_grad=True)
    offsets = torch.zeros(int(last), dtype=torch.int64, device="neuron")
    for index in (torch.tensor([0, 4, 2], device="neuron"), torch.zeros(0, dtype=torch.int64, device="neuron")):
        out = F.embedding_bag(index, weight, offsets, mode=mode, include_last_offset=last)
        assert out.shape == (0, 3)
        out.sum().backward()
    assert weight.grad.cpu().eq(0).all()
