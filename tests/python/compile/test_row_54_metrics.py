"""Row 54: counts and times of compiled graphs; reset clears them."""

import torch


def test_metrics():
    compiled = torch.compile(lambda x: x * 3 - 1, backend="neuron")
    for _ in range(3):
        compiled(torch.ones(11, device="neuron"))
    metrics = torch.neuron.get_dynamo_metrics()
    assert metrics["graphs"] == 1 and metrics["programs"] == 1 and metrics["calls"] == 3
    assert metrics["nodes"] == 2 and metrics["graph_seconds"] > 0
    assert metrics["programs_compiled"] + metrics["programs_from_cache"] == 1
    torch.neuron.reset_dynamo_metrics()
    assert not any(torch.neuron.get_dynamo_metrics().values())


def test_operators_outside_programs_are_named():
    def f(x):
        return torch.linalg.det(x.exp()) + 1

    x = torch.randn(3, 3)
    compiled = torch.compile(f, backend="neuron")
    torch.testing.assert_close(compiled(x.to("neuron")).cpu(), f(x), rtol=1e-4, atol=1e-4)
    hosts = torch.neuron.get_dynamo_metrics()["host_operators"]
    assert [h["op"] for h in hosts] == ["aten::_linalg_det"], hosts
