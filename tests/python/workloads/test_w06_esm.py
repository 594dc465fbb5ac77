"""W06: the ESM-2 protein model, plain attention and SDPA."""

import pytest
import torch
from transformers import EsmConfig, EsmModel
from twins import assert_same_step


def build(attention):
    torch.manual_seed(0)
    config = EsmConfig(
        vocab_size=33,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        position_embedding_type="rotary",
        pad_token_id=1,
        mask_token_id=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation=attention,
    )
    return EsmModel(config, add_pooling_layer=False)


def run(model, inputs):
    hidden = model(**inputs).last_hidden_state
    return [hidden], hidden.square().mean()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_hidden_states_and_gradients(attention):
    ids = torch.randint(4, 24, (1, 30), generator=torch.Generator().manual_seed(1))
    assert_same_step(build(attention), run, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
