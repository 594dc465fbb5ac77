"""W19: LSTM and GRU, packed sequences, a character model (values of every form: test_rnn.py)."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from twins import assert_same_step, train


def test_packed_bidirectional_lstm():
    torch.manual_seed(0)
    layer = nn.LSTM(32, 64, 2, bidirectional=True, batch_first=True)

    def run(model, x):
        packed = pack_padded_sequence(x, [20, 13], batch_first=True)
        out, (h, c) = model(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        return [out, h, c], out.square().mean() + h.sum()

    assert_same_step(layer, run, torch.randn(2, 20, 32, generator=torch.Generator().manual_seed(1)), 1e-5)


def test_gru():
    torch.manual_seed(0)
    layer = nn.GRU(40, 64, 3, batch_first=True)

    def run(model, x):
        out, h = model(x)
        return [out, h], out.square().mean() + h.sum()

    assert_same_step(layer, run, torch.randn(2, 20, 40, generator=torch.Generator().manual_seed(1)), 1e-5)


class CharacterModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(128, 32)
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 128)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0])


def test_a_character_model_learns():
    torch.manual_seed(0)
    text = torch.tensor(list(torch.nn.LSTM.__doc__.encode("ascii", "ignore")[:400])).reshape(10, 40).to("neuron")
    model = CharacterModel().to("neuron")
    loss_of = lambda m: nn.functional.cross_entropy(m(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    losses = train(model, loss_of, 50, lambda p: torch.optim.Adam(p, lr=1e-2))
    assert losses[-1] < 0.7 * losses[0], losses
