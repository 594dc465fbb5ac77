"""W10: a depthwise network."""

import torch
from transformers import ConvNextConfig, ConvNextForImageClassification
from twins import assert_same_step

import trnsim


def build():
    torch.manual_seed(0)
    config = ConvNextConfig(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2, num_labels=10)
    return ConvNextForImageClassification(config)


def run(model, data):
    out = model(**data)
    return [out.logits], out.loss


def test_logits_and_gradients():
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    assert_same_step(build(), run, {"pixel_values": images, "labels": torch.tensor([1, 8])})


def test_a_depthwise_convolution_is_bound_by_the_vector_engines():
    layer = torch.nn.Conv2d(64, 64, 7, padding=3, groups=64).to("neuron")
    images = torch.randn(2, 64, 32, 32).to("neuron")
    trnsim.reset_report()
    with torch.no_grad():
        layer(images)
    busy = {name: row["busy_ns"] for name, row in trnsim.report()["engines"].items()}
    assert busy["vector"] + busy["gpsimd"] + busy["scalar"] > 2 * busy["tensor"], busy
