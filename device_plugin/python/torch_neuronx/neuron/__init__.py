"""``torch.neuron``: the functions PyTorch and user code expect of a device module."""

import warnings

import torch

from trnsim import _C

from ..neuron_dynamo_backend.metrics import get_dynamo_metrics, reset_dynamo_metrics
from . import memory, random, streams
from .memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from .properties import (
    NeuronDeviceProperties,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_bf16_supported,
)
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    query,
    record_event,
    set_stream,
    stream,
    synchronize,
    wait_event,
    wait_stream,
)

_problem_reported = False


def is_available():
    """Whether this process has a device. Warns once with the reason when it has none."""
    global _problem_reported
    if _C.device_count() > 0:
        return True
    if not _problem_reported:
        _problem_reported = True
        warnings.warn(f"no neuron device is available: {_C.device_problem()}", stacklevel=2)
    return False


def device_count():
    """Number of logical NeuronCores of this process. Raises RuntimeError with the reason when there is none."""
    count = _C.device_count()
    if count == 0:
        raise RuntimeError(f"no neuron device is available: {_C.device_problem()}")
    return count


def is_initialized():
    return _C.is_initialized() and not _C.in_bad_fork()


def init():
    """Starts the simulated chip. The first use of the device does it as well."""
    _C.init()


def __getattr__(name):
    # A variable in other device modules; torch.utils.checkpoint keeps the random states of a device only if it is true.
    if name == "_initialized":
        return is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _lazy_init():
    _C.init()


def _lazy_call(callable, **kwargs):
    callable()


def _is_in_bad_fork():
    return _C.in_bad_fork()


def current_device():
    return _C.current_device()


def _any_index_of(device):
    """Index of a device given as index, string, torch.device or nothing. Whether there is one is another question."""
    if device is None:
        return _C.current_device()
    if isinstance(device, int):
        return device
    device = torch.device(device)
    if device.type != "neuron":
        raise ValueError(f"user error: expected a neuron device, not {device}")
    return _C.current_device() if device.index is None else device.index


def _index_of(device):
    """The same, of a device that this process sees."""
    index = _any_index_of(device)
    if device is not None and not 0 <= index < device_count():
        raise RuntimeError(
            f"user error: invalid device index neuron:{index}; this process sees {device_count()} neuron devices, "
            "counted from 0 (NEURON_RT_VISIBLE_CORES, NEURON_RT_NUM_CORES and NEURON_LOGICAL_NC_CONFIG decide)"
        )
    return index


def set_device(device):
    """Makes a device the current one. A negative index does nothing."""
    index = _any_index_of(device)
    if index >= 0:
        _C.set_device(index)


class device:
    """Context manager: makes a device the current one. A negative index or None does nothing."""

    def __init__(self, device):
        self.index = -1 if device is None else _any_index_of(device)
        self.previous = -1

    def __enter__(self):
        self.previous = _C.exchange_device(self.index)
        return self

    def __exit__(self, *exception):
        _C.exchange_device(self.previous)
        return False


class device_of(device):
    """Context manager: makes the device of a tensor or storage the current one, when it is a neuron device."""

    def __init__(self, obj):
        super().__init__(obj.device if obj.device.type == "neuron" else None)


def _exchange_device(index):
    return _C.exchange_device(index)


def _maybe_exchange_device(index):
    return _C.exchange_device(index)


class _utils:
    """Where older generic code looks for the index rules."""

    @staticmethod
    def _get_device_index(device, optional=False, allow_cpu=False):
        if allow_cpu and not isinstance(device, int) and device is not None and torch.device(device).type == "cpu":
            return -1
        return _any_index_of(device)


__all__ = [
    "Event",
    "NeuronDeviceProperties",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_dynamo_metrics",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "query",
    "random",
    "record_event",
    "reset_accumulated_memory_stats",
    "reset_dynamo_metrics",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
    "wait_event",
    "wait_stream",
]
