"""PyTorch's own operator samples (OpInfo) on the device against the CPU (opinfo_cases.py).

Every entry of op_db: forward and backward in float32 and bfloat16, forward in int64 and bool, in-place and out= forms,
non-contiguous, empty and 0-d tensors, and inputs that must be refused with the CPU's class of exception. An operator
with a lowering must not run on the host, and host_operators.txt names the entries that need the host at all, so that
nothing loses its program unnoticed. Values have to agree wherever they were computed: no entry is skipped for them.
"""

import re
from pathlib import Path

import opinfo_cases as cases
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

torch.set_num_threads(1)

# Random, or undefined until written: shapes and types are compared, values are not (test_random.py has the moments).
NO_VALUES = {
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "uniform",
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
    "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    "nn.functional.rrelu",
    "nn.functional.multi_head_attention_forward",  # its one sample drops half of the weights
    "pca_lowrank", "svd_lowrank",  # start from a random matrix
}  # fmt: skip

# (operator, type): (relative, absolute) tolerance where PyTorch's default is below what rounding allows, and why. The
# default is 1.3e-6, 1e-5 in float32 and 1.6e-2, 1e-5 in bfloat16, against the CPU's result or the float64 one; the
# CPU's own error is allowed twice in any case (opinfo_cases.difference).
LOOSENED = {
    ("div", torch.float32): (5e-6, 1e-5),  # gradient of the divisor: terms of both signs, 100 times their sum
    ("true_divide", torch.float32): (5e-6, 1e-5),  # the same operator
    ("nn.functional.normalize", torch.bfloat16): (1.6e-2, 5e-2),  # gradient: the difference of two equal products
    # PyTorch chooses float16 for the sums over chunks
    ("nn.functional.linear_cross_entropy", torch.float16): (1e-3, 2e-3),
}

# Why a lowered operator may run on the host all the same: operator, pattern of the counted reason.
UNSUPPORTED = [
    (r"", r"^the hardware has no (Complex\w+|UInt64) type$"),
    (r"", r"^a lazily conjugated or negated operand$"),  # arises from complex tensors
    (r"scatter", r"reduce='(prod|amin|amax|multiply)'"),  # the DMA engines accumulate sums only
    (r"searchsorted", r"a sorter$"),
    (r"convolution", r"convolution of \w+ tensors"),  # the tensor engine multiplies floating point only
    (r"_native_batch_norm_legit", r"^no shape function for these arguments$"),  # out=: PyTorch has none
]

# Results that differ by design, and what is left to compare of them: the number of leading results.
LEADING_RESULTS = {
    # Saved statistics are float32 for every type and full-sized, as on every accelerator; on the CPU they are not.
    "native_layer_norm": 1, "native_batch_norm": 1, "_native_batch_norm_legit": 1, "_batch_norm_with_update": 1,
}  # fmt: skip

# (operator, form) or (operator, form, type): what PyTorch itself, or a limit that the documentation states, rules out.
REFUSED = {
    ("to_sparse", "values"): "the device has no sparse tensors",
    ("mode", "out"): "PyTorch wants a CPU, CUDA or XPU tensor",
    ("narrow_copy", "out"): "runs on the host, where PyTorch writes a strided out= as if it were contiguous",
    ("masked.amax", "values", "int64"): "the smallest int64 of an empty row does not survive 32 bits",
    ("masked.amin", "values", "int64"): "the largest int64 of an empty row does not survive 32 bits",
    ("masked.logsumexp", "values", "int64"): "the smallest int64 of an empty row does not survive 32 bits",
}

HOST_OPERATORS = set((Path(__file__).parent / "host_operators.txt").read_text().split())


def full_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def short_name(dtype):
    return str(dtype).removeprefix("torch.")


def entries(dtypes, wanted=lambda op: True, slow=()):
    return [
        pytest.param(op, dtype, id=f"{full_name(op)}-{short_name(dtype)}", marks=[pytest.mark.slow] * (dtype in slow))
        for dtype in dtypes
        for op in op_db
        if wanted(op) and dtype in op.supported_dtypes("cpu")
    ]


def excused(row):
    return any(
        re.search(operator, row["op"].removeprefix("aten::")) and re.search(reason, row["reason"])
        for operator, reason in UNSUPPORTED
    )


def judge(op, form, dtype, found, record_property):
    record_property("entry", full_name(op))
    reason = REFUSED.get((op.name, form)) or REFUSED.get((op.name, form, short_name(dtype)))
    if reason:
        assert found, f"{op.name} works now: take it from REFUSED"
        pytest.skip(reason)
    host = [row for row in cases.host_runs() if not excused(row)] if form != "errors" else []
    for row in host:
        if row["lowered"] or not HOST_OPERATORS & {op.name, full_name(op)}:
            found.append(("fallback", f"{row['op']}: {row['reason']}"))
    record_property("host", ",".join(row["op"] for row in host))
    record_property("kinds", ",".join(sorted({kind for kind, _ in found})))
    assert not found, "\n".join(f"{kind}: {text}" for kind, text in found)


def run(check, op, dtype, limit, form, record_property):
    found = check(
        op,
        dtype,
        limit,
        tolerance=LOOSENED.get((op.name, dtype)),
        values=op.name not in NO_VALUES,
        leading=LEADING_RESULTS.get(op.name),
    )
    judge(op, form, dtype, found, record_property)


@pytest.mark.parametrize(
    "op, dtype",
    entries(
        [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float16, torch.int32, torch.uint8],
        slow={torch.float16, torch.int32, torch.uint8},
    ),
)
def test_values_and_gradients(op, dtype, record_property):
    run(cases.check_values, op, dtype, 5, "values", record_property)


@pytest.mark.parametrize(
    "op, dtype", entries([torch.float32, torch.bfloat16], lambda op: op.get_inplace(), slow={torch.bfloat16})
)
def test_in_place(op, dtype, record_property):
    run(cases.check_in_place, op, dtype, 4, "in_place", record_property)


@pytest.mark.parametrize(
    "op, dtype", entries([torch.float32, torch.bfloat16], lambda op: op.supports_out, slow={torch.bfloat16})
)
def test_out(op, dtype, record_property):
    run(cases.check_out, op, dtype, 3, "out", record_property)


@pytest.mark.parametrize("op", [pytest.param(op, id=full_name(op)) for op in op_db if op.error_inputs_func])
def test_wrong_inputs_are_refused(op, record_property):
    judge(op, "errors", torch.float32, cases.check_errors(op), record_property)


def test_every_row_of_the_table_is_an_operator():
    """A lowering that no PyTorch operator reaches is a typing error."""
    unknown = []
    for name in cases.LOWERED_OVERLOADS:
        packet, _, overload = name.removeprefix("aten::").partition(".")
        if not hasattr(torch.ops.aten, packet) or not hasattr(getattr(torch.ops.aten, packet), overload or "default"):
            unknown.append(name)
    assert unknown == []
