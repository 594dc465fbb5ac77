"""Counters of compiled graphs. ``torch.neuron.get_dynamo_metrics()`` shows them."""

import threading

_lock = threading.Lock()
_ZERO = {
    "graphs": 0,  # FX graphs that were compiled: forward, backward and inference count apart
    "graphs_from_cache": 0,  # ... of which so many were traced by another process
    "programs": 0,  # programs of these graphs
    "programs_compiled": 0,  # ... of which the compiler made
    "programs_from_cache": 0,  # ... and which were found, in memory or on disk
    "nodes": 0,  # operators in programs
    "host_steps": 0,  # operators that run between programs, on the host or by eager programs
    "compile_failures": 0,  # graphs that run eagerly instead
    "graph_seconds": 0.0,  # from the FX graph to programs, compilation included
    "compile_seconds": 0.0,  # in the compiler
    "calls": 0,  # calls of compiled graphs
}
_counters = dict(_ZERO)
_host_operators = {}


def count(**amounts):
    with _lock:
        for name, amount in amounts.items():
            _counters[name] += amount


def count_host_operator(name, reason):
    with _lock:
        _counters["host_steps"] += 1
        key = (name, reason)
        _host_operators[key] = _host_operators.get(key, 0) + 1


def get_dynamo_metrics():
    """Counts and times since the start of the process or the last reset, and the operators that no program holds."""
    with _lock:
        result = dict(_counters)
        result["host_operators"] = [
            {"op": op, "reason": reason, "count": n} for (op, reason), n in sorted(_host_operators.items())
        ]
        return result


def reset_dynamo_metrics():
    with _lock:
        _counters.update(_ZERO)
        _host_operators.clear()
