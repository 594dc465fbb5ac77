"""The device as modules and time mode see it."""

import pytest
import torch
from torch import nn


def test_device_context_managers():
    with torch.neuron.device(1):
        assert torch.neuron.current_device() == 1
        assert torch.zeros(1, device="neuron").device.index == 1
    assert torch.neuron.current_device() == 0


def test_properties_say_that_the_device_is_simulated():
    properties = torch.neuron.get_device_properties()
    assert properties.total_memory == torch.neuron.mem_get_info()[1]
    assert "simulated" in torch.neuron.get_device_name()


def test_cpu_models_convert_as_without_the_device():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    output = model(torch.ones(1, 3))  # a live graph holds the parameters
    weight = model[0].weight
    model.double()
    assert model[0].weight is weight and weight.dtype == torch.float64
    assert not torch.__future__.get_swap_module_params_on_conversion()
    del output
    model.float().to("neuron")
    assert model[0].weight is weight and weight.device.type == "neuron"
    output = model(torch.ones(1, 3, device="neuron"))
    model.bfloat16()
    assert model[0].weight is weight and weight.dtype == torch.bfloat16 and output.dtype == torch.float32


def test_reading_values_in_time_mode_warns_once(run_python):
    for read in ("x.sum().item()", "bool(x.sum())", "x.tolist()", "print(x)", "x.t().cpu()", "x[:, ::2].cpu()"):
        result = run_python(
            "import warnings, torch\n"
            "x = torch.ones(4, 4, device='neuron')\n"
            "with warnings.catch_warnings(record=True) as caught:\n"
            "    warnings.simplefilter('always')\n"
            f"    {read}\n    {read}\n"
            "print([str(w.message) for w in caught])",
            TRNSIM_MODE="time",
        )
        assert result.stdout.count("values are not computed in time mode") == 1, (read, result.stdout)


def test_a_sparse_layout_is_refused_by_name():
    with pytest.raises(NotImplementedError, match="not simulated.*Sparse"):
        torch.ones(2, 2, device="neuron").to_sparse()
    weight = torch.ones(3, 2, device="neuron", requires_grad=True)
    looked_up = torch.nn.functional.embedding(torch.tensor([1], device="neuron"), weight, sparse=True)
    with pytest.raises(NotImplementedError, match="not simulated: .*sparse tensors on the neuron device"):
        looked_up.sum().backward()
    with pytest.raises(NotImplementedError, match="not simulated: .*nested tensors on the neuron device"):
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="neuron").sum()
