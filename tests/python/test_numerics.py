"""Numerics as on the hardware: autocast, products of mixed types, precision, determinism, random streams."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.autocast_test_lists import AutocastTestLists

HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.filterwarnings("ignore:neuron")
def test_autocast_casts_as_the_lists_for_cuda_say(dtype):
    """PyTorch's own lists of operators with arguments, made for CUDA."""
    lists = AutocastTestLists(torch.device("neuron"))
    skipped = {"cudnn_convolution", "cudnn_convolution_transpose", "einsum"}  # of CUDA alone, and with a list first

    def runs(entry):
        name, args, *rest = entry
        kwargs = next((r for r in rest if isinstance(r, dict)), {})
        module = next(m for m in (torch, torch._C._nn, F) if hasattr(m, name))
        with torch.autocast("neuron", dtype=dtype):
            return getattr(module, name)(*args, **kwargs)

    checked = 0
    groups = (
        (lists.torch_fp16, dtype),
        (lists.nn_fp16, dtype),
        (lists.torch_fp32, torch.float32),
        (lists.nn_fp32, torch.float32),
    )
    for entries, expected in groups:
        for entry in entries:
            if entry[0] in skipped:
                continue
            result = runs(entry)
            first = result[0] if isinstance(result, tuple) else result
            assert first.dtype == expected, entry[0]
            checked += 1
    assert checked > 60
    if dtype == torch.float16:  # the operands of the other lists are float16
        check_promotion(lists)


def check_promotion(lists):
    cases = [(name, args, expected) for name, args, expected in lists.torch_expect_builtin_promote if name != "equal"]
    cases += [(name, args, torch.float32) for name, args in lists.torch_need_autocast_promote]
    for name, args, expected in cases:
        with torch.autocast("neuron", dtype=torch.float16):
            assert getattr(torch, name)(*args).dtype == expected, name


def test_the_default_type_of_autocast_is_that_of_cuda():
    assert torch.get_autocast_dtype("neuron") == torch.get_autocast_dtype("cuda") == torch.float16
    with torch.autocast("neuron"):
        assert torch.nn.Linear(2, 2).to("neuron")(torch.ones(1, 2, device="neuron")).dtype == torch.float16


def test_autocast_can_be_left_off_and_nested():
    layer, x = torch.nn.Linear(4, 4).to("neuron"), torch.ones(2, 4, device="neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16):
        with torch.autocast("neuron", enabled=False):
            assert layer(x).dtype == torch.float32
        assert layer(x).dtype == torch.bfloat16
    assert layer(x).dtype == torch.float32
    with pytest.raises(RuntimeError, match="unsafe to autocast"), torch.autocast("neuron", dtype=torch.bfloat16):
        F.binary_cross_entropy(torch.full((2,), 0.5, device="neuron"), torch.ones(2, device="neuron"))
    with pytest.warns(UserWarning, match="not supported"), torch.autocast("neuron", dtype=torch.int8):
        assert layer(x).dtype == torch.float32


@pytest.mark.filterwarnings("ignore:neuron")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_training_with_autocast_and_scaler_follows_the_cpu(dtype):
    losses = {}
    for device in ("cpu", "neuron"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).to(device)
        x = torch.randn(12, 6, generator=torch.Generator().manual_seed(1)).to(device)
        y = torch.arange(12, device=device) % 3
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        scaler = torch.amp.GradScaler(device, init_scale=256.0, growth_interval=4)
        losses[device] = []
        for _ in range(10):
            with torch.autocast(device, dtype=dtype):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses[device].append(loss.item())
        assert scaler.get_scale() == 1024.0  # grew twice
    assert losses["neuron"][-1] < 0.8 * losses["neuron"][0]
    assert losses["neuron"] == pytest.approx(losses["cpu"], rel=2e-2)


PRODUCTS = {
    "mm": lambda a, b: a @ b,
    "bmm": lambda a, b: torch.bmm(a[None], b[None]),
    "addmm": lambda a, b: torch.addmm(a, a, b),
    "mv": lambda a, b: torch.mv(a, b[0]),
    "dot": lambda a, b: torch.dot(a[0], b[0]),
    "linear": lambda a, b: F.linear(a, b),
    "conv2d": lambda a, b: F.conv2d(a[None, None], b[None, None]),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("other", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_products_of_mixed_types_are_refused(name, other):
    a = torch.ones(4, 4, device="neuron")
    with pytest.raises(RuntimeError, match="dtype|type"):
        PRODUCTS[name](a, a.to(other))


@pytest.fixture
def precision():
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


def test_products_of_float32_are_exact_until_medium_precision_is_asked_for(precision):
    generator = torch.Generator().manual_seed(0)
    a, b, c = (torch.randn(48, 48, generator=generator) for _ in range(3))
    exact = a.double() @ b.double()
    rounded = a.bfloat16().double() @ b.bfloat16().double()
    on_device = a.neuron(), b.neuron(), c.neuron()
    for name in ("highest", "high"):
        precision(name)
        torch.testing.assert_close((on_device[0] @ on_device[1]).cpu().double(), exact, rtol=1e-5, atol=1e-5)
    precision("medium")
    medium = on_device[0] @ on_device[1]
    assert medium.dtype == torch.float32
    torch.testing.assert_close(medium.cpu().double(), rounded, rtol=1e-5, atol=1e-5)
    added = torch.addmm(on_device[2], on_device[0], on_device[1]).cpu().double()
    torch.testing.assert_close(added, rounded + c.double(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        torch.bmm(on_device[0][None], on_device[1][None])[0].cpu().double(), rounded, rtol=1e-5, atol=1e-5
    )
    precision("highest")
    torch.testing.assert_close((on_device[0] @ on_device[1]).cpu().double(), exact, rtol=1e-5, atol=1e-5)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_deterministic_mode_repeats_every_bit(deterministic):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 8, generator=generator)
    index = torch.randint(0, 7, (500,), generator=generator).neuron()
    runs = []
    for _ in range(3):
        leaf = x.neuron().requires_grad_()
        total = torch.zeros(7, 8, device="neuron").index_add(0, index, leaf)
        spread = F.embedding(index, total).softmax(-1)
        (spread * leaf).sum().backward()
        runs.append((total.detach().cpu(), leaf.grad.cpu()))
    for run in runs[1:]:
        assert all(map(torch.equal, run, runs[0]))


def test_deterministic_mode_fills_new_memory(deterministic):
    assert torch.empty(5, device="neuron").isnan().all()
    assert torch.empty_strided((2, 3), (3, 1), device="neuron", dtype=torch.bfloat16).isnan().all()
    assert (torch.empty(5, dtype=torch.int32, device="neuron") == 2**31 - 1).all()
    grown = torch.ones(2, device="neuron").resize_(6)
    assert grown[:2].tolist() == [1, 1] and grown[2:].isnan().all()


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout_uses_one_mask_forward_and_backward(p):
    torch.manual_seed(1)
    x = torch.rand(64, 33, device="neuron").add_(0.5).requires_grad_()
    y = F.dropout(x, p)
    y.sum().backward()
    torch.testing.assert_close(x.grad * x.detach(), y.detach())
    result, mask = torch.native_dropout(x.detach(), p, True)
    assert torch.equal(result != 0, mask) or p == 1.0


def test_each_device_has_its_own_stream():
    torch.manual_seed(4)
    first = [torch.rand(8, device=f"neuron:{i}").cpu() for i in range(2)]
    assert torch.equal(*first)  # the same seed
    torch.rand(8, device="neuron:0")
    assert not torch.equal(*(torch.rand(8, device=f"neuron:{i}").cpu() for i in range(2)))


def test_random_numbers_do_not_depend_on_the_shape_of_the_launch():
    torch.manual_seed(9)
    whole = torch.rand(40, device="neuron").cpu()
    for shape in ((5, 8), (2, 2, 10), (40, 1)):
        torch.manual_seed(9)
        assert torch.equal(whole, torch.rand(shape, device="neuron").cpu().flatten())
    torch.manual_seed(9)
    assert torch.equal(whole[:20], torch.rand(20, device="neuron").cpu())


def test_quotients_that_are_exact_come_out_exact():
    divisor = torch.arange(1, 600, dtype=torch.float32)
    quotient = torch.arange(1, 1025, dtype=torch.float32)
    product = quotient[:, None] * divisor  # below 2^24
    device = product.to("neuron")
    by_element = device / divisor.to("neuron")
    by_row = device.t().contiguous() / divisor.to("neuron")[:, None]
    assert torch.equal(by_element.cpu(), quotient[:, None].expand_as(product))
    assert torch.equal(by_row.cpu(), quotient.expand(599, 1024))
    for n in (3, 41, 599):
        assert torch.equal((device[:, n - 1] / n).cpu(), quotient)  # a parameter of the program
    assert torch.equal((torch.full((3,), 287.0, device="neuron") / torch.tensor(41.0)).cpu(), torch.full((3,), 7.0))


@pytest.mark.parametrize("by", ["element", "column", "number"])
def test_quotients_are_within_a_unit_in_the_last_place(by):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 512, generator=generator) * torch.logspace(-30, 30, 64)[:, None]
    y = torch.randn(64, 512 if by == "element" else 1, generator=generator)
    if by == "number":
        computed = torch.stack([row / y[i].item() for i, row in enumerate(x.to("neuron"))]).cpu()
    else:
        computed = (x.to("neuron") / y.to("neuron")).cpu()
    exact = x.double() / y.double()
    unit = torch.nextafter(exact.float().abs(), torch.tensor(float("inf"))).double() - exact.float().abs().double()
    assert ((computed.double() - exact).abs() <= 1.001 * unit).all()


def test_long_expressions_over_large_tensors():
    """Two halves of every tile take turns on the engines; odd sizes included."""
    generator = torch.Generator().manual_seed(0)
    p, g, m, v = (torch.rand(128 * 33, 2047, generator=generator) for _ in range(4))

    def step(p, g, m, v):
        m = torch.lerp(m, g, 0.1)
        v = torch.addcmul(v * 0.999, g, g, value=0.001)
        return torch.addcdiv(p * 0.9, m, v.sqrt() / 0.3 + 1e-8, value=-0.5), m, v

    compiled = torch.compile(step, backend="neuron")
    for computed, expected in zip(compiled(*(t.to("neuron") for t in (p, g, m, v))), step(p, g, m, v), strict=True):
        torch.testing.assert_close(computed.cpu(), expected, rtol=1e-6, atol=1e-6)


def test_neighbours_of_float64_are_those_of_float32():
    """float64 is computed as float32, whose neighbours are what the device can tell apart."""
    x = torch.tensor([-4.85, 1.0, 1.0, -1.0, 0.0, 3e38], dtype=torch.float64)
    y = torch.tensor([0.0, 2.0, 0.0, 2.0, 1.0, float("inf")], dtype=torch.float64)
    neighbours = torch.nextafter(x.to("neuron"), y.to("neuron")).cpu()
    assert torch.equal(neighbours.float(), torch.nextafter(x.float(), y.float()))
