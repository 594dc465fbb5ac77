"""W08: Swin: shifted windows by roll and mask; a batch equals its single images."""

import pytest
import torch
from transformers import SwinConfig, SwinModel
from twins import assert_close, assert_same_step, on_device


def build():
    torch.manual_seed(0)
    config = SwinConfig(
        image_size=32,
        patch_size=2,
        embed_dim=24,
        depths=[2, 1],  # the second block of the first stage shifts its windows
        num_heads=[2, 2],
        window_size=4,
        drop_path_rate=0.0,
    )
    return SwinModel(config)


def images(batch):
    return torch.randn(batch, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def run(model, pixels):
    out = model(pixels)
    return [out.last_hidden_state, out.pooler_output], out.pooler_output.square().mean()


def test_results_and_gradients():
    assert_same_step(build(), run, images(2))


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_batch_equals_its_single_images(batch):
    model = on_device(build()).eval()
    pixels = images(3)[:batch].to("neuron")
    with torch.no_grad():
        together = model(pixels).last_hidden_state
        for i in range(batch):
            assert_close(together[i : i + 1], model(pixels[i : i + 1]).last_hidden_state.cpu(), 1e-5, f"image {i}")
