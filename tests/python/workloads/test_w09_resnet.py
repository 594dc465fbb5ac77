"""W09: a ResNet: running statistics, evaluation and training, channels_last."""

import torch
from transformers import ResNetConfig, ResNetForImageClassification
from twins import assert_close, assert_same_step, on_device


def build():
    torch.manual_seed(0)
    config = ResNetConfig(
        num_channels=3,
        embedding_size=16,
        hidden_sizes=[16, 32],
        depths=[1, 1],
        layer_type="basic",
        num_labels=10,
    )
    return ResNetForImageClassification(config)


def inputs():
    return {
        "pixel_values": torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(1)),
        "labels": torch.tensor([0, 3, 5, 9]),
    }


def run(model, data):
    out = model(**data)
    return [out.logits], out.loss


def test_training_step_and_running_statistics():
    host, device, _ = assert_same_step(build().train(), run, inputs())
    buffers = 0
    for (name, a), b in zip(host.named_buffers(), device.buffers(), strict=True):
        assert_close(b, a, 1e-5, name)
        buffers += a.numel() > 1
    assert buffers > 4


def test_evaluation_uses_the_running_statistics():
    host, device, _ = assert_same_step(build().eval(), run, inputs())
    images = inputs()["pixel_values"].to("neuron")
    with torch.no_grad():
        evaluated = device(images).logits
        trained = device.train()(images).logits
    assert (evaluated - trained).abs().max().item() > 1e-2


def test_channels_last():
    host = build().eval()
    images = inputs()["pixel_values"]
    device = on_device(host).to(memory_format=torch.channels_last)
    with torch.no_grad():
        got = device(images.to("neuron").to(memory_format=torch.channels_last)).logits
        assert_close(got, host(images).logits, 1e-4, "logits")
