"""W15: diffusion transformers: DiT, and Flux with rotary tables made in float64."""

import torch
from diffusers import DiTTransformer2DModel, FluxTransformer2DModel
from twins import assert_same_step


def test_dit():
    torch.manual_seed(0)
    model = DiTTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=8,
        in_channels=4,
        num_layers=2,
        sample_size=16,
        patch_size=2,
        num_embeds_ada_norm=1000,
        norm_num_groups=4,
    ).eval()

    def run(m, data):
        out = m(data["x"], timestep=data["t"], class_labels=data["label"]).sample
        return [out], out.square().mean()

    x = torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(1))
    assert_same_step(model, run, {"x": x, "t": torch.tensor([7]), "label": torch.tensor([3])})


def test_flux():
    torch.manual_seed(0)
    model = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        guidance_embeds=False,
        axes_dims_rope=(4, 4, 8),
    )
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=generator)
    rows = torch.arange(16)
    inputs = {
        "hidden_states": draw(1, 16, 4),
        "encoder_hidden_states": draw(1, 6, 32),
        "pooled_projections": draw(1, 32),
        "timestep": torch.tensor([0.5]),
        "img_ids": torch.stack([torch.zeros(16), rows // 4, rows % 4], dim=1).float(),
        "txt_ids": torch.zeros(6, 3),
    }

    def run(m, data):
        out = m(**data).sample
        return [out], out.square().mean()

    assert_same_step(model, run, inputs)
