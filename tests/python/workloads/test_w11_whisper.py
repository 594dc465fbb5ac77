"""W11: the Whisper encoder-decoder writes the CPU's tokens."""

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration
from twins import assert_same_step, on_device


def build():
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=97,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_mel_bins=20,
        max_source_positions=50,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        begin_suppress_tokens=None,
        suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    model.generation_config.begin_suppress_tokens = None
    model.generation_config.suppress_tokens = None
    model.generation_config.forced_decoder_ids = None
    return model


def mel():
    return torch.randn(1, 20, 100, generator=torch.Generator().manual_seed(1))


def run(model, inputs):
    out = model(input_features=inputs["mel"], labels=inputs["labels"])
    return [out.logits, out.encoder_last_hidden_state], out.loss


def test_logits_and_gradients():
    labels = torch.randint(3, 97, (1, 9), generator=torch.Generator().manual_seed(2))
    _, device, _ = assert_same_step(build(), run, {"mel": mel(), "labels": labels})
    with torch.no_grad():
        frames = device.model.encoder(mel().to("neuron")).last_hidden_state
    assert frames.shape == (1, 50, 64)  # the second convolution strides by 2


def test_eight_tokens_equal_the_cpus():
    host = build().eval()
    tokens = [
        model.generate(input_features=data, max_new_tokens=8, min_new_tokens=8, do_sample=False).tolist()
        for model, data in ((host, mel()), (on_device(host), mel().to("neuron")))
    ]
    assert tokens[0] == tokens[1]
