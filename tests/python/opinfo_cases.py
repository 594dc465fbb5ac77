"""Runs PyTorch's own operator samples (OpInfo) on the device and on the CPU, and says how they differ.

A finding is ``(kind, text)``; the kinds are "wrong" (values, shape, type), "fallback" (an operator that has a lowering
ran on the host) and "error" (the device refused what the CPU computes, or the other way round).
"""

from __future__ import annotations

import contextlib
import itertools
import random
import warnings

import numpy as np
import torch
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils import _pytree as pytree

import trnsim
from trnsim import _C

DEVICE = "neuron"
NOT_LOWERED = "no lowering for this operator"
MAX_ELEMENTS = 60_000  # a sample with more is left out: the point here is breadth


def base_name(operator: str) -> str:
    """aten::add_.Tensor -> aten::add"""
    base = operator.split(".")[0]
    return base if base.endswith("__") else base.rstrip("_")


# Arguments after the first that PyTorch wants on the CPU for every device.
HOST_ARGUMENTS = {"tensor_split"}

# Which of equal elements comes first is open: the position of `dim` among the arguments, and whether it may be missing.
TIES = {"argsort": 0, "kthvalue": 1, "mode": 0, "msort": None, "sort": 0, "topk": 1}

# Decompositions whose vectors have no sign of their own; their samples bring a function of what does not depend on it.
UP_TO_SIGN = {"linalg.eigh", "linalg.svd", "svd"}

# Where a function has a pole, the CPU's kernel returns an infinity or what rounding leaves of it.
POLES = {name: lambda x: (x <= 0) & (x == x.trunc()) for name in ("polygamma", "special.polygamma")}  # of floats

LOWERED_OVERLOADS = list(_C.lowered_ops())
LOWERED = {base_name(name) for name in LOWERED_OVERLOADS}


# ---- samples -----------------------------------------------------------------------------------------------------
def seed_everything(seed=0):
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def tensors_of(tree):
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def parts(sample):
    return (sample.input, sample.args, sample.kwargs)


def chosen_samples(op, dtype, requires_grad, limit):
    """A bounded choice: the first sample, an empty one, one of 0-d tensors, the rest spread over the list."""
    seed_everything()
    samples = []
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=requires_grad), 120):
        tensors = tensors_of(parts(sample))
        if any(t.layout != torch.strided or (t.is_complex() and not dtype.is_complex) for t in tensors):
            continue
        if sum(t.numel() for t in tensors) <= MAX_ELEMENTS:
            samples.append(sample)
    if len(samples) <= limit:
        return samples
    picked = [0]
    for wanted in (lambda t: t.numel() == 0, lambda t: t.dim() == 0):
        match = [i for i, s in enumerate(samples) if i not in picked and any(map(wanted, tensors_of(s.input)))]
        picked += match[:1]
    for i in np.linspace(len(samples) - 1, 1, limit).astype(int).tolist():
        if len(picked) < limit and i not in picked:
            picked.append(i)
    return [samples[i] for i in sorted(picked)]


def twin(t, device):
    """The same tensor in other memory: same strides, also when they overlap or have gaps."""
    base = t.detach()
    if base.layout != torch.strided or base.is_conj() or base.is_neg():
        copy = base.clone().to(device)
    elif base.numel() == 0:
        copy = torch.empty_strided(base.size(), base.stride(), dtype=base.dtype, device=device)
    elif base.is_contiguous():
        copy = base.clone().to(device)
    else:
        extent = base.storage_offset() + 1 + sum((n - 1) * s for n, s in zip(base.size(), base.stride(), strict=True))
        memory = torch.as_strided(base, (extent,), (1,), 0).clone().to(device)
        copy = torch.as_strided(memory, base.size(), base.stride(), base.storage_offset())
    return copy.requires_grad_(t.requires_grad)


def mapped(sample, function):
    """The sample with every leaf replaced."""
    moved = pytree.tree_map(function, parts(sample))
    result = SampleInput(moved[0], args=tuple(moved[1]), kwargs=moved[2])
    result.output_process_fn_grad = sample.output_process_fn_grad
    result.broadcasts_input = sample.broadcasts_input
    return result


def device_sample(op, sample):
    def move(leaf):
        if isinstance(leaf, torch.Tensor):
            stays = op.name in HOST_ARGUMENTS and leaf is not sample.input
            return twin(leaf, "cpu" if stays else DEVICE)
        if isinstance(leaf, torch.device) or leaf == "cpu":
            return torch.device(DEVICE)
        return leaf

    return mapped(sample, move)


def cpu_sample(sample):
    """Fresh leaves, so that in-place calls and gradients of one run do not reach the next."""

    return mapped(sample, lambda leaf: twin(leaf, "cpu") if isinstance(leaf, torch.Tensor) else leaf)


def double_sample(sample):
    """The same values in 64 bits: the reference that neither side's rounding has touched."""
    return with_floats_as(sample, torch.float64)


def with_floats_as(sample, dtype):
    def convert(leaf):
        if isinstance(leaf, torch.Tensor) and leaf.is_complex():
            return leaf.detach().to(dtype.to_complex()).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            return leaf.detach().to(dtype).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.dtype) and leaf.is_floating_point:
            return dtype
        return leaf

    return mapped(sample, convert)


def second_reference(sample, dtype):
    """What the CPU computes is judged by its result in 64 bits; float64, which the device computes as float32, by that
    in 32 bits, which starts from operands that are rounded as the device's are."""
    return with_floats_as(sample, torch.float32 if dtype == torch.float64 else torch.float64)


# ---- comparison --------------------------------------------------------------------------------------------------
DEFAULT_TOLERANCE = {
    torch.float32: (1.3e-6, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.float64: (1.3e-6, 1e-5),  # it is computed as float32
}
# Beyond this part of the largest element the CPU's own error is no measure: the result is discontinuous or random.
OWN_ERROR_LIMIT = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def outside(actual, expected, rtol, atol):
    """Elements that differ, as a mask. NaN equals NaN, an infinity equals itself."""
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    return ~(same | ((actual - expected).abs() <= atol + rtol * expected.abs()))


def difference(actual, expected, second, tolerance=None):
    """None, or how the device's tensor differs. `second` is the CPU's result in float64 (float64: in float32), or None.

    An element is right when it is within the tolerance of the CPU's result, or of the float64 result, or when it is no
    further from the float64 result than twice the CPU's own largest error in this tensor. Of float64 the CPU's result
    in float32 takes the place of the former.
    """
    if actual.shape != expected.shape:
        return f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    if actual.dtype != expected.dtype:
        return f"type {actual.dtype}, expected {expected.dtype}"
    if actual.numel() == 0:
        return None
    if not expected.is_floating_point():
        bad = actual != expected
    else:
        rtol, atol = DEFAULT_TOLERANCE.get(expected.dtype, (1.3e-6, 1e-5))
        if tolerance is not None:
            rtol, atol = max(rtol, tolerance[0]), max(atol, tolerance[1])
        usable = second is not None and second.shape == expected.shape and second.is_floating_point()
        exact = second.double() if usable else None
        if expected.dtype == torch.float64:
            actual, exact = actual.float(), expected
            expected = second.float() if usable else expected.float()
        bad = outside(actual.double(), expected.double(), rtol, atol)
        if bad.any() and exact is not None:
            finite = torch.isfinite(exact) & torch.isfinite(expected)
            own, largest = 0.0, 0.0
            if finite.any():
                own = (expected.double() - exact)[finite].abs().max().item()
                largest = exact[finite].abs().max().item()
            own = min(own, largest * OWN_ERROR_LIMIT.get(expected.dtype, 1e-4))
            bad &= outside(actual.double(), exact, rtol, max(atol, 2 * own))
    if not bad.any():
        return None
    where = tuple(bad.nonzero()[0].tolist())
    return (
        f"{int(bad.sum())} of {bad.numel()} differ, first at {where}: {actual[where].item()!r}, "
        f"expected {expected[where].item()!r}"
    )


def same_choice(op, sample, actual, expected):
    """Whether two results of indices choose equal elements."""
    position = TIES[op.name]
    dim = sample.kwargs.get("dim", -1)
    if len(sample.args) > position and not isinstance(sample.args[position], bool):
        dim = sample.args[position]
    source = sample.input.detach()
    if source.dim() == 0:
        return torch.equal(actual, expected)
    if actual.dim() < source.dim():
        actual, expected = actual.unsqueeze(dim), expected.unsqueeze(dim)
    return bool((actual >= 0).all() and (actual < source.shape[dim]).all()) and torch.equal(
        source.gather(dim, actual), source.gather(dim, expected)
    )


def head(results, count):
    return results[:count] if count is not None and isinstance(results, (list, tuple)) else results


def ties(op, sample):
    if TIES.get(op.name) is None:
        return None
    return lambda actual, expected: same_choice(op, sample, actual, expected)


def pairs(t):
    return torch.view_as_real(t.detach().resolve_conj())


def comparable(op, sample, result):
    """What is unique of a result: vectors of decompositions are so up to their sign only; at a pole there is none."""
    if result is not None and op.name in POLES:
        at_pole = POLES[op.name](sample.input.detach().float())

        def without_poles(t):
            return t.masked_fill(at_pole.to(t.device), 0) if t.shape == at_pole.shape else t

        return pytree.tree_map_only(torch.Tensor, without_poles, result)
    unique = sample.output_process_fn_grad
    return unique(result) if op.name in UP_TO_SIGN and unique is not None else result


def with_near_ones_replaced(actual, expected, tolerance):
    """A loosened tolerance of complex numbers is one of distances in the plane, relative to the modulus."""
    if tolerance is None or actual.shape != expected.shape or actual.dtype != expected.dtype:
        return actual
    actual, expected = actual.detach().cpu().resolve_conj(), expected.detach().resolve_conj()
    near = (actual - expected).abs() <= tolerance[1] + tolerance[0] * expected.abs()
    return torch.where(near, expected, actual)


def compare_trees(actual, expected, second, what, tolerance, values=True, same_indices=None):
    """Findings for two results of the same structure."""
    found = []
    actual_leaves, expected_leaves = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    second_leaves = pytree.tree_leaves(second) if second is not None else []
    if len(second_leaves) != len(expected_leaves):
        second_leaves = [None] * len(expected_leaves)
    if len(actual_leaves) != len(expected_leaves):
        return [("wrong", f"{what}: {len(actual_leaves)} results, expected {len(expected_leaves)}")]
    for i, (a, e, x) in enumerate(zip(actual_leaves, expected_leaves, second_leaves, strict=True)):
        if not isinstance(e, torch.Tensor):
            if values and not (a == e or (isinstance(e, float) and (a != a) == (e != e) and abs(a - e) < 1e-5)):
                found.append(("wrong", f"{what}: {a!r}, expected {e!r}"))
            continue
        if not isinstance(a, torch.Tensor):
            found.append(("wrong", f"{what}: result {i} is {type(a).__name__}, expected a tensor"))
            continue
        if a.device.type != DEVICE and e.device.type == "cpu" and e.dim() > 0:
            found.append(("wrong", f"{what}: result {i} is on {a.device}"))
        if e.layout != torch.strided:
            continue
        loosened = tolerance
        if e.is_complex() and a.is_complex():  # a pair of real numbers, each with its own tolerance
            a, loosened = with_near_ones_replaced(a, e, tolerance), None
            a, e = pairs(a), pairs(e)
            x = pairs(x) if isinstance(x, torch.Tensor) and x.is_complex() else None
        if not values:
            if a.shape != e.shape or a.dtype != e.dtype:
                found.append(
                    ("wrong", f"{what}: result {i} is {a.dtype}{list(a.shape)}, expected {e.dtype}{list(e.shape)}")
                )
            continue
        if same_indices is not None and e.dtype == torch.int64 and a.shape == e.shape and same_indices(a.cpu(), e):
            continue
        text = difference(a.detach().cpu(), e.detach(), x.detach() if isinstance(x, torch.Tensor) else None, loosened)
        if text:
            found.append(("wrong", f"{what}: result {i}: {text}"))
    return found


# ---- running -----------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def describe(sample):
    def short(leaf):
        if isinstance(leaf, torch.Tensor):
            text = f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
            return text if leaf.is_contiguous() else f"{text}/{list(leaf.stride())}"
        return leaf

    args = pytree.tree_map(short, parts(sample))
    return f"({args[0]}, {', '.join(map(str, args[1]))}{', ' if args[1] and args[2] else ''}{args[2] or ''})"[:300]


def worded(error):
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


def attempt(function):
    """(result, None) or (None, exception)"""
    try:
        return function(), None
    except Exception as error:  # any class: it is compared
        return None, error


def host_runs():
    """What ran on the host since the last reset: rows of trnsim.fallbacks(), each with whether it has a lowering."""
    rows = trnsim.fallbacks()
    for row in rows:
        row["lowered"] = row["reason"] != NOT_LOWERED or base_name(row["op"]) in LOWERED
    return rows


def float_outputs(result, sample):
    if sample.output_process_fn_grad is not None:
        result = sample.output_process_fn_grad(result)
    return [t for t in tensors_of(result) if t.requires_grad]


def gradients(result, sample, cotangents):
    """Gradients of every leaf that wants one; a leaf that got none is None."""
    outputs = float_outputs(result, sample)
    leaves = [t for t in tensors_of(parts(sample)) if t.requires_grad]
    if not outputs or not leaves:
        return None
    given = [c.to(device=o.device, dtype=o.dtype) for c, o in zip(cotangents, outputs, strict=True)]
    return torch.autograd.grad(outputs, leaves, given, allow_unused=True)


def random_cotangents(result, sample):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(t.shape, generator=generator).to(t.dtype) for t in float_outputs(result, sample)]


def run_sample(op, sample, dtype, backward, tolerance, values, leading, label):
    """Findings of one sample: forward, and backward when asked."""
    what = f"{label} {describe(sample)}"
    reference = cpu_sample(sample)
    expected, error = attempt(lambda: op(reference.input, *reference.args, **reference.kwargs))
    if error is not None:
        return []  # a sample that the CPU does not take proves nothing
    values = values and not sample.kwargs.get("dropout_p")
    subject = device_sample(op, sample)
    if not tensors_of(parts(subject)) and "device" not in subject.kwargs:
        actual, error = attempt(lambda: op(subject.input, *subject.args, **subject.kwargs, device=DEVICE))
        if isinstance(error, TypeError):  # no factory
            return []
    else:
        actual, error = attempt(lambda: op(subject.input, *subject.args, **subject.kwargs))
    if error is None:
        _, error = attempt(lambda: torch.neuron.synchronize())
    if error is not None:
        return [("error", f"{what}: {worded(error)}")]
    precise = second_reference(sample, dtype)
    exact = attempt(lambda: op(precise.input, *precise.args, **precise.kwargs))[0] if values else None
    found = compare_trees(
        head(comparable(op, sample, actual), leading),
        head(comparable(op, sample, expected), leading),
        head(comparable(op, sample, exact), leading) if exact is not None else None,
        what,
        tolerance,
        values,
        ties(op, sample),
    )
    if not backward or found or (op.name in TIES and sample.input.dtype != torch.float32):
        return found
    cotangents = random_cotangents(expected, reference)
    wanted, error = attempt(lambda: gradients(expected, reference, cotangents))
    if error is not None or wanted is None:
        return found
    got, error = attempt(lambda: gradients(actual, subject, cotangents))
    if error is None:
        _, error = attempt(lambda: torch.neuron.synchronize())
    if error is not None:
        return [("error", f"{what} backward: {worded(error)}")]
    truth = None
    if exact is not None:
        truth, _ = attempt(lambda: gradients(exact, precise, cotangents))
    if truth is not None:
        truth = [torch.zeros(()) if t is None else t for t in truth]
    return compare_trees(
        [torch.zeros((), device=DEVICE) if t is None else t for t in got],
        [torch.zeros(()) if t is None else t for t in wanted],
        truth,
        what + " backward",
        tolerance,
        values,
    )


def check_values(op, dtype, limit, tolerance=None, values=True, leading=None):
    """Forward and, where the type has gradients, backward; then the first samples again with non-contiguous tensors."""
    found = []
    backward = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    backward = backward and (dtype.is_floating_point or dtype.is_complex)
    with quiet():
        trnsim.reset_report()
        samples = chosen_samples(op, dtype, backward, limit)
        for sample in samples:
            found += run_sample(op, sample, dtype, backward, tolerance, values, leading, "sample")
        strided = [s for s in samples if any(t.numel() > 1 for t in tensors_of(parts(s)))][:2]
        for sample in strided:
            sample, error = attempt(sample.noncontiguous)
            if error is None:
                found += run_sample(op, sample, dtype, backward, tolerance, values, leading, "strided")
    return found


# ---- in-place and out= -------------------------------------------------------------------------------------------
def check_in_place(op, dtype, limit, tolerance=None, values=True, leading=None):
    inplace = op.get_inplace()
    found = []
    with quiet():
        trnsim.reset_report()
        samples = [s for s in chosen_samples(op, dtype, False, limit) if not s.broadcasts_input]
        samples += [s.noncontiguous() for s in samples[:2] if isinstance(s.input, torch.Tensor) and s.input.numel() > 1]
        for sample in samples:
            if not isinstance(sample.input, torch.Tensor):
                continue
            what = f"in-place {describe(sample)}"

            def run(side, sample=sample):
                return inplace(side.input, *side.args, **side.kwargs)

            subject = device_sample(op, sample)
            reference = cpu_sample(sample)
            expected, cpu_error = attempt(lambda: run(reference))  # noqa: B023
            actual, error = attempt(lambda: run(subject))  # noqa: B023
            if cpu_error is not None or error is not None:
                if type(cpu_error) is not type(error):
                    found.append(("error", f"{what}: {error!r:.300}, expected {cpu_error!r:.200}"))
                continue
            if actual is not subject.input:
                found.append(("wrong", f"{what}: the result is another tensor"))
            precise = double_sample(sample)
            exact, _ = attempt(lambda: op(precise.input, *precise.args, **precise.kwargs))  # noqa: B023
            found += compare_trees(subject.input, expected, exact, what, tolerance, values)
    return found


def out_layouts(expected):
    """Result tensors to write to: name -> function from the expected tensor to one on the device."""

    def poisoned(t):
        return t.fill_(float("nan") if t.is_floating_point() else 1) if t.numel() else t

    def contiguous(e):
        return poisoned(torch.empty(e.shape, dtype=e.dtype, device=DEVICE))

    def gaps(e):
        if e.dim() == 0:
            return contiguous(e)
        wide = torch.empty((*e.shape[:-1], e.shape[-1] * 2 + 1), dtype=e.dtype, device=DEVICE)
        return poisoned(wide)[..., 1::2]

    def to_resize(e):
        return torch.empty(0, dtype=e.dtype, device=DEVICE)

    return {"contiguous": contiguous, "with gaps": gaps, "empty": to_resize}


def check_out(op, dtype, limit, tolerance=None, values=True, leading=None):
    found = []
    with quiet():
        trnsim.reset_report()
        for sample in chosen_samples(op, dtype, False, limit):
            reference = cpu_sample(sample)
            expected, error = attempt(lambda: op(reference.input, *reference.args, **reference.kwargs))  # noqa: B023
            leaves = [expected] if isinstance(expected, torch.Tensor) else expected
            if error is not None or not isinstance(leaves, (list, tuple)) or not leaves:
                continue
            if not all(isinstance(e, torch.Tensor) and e.layout == torch.strided for e in leaves):
                continue
            precise = double_sample(sample)
            exact, _ = attempt(lambda: op(precise.input, *precise.args, **precise.kwargs))  # noqa: B023
            for layout, make in out_layouts(leaves).items():
                what = f"out= {layout} {describe(sample)}"
                outs = tuple(make(e) for e in leaves)
                subject = device_sample(op, sample)
                out = outs[0] if isinstance(expected, torch.Tensor) else outs
                pointers = [o.data_ptr() for o in outs]
                _, error = attempt(lambda: op(subject.input, *subject.args, **subject.kwargs, out=out))  # noqa: B023
                if error is not None:
                    twins = tuple(torch.empty_strided(o.size(), o.stride(), dtype=o.dtype) for o in outs)
                    twins = twins[0] if isinstance(expected, torch.Tensor) else twins
                    _, cpu_error = attempt(
                        lambda: op(reference.input, *reference.args, **reference.kwargs, out=twins)  # noqa: B023
                    )
                    if type(cpu_error) is not type(error):
                        found.append(("error", f"{what}: {worded(error)}"))
                    continue
                unique = [comparable(op, sample, r) if r is not None else None for r in (outs, leaves, exact)]
                found += compare_trees(
                    head(unique[0], leading),
                    head(unique[1], leading),
                    head(unique[2], leading),
                    what,
                    tolerance,
                    values,
                    ties(op, sample),
                )
                if layout != "empty" and pointers != [o.data_ptr() for o in outs]:
                    found.append(("wrong", f"{what}: the memory of out= was replaced"))
    return found


# ---- error inputs ------------------------------------------------------------------------------------------------
def check_errors(op):
    """What OpInfo calls wrong has to raise the same class of exception as on the CPU."""
    found = []
    with quiet():
        seed_everything()
        on_cpu, error = attempt(lambda: list(op.error_inputs("cpu")))
        seed_everything()
        here, error_here = attempt(lambda: list(op.error_inputs(DEVICE)))
        if error is not None or error_here is not None:
            return [("error", f"making error inputs: {error_here!r:.300}")] if error is None else []
        if len(on_cpu) != len(here):
            on_cpu = [None] * len(here)
        for cpu_input, device_input in zip(on_cpu, here, strict=True):
            if cpu_input is not None:
                s = cpu_input.sample_input
                _, cpu_error = attempt(lambda: op(s.input, *s.args, **s.kwargs))  # noqa: B023
                if cpu_error is None:
                    continue
            s = device_input.sample_input

            def run(s=s):
                result = op(s.input, *s.args, **s.kwargs)
                torch.neuron.synchronize()
                return result

            _, error = attempt(run)
            wanted = device_input.error_type
            if error is None:
                found.append(
                    ("error", f"accepted {describe(s)}; expected {wanted.__name__}: {device_input.error_regex[:120]}")
                )
            elif not isinstance(error, wanted):
                found.append(("error", f"{describe(s)} raised {error!r:.200}; expected {wanted.__name__}"))
    return found
