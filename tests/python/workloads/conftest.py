"""Workloads W01 to W23: whole models, every operator on the device.

WORKLOADS_COMPILED=1 runs the same tests with every model that goes to the device behind torch.compile."""

import os
import warnings

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def native(request):
    """No operator of a workload may run on the host, but those that its file names in HOST."""
    import torch

    import trnsim

    torch.manual_seed(0)
    trnsim.reset_report()
    yield
    allowed = getattr(request.module, "HOST", set())
    report = trnsim.report()
    assert [row for row in report["fallbacks"] if row["op"] not in allowed] == []
    assert report["simulated_ns"] > 0


@pytest.fixture(autouse=os.environ.get("WORKLOADS_COMPILED") == "1")
def compiled(monkeypatch, request):
    """Models are compiled in place as they are moved to the device, with the methods that the file names in ENTRIES
    beside forward; the checks stay what they are."""
    import torch
    import torch._dynamo

    move = torch.nn.Module.to

    def to(module, *args, **kwargs):
        moved = move(module, *args, **kwargs)
        if any(p.device.type == "neuron" for p in moved.parameters()):
            # Dynamo does not enter a module of torch.nn by its __call__.
            theirs = type(moved).__module__.startswith("torch.nn.")
            for name in ("forward",) * theirs + getattr(request.module, "ENTRIES", ()):
                setattr(moved, name, torch.compile(getattr(moved, name), backend="neuron"))
            moved.compile(backend="neuron")
        return moved

    torch._dynamo.reset()
    torch.neuron.reset_dynamo_metrics()
    monkeypatch.setattr(torch.nn.Module, "to", to)
    # Recurrent layers are left to eager execution otherwise; token loops bring a shape per token.
    with torch._dynamo.config.patch(allow_rnn=True, recompile_limit=64):
        yield
    metrics = torch.neuron.get_dynamo_metrics()
    assert metrics["compile_failures"] == 0, metrics
    print(f"graphs {metrics['graphs']}, calls {metrics['calls']}, beside programs {metrics['host_operators']}")
