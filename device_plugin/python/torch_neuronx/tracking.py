"""Which operators ran where. Recording starts with the first ``clear_op_tracking()``; one entry per call."""

from trnsim import _C


def clear_op_tracking():
    _C.clear_op_tracking()


def get_executed_ops():
    """Operators that ran on the device, in order of their calls."""
    return _C.executed_ops()


def get_fallback_ops():
    """Operators that ran on the host instead, in order of their calls."""
    return _C.fallback_ops()
