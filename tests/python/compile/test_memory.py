"""Views, aliases and in-place changes mean in a compiled graph what they mean in eager execution."""

import pytest
import torch

from .common import check


def test_views_of_inputs_cost_nothing():
    def f(x):
        y = x.view(4, 6).t()[1:5, ::2]
        return y.unsqueeze(0).expand(3, 4, 2) + x.reshape(24)[3], x.view(2, 12).permute(1, 0).flatten()

    check(f, torch.randn(2, 3, 4), programs=1)


def test_inputs_with_any_strides():
    x = torch.randn(6, 8)
    check(lambda a, b, c: (a @ b, c + 1), x.t()[::2], x[:, 1:5], torch.randn(5, 1).expand(5, 3), programs=1)


def test_an_input_with_an_offset():
    base = torch.arange(12.0, device="neuron")
    compiled = torch.compile(lambda x: x * 2 + x.flip(0), backend="neuron")
    for start in (0, 3, 5):
        x = base[start : start + 4]
        torch.testing.assert_close(compiled(x).cpu(), (x * 2 + x.flip(0)).cpu())


def test_mutated_inputs():
    def f(cache, new, where):
        cache.index_copy_(0, where, new)
        cache[2:4, 1].mul_(3)
        return cache.sum(0)

    check(f, torch.randn(6, 3), torch.randn(2, 3), torch.tensor([1, 4]), programs=1)


def test_a_mutated_view_of_an_input():
    def f(x):
        x[::2].add_(1)
        y = x.t()
        y[0].zero_()
        return x.sum(), y + 1

    check(f, torch.randn(5, 4), programs=1)


def test_an_input_that_is_overwritten_and_returned():
    def f(x, y):
        x.copy_(y)
        return x, x + y

    check(f, torch.randn(3, 4), torch.randn(3, 4))


def test_two_inputs_on_one_memory():
    base = torch.arange(10.0)

    def f(a, b):
        a.mul_(3)
        return a + b[0]

    expected_base = base.clone()
    expected = f(expected_base[:6], expected_base[4:])
    device_base = base.to("neuron")
    actual = torch.compile(f, backend="neuron")(device_base[:6], device_base[4:])
    torch.testing.assert_close(actual.cpu(), expected)
    torch.testing.assert_close(device_base.cpu(), expected_base)


def test_results_that_share_memory():
    compiled = torch.compile(lambda x: ((y := x + 1), y[1:], y.t()), backend="neuron")
    y, tail, transposed = compiled(torch.zeros(3, 3, device="neuron"))
    y.fill_(7)
    assert tail.sum().item() == 42 and transposed.sum().item() == 63


def test_a_result_that_is_an_input_or_a_view_of_one():
    compiled = torch.compile(lambda x, y: (x, x[1:], y + 1), backend="neuron")
    x = torch.zeros(4, device="neuron")
    same, tail, _ = compiled(x, x)
    x.fill_(2)
    assert same is x or same.data_ptr() == x.data_ptr()
    assert tail.sum().item() == 6


def test_a_graph_without_results():
    def f(x):
        x.add_(1)

    x = torch.zeros(3, device="neuron")
    torch.compile(f, backend="neuron")(x)
    assert x.sum().item() == 3


def test_buffers_of_a_module():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x):
            self.seen += x
            return self.seen * 2

    module = Counter().to("neuron")
    compiled = torch.compile(module, backend="neuron")
    for i in range(1, 4):
        assert compiled(torch.ones(3, device="neuron")).sum().item() == 6 * i
    assert module.seen.sum().item() == 9


def test_batch_norm_statistics():
    torch.manual_seed(0)
    module = torch.nn.BatchNorm2d(3)
    device = torch.nn.BatchNorm2d(3).to("neuron")
    compiled = torch.compile(device, backend="neuron")
    for _ in range(3):
        x = torch.randn(2, 3, 4, 4)
        torch.testing.assert_close(compiled(x.to("neuron")).cpu(), module(x), rtol=1e-5, atol=1e-5)
    for a, b in zip(device.buffers(), module.buffers(), strict=True):
        torch.testing.assert_close(a.cpu(), b)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0)])
def test_tensors_without_elements(shape):
    check(lambda x: (x + 1, x.sum(), torch.cat([x, x])), torch.randn(shape))


def test_writing_parts_of_a_new_tensor():
    def f(x):
        y = torch.empty(4, 6, device=x.device)
        y[:, :3] = x
        y[:, 3:] = -x
        y[1] += 1
        return y

    check(f, torch.randn(4, 3), programs=1)


def test_memory_read_as_another_type():
    check(lambda x: (x + 1).view(torch.int32) + 1, torch.randn(5), host_steps=1)


def test_signed_bytes_are_no_other_memory():
    check(lambda x: (x * 2).view(torch.int8) + 1, torch.arange(5, dtype=torch.uint8), programs=1)


def test_a_host_tensor_that_a_program_takes_stays_on_the_host():
    @torch.compile(backend="neuron")
    def f(x):
        c = torch.arange(3.0)
        return x + c.to(x.device), c

    shifted, c = f(torch.ones(3, device="neuron"))
    assert c.device.type == "cpu" and c.tolist() == [0.0, 1.0, 2.0]
    assert shifted.tolist() == [1.0, 2.0, 3.0]


def test_indices_into_a_view_that_runs_backwards():
    """A flip is read in place by what gathers rows of it."""

    def rows(v):
        return v.flip(0).index_select(0, torch.tensor([16, 14, 0], device=v.device))

    def elements(v):
        picked = torch.tensor([3, -1, 0], device=v.device), torch.tensor([1, 0, -2], device=v.device)
        return v.flip(0, 1)[picked]

    check(rows, torch.randn(17, 1, 130), programs=1)
    check(elements, torch.randn(17, 5, 13), programs=2)
    check(lambda v: torch.gather(v.flip(1), 1, v.abs().long().clamp(0, 3)), torch.randn(6, 4), programs=3)
