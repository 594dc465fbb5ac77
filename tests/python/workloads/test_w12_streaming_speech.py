"""W12: streaming speech recognition: convolutions, conformer blocks, a CTC head and an attention decoder.

The wave is made here: harmonics under two moving formants, one pair per sound, the way a talking machine does it.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F
from twins import assert_close, assert_same_step, on_device, to_device, train

ENTRIES = ("encode", "frames")
RATE = 16000
MELS = 80
CHUNK = 16  # frames after the convolutions that a streaming step sees together
SYMBOLS = "_adehilmnorstuw "
FORMANTS = {"a": (730, 1090), "e": (530, 1840), "i": (270, 2290), "o": (570, 840), "u": (300, 870)}
SENTENCE = "hello neuron and trainium"


def speech():
    """[samples]: vowels voiced at 120 Hz through their formants, consonants as short noise."""
    generator = torch.Generator().manual_seed(0)
    t = torch.arange(RATE // 12) / RATE  # a twelfth of a second per letter
    sounds = []
    for letter in SENTENCE:
        if letter in FORMANTS:
            gain = lambda f, centers=FORMANTS[letter]: sum(math.exp(-(((f - c) / 120) ** 2)) for c in centers) + 0.02
            sounds.append(sum(gain(120 * k) * torch.sin(2 * math.pi * 120 * k * t) for k in range(1, 30)))
        else:
            sounds.append((0.0 if letter == " " else 0.1) * torch.randn(t.shape, generator=generator))
    return torch.cat(sounds)


def mel_spectrogram(wave):
    """[1, MELS, frames] of log energies; computed on the CPU, as a pipeline would."""
    power = torch.stft(wave, 400, hop_length=160, window=torch.hann_window(400), return_complex=True).abs().square()
    mel = lambda hz: 2595 * math.log10(1 + hz / 700)
    edges = 700 * (10 ** (torch.linspace(mel(0), mel(RATE / 2), MELS + 2) / 2595) - 1)
    bins = torch.linspace(0, RATE / 2, power.shape[0])
    up = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    filters = torch.minimum(up, down).clamp(min=0)
    return (filters @ power + 1e-6).log().unsqueeze(0)


class ConformerBlock(nn.Module):
    """Half a feed-forward, attention, causal depthwise convolution, half a feed-forward."""

    def __init__(self, width, heads=4, kernel=15):
        super().__init__()
        feed = lambda: nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)
        )
        self.feed1, self.feed2 = feed(), feed()
        self.norm_a, self.norm_c, self.norm = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads, self.kernel = heads, kernel
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.pointwise1 = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, groups=width)
        self.pointwise2 = nn.Conv1d(width, width, 1)

    def forward(self, x, mask):
        x = x + 0.5 * self.feed1(x)
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm_a(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).reshape(b, t, d))
        c = F.glu(self.pointwise1(self.norm_c(x).transpose(1, 2)), dim=1)
        c = F.silu(self.depthwise(F.pad(c, (self.kernel - 1, 0))))
        x = x + self.pointwise2(c).transpose(1, 2)
        return self.norm(x + 0.5 * self.feed2(x))


class Recognizer(nn.Module):
    def __init__(self, width=64, blocks=4):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, stride=2)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2)
        self.enter = nn.Linear(8 * 19, width)
        self.blocks = nn.ModuleList(ConformerBlock(width) for _ in range(blocks))
        self.ctc = nn.Linear(width, len(SYMBOLS))
        self.embedding = nn.Embedding(len(SYMBOLS), width)
        layer = nn.TransformerDecoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2)
        self.spell = nn.Linear(width, len(SYMBOLS))

    def frames(self, mel):
        x = F.relu(self.conv2(F.relu(self.conv1(mel.unsqueeze(1)))))
        return self.enter(x.permute(0, 3, 1, 2).flatten(2))

    def encode(self, x):
        # A frame sees its own chunk and the ones before: what a streaming run can know.
        chunk = torch.arange(x.shape[1], device=x.device) // CHUNK
        mask = chunk[:, None] >= chunk[None, :]
        for block in self.blocks:
            x = block(x, mask)
        return x

    def forward(self, mel, symbols):
        hidden = self.encode(self.frames(mel))
        t = symbols.shape[1]
        mask = torch.ones(t, t, dtype=torch.bool, device=symbols.device).triu(1)
        spelled = self.spell(self.decoder(self.embedding(symbols), hidden, tgt_mask=mask))
        return self.ctc(hidden), spelled


def data():
    symbols = torch.tensor([[SYMBOLS.index(c) for c in SENTENCE]])
    return {"mel": mel_spectrogram(speech()), "symbols": symbols}


def loss_of(model, batch):
    frames, spelled = model(batch["mel"], batch["symbols"][:, :-1])
    lengths = torch.tensor([frames.shape[1]]), torch.tensor([batch["symbols"].shape[1]])
    ctc = F.ctc_loss(frames.log_softmax(-1).transpose(0, 1), batch["symbols"], *lengths)
    return frames, spelled, ctc + F.cross_entropy(spelled.flatten(0, 1), batch["symbols"][:, 1:].flatten())


def build():
    torch.manual_seed(0)
    return Recognizer()


def run(model, batch):
    *results, loss = loss_of(model, batch)
    return results, loss


def test_results_and_gradients():
    assert_same_step(build(), run, data(), 2e-4)


def test_chunks_as_they_come_equal_the_whole():
    model = on_device(build()).eval()
    with torch.no_grad():
        x = model.frames(to_device(data())["mel"])
        whole = model.encode(x)
        for end in range(CHUNK, x.shape[1] + 1, CHUNK):
            assert_close(model.encode(x[:, :end])[:, -CHUNK:], whole[:, end - CHUNK : end].cpu(), 1e-4, f"chunk {end}")


def test_learns_one_sentence():
    batch = to_device(data())
    losses = train(on_device(build()), lambda m: loss_of(m, batch)[-1], 30, lambda p: torch.optim.Adam(p, lr=3e-3))
    assert losses[-1] < 0.35 * losses[0], losses
