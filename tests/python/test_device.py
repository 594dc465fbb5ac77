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


def test_models_keep_their_parameters_when_they_convert_or_move():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    seen = []
    weight.register_hook(lambda grad: seen.append(grad.device.type))
    for place in ({"dtype": torch.float64}, {"dtype": torch.float32}, {"device": "neuron"}, {"device": "cpu"}) * 2:
        output = model(torch.ones(1, 3, device=weight.device, dtype=weight.dtype))  # its graph holds the parameters
        output.sum().backward(retain_graph=True)
        model.to(**place)
        assert model[0].weight is weight and weight.is_leaf and weight.grad.device == weight.device
        assert {"device": weight.device.type, "dtype": weight.dtype}.items() >= place.items()
        before = weight.detach().clone()
        optimizer.step()
        assert (weight != before).any()
    assert seen == ["cpu", "cpu", "cpu", "neuron"] * 2
    assert not torch.__future__.get_swap_module_params_on_conversion()


def test_data_of_another_device_takes_the_place_of_a_tensors_own():
    x = torch.ones(3, requires_grad=True)
    x.data = torch.full((2, 2), 3.0, device="neuron")
    assert x.device.type == "neuron" and x.requires_grad and x.detach().cpu().eq(3).all()
    (x * x).sum().backward()
    assert x.grad.cpu().eq(6).all()
    x.data = torch.zeros(2)
    assert x.device.type == "cpu" and x.tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        torch.ones(2, device="neuron").data = torch.eye(2).to_sparse()


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
