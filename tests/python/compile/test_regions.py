"""Autocast, checkpoints, attention, control flow, graph breaks, exported programs, optimizer steps."""

import copy

import pytest
import torch

from .common import check


def test_autocast_region():
    def f(x, w):
        with torch.autocast("neuron", dtype=torch.bfloat16):
            y = x @ w
            return y, torch.softmax(y, -1)

    x, w = torch.randn(4, 8, device="neuron"), torch.randn(8, 6, device="neuron")
    actual, expected = torch.compile(f, backend="neuron", fullgraph=True)(x, w), f(x, w)
    assert actual[0].dtype == torch.bfloat16 and actual[1].dtype == torch.float32
    torch.testing.assert_close(actual, expected)


def gradients(function, parameters, x):
    for p in parameters:
        p.grad = None
    function(x).square().sum().backward()
    return [p.grad.clone() for p in parameters]


@pytest.mark.parametrize("use_reentrant", [False])
def test_activation_checkpoint(use_reentrant):
    torch.manual_seed(0)
    block = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8)).to("neuron")

    def f(x):
        y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=use_reentrant)
        return torch.utils.checkpoint.checkpoint(block, y.sin(), use_reentrant=use_reentrant)

    x = torch.randn(5, 8, device="neuron")
    parameters = list(block.parameters())
    expected = gradients(f, parameters, x)
    actual = gradients(torch.compile(f, backend="neuron", fullgraph=True), parameters, x)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["neuron", "aot_eager", "aot_eager_decomp_partition"])
def test_a_checkpoint_draws_the_same_random_numbers_twice(backend):
    torch._dynamo.reset()

    def f(x):
        drop = lambda t: torch.nn.functional.dropout(t.exp(), 0.5)
        return torch.utils.checkpoint.checkpoint(drop, torch.rand_like(x) * x, use_reentrant=False)

    x = torch.ones(500, device="neuron", requires_grad=True)
    y = torch.compile(f, backend=backend, fullgraph=True)(x)
    y.sum().backward()
    # Of exp(r x) at x = 1 the derivative is r exp(r), under the same mask, and r = log(exp(r)).
    kept = y.detach() > 0
    expected = torch.where(kept, (y.detach() / 2).clamp_min(1e-9).log() * y.detach(), 0.0)
    assert 0.3 < kept.float().mean().item() < 0.7
    torch.testing.assert_close(x.grad, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("draw", [torch.rand_like, torch.bernoulli, lambda x: torch.randn(x.shape, device=x.device)])
def test_a_checkpoint_draws_by_any_operator_again(draw):
    torch._dynamo.reset()

    def f(x):
        return torch.utils.checkpoint.checkpoint(lambda t: t.exp() * draw(t), x, use_reentrant=False)

    x = torch.full((500,), 0.5, device="neuron", requires_grad=True)
    y = torch.compile(f, backend="neuron", fullgraph=True)(x)
    y.sum().backward()  # the derivative of exp is exp: y again, if the numbers are the same
    assert y.std() > 0.1
    torch.testing.assert_close(x.grad, y.detach())


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    def f(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    tensors = [torch.randn(2, 3, 7, 16, requires_grad=True) for _ in range(3)]
    theirs = [t.detach().clone().requires_grad_() for t in tensors]
    ours = [t.detach().to("neuron").requires_grad_() for t in tensors]
    expected = f(*theirs)
    actual = torch.compile(f, backend="neuron", fullgraph=True)(*ours)
    expected.square().sum().backward()
    actual.square().sum().backward()
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-5)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-4, atol=1e-4)


def test_graph_break():
    def f(x):
        y = x.exp()
        torch._dynamo.graph_break()
        return y.sum() + 1

    x = torch.randn(5)
    actual = torch.compile(f, backend="neuron")(x.to("neuron"))
    torch.testing.assert_close(actual.cpu(), x.exp().sum() + 1)
    assert torch.neuron.get_dynamo_metrics()["graphs"] == 2


def test_calls_of_the_device_module_break_the_graph():
    def f(x):
        y = x + 1
        torch.neuron.manual_seed(3)
        return y + torch.rand(4, device=x.device)

    x = torch.zeros(4, device="neuron")
    compiled = torch.compile(f, backend="neuron")
    torch.testing.assert_close(compiled(x), compiled(x))
    assert torch.neuron.get_dynamo_metrics()["graphs"] == 2


def test_exported_program():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to("neuron")
    x = torch.randn(3, 4, device="neuron")
    exported = torch.export.export(model, (x,))
    compiled = torch.compile(exported.module(), backend="neuron")
    torch.testing.assert_close(compiled(x), model(x))
    assert torch.neuron.get_dynamo_metrics()["programs"] == 1


def test_cond():
    def f(x):
        return torch.cond(x.sum() > 0, lambda t: t.sin() * 2, lambda t: t.cos() - 1, (x,)) + 1

    for sign in (1.0, -1.0):
        torch._dynamo.reset()
        torch.neuron.reset_dynamo_metrics()
        check(f, sign * torch.rand(4), host_steps=1)


def test_while_loop():
    def f(x):
        start = torch.zeros((), dtype=torch.int64, device=x.device)
        return torch.while_loop(lambda i, t: i < 5, lambda i, t: (i + 1, t * 2 - 1), (start, x))

    x = torch.rand(3)
    actual = torch.compile(f, backend="neuron", fullgraph=True)(x.to("neuron"))
    torch.testing.assert_close(actual[1].cpu(), f(x)[1])


def test_scan():
    from torch._higher_order_ops.scan import scan

    def step(carry, x):
        return carry + x, carry * 2

    def f(init, xs):
        return scan(step, init, xs)

    init, xs = torch.randn(3), torch.randn(5, 3)
    actual = torch.compile(f, backend="neuron", fullgraph=True)(init.to("neuron"), xs.to("neuron"))
    torch.testing.assert_close([a.cpu() for a in actual], list(f(init, xs)))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_step(name):
    torch.manual_seed(0)
    host = torch.nn.Linear(4, 3)
    device = copy.deepcopy(host).to("neuron")
    x = torch.randn(5, 4)
    optimizers = [OPTIMIZERS[name](m.parameters()) for m in (host, device)]
    steps = [optimizers[0].step, torch.compile(optimizers[1].step, backend="neuron")]
    for i in range(4):
        for model, data, step, optimizer in zip((host, device), (x, x.to("neuron")), steps, optimizers, strict=True):
            optimizer.zero_grad()
            model(data).square().sum().backward()
            optimizer.param_groups[0]["lr"] = 0.01 / (i + 1)
            step()
        for p, q in zip(host.parameters(), device.parameters(), strict=True):
            torch.testing.assert_close(q.cpu(), p, rtol=1e-5, atol=1e-5)
    assert torch.neuron.get_dynamo_metrics()["graphs"] >= 1


def test_conversion_to_another_device_is_a_host_step():
    def f(x):
        return (x.exp().cpu() + 1).to(x.device) * 2

    x = torch.randn(4)
    actual = torch.compile(f, backend="neuron", fullgraph=True)(x.to("neuron"))
    torch.testing.assert_close(actual.cpu(), (x.exp() + 1) * 2)
