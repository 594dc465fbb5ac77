"""Quality of compiled programs in simulated time on trn2, one physical core, against published results; and on both.

The cases are graphs in `tools/bench_compile/cases`; trnsim_bench_compile compiles them and runs them without data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CASES = Path(__file__).resolve().parent / "bench_compile" / "cases"
PE_FLOP_PER_NS = {"bf16": 2 * 128 * 128 * 2.4, "fp32": 2 * 128 * 128 * 2.4 / 4}
DMA_BYTES_PER_NS = 16 * 0.85 * 32


@dataclass
class Target:
    """`limit_us`: at most that long; `pe` and `dma`: at least that share of the time in use."""

    what: str
    dtype: str
    limit_us: float = 0
    pe: float = 0
    dma: float = 0


TARGETS = {
    "matmul_bf16": Target("matmul 2048^3 bf16, lhs transposed", "bf16", pe=0.85),
    "matmul_fp32": Target("matmul 4096x8192x8192 fp32, lhs transposed", "fp32", limit_us=28500),
    "attention_bf16": Target("attention d=128 S=1024 bf16, K V Q transposed", "bf16", limit_us=60),
    "mlp_gelu_bf16": Target("gelu(XW+b) 1024x2048x4096 bf16", "bf16", limit_us=250),
    "rms_norm_matmul_fp32": Target("RMS norm + matmul 4096x1024x2048 fp32", "fp32", limit_us=940),
    "silu_fp32": Target("silu 4096x7168 fp32", "fp32", dma=0.88),
    "adamw_fp32": Target("AdamW 10944x2048 fp32", "fp32", dma=0.88),
    "attention_gqa_fp32": Target("attention N4096 QH16 KH8 D128 fp32", "fp32", limit_us=15100),
}


@dataclass
class Case:
    name: str
    what: str
    target: str
    ok: bool
    measured_us: float
    pe: float  # share of the time that the tensor engine is busy
    pe_ideal: float  # share that its products would need at the full clock
    dma: float  # share of the time that the bytes that have to move would need at the DMA limit
    bound: str
    compile_s: float
    instructions: int
    moved_bytes: int
    two_cores_us: float  # the same graph divided over both physical cores of a logical core
    engines: dict[str, float] = field(default_factory=dict)


def bound(row: dict[str, Any]) -> str:
    """The busiest resource, or the latency between them when none is busy most of the time."""
    moved = row["bytes_read"] + row["bytes_written"]
    shares = {engine: row[engine] for engine in ("tensor", "vector", "scalar", "gpsimd")}
    shares["DMA bandwidth"] = moved / DMA_BYTES_PER_NS / row["simulated_ns"]
    shares["launch"] = row["launch_ns"] / row["simulated_ns"]
    name, share = max(shares.items(), key=lambda s: s[1])
    return f"{name} ({share:.0%})" if share >= 0.5 else f"dependences; most used: {name} ({share:.0%})"


def case(name: str, target: Target, row: dict[str, Any], on_two: dict[str, Any]) -> Case:
    time = row["simulated_ns"]
    ideal = row["flops"] / PE_FLOP_PER_NS[target.dtype] / time if row["tensor"] > 0 else 0.0
    dma = row["hbm_bytes"] / DMA_BYTES_PER_NS / time
    if target.limit_us:
        wanted, ok = f"<= {target.limit_us:g} us", time <= 1e3 * target.limit_us
    elif target.pe:
        wanted, ok = f"PE active >= {target.pe:.0%}", row["tensor"] >= target.pe
    else:
        wanted, ok = f">= {target.dma:.0%} of the DMA limit", dma >= target.dma
    engines = {engine: row[engine] for engine in ("tensor", "vector", "scalar", "gpsimd", "sync")}
    moved = row["bytes_read"] + row["bytes_written"]
    return Case(
        name, target.what, wanted, ok, time / 1e3, row["tensor"], ideal, dma, bound(row), row["compile_s"],
        row["instructions"], moved, on_two["simulated_ns"] / 1e3, engines,
    )  # fmt: skip


def measure(native: Callable[..., Any]) -> list[Case]:
    cases = []
    for name, target in TARGETS.items():
        graph = CASES / f"{name}.graph"
        (row,) = native("trnsim_bench_compile", graph)
        (on_two,) = native("trnsim_bench_compile", "--cores", "2", graph)
        cases.append(case(name, target, row, on_two))
    return cases


def show(cases: list[Case]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="tools/bench compile: simulated time, trn2, one physical core, launch included")
    for column in ("what", "target", "measured", "", "PE", "PE ideal", "DMA", "bound by", "2 cores"):
        table.add_column(column)
    for c in cases:
        table.add_row(
            c.what, c.target, f"{c.measured_us:,.1f} us", "ok" if c.ok else "[red]short[/red]", f"{c.pe:.0%}",
            f"{c.pe_ideal:.0%}", f"{c.dma:.0%}", c.bound, f"{c.two_cores_us:,.1f} us",
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 160).print(table)
