"""Small convolutional networks with random weights (no downloads)."""

from __future__ import annotations

import torch
from diffusers import UNet2DConditionModel
from transformers import ResNetConfig, ResNetForImageClassification


def resnet(seed: int = 0) -> ResNetForImageClassification:
    """Two stages of one basic block, 10 classes, for images of 64x64."""
    torch.manual_seed(seed)
    config = ResNetConfig(
        num_channels=3, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=10
    )
    return ResNetForImageClassification(config)


def images(seed: int = 1) -> dict[str, torch.Tensor]:
    pixels = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(seed))
    return {"pixel_values": pixels, "labels": torch.tensor([0, 3, 5, 9])}


def unet(seed: int = 0) -> UNet2DConditionModel:
    """A Stable-Diffusion UNet for latents of 4x16x16 and text of width 32."""
    torch.manual_seed(seed)
    return UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32,
        norm_num_groups=8,
        attention_head_dim=8,
    )


def noisy(seed: int = 1) -> dict[str, torch.Tensor]:
    """Latents, a time step, text."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator)
    return {"sample": draw(1, 4, 16, 16), "timestep": torch.tensor([17]), "encoder_hidden_states": draw(1, 5, 32)}
