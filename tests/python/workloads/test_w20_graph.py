"""W20: graph networks on the karate club: message passing by scatter."""

import pytest
import torch
from torch import nn
from torch_geometric.datasets import KarateClub
from torch_geometric.nn import GATConv, GCNConv
from twins import assert_same_step, to_device, train


class Network(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.a = layer(34, 16)
        self.b = layer(16, 4)

    def forward(self, x, edges):
        return self.b(self.a(x, edges).relu(), edges)


def graph():
    data = KarateClub()[0]
    return {"x": data.x, "edges": data.edge_index, "y": data.y}


def run(model, data):
    out = model(data["x"], data["edges"])
    return [out], nn.functional.cross_entropy(out, data["y"])


@pytest.mark.parametrize("layer", [GCNConv, GATConv])
def test_results_and_gradients(layer):
    torch.manual_seed(0)
    data = graph()
    assert data["x"].shape == (34, 34) and data["edges"].shape == (2, 156)
    assert_same_step(Network(layer), run, data, 1e-5)


@pytest.mark.parametrize("layer, steps", [(GCNConv, 60), (GATConv, 40)])
def test_training_finds_the_communities(layer, steps):
    torch.manual_seed(0)
    data = to_device(graph())
    model = Network(layer).to("neuron")
    train(model, lambda m: run(m, data)[1], steps, lambda p: torch.optim.Adam(p, lr=0.02))
    with torch.no_grad():
        right = (model(data["x"], data["edges"]).argmax(dim=1) == data["y"]).float().mean().item()
    assert right >= 0.9
