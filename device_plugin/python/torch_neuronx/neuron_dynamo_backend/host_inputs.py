"""Graphs that are given tensors of the host: copied to the device before each call, with gradients and in-place
changes copied back."""

import contextlib
import copy

import torch


def _stays(value):
    """Numbers travel as parameters of programs; what is on the device is there."""
    if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
        return True
    return value.dim() == 0 and not value.requires_grad


def _to_device_arguments(gm):
    """The graph with every explicit host device replaced, and its own tensors on the device."""
    gm = copy.deepcopy(gm)
    for module in gm.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:

            def moved(a):
                return _current() if isinstance(a, torch.device) and a.type == "cpu" else a

            node.args = torch.fx.node.map_aggregate(node.args, moved)
            node.kwargs = torch.fx.node.map_aggregate(node.kwargs, moved)
        module.recompile()
    return gm.to(_current())


def _current():
    return torch.device("neuron", torch.neuron.current_device())


def move_to_device(gm, example_inputs, settings):
    """The graph and its inputs as they are on the device, and a wrapper for callables that take them."""
    to_move = [i for i, value in enumerate(example_inputs) if not _stays(value)]
    if not to_move:
        return gm, example_inputs, lambda compiled: compiled
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    if not settings.copy_cpu_inputs:
        raise RuntimeError(
            'user error: torch.compile(backend="neuron") was given tensors on the CPU ('
            + ", ".join(names[i] for i in to_move)
            + "), and TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY=1 forbids copying them. Move them with .to('neuron')."
        )
    device = _current()
    moved_inputs = list(example_inputs)
    with torch._guards.detect_fake_mode(example_inputs) or contextlib.nullcontext():
        for i in to_move:
            value = example_inputs[i]
            stand_in = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=device)
            moved_inputs[i] = stand_in.requires_grad_(value.requires_grad)
    gm = _to_device_arguments(gm)
    gm._backend_id = None  # what Dynamo keeps for other processes would lack the copies

    def wrap(compiled):
        def run(*args):
            args = list(args)
            originals = []
            for i in to_move:
                original = args[i]
                args[i] = original.to(device)
                originals.append((original, args[i], args[i]._version))
            result = compiled(*args)
            for original, on_device, version in originals:
                if on_device._version != version:
                    with torch.no_grad():
                        original.copy_(on_device)
            return result

        return run

    return gm, moved_inputs, wrap
