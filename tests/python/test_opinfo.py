"""Checklist row 24: PyTorch's own operator samples, forward and backward, against the CPU.

Every entry of op_db runs with a bounded number of its samples in fp32 and bf16. Values must agree whether the operator
ran on the device or on the host; which ones may run on the host is listed in host_operators.txt, so that an operator
that has a lowering cannot lose it unnoticed."""

import warnings
from pathlib import Path

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import trnsim

SAMPLES = 3

HOST_OPERATORS = set((Path(__file__).parent / "host_operators.txt").read_text().split())

# _batch_norm_with_update: forward on the host keeps its statistics in bf16, which the backward on the device refuses.
# Not comparable with the CPU: uninitialised results, random numbers, code for other devices, layouts that do not exist
# here, and entries whose own arguments name a device or a storage of their own.
SKIPPED = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "uniform", "nn.functional.alpha_dropout", "nn.functional.dropout",
    "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "nn.functional.rrelu",
    "nn.functional.multi_head_attention_forward", "nn.functional.scaled_dot_product_attention.dropout",
    "pca_lowrank", "svd_lowrank", "linalg.eig",
    "jiterator_2inputs_2outputs", "jiterator_4inputs_with_extra_args", "jiterator_binary",
    "jiterator_binary_return_by_ref", "jiterator_unary",
    "_batch_norm_with_update", "sparse.mm", "sparse.sampled_addmm", "to_sparse", "as_strided", "tensor_split", "to",
}  # fmt: skip

# In bf16 one rounding moves these by a whole unit, or reorders equal values.
DISCONTINUOUS = {
    "argsort", "div", "floor_divide", "fmod", "histc", "msort", "remainder", "round", "sort", "topk", "kthvalue",
    "argmax", "argmin", "cummax", "cummin", "aminmax", "median", "nanmedian", "mode", "nn.functional.grid_sample",
}  # fmt: skip


def full_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def moved(value):
    if isinstance(value, torch.Tensor):
        result = value.detach().to("neuron")
        return result.requires_grad_() if value.requires_grad else result
    if isinstance(value, (list, tuple)):
        return type(value)(moved(v) for v in value)
    if isinstance(value, dict):
        return {k: moved(v) for k, v in value.items()}
    if isinstance(value, torch.device):
        return torch.device("neuron")
    return "neuron" if isinstance(value, str) and value == "cpu" else value


def widened(value):
    """The same bf16 numbers as fp32: the exact reference for a bf16 result."""
    if isinstance(value, torch.Tensor):
        wide = value.detach().float() if value.dtype == torch.bfloat16 else value.detach()
        return wide.requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(widened(v) for v in value)
    if isinstance(value, dict):
        return {k: widened(v) for k, v in value.items()}
    return torch.float32 if value is torch.bfloat16 else value


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v)]
    return []


def call(op, sample, convert):
    """Results and gradients of one sample."""
    inputs = [convert(v) for v in (sample.input, sample.args, sample.kwargs)]
    torch.manual_seed(0)
    results = tensors(op(inputs[0], *inputs[1], **inputs[2]))
    leaves = [t for t in tensors(inputs) if t.requires_grad]
    roots = [t for t in results if t.requires_grad]
    gradients = []
    if leaves and roots:
        torch.manual_seed(1)
        seeds = [torch.randn(t.shape, dtype=torch.float32).to(t.dtype).to(t.device) for t in roots]
        gradients = torch.autograd.grad(roots, leaves, seeds, allow_unused=True)
    return [t.detach().cpu() for t in results], [None if g is None else g.detach().cpu() for g in gradients]


def compare(got, expected, what, bf16_cpu=None):
    if expected is None or got is None:
        assert got is None and expected is None, what
        return
    if bf16_cpu is None:
        torch.testing.assert_close(
            got, expected, rtol=1e-4, atol=1e-4, equal_nan=True, check_stride=False, msg=lambda m: f"{what}: {m}"
        )
        return
    if not got.is_floating_point():
        assert got.shape == expected.shape
        return
    # As close to the exact value as the CPU's bf16 result, with room for another order of roundings.
    got, expected, bf16_cpu = got.float(), expected.float(), bf16_cpu.float()
    finite = torch.isfinite(expected) & torch.isfinite(bf16_cpu)
    if not finite.any():
        return
    scale = expected[finite].abs().max()
    allowed = 4 * (bf16_cpu - expected)[finite].abs().max() + 2e-2 * scale + 1e-3
    error = (got - expected)[finite].abs().max()
    assert error <= allowed, f"{what}: off by {error:.4g}, allowed {allowed:.4g} at a scale of {scale:.4g}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("op", op_db, ids=full_name)
def test_row_24_operator(op, dtype):
    if op.name in SKIPPED or full_name(op) in SKIPPED:
        pytest.skip("cannot be compared with the CPU")
    if dtype not in op.supported_dtypes("cpu"):
        pytest.skip("the CPU has no such kernel")
    bf16 = dtype == torch.bfloat16
    differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=differentiable))
    samples = samples[:: max(1, len(samples) // SAMPLES)][:SAMPLES]
    trnsim.reset_report()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in samples:
            try:
                cpu = call(op, sample, lambda v: v)
                exact = call(op, sample, widened) if bf16 else cpu
            except Exception:
                continue  # the CPU itself refuses
            got = call(op, sample, moved)
            if bf16 and op.name in DISCONTINUOUS:
                continue
            for part, g, e, c in zip(("result", "gradient"), got, exact, cpu, strict=True):
                assert len(g) == len(e)
                for i, (gi, ei, ci) in enumerate(zip(g, e, c, strict=True)):
                    compare(gi, ei, f"{part} {i} of {sample.summary()}"[:300], ci if bf16 else None)
    used_host = {row["op"]: row["reason"] for row in trnsim.fallbacks()}
    if used_host:
        assert op.name in HOST_OPERATORS, f"fell back to the host: {used_host}"
        pytest.skip(f"values agree; runs on the host: {', '.join(used_host)}")


def test_every_row_of_the_table_is_registered_or_composite():
    """A lowering that no PyTorch operator reaches is a typing error."""
    from trnsim import _C

    unknown = []
    for name in _C.lowered_ops():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        if not hasattr(torch.ops.aten, packet) or not hasattr(getattr(torch.ops.aten, packet), overload or "default"):
            unknown.append(name)
    assert unknown == []
