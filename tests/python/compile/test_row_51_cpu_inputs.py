"""Row 51: tensors on the CPU are copied to the device, the result is there; a switch forbids the copies."""

import pytest
import torch


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def test_a_graph_on_the_cpu_runs_on_the_device():
    m, x = model(), torch.randn(5, 6)
    reference = model()
    y = torch.compile(m, backend="neuron")(x)
    assert y.device.type == "neuron"
    torch.testing.assert_close(y.cpu(), reference(x), rtol=1e-5, atol=1e-5)
    y.sum().backward()
    reference_loss = reference(x).sum()
    reference_loss.backward()
    for p, q in zip(m.parameters(), reference.parameters(), strict=True):
        assert p.grad.device.type == "cpu"
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5)
    assert m[1].running_mean.abs().sum() > 0  # changed on the device, and copied back


def test_the_switch_forbids_copies(monkeypatch):
    monkeypatch.setenv("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", "1")
    with pytest.raises(Exception, match=r"given tensors on the CPU .*DISABLE_CPU_AUTOCOPY=1 forbids copying"):
        torch.compile(lambda x: x + 1, backend="neuron")(torch.ones(3))
