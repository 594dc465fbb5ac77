"""Random operators that a checkpoint runs twice: the second run starts from the state that the first one has saved.
PyTorch's own operators for that know the devices by name."""

import torch
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch.utils import _pytree as pytree


def _module_of(arguments):
    for leaf in pytree.tree_leaves(arguments):
        device = leaf.device if isinstance(leaf, torch.Tensor) else leaf if isinstance(leaf, torch.device) else None
        if device is not None and device.type == "neuron":
            return torch.neuron
    return torch


def _run_and_save(op, *args, **kwargs):
    state = _module_of((args, kwargs)).get_rng_state()
    return state, op(*args, **kwargs)


def _run_again(state, op, *args, **kwargs):
    module = _module_of((args, kwargs))
    current = module.get_rng_state()
    module.set_rng_state(state)
    try:
        return op(*args, **kwargs)
    finally:
        module.set_rng_state(current)


_OWN = {run_and_save_rng_state: _run_and_save, run_with_rng_state: _run_again}
USE_RANDOM_STATE = frozenset(_OWN.values())


def use_own_state(graph):
    for node in graph.nodes:
        if node.op == "call_function" and node.target in _OWN:
            node.target = _OWN[node.target]
