"""W23: AdamW in its three forms, mixed precision, averaged weights, accumulated gradients."""

import pytest
import torch
from torch import nn
from twins import largest_difference, on_device
from workloads_of_tools import digits


@pytest.fixture(scope="module")
def data():
    x, y, *_ = digits.load()
    return x[:64].to("neuron"), y[:64].to("neuron")


def loss_of(model, data):
    return nn.functional.cross_entropy(model(data[0]), data[1])


def steps(model, data, count=3, **options):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **options)
    for _ in range(count):
        optimizer.zero_grad()
        loss_of(model, data).backward()
        optimizer.step()
    return [p.detach().cpu() for p in model.parameters()]


def test_foreach_and_loop_are_equal_bit_for_bit(data):
    torch.manual_seed(0)
    model = digits.cnn()
    loop = steps(on_device(model), data, foreach=False)
    foreach = steps(on_device(model), data, foreach=True)
    assert all(torch.equal(a, b) for a, b in zip(loop, foreach, strict=True))


def test_fused_equals_the_loop(data):
    # Not the CNN: the bias in front of a batch norm has gradients of pure rounding, which AdamW blows up to full steps.
    torch.manual_seed(0)
    model = digits.mlp()
    loop = steps(on_device(model), data, foreach=False)
    fused = steps(on_device(model), data, fused=True)
    assert max(largest_difference(a, b) for a, b in zip(loop, fused, strict=True)) < 1e-6


def test_the_first_step_moves_each_weight_by_the_rate(data):
    torch.manual_seed(0)
    model = digits.mlp().to("neuron")
    before = [p.detach().cpu().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-12, weight_decay=0.0)
    loss_of(model, data).backward()
    optimizer.step()
    for p, old in zip(model.parameters(), before, strict=True):
        moved = (p.detach().cpu() - old).abs()[p.grad.cpu().abs() > 1e-6]
        assert moved.numel() > 0 and (moved - 1e-3).abs().max() < 1e-6


def test_autocast_to_bfloat16(data):
    torch.manual_seed(0)
    model = digits.mlp().to("neuron")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast("neuron", dtype=torch.bfloat16):
            out = model(data[0])
            loss = nn.functional.cross_entropy(out, data[1])
        assert out.dtype == torch.bfloat16 and loss.dtype == torch.float32
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(p.dtype == torch.float32 and p.grad.dtype == torch.float32 for p in model.parameters())
    assert losses[-1] < 0.6 * losses[0]


def test_the_scaler_skips_a_step_that_overflows(data):
    torch.manual_seed(0)
    model = digits.mlp().to("neuron")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("neuron", init_scale=65536.0)
    before = [p.detach().cpu().clone() for p in model.parameters()]
    with torch.autocast("neuron", dtype=torch.float16):
        loss = loss_of(model, data)
    scaler.scale(loss * 1e4).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 32768.0
    assert all(torch.equal(p.detach().cpu(), old) for p, old in zip(model.parameters(), before, strict=True))
    optimizer.zero_grad()
    scaler.update(1024.0)
    with torch.autocast("neuron", dtype=torch.float16):
        loss = loss_of(model, data)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    assert any(not torch.equal(p.detach().cpu(), old) for p, old in zip(model.parameters(), before, strict=True))


def test_averaged_weights_follow_the_formula(data):
    torch.manual_seed(0)
    model = digits.mlp().to("neuron")
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    expected = [p.detach().cpu().clone() for p in model.parameters()]
    average.update_parameters(model)  # the first update copies
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, data).backward()
        optimizer.step()
        average.update_parameters(model)
        expected = [0.9 * e + 0.1 * p.detach().cpu() for e, p in zip(expected, model.parameters(), strict=True)]
    assert max(largest_difference(a, b) for a, b in zip(average.module.parameters(), expected, strict=True)) < 1e-6


def test_four_accumulated_batches_equal_the_whole(data):
    torch.manual_seed(0)
    model = digits.mlp().to("neuron")
    loss_of(model, data).backward()
    whole = [p.grad.cpu().clone() for p in model.parameters()]
    model.zero_grad()
    for part in range(4):
        rows = slice(16 * part, 16 * part + 16)
        (loss_of(model, (data[0][rows], data[1][rows])) / 4).backward()
    assert max(largest_difference(p.grad, g) for p, g in zip(model.parameters(), whole, strict=True)) < 1e-6
