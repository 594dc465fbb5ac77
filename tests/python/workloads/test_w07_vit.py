"""W07: a ViT equals the CPU and learns eight images by heart."""

import torch
from twins import assert_same_step, train
from workloads_of_tools import transformer


def run(model, inputs):
    out = model(inputs["images"], labels=inputs["labels"])
    return [out.logits], out.loss


def test_logits_and_gradients():
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert_same_step(transformer.vit(), run, {"images": images, "labels": torch.tensor([3, 7])})


def test_overfits_eight_images():
    model = transformer.vit().to("neuron").train()
    images = (3 * torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))).to("neuron")
    labels = torch.arange(8).to("neuron")
    optimizer = lambda parameters: torch.optim.AdamW(parameters, lr=1.5e-2, weight_decay=0.0)
    train(model, lambda m: m(images, labels=labels).loss, 10, optimizer)
    with torch.no_grad():
        assert model(images, labels=labels).loss.item() < 0.05
