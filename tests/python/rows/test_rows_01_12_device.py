"""Checklist rows 1 to 12: loading, names, counts, torch.accelerator, random states."""

import subprocess
import sys

import pytest
import torch
from torch import nn


def test_row_01_import_torch_alone_gives_the_device(run_python):
    out = run_python("import torch; print(torch.ones(2, device='neuron').device)").stdout
    assert out.strip() == "neuron:0"


def test_row_02_autoload_off_needs_an_explicit_import(run_python):
    out = run_python(
        """
import torch
try:
    torch.ones(2, device="neuron")
    print("created")
except RuntimeError:
    print("refused")
import torch_neuronx
print(torch.ones(2, device="neuron").cpu().tolist())
""",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    ).stdout
    assert out.split("\n")[:2] == ["refused", "[1.0, 1.0]"]


def test_row_03_double_import_is_harmless(run_python):
    out = run_python(
        """
import importlib, sys
import torch_neuronx, torch
first = torch_neuronx
import torch_neuronx
torch_neuronx._autoload()
assert first is torch_neuronx
if __name__ == "__main__":
    print((torch.ones(2, device="neuron") + 1).cpu().tolist())
"""
    ).stdout
    assert out.strip() == "[2.0, 2.0]"


def test_row_03_spawned_child_uses_the_device(tmp_path, run_python):
    script = tmp_path / "parent.py"
    script.write_text(
        """
import torch, torch_neuronx
import torch.multiprocessing as mp
def child(rank):
    import torch_neuronx
    assert (torch.ones(2, device="neuron") + rank).cpu().tolist() == [1.0 + rank] * 2
if __name__ == "__main__":
    mp.spawn(child, nprocs=1)
    print("done")
"""
    )
    assert run_python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')", check=False)

    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert "done" in result.stdout, result.stderr


def test_row_04_device_strings():
    assert torch.device("neuron:1").index == 1
    assert torch.ones(1, device="neuron").device == torch.device("neuron:0")
    with pytest.raises(RuntimeError, match="invalid device index"):
        torch.ones(1, device=f"neuron:{torch.neuron.device_count()}")


@pytest.mark.parametrize("index", [-5, 99, "neuron:99", torch.device("neuron", 99)])
def test_row_04_every_function_refuses_an_index_of_no_device(index):
    for name in (
        *("get_device_name", "get_device_properties", "get_device_capability", "get_rng_state", "current_stream"),
        *(
            "memory_allocated",
            "memory_stats",
            "mem_get_info",
            "memory_summary",
            "reset_peak_memory_stats",
            "synchronize",
        ),
    ):
        with pytest.raises(RuntimeError, match=r"user error: invalid device index|index must not be negative"):
            getattr(torch.neuron, name)(index)


def test_row_05_torch_has_neuron():
    import torch

    assert hasattr(torch, "neuron")
    assert torch.neuron.is_available()


@pytest.mark.parametrize(
    ("env", "count"),
    [
        ({"NEURON_LOGICAL_NC_CONFIG": "1"}, 8),
        ({"NEURON_LOGICAL_NC_CONFIG": "2"}, 4),
        ({"NEURON_RT_VISIBLE_CORES": "0-1"}, 2),
    ],
)
def test_row_06_count_follows_grouping_and_visible_cores(run_python, env, count):
    out = run_python("import torch; print(torch.neuron.device_count(), torch.accelerator.device_count())", **env).stdout
    assert out.split() == [str(count)] * 2


def test_row_08_an_integer_device_means_the_accelerator():
    assert torch.ones(1).to(torch.neuron.current_device()).device.type == "neuron"


def test_row_09_generated_methods():
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


def test_row_12_manual_seed_reaches_the_device():
    torch.manual_seed(3)
    first = torch.rand(1000, device="neuron").cpu()
    torch.manual_seed(3)
    assert torch.equal(first, torch.rand(1000, device="neuron").cpu())
    assert not torch.equal(first, torch.rand(1000, device="neuron").cpu())


@pytest.mark.parametrize(
    "env", [{"NEURON_RT_VISIBLE_CORES": "4-7"}, {"NEURON_RT_NUM_CORES": "99"}, {"TRNSIM_CONFIG": "x"}]
)
def test_row_07_without_a_core_the_count_raises_and_nothing_is_available(run_python, env):
    out = run_python(
        """
import torch
print(torch.neuron.is_available(), torch.accelerator.is_available())
try:
    print(torch.neuron.device_count())
except RuntimeError as e:
    print("raised", e)
""",
        **env,
    ).stdout.split("\n")
    name, value = next(iter(env.items()))
    assert out[0] == "False False" and out[1].startswith("raised") and value in out[1]
    assert name in out[1] or name == "TRNSIM_CONFIG"


def test_row_11_states_of_all_devices():
    def draw():
        return [torch.randn(8, device=f"neuron:{i}").cpu() for i in range(torch.neuron.device_count())]

    states = torch.neuron.get_rng_state_all()
    first = draw()
    torch.neuron.set_rng_state_all(states)
    assert all(map(torch.equal, first, draw()))
    torch.neuron.manual_seed_all(5)
    seeded = draw()
    assert all(torch.equal(seeded[0], other) for other in seeded[1:])
    torch.neuron.manual_seed(6)  # the current device alone
    torch.neuron.set_rng_state(torch.neuron.get_rng_state("neuron:1"), "neuron:0")
    assert torch.neuron.initial_seed() == 5
    torch.neuron.seed_all()
    assert torch.neuron.initial_seed() != 5


DOCUMENTED = {
    "device": "is_available is_initialized init device_count current_device set_device device get_device_name "
    "get_device_properties is_bf16_supported get_amp_supported_dtype _is_in_bad_fork",
    "random": "manual_seed manual_seed_all seed seed_all initial_seed get_rng_state set_rng_state get_rng_state_all "
    "set_rng_state_all",
    "streams": "Stream stream current_stream default_stream set_stream synchronize wait_stream wait_event record_event "
    "query",
    "memory": "memory_stats memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_summary "
    "reset_peak_memory_stats reset_accumulated_memory_stats empty_cache memory",
}


def test_rows_05_and_10_every_documented_function_is_there():
    import torch_neuronx

    names = " ".join(DOCUMENTED.values()).split()
    assert [name for name in names if not hasattr(torch.neuron, name)] == []
    again = ["synchronize", "Stream", "stream", "current_device", "device_count", "memory_allocated", "memory_stats"]
    assert [name for name in again if getattr(torch_neuronx, name) is not getattr(torch.neuron, name)] == []
    assert torch.neuron.get_amp_supported_dtype() == [torch.float32, torch.float16, torch.bfloat16]
    assert torch.neuron.is_bf16_supported()


def test_what_is_not_simulated_says_so_when_it_is_called():
    import torch_neuronx
    from torch_neuronx import profiling

    for use in (
        lambda: torch_neuronx.nki_op("ns::f", mutates_args={}),
        lambda: torch_neuronx.wrap_nki(print),
        lambda: profiling.NeuronConfig(modes=[profiling.ProfileMode.DEVICE]),
        lambda: profiling.NeuronProfiler(None),
    ):
        with pytest.raises(NotImplementedError, match="not simulated: torch_neuronx"):
            use()
    with pytest.raises(AttributeError):
        torch_neuronx.trace  # noqa: B018  of the package that came before
