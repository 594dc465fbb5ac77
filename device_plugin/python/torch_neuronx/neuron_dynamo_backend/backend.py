"""From a graph of Dynamo to a callable: checks, inputs on the host, AOTAutograd with the compilers of graphs.py."""

import functools
import warnings

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition

from . import settings as settings_module
from .graphs import DynamicShapes, compile_graph, concrete_size, has_symbols
from .host_inputs import move_to_device
from .metrics import count
from .operators import decompositions

# Calls of the device module (seeds, synchronisation, reports) are no part of graphs: Dynamo breaks there.
for _package in ("torch_neuronx", "trnsim"):
    torch._dynamo.trace_rules.add(_package)


def _specialise(gm):
    """Static shapes only. Dynamo makes a size symbolic when it has changed between two calls; reading it as a number
    makes it a constant again, with a guard, so that every shape gets a graph of its own."""
    tensors = {
        node.name: node.meta["example_value"]
        for node in gm.graph.nodes
        if node.op == "placeholder" and isinstance(node.meta.get("example_value"), torch.Tensor)
    }
    dynamic = [
        f"{name}: dimension {d} ({size})"
        for name, tensor in tensors.items()
        for d, size in enumerate(tensor.shape)
        if has_symbols(size)
    ]
    if dynamic and not torch._dynamo.config.assume_static_by_default:
        raise DynamicShapes(
            'user error: torch.compile(backend="neuron") needs static shapes, and dynamic dimensions were found: '
            + "; ".join(dynamic)
            + ". Pass dynamic=False or leave it unset: each set of shapes is then compiled once."
        )
    for name, tensor in tensors.items():
        for size in (*tensor.shape, *tensor.stride(), tensor.storage_offset()):
            concrete_size(size, name)


def _or_eagerly(settings, eager, compile):
    """Runs `compile`; when it fails and the user allows that, `eager` takes the place of its result."""
    try:
        return compile()
    except Exception as e:
        from torch._dynamo.exc import TensorifyScalarRestartAnalysis

        if isinstance(e, TensorifyScalarRestartAnalysis) or not settings.fallback_execution:
            raise
        return _eagerly(settings, eager, e)


def _eagerly(settings, eager, error):
    count(compile_failures=1)
    warnings.warn(
        f"neuron: a graph of {settings.model_name} does not compile and runs eagerly "
        f"(TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION=0 or the option fallback_execution): {error}",
        stacklevel=3,
    )
    return eager


def neuron(gm, example_inputs, *, mode=None, options=None, **unknown):
    """Compiles a graph of Dynamo. ``mode`` and ``options`` of ``torch.compile`` arrive as keywords."""
    settings = settings_module.read(mode, {**(options or {}), **unknown})
    _specialise(gm)
    gm, example_inputs, on_device = move_to_device(gm, example_inputs, settings)

    def compiler(kind):
        return functools.partial(compile_graph, settings=settings, kind=kind)

    aot = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=decompositions(),
        partition_fn=default_partition,
        keep_inference_input_mutations=True,
    )
    return _or_eagerly(settings, on_device(gm.forward), lambda: on_device(aot(gm, example_inputs)))
