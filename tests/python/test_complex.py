"""Complex tensors as pairs of real ones: functions over the plane, sums, moves and logic."""

import pytest
import torch

import trnsim


@pytest.fixture(autouse=True)
def nothing_on_the_host():
    trnsim.reset_report()
    yield
    assert trnsim.fallbacks() == []


def numbers(*sizes, seed=0):
    return torch.randn(*sizes, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed))


def plane():
    x = torch.tensor([-7.5, -2.0, -1.0, -0.3, -1e-4, 0.0, 1e-4, 0.4, 1.0, 2.5, 6.0])
    return torch.complex(*(t.contiguous() for t in torch.meshgrid(x, x, indexing="ij")))


def assert_same(function, *tensors, **tolerance):
    actual = function(*(t.to("neuron") for t in tensors))
    expected = function(*tensors)
    actual = torch.utils._pytree.tree_map(lambda t: t.cpu(), actual)
    torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)


FUNCTIONS = (
    "sqrt rsqrt square reciprocal sgn exp expm1 exp2 log log1p log2 log10 sigmoid "
    "sin cos tan sinc sinh cosh tanh asin acos atan asinh acosh atanh"
)


@pytest.mark.parametrize("name", FUNCTIONS.split())
def test_functions_over_the_plane(name):
    function = getattr(torch, name)
    z = plane()
    exact = function(z.to(torch.complex128))
    found = function(z.to("neuron")).cpu().to(torch.complex128)
    finite = exact.isfinite()
    if name in ("atan", "atanh"):  # the branch points themselves: an infinity, however it is written
        finite &= exact.abs() < 1e3
    size = 1 + exact.abs()
    bad = finite & ~((found - exact).abs() <= 3e-6 * size)
    assert not bad.any(), (z[bad][:5], found[bad][:5], exact[bad][:5])


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "sqrt", "log1p", "acos", "tan"])
def test_gradients_of_functions(name):
    def gradient(z):
        z = z.clone().requires_grad_()
        return torch.autograd.grad(getattr(torch, name)(z), z, torch.ones_like(z))[0]

    assert_same(gradient, numbers(5, 4), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5, 1 + 2j])
def test_powers(exponent):
    z = numbers(4, 5)
    assert_same(lambda t: t**exponent, z, rtol=1e-5, atol=1e-5)
    assert_same(lambda t: exponent**t if exponent else t, z, rtol=1e-5, atol=1e-5)
    assert_same(lambda t, u: t**u, z, numbers(4, 5, seed=1), rtol=1e-5, atol=1e-5)


def test_powers_of_zero():
    zero = torch.zeros(2, dtype=torch.complex64, device="neuron")
    assert (zero ** torch.tensor([0, 2 + 1j], device="neuron")).tolist() == [1, 0]


def test_products_with_addends():
    a, b, c = numbers(3, 4), numbers(4, 5, seed=1), numbers(3, 5, seed=2)
    close = {"rtol": 1e-5, "atol": 1e-5}
    assert_same(lambda x, y, z: torch.addmm(z, x, y, beta=0.5, alpha=2 - 1j), a, b, c, **close)
    assert_same(lambda x, y, z: torch.baddbmm(z[None], x[None], y[None]), a, b, c, **close)
    assert_same(lambda x, y, z: torch.addbmm(z, x[None], y[None], beta=0), a, b, c, **close)
    assert_same(lambda x, y: torch.addmv(y[0, :3], x, y[:, 0]), a, b, **close)
    assert_same(lambda x, y: torch.addr(x, y[:3, 0], y[:, 1]), a, b, **close)
    assert_same(lambda x, y: torch.vdot(x[0], y[:, 0]), a, b, **close)
    assert_same(lambda x: torch.addcmul(x, x, x.conj(), value=2), a, **close)
    assert_same(lambda x: torch.addcdiv(x, x, x.flip(0), value=1j), a, **close)
    assert_same(lambda x: torch.lerp(x, x.flip(0), 0.25), a, **close)
    assert_same(lambda x: torch.linalg.cross(x[:, :3], x[:, 1:]), a, **close)


def test_sizes_and_their_gradients():
    def norms(z):
        z = z.clone().requires_grad_()
        values = [torch.linalg.vector_norm(z, p, dim=1) for p in (0, 1, 2, 3.5, float("inf"), -float("inf"))]
        return *(v.detach() for v in values), torch.autograd.grad(sum(v.sum() for v in values), z)[0]

    assert_same(norms, numbers(4, 6), rtol=1e-5, atol=1e-5)
    z = numbers(4, 6)
    assert_same(lambda z: (*torch.var_mean(z, 1), *torch.std_mean(z, 0, correction=0)), z, rtol=1e-5, atol=1e-5)


def test_products_distances_and_logarithms_of_sums():
    z, close = numbers(5, 7), {"rtol": 2e-5, "atol": 2e-5}
    assert_same(lambda t: (t.prod(), t.prod(1), t.prod(0, keepdim=True), t[:, :0].prod(1)), z, **close)
    assert_same(lambda t: (t.cumprod(1), t.cumprod(0), t[0, 0].cumprod(0)), z, **close)
    assert_same(lambda t: torch.logaddexp(t, t.flip(0)), z, **close)
    assert_same(lambda t: [torch.dist(t, t.flip(1), p) for p in (1, 2, float("inf"))], z, **close)
    assert_same(lambda t: (torch.renorm(t, 2, 0, 1.5), torch.renorm(t, 1, 1, 2.0)), z, **close)
    assert_same(lambda t: torch.nn.functional.pairwise_distance(t, t.flip(0)), z, **close)

    def gradient(t):
        t = t.clone().requires_grad_()
        return torch.autograd.grad(t.prod(1).sum().abs(), t)[0]

    assert_same(gradient, z, rtol=1e-4, atol=1e-4)
    sample = torch.empty(4000, dtype=torch.complex64, device="neuron")
    assert abs(sample.normal_(0, 2).abs().square().mean().item() - 4) < 0.4
    assert 0 <= torch.view_as_real(sample.uniform_()).amin().item() < 0.01


INFINITIES = "exp exp2 sigmoid reciprocal rsqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh bool"


@pytest.mark.parametrize("name", INFINITIES.split())
def test_functions_at_infinity(name):
    x = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0, -0.0, 1.0, -2.5, 100.0])
    z = torch.complex(*(t.contiguous() for t in torch.meshgrid(x, x, indexing="ij")))
    assert_same((lambda t: t.bool()) if name == "bool" else getattr(torch, name), z, rtol=1e-5, atol=1e-5)


def test_quotients_of_any_size():
    a, b = numbers(50) * 1e25, numbers(50, seed=1) * 1e30
    exact = (a.to(torch.complex128) / b.to(torch.complex128)).to(torch.complex64)
    torch.testing.assert_close((a.to("neuron") / b.to("neuron")).cpu(), exact, rtol=1e-6, atol=0)
    infinite = torch.tensor([complex("inf"), complex("-inf+2j"), complex("infj")])
    assert (a[:3].to("neuron") / infinite.to("neuron")).abs().tolist() == [0, 0, 0]


@pytest.mark.parametrize("size, dim", [((5, 7), 0), ((5, 70), 1), ((3, 4, 5), (0, 2)), ((6,), 0), ((0, 3), 0)])
def test_logarithms_of_sums_of_exponentials(size, dim):
    z = numbers(*size) * 4  # the imaginary part leaves one turn
    assert_same(lambda t: torch.logsumexp(t, dim), z, rtol=2e-6, atol=2e-6)
    assert_same(lambda t: torch.logsumexp(t, dim, keepdim=True), z, rtol=2e-6, atol=2e-6)

    def gradient(t):
        t = t.clone().requires_grad_()
        return torch.autograd.grad(torch.logsumexp(t, dim).abs().sum(), t)[0]

    if z.numel():
        assert_same(gradient, z, rtol=1e-4, atol=1e-5)


def test_logarithms_of_sums_with_infinities():
    z = torch.tensor([[complex("-inf"), complex("-inf"), 1 + 2j], [complex("-inf+1j"), complex("inf+1j"), 1j]])
    assert_same(lambda t: torch.logsumexp(t, 1), z)


def test_places():
    def made(device):
        options = {"dtype": torch.complex64, "device": device}
        view = torch.zeros(2, 3, **options)
        torch.linspace(1j, 3, 4, out=view[:, 1:])
        return (
            torch.linspace(0, 1 + 4j, 5, **options),
            torch.linspace(2j, 1, 1, **options),
            torch.logspace(0, 1 + 1j, 5, base=2, **options),
            torch.eye(3, **options),
            torch.eye(2, 4, **options),
            view,
        )

    for found, expected in zip(made("neuron"), made("cpu"), strict=True):
        torch.testing.assert_close(found.cpu(), expected)


def test_moves():
    z, v, index = numbers(4, 6), numbers(3, 6, seed=1), torch.tensor([2, 0, 2])
    mask = torch.arange(24).reshape(4, 6) % 3 == 0
    assert_same(lambda t, i: t[i], z, index)
    assert_same(lambda t, i: t.gather(0, i[:, None].expand(3, 6)), z, index)
    assert_same(lambda t, i, s: t.index_add(0, i, s, alpha=2), z, index, v)
    assert_same(lambda t, i, s: t.index_copy(0, i[:2], s[:2]), z, index, v)
    assert_same(lambda t, i: t.index_fill(0, i, 3 - 2j), z, index)
    assert_same(lambda t, i, s: t.scatter(0, i[:2, None].expand(2, 6), s[:2]), z, index, v)
    assert_same(lambda t, i, s: t.scatter_add(0, i[:, None].expand(3, 6), s), z, index, v)
    assert_same(lambda t, i, s: torch.index_put(t, (i,), s, accumulate=True), z, index, v)
    assert_same(lambda t, m: t.masked_fill(m, 2 + 1j), z, mask)
    assert_same(lambda t, m: t.masked_fill(m, 2.0), z, mask)
    assert_same(lambda t, m: t.masked_select(m), z, mask)
    assert_same(lambda t, m: torch.masked_scatter(t, m, t.flip(0)), z, mask)
    assert_same(lambda t, i: t.take(i), z, index)
    assert_same(lambda t, s: torch.stack([t[:3], s]), z, v)
    assert_same(lambda t: torch.nn.functional.pad(t[None], (2, 1), mode="reflect"), z)
    assert_same(lambda t: torch.nn.functional.pad(t[None], (2, 1), mode="replicate"), z)
    assert_same(lambda t: t.cumsum(1), z, rtol=1e-5, atol=1e-5)
    assert_same(torch.trace, z)
    assert_same(lambda t: (torch.zeros_like(t), torch.ones_like(t), torch.full_like(t, 1 - 2j), t.new_ones(2)), z)

    def gradient(t):
        t = t.clone().requires_grad_()
        out = t.unfold(1, 3, 2).sum() + t.diagonal().sum() + t[1:3, ::2].sum()
        return torch.autograd.grad(out.abs(), t)[0]

    assert_same(gradient, z, rtol=1e-5, atol=1e-5)


def test_in_place_and_written_elsewhere():
    z = numbers(3, 3).to("neuron")
    expected = z.cpu().sin()
    out = torch.empty(0, dtype=torch.complex64, device="neuron")
    torch.sin(z, out=out)
    z.sin_()
    torch.testing.assert_close(z.cpu(), expected)
    torch.testing.assert_close(out.cpu(), expected)


def test_truth():
    z = torch.tensor([0, 1, 1j, complex("nan"), 0])
    w = torch.tensor([0, 0, 1, 1, 2j])
    for f in (torch.logical_and, torch.logical_or, torch.logical_xor):
        assert_same(f, z, w)
    assert_same(torch.logical_not, z)
    assert_same(lambda t: (t.any(), t.all(), t[:1].any(0), t.count_nonzero(), t.nonzero(), t.isinf()), z)


def test_a_complex_factor_of_a_sum_at_an_index_is_refused_in_words():
    z, index = numbers(4, 6).to("neuron"), torch.tensor([1], device="neuron")
    with pytest.raises(NotImplementedError, match="not simulated: a complex alpha; multiply first"):
        z.index_add(0, index, z[:1], alpha=1j)


def test_tangents_near_their_poles():
    x = torch.linspace(1.45, 1.69, 25)
    y = torch.tensor([-0.1, -0.003, 0.02, 0.3])
    z = torch.complex(*(t.contiguous() for t in torch.meshgrid(x, y, indexing="ij")))
    for function, points in ((torch.tan, z), (torch.tanh, torch.complex(z.imag, z.real))):
        exact = function(points.to(torch.complex128))
        found = function(points.to("neuron")).cpu().to(torch.complex128)
        assert ((found - exact).abs() <= 3e-6 * exact.abs()).all()


def test_large_powers_keep_their_digits():
    z, w = numbers(200) * 3, numbers(200, seed=1) * 8
    exact = z.to(torch.complex128) ** w.to(torch.complex128)
    found = (z.to("neuron") ** w.to("neuron")).cpu().to(torch.complex128)
    turns = 1 + (w * z.log()).abs()  # the last digit of an angle
    assert ((found - exact).abs() <= 3e-7 * turns * exact.abs()).all()


def test_a_product_of_one_number_is_a_tensor_of_its_own():
    x = torch.tensor([1 + 2j], device="neuron", requires_grad=True)
    product = x.prod(0, keepdim=True)
    assert product is not x and product.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    assert x.is_leaf and x.grad_fn is None
    product.abs().sum().backward()
    torch.testing.assert_close(x.grad.cpu(), torch.tensor([(1 + 2j) / 5**0.5]))
