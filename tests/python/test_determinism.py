"""Whole models, forward, backward and optimizer, in a process of their own where a fallback is an error."""

import json
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[3] / "tools"
STRICT = {"TRNSIM_FALLBACK": "error"}

PROLOGUE = f"""
import copy, json, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {str(TOOLS)!r})
import torch, trnsim
from workloads import digits, transformer

def done(**values):
    report = trnsim.report()
    assert report["fallbacks"] == [], report["fallbacks"]
    print("RESULT" + json.dumps({{**values, "simulated_ns": report["simulated_ns"]}}))

def largest(pairs):
    return max(float((a.detach().cpu().float() - b.detach().cpu().float()).abs().max()) for a, b in pairs)
"""


def run(run_python, body, **env):
    out = run_python(PROLOGUE + body, **STRICT, **env).stdout
    result = json.loads(out[out.index("RESULT") + len("RESULT") :])
    assert result["simulated_ns"] > 0
    return result


DIGITS = """
runs = {}
for device in ("cpu", "neuron"):
    torch.manual_seed(0)
    runs[device] = digits.train(digits.MODEL(), device, epochs=3, learning_rate=digits.LEARNING_RATE["MODEL"])
a, b = runs["cpu"], runs["neuron"]
done(
    loss=max(abs(p - q) / max(abs(p), 1e-3) for p, q in zip(a.losses, b.losses, strict=True)),
    norm=max(abs(p - q) / max(abs(p), 1e-3) for p, q in zip(a.norms, b.norms, strict=True)),
    accuracy=b.accuracy, cpu_accuracy=a.accuracy,
)
"""


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_digits_training_follows_the_cpu(run_python, model):
    r = run(run_python, DIGITS.replace("MODEL", model))
    assert r["accuracy"] > 0.90
    assert r["loss"] < 1e-4 and r["norm"] < 1e-4, r


def test_llama_logits_gradients_training_and_generation(run_python):
    r = run(
        run_python,
        """
host = transformer.llama()
ids = transformer.llama_ids()
device = copy.deepcopy(host).to("neuron")
ids_d = ids.to("neuron")
with torch.no_grad():
    logits = largest([(host(ids).logits, device(ids_d).logits)])
tokens = (transformer.generate(host, ids), transformer.generate(device, ids_d))
losses, first_gradients = [], None
optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (host, device)]
for step in range(5):
    row = []
    for model, inputs, optimizer in zip((host, device), (ids, ids_d), optimizers):
        optimizer.zero_grad()
        loss = model(inputs, labels=inputs).loss
        loss.backward()
        row.append(loss.item())
    if first_gradients is None:
        pairs = zip(host.parameters(), device.parameters(), strict=True)
        first_gradients = largest([(p.grad, q.grad) for p, q in pairs])
    for optimizer in optimizers:
        optimizer.step()
    losses.append(row)
done(logits=logits, gradients=first_gradients, losses=losses, tokens=tokens)
""",
    )
    assert r["logits"] < 1e-4 and r["gradients"] < 1e-4
    assert 4.55 < r["losses"][0][1] < 4.70
    for cpu, neuron in r["losses"]:
        assert neuron == pytest.approx(cpu, abs=1e-4)
    assert r["tokens"][0] == r["tokens"][1] and len(r["tokens"][1]) == 8


def test_bert_padding_rows_equal_the_shorter_run(run_python):
    r = run(
        run_python,
        """
model = transformer.bert().eval()
ids = transformer.llama_ids()
mask = torch.ones_like(ids)
mask[1, 10:] = 0
out = {}
for dtype in (torch.float32, torch.bfloat16):
    device = copy.deepcopy(model).to("neuron", dtype)
    with torch.no_grad():
        padded = device(ids.to("neuron"), attention_mask=mask.to("neuron")).logits
        short = device(ids[1:, :10].to("neuron")).logits
        cpu = model(ids, attention_mask=mask).logits
    assert not padded.isnan().any().item()
    out[str(dtype)] = [largest([(padded[1, :10], short[0])]), largest([(padded, cpu)])]
done(**out)
""",
    )
    assert r["torch.float32"][0] < 1e-4 and r["torch.float32"][1] < 1e-4
    assert r["torch.bfloat16"][0] < 2e-2 and r["torch.bfloat16"][1] < 0.1


def test_vit_overfits_eight_images(run_python):
    r = run(
        run_python,
        """
model = transformer.vit().to("neuron").train()
images = 3 * torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
images = images.to("neuron")
labels = torch.arange(8).to("neuron")
optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-2, weight_decay=0.0)
losses = []
for step in range(10):
    optimizer.zero_grad()
    loss = model(images, labels=labels).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with torch.no_grad():
    losses.append(model(images, labels=labels).loss.item())
done(losses=losses)
""",
    )
    assert r["losses"][-1] < 0.05, r["losses"]


def test_two_processes_give_the_same_simulated_time(run_python):
    body = """
model = transformer.llama().to("neuron")
ids = transformer.llama_ids().to("neuron")
model(ids, labels=ids).loss.backward()
torch.neuron.synchronize()
done()
"""
    times = {run(run_python, body)["simulated_ns"] for _ in range(2)}
    times.add(run(run_python, body, TRNSIM_MODE="time")["simulated_ns"])
    assert len(times) == 1


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
