"""Recurrent layers against the CPU: values and gradients, without the host."""

import copy

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import trnsim

TOLERANCE = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2}}


def run(layer, x, lengths=None):
    """Everything the layer gives and every gradient, on the CPU."""
    x = x.clone().requires_grad_()
    if lengths is None:
        output, state = layer(x)
    else:
        packed = pack_padded_sequence(x, lengths, batch_first=layer.batch_first, enforce_sorted=False)
        output, state = layer(packed)
        output, _ = pad_packed_sequence(output, batch_first=layer.batch_first)
    states = state if isinstance(state, tuple) else (state,)
    loss = (output * torch.linspace(-1, 1, output.numel(), device=x.device).reshape(output.shape).to(x.dtype)).sum()
    loss = loss + sum((s * s).sum() for s in states)
    loss.backward()
    return [t.detach().cpu() for t in (output, *states, x.grad, *(p.grad for p in layer.parameters()))]


def compare(layer, x, lengths=None):
    dtype = x.dtype
    # The CPU computes bfloat16 step by step with roundings of its own: float32 of the rounded values is the reference.
    reference = copy.deepcopy(layer).to(dtype).float()
    expected = run(reference, x.float(), lengths)
    trnsim.reset_report()
    got = run(copy.deepcopy(layer).to(dtype).to("neuron"), x.to("neuron"), lengths)
    assert [row for row in trnsim.fallbacks() if "thnn" in row["op"] or "lstm" in row["op"] or "gru" in row["op"]] == []
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == dtype
        scale = max(1.0, b.abs().max().item()) if dtype == torch.bfloat16 else 1.0
        torch.testing.assert_close(a.float() / scale, b / scale, **TOLERANCE[dtype])


FORMS = {
    "plain": {},
    "two layers, bidirectional": {"num_layers": 2, "bidirectional": True},
    "batch first": {"batch_first": True},
    "without bias": {"bias": False},
    "projected": {"proj_size": 3},
    "projected, two layers, bidirectional": {"proj_size": 3, "num_layers": 2, "bidirectional": True},
}
LAYERS = [
    (cls, form)
    for cls in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)
    for form in FORMS
    if cls is torch.nn.LSTM or "proj" not in form
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("cls, form", LAYERS, ids=lambda v: v if isinstance(v, str) else v.__name__)
def test_recurrent_layers(cls, form, dtype):
    torch.manual_seed(0)
    compare(cls(4, 6, **FORMS[form]), torch.randn(5, 3, 4).to(dtype))


@pytest.mark.filterwarnings("ignore:neuron")
@pytest.mark.parametrize("cls", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN], ids=lambda c: c.__name__)
def test_packed_sequences(cls):
    torch.manual_seed(0)
    compare(cls(4, 6, num_layers=2, bidirectional=True, batch_first=True), torch.randn(3, 5, 4), [2, 5, 3])


@pytest.mark.parametrize("cls", [torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell], ids=lambda c: c.__name__)
def test_cells(cls):
    torch.manual_seed(0)
    cell, x = cls(4, 6), torch.randn(3, 4)
    results = []
    for device in ("cpu", "neuron"):
        c, state = copy.deepcopy(cell).to(device), None
        for _ in range(2):
            state = c(x.to(device), state)
        states = state if isinstance(state, tuple) else (state,)
        sum((s * s).sum() for s in states).backward()
        results.append([t.detach().cpu() for t in (*states, *(p.grad for p in c.parameters()))])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)


def test_gradients_of_gradients_of_a_cell():
    torch.manual_seed(0)
    cell, x = torch.nn.LSTMCell(2, 3), torch.randn(2, 2)
    results = []
    for device in ("cpu", "neuron"):
        c, y = copy.deepcopy(cell).to(device), x.to(device).requires_grad_()
        first = torch.autograd.grad(c(y)[0].sum(), y, create_graph=True)[0]
        results.append(torch.autograd.grad((first * first).sum(), y)[0].cpu())
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-6)


def test_wrong_input_is_refused_in_the_words_of_pytorch():
    with pytest.raises(RuntimeError, match="input.size\\(-1\\) must be equal to input_size"):
        torch.nn.LSTM(4, 6).to("neuron")(torch.ones(5, 3, 7, device="neuron"))
