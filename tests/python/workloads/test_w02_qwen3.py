"""W02: Qwen3: normalised queries and keys, a head size of its own, tied embeddings."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from twins import assert_same_step, on_device


def build():
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=97,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=64,
            tie_word_embeddings=True,
        )
    )


def ids():
    return torch.randint(0, 97, (2, 16), generator=torch.Generator().manual_seed(1))


def run(model, data):
    out = model(data, labels=data)
    return [out.logits], out.loss


def test_logits_and_gradients():
    assert_same_step(build(), run, ids())


def test_weights_stay_tied_and_tokens_equal_the_cpus():
    host = build().eval()
    device = on_device(host)
    assert device.lm_head.weight is device.model.embed_tokens.weight
    tokens = [
        model.generate(
            data, attention_mask=torch.ones_like(data), max_new_tokens=8, do_sample=False, pad_token_id=0
        ).tolist()
        for model, data in ((host, ids()[:1]), (device, ids()[:1].to("neuron")))
    ]
    assert tokens[0] == tokens[1]
