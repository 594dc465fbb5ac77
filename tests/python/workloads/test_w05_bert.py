"""W05: BERT with padding: no NaN in bfloat16, padded rows equal the shorter run."""

import pytest
import torch
from twins import assert_close, assert_same_step, on_device
from workloads_of_tools import transformer


def padded():
    ids = transformer.llama_ids()
    mask = torch.ones_like(ids)
    mask[1, 10:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def run(model, inputs):
    out = model(**inputs, labels=inputs["input_ids"])
    return [out.logits], out.loss


def test_logits_and_gradients():
    assert_same_step(transformer.bert(), run, padded())


@pytest.mark.parametrize("dtype, same, cpu", [(torch.float32, 1e-5, 1e-4), (torch.bfloat16, 2e-2, 0.1)])
def test_padded_rows_equal_the_shorter_run(dtype, same, cpu):
    host = transformer.bert().eval()
    device = on_device(host, dtype)
    inputs = padded()
    with torch.no_grad():
        logits = device(**{k: v.to("neuron") for k, v in inputs.items()}).logits
        short = device(inputs["input_ids"][1:, :10].to("neuron")).logits
        expected = host(**inputs).logits
    assert not logits.isnan().any().item()
    assert_close(logits[1, :10], short[0].cpu(), same, "the padded row")
    assert_close(logits.float(), expected, cpu, "logits")


def test_training_under_autocast():
    inputs = padded()
    device = on_device(transformer.bert())
    optimizer = torch.optim.AdamW(device.parameters(), lr=3e-3)
    moved = {k: v.to("neuron") for k, v in inputs.items()}
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        with torch.autocast("neuron", dtype=torch.bfloat16):
            loss = device(**moved, labels=moved["input_ids"]).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(p.dtype == torch.float32 for p in device.parameters())
    assert losses[-1] < losses[0] - 0.3, losses
