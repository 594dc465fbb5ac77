"""Operators on lists of tensors run as one program, with PyTorch's meaning."""

import pytest
import torch

import trnsim

SHAPES = [(3, 5), (), (130,), (0, 4), (2, 3, 4)]


def lists(count=1, shapes=SHAPES, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [[(torch.rand(s, generator=generator) + 0.5).to(dtype) for s in shapes] for _ in range(count)]


def on_device(tensors):
    return [t.to("neuron", copy=True) for t in tensors]


def programs(f):
    """The programs that ran, by name."""
    trnsim.reset_report()
    f()
    torch.neuron.synchronize()
    report = trnsim.report()
    assert report["fallbacks"] == []
    return {p["name"]: p["count"] for p in report["programs"]}


def compare(got, expected, **tolerance):
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b, **tolerance)


CALLS = [
    ("_foreach_mul", 1, (0.5,)),
    ("_foreach_add", 2, ()),
    ("_foreach_div", 1, ([1.0, 2.0, 3.0, 4.0, 5.0],)),
    ("_foreach_addcdiv", 3, (0.5,)),
    ("_foreach_addcmul", 3, ([1.0, 2.0, 3.0, 4.0, 5.0],)),
    ("_foreach_lerp", 2, (0.25,)),
    ("_foreach_pow", 1, (3.0,)),
    ("_foreach_sqrt", 1, ()),
    ("_foreach_maximum", 1, (0.75,)),
]


@pytest.mark.parametrize("name, tensors, rest", CALLS, ids=[c[0] for c in CALLS])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_call_is_one_program(name, tensors, rest, in_place):
    operator = getattr(torch, name + "_" * in_place)
    host = lists(tensors)
    device = [on_device(a) for a in host]
    expected = operator(*host, *rest)
    results = []
    ran = programs(lambda: results.append(operator(*device, *rest)))
    compare(device[0] if in_place else results[0], host[0] if in_place else expected)
    assert sum(ran.values()) == 1 and next(iter(ran)).startswith("aten::" + name), ran


def test_quotients_by_numbers_of_any_size():
    """The same bits as those of one tensor, from the same program."""
    numbers = [3.0, -7.0, 1e-42, 1e38, -0.0, float("inf"), float("nan"), 2, 0.1]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = [torch.tensor([0.0, 1.0, -2.5, 3e-5, 6e4, float("inf")]).to(dtype) for _ in numbers]
        device = on_device(x)
        compare(torch._foreach_div(device, numbers), torch._foreach_div(x, numbers), equal_nan=True)
        before = trnsim.report()["caches"]["compiles"]
        numbers = [n + 1 for n in numbers]
        many = torch._foreach_div(device, numbers)
        assert trnsim.report()["caches"]["compiles"] == before
        for a, n, b in zip(device, numbers, many, strict=True):
            torch.testing.assert_close(a / n, b, rtol=0, atol=0, equal_nan=True)


def test_truth_values_to_the_power_of_one_stay_truth_values():
    x = [torch.tensor([True, False, True])]
    for exponent in (True, False):
        compare(torch._foreach_pow(on_device(x), exponent), torch._foreach_pow(x, exponent))
        compare([torch.pow(x[0].to("neuron"), exponent)], [torch.pow(x[0], exponent)])


def test_another_number_compiles_nothing():
    a, c = (on_device(x) for x in lists(2))
    torch._foreach_addcdiv_(a, a, c, value=0.5)
    torch._foreach_mul_(a, [1.0, 2.0, 3.0, 4.0, 5.0])
    trnsim.reset_report()
    torch._foreach_addcdiv_(a, a, c, value=-0.25)
    torch._foreach_mul_(a, [5.0, 4.0, 3.0, 2.0, 1.0])
    assert trnsim.report()["caches"]["compiles"] == 0
    host, divisor = lists(2)
    for value, factors in ((0.5, range(1, 6)), (-0.25, range(5, 0, -1))):
        torch._foreach_addcdiv_(host, host, divisor, value=value)
        torch._foreach_mul_(host, [float(f) for f in factors])
    compare(a, host)


def test_a_number_that_shapes_the_program_is_not_taken_for_another():
    (host,) = lists()
    for order in (1.0, 2.0, float("inf")):
        compare(torch._foreach_norm(on_device(host)[:3], order), torch._foreach_norm(host[:3], order))
    for exponent in (2.0, 0.5, -1.0):
        compare(torch._foreach_pow(on_device(host), exponent), torch._foreach_pow(host, exponent))


def test_types_follow_the_number():
    whole = [torch.arange(5), torch.tensor([7], dtype=torch.int8)]
    for number in (2, 2.5, True):
        compare(torch._foreach_mul(on_device(whole), number), torch._foreach_mul(whole, number))
    with pytest.raises(RuntimeError, match="result type Float can't be cast"):
        torch._foreach_mul_(on_device(whole), 2.5)
    compare(torch._foreach_add(on_device(whole), 300), torch._foreach_add(whole, 300))  # beyond int8


def test_numbers_beyond_32_bits():
    a = [torch.ones(3, dtype=torch.int64)]
    compare(torch._foreach_add(on_device(a), 2**31 - 2), [torch.full((3,), 2**31 - 1)])
    assert torch._foreach_clamp_max(on_device(a), 2**40)[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtypes", [(torch.bfloat16, torch.float32), (torch.int32, torch.float16)])
def test_lists_of_several_types(dtypes):
    a, b = lists(2)
    a = [t.to(dtypes[i % 2]) for i, t in enumerate(a)]
    compare(torch._foreach_add(on_device(a), on_device(b)), torch._foreach_add(a, b))
    compare(torch._foreach_mul(on_device(a), 3), torch._foreach_mul(a, 3))


def test_a_tensor_that_comes_twice_changes_twice():
    a, b = torch.ones(4, device="neuron"), torch.ones(3, device="neuron")
    ran = programs(lambda: torch._foreach_add_([a, b, a], [1.0, 1.0, 2.0]))
    assert sum(ran.values()) == 1
    assert a.tolist() == [4.0] * 4 and b.tolist() == [2.0] * 3
    torch._foreach_mul_([a, b], [a, b])  # and as two operands of one element
    assert a.tolist() == [16.0] * 4 and b.tolist() == [4.0] * 3


def test_operands_that_overlap_are_changed_one_after_the_other():
    whole = torch.arange(6.0, device="neuron")
    torch._foreach_add_([whole[:4], whole[2:]], 1.0)
    assert whole.tolist() == [1, 2, 4, 5, 5, 6]
    halves = [whole[:3], whole[3:]]  # these do not
    assert sum(programs(lambda: torch._foreach_zero_(halves)).values()) == 1
    assert whole.tolist() == [0] * 6


def test_a_scale_in_a_tensor():
    host = lists()[0][:3]
    for scale in (torch.tensor(0.5), torch.tensor(0.5, device="neuron")):
        device = on_device(host)
        assert sum(programs(lambda d=device, s=scale: torch._foreach_mul_(d, s)).values()) == 1
        compare(device, [t * 0.5 for t in host])


def test_copies_with_a_cast():
    host = lists()[0]
    target = [torch.empty(t.shape, dtype=torch.bfloat16, device="neuron") for t in host]
    source = on_device(host)
    assert sum(programs(lambda: torch._foreach_copy_(target, source)).values()) == 1
    compare(target, [t.bfloat16() for t in host])
    torch._foreach_copy_(target, host)  # from the host: one by one
    compare(target, [t.bfloat16() for t in host])


def test_long_lists_take_a_few_programs():
    host = [torch.full((2,), float(i)) for i in range(600)]
    device = on_device(host)
    assert sum(programs(lambda: torch._foreach_mul_(device, 2.0)).values()) == 3
    compare(device, [t * 2 for t in host])


def test_wrong_lists_are_refused_in_the_words_of_pytorch():
    a, b = (on_device(x) for x in lists(2))
    with pytest.raises(RuntimeError, match="Tensor list must have at least one tensor"):
        torch._foreach_add_([], 1.0)
    with pytest.raises(RuntimeError, match="must have the same number of tensors"):
        torch._foreach_add_(a, b[:-1])
    with pytest.raises(RuntimeError, match="must match the size"):
        torch._foreach_add_(a[:1], b[2:3])


def test_programs_of_lists_count_among_the_plans_of_a_device():
    (host,) = lists()
    device = on_device(host)
    torch._foreach_neg(device)
    trnsim.reset_report()
    torch._foreach_neg(device)
    caches = trnsim.report()["caches"]
    assert caches["compiles"] == 0


def test_the_norm_of_gradients_is_clipped():
    host = [t.requires_grad_() for t in lists()[0]]
    device = [t.detach().to("neuron").requires_grad_() for t in host]
    for parameters in (host, device):
        for p in parameters:
            p.grad = torch.full_like(p, 3.0)
    norms = [torch.nn.utils.clip_grad_norm_(p, 1.0).cpu() for p in (host, device)]
    torch.testing.assert_close(*norms)
    compare([p.grad for p in device], [p.grad for p in host])
