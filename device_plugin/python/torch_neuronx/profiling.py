"""Names of the hardware profiler. Nothing is captured, so none of them can be made: what exists is named instead."""

import enum

from torch_neuronx._not_simulated import not_simulated

_INSTEAD = (
    "trnsim.report() has simulated times by program and engine, torch.neuron.Event(enable_timing=True) and "
    "torch.autograd.profiler.profile(use_device='neuron', use_kineto=False) those of operators"
)


class ProfileMode(enum.Enum):
    DEVICE = "device"
    RUNTIME = "runtime"
    CPU_UTIL = "cpu_util"
    HOST_MEMORY = "host_memory"


class NeuronConfig:
    def __init__(self, *arguments, **settings):
        not_simulated("profiling.NeuronConfig", _INSTEAD)


class NeuronProfiler:
    def __init__(self, *arguments, **settings):
        not_simulated("profiling.NeuronProfiler", _INSTEAD)
