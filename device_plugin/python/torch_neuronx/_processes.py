"""What crosses the border of a process: collectives, and tensors in the queues of multiprocessing."""

from __future__ import annotations


def _no_process_group(*_arguments):
    raise NotImplementedError(
        "not simulated: the process group 'neuron' (collectives between NeuronCores) is not part of this version. "
        "Run one process, or use init_process_group('gloo') and move tensors to the CPU for the collectives."
    )


def register_process_group(torch) -> None:
    """``init_process_group("neuron")`` is known by name, and says what is missing."""
    distributed = torch.distributed
    if distributed.is_available() and "neuron" not in distributed.Backend.backend_list:
        distributed.Backend.register_backend("neuron", _no_process_group, devices=["neuron"])


_WORDS = (
    "user error: a tensor on {} was sent to another process, and the memory of a simulated device belongs to the "
    "process that uses it. Send CPU tensors (a DataLoader's workers return CPU tensors, too) and move them to the "
    "device where they arrive."
)


def _raise_on_arrival(device):
    raise RuntimeError(_WORDS.format(device))


def refuse_other_processes(torch) -> None:
    """A device tensor in a queue of multiprocessing raises where it arrives.

    It is pickled in a thread of the sender that can only print an error: the receiver would wait for ever.
    """
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing import reductions

    def on_device(reduce):
        def reduced(obj):
            return (_raise_on_arrival, (str(obj.device),)) if obj.device.type == "neuron" else reduce(obj)

        return reduced

    ForkingPickler.register(torch.Tensor, on_device(reductions.reduce_tensor))
    ForkingPickler.register(torch.nn.Parameter, on_device(reductions.reduce_tensor))
    ForkingPickler.register(torch.UntypedStorage, on_device(reductions.reduce_storage))
