"""int64 on the device: in 32 bits, where larger values saturate (narrow), or in 64 bits (exact). The sweep of exact
mode runs in a process of its own, because the mode is read once."""

import os
import textwrap

import opinfo_cases as cases
import pytest
import torch

EXACT = os.environ.get("TRNSIM_INT64") == "exact"
EDGES = [
    0, 1, -1, 3, -7,
    2**31 - 1, 2**31, 2**31 + 5, -(2**31), -(2**31) - 1,
    2**32 - 1, 2**32, 2**32 + 7, -(2**32) - 3,
    2**53 - 1, 2**53 + 1, -(2**53) - 1,
    2**63 - 1, -(2**63), -(2**63) + 1,
]  # fmt: skip


def edges(device):
    return torch.tensor(EDGES, device=device)


def others(device):
    return torch.tensor(EDGES[3:] + EDGES[:3], device=device)


def divisors(device):
    return torch.tensor([v for v in EDGES if v not in (0, -1)] + [2, -5], device=device)


def counts(device):
    return torch.tensor([0, 1, 31, 32, 33, 62, 63] + [5] * (len(EDGES) - 7), device=device)


def full(device, value, dtype=torch.int64):
    return torch.full((3, 2), value, dtype=dtype, device=device)


def assigned(x, value):
    x = x.clone()
    x[3:7] = value
    return x


def masked(x):
    return torch.arange(x.numel(), device=x.device) % 2 == 0


SUBJECTS = {
    # values that come from numbers
    "fill_": lambda d: torch.empty(4, dtype=torch.int64, device=d).fill_(2**32 + 7),
    "full": lambda d: full(d, 2**53 + 1),
    "full_like": lambda d: torch.full_like(edges(d), -(2**63)),
    "new_full": lambda d: edges(d).new_full((2,), 2**31),
    "where numbers": lambda d: torch.where(masked(edges(d)), 2**40 + 1, -(2**40)),
    "where number": lambda d: torch.where(masked(edges(d)), edges(d), 2**40 + 1),
    "masked_fill": lambda d: edges(d).masked_fill(masked(edges(d)), 2**63 - 1),
    "pad": lambda d: torch.nn.functional.pad(edges(d), (1, 2), value=2**31 + 1),
    "setitem number": lambda d: assigned(edges(d), 2**53 + 1),
    "setitem tensor": lambda d: assigned(edges(d), edges(d)[10:14]),
    "setitem host": lambda d: assigned(edges(d), torch.tensor(2**40 + 3)),
    "index_fill": lambda d: edges(d).index_fill(0, torch.tensor([1, 3], device=d), 2**40),
    "scatter value": lambda d: edges(d).scatter(0, torch.tensor([1, 3], device=d), -(2**40)),
    "arange": lambda d: torch.arange(2**31 - 2, 2**31 + 3, device=d),
    "arange step": lambda d: torch.arange(-(2**40), 2**40, 2**38, device=d),
    # casts
    "float": lambda d: edges(d).float(),
    "half": lambda d: edges(d).half(),
    "double to long": lambda d: torch.tensor([2.0**40, -(2.0**40), 3e9], dtype=torch.float64).to(d).long(),
    "float to long": lambda d: torch.tensor([3e9, -3e9, 2.0**40], device=d).long(),
    "bool": lambda d: edges(d).bool(),
    "int": lambda d: edges(d).int(),
    "uint8": lambda d: edges(d).to(torch.uint8),
    "int to long": lambda d: edges(d).int().long(),
    "copy_": lambda d: torch.zeros(len(EDGES), device=d).copy_(edges(d)),
    "item": lambda d: torch.tensor([edges(d)[i].item() for i in range(len(EDGES))], device=d),
    # arithmetic
    "add": lambda d: edges(d) + others(d),
    "add number": lambda d: edges(d) + (2**40 + 1),
    "add alpha": lambda d: torch.add(edges(d), others(d), alpha=2**33 + 1),
    "sub": lambda d: edges(d) - others(d),
    "rsub": lambda d: (2**40) - edges(d),
    "mul": lambda d: edges(d) * others(d),
    "mul number": lambda d: edges(d) * (2**32 + 3),
    "neg": lambda d: -edges(d),
    "abs": lambda d: edges(d).abs(),
    "sign": lambda d: edges(d).sign(),
    "square": lambda d: edges(d).square(),
    "addcmul": lambda d: torch.addcmul(edges(d), others(d), edges(d), value=3),
    "true division": lambda d: edges(d) / divisors(d),
    "floor division": lambda d: edges(d) // divisors(d),
    "floor division number": lambda d: edges(d) // (2**40 + 1),
    "truncating division": lambda d: torch.div(edges(d), divisors(d), rounding_mode="trunc"),
    "remainder": lambda d: edges(d) % divisors(d),
    "remainder number": lambda d: edges(d) % (2**33 + 1),
    "number remainder": lambda d: (2**53 + 1) % divisors(d),
    "fmod": lambda d: torch.fmod(edges(d), divisors(d)),
    "pow number": lambda d: edges(d) ** 3,
    "pow": lambda d: edges(d) ** counts(d),
    "negative pow": lambda d: edges(d)[1:] ** torch.tensor([-1] * (len(EDGES) - 1), device=d),
    "number pow": lambda d: 3 ** counts(d),
    "gcd": lambda d: torch.gcd(edges(d)[:17], others(d)[:17]),
    "lerp of halves": lambda d: edges(d).float().lerp(others(d).float(), 0.5),
    # bits
    "and": lambda d: edges(d) & others(d),
    "and number": lambda d: edges(d) & 0xFFFFFFFF,
    "or": lambda d: edges(d) | others(d),
    "xor": lambda d: edges(d) ^ others(d),
    "not": lambda d: ~edges(d),
    "left shift": lambda d: edges(d) << counts(d),
    "left shift number": lambda d: edges(d) << 33,
    "right shift": lambda d: edges(d) >> counts(d),
    "right shift number": lambda d: edges(d) >> 33,
    # order
    "eq": lambda d: edges(d) == others(d),
    "eq number": lambda d: edges(d) == 2**32,
    "ne": lambda d: edges(d) != others(d),
    "lt": lambda d: edges(d) < others(d),
    "lt number": lambda d: edges(d) < 2**53,
    "ge number": lambda d: edges(d) >= -(2**31) - 1,
    "gt float": lambda d: edges(d) > 2.5e9,
    "logical": lambda d: torch.logical_xor(edges(d), others(d)),
    "maximum": lambda d: torch.maximum(edges(d), others(d)),
    "minimum": lambda d: torch.minimum(edges(d), others(d)),
    "clamp": lambda d: edges(d).clamp(-(2**40), 2**33),
    "clamp tensor": lambda d: edges(d).clamp(min=others(d)),
    "isin": lambda d: torch.isin(edges(d), others(d)[:4]),
    "equal": lambda d: torch.tensor(torch.equal(edges(d), edges(d) + 2**32)),
    # reductions and orders
    "sum": lambda d: edges(d).sum(),
    "sum of int32": lambda d: torch.full((9,), 2**31 - 1, dtype=torch.int32, device=d).sum(),
    "sum dim": lambda d: edges(d).view(4, 5).sum(1),
    "sum float": lambda d: edges(d)[:16].sum(dtype=torch.float32),
    "prod": lambda d: edges(d)[1:6].prod(),
    "prod of int32": lambda d: torch.full((4,), 2**20, dtype=torch.int32, device=d).prod(),
    "max": lambda d: edges(d).max(),
    "min dim": lambda d: edges(d).view(4, 5).min(0),
    "amax": lambda d: edges(d).view(4, 5).amax(1),
    "aminmax": lambda d: edges(d).aminmax(),
    "argmax": lambda d: edges(d).argmax(),
    "any": lambda d: torch.tensor([2**32, 0], device=d).any(),
    "all": lambda d: torch.tensor([2**32, 1], device=d).all(),
    "count_nonzero": lambda d: torch.tensor([2**32, 0, 1], device=d).count_nonzero(),
    "median": lambda d: edges(d).median(),
    "kthvalue": lambda d: edges(d).kthvalue(5),
    "sort": lambda d: edges(d).sort(),
    "argsort": lambda d: edges(d).argsort(descending=True),
    "topk": lambda d: edges(d).topk(4),
    "unique": lambda d: torch.cat([edges(d), others(d)]).unique(),
    "nonzero": lambda d: torch.tensor([2**32, 0, 1], device=d).nonzero(),
    "cumsum": lambda d: edges(d).cumsum(0),
    "cumsum of int32": lambda d: torch.full((5,), 2**30, dtype=torch.int32, device=d).cumsum(0),
    "cumprod": lambda d: edges(d)[1:9].cumprod(0),
    "cummax": lambda d: edges(d).cummax(0),
    "searchsorted": lambda d: torch.searchsorted(edges(d).sort().values, others(d)),
    "bincount": lambda d: torch.tensor([1, 2, 2], device=d).bincount(),
    "trace": lambda d: edges(d)[:16].view(4, 4).trace(),
    "diff": lambda d: edges(d).diff(),
    # moves
    "clone": lambda d: edges(d).clone(),
    "transpose": lambda d: edges(d).view(4, 5).t().contiguous(),
    "cat": lambda d: torch.cat([edges(d), others(d)]),
    "cat with floats": lambda d: torch.cat([edges(d), edges(d).float()]),
    "stack": lambda d: torch.stack([edges(d), others(d)]),
    "flip": lambda d: edges(d).flip(0),
    "roll": lambda d: edges(d).roll(3),
    "repeat": lambda d: edges(d).repeat(2, 1),
    "index": lambda d: edges(d)[torch.tensor([3, -1, 0], device=d)],
    "mask": lambda d: edges(d)[masked(edges(d))],
    "gather": lambda d: edges(d).gather(0, torch.tensor([3, 9, 0], device=d)),
    "take": lambda d: edges(d).take(torch.tensor([3, -2, 0], device=d)),
    "index_select": lambda d: edges(d).index_select(0, torch.tensor([3, 9], device=d)),
    "index_add": lambda d: edges(d).index_add(0, torch.tensor([3, 3], device=d), others(d)[:2]),
    "scatter": lambda d: edges(d).scatter(0, torch.tensor([3, 4], device=d), others(d)),
    "scatter_add": lambda d: edges(d).scatter_add(0, torch.tensor([3, 3], device=d), others(d)),
    "embedding of int64": lambda d: torch.nn.functional.embedding(torch.tensor([1, 0], device=d), edges(d).view(4, 5)),
    "tril": lambda d: edges(d).view(4, 5).tril(),
    "diag": lambda d: edges(d)[:4].diag(),
    "unfold": lambda d: edges(d).unfold(0, 3, 2).contiguous(),
    # products of matrices
    "mm": lambda d: edges(d).view(4, 5) @ others(d).view(5, 4),
    "bmm": lambda d: edges(d).view(2, 2, 5).bmm(others(d).view(2, 5, 2)),
    "addmm": lambda d: torch.addmm(
        others(d)[:16].view(4, 4), edges(d).view(4, 5), others(d).view(5, 4), beta=2, alpha=3
    ),
    "addbmm": lambda d: torch.addbmm(
        others(d)[:4].view(2, 2), edges(d).view(2, 2, 5), others(d).view(2, 5, 2), beta=2, alpha=3
    ),
    "mv": lambda d: edges(d).view(4, 5).mv(others(d)[:5]),
    "dot": lambda d: edges(d).dot(others(d)),
    "outer": lambda d: edges(d).outer(others(d)),
}
# Within these the tensors hold 32 bits and the numbers need not: narrow mode is right.
FITTING = {
    "lt number": lambda d: small(d) < 2**53,
    "gt number": lambda d: small(d) > -(2**31) - 1,
    "ge number": lambda d: small(d) >= 2**40,
    "eq number": lambda d: small(d) == 2**32,
    "ne number": lambda d: small(d) != 2**32,
    "clamp": lambda d: small(d).clamp(-(2**40), 2**63 - 1),
    "clamp below": lambda d: small(d).clamp(max=2**31),
    "floor division": lambda d: small(d) // 2**40,
    "floor division negative": lambda d: small(d) // -(2**40),
    "truncating division": lambda d: torch.div(small(d), 2**32, rounding_mode="trunc"),
    "remainder": lambda d: small(d)[:3] % (2**40),
    "fmod": lambda d: torch.fmod(small(d), -(2**33)),
    "shift out": lambda d: small(d) >> 40,
    "float": lambda d: small(d).float() * 2**40,
    "sum of float": lambda d: small(d).float() + 2**40,
    "where": lambda d: torch.where(small(d) > 2**40, 1, small(d)),
    "masked maximum": lambda d: small(d).masked_fill(small(d) == 1, torch.iinfo(torch.int64).min).max(),
    "masked minimum": lambda d: small(d).masked_fill(small(d) == 1, torch.iinfo(torch.int64).max).min(),
    "masked count": lambda d: (full(d, torch.iinfo(torch.int64).max) == torch.iinfo(torch.int64).max).sum(),
    "uint8": lambda d: small(d).to(torch.uint8),
    "int16": lambda d: small(d).to(torch.int16),
}


def small(device):
    return torch.tensor([0, 1, 2**31 - 2, 12345, -1, -(2**31) + 2, -99], device=device)


def saturated(tree):
    """int64 elements as 32 bits keep them."""

    def one(t):
        fits = not (isinstance(t, torch.Tensor) and t.dtype == torch.int64)
        return t if fits else t.clamp(-(2**31), 2**31 - 1)

    return torch.utils._pytree.tree_map(one, tree)


def differences(subject):
    return cases.compare_trees(subject("neuron"), subject("cpu"), None, "result", None)


@pytest.mark.skipif(not EXACT, reason="runs in a process of its own, below")
@pytest.mark.parametrize("name", SUBJECTS)
def test_exact_sweep(name):
    assert differences(SUBJECTS[name]) == []


@pytest.mark.skipif(EXACT, reason="starts the exact sweep")
def test_exact_mode_is_right_in_64_bits(run_python):
    run = f"""
        import sys, pytest
        sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", "exact_sweep", {__file__!r}]))
    """
    result = run_python(textwrap.dedent(run), check=False, TRNSIM_INT64="exact", TRNSIM_FALLBACK="allow")
    assert result.returncode == 0, result.stdout[-3000:]


@pytest.mark.skipif(EXACT, reason="narrow mode")
@pytest.mark.parametrize("name", FITTING)
def test_narrow_numbers_beyond_32_bits(name):
    assert differences(FITTING[name]) == []


# What a value beyond 32 bits becomes: the nearest that has 32 bits, wherever it comes from.
SATURATING = [
    "fill_", "full", "full_like", "new_full", "where numbers", "pad", "setitem number", "setitem tensor",
    "setitem host",
    "index_fill", "scatter value", "maximum", "minimum", "clamp tensor", "float to long", "double to long",
    "max", "amax", "aminmax",
]  # fmt: skip


@pytest.mark.skipif(EXACT, reason="narrow mode")
@pytest.mark.parametrize("name", SATURATING)
def test_narrow_values_beyond_32_bits_saturate(name):
    actual, expected = SUBJECTS[name]("neuron"), saturated(SUBJECTS[name]("cpu"))
    assert cases.compare_trees(saturated(actual), expected, None, name, None) == []


@pytest.mark.skipif(EXACT, reason="narrow mode")
def test_narrow_elements_saturate_and_arithmetic_wraps():
    near, other = saturated(edges("cpu")), saturated(others("cpu"))

    def wrapped(t):
        return t.to(torch.int32).long()

    def check(actual, expected):
        assert actual.cpu().tolist() == expected.tolist()

    check(edges("neuron") + 0, near)
    check(edges("neuron").int(), near.int())
    check(edges("neuron").bool(), edges("cpu").bool())
    check(edges("neuron") < others("neuron"), near < other)
    check(edges("neuron") == 2**40, near == 2**31 - 1)
    check(edges("neuron") + others("neuron"), wrapped(near + other))
    check(edges("neuron") * others("neuron"), wrapped(near * other))
    check(edges("neuron").sum(), wrapped(near.sum()))
    check(edges("neuron").cumsum(0), wrapped(near.cumsum(0)))
    check(edges("neuron") ^ others("neuron"), near ^ other)


@pytest.mark.skipif(EXACT, reason="narrow mode")
def test_narrow_indices_beyond_32_bits_are_refused():
    table = torch.randn(3, 2, device="neuron")
    for bad in (2**32, 2**32 + 1, -(2**32), 2**63 - 1):
        for read in (
            lambda i: torch.nn.functional.embedding(i, table),
            lambda i: table[i],
            lambda i: torch.nn.functional.cross_entropy(table, torch.cat([i, i[:1]])),
        ):
            with pytest.raises((IndexError, RuntimeError), match="out of (range|bounds)"):
                read(torch.tensor([0, bad], device="neuron")).cpu()


def test_moves_keep_all_64_bits():
    for name in ("clone", "transpose", "cat", "flip", "roll", "repeat", "index", "gather", "index_select"):
        assert differences(SUBJECTS[name]) == [], name
