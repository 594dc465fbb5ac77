"""Whole models compiled: simulated time beside eager's, wall time beside the CPU's, and the time of a first call.

As a script it measures one model of workloads/losses.py and prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from timing import timed

# (what, model, at least that many times less simulated time than eager, at most that many times the CPU's wall time)
MODELS: list[tuple[str, str, float, float]] = [
    ("tiny Llama", "llama", 3, 3),
    ("BERT", "bert", 3, 0),
    ("digits CNN", "digits_cnn", 3, 0),
    ("small ResNet", "resnet", 3, 0),
    ("small UNet", "unet", 3, 0),
    ("matmul graph", "matmul_graph", 0, 3),
]
# Of a first call of the tiny Llama, imports included: what is on disk, the limit. In this order, in a process each; the
# first one writes for the second.
STARTS: list[tuple[str, float]] = [("nothing cached", 5), ("programs, graphs and Dynamo's results on disk", 1)]


@dataclass
class Measured:
    what: str
    value: float
    unit: str
    target: str
    ok: bool
    detail: str


def measure(in_process: Callable[..., Any]) -> list[Measured]:
    """`in_process(script, *args, **environment)` runs a script of tools/ and returns what it prints."""
    rows = []
    for what, model, ratio, wall in MODELS:
        starts = STARTS if model == "llama" else STARTS[:1]
        with tempfile.TemporaryDirectory() as cache:
            environment = {
                "NEURON_LOGICAL_NC_CONFIG": "1",
                "TORCH_NEURONX_NEFF_CACHE_DIR": cache,
                "OMP_NUM_THREADS": "1",
            }
            runs = [in_process("bench_models.py", model, **environment) for _ in starts]
        first = runs[0]
        if ratio:
            value = first["eager_us"] / first["compiled_us"]
            detail = f"eager {first['eager_us']:,.1f} us, compiled {first['compiled_us']:,.1f} us"
            rows.append(
                Measured(
                    f"{what}: simulated time, eager / compiled", value, "x", f">= {ratio:g}", value >= ratio, detail
                )
            )
        if wall:
            value = first["wall_s"] / first["cpu_s"]
            detail = f"neuron {1e3 * first['wall_s']:.2f} ms, cpu {1e3 * first['cpu_s']:.2f} ms"
            rows.append(
                Measured(f"{what}: wall time, compiled / CPU eager", value, "x", f"<= {wall:g}", value <= wall, detail)
            )
        for run, (found, limit) in zip(runs, starts, strict=True):
            if model != "llama":
                continue
            value = run["first_call_s"]
            detail = (
                f"{run['programs_compiled']} programs compiled, {run['graphs_from_cache']} graphs from disk, "
                f"{run['store_s']:.3f} s in the program store"
            )
            rows.append(Measured(f"{what}: first call, {found}", value, "s", f"<= {limit:g}", value <= limit, detail))
    return rows


def show(rows: list[Measured]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="tools/bench compile: models, forward + backward, trn2, one physical core")
    for column in ("what", "target", "measured", "", "detail"):
        table.add_column(column)
    for r in rows:
        table.add_row(r.what, r.target, f"{r.value:.3g} {r.unit}", "ok" if r.ok else "[red]short[/red]", r.detail)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def main(name: str) -> None:
    import torch
    from workloads import losses

    import trnsim

    torch.set_num_threads(1)
    make = getattr(losses, name)
    model, loss = make("neuron")

    def step(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], None]:
        def run() -> None:
            model.zero_grad(set_to_none=True)
            loss().backward()

        return run

    def simulated_us(run: Callable[[], None]) -> float:
        run()
        torch.neuron.synchronize()
        begin = trnsim.simulated_time_ns()
        run()
        torch.neuron.synchronize()
        return (trnsim.simulated_time_ns() - begin) / 1e3

    begin = time.perf_counter()
    compiled = torch.compile(loss, backend="neuron")
    step(model, compiled)()
    torch.neuron.synchronize()
    first_call_s = time.perf_counter() - begin
    metrics = torch.neuron.get_dynamo_metrics()
    result = {
        "first_call_s": first_call_s,
        "programs_compiled": metrics["programs_compiled"],
        "graphs_from_cache": metrics["graphs_from_cache"],
        "store_s": metrics["compile_seconds"],
        "compiled_us": simulated_us(step(model, compiled)),
        "eager_us": simulated_us(step(model, loss)),
        "wall_s": timed(step(model, compiled), torch.neuron.synchronize, 10),
        "cpu_s": timed(step(*make("cpu")), lambda: None, 10),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
