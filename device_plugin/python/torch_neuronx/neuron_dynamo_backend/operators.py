"""Which operators the device has, and decompositions for those it has not."""

import functools

import torch

from trnsim import _C

from . import attention

# Of elements in device memory that programs read and write.
DEVICE_TYPES = frozenset(
    [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]
    + [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.bool]
)


@functools.cache
def _lowered():
    return frozenset(_C.lowered_ops())


def functional_name(op):
    """``aten::add.Tensor``, ``aten::relu``: as the compiler spells it."""
    name = op._schema.name
    return f"{name}.{op._schema.overload_name}" if op._schema.overload_name else name


@functools.cache
def has_kernel(op):
    """Whether calling it on device tensors ends in programs, as far as the dispatcher tells."""
    if functional_name(op) in _lowered():
        return True
    has = functools.partial(torch._C._dispatch_has_kernel_for_dispatch_key, op.name())
    return any(
        has(key)
        for key in (
            "PrivateUse1",
            "CompositeExplicitAutograd",
            "CompositeExplicitAutogradNonFunctional",
            "CompositeImplicitAutograd",
        )
    )


@functools.cache
def decompositions():
    """PyTorch's own, for operators without a kernel here. The others arrive whole: their programs are better. Attention
    arrives as the kernels of eager execution."""
    # The public table also holds every operator that PyTorch composes of others, which the device has by the same
    # composition; collecting them takes longer than finding a whole model in the cache.
    from torch._decomp import _core_aten_decompositions_post_autograd

    theirs = {
        op: function
        for op, function in _core_aten_decompositions_post_autograd().items()
        if isinstance(op, torch._ops.OpOverload) and not has_kernel(op)
    }
    return theirs | attention.decompositions()
