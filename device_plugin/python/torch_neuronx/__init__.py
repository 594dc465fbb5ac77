"""The PyTorch device ``neuron``, simulated. Importing torch loads it; importing this package by hand does the same."""

_loaded = False


def _autoload():
    """Entry point of ``torch.backends``: runs at the end of ``import torch``. Calling it again does nothing."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    try:
        from torch_neuronx import _register

        _register.register()
    except BaseException:
        _loaded = False
        raise


# `import torch` calls _autoload itself when the entry point is installed and not switched off.
import torch  # noqa: E402

_autoload()

from torch_neuronx._not_simulated import nki_op, wrap_nki  # noqa: E402
from torch_neuronx.neuron import (  # noqa: E402
    Event,
    Stream,
    current_device,
    current_stream,
    default_stream,
    device,
    device_count,
    empty_cache,
    get_device_name,
    get_device_properties,
    is_available,
    manual_seed,
    manual_seed_all,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_device,
    set_stream,
    stream,
    synchronize,
)
from torch_neuronx.tracking import clear_op_tracking, get_executed_ops, get_fallback_ops  # noqa: E402

__version__ = torch.__version__.split("+")[0]

__all__ = [
    "Event",
    "Stream",
    "clear_op_tracking",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "get_device_properties",
    "get_executed_ops",
    "get_fallback_ops",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "nki_op",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device",
    "set_stream",
    "stream",
    "synchronize",
    "wrap_nki",
]
