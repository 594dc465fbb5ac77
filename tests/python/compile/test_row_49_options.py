"""Row 49: model_name names the programs and artefacts; what is unknown is ignored with a warning."""

import pytest
import torch

import torch_neuronx
import trnsim


def program_names():
    torch.neuron.synchronize()
    return {p["name"] for p in trnsim.report()["programs"]}


def test_model_name():
    compiled = torch.compile(lambda x: x.cos(), backend="neuron", options={"model_name": "cosine"})
    compiled(torch.ones(3, device="neuron"))
    assert "cosine.inference" in program_names()


def test_set_model_name():
    torch_neuronx.neuron_dynamo_backend.set_model_name("sine")
    try:
        torch.compile(lambda x: x.sin(), backend="neuron")(torch.ones(3, device="neuron"))
    finally:
        torch_neuronx.neuron_dynamo_backend.set_model_name(None)
    assert "sine.inference" in program_names()
    with pytest.raises(TypeError, match="a model name is a string or None, not int"):
        torch_neuronx.neuron_dynamo_backend.set_model_name(3)


def test_unknown_options_are_ignored():
    compiled = torch.compile(lambda x: x + 1, backend="neuron", options={"no_such_option": 1})
    with pytest.warns(UserWarning, match="option no_such_option is not known to this backend and is ignored"):
        assert compiled(torch.ones(3, device="neuron")).sum().item() == 6
