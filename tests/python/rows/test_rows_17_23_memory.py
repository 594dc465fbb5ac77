"""Checklist rows 17 to 23: the caching allocator, its statistics, and the end of memory."""

import random

import pytest
import torch

neuron = torch.neuron


@pytest.fixture(autouse=True)
def _settled():
    neuron.synchronize()
    yield
    neuron.synchronize()


def grown(nbytes):
    before = neuron.memory_allocated()
    tensor = torch.empty(nbytes, dtype=torch.uint8, device="neuron")
    return neuron.memory_allocated() - before, tensor


def test_row_17_reserved_allocated_active_invariant():
    rng, held = random.Random(0), []
    for _ in range(300):
        if held and rng.random() < 0.45:
            held.pop(rng.randrange(len(held)))
        else:
            held.append(torch.empty(rng.choice([1, 100, 5000, 300_000, 3_000_000]), device="neuron"))
        stats = neuron.memory_stats()
        active, allocated, reserved = (
            stats[f"{k}.all.current"] for k in ("active_bytes", "allocated_bytes", "reserved_bytes")
        )
        assert reserved >= allocated >= active >= 0


def test_row_18_size_classes_and_pools():
    MiB = 1 << 20
    assert grown(1)[0] == 256
    assert grown(300)[0] == 512
    assert grown(MiB)[0] == MiB
    assert grown(16 * MiB + 1)[0] == 16 * MiB + 1
    small = neuron.memory_stats()["allocated_bytes.small_pool.current"]
    _, tensor = grown(MiB - 1024)
    assert neuron.memory_stats()["allocated_bytes.small_pool.current"] > small
    large = neuron.memory_stats()["allocated_bytes.large_pool.current"]
    _, other = grown(MiB)
    assert neuron.memory_stats()["allocated_bytes.large_pool.current"] == large + MiB
    del tensor, other


def test_row_19_freed_memory_stays_cached_until_empty_cache():
    tensor = torch.empty(64 << 20, dtype=torch.uint8, device="neuron")
    reserved = neuron.memory_reserved()
    del tensor
    assert neuron.memory_reserved() == reserved
    neuron.empty_cache()
    assert neuron.memory_reserved() < reserved


def test_row_20_peaks():
    neuron.reset_peak_memory_stats()
    tensor = torch.empty(8 << 20, dtype=torch.uint8, device="neuron")
    peak = neuron.max_memory_allocated()
    del tensor
    assert neuron.max_memory_allocated() == peak > neuron.memory_allocated()
    neuron.reset_peak_memory_stats()
    assert neuron.max_memory_allocated() == neuron.memory_allocated()


def test_row_21_nested_and_flattened_statistics_agree():
    nested, flat = neuron.memory.memory_stats_as_nested_dict(), neuron.memory_stats()
    assert nested["allocated_bytes"]["all"]["peak"] == flat["allocated_bytes.all.peak"]
    assert "allocated" in neuron.memory_summary()


def test_row_22_out_of_memory_names_sizes_and_is_recoverable():
    total = neuron.mem_get_info()[1]
    held = torch.empty(total // 2, dtype=torch.uint8, device="neuron")
    with pytest.raises(torch.OutOfMemoryError, match="out of memory") as error:
        torch.empty(total // 2 + (1 << 30), dtype=torch.uint8, device="neuron")
    assert "GiB" in str(error.value)
    del held
    neuron.empty_cache()
    again = torch.empty(total // 2 + (1 << 30), dtype=torch.uint8, device="neuron")
    del again
    neuron.empty_cache()
    assert (torch.ones(2, device="neuron") + 1).sum().item() == 4


def test_row_23_properties_give_the_hbm_of_a_logical_core():
    assert neuron.get_device_properties().total_memory == neuron.mem_get_info()[1] >= 23 << 30


def test_row_18_settings_of_the_allocator_are_not_accepted_in_silence(run_python):
    out = run_python(
        """
import warnings, torch
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.ones(2, device="neuron"), torch.ones(2, device="neuron")
print([str(w.message) for w in caught])
""",
        TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG="split=8",
    ).stdout
    assert out.count("TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG=split=8 has no effect: not simulated") == 1


def test_row_20_accumulated_counters():
    neuron.reset_accumulated_memory_stats()
    tensors = [torch.empty(1000, device="neuron") for _ in range(5)]
    del tensors
    stats = neuron.memory_stats()
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 5
    neuron.reset_accumulated_memory_stats()
    assert neuron.memory_stats()["allocation.all.allocated"] == 0


@pytest.mark.parametrize("gib", [12, 48])
def test_row_23_the_configuration_sets_the_memory(run_python, gib):
    out = run_python(
        "import torch; n = torch.neuron; print(n.get_device_properties().total_memory, n.mem_get_info()[1])",
        TRNSIM_SET=f"chip.hbm_capacity_gib={4 * gib}",
    ).stdout.split()
    assert int(out[0]) == int(out[1]) == pytest.approx(gib * 2**30, rel=0.05)
