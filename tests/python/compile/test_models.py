"""Small models of every family: forward and backward compiled equal eager execution and the CPU."""

import copy
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
from workloads import digits, transformer  # noqa: E402


class WithLoss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, labels):
        out = self.model(x)
        return torch.nn.functional.cross_entropy(getattr(out, "logits", out).flatten(0, -2), labels.flatten())


class Recurrent(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer, self.head = kind(8, 16, batch_first=True), torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


def case(name):
    torch.manual_seed(0)
    if name == "llama":
        ids = transformer.llama_ids()
        return WithLoss(transformer.llama()), ids, ids
    if name == "bert":
        ids = transformer.llama_ids()
        return WithLoss(transformer.bert()), ids, ids
    if name == "vit":
        return WithLoss(transformer.vit()), torch.randn(4, 3, 32, 32), torch.arange(4)
    if name == "cnn":
        return WithLoss(digits.cnn()), torch.rand(16, 64), torch.arange(16) % 10
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[name]
    return WithLoss(Recurrent(kind)), torch.randn(4, 7, 8), torch.arange(4) % 3


def curve(model, x, labels, steps=5):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", ["llama", "bert", "vit", "cnn", "lstm", "gru"])
def test_model(name):
    host, x, labels = case(name)
    eager, compiled = copy.deepcopy(host).to("neuron"), copy.deepcopy(host).to("neuron")
    on_device = x.to("neuron"), labels.to("neuron")
    with torch._dynamo.config.patch(allow_rnn=True):
        losses = {
            "cpu": curve(host, x, labels),
            "eager": curve(eager, *on_device),
            "compiled": curve(torch.compile(compiled, backend="neuron", fullgraph=True), *on_device),
        }
    assert losses["compiled"] == pytest.approx(losses["cpu"], rel=1e-4)
    assert losses["compiled"] == pytest.approx(losses["eager"], rel=1e-4)
    metrics = torch.neuron.get_dynamo_metrics()
    assert metrics["graphs"] == metrics["programs"] == 2, metrics
    assert metrics["host_steps"] == 0, metrics


def test_a_bfloat16_model():
    host, x, labels = case("llama")
    model = host.to("neuron", torch.bfloat16)
    x, labels = x.to("neuron"), labels.to("neuron")
    expected = model(x, labels)
    actual = torch.compile(model, backend="neuron", fullgraph=True)(x, labels)
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)


def test_static_cache_decoding():
    from transformers import StaticCache

    model = transformer.llama().to("neuron").eval()
    ids = transformer.llama_ids(1, 6).to("neuron")

    def decode(step):
        cache = StaticCache(config=model.config, max_cache_len=16)
        position = torch.arange(6, device="neuron")
        token, tokens = ids, []
        with torch.no_grad():
            for _ in range(5):
                logits = step(input_ids=token, past_key_values=cache, cache_position=position).logits
                token = logits[:, -1:].argmax(-1)
                tokens.append(token.item())
                position = position[-1:] + 1
        return tokens

    expected = decode(model)
    assert decode(torch.compile(model, backend="neuron", fullgraph=True)) == expected
    # One graph for the prompt, one for every step; the cache is changed in place inside them.
    assert torch.neuron.get_dynamo_metrics()["graphs"] == 2
    assert torch.neuron.get_dynamo_metrics()["host_steps"] == 0
