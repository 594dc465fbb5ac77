"""PyTorch's test databases (operators, foreach functions, modules, optimizers) as cases with one result each.

A case is ``group/entry/form/dtype``. Its result is "native" (right, and nothing ran on the host), "fallback" (right,
with the host's help, named), "wrong", "error" (refused here, or accepted here alone) or "skipped" with the reason.
conformance.txt holds the native cases, and those that need the host only for a reason in UNSUPPORTED: the tests keep
them so, and ``tools/conformance --freeze`` adds new native ones.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from pathlib import Path

import module_cases
import opinfo_cases
import torch
from torch.testing._internal import common_methods_invocations as invocations
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

FROZEN_FILE = Path(__file__).parent / "conformance.txt"

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
    ("special.i0e", torch.bfloat16): (1.6e-2, 2e-3),  # gradient: the difference of two rounded results
    ("special.i0e", torch.float16): (1e-3, 5e-4),  # the same
    ("nn.functional.normalize", torch.bfloat16): (1.6e-2, 5e-2),  # gradient: the difference of two equal products
    # An angle of many turns, in the plane: the CPU's own complex64 is 3.2e-6 off, and knows complex128 for the former.
    ("float_power", torch.complex64): (4e-6, 1e-5),
    ("_foreach_pow", torch.complex64): (1e-5, 1e-5),  # and its gradient
    # PyTorch chooses float16 for the sums over chunks
    ("nn.functional.linear_cross_entropy", torch.float16): (1e-3, 2e-3),
}

# Why a lowered operator may run on the host all the same: operator, pattern of the counted reason.
UNSUPPORTED = [
    (r"", r"^the hardware has no (Complex\w+|complex|UInt64) type$"),
    (r"", r"^a lazily conjugated or negated operand$"),  # arises from complex tensors
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
    ("fft.ihfft2", "out"): "PyTorch swaps operand and result where one dimension is transformed",
    ("fft.ihfftn", "out"): "PyTorch swaps operand and result where one dimension is transformed",
    ("_foreach_pow", "values", "int64"): "its powers do not fit 32 bits",
    ("matrix_exp", "values", "float16"): "float32 inside: what overflows ends as an infinity, not as NaN of half steps",
    ("masked.amax", "values", "int64"): "the smallest int64 of an empty row does not survive 32 bits",
    ("masked.amin", "values", "int64"): "the largest int64 of an empty row does not survive 32 bits",
    ("masked.logsumexp", "values", "int64"): "the smallest int64 of an empty row does not survive 32 bits",
}

NOT_COMPARED = {
    torch.complex32: "computed as complex64 is; the CPU lacks most of it",
    torch.complex128: "computed as complex64 is",
}

SAMPLES = {"values": 5, "in_place": 4, "out": 3}
_CHECKS = {
    "values": opinfo_cases.check_values,
    "in_place": opinfo_cases.check_in_place,
    "out": opinfo_cases.check_out,
}
FOREACH_DBS = ("unary", "binary", "pointwise", "reduce", "other")


@dataclass(frozen=True)
class Case:
    group: str
    entry: str
    form: str
    dtype: torch.dtype | None  # None: errors, which have none
    info: object = field(compare=False, repr=False)

    def __str__(self):
        return f"{self.group}/{self.entry}/{self.form}/{short_name(self.dtype)}"


@dataclass
class Outcome:
    result: str
    detail: str = ""
    unexcused: str = ""  # operators with a lowering that ran on the host, without an excuse
    excused_only: bool = False  # what ran on the host is in UNSUPPORTED


def short_name(dtype):
    return "any" if dtype is None else str(dtype).removeprefix("torch.")


def full_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def _operator_cases(group, op):
    dtypes = sorted(op.supported_dtypes("cpu"), key=str)
    yield from (Case(group, full_name(op), "values", dtype, op) for dtype in dtypes)
    if group == "foreach":
        return
    for form, offered in (("in_place", op.get_inplace()), ("out", op.supports_out)):
        if offered:
            yield from (Case(group, full_name(op), form, d, op) for d in dtypes if d in (torch.float32, torch.bfloat16))
    if op.error_inputs_func:
        yield Case(group, full_name(op), "errors", None, op)


@functools.cache
def all_cases() -> list[Case]:
    found = [case for op in invocations.op_db for case in _operator_cases("operators", op)]
    for name in FOREACH_DBS:
        for op in getattr(invocations, f"foreach_{name}_op_db"):
            found += _operator_cases("foreach", op)
    for info in module_db:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            found.append(Case("modules", info.name, "training", dtype, info))
    for info in optim_db:
        for dtype in (torch.float32, torch.bfloat16):
            found.append(Case("optimizers", info.optim_cls.__name__, "steps", dtype, info))
    return list(dict.fromkeys(found))


def _excused(row):
    return any(
        re.search(operator, row["op"].removeprefix("aten::")) and re.search(reason, row["reason"])
        for operator, reason in UNSUPPORTED
    )


def _findings(case):
    if case.group == "modules":
        return module_cases.check_module(case.info, case.dtype)
    if case.group == "optimizers":
        return module_cases.check_optimizer(case.info, case.dtype)
    op = case.info
    if case.form == "errors":
        return opinfo_cases.check_errors(op)
    return _CHECKS[case.form](
        op,
        case.dtype,
        SAMPLES[case.form],
        tolerance=LOOSENED.get((op.name, case.dtype)),
        values=op.name not in NO_VALUES,
        leading=LEADING_RESULTS.get(op.name),
    )


def run_case(case: Case) -> Outcome:
    if case.dtype in NOT_COMPARED:
        return Outcome("skipped", NOT_COMPARED[case.dtype])
    try:
        found = _findings(case)
    except module_cases.NothingToCompare as reason:
        return Outcome("skipped", str(reason))
    name = case.entry.split("/")[0] if case.group != "operators" else case.info.name
    refused = REFUSED.get((name, case.form)) or REFUSED.get((name, case.form, short_name(case.dtype)))
    if refused:
        if found:
            return Outcome("skipped", refused)
        return Outcome("error", f"{name} works now: take it from REFUSED")
    host = opinfo_cases.host_runs() if case.form != "errors" else []
    unexcused = ", ".join(f"{row['op']}: {row['reason']}" for row in host if row["lowered"] and not _excused(row))
    if found:
        result = "wrong" if any(kind == "wrong" for kind, _ in found) else "error"
        return Outcome(result, "\n".join(f"{kind}: {text}" for kind, text in found), unexcused)
    if host:
        names = ", ".join(sorted({row["op"] for row in host}))
        return Outcome("fallback", names, unexcused, excused_only=all(map(_excused, host)))
    return Outcome("native")


# ---- the frozen list -----------------------------------------------------------------------------------------------
def read_frozen() -> set[str]:
    """Names of the cases that were native. A line is ``group/entry/form: dtype dtype ..``."""
    names = set()
    for line in FROZEN_FILE.read_text().splitlines():
        head, _, dtypes = line.partition(": ")
        names.update(f"{head}/{dtype}" for dtype in dtypes.split())
    return names


def write_frozen(names: set[str]) -> None:
    lines = {}
    for name in names:
        head, _, dtype = name.rpartition("/")
        lines.setdefault(head, []).append(dtype)
    FROZEN_FILE.write_text("".join(f"{head}: {' '.join(sorted(lines[head]))}\n" for head in sorted(lines)))
