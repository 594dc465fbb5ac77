"""W17: T5: relative position buckets, encoder and decoder."""

import math

import torch
from transformers import T5Config, T5ForConditionalGeneration
from twins import assert_same_step


def build():
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=97,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(config)


def run(model, data):
    out = model(**data)
    return [out.logits], out.loss


def test_logits_and_gradients():
    generator = torch.Generator().manual_seed(1)
    data = {
        "input_ids": torch.randint(2, 97, (2, 16), generator=generator),
        "labels": torch.randint(2, 97, (2, 8), generator=generator),
    }
    _, device, loss = assert_same_step(build(), run, data)
    assert abs(loss - math.log(97)) < 1.0
    bias = device.encoder.block[0].layer[0].SelfAttention
    buckets = bias._relative_position_bucket(torch.arange(-20, 20, device="neuron"), num_buckets=32, max_distance=128)
    expected = bias._relative_position_bucket(torch.arange(-20, 20), num_buckets=32, max_distance=128)
    assert buckets.tolist() == expected.tolist()
