"""Numbers that a call brings along, and random numbers."""

import pytest
import torch

from .common import check


def test_a_float_that_changes_compiles_no_more():
    def f(x, s):
        return x * s + s

    compiled = torch.compile(f, backend="neuron")
    x = torch.randn(5)
    for s in (0.5, 0.25, 3.0, -1.5, 0.1):
        torch.testing.assert_close(compiled(x.to("neuron"), s).cpu(), f(x, s), rtol=1e-6, atol=1e-6)
    # The first value is taken for a constant; from the second on it is a parameter.
    assert torch.neuron.get_dynamo_metrics()["graphs"] == 2


def test_an_integer_that_changes_compiles_no_more():
    compiled = torch.compile(lambda x, n: x * n - n, backend="neuron")
    x = torch.randn(5)
    for n in (2, 3, 9, -4):
        torch.testing.assert_close(compiled(x.to("neuron"), n).cpu(), x * n - n, rtol=1e-6, atol=1e-6)
    assert torch.neuron.get_dynamo_metrics()["graphs"] == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_a_cpu_scalar_is_a_parameter(dtype):
    compiled = torch.compile(lambda x, s: torch.where(x > 0, x * s, x + s), backend="neuron")
    x = torch.randn(6)
    for value in (1, 0, 3):
        s = torch.tensor(value).to(dtype)
        torch.testing.assert_close(compiled(x.to("neuron"), s).cpu(), torch.where(x > 0, x * s, x + s))
    assert torch.neuron.get_dynamo_metrics()["graphs"] == 1


def test_a_reduced_type_keeps_its_rounding():
    compiled = torch.compile(lambda x, s: x + s, backend="neuron")
    x = torch.randn(64).to(torch.bfloat16)
    for value in (0.1, 0.7, 1.3):
        s = torch.tensor(value)
        torch.testing.assert_close(compiled(x.to("neuron"), s).cpu(), x + s, rtol=0, atol=0)


def test_an_integer_beyond_32_bits_is_refused():
    compiled = torch.compile(lambda x, s: x + s, backend="neuron")
    x = torch.arange(3, device="neuron")
    compiled(x, torch.tensor(1))
    with pytest.raises(RuntimeError, match="needs more than 32 bits"):
        compiled(x, torch.tensor(2**40))


@pytest.mark.parametrize("operation", [torch.floor_divide, torch.remainder, torch.fmod])
def test_a_zero_that_divides_integers_is_refused(operation):
    compiled = torch.compile(lambda x, s: operation(x, s), backend="neuron")
    x = torch.arange(5)
    assert compiled(x.to("neuron"), torch.tensor(2)).tolist() == operation(x, 2).tolist()
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x.to("neuron"), torch.tensor(0))


def test_item_that_only_meets_tensors_stays_on_the_device():
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check(lambda x: (x + 1) * (x.sum().item() + 1), torch.randn(4), programs=1)


def test_item_that_is_returned_ends_a_program():
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        x = torch.arange(4)
        compiled = torch.compile(lambda x: (x + 1, x.sum().item()), backend="neuron", fullgraph=True)
        tensor, number = compiled(x.to("neuron"))
        assert number == 6 and tensor.cpu().tolist() == [1, 2, 3, 4]


def test_random_numbers_are_those_of_eager_execution():
    def f(x):
        a = torch.rand_like(x)
        b = torch.nn.functional.dropout(x, 0.4)
        c = torch.randn(3, 5, device=x.device)
        return a + b, c.sum(), torch.bernoulli(torch.full_like(x, 0.3))

    x = torch.randn(3, 5, device="neuron")
    compiled = torch.compile(f, backend="neuron")
    for seed in (0, 0, 7):
        torch.neuron.manual_seed(seed)
        expected = [f(x), f(x)]
        torch.neuron.manual_seed(seed)
        actual = [compiled(x), compiled(x)]
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert torch.neuron.get_dynamo_metrics()["graphs"] == 1


def test_dropout_in_training_uses_one_mask():
    torch.manual_seed(0)
    x = torch.ones(1000, device="neuron", requires_grad=True)
    y = torch.compile(lambda t: torch.nn.functional.dropout(t, 0.5) * 3, backend="neuron")(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


def test_integers_follow_the_rules_of_eager_execution():
    def f(a, b):
        return a // b, a % b, a.sum(), (a > b).sum(), a.to(torch.uint8) + 200

    check(f, torch.tensor([7, -7, 100, 3]), torch.tensor([2, 2, 7, -2]))


def test_an_index_out_of_range_raises():
    compiled = torch.compile(lambda t, i: torch.nn.functional.embedding(i, t) * 2, backend="neuron")
    table = torch.randn(4, 3, device="neuron")
    compiled(table, torch.tensor([0, 3], device="neuron"))
    with pytest.raises(IndexError):
        compiled(table, torch.tensor([0, 4], device="neuron"))
        torch.neuron.synchronize()


def test_sums_of_rows_that_depend_on_sums_of_rows():
    """Both sums come along with the exponentials of one kernel."""

    def f(x):
        inner = torch.softmax(x, -1)
        return torch.softmax(inner, -1), torch.log_softmax(inner, -1), torch.softmax(torch.log_softmax(x, -1), -1)

    check(f, torch.randn(17, 4), programs=1)
    check(f, torch.randn(3, 33, 16), programs=2)
