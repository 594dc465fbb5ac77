"""Row 43: the backend by name and by default; the numbers are those of eager execution."""

import torch


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).to("neuron")


def test_by_name():
    m, x = model(), torch.randn(5, 16, device="neuron")
    compiled = torch.compile(m, backend="neuron")
    torch.testing.assert_close(compiled(x), m(x), rtol=1e-6, atol=1e-6)
    assert torch.neuron.get_dynamo_metrics()["programs"] == 1


def test_as_the_default_backend():
    m, x = model(), torch.randn(5, 16, device="neuron")
    torch.compiler.set_default_backend("neuron")
    compiled = torch.compile(m)
    torch.testing.assert_close(compiled(x), m(x), rtol=1e-6, atol=1e-6)
    assert torch.neuron.get_dynamo_metrics()["programs"] == 1
