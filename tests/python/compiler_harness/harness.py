"""Checks operator lowerings against CPU PyTorch without the device: a dispatch mode catches every ATen call, turns it
into a one-node graph, runs the graph through the oracle of the kernel kinds ("reference") or compiled on the functional
executor ("compiled"), and compares the results.

    python -m tests.python.compiler_harness.sweep --lib build/lib --mode reference --ops softmax,add
"""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import math
import pathlib
import struct

import torch
from torch.utils._python_dispatch import TorchDispatchMode

DTYPE_NAMES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float64: "fp64",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "bool",
}
STATUS = ("ok", "unsupported", "user_error", "internal_error")

# In-place only or .out only operators, and their functional names (lower.h).
FUNCTIONAL = {
    "aten::fill_.Scalar": "aten::fill.Scalar",
    "aten::fill_.Tensor": "aten::fill.Tensor",
    "aten::zero_": "aten::zero",
    "aten::copy_": "aten::copy",
    "aten::normal_": "aten::normal_functional",
    "aten::uniform_": "aten::uniform",
    "aten::bernoulli_.float": "aten::bernoulli.p",
    "aten::bernoulli_.Tensor": "aten::bernoulli.Tensor",
    "aten::_index_put_impl_": "aten::index_put",
    "aten::random_": "aten::random",
    "aten::random_.from": "aten::random.from",
    "aten::random_.to": "aten::random.to",
}
# Arguments that an op changes without its schema saying so: op -> positions; they become extra results.
MUTATED = {
    "aten::native_batch_norm": (3, 4),
    "aten::_native_batch_norm_legit": (3, 4),
    "aten::_batch_norm_with_update": (3, 4),
}
TRAINING_ARG = {"aten::native_batch_norm": 5, "aten::_native_batch_norm_legit": 5}  # without one: always


class Unsupported(Exception):
    pass


@dataclasses.dataclass
class Outcome:
    op: str
    status: str
    message: str = ""
    instructions: int = 0


class Harness:
    def __init__(self, lib_dir: str):
        path = pathlib.Path(lib_dir) / "libtrnsim_compiler_harness.so"
        self.lib = ctypes.CDLL(str(path))
        self.lib.trnsim_harness_ops.restype = ctypes.c_char_p
        self.ops = {}
        for line in self.lib.trnsim_harness_ops().decode().splitlines():
            name, bits, random = line.split()
            self.ops[name] = (int(bits), random == "1")

    def run(self, text, mode, inputs, outputs, params):
        def pointers(tensors):
            return (ctypes.c_void_p * max(len(tensors), 1))(*[t.data_ptr() for t in tensors])

        slots = (ctypes.c_uint32 * max(len(params), 1))(*params)
        instructions = ctypes.c_int64(0)
        message = ctypes.create_string_buffer(4096)
        status = self.lib.trnsim_harness_run(
            text.encode(),
            0 if mode == "reference" else 1,
            pointers(inputs),
            len(inputs),
            pointers(outputs),
            len(outputs),
            slots,
            len(params),
            ctypes.byref(instructions),
            message,
            len(message),
        )
        return STATUS[status], message.value.decode(errors="replace"), instructions.value


def functional_name(func) -> str:
    schema = func._schema
    name, overload = schema.name, schema.overload_name
    full = f"{name}.{overload}" if overload else name
    if full in FUNCTIONAL:
        return FUNCTIONAL[full]
    if name.endswith("_") and not name.endswith("__"):
        full = f"{name[:-1]}.{overload}" if overload else name[:-1]
    return full


def dense_copy(t: torch.Tensor) -> torch.Tensor:
    """A copy with the same sizes and strides in memory of its own."""
    c = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype)
    if t.numel():
        size = 1 + sum((n - 1) * s for n, s in zip(t.size(), t.stride(), strict=True))
        flat = torch.as_strided(t, (size,), (1,), t.storage_offset()) if size else t
        torch.as_strided(c, (size,), (1,), 0).copy_(flat)
    return c


class GraphWriter:
    def __init__(self, op, const_bits):
        self.op, self.const_bits = op, const_bits
        self.values, self.inputs, self.outputs, self.params = [], [], [], []

    def value(self, t, alias=None):
        if t.dtype not in DTYPE_NAMES:
            raise Unsupported(f"dtype {t.dtype}")
        line = f"%{len(self.values)}: {DTYPE_NAMES[t.dtype]}{list(t.size())} strides {list(t.stride())}"
        if alias is not None:
            line += f" alias %{alias}"
        self.values.append(line)
        return len(self.values) - 1

    def tensor(self, t):
        i = self.value(t)
        self.inputs.append((i, t))
        return i

    def param(self, v):
        self.params.append(struct.unpack("<I", struct.pack("<f" if isinstance(v, float) else "<i", v))[0])
        return f"p{len(self.params) - 1}:" + ("fp32" if isinstance(v, float) else "int32")

    def number(self, v, constant):
        if isinstance(v, complex):
            raise Unsupported("complex scalar")
        if isinstance(v, bool) and constant:
            return "true" if v else "false"
        if not constant and not (isinstance(v, int) and not -(2**31) <= v < 2**31):
            try:
                return self.param(float(v) if isinstance(v, float) else int(v))
            except OverflowError:
                return self.param(math.copysign(math.inf, v))
        return f"f:{v!r}" if isinstance(v, float) else str(int(v))

    def argument(self, i, spec, v):
        kind = str(spec.type)
        if isinstance(v, torch.Tensor):
            return f"%{self.tensor(v)}"
        if v is None:
            return "%none" if "Tensor" in kind else "none"
        if "Tensor" in kind and isinstance(v, (list, tuple)):
            return "(" + ", ".join("%none" if t is None else f"%{self.tensor(t)}" for t in v) + ")"
        if isinstance(v, torch.dtype):
            if v not in DTYPE_NAMES:
                raise Unsupported(f"dtype {v}")
            return f"dtype:{DTYPE_NAMES[v]}"
        if isinstance(v, str):
            return '"' + v + '"'
        if isinstance(v, (torch.device, torch.layout, torch.memory_format, torch.Generator)):
            return "none"
        real = spec.real_type if hasattr(spec, "real_type") else spec.type
        text = str(real)
        if isinstance(v, (list, tuple)):
            if "float" in kind:
                return "f:[" + ", ".join(repr(float(x)) for x in v) + "]"
            if "bool" in kind:
                return "b:[" + ", ".join("true" if x else "false" for x in v) + "]"
            return "[" + ", ".join(str(int(x)) for x in v) + "]"
        if isinstance(v, bool) and "bool" in text:
            return "true" if v else "false"
        # a Python number where the schema has a Tensor is a wrapped 0-dim CPU tensor
        if "number" in text or "Scalar" in text or "float" in text or "Tensor" in text:
            if "float" in text and not isinstance(v, float):
                v = float(v)
            return self.number(v, bool(self.const_bits >> i & 1))
        return str(int(v))


class CheckMode(TorchDispatchMode):
    """Runs every call on the CPU and, when it has a lowering, also through the harness."""

    def __init__(self, harness, mode, only=None, rtol=2e-5, atol=2e-5, trace=None):
        super().__init__()
        self.trace = trace  # a file that always holds the graph in work: what a crash was about
        self.harness, self.mode, self.only = harness, mode, only
        self.rtol, self.atol = rtol, atol
        self.outcomes = []
        self.missing = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        op = functional_name(func)
        if op not in self.harness.ops or (self.only and op not in self.only):
            self.missing[op] += 1
            return func(*args, **kwargs)
        const_bits, random = self.harness.ops[op]
        schema = func._schema
        values = list(args)
        for spec in schema.arguments[len(args) :]:
            if spec.name in kwargs:
                values.append(kwargs[spec.name])
            elif spec.has_default_value():
                values.append(spec.default_value)
            else:
                values.append(None)
        specs = list(schema.arguments)
        out_args = [i for i, s in enumerate(specs) if s.is_out]
        mutated = [
            i for i, s in enumerate(specs) if s.alias_info is not None and s.alias_info.is_write and not s.is_out
        ]
        before = {i: dense_copy(v) for i, v in enumerate(values) if isinstance(v, torch.Tensor)}
        before_lists = {
            i: [dense_copy(t) if t is not None else None for t in v]
            for i, v in enumerate(values)
            if isinstance(v, (list, tuple)) and any(isinstance(t, torch.Tensor) for t in v)
        }
        result = func(*args, **kwargs)
        if out_args:
            return result
        if not any(r.alias_info is not None for r in schema.returns):
            mutated = []  # not the in-place form: the changed arguments are extra results, see MUTATED
        try:
            self.outcomes.append(
                self.check(op, const_bits, random, specs, values, before, before_lists, mutated, result)
            )
        except Unsupported as e:
            self.outcomes.append(Outcome(op, "skipped", str(e)))
        return result

    def check(self, op, const_bits, random, specs, values, before, before_lists, mutated, result):
        w = GraphWriter(op, const_bits)
        texts, id_of_arg = [], {}
        for i, (spec, v) in enumerate(zip(specs, values, strict=True)):
            v = before.get(i, before_lists.get(i, v))
            texts.append(w.argument(i, spec, v))
            if isinstance(v, torch.Tensor):
                id_of_arg[i] = w.inputs[-1][0]
        if random:
            w.params += [1234, 0, 0, 0]
            n = len(w.params)
            texts.append("p:[" + ", ".join(f"p{k}:int32" for k in range(n - 4, n)) + "]")
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        if not isinstance(results[0], (torch.Tensor, type(None))):
            raise Unsupported("a result that is not a tensor")
        ids, expected, actual = [], [], []
        tensors = dict((i, t) for i, t in w.inputs)
        for k, r in enumerate(results):
            if r is None:
                ids.append("%none")
                continue
            if k < len(mutated) and mutated:
                i = id_of_arg[mutated[k]]
                out = tensors[i]  # in place: the same memory
                ids.append(f"%{w.value(out, alias=i)}")
            else:
                out = torch.empty_strided(r.size(), r.stride(), dtype=r.dtype)
                ids.append(f"%{w.value(out)}")
            w.outputs.append((ids[-1], out))
            expected.append(r)
            actual.append(out)
        for i in MUTATED.get(op, ()):
            if i in id_of_arg and (op not in TRAINING_ARG or values[TRAINING_ARG[op]]):
                out = tensors[id_of_arg[i]]
                ids.append(f"%{w.value(out, alias=id_of_arg[i])}")
                w.outputs.append((ids[-1], out))
                expected.append(values[i])
                actual.append(out)
            else:
                ids.append("%none")
        lines = [f'graph "{op}"' + (f" params {len(w.params)}" if w.params else "") + " {"]
        lines += ["  " + v for v in w.values]
        if w.inputs:
            lines.append("  inputs " + ", ".join(f"%{i}" for i, _ in w.inputs))
        if w.outputs:
            lines.append("  outputs " + ", ".join(i for i, _ in w.outputs))
        lines.append("  (" + ", ".join(ids) + f') = "{op}"(' + ", ".join(texts) + ")")
        text = "\n".join(lines) + "\n}\n"
        if self.trace:
            self.trace.seek(0)
            self.trace.truncate()
            self.trace.write(text)
            self.trace.flush()
        status, message, instructions = self.harness.run(
            text, self.mode, [t for _, t in w.inputs], [t for _, t in w.outputs], w.params
        )
        if status != "ok":
            return Outcome(op, status, message + "\n" + text)
        if random:
            return Outcome(op, "ok", "values not compared", instructions)
        for k, (e, a) in enumerate(zip(expected, actual, strict=True)):
            problem = self.difference(op, e.detach(), a)
            if problem:
                return Outcome(op, "wrong", f"result {k}: {problem}\n{text}", instructions)
        return Outcome(op, "ok", "", instructions)

    def difference(self, op, expected, actual):
        if expected.numel() == 0:
            return None
        if expected.dtype == torch.bool or not expected.dtype.is_floating_point:
            if torch.equal(expected, actual):
                return None
            wrong = (expected != actual).sum().item()
            return f"{wrong} of {expected.numel()} differ: {expected.flatten()[:6]} and {actual.flatten()[:6]}"
        rtol, atol = self.rtol, self.atol
        if expected.dtype == torch.bfloat16:
            rtol, atol = 1.6e-2, 1e-2
        if expected.dtype == torch.float16:
            rtol, atol = 2e-3, 2e-3
        e, a = expected.double(), actual.double()
        if torch.allclose(e, a, rtol=rtol, atol=atol, equal_nan=True):
            return None
        bad = ~torch.isclose(e, a, rtol=rtol, atol=atol, equal_nan=True)
        return f"{int(bad.sum())} of {e.numel()} differ: {e[bad][:6]} and {a[bad][:6]}"
