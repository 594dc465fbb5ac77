"""Copies between views that disagree about what is near: the CPU's values, in about the time of a plain copy."""

import random

import pytest
import torch

import trnsim


def values(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype)


def simulated_ns(call) -> float:
    call()
    torch.neuron.synchronize()
    begin = trnsim.simulated_time_ns()
    call()
    torch.neuron.synchronize()
    return trnsim.simulated_time_ns() - begin


VIEWS = {
    "transpose": ((512, 384), lambda x: x.t()),
    "transpose with a rest": ((259, 393), lambda x: x.t()),
    "transpose, few columns": ((4096, 3), lambda x: x.t()),
    "transpose, few rows": ((3, 4096), lambda x: x.t()),
    "batched transpose": ((6, 70, 132), lambda x: x.transpose(1, 2)),
    "heads": ((4, 128, 6, 32), lambda x: x.permute(0, 2, 3, 1)),
    "channels last": ((2, 48, 20, 20), lambda x: x.permute(0, 2, 3, 1)),
    "channels first": ((2, 40, 40, 5), lambda x: x.permute(0, 3, 1, 2)),
    "five axes": ((4, 6, 10, 8, 12), lambda x: x.permute(4, 2, 0, 3, 1)),
    "every second": ((300, 512), lambda x: x[:, ::2]),
    "every twentieth": ((100, 4000), lambda x: x[:, 3::20]),
    "backwards": ((200, 600), lambda x: x.flip(1)),
    "repeated": ((64, 256), lambda x: x[:, :, None].expand(64, 256, 5)),
    "pixels to channels": ((2, 6, 64, 64), lambda x: x.view(2, 6, 32, 2, 32, 2).permute(0, 1, 3, 5, 2, 4)),
}
DTYPES = (torch.float32, torch.bfloat16, torch.uint8, torch.bool, torch.int32, torch.int64, torch.complex64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VIEWS)
def test_values(name, dtype):
    shape, view = VIEWS[name]
    x = values(shape, dtype)
    expected, got = view(x), view(x.to("neuron"))
    assert torch.equal(got.clone(memory_format=torch.contiguous_format).cpu(), expected)
    # The other way: into the view.
    if name != "repeated":
        source = values(tuple(expected.shape), dtype)
        host, device = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype, device="neuron")
        if name != "backwards":  # a flip is a copy
            view(host).copy_(source)
            view(device).copy_(source.to("neuron"))
            assert torch.equal(device.cpu(), host)


@pytest.mark.parametrize("seed", range(12))
def test_chains_of_views(seed):
    choose = random.Random(seed)
    rank = choose.randint(2, 5)
    shape = tuple(
        choose.choice([1, 3, 16, choose.randint(1, {2: 400, 3: 70, 4: 24, 5: 10}[rank])]) for _ in range(rank)
    )
    dtype = choose.choice(DTYPES)
    x = values(shape, dtype)
    expected, got = x, x.to("neuron")
    for _ in range(3):
        order = choose.sample(range(rank), rank)
        axis, step = choose.randrange(rank), choose.choice([1, 2, 5])
        flips = choose.sample(range(rank), choose.randint(0, rank))
        expected, got = (
            t.permute(order)[(slice(None),) * axis + (slice(None, None, step),)].flip(flips) for t in (expected, got)
        )
    assert torch.equal(got.cpu(), expected)


def test_bits_of_nan_survive():
    bits = torch.randint(-(2**31), 2**31 - 1, (256, 256), dtype=torch.int32)
    moved = bits.view(torch.float32).to("neuron").t().contiguous().cpu().view(torch.int32)
    assert torch.equal(moved, bits.t())


def test_many_pieces_run_as_a_loop():
    x = torch.arange(40 * 512 * 512, dtype=torch.int32).view(40 * 512, 512)
    assert torch.equal(x.to("neuron").t().contiguous().cpu(), x.t())


@pytest.mark.parametrize("name", VIEWS)
def test_time_of_a_copy(name):
    shape, view = VIEWS[name]
    x = torch.zeros(shape, device="neuron")
    plain = view(x).contiguous()
    most = simulated_ns(x.clone) + 2 * simulated_ns(plain.clone)
    # What is left over of whole tiles is a transfer of its own; a run that is nearly all gap stays one.
    factor = {"transpose with a rest": 2, "every twentieth": 4}.get(name, 1.2)
    assert simulated_ns(lambda: view(x).clone(memory_format=torch.contiguous_format)) <= factor * most


INTERLEAVED = {
    "stack": ([(300, 200)] * 3, lambda parts: torch.stack(parts, -1)),
    "stack in the middle": ([(70, 90, 3)] * 2, lambda parts: torch.stack(parts, 2)),
    "cat of columns": ([(4000, 3), (4000, 5), (4000, 1)], lambda parts: torch.cat(parts, -1)),
    "cat with an empty part": ([(4000, 2), (4000, 0), (4000, 4)], lambda parts: torch.cat(parts, 1)),
    "cat of views": ([(6, 1500)] * 2, lambda parts: torch.cat([p.t() for p in parts], 1)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", INTERLEAVED)
def test_interleaved_parts(name, dtype):
    shapes, join = INTERLEAVED[name]
    parts = [values(s, dtype) for s in shapes]
    assert torch.equal(join([p.to("neuron") for p in parts]).cpu(), join(parts))


def test_time_of_interleaved_parts():
    parts = [torch.zeros(512, 512, device="neuron") for _ in range(2)]
    joined = torch.stack(parts, -1)
    assert simulated_ns(lambda: torch.stack(parts, -1)) <= 3 * simulated_ns(joined.clone)
    assert simulated_ns(lambda: torch.complex(*parts)) <= 4 * simulated_ns(joined.clone)


@pytest.mark.parametrize("reduce", [torch.amax, torch.amin, torch.prod, torch.softmax])
def test_reduction_across_short_runs(reduce):
    """Of an axis that is not the nearest one in memory: values, and about the time of reading it."""
    x = torch.randn(4, 40, 20, 20)
    assert torch.allclose(reduce(x.to("neuron"), 1).cpu(), reduce(x, 1), rtol=1e-5)
    large = torch.zeros(8, 64, 32, 32, device="neuron")
    assert simulated_ns(lambda: reduce(large, 1)) <= 4 * simulated_ns(large.clone)


def test_time_of_repeated_samples():
    x = torch.zeros(4, 32, 32, 32, device="neuron")
    larger = torch.nn.functional.interpolate(x, scale_factor=2)
    assert simulated_ns(lambda: torch.nn.functional.interpolate(x, scale_factor=2)) <= 2 * simulated_ns(larger.clone)


INDICES = {
    "list": lambda d: torch.tensor([0, 2], device=d),
    "mask of rows": lambda d: torch.tensor([True, False, True], device=d),
    "mask of elements": lambda d: torch.tensor([[True, False, True, False]] * 3, device=d),
    "two lists": lambda d: (torch.tensor([2, 2], device=d), torch.tensor([1, 1], device=d)),
    "list of columns": lambda d: (slice(None), torch.tensor([1, 1, 3], device=d)),
    "mask and list": lambda d: (torch.tensor([True, False, True], device=d), torch.tensor([0, 1], device=d)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("case", INDICES, ids=lambda name: name.replace(" ", "-"))
def test_gradients_of_indexing_by_indices_of_either_device(case, dtype):
    def gradient(device, index):
        x = torch.arange(12.0).reshape(3, 4).to(dtype).to(device).requires_grad_()
        (x[index] * x[index]).abs().float().sum().backward()
        return x.grad.cpu()

    expected = gradient("cpu", INDICES[case]("cpu"))
    for place in ("cpu", "neuron"):
        torch.testing.assert_close(gradient("neuron", INDICES[case](place)), expected)
