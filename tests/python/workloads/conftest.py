"""Workloads W01 to W23: whole models, every operator on the device."""

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
