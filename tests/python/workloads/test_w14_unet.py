"""W14: a Stable-Diffusion UNet, four DDIM steps, and one training step."""

import torch
from diffusers import DDIMScheduler, UNet2DConditionModel
from twins import assert_close, assert_same_step, on_device


def build():
    torch.manual_seed(0)
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


def latents():
    return torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(1))


def text():
    return torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(2))


def run(model, inputs):
    out = model(inputs["latents"], inputs["time"], inputs["text"]).sample
    return [out], (out - inputs["latents"]).square().mean()


def test_noise_and_gradients():
    assert_same_step(build(), run, {"latents": latents(), "time": torch.tensor([17]), "text": text()})


def test_four_ddim_steps():
    host = build().eval()
    results = []
    for model in (host, on_device(host)):
        device = next(model.parameters()).device
        scheduler = DDIMScheduler(num_train_timesteps=1000)
        scheduler.set_timesteps(4, device=device)
        x, hidden = latents().to(device), text().to(device)
        with torch.no_grad():
            for t in scheduler.timesteps:
                x = scheduler.step(model(x, t, hidden).sample, t, x).prev_sample
        results.append(x)
    assert_close(results[1], results[0], 1e-3, "latents")
