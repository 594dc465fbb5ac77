"""Representative operators on what OpInfo's samples lack: sizes around the tile sizes of the hardware (128 partitions,
512 elements of a PSUM bank), strided, transposed and expanded operands, and NaN and infinities among the inputs."""

import opinfo_cases as cases
import pytest
import torch
import torch.nn.functional as F

SIZES = [1, 127, 129, 513]
LAYOUTS = ["contiguous", "strided", "transposed", "expanded"]


def made(rows, columns, layout="contiguous", dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    shape = {"contiguous": (rows, columns), "strided": (rows, 2 * columns), "transposed": (columns, rows)}
    x = torch.randn(shape.get(layout, (1, columns)), generator=g).to(dtype)
    if layout == "strided":
        return x[:, ::2]
    if layout == "transposed":
        return x.t()
    return x.expand(rows, columns) if layout == "expanded" else x


def special(x):
    """A copy with NaN, infinities, signed zeros, the largest and the smallest number sprinkled in."""
    values = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 3e38, -3e38, 1.2e-38])
    x = x.clone(memory_format=torch.contiguous_format)
    flat = x.view(-1)
    flat[:: max(1, flat.numel() // 8)][:8] = values[: flat[:: max(1, flat.numel() // 8)][:8].numel()].to(x.dtype)
    return x


def gelu_chain(a, b):
    return F.gelu(a) * b + torch.exp(-a.abs()) / (b.abs() + 1)


def indexed(a, b):
    rows = torch.arange(a.shape[0] - 1, -1, -2, device=a.device)
    return a[rows], b.index_select(1, torch.arange(0, b.shape[1], 3, device=b.device))


def convolved(a, b):
    image = a.unsqueeze(0).unsqueeze(0)
    return F.conv2d(image, b[:3, :3].reshape(1, 1, *b[:3, :3].shape), padding=1)


OPERATORS = {
    "add": lambda a, b: a + b,
    "where": lambda a, b: torch.where(a > b, a, b * 2),
    "chain": gelu_chain,
    "sum": lambda a, b: (a.sum(0), b.sum(1), a.sum()),
    "amax": lambda a, b: (a.amax(0), b.amin(1), a.argmax(1)),
    "var": lambda a, b: a.var(1, correction=0),
    "cumsum": lambda a, b: a.cumsum(1),
    "softmax": lambda a, b: (a.softmax(1), b.log_softmax(0)),
    "layer_norm": lambda a, b: F.layer_norm(a, (a.shape[1],)),
    "matmul": lambda a, b: a @ b.t(),
    "conv2d": convolved,
    "index": indexed,
    "cat": lambda a, b: torch.cat([a, b, a[:, :1]], 1),
    "sort": lambda a, b: a.sort(dim=1, stable=True),
}
# Sums of n products round n times; the reference is float64, the CPU's own error is allowed twice.
TOLERANCE = {"matmul": (2e-6, 2e-5), "conv2d": (2e-6, 2e-5), "sum": (2e-6, 2e-5), "cumsum": (2e-6, 2e-5)}


def compare(function, a, b, name):
    cases.trnsim.reset_report()
    reference, subject = [[cases.twin(t, d) for t in (a, b)] for d in ("cpu", cases.DEVICE)]
    with cases.quiet():
        expected, actual = function(*reference), function(*subject)
        exact = function(*[cases.twin(t.double(), "cpu") for t in (a, b)])
        found = cases.compare_trees(actual, expected, exact, name, TOLERANCE.get(name))
    assert not found, found
    assert not cases.trnsim.fallbacks()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", OPERATORS)
def test_sizes_and_layouts(name, size, layout):
    a, b = made(size, 130, layout), made(size, 130, layout, seed=1)
    compare(OPERATORS[name], a, b, name)
    compare(OPERATORS[name], made(3, size, layout), made(3, size, layout, seed=1), name)


@pytest.mark.parametrize("name", OPERATORS)
def test_mixed_layouts_in_bfloat16(name):
    compare(
        OPERATORS[name],
        made(129, 127, "transposed", torch.bfloat16),
        made(129, 127, "strided", torch.bfloat16, seed=1),
        name,
    )


# A product or convolution of NaN and infinities depends on the order of the sum only in which NaN it gives.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", OPERATORS)
def test_special_values(name, dtype):
    compare(OPERATORS[name], special(made(129, 65, dtype=dtype)), made(129, 65, dtype=dtype, seed=1), name)
