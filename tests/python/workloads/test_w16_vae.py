"""W16: the decoder of a VAE: group norm, upsampling, convolution; its peak of memory is reported."""

import torch
from diffusers import AutoencoderKL
from twins import assert_same_step

import trnsim

ENTRIES = ("decode",)


def test_decoder():
    torch.manual_seed(0)
    model = AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        latent_channels=4,
        norm_num_groups=8,
        layers_per_block=1,
    )

    def run(m, latent):
        out = m.decode(latent).sample
        return [out], out.square().mean()

    latent = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    _, device, _ = assert_same_step(model, run, latent)
    weights = sum(p.numel() * 4 for p in device.parameters())
    assert trnsim.report()["hbm"]["peak_bytes"] > weights
