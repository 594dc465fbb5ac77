"""The side of tools/upstream.py that runs inside pytest: keeps the tests of the device, writes each outcome at once."""

import json
import os
from pathlib import Path

import pytest

RESULTS = Path(os.environ["UPSTREAM_RESULTS"])
SUFFIXES = ("PRIVATEUSE1", "NEURON")  # what PyTorch appends to the names of the classes it makes


def note(item_name, **fields):
    with RESULTS.open("a") as file:
        file.write(json.dumps({"test": item_name, **fields}) + "\n")


def name_of(nodeid):
    return nodeid.split("::", 1)[-1]


def pytest_collection_modifyitems(config, items):
    begun = {json.loads(line)["test"] for line in RESULTS.read_text().splitlines()}
    of_device = [item for item in items if item.cls is not None and item.cls.__name__.endswith(SUFFIXES)]
    kept = [item for item in of_device if name_of(item.nodeid) not in begun]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def pytest_runtest_logstart(nodeid, location):
    note(name_of(nodeid))


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    if report.when != "call" and report.passed:
        return
    reason = ""
    if report.skipped:
        longrepr = report.longrepr
        reason = longrepr[2].removeprefix("Skipped: ") if isinstance(longrepr, tuple) else str(longrepr)
        if hasattr(report, "wasxfail"):
            reason = "expected to fail: " + (report.wasxfail or "by PyTorch")
    elif report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = crash.message if crash else str(report.longrepr)
    note(name_of(report.nodeid), outcome=report.outcome, reason=reason)
