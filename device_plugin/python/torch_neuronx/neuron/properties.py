"""What the simulated device is."""

from dataclasses import dataclass

import torch

from trnsim import _C


@dataclass(frozen=True)
class NeuronDeviceProperties:
    name: str
    target: str
    total_memory: int
    simulated: bool = True


def _index(device):
    from torch_neuronx.neuron import _index_of

    return _index_of(device)


def get_device_name(device=None):
    _index(device)
    return f"{_C.target()} NeuronCore (simulated by trnsim)"


def get_device_properties(device=None):
    index = _index(device)
    return NeuronDeviceProperties(name=get_device_name(index), target=_C.target(), total_memory=_C.hbm_bytes(index))


def get_device_capability(device=None):
    _index(device)
    digits = "".join(c for c in _C.target() if c.isdigit())
    return (int(digits[:1] or 0), 0)


def get_amp_supported_dtype():
    return [torch.float32, torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation=True):
    return True
