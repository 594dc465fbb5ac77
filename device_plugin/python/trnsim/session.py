"""What a program that uses the device can set and ask. PyTorch is imported at the first call, not before."""

import json

_MODES = ("both", "data", "time")
_CHECKS = ("pedantic", "strict", "warn", "off")


def _native():
    import torch_neuronx  # noqa: F401  registers the device when autoloading is off
    from trnsim import _C

    return _C


def configure(config=None, overrides=None, mode=None, check=None):
    """Chooses what is simulated; before the first use of the device.

    config: a name (``trn2``, ``trn3``) or a file. overrides: ``{"a.b": 1}`` or ``"a.b=1,c.d=2"``.
    mode: ``both`` (values and time), ``data`` or ``time``. check: ``strict`` (a race or the like in a program is an
    error), ``warn`` (a warning) or ``off``. What is None stays as the environment says.
    """
    if mode is not None and mode not in _MODES:
        raise ValueError(f"user error: mode {mode!r} is unknown; use one of {', '.join(_MODES)}")
    if check is not None and check not in _CHECKS:
        raise ValueError(f"user error: check {check!r} is unknown; use one of {', '.join(_CHECKS)}")
    if overrides is None:
        overrides = ""
    elif hasattr(overrides, "items"):
        overrides = ",".join(f"{key}={value}" for key, value in overrides.items())
    elif not isinstance(overrides, str):
        overrides = ",".join(overrides)
    _native().configure("" if config is None else str(config), overrides, mode or "", check or "")


def simulated_time_ns(device=None):
    """Simulated time of the device's queue since its start, after waiting for what is queued."""
    native = _native()
    if device is None:
        index = -1
    else:
        from torch_neuronx.neuron import _index_of

        index = _index_of(device)
    return native.simulated_ps(index) / 1000


def fallbacks():
    """Operators that ran on the host: ``[{"op", "count", "reason"}]``, most frequent first."""
    rows = [{"op": op, "count": count, "reason": reason} for op, reason, count in _native().fallbacks()]
    return sorted(rows, key=lambda row: -row["count"])


def report():
    """Everything measured since the start or the last ``reset_report()``, as a dict (keys: docs)."""
    native = _native()
    result = json.loads(native.runtime_report_json())
    *counts, compile_us = native.caches()
    result["caches"] |= dict(zip(("hits", "misses", "compiles", "disk_hits"), counts, strict=True))
    result["caches"]["compile_s"] = compile_us / 1e6
    result["fallbacks"] = fallbacks()
    return result


def reset_report():
    _native().reset_report()
