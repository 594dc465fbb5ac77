"""What Dynamo's graph becomes in AOTAutograd, kept on disk for other processes by PyTorch's AOTAutogradCache.

An entry holds the forward and backward graphs of operators as listings (graph_listing.py) and PyTorch's wrappers around
them; no program. Programs are made of the graphs again and found in the program store, by a key that has the target,
the cores, the switches and the version of the compiler in it. An entry therefore depends on what tracing depends on:
Dynamo's graph, the inputs, PyTorch with its configuration (its own key), and on the code of this package and of the
device, which says which operators are decomposed."""

import contextlib
import os
from unittest import mock

import torch
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCacheDetails, BypassAOTAutogradCache
from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler

from .graph_listing import version
from .graphs import CompiledGraph, source_line
from .settings import artefact_folder, cache_folder, graph_folder

_LIBRARIES = {None, "aten", "prim", "prims", "trnsim"}


def is_on():
    """Dumps are made of what is traced: who wants them gets everything traced."""
    wanted = cache_folder() is not None or torch._dynamo.config.caching_precompile
    return wanted and artefact_folder() is None


def compiler(compile, keep):
    """A compiler for AOTAutograd; one whose results are kept says so by its class."""
    return SerializableAOTDispatchCompiler(CompiledGraph, compile) if keep else compile


def _library(target):
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace
    return target._qualified_op_name.split("::")[0] if isinstance(target, torch._ops.OpOverloadPacket) else None


def _key_of(settings):
    """The part of the key that PyTorch makes for Inductor, without Inductor, whose import takes a second."""

    def add(details, gm, example_inputs, fx_config):
        # AOTAutograd makes inputs of parameters and buffers. Of what else the graph holds only the shape would count.
        lifted = {name for name, _ in (*gm.named_parameters(), *gm.named_buffers())}
        held = (node.target for node in gm.graph.nodes if node.op == "get_attr" and node.target not in lifted)
        if not all(isinstance(getattr(gm, name, None), torch.fx.GraphModule) for name in held):
            raise BypassAOTAutogradCache("the graph has constants")
        for part in gm.modules():
            for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
                if _library(node.target) not in _LIBRARIES:  # its gradient and its parts may be Python code
                    raise BypassAOTAutogradCache(f"operator {node.target} belongs to this process")
        details.gm, details.example_inputs = gm, list(example_inputs)
        # Messages name the user's lines.
        details.neuron = (
            version(),
            repr(settings),
            torch.neuron.current_device(),
            str(torch.get_default_dtype()),
            torch.is_inference_mode_enabled(),
            [source_line(node) for node in gm.graph.nodes],
        )

    return add


@contextlib.contextmanager
def used(settings):
    """While AOTAutograd finds or traces a graph."""
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if cache_folder() is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = graph_folder()
    try:
        # The backward graph is compiled along with the forward graph: an entry holds both.
        with (
            functorch_config.patch(
                enable_autograd_cache=True, bundled_autograd_cache=True, force_non_lazy_backward_lowering=True
            ),
            mock.patch.object(AOTAutogradCacheDetails, "_init_fx_graph_hash_details", _key_of(settings)),
        ):
            yield
    finally:
        if before is None:
            os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)
        else:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = before
