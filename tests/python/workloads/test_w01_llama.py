"""W01: a Llama, forward, backward, AdamW steps, greedy tokens with the dynamic and the static cache."""

import pytest
import torch
from twins import assert_same_step, on_device, to_device
from workloads_of_tools import transformer


def run(model, ids):
    out = model(ids, labels=ids)
    return [out.logits], out.loss


def test_logits_and_gradients():
    _, _, loss = assert_same_step(transformer.llama(), run, transformer.llama_ids())
    assert 4.55 < loss < 4.70  # ln 97 = 4.575


def test_number_of_parameters():
    assert sum(p.numel() for p in transformer.llama().to("neuron").parameters()) == 86464
    torch.ones(1, device="neuron").add_(1)


def test_five_adamw_steps_follow_the_cpu():
    ids = transformer.llama_ids()
    curves = []
    for model in (transformer.llama(), on_device(transformer.llama())):
        data = ids.to(next(model.parameters()).device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(data, labels=data).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        curves.append(losses)
    assert curves[1] == pytest.approx(curves[0], abs=1e-4)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_eight_greedy_tokens(cache):
    host = transformer.llama().eval()
    ids = transformer.llama_ids()[:1]
    tokens = []
    for model, data in ((host, ids), (on_device(host), to_device(ids))):
        with torch.no_grad():
            out = model.generate(
                data,
                attention_mask=torch.ones_like(data),
                max_new_tokens=8,
                do_sample=False,
                pad_token_id=0,
                cache_implementation=None if cache == "dynamic" else "static",
                disable_compile=True,
            )
        tokens.append(out[0, ids.shape[1] :].tolist())
    assert tokens[0] == tokens[1] and len(tokens[1]) == 8
