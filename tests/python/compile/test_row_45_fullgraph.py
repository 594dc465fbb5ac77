"""Row 45: with fullgraph=True a graph break is an error; without it the function runs in pieces."""

import pytest
import torch


def branches(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def test_a_branch_on_data_raises_with_fullgraph():
    compiled = torch.compile(branches, backend="neuron", fullgraph=True)
    with pytest.raises(Exception, match="[Dd]ata.dependent"):
        compiled(torch.ones(4, device="neuron"))


def test_it_runs_in_two_graphs_without():
    compiled = torch.compile(branches, backend="neuron", fullgraph=False)
    for x in (torch.ones(4), -torch.ones(4)):
        torch.testing.assert_close(compiled(x.to("neuron")).cpu(), branches(x))
    assert torch.neuron.get_dynamo_metrics()["graphs"] == 3  # before the branch, and each side of it


def test_item_is_part_of_a_full_graph():
    def f(x):
        return x * x.sum().item()

    compiled = torch.compile(f, backend="neuron", fullgraph=True)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        x = torch.arange(4.0)
        torch.testing.assert_close(compiled(x.to("neuron")).cpu(), f(x))
