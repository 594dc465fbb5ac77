"""Row 53: forward and backward are compiled; the loss curve of five Adam steps is the CPU's."""

import copy

import pytest
import torch


def losses(model, x, y, steps=5):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    curve = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
    return curve


def test_five_adam_steps():
    torch.manual_seed(0)
    host = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.LayerNorm(32), torch.nn.Tanh(), torch.nn.Linear(32, 3))
    device = copy.deepcopy(host).to("neuron")
    x, y = torch.randn(16, 8), torch.randn(16, 3)
    expected = losses(host, x, y)
    actual = losses(torch.compile(device, backend="neuron"), x.to("neuron"), y.to("neuron"))
    assert actual == pytest.approx(expected, abs=1e-5)
    metrics = torch.neuron.get_dynamo_metrics()
    assert metrics["graphs"] == 2 and metrics["calls"] == 10 and metrics["host_steps"] == 0
