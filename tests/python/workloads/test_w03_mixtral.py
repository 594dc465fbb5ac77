"""W03: a mixture of experts, both ways to compute the experts."""

import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM
from twins import assert_same_step, on_device


def build(experts):
    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
        output_router_logits=True,
        experts_implementation=experts,
    )
    return MixtralForCausalLM(config)


def ids():
    return torch.randint(0, 97, (2, 16), generator=torch.Generator().manual_seed(1))


def run(model, data):
    out = model(data, labels=data)
    return [out.logits, *out.router_logits], out.loss


@pytest.mark.parametrize("experts", ["eager", "grouped_mm", "batched_mm"])
def test_logits_router_and_gradients(experts):
    assert_same_step(build(experts), run, ids())


def test_every_token_reaches_two_experts():
    device = on_device(build("eager")).eval()
    with torch.no_grad():
        router = device(ids().to("neuron")).router_logits
    for logits in router:
        chosen = logits.topk(2, dim=-1).indices
        counts = torch.zeros(4, device="neuron").scatter_add_(0, chosen.flatten(), torch.ones(64, device="neuron"))
        assert counts.sum().item() == 2 * 32
