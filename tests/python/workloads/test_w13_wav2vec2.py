"""W13: wav2vec2 with CTC: weight-normalised grouped positional convolution, forward and backward."""

import torch
from transformers import Wav2Vec2Config, Wav2Vec2Model
from twins import assert_same_step


def build():
    torch.manual_seed(0)
    config = Wav2Vec2Config(
        vocab_size=32,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        conv_dim=(16, 16, 16),
        conv_stride=(5, 2, 2),
        conv_kernel=(10, 3, 3),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        feat_proj_dropout=0.0,
        activation_dropout=0.0,
        layerdrop=0.0,
        mask_time_prob=0.0,
    )
    return Wav2Vec2Model(config)


def run(model, wave):
    hidden = model(wave).last_hidden_state
    return [hidden], hidden.square().mean()


def test_hidden_states_and_gradients():
    model = build().train()
    wave = torch.randn(1, 4000, generator=torch.Generator().manual_seed(1))
    _, device, _ = assert_same_step(model, run, wave)
    names = [name for name, _ in device.named_parameters() if "pos_conv" in name and "original" in name]
    assert len(names) == 2  # g and v of the weight norm
