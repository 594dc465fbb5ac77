"""W14: a Stable-Diffusion UNet, four DDIM steps, and one training step."""

import torch
from diffusers import DDIMScheduler
from twins import assert_close, assert_same_step, on_device
from workloads_of_tools import vision


def run(model, inputs):
    out = model(**inputs).sample
    return [out], (out - inputs["sample"]).square().mean()


def test_noise_and_gradients():
    assert_same_step(vision.unet(), run, vision.noisy())


def test_four_ddim_steps():
    host = vision.unet().eval()
    results = []
    for model in (host, on_device(host)):
        device = next(model.parameters()).device
        scheduler = DDIMScheduler(num_train_timesteps=1000)
        scheduler.set_timesteps(4, device=device)
        noisy = vision.noisy()
        x, hidden = noisy["sample"].to(device), noisy["encoder_hidden_states"].to(device)
        with torch.no_grad():
            for t in scheduler.timesteps:
                x = scheduler.step(model(x, t, hidden).sample, t, x).prev_sample
        results.append(x)
    assert_close(results[1], results[0], 1e-3, "latents")
