"""Row 47: every set of shapes is compiled once; after Dynamo's limit the function runs eagerly, with its warning."""

import logging

import torch


def test_three_shapes_three_graphs():
    compiled = torch.compile(lambda x: x * 2 + 1, backend="neuron")
    for _ in range(2):
        for n in (3, 5, 7):
            x = torch.arange(float(n))
            torch.testing.assert_close(compiled(x.to("neuron")).cpu(), x * 2 + 1)
    assert torch.neuron.get_dynamo_metrics()["graphs"] == 3


def test_the_ninth_shape_meets_dynamos_limit(caplog):
    compiled = torch.compile(lambda x: x * 2 + 1, backend="neuron")
    with caplog.at_level(logging.WARNING):
        for n in range(2, 11):
            x = torch.arange(float(n))
            torch.testing.assert_close(compiled(x.to("neuron")).cpu(), x * 2 + 1)
    assert "recompile_limit" in caplog.text
    assert torch.neuron.get_dynamo_metrics()["graphs"] == 8
