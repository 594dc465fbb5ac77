"""The side of tools/upstream.py that runs inside pytest: keeps the tests of the device, writes each outcome at once."""

import ast
import contextlib
import faulthandler
import functools
import importlib
import inspect
import json
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch.testing import _comparison
from torch.testing._internal import common_device_type
from torch.testing._internal.opinfo import core

RESULTS = Path(os.environ["UPSTREAM_RESULTS"])
SUFFIXES = tuple(os.environ["UPSTREAM_SUFFIXES"].split(","))  # what PyTorch appends to the names of its classes
ONLY = set(Path(os.environ["UPSTREAM_ONLY"]).read_text().splitlines())  # these tests alone; all, when there is none
LIMIT_S = int(os.environ["UPSTREAM_LIMIT_S"])


class TimeLimit(BaseException):
    """No Exception, so that no test takes it for the error it waits for."""


def compare_wide_types_as_narrow():
    """float64 is computed as float32 on the device: its results are compared, and its gradients taken, as float32's."""
    for wide, narrow in ((torch.float64, torch.float32), (torch.complex128, torch.complex64)):
        _comparison._DTYPE_PRECISIONS[wide] = _comparison._DTYPE_PRECISIONS[narrow]
    for name in ("gradcheck", "gradgradcheck"):
        check = getattr(torch.autograd, name)

        @functools.wraps(check)
        def loosened(*args, check=check, **kwargs):
            kwargs["eps"] = max(kwargs.get("eps", 0), 5e-3)  # the error is rounding / step + curvature * step^2
            for tolerance in ("atol", "rtol"):
                kwargs[tolerance] = max(kwargs.get(tolerance, 0), 1e-2)
            return check(*args, **kwargs)

        setattr(torch.autograd, name, loosened)


def take_classes_of_cpu_and_cuda():
    """Classes that PyTorch makes for "cpu" and "cuda" by name are of every device with kernels of its own."""
    original = common_device_type.instantiate_device_type_tests

    @functools.wraps(original)
    def instantiate(*args, only_for=None, **kwargs):
        if isinstance(only_for, (tuple, list)) and {"cpu", "cuda"} <= set(only_for):
            only_for = [*only_for, "privateuse1"]
        return original(*args, only_for=only_for, **kwargs)

    common_device_type.instantiate_device_type_tests = instantiate


def keep_decorators_of_renamed_classes():
    """Later versions of PyTorch have tolerances and skips for TestXDevice that are for TestX of earlier ones."""
    original = core.DecorateInfo.is_active

    @functools.wraps(original)
    def is_active(info, cls_name, *args):
        return original(info, cls_name, *args) or original(info, f"{cls_name}Device", *args)

    core.DecorateInfo.is_active = is_active


def bear_super_of_own_class():
    """`super(self.__class__, self)` of old checkouts never ends now that classes of devices inherit the generic one."""
    original = common_device_type.instantiate_device_type_tests

    @functools.wraps(original)
    def instantiate(generic, *args, **kwargs):
        for name, method in list(vars(generic).items()):
            if inspect.isfunction(method) and {"super", "__class__"} <= set(method.__code__.co_names):
                source = textwrap.dedent(inspect.getsource(method)).replace("super(self.__class__,", "super(generic,")
                made: dict = {}
                exec(source, {**method.__globals__, "generic": generic}, made)  # noqa: S102
                setattr(generic, name, made[name])
        return original(generic, *args, **kwargs)

    common_device_type.instantiate_device_type_tests = instantiate


class Absent(list):
    """A helper that the installed version lacks: an empty list, a false condition, a decorator without effect."""

    __hash__ = object.__hash__

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and inspect.isfunction(args[0]) else self


def stand_in_for_absent_helpers(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.testing._internal."):
            with contextlib.suppress(ImportError):  # a whole module: told by the file itself
                module = importlib.import_module(node.module)
                for name in {alias.name for alias in node.names} - {"*"}:
                    if not hasattr(module, name):  # lists with references are plain ones in later versions
                        setattr(module, name, getattr(module, name.removesuffix("_and_refs"), Absent()))


def settle():
    """Errors of the device come when a result is read: those of a test that reads none are not the next one's."""
    with contextlib.suppress(Exception):
        torch.accelerator.synchronize()


def note(test, **fields):
    with RESULTS.open("a") as file:
        file.write(json.dumps({"test": test, **fields}) + "\n")


def name_of(nodeid):
    return nodeid.split("::", 1)[-1]


def pytest_configure(config):
    stand_in_for_absent_helpers(Path(config.args[0]))
    keep_decorators_of_renamed_classes()
    bear_super_of_own_class()
    if "CPU" not in SUFFIXES:
        compare_wide_types_as_narrow()
        take_classes_of_cpu_and_cuda()
    signal.signal(signal.SIGALRM, on_alarm)


def on_alarm(*_):
    raise TimeLimit(f"ran longer than {LIMIT_S} s")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    begun = {json.loads(line)["test"] for line in RESULTS.read_text().splitlines()}
    of_device = [item for item in items if item.cls is not None and item.cls.__name__.endswith(SUFFIXES)]
    kept = [item for item in of_device if name_of(item.nodeid) not in begun]
    kept = [item for item in kept if not ONLY or name_of(item.nodeid) in ONLY]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def pytest_collectreport(report):
    if report.failed:
        note("(the file)", outcome="failed", reason=str(report.longrepr).strip().splitlines()[-1])


def pytest_runtest_logstart(nodeid, location):
    note(name_of(nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """An alarm ends a test that runs Python; one that does not come back from C++ ends its process, soon after."""
    signal.alarm(LIMIT_S)
    faulthandler.dump_traceback_later(LIMIT_S + 30, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        settle()
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.excinfo is not None:
        error = call.excinfo.value
        cause = f" ({type(error.__cause__).__name__}: {error.__cause__})" if error.__cause__ else ""
        report.reason = f"{type(error).__name__}: {error}{cause}"
    return report


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
        reason = getattr(report, "reason", "") or str(report.longrepr)
    note(name_of(report.nodeid), outcome=report.outcome, reason=reason)
