"""What the user says about a compilation: mode, options and environment variables."""

import os
import warnings
from dataclasses import dataclass

_model_name = None
_warned = set()


def set_model_name(name):
    """Labels the programs and artefacts of the graphs that are compiled from now on. None: no label."""
    global _model_name
    if name is not None and not isinstance(name, str):
        raise TypeError(f"user error: a model name is a string or None, not {type(name).__name__}")
    _model_name = name


def _warn_once(text):
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, stacklevel=2)


def env_flag(name, otherwise):
    text = os.environ.get(name, "").strip().lower()
    if text == "":
        return otherwise
    if text in ("0", "false"):
        return False
    if text in ("1", "true"):
        return True
    raise ValueError(f"user error: {name}={os.environ[name]} is unknown; use 0, 1, true or false.")


@dataclass(frozen=True)
class Settings:
    model_name: str
    fallback_execution: bool  # a graph that does not compile runs eagerly instead of raising
    copy_cpu_inputs: bool


def read(mode, options):
    if mode not in (None, "default"):
        _warn_once(
            f'torch.compile(backend="neuron"): mode "{mode}" is not known to this backend; the default is used instead.'
        )
    options = dict(options or {})
    name = options.pop("model_name", None) or _model_name or "graph"
    if not isinstance(name, str):
        raise TypeError(f"user error: option model_name is a string, not {type(name).__name__}")
    fallback = options.pop("fallback_execution", None)
    if fallback is None:
        fallback = not env_flag("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", True)
    for unknown in sorted(options):
        _warn_once(f'torch.compile(backend="neuron"): option {unknown} is not known to this backend and is ignored.')
    return Settings(name, bool(fallback), not env_flag("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", False))


def artefact_folder():
    """Where FX graphs and the levels of the compiler go, or None."""
    if not env_flag("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", False):
        return None
    return os.environ.get("TORCH_NEURONX_DEBUG_DIR") or "/tmp/neuron_backend"


def cache_folder():
    """Where programs and traced graphs are kept for other processes, or None."""
    if env_flag("TORCH_NEURONX_DISABLE_NEFF_CACHE", False) or env_flag("TORCH_NEURONX_NEFF_DISABLE_CACHE", False):
        return None
    return os.environ.get("TORCH_NEURONX_NEFF_CACHE_DIR") or None


def keeps_frames():
    """Whether what Dynamo makes of a function goes into the cache folder: unless PyTorch's own switch says no, or
    everything is to be traced for its dumps."""
    return cache_folder() is not None and artefact_folder() is None and env_flag("TORCH_CACHING_PRECOMPILE", True)


def graph_folder():
    """Of traced graphs, in the cache folder."""
    return os.path.join(cache_folder(), "graphs")
