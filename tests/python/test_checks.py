"""What the device refuses at run time: indices that are not legal, divisors of zero, weights that are no distribution;
and what reductions over nothing give. Values and errors are those of the CPU."""

import itertools

import opinfo_cases as cases
import pytest
import torch

F = torch.nn.functional


def outcome(function, device):
    """The result, or the class and first line of the error; a deferred error appears when results are read."""
    try:
        result = function(device)
        torch.neuron.synchronize()
        return result
    except Exception as e:  # noqa: BLE001
        return type(e), str(e).split("\n")[0]


def is_error(result):
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], type)


# ---- reductions over nothing --------------------------------------------------------------------------------------
WHOLE = ["sum", "prod", "mean", "any", "all", "max", "min", "median", "nanmedian", "argmax", "argmin", "amax", "amin",
         "aminmax", "std", "var", "nansum", "nanmean", "norm", "count_nonzero"]  # fmt: skip
ALONG = ["sum", "prod", "mean", "any", "all", "max", "min", "median", "nanmedian", "argmax", "argmin", "amax", "amin",
         "aminmax", "std", "var", "std_mean", "var_mean", "nansum", "nanmean", "logsumexp", "norm", "mode", "cummax",
         "cummin", "cumsum", "cumprod", "logcumsumexp", "softmax", "log_softmax", "sort", "argsort", "count_nonzero",
         "linalg.vector_norm"]  # fmt: skip
TAKES_KEEPDIM = {"sum", "prod", "mean", "any", "all", "max", "min", "median", "nanmedian", "argmax", "argmin", "amax",
                 "amin", "aminmax", "std", "var", "nansum", "logsumexp", "norm", "mode"}  # fmt: skip


def function_named(name):
    function = torch
    for part in name.split("."):
        function = getattr(function, part)
    return function


def along(name, x, dim, keepdim):
    function = function_named(name)
    extra = {"keepdim": keepdim} if name in TAKES_KEEPDIM else {}
    return function(x, dim=dim, **extra)


def compare(function, what):
    actual, expected = outcome(function, "neuron"), outcome(function, "cpu")
    if is_error(expected) or is_error(actual):
        return [] if actual == expected else [f"{what}: {actual}, expected {expected}"]
    return [f"{what}: {text}" for _, text in cases.compare_trees(actual, expected, None, what, None)]


def without_zeros(shape, dtype, device):
    return torch.zeros(shape, device=device).to(dtype)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_reductions_over_nothing(name):
    found = []
    for shape, dtype in itertools.product([(0,), (0, 3), (3, 0), (2, 0, 3)], [torch.float32, torch.int64, torch.bool]):
        found += compare(
            lambda d, s=shape, t=dtype: function_named(name)(without_zeros(s, t, d)), f"{name} {shape} {dtype}"
        )
    assert found == []


@pytest.mark.parametrize("name", ALONG)
def test_reductions_along_a_dimension_of_nothing(name):
    found = []
    for shape in [(0,), (0, 3), (3, 0), (2, 0, 3)]:
        for dim, keepdim in itertools.product(range(len(shape)), [False, True]):
            if keepdim and name not in TAKES_KEEPDIM:
                continue
            found += compare(
                lambda d, s=shape, i=dim, k=keepdim: along(name, torch.zeros(s, device=d), i, k),
                f"{name} {shape} dim {dim} keepdim {keepdim}",
            )
    assert found == []


@pytest.mark.parametrize("name", ["topk", "kthvalue"])
def test_ranks_beyond_a_dimension_of_nothing(name):
    assert compare(lambda d: getattr(torch, name)(torch.zeros(0, 3, device=d), 1, dim=0), name) == []


# ---- indices -----------------------------------------------------------------------------------------------------
def table(device):
    return torch.arange(15.0, device=device).view(3, 5)


def index(device, bad):
    return torch.tensor([0, bad], device=device)


INDEXED = {
    "index_select": lambda d, bad: table(d).index_select(0, index(d, bad)),
    "index_select of a row": lambda d, bad: table(d)[0].index_select(0, index(d, bad)),
    "index_select int32": lambda d, bad: table(d).index_select(0, index(d, bad).int()),
    "embedding": lambda d, bad: F.embedding(index(d, bad), table(d)),
    "embedding with padding": lambda d, bad: F.embedding(index(d, bad), table(d), padding_idx=0),
    "gather": lambda d, bad: table(d).gather(1, index(d, bad).view(1, 2)),
    "scatter": lambda d, bad: table(d).scatter(1, index(d, bad).view(1, 2), 1.0),
    "scatter source": lambda d, bad: table(d).scatter(0, index(d, bad).view(1, 2), table(d)),
    "scatter_": lambda d, bad: table(d).scatter_(1, index(d, bad).view(1, 2), 1.0),
    "scatter_add": lambda d, bad: table(d).scatter_add(1, index(d, bad).view(1, 2), table(d)),
    "scatter_reduce": lambda d, bad: table(d).scatter_reduce(1, index(d, bad).view(1, 2), table(d), "mean"),
    "index_add": lambda d, bad: table(d).index_add(0, index(d, bad), table(d)[:2]),
    "index_add of a row": lambda d, bad: table(d)[0].index_add(0, index(d, bad), table(d)[0, :2]),
    "index_copy": lambda d, bad: table(d).index_copy(0, index(d, bad), table(d)[:2]),
    "index_fill": lambda d, bad: table(d).index_fill(0, index(d, bad), 2),
    "index": lambda d, bad: table(d)[index(d, bad)],
    "index of columns": lambda d, bad: table(d)[:, index(d, bad)],
    "index of both": lambda d, bad: table(d)[torch.tensor([0, 1], device=d), index(d, bad)],
    "index of both, the other": lambda d, bad: table(d)[index(d, bad), torch.tensor([0, -1], device=d)],
    "index_put": lambda d, bad: table(d).index_put((index(d, bad),), torch.tensor(1.0, device=d)),
    "index_put sums": lambda d, bad: table(d).index_put((index(d, bad),), torch.tensor(1.0, device=d), accumulate=True),
    "take": lambda d, bad: table(d).take(index(d, 3 * bad)),
    "cross_entropy": lambda d, bad: F.cross_entropy(table(d)[:2], index(d, bad)),
    "cross_entropy sum": lambda d, bad: F.cross_entropy(table(d)[:2], index(d, bad), reduction="sum"),
    "cross_entropy rows": lambda d, bad: F.cross_entropy(table(d)[:2], index(d, bad), reduction="none"),
    "cross_entropy of one": lambda d, bad: F.cross_entropy(table(d)[0], index(d, bad)[1]),
    "cross_entropy of pixels": lambda d, bad: F.cross_entropy(table(d)[:2].view(2, 5, 1), index(d, bad).view(2, 1)),
    "cross_entropy ignores": lambda d, bad: F.cross_entropy(table(d)[:2], index(d, bad), ignore_index=-1),
    "nll_loss": lambda d, bad: F.nll_loss(table(d)[:2], index(d, bad)),
}


@pytest.mark.parametrize("bad", [5, 7, 123456, -1, -6, -7])
@pytest.mark.parametrize("name", INDEXED)
def test_indices_that_are_not_legal(name, bad):
    actual = outcome(lambda d: INDEXED[name](d, bad), "neuron")
    expected = outcome(lambda d: INDEXED[name](d, bad), "cpu")
    if not is_error(expected):
        assert not is_error(actual), actual
        torch.testing.assert_close(actual.cpu(), expected)
        return
    assert is_error(actual), actual
    assert expected[1] in actual[1]  # the device adds where it was found
    assert actual[0] is expected[0]


def test_the_embedding_gradient_refuses_what_the_cpu_drops():
    grad = torch.ones(2, 5, device="neuron")
    for bad in (3, -1):
        actual = outcome(
            lambda d, b=bad: torch.ops.aten.embedding_dense_backward(grad, index(d, b), 3, -1, False), "neuron"
        )
        assert is_error(actual) and f"index {bad} of dimension 0 with size 3" in actual[1]


def test_the_device_goes_on_after_a_refused_index():
    with pytest.raises((IndexError, RuntimeError), match="index 9 is out of bounds for dimension 0 with size 5"):
        table("neuron")[:, index("neuron", 9)].cpu()
    assert table("neuron")[:, index("neuron", 4)].tolist() == table("cpu")[:, [0, 4]].tolist()


def test_one_hot():
    for bad in (5, -1):
        assert is_error(outcome(lambda d, b=bad: F.one_hot(index(d, b), 5), "neuron"))
    negative = outcome(lambda d: F.one_hot(index(d, -1)), "neuron")
    assert negative == (RuntimeError, "Class values must be non-negative.")
    assert F.one_hot(index("neuron", 3)).tolist() == F.one_hot(index("cpu", 3)).tolist()


@pytest.mark.parametrize("bad", [-1, 2, 3])
def test_indices_of_rows_without_elements(bad):
    functions = (
        lambda d: torch.empty(3, 0, device=d).index_select(0, index(d, bad)),
        lambda d: torch.empty(0, 3, device=d).index_select(1, index(d, bad)),
        lambda d: F.embedding(index(d, bad), torch.empty(3, 0, device=d)),
    )
    for function in functions:
        actual, expected = outcome(function, "neuron"), outcome(function, "cpu")
        if is_error(expected):
            assert actual == expected
        else:
            assert actual.shape == expected.shape


def test_masked_scatter_with_a_short_source():
    def run(d):
        return torch.zeros(4, device=d).masked_scatter(
            torch.ones(4, dtype=torch.bool, device=d), torch.ones(2, device=d)
        )

    actual, expected = outcome(run, "neuron"), outcome(run, "cpu")
    assert actual[0] is expected[0] and expected[1] in actual[1]


EVERYDAY_PROGRAMS = """
import torch
x = torch.randn(8, 10, device="neuron", requires_grad=True)
t = torch.randint(0, 10, (8,), device="neuron")
torch.nn.functional.cross_entropy(x, t).backward()
i = torch.arange(1, 20, device="neuron")
for f in (torch.remainder, torch.fmod, torch.floor_divide):
    f(i, i.flip(0)), f(x, x + 1)
for m in (x.detach(), i):
    m.sort(), m.topk(3), m.argmax(), m.cumsum(0)
x.bfloat16() / 2.5
torch.neuron.synchronize()
"""


def test_checked_programs_are_clean(run_python):
    """What the compiler writes stands up to the checkers: nothing but the check of an index goes unread."""
    done = run_python(EVERYDAY_PROGRAMS, TRNSIM_CHECK="strict")
    assert "never read" not in done.stdout + done.stderr


# ---- distributions -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weights", [[-1.0, 1.0], [float("inf"), 1.0], [float("nan"), 1.0], [0.0, 0.0]])
@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial_refuses_weights(weights, replacement):
    def run(d):
        return torch.multinomial(torch.tensor([weights, [1.0, 1.0]], device=d), 2, replacement)

    actual, expected = outcome(run, "neuron"), outcome(run, "cpu")
    assert is_error(actual) and actual[0] is expected[0]
    assert expected[1].split("<")[0].split("=")[0] in actual[1]


def test_multinomial_accepts_weights():
    drawn = torch.multinomial(torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]], device="neuron"), 1)
    assert drawn.tolist() == [[1], [0]]


@pytest.mark.parametrize("p", [-0.5, 1.5, float("nan")])
def test_bernoulli_refuses_probabilities(p):
    actual = outcome(lambda d: torch.bernoulli(torch.tensor([0.5, p], device=d)), "neuron")
    assert is_error(actual) and "Expected p_in >= 0 && p_in <= 1" in actual[1]


# ---- integer quotients and powers --------------------------------------------------------------------------------
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
QUOTIENTS = {
    "floor division": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "fmod": torch.fmod,
    "truncating division": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "flooring division": lambda a, b: torch.div(a, b, rounding_mode="floor"),
}


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
@pytest.mark.parametrize("name", QUOTIENTS)
def test_integer_division(name, dtype):
    quotient = QUOTIENTS[name]

    def values(d, last):
        return torch.tensor([7, 120, 1, 0, 9, 100], device=d).to(dtype), torch.tensor(
            [2, 7, 1, 3, 4, last], device=d
        ).to(dtype)

    found = []
    for last in (9, 0):
        found.append((lambda d, v=last: quotient(*values(d, v)), f"divisor {last}"))
    for number in (3, 0, True, False):
        found.append((lambda d, n=number: quotient(values(d, 1)[0], n), f"number {number}"))
    found.append((lambda d: 5 % values(d, 0)[1], "of a number"))
    for number in (3, 0):
        found.append((lambda d, n=number: quotient(values(d, 1)[0][:0], n), f"nothing by {number}"))
    found.append((lambda d: quotient(values(d, 1)[0][:0], values(d, 0)[1][5:]), "nothing by a tensor of 0"))
    for function, what in found:
        actual, expected = outcome(function, "neuron"), outcome(function, "cpu")
        if is_error(expected):
            assert is_error(actual) and actual[0] is expected[0] and expected[1] in actual[1], (what, actual, expected)
        else:
            assert not is_error(actual), (what, actual)
            assert torch.equal(actual.cpu(), expected), what


def modulo_2_to_the_32(t):
    return t.int() if t.dtype == torch.int64 else t


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_powers(dtype):
    base = [0, 1, -1, 2, -2, 3, -3, 7, 11, -128]
    if dtype == torch.uint8:
        base = [abs(v) for v in base]

    def both(d, exponents):
        b = torch.tensor([v for v in base for _ in exponents], device=d).to(dtype)
        return b, torch.tensor(exponents * len(base), device=d)

    exponents = [0, 1, 2, 3, 5, 7, 8, 31, 63] + ([] if dtype == torch.uint8 else [-1, -2, -3, -128])

    def powers(d):
        b, e = both(d, exponents)
        e = e.to(dtype)
        keep = (b != 0) | (e >= 0)  # 0 to a negative power is undefined
        return modulo_2_to_the_32(torch.where(keep, b, torch.ones_like(b)) ** e)

    found = compare(powers, "tensor to a tensor")
    for n in (0, 1, 2, 3, 5, 8, 31, 63, -1):
        found += compare(lambda d, n=n: modulo_2_to_the_32(both(d, [0])[0] ** n), f"tensor to {n}")
    for n in (0, 1, 2, 3):
        found += compare(lambda d, n=n: n ** torch.arange(0, 8, device=d).to(dtype), f"{n} to a tensor")
    for n in (1,) if dtype == torch.uint8 else (-1, -2):
        found += compare(lambda d, n=n: n ** torch.arange(0, 8, device=d).to(dtype), f"{n} to a tensor")
    assert found == []
