"""PyTorch's own databases of operators, foreach functions, modules and optimizers on the device against the CPU.

conformance_cases.py makes the cases: forward and backward, in-place and out= forms, non-contiguous, empty and 0-d
tensors, and inputs that must be refused with the CPU's class of exception. Values have to agree wherever they were
computed. What conformance.txt names ran without the host before, and must again; an operator with a lowering must not
run there at all.
"""

import conformance_cases as conformance
import opinfo_cases
import pytest
import torch

torch.set_num_threads(1)

FROZEN = conformance.read_frozen()
# (group, form) -> the types of the quick half, and those of the slow one.
TYPES = {
    ("operators", "values"): (
        {torch.float32, torch.bfloat16, torch.int64, torch.bool},
        {torch.float16, torch.int32, torch.uint8, torch.complex64},
    ),
    ("operators", "in_place"): ({torch.float32}, {torch.bfloat16}),
    ("operators", "out"): ({torch.float32}, {torch.bfloat16}),
    ("operators", "errors"): ({None}, set()),
    ("foreach", "values"): ({torch.float32}, {torch.bfloat16, torch.int64}),
    ("modules", "training"): ({torch.float32}, {torch.bfloat16, torch.float16}),
    ("optimizers", "steps"): ({torch.float32}, {torch.bfloat16}),
}


def parameters():
    for case in conformance.all_cases():
        quick, slow = TYPES[case.group, case.form]
        if case.dtype in quick | slow:
            yield pytest.param(case, id=str(case), marks=[pytest.mark.slow] * (case.dtype in slow))


@pytest.mark.parametrize("case", parameters())
def test_case(case):
    outcome = conformance.run_case(case)
    if outcome.result == "skipped":
        pytest.skip(outcome.detail)
    assert outcome.result not in ("wrong", "error"), outcome.detail
    assert not outcome.unexcused, outcome.unexcused
    if str(case) in FROZEN:
        assert outcome.result == "native" or outcome.excused_only, f"ran without the host before: {outcome.detail}"


def test_every_row_of_the_table_is_an_operator():
    """A lowering that no PyTorch operator reaches is a typing error."""
    unknown = []
    for name in opinfo_cases.LOWERED_OVERLOADS:
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        operators = getattr(torch.ops, namespace)
        if not hasattr(operators, packet) or not hasattr(getattr(operators, packet), overload or "default"):
            unknown.append(name)
    assert unknown == []


def test_the_frozen_list_names_cases():
    names = {str(case) for case in conformance.all_cases()}
    assert sorted(FROZEN - names) == []
