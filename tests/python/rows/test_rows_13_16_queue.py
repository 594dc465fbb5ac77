"""Checklist rows 13 to 16: streams, events, asynchrony, deferred errors."""

import time

import pytest
import torch

FAULT = """
import torch
table = torch.ones(4, 8, device="neuron")
index = torch.tensor([1, 400], device="neuron")
line = "none"
try:
    line = "op"
    y = torch.nn.functional.embedding(index, table)
    line = "next op"
    z = table + 1
    line = "sync"
    torch.neuron.synchronize()
    line = "nothing"
except (RuntimeError, IndexError) as e:
    print(line, "|", e)
print((table + 1).sum().item())
"""


def test_row_13_streams_and_events():
    a, b = torch.neuron.Stream(), torch.neuron.Stream()
    x = torch.ones(512, 512, device="neuron")
    start, end = (torch.neuron.Event(enable_timing=True) for _ in range(2))
    with torch.neuron.stream(a):
        assert torch.neuron.current_stream() == a
        start.record()
        y = x @ x
        end.record()
    b.wait_event(end)
    with torch.neuron.stream(b):
        z = y + 1
    torch.neuron.synchronize()
    assert start.elapsed_time(end) > 0
    assert z[0, 0].item() == 513


def test_row_13_elapsed_time_is_simulated_and_repeats():
    x = torch.ones(256, 256, device="neuron")

    def once():
        start, end = (torch.Event(device="neuron", enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(3):
            x @ x
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    once()
    assert once() == pytest.approx(once(), rel=1e-9)


def test_row_14_launch_returns_before_the_device_is_done():
    x = torch.randn(1024, 1024, device="neuron")
    (x @ x)[0, 0].item()
    begin = time.perf_counter()
    for _ in range(8):
        y = x @ x
    dispatched = time.perf_counter() - begin
    torch.neuron.synchronize()
    done = time.perf_counter() - begin
    assert dispatched < done / 3
    del y


def test_row_15_blocking_mode_raises_on_the_line_of_the_fault(run_python):
    out = run_python(FAULT, NEURON_LAUNCH_BLOCKING="1").stdout
    assert out.startswith("op |"), out
    assert "aten::embedding" in out


def test_row_16_deferred_error_names_the_operator_and_the_device_goes_on(run_python):
    out = run_python(FAULT).stdout.strip().split("\n")
    assert out[0].startswith("sync |"), out
    assert "aten::embedding" in out[0] and "NEURON_LAUNCH_BLOCKING" in out[0]
    assert out[-1] == "64.0"


def test_row_13_module_functions_of_the_current_stream():
    side = torch.neuron.Stream()
    with torch.neuron.stream(side):
        event = torch.neuron.record_event()
        torch.neuron.wait_stream(torch.neuron.default_stream())
        assert torch.neuron.current_stream() == side
    torch.neuron.wait_event(event)
    torch.neuron.synchronize()
    assert torch.neuron.query() and event.query()
    previous = torch.neuron.current_stream()
    torch.neuron.set_stream(side)
    assert torch.neuron.current_stream() == side != previous
    torch.neuron.set_stream(previous)


@pytest.mark.filterwarnings("ignore")
def test_row_13_the_profiler_shows_simulated_time_of_the_device():
    x = torch.ones(256, 256, device="neuron")
    (x @ x).sum().item()
    start, end = (torch.neuron.Event(enable_timing=True) for _ in range(2))
    with torch.autograd.profiler.profile(use_device="neuron", use_kineto=False) as profile:
        start.record()
        y = x @ x
        end.record()
        torch.neuron.synchronize()
    # Whole microseconds: PyTorch's own.
    rows = {row.key: row for row in profile.key_averages()}
    assert rows["aten::mm"].device_time_total == pytest.approx(start.elapsed_time(end) * 1000, abs=1)
    assert y[0, 0].item() == 256


def test_row_13_the_profiler_shows_operators_by_name():
    x = torch.ones(8, 8, device="neuron")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1]
    with torch.profiler.profile(activities=activities) as profile:
        (x @ x).sum().item()
    assert {"aten::mm", "aten::sum", "aten::item"} <= {row.key for row in profile.key_averages()}
