"""W04: GPT-OSS-like: attention sinks, a sliding window, experts."""

import torch
from transformers import GptOssConfig, GptOssForCausalLM
from twins import assert_same_step, on_device


def build(layer_types=("sliding_attention", "full_attention")):
    torch.manual_seed(0)
    config = GptOssConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        head_dim=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=8,
        layer_types=list(layer_types),
        max_position_embeddings=64,
        initial_context_length=64,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        attn_implementation="eager",
    )
    model = GptOssForCausalLM(config)
    with torch.no_grad():  # some layers leave these as they were allocated
        for p in model.parameters():
            p.normal_(0.0, 0.05)
    return model


def ids():
    return torch.randint(0, 97, (1, 32), generator=torch.Generator().manual_seed(1))


def run(model, data):
    out = model(data, labels=data)
    return [out.logits], out.loss


def test_logits_and_gradients():
    assert_same_step(build(), run, ids())


def test_a_token_beyond_the_window_is_not_seen():
    # Two layers of window 8 reach 14 tokens back: token 20 cannot depend on token 5.
    model = on_device(build(("sliding_attention", "sliding_attention"))).eval()
    a, b = ids(), ids()
    b[0, 5] = (b[0, 5] + 1) % 97
    with torch.no_grad():
        x, y = model(a.to("neuron")).logits, model(b.to("neuron")).logits
    assert torch.equal(x[0, 20].cpu(), y[0, 20].cpu())
    assert not torch.equal(x[0, 6].cpu(), y[0, 6].cpu())
