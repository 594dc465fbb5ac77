"""Random operators that a checkpoint runs twice: the second run starts from the state that the first one has saved.
PyTorch's operators for that know the devices by name, and learn of this one here."""

import torch
from torch._C import DispatchKey
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch.utils import _pytree as pytree


def _device_of(arguments):
    """The device of the first argument that tells one, when it is of this type."""
    for leaf in pytree.tree_leaves(arguments):
        device = leaf.device if isinstance(leaf, torch.Tensor) else leaf
        device = torch.device(device) if isinstance(device, str) and device.startswith("neuron") else device
        if isinstance(device, torch.device) and device.type == "neuron":
            return device
    return None


def _run_and_save(device, op, /, *args, **kwargs):
    state = torch.neuron.get_rng_state(device)
    return state, op(*args, **kwargs)


def _run_again(device, state, op, /, *args, **kwargs):
    current = torch.neuron.get_rng_state(device)
    torch.neuron.set_rng_state(state, device)
    try:
        return op(*args, **kwargs)
    finally:
        torch.neuron.set_rng_state(current, device)


_OWN = {run_and_save_rng_state: _run_and_save, run_with_rng_state: _run_again}
USE_RANDOM_STATE = frozenset(_OWN)


def _select(own, others):
    def select(*args, **kwargs):
        device = _device_of((args, kwargs))
        return others(*args, **kwargs) if device is None else own(device, *args, **kwargs)

    return select


def register_random_state():
    for operator, own in _OWN.items():
        kernels = operator.py_kernels
        kernels[DispatchKey.BackendSelect] = _select(own, kernels[DispatchKey.BackendSelect])
