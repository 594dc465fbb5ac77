"""Row 50: a graph that does not compile raises; by switch or option it runs eagerly instead."""

import pytest
import torch


def positions(x):
    return x.nonzero() * 2


def check_falls_back(compiled):
    x = torch.tensor([0.0, 1.0, 2.0])
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        with pytest.warns(UserWarning, match="does not compile and runs eagerly"):
            result = compiled(x.to("neuron"))
    torch.testing.assert_close(result.cpu(), positions(x))
    assert torch.neuron.get_dynamo_metrics()["compile_failures"] == 1


def test_raises_by_default():
    compiled = torch.compile(positions, backend="neuron", fullgraph=True)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        with pytest.raises(Exception, match="a size that depends on values"):
            compiled(torch.ones(3, device="neuron"))


def test_falls_back_by_variable(monkeypatch):
    monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0")
    check_falls_back(torch.compile(positions, backend="neuron", fullgraph=True))


def test_falls_back_by_option():
    check_falls_back(torch.compile(positions, backend="neuron", fullgraph=True, options={"fallback_execution": True}))


def test_the_variable_is_checked(monkeypatch):
    monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "maybe")
    with pytest.raises(Exception, match="TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION=maybe is unknown"):
        torch.compile(lambda x: x + 1, backend="neuron")(torch.ones(3, device="neuron"))
