"""Checklist rows 4, 6 to 10: names, counts, generated methods, torch.accelerator."""

import pytest
import torch
from torch import nn


def test_row_4_device_strings():
    assert torch.device("neuron:1").index == 1
    assert torch.ones(1, device="neuron").device == torch.device("neuron:0")
    with pytest.raises(RuntimeError, match="invalid device index"):
        torch.ones(1, device=f"neuron:{torch.neuron.device_count()}")


@pytest.mark.parametrize(
    ("env", "count"),
    [
        ({"NEURON_LOGICAL_NC_CONFIG": "1"}, 8),
        ({"NEURON_LOGICAL_NC_CONFIG": "2"}, 4),
        ({"NEURON_RT_VISIBLE_CORES": "0-1"}, 2),
    ],
)
def test_row_6_count_follows_grouping_and_visible_cores(run_python, env, count):
    out = run_python("import torch; print(torch.neuron.device_count(), torch.accelerator.device_count())", **env).stdout
    assert out.split() == [str(count)] * 2


def test_row_8_an_integer_device_means_the_accelerator():
    assert torch.ones(1).to(torch.neuron.current_device()).device.type == "neuron"


def test_row_9_generated_methods():
    tensor = torch.ones(2).neuron()
    assert tensor.is_neuron and not torch.ones(1).is_neuron
    assert nn.Parameter(torch.ones(2)).neuron().is_neuron
    assert nn.Linear(2, 2).neuron().weight.is_neuron
    assert tensor.untyped_storage().is_neuron


def test_row_10_accelerator_api():
    accelerator = torch.accelerator
    assert accelerator.current_accelerator().type == "neuron"
    assert accelerator.is_available()
    before = accelerator.current_device_index()
    accelerator.set_device_index(1)
    try:
        assert accelerator.current_device_index() == torch.neuron.current_device() == 1
        assert torch.ones(1, device="neuron").device.index == 1
    finally:
        accelerator.set_device_index(before)
    accelerator.synchronize()
    tensor = torch.ones(1000, device="neuron")
    assert accelerator.memory_allocated() >= 4000
    assert accelerator.memory_stats()["allocated_bytes.all.current"] == accelerator.memory_allocated()
    free, total = accelerator.get_memory_info()
    assert 0 < free <= total
    del tensor
    accelerator.empty_cache()
    accelerator.empty_host_cache()


def test_device_context_managers():
    with torch.neuron.device(1):
        assert torch.neuron.current_device() == 1
        assert torch.zeros(1, device="neuron").device.index == 1
    assert torch.neuron.current_device() == 0


def test_properties_say_that_the_device_is_simulated():
    properties = torch.neuron.get_device_properties()
    assert properties.total_memory == torch.neuron.mem_get_info()[1]
    assert "simulated" in torch.neuron.get_device_name()


def test_row_25_shared_weights_and_early_optimizers_survive_module_to():
    model = nn.Module()
    model.a, model.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    model.b.weight = model.a.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.to("neuron")
    assert model.a.weight is model.b.weight
    model.a.weight.grad = torch.ones_like(model.a.weight)
    before = model.b.weight.detach().cpu().clone()
    optimizer.step()
    torch.testing.assert_close(model.b.weight.detach().cpu(), before - 1)


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
