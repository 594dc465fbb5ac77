"""Random graphs of 2 to 40 operators: compiled, eager and on the CPU they have to give the same.

    python tools/fuzz_graphs.py --graphs 2000 --seed 0

A graph is a list of steps; each takes earlier values and makes one. What fails is shrunk to the fewest steps that still
fail and printed as a Python function.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
import time
import warnings
from dataclasses import dataclass, field

import torch

FLOATS = (torch.float32, torch.float32, torch.float32, torch.bfloat16)
INTS = (torch.int32, torch.int64, torch.uint8, torch.bool)


@dataclass
class Step:
    text: str  # an expression over v[...], torch and F
    operands: tuple[int, ...]


@dataclass
class Case:
    seed: int
    inputs: list[tuple[torch.Size, tuple[int, ...], torch.dtype]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    mutated: int = -1  # an input that the last step adds to
    backward: bool = False

    def tensors(self, device):
        generator = torch.Generator().manual_seed(self.seed)
        made = []
        for shape, strides, dtype in self.inputs:
            extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else 0
            if dtype == torch.bool:
                memory = torch.rand(extent, generator=generator) < 0.5
            elif dtype.is_floating_point:
                memory = torch.randn(extent, generator=generator).to(dtype)
            else:
                low = 0 if dtype == torch.uint8 else -5
                memory = torch.randint(low, 6, (extent,), generator=generator).to(dtype)
            t = torch.as_strided(memory.to(device), shape, strides)
            made.append(t.detach().requires_grad_() if self.backward and dtype.is_floating_point else t)
        return made

    def source(self):
        """The function as Python; it returns the values that no step uses."""
        n = len(self.inputs)
        used = {i for step in self.steps for i in step.operands}
        lines = [f"def f({', '.join(f'v{i}' for i in range(n))}):"]
        lines += [f"    v{n + i} = {step.text}" for i, step in enumerate(self.steps)]
        results = [i for i in range(n, n + len(self.steps)) if i not in used] or [n + len(self.steps) - 1]
        if self.mutated >= 0:
            lines.append(f"    v{self.mutated}.add_(1)")
        lines.append(f"    return [{', '.join(f'v{i}' for i in results)}]")
        return "\n".join(lines) + "\n"

    def function(self):
        space = {"torch": torch, "F": torch.nn.functional}
        exec(compile(self.source(), f"<graph {self.seed}>", "exec"), space)
        return space["f"]


class Builder:
    """Draws steps and runs them on the CPU, so that every operand's shape is known."""

    def __init__(self, seed, size):
        self.r = random.Random(seed)
        self.case = Case(seed, backward=self.r.random() < 0.3)
        self.values = []
        for _ in range(self.r.randint(1, 4)):
            self.add_input()
        for _ in range(200):
            if len(self.case.steps) >= size:
                break
            self.add_step()
        # Adding to an input that requires a gradient, or whose elements share memory, is an error of the caller.
        plain = [i for i, t in enumerate(self.values[: len(self.case.inputs)]) if t.dtype.is_floating_point]
        plain = [i for i in plain if 0 not in self.values[i].stride()]
        if plain and not self.case.backward and self.r.random() < 0.2:
            self.case.mutated = self.r.choice(plain)

    def add_input(self):
        r = self.r
        shape = [r.choice((1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 130)) for _ in range(r.choice((0, 1, 2, 2, 2, 3, 3, 4)))]
        if math.prod(shape) > 20_000:
            shape = shape[:2]
        if r.random() < 0.03 and shape:
            shape[r.randrange(len(shape))] = 0
        order = list(range(len(shape)))
        if r.random() < 0.3:
            r.shuffle(order)
        strides, step = [0] * len(shape), r.choice((1, 1, 1, 1, 2))
        for d in reversed(order):
            strides[d] = step
            step *= max(shape[d], 1) + (r.random() < 0.1)
        if shape and r.random() < 0.05:
            strides[r.randrange(len(shape))] = 0
        dtype = r.choice(FLOATS) if r.random() < 0.8 else r.choice(INTS)
        self.case.inputs.append((torch.Size(shape), tuple(strides), dtype))
        self.values = self.case.tensors("cpu")

    def pick(self, wanted=lambda t: True):
        found = [i for i, t in enumerate(self.values) if wanted(t)]
        if not found:
            return None
        # The last values are drawn more often, so that chains come out and not only bushes.
        return self.r.choice(found[-4:] if self.r.random() < 0.6 else found)

    def add_step(self):
        drawn = self.r.choice(STEPS)(self)
        if drawn is None:
            return
        text, operands = drawn
        space = {f"v{i}": t for i, t in enumerate(self.values)}
        try:
            value = eval(text, {"torch": torch, "F": torch.nn.functional}, space)
        except (RuntimeError, IndexError, TypeError, NotImplementedError):
            return
        if not isinstance(value, torch.Tensor) or value.dtype not in (*FLOATS, *INTS) or value.numel() > 40_000:
            return
        # What overflows proves nothing.
        largest = value.double().abs().max().item() if value.numel() else 0.0
        if not largest < (1e4 if value.dtype.is_floating_point else 2**20):
            return
        self.case.steps.append(Step(text, tuple(operands)))
        self.values.append(value)


def is_float(t):
    return t.dtype.is_floating_point


UNARY = (
    "sin", "cos", "tanh", "sigmoid", "exp", "neg", "abs", "relu", "square", "erf", "sign", "floor", "round",
    "log1p_abs", "sqrt_abs", "silu", "gelu", "softplus",
)  # fmt: skip


def unary(b):
    i = b.pick(is_float)
    if i is None:
        return None
    name = b.r.choice(UNARY)
    if name == "log1p_abs":
        return f"v{i}.abs().log1p()", [i]
    if name == "sqrt_abs":
        return f"(v{i}.abs() + 0.5).sqrt()", [i]
    if name in ("sign", "floor", "round"):  # the zeros and ones of a graph lie off the steps
        return f"(v{i} + 0.37).{name}()", [i]
    if name in ("silu", "gelu", "softplus"):
        return f"F.{name}(v{i})", [i]
    return f"v{i}.{name}()", [i]


def broadcastable(a, b):
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a), reversed(b), strict=False))


def binary(b):
    i = b.pick()
    if i is None:
        return None
    j = b.pick(lambda t: broadcastable(t.shape, b.values[i].shape))
    op = b.r.choice(["+", "-", "*", "+", "*", ">", "<=", "=="])
    if op == "-" and torch.bool in (b.values[i].dtype, b.values[j].dtype):
        return None
    return f"v{i} {op} v{j}", [i, j]


def with_number(b):
    i = b.pick()
    if i is None:
        return None
    op = b.r.choice(["+", "-", "*", "/"])
    number = b.r.choice(["2", "3", "0.5", "-1.25", "7"])
    if op == "-" and b.values[i].dtype == torch.bool:
        return None
    return f"v{i} {op} {number}", [i]


def select(b):
    c = b.pick(lambda t: t.dtype == torch.bool)
    i = b.pick(is_float)
    if c is None or i is None or not broadcastable(b.values[c].shape, b.values[i].shape):
        return None
    j = b.pick(lambda t: is_float(t) and broadcastable(t.shape, b.values[i].shape))
    return f"torch.where(v{c}, v{i}, v{j})", [c, i, j]


def reduction(b):
    i = b.pick(lambda t: t.dim() > 0 and is_float(t) and t.numel() > 0)
    if i is None:
        return None
    d = b.r.randrange(b.values[i].dim())
    keep = b.r.random() < 0.5
    name = b.r.choice(["sum", "mean", "amax", "amin", "sum"])
    return f"v{i}.{name}({d}, keepdim={keep})", [i]


def row_chain(b):
    i = b.pick(lambda t: t.dim() > 0 and is_float(t) and t.shape[-1] > 1)
    if i is None:
        return None
    n = b.values[i].shape[-1]
    return b.r.choice(
        [f"torch.softmax(v{i}, -1)", f"F.layer_norm(v{i}, ({n},))", f"torch.log_softmax(v{i}, -1)", f"v{i}.cumsum(-1)"]
    ), [i]


def view(b):
    i = b.pick(lambda t: t.dim() > 0)
    if i is None:
        return None
    t = b.values[i]
    d = b.r.randrange(t.dim())
    n = t.shape[d]
    kind = b.r.choice(["permute", "slice", "select", "expand", "flatten", "split", "unsqueeze", "step", "flip"])
    if kind == "permute":
        order = list(range(t.dim()))
        b.r.shuffle(order)
        return f"v{i}.permute({tuple(order)})", [i]
    if kind == "slice" and n > 1:
        low = b.r.randrange(n)
        return f"v{i}.narrow({d}, {low}, {b.r.randint(1, n - low)})", [i]
    if kind == "select" and n > 0:
        return f"v{i}.select({d}, {b.r.randrange(n)})", [i]
    if kind == "expand":
        return f"v{i}.unsqueeze({d}).expand({', '.join(['-1'] * d + ['3'] + ['-1'] * (t.dim() - d))})", [i]
    if kind == "flatten":
        return f"v{i}.reshape(-1)", [i]
    if kind == "split" and n % 2 == 0 and n > 0:
        return f"v{i}.unflatten({d}, (2, {n // 2}))", [i]
    if kind == "unsqueeze":
        return f"v{i}.unsqueeze({d})", [i]
    if kind == "step" and n > 2:
        return f"v{i}[{', '.join([':'] * d + ['1::2'])}]", [i]
    if kind == "flip":
        return f"v{i}.flip({d})", [i]
    return None


def matmul(b):
    i = b.pick(lambda t: is_float(t) and t.dim() >= 2)
    if i is None:
        return None
    a = b.values[i]
    j = b.pick(lambda t: t.dtype == a.dtype and t.dim() == 2 and a.shape[-1] in t.shape)
    if j is None:
        return None
    other = f"v{j}" if b.values[j].shape[0] == a.shape[-1] else f"v{j}.t()"
    return f"(v{i} @ {other}) * 0.25", [i, j]


def concatenate(b):
    i = b.pick(lambda t: t.dim() > 0)
    if i is None:
        return None
    t = b.values[i]
    j = b.pick(lambda o: o.dtype == t.dtype and o.shape == t.shape)
    return f"torch.{b.r.choice(['cat', 'stack'])}([v{i}, v{j}], {b.r.randrange(t.dim())})", [i, j]


def cast(b):
    i = b.pick()
    if i is None:
        return None
    wanted = b.r.choice([torch.float32, torch.float32, torch.bfloat16, torch.int32, torch.bool])
    if is_float(b.values[i]) and wanted == torch.int32:
        return f"(v{i} * 4).round().to({wanted})", [i]
    return f"v{i}.to({wanted})", [i]


def index(b):
    i = b.pick(lambda t: t.dim() > 0 and t.shape[0] > 0)
    if i is None:
        return None
    n = b.values[i].shape[0]
    rows = [b.r.randrange(n) for _ in range(b.r.randint(1, 6))]
    return f"v{i}.index_select(0, torch.tensor({rows}, device=v{i}.device))", [i]


def part(b):
    """Writes a part of a copy."""
    i = b.pick(lambda t: t.dim() > 0 and is_float(t) and t.shape[0] > 1)
    if i is None:
        return None
    n = b.values[i].shape[0]
    k = b.r.randrange(n)
    return b.r.choice(
        [f"v{i}.clone().select_scatter(v{i}[{n - 1 - k}] * 2, 0, {k})", f"torch.tril(v{i}.clone())", f"v{i}.clone()"]
    ), [i]


STEPS = [
    unary, unary, unary, binary, binary, binary, with_number, select, reduction, reduction, row_chain, view, view, view,
    matmul, matmul, concatenate, cast, index, part,
]  # fmt: skip


# ---- running
def run(case, device, compiled):
    function = case.function()
    if compiled:
        torch._dynamo.reset()
        function = torch.compile(function, backend="neuron", fullgraph=True)
    inputs = case.tensors(device)
    results = function(*inputs)
    out = [t.detach().cpu() for t in results]
    if case.backward:
        # A plain sum has no gradient through what normalises rows: nothing but rounding would be compared.
        wanted = [t.float().cpu() for t in results if t.requires_grad]
        if wanted:
            sum((t * torch.arange(t.numel()).reshape(t.shape).cos()).sum() for t in wanted).backward()
            out += [t.grad.cpu() if t.grad is not None else torch.zeros(()) for t in inputs if t.requires_grad]
    if case.mutated >= 0:
        out.append(inputs[case.mutated].detach().cpu())
    return out


def differs(actual, expected, loose):
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if a.shape != e.shape or a.dtype != e.dtype:
            return f"result {i} is {a.dtype}{list(a.shape)}, expected {e.dtype}{list(e.shape)}"
        if a.numel() == 0:
            continue
        if not a.dtype.is_floating_point:
            share = (a != e).float().mean().item()
            if share > (0.02 if loose else 0):  # comparisons of values that rounding has moved
                return f"result {i}: {share:.1%} of the elements differ"
            continue
        scale = e.float().abs().max().clamp_min(1).item()
        errors = (a.float() - e.float()).abs() / scale
        far = ~(errors <= (0.1 if loose else 2e-4))
        if far.float().mean().item() > (0.02 if loose else 0):  # values that rounding has moved over a step
            return f"result {i}: off by {errors.max().item():.2e} of the largest element"
    return None


def failure(case, against_cpu=True):
    """Why the graph fails; None when it does not, and "" when the CPU does not run it either."""
    loose = any("bfloat16" in s.text for s in case.steps) or any(d == torch.bfloat16 for _, _, d in case.inputs)
    rounded = loose or any(n in s.text for s in case.steps for n in ("floor", "round", "sign", ">", "<", "==", "int32"))
    try:
        expected = run(case, "cpu", False)
    except Exception:
        return ""
    try:
        eager = run(case, "neuron", False)
    except Exception as e:
        return f"eager: {type(e).__name__}: {str(e).splitlines()[0]}"
    try:
        actual = run(case, "neuron", True)
    except Exception as e:
        return f"compiled: {type(e).__name__}: {' | '.join(str(e).splitlines()[:3])}"
    text = differs(actual, eager, rounded)
    if text is not None:
        return f"compiled and eager: {text}"
    text = differs(eager, expected, rounded) if against_cpu else None
    return f"eager and CPU: {text}" if text is not None else None


def without(case, k):
    """The case without step k; whoever used its value uses one of its operands instead, or goes too."""
    n = len(case.inputs)
    gone = n + k
    step = case.steps[k]
    stand_in = step.operands[0]
    renamed = {i: i if i < gone else (stand_in if i == gone else i - 1) for i in range(n + len(case.steps))}
    steps = []
    for s in case.steps[:k] + case.steps[k + 1 :]:
        text = re.sub(r"\bv(\d+)\b", lambda m: f"v{renamed[int(m[1])]}", s.text)
        steps.append(Step(text, tuple(renamed[i] for i in s.operands)))
    return Case(case.seed, case.inputs, steps, case.mutated, case.backward)


def shrunk(case):
    """Fewer steps that still fail."""
    changed = True
    while changed and len(case.steps) > 1:
        changed = False
        for k in reversed(range(len(case.steps))):
            smaller = without(case, k)
            if smaller.steps and failure(smaller):
                case, changed = smaller, True
                break
    for other in (
        Case(case.seed, case.inputs, case.steps, -1, case.backward),
        Case(case.seed, case.inputs, case.steps, case.mutated, False),
    ):
        if failure(other):
            case = other
    return case


def report(case, why):
    print(f"\nseed {case.seed}: {why}")
    for i, (shape, strides, dtype) in enumerate(case.inputs):
        print(f"  v{i}: {str(dtype).removeprefix('torch.')}{list(shape)} strides {list(strides)}")
    print("  backward" if case.backward else "  forward", end="\n\n")
    print(case.source(), flush=True)


def fuzz(graphs, seed=0, shrink=True):
    """Runs graphs; returns how many could be judged, and the failures as (case, why)."""
    judged, failures = 0, []
    for s in range(seed, seed + graphs):
        case = Builder(s, random.Random(s).randint(2, 40)).case
        if not case.steps:
            continue
        why = failure(case)
        judged += why != ""
        if why:
            small = shrunk(case) if shrink else case
            failures.append((small, failure(small) or why))
            report(*failures[-1])
    return judged, failures


def main():
    parser = argparse.ArgumentParser(description="Compare random graphs: compiled, eager, CPU.")
    parser.add_argument("--graphs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-shrink", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    begin = time.time()
    judged, failures = fuzz(options.graphs, options.seed, not options.no_shrink)
    print(f"{judged} of {options.graphs} graphs judged, {len(failures)} failures, {time.time() - begin:.1f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
