"""W09: a ResNet: running statistics, evaluation and training, channels_last."""

import torch
from twins import assert_close, assert_same_step, on_device
from workloads_of_tools import vision


def run(model, data):
    out = model(**data)
    return [out.logits], out.loss


def test_training_step_and_running_statistics():
    host, device, _ = assert_same_step(vision.resnet().train(), run, vision.images())
    buffers = 0
    for (name, a), b in zip(host.named_buffers(), device.buffers(), strict=True):
        assert_close(b, a, 1e-5, name)
        buffers += a.numel() > 1
    assert buffers > 4


def test_evaluation_uses_the_running_statistics():
    host, device, _ = assert_same_step(vision.resnet().eval(), run, vision.images())
    images = vision.images()["pixel_values"].to("neuron")
    with torch.no_grad():
        evaluated = device(images).logits
        trained = device.train()(images).logits
    assert (evaluated - trained).abs().max().item() > 1e-2


def test_channels_last():
    host = vision.resnet().eval()
    images = vision.images()["pixel_values"]
    device = on_device(host).to(memory_format=torch.channels_last)
    with torch.no_grad():
        got = device(images.to("neuron").to(memory_format=torch.channels_last)).logits
        assert_close(got, host(images).logits, 1e-4, "logits")
