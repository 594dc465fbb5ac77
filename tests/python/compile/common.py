"""Comparing compiled, eager and CPU results."""

import copy

import torch


def on(device, value):
    """The value with its tensors on a device; strides stay."""
    if isinstance(value, torch.Tensor):
        if value.is_leaf and value.requires_grad:
            return on(device, value.detach()).requires_grad_()
        moved = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
        return moved.copy_(value) if 0 not in value.stride() else value.to(device)
    if isinstance(value, (list, tuple)):
        return type(value)(on(device, v) for v in value)
    return value


def check(function, *args, programs=None, host_steps=0, rtol=1e-5, atol=1e-5, **options):
    """Runs a function compiled and on the CPU; results and changed arguments have to be equal. Returns the result."""
    theirs = copy.deepcopy(args)
    ours = on("neuron", args)
    compiled = torch.compile(function, backend="neuron", fullgraph=True, **options)
    actual = compiled(*ours)
    expected = function(*theirs)
    torch.testing.assert_close(_cpu(actual), expected, rtol=rtol, atol=atol)
    torch.testing.assert_close(_cpu(ours), theirs, rtol=rtol, atol=atol)
    metrics = torch.neuron.get_dynamo_metrics()
    if programs is not None:
        assert metrics["programs"] == programs, metrics
    assert metrics["host_steps"] == host_steps, metrics
    return actual


def _cpu(value):
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, (list, tuple)):
        return type(value)(_cpu(v) for v in value)
    return value
