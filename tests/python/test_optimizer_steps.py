"""Fused optimizer steps and the gradient scaler's operators on lists: like the CPU's, without the host."""

import pytest
import torch

import trnsim

STEPS = [
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"weight_decay": 0.1, "amsgrad": True}),
    (torch.optim.Adam, {"maximize": True, "betas": (0.8, 0.95)}),
    (torch.optim.AdamW, {"weight_decay": 0.1}),
    (torch.optim.AdamW, {"amsgrad": True}),
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.3, "maximize": True}),
    (torch.optim.Adagrad, {"lr_decay": 0.1, "weight_decay": 0.1}),
]
SHAPES = [(3, 5), (), (130,), (0, 4)]


def run(device, cls, options, steps=3):
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.randn(s, generator=generator).to(device).requires_grad_() for s in SHAPES]
    optimizer = cls(parameters, lr=0.05, fused=True, **options)
    for _ in range(steps):
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=generator).to(device)
        optimizer.step()
    return parameters, optimizer


def compare(got, expected):
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach().cpu(), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("cls, options", STEPS)
def test_a_fused_step_equals_the_cpus(cls, options):
    expected, host = run("cpu", cls, options)
    trnsim.reset_report()
    got, device = run("neuron", cls, options)
    assert trnsim.fallbacks() == []
    compare(got, expected)
    for p, q in zip(got, expected, strict=True):
        for key, value in host.state[q].items():
            if isinstance(value, torch.Tensor):
                compare([device.state[p][key]], [value])


@pytest.mark.parametrize("cls", [torch.optim.AdamW, torch.optim.Adagrad])  # the CPU's SGD loses such steps
def test_a_step_in_bfloat16_rounds_once(cls):
    results = []
    for device in ("cpu", "neuron"):
        p = torch.linspace(-3, 3, 35).to(device, torch.bfloat16).requires_grad_()
        optimizer = cls([p], lr=0.1, weight_decay=0.1, fused=True)
        for step in range(3):
            p.grad = (torch.linspace(-1, 1, 35) * (step + 1)).to(device, torch.bfloat16)
            optimizer.step()
        results.append(p.detach().cpu().float())
    torch.testing.assert_close(*results, rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize("cls", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_a_rate_in_a_tensor(cls):
    results = []
    for device in ("cpu", "neuron"):
        p = torch.arange(6.0, device=device).requires_grad_()
        p.grad = torch.ones(6, device=device)
        cls([p], lr=torch.tensor(0.05), fused=True).step()
        results.append([p])
    compare(*results[::-1])


@pytest.mark.parametrize("cls", [torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad])
def test_a_fused_step_that_the_scaler_calls_off_changes_nothing(cls):
    p = torch.arange(6.0, device="neuron").requires_grad_()
    optimizer = cls([p], lr=0.05, fused=True)
    scaler = torch.amp.GradScaler("neuron", init_scale=4.0)
    for factor, expected in ((float("inf"), 2.0), (1.0, 2.0)):
        before = p.detach().cpu().clone()
        optimizer.zero_grad()
        scaler.scale((p * factor).sum()).backward()
        scaled = p.grad.cpu().clone()
        scaler.step(optimizer)
        assert torch.equal(p.grad.cpu(), scaled) == (factor == float("inf"))
        scaler.update()
        assert scaler.get_scale() == expected
        assert torch.equal(p.detach().cpu(), before) == (factor == float("inf"))
    torch.testing.assert_close(p.grad.cpu(), torch.ones(6))  # unscaled in place


@pytest.mark.parametrize("cls, options", STEPS)
def test_a_fused_step_is_one_program(cls, options):
    """And one for the counts of steps; another rate compiles nothing."""
    _, optimizer = run("neuron", cls, {"momentum": 0.9} if cls is torch.optim.SGD and not options else options, steps=2)
    optimizer.param_groups[0]["lr"] = 0.025
    trnsim.reset_report()
    optimizer.step()
    torch.neuron.synchronize()
    report = trnsim.report()
    assert report["caches"]["compiles"] == 0
    names = {p["name"]: p["count"] for p in report["programs"]}
    counts = {} if cls is torch.optim.SGD else {"aten::_foreach_add_.Scalar": 1}
    assert names == {f"aten::_fused_{cls.__name__.lower()}_": 1} | counts


def test_unscaling_is_one_program():
    grads = [torch.full((n, 3), 8.0, device="neuron") for n in range(1, 5)]
    found = torch.zeros(1, device="neuron")
    for bad in (0.0, 1.0):
        if bad:
            grads[2][1, 1] = float("nan")
        trnsim.reset_report()
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.full((), 0.5, device="neuron"))
        assert found.tolist() == [bad]
        assert "aten::_amp_foreach_non_finite_check_and_unscale_" in {p["name"] for p in trnsim.report()["programs"]}
    assert grads[0].tolist() == [[2.0] * 3]


def test_parameters_that_share_memory_are_stepped_one_after_the_other():
    results = []
    for device in ("cpu", "neuron"):
        memory = torch.arange(8.0, device=device)
        parts = [memory[:5], memory[3:]]
        grads = [torch.ones(5, device=device), torch.ones(5, device=device)]
        torch._fused_sgd_(
            parts,
            grads,
            [],
            weight_decay=0.1,
            momentum=0,
            lr=0.1,
            dampening=0,
            nesterov=False,
            maximize=False,
            is_first_step=True,
        )
        results.append([memory])
    compare(*results[::-1])


def test_the_first_bias_corrections_keep_their_digits():
    """1 - 0.9999^t in float32 would keep four."""
    results = []
    for device in ("cpu", "neuron"):
        p = torch.ones(4, device=device).requires_grad_()
        optimizer = torch.optim.Adam([p], lr=1e-3, betas=(0.999, 0.99999), fused=True)
        for scale in (1.0, 1e-3):
            p.grad = torch.full((4,), scale, device=device)
            optimizer.step()
        results.append(1 - p.detach().cpu())
    torch.testing.assert_close(*results[::-1], rtol=2e-4, atol=0)


def test_a_scale_grows_after_enough_steps_and_not_beyond_float32():
    scale = torch.tensor([2.0], device="neuron")
    tracker = torch.tensor([0], dtype=torch.int32, device="neuron")
    fine = torch.zeros(1, device="neuron")
    seen = []
    for _ in range(4):
        torch._amp_update_scale_(scale, tracker, fine, 2.0, 0.5, 2)
        seen.append((scale.item(), tracker.item()))
    assert seen == [(2.0, 1), (4.0, 0), (4.0, 1), (8.0, 0)]
    torch._amp_update_scale_(scale, tracker, fine + 1, 2.0, 0.5, 2)
    assert (scale.item(), tracker.item()) == (4.0, 0)
    scale.fill_(3e38)
    torch._amp_update_scale_(scale, tracker, fine, 2.0, 0.5, 1)
    assert scale.item() == torch.tensor(3e38).item()


def test_lists_of_different_lengths_are_refused():
    p = [torch.ones(2, device="neuron")]
    with pytest.raises(RuntimeError, match="_fused_sgd_: expected 1 tensors in every list, got 0"):
        torch._fused_sgd_(
            p,
            [],
            [],
            weight_decay=0,
            momentum=0,
            lr=0.1,
            dampening=0,
            nesterov=False,
            maximize=False,
            is_first_step=True,
        )


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_weight_norm(dim, dtype, tolerance):
    torch.manual_seed(0)
    v, grad = torch.randn(6, 4, 5, dtype=dtype), torch.randn(6, 4, 5, dtype=dtype)
    g = torch.rand([n if d == dim else 1 for d, n in enumerate(v.shape)]).to(dtype) + 0.5
    results = []
    for device, kind in (("cpu", torch.float32), ("neuron", dtype)):
        a, b = (t.to(device, kind, copy=True).requires_grad_() for t in (v, g))
        trnsim.reset_report()
        w = torch._weight_norm(a, b, dim)
        w.backward(grad.to(device, kind))
        results.append([w, a.grad, b.grad])
    assert trnsim.fallbacks() == []
    for a, b in zip(*results[::-1], strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.detach().cpu().float(), b.detach(), rtol=tolerance, atol=tolerance)
