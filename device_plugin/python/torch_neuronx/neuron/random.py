"""Random state of the devices: Philox, (seed, offset) as 16 bytes."""

import struct

import torch

from trnsim import _C


def _index(device):
    from torch_neuronx.neuron import _index_of

    return _index_of(device)


def _all():
    return range(_C.device_count())


def _as_unsigned(seed):
    return torch.Generator().manual_seed(int(seed)).initial_seed()  # with PyTorch's own limits and error


def manual_seed(seed):
    _C.manual_seed(_C.current_device(), _as_unsigned(seed))


def manual_seed_all(seed):
    seed = _as_unsigned(seed)
    for index in _all():
        _C.manual_seed(index, seed)


def seed():
    return _C.seed(_C.current_device())


def seed_all():
    value = _C.seed(_C.current_device())
    manual_seed_all(value)


def initial_seed():
    return _C.initial_seed(_C.current_device())


def get_rng_state(device="neuron"):
    seed, offset = _C.rng_state(_index(device))
    return torch.frombuffer(bytearray(struct.pack("<QQ", seed, offset)), dtype=torch.uint8)


def set_rng_state(new_state, device="neuron"):
    state = bytes(new_state.cpu().contiguous().tolist())
    if len(state) != 16:
        raise ValueError(f"user error: the random state of a neuron device has 16 bytes, not {len(state)}")
    seed, offset = struct.unpack("<QQ", state)
    _C.set_rng_state(_index(device), seed, offset)


def get_rng_state_all():
    return [get_rng_state(index) for index in _all()]


def set_rng_state_all(new_states):
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
