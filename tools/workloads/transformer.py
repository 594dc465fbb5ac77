"""Small transformers from the `transformers` package with random weights (no downloads)."""

from __future__ import annotations

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

# The size of all of them, and what makes runs comparable.
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def llama(seed: int = 0) -> LlamaForCausalLM:
    """vocab 97, hidden 64, ffn 128, 2 layers, 4 heads, 2 kv heads, untied."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=97, num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False, **SIZES
    )
    return LlamaForCausalLM(config)


def llama_ids(batch: int = 2, length: int = 16, seed: int = 1) -> torch.Tensor:
    return torch.randint(0, 97, (batch, length), generator=torch.Generator().manual_seed(seed))


def bert(seed: int = 0) -> BertForMaskedLM:
    torch.manual_seed(seed)
    return BertForMaskedLM(BertConfig(vocab_size=97, max_position_embeddings=128, **SIZES, **NO_DROPOUT))


def vit(seed: int = 0) -> ViTForImageClassification:
    """32x32 image, patch 8, 10 classes."""
    torch.manual_seed(seed)
    config = ViTConfig(image_size=32, patch_size=8, num_channels=3, num_labels=10, **SIZES, **NO_DROPOUT)
    return ViTForImageClassification(config)


def generate(model: LlamaForCausalLM, ids: torch.Tensor, new_tokens: int = 8) -> list[int]:
    """Greedy tokens after the first row of `ids`, with the dynamic KV cache."""
    model.eval()
    with torch.no_grad():
        out = model.generate(
            ids[:1], attention_mask=torch.ones_like(ids[:1]), max_new_tokens=new_tokens, do_sample=False, pad_token_id=0
        )
    return out[0, ids.shape[1] :].tolist()
