"""From a graph of Dynamo to a callable: checks, inputs on the host, AOTAutograd with the compilers of graphs.py."""

import contextlib
import functools
import warnings

import torch
from torch._dynamo import disable
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import default_partition

from . import kept_functions, trace_cache
from . import settings as settings_module
from .graphs import DynamicShapes, compile_graph, concrete_size, has_symbols
from .host_inputs import move_to_device
from .metrics import count
from .operators import decompositions
from .saved_values import keep_narrow
from .written_attention import replace_attention

# Calls of the device module (seeds, synchronisation, reports) are no part of graphs: Dynamo breaks there.
for _package in ("torch_neuronx", "trnsim"):
    torch._dynamo.trace_rules.add(_package)


def _is_ours(backend):
    return getattr(backend, "compiler_fn", backend) is neuron


kept_functions.install_when_wanted(_is_ours)


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


def _partition(joint, inputs, **options):
    replace_attention(joint)
    keep_narrow(joint)
    return default_partition(joint, inputs, **options)


def _compile_inference(gm, inputs, **options):
    # Without a gradient nothing is kept: few scores, as of one new token, are products as well as attention.
    replace_attention(gm, min_scores=64 * 64)
    return compile_graph(gm, inputs, **options)


def neuron(gm, example_inputs, *, mode=None, options=None, **unknown):
    """Compiles a graph of Dynamo. ``mode`` and ``options`` of ``torch.compile`` arrive as keywords."""
    kept_functions.install_when_wanted(_is_ours)
    settings = settings_module.read(mode, {**(options or {}), **unknown})
    _specialise(gm)
    gm, example_inputs, on_device = move_to_device(gm, example_inputs, settings)

    keep = trace_cache.is_on()

    def compiler(kind):
        compile = _compile_inference if kind == "inference" else compile_graph
        return functools.partial(compile, settings=settings, kind=kind, keep=keep)

    def compile():
        with trace_cache.used(settings) if keep else contextlib.nullcontext():
            return on_device(_with_autograd(gm, example_inputs, compiler, keep))

    return _or_eagerly(settings, on_device(gm.forward), compile)


def _with_autograd(gm, example_inputs, compiler, keep):
    """What torch._dynamo.backends.common.aot_autograd does, without the import of Inductor's compiler, which takes a
    third of the time of a first call."""
    backward = compiler("backward")

    def compile_backward(graph, inputs):  # Dynamo must trace neither the compiler nor what it makes
        return disable(disable(backward, reason="a compiler")(graph, inputs), reason="a compiled backward graph")

    compiled = aot_module_simplified(
        gm,
        example_inputs,
        fw_compiler=trace_cache.compiler(compiler("forward"), keep),
        bw_compiler=compile_backward,
        inference_compiler=trace_cache.compiler(compiler("inference"), keep),
        decompositions=decompositions(),
        partition_fn=_partition,
        keep_inference_input_mutations=True,
    )
    return disable(compiled, reason="a compiled graph")
