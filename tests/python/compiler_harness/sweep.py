"""Sweeps lowerings over PyTorch's own OpInfo samples, forward and backward, and over small training workloads."""

from __future__ import annotations

import argparse
import collections
import sys

import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.python.compiler_harness import workloads
from tests.python.compiler_harness.harness import CheckMode, Harness

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int64": torch.int64, "bool": torch.bool}
MAX_ELEMENTS = 5000  # the oracle is slow on purpose


def small(sample):
    tensors = [t for t in [sample.input, *sample.args, *sample.kwargs.values()] if isinstance(t, torch.Tensor)]
    return all(t.numel() <= MAX_ELEMENTS for t in tensors)


def sweep_op_db(mode, names, dtype, limit):
    for info in op_db:
        if names and info.name not in names:
            continue
        if info.name.startswith(("empty", "new_empty", "sparse", "to_sparse")) or dtype not in info.dtypes:
            continue
        grad = dtype.is_floating_point and info.supports_autograd
        try:
            samples = list(info.sample_inputs("cpu", dtype, requires_grad=grad))
        except Exception:  # some generators need optional packages
            continue
        for sample in samples[:limit]:
            if not small(sample):
                continue
            try:
                with mode:
                    out = info(sample.input, *sample.args, **sample.kwargs)
                    outs = [
                        o
                        for o in (out if isinstance(out, (list, tuple)) else [out])
                        if isinstance(o, torch.Tensor) and o.requires_grad and o.dtype.is_floating_point
                    ]
                    if grad and outs:
                        torch.autograd.backward(outs, [torch.randn_like(o) for o in outs])
            except Exception:  # an error of PyTorch itself: inputs that this build refuses
                continue


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--lib", required=True, help="folder with libtrnsim_compiler_harness.so")
    p.add_argument("--mode", choices=("reference", "compiled"), default="reference")
    p.add_argument("--ops", default="", help="OpInfo names, comma separated; empty: all")
    p.add_argument("--only", default="", help="check only these ATen names")
    p.add_argument("--dtype", choices=DTYPES, default="fp32")
    p.add_argument("--limit", type=int, default=8, help="samples per operator")
    p.add_argument("--workloads", action="store_true")
    p.add_argument("--show", type=int, default=1, help="failures shown per operator")
    p.add_argument("--trace", default="", help="file that holds the graph in work, to look at after a crash")
    args = p.parse_args()
    torch.manual_seed(0)
    harness = Harness(args.lib)
    trace = open(args.trace, "w") if args.trace else None  # noqa: SIM115  open until the process ends or crashes
    only = set(args.only.split(",")) - {""}
    mode = CheckMode(harness, args.mode, only, trace=trace)
    if args.workloads:
        workloads.run_all(mode)
    else:
        sweep_op_db(mode, set(args.ops.split(",")) - {""}, DTYPES[args.dtype], args.limit)

    table = collections.defaultdict(collections.Counter)
    failures = collections.defaultdict(list)
    for o in mode.outcomes:
        table[o.op][o.status] += 1
        if o.status not in ("ok", "skipped"):
            failures[o.op].append(o)
    for op in sorted(failures):
        print(f"== {op}: {dict(table[op])}")
        for o in failures[op][: args.show]:
            print(f"   [{o.status}] {o.message.strip()}")
    unused = sorted(set(harness.ops) - set(table))
    totals = collections.Counter(o.status for o in mode.outcomes)
    print(f"lowered ops {len(harness.ops)}, seen {len(table)}, calls {dict(totals)}, ops with failures {len(failures)}")
    print("never seen:", " ".join(unused))
    print("without a lowering:", " ".join(f"{k}({v})" for k, v in mode.missing.most_common()))
    return 1 if any(o.status in ("wrong", "internal_error") for o in mode.outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
