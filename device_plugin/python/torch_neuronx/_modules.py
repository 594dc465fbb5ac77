"""Keeps parameters themselves when a module moves to or from the device.

PyTorch does not count this device among those whose tensors ``Module.to`` may change in place, and would make new
Parameters: shared weights would come apart, and an optimizer that was built earlier would hold the old ones. Swapping
the contents keeps them, but needs parameters that nothing else holds (no output with a live graph); so it is done for
these moves alone, and the conversions of a CPU model stay as PyTorch has them. Swapping takes the class of a parameter
(that of lazy modules, or the user's own), its attributes and its hooks along: they are given back.
"""

from __future__ import annotations

import functools


def _moves(torch, module, function) -> bool:
    """Whether ``function`` takes the module's own tensors to the device, or from it. Children are asked in turn."""
    own = [*module._parameters.values(), *module._buffers.values()]
    probes = {(t.device, t.dtype) for t in own if t is not None}
    for device, dtype in probes:
        try:
            target = function(torch.empty(0, dtype=dtype, device=device)).device.type
        except Exception:  # a function for the module's own tensors only; PyTorch reports what is wrong with it
            continue
        if (device.type == "neuron") != (target == "neuron"):
            return True
    return False


class _Person:
    """What a parameter is beside its values."""

    HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")

    def __init__(self, parameter):
        self.parameter, self.kind, self.attributes = parameter, type(parameter), dict(vars(parameter))
        self.hooks = {name: hooks for name in self.HOOKS if (hooks := getattr(parameter, name)) is not None}

    def restore(self):
        vars(self.parameter).update(self.attributes)
        for name, hooks in self.hooks.items():
            setattr(self.parameter, name, hooks)
        self.parameter.__class__ = self.kind


def keep_parameters(torch) -> None:
    original = torch.nn.Module._apply

    @functools.wraps(original)
    def _apply(self, fn, recurse=True):
        future = torch.__future__
        if future.get_swap_module_params_on_conversion() or not _moves(torch, self, fn):
            return original(self, fn, recurse)
        persons = [_Person(p) for p in self._parameters.values() if p is not None]
        future.set_swap_module_params_on_conversion(True)
        try:
            return original(self, fn, recurse)
        finally:
            future.set_swap_module_params_on_conversion(False)
            for person in persons:
                person.restore()

    torch.nn.Module._apply = _apply
