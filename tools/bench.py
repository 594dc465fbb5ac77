"""Benchmarks of design section 4, as ratios in one run on one machine. All of them use one thread unless said."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import bench_compile
import bench_models
from timing import timed

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "release" / "bin"
sys.path.insert(0, str(ROOT / "tools"))


@dataclass
class Row:
    name: str
    value: float
    unit: str
    floor: str
    goal: str
    ok: bool
    detail: str = ""


def ratio_row(
    name: str, make_step: Callable[[str], Callable[[], None]], repeats: int, floor: float, goal: float
) -> Row:
    import torch

    cpu = timed(make_step("cpu"), lambda: None, repeats)
    neuron = timed(make_step("neuron"), torch.neuron.synchronize, repeats)
    value = neuron / cpu
    detail = f"neuron {1e3 * neuron:.2f} ms, cpu {1e3 * cpu:.2f} ms"
    return Row(name, value, "x", f"<= {floor:g}", f"<= {goal:g}", value <= floor, detail)


def training_step(
    model_and_loss: str, make_optimizer: Callable[[Any], Any] | None = None, max_norm: float = 0
) -> Callable[[str], Callable[[], None]]:
    """A step of a model of workloads/losses.py on a device; without an optimizer, forward and backward only."""

    def on(device: str) -> Callable[[], None]:
        import torch
        from workloads import losses

        model, loss = getattr(losses, model_and_loss)(device)
        optimizer = make_optimizer(model.parameters()) if make_optimizer else None

        def step() -> None:
            model.zero_grad()
            loss().backward()
            if max_norm:
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            if optimizer:
                optimizer.step()

        return step

    return on


def adamw_step(device: str) -> Callable[[], None]:
    """AdamW, foreach, over 200 parameters of 64x64."""
    import torch

    torch.manual_seed(0)
    parameters = [torch.randn(64, 64).to(device).requires_grad_() for _ in range(200)]
    for p in parameters:
        p.grad = torch.randn(64, 64).to(device)
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=True).step


def first_calls() -> Row:
    """Operators with shapes not seen before: lower, compile, load, run. Nothing comes from the cache on disk."""
    import torch

    with torch.no_grad():
        calls = [
            lambda n: torch.ones(n, 33, device="neuron") * 2.5,
            lambda n: torch.ones(n, 40, device="neuron").softmax(-1),
            lambda n: torch.ones(n, 24, device="neuron") @ torch.ones(24, n, device="neuron"),
            lambda n: torch.ones(2, n, device="neuron").sum(0),
            lambda n: torch.ones(n, 17, device="neuron").t().contiguous(),
            lambda n: torch.nn.functional.layer_norm(torch.ones(n, 16, device="neuron"), (16,)),
            lambda n: torch.nn.functional.gelu(torch.ones(n, 9, device="neuron")),
            lambda n: torch.cat([torch.ones(n, 3, device="neuron"), torch.ones(n, 5, device="neuron")], 1),
        ]
        times = []
        for n in range(101, 113):
            for call in calls:
                start = time.perf_counter()
                call(n)
                torch.neuron.synchronize()
                times.append(time.perf_counter() - start)
    value = 1e3 * statistics.median(times)
    return Row("first call of an operator with a new shape", value, "ms", "", "<= 3", value <= 3)


def in_process(script: str, *args: str, **environment: str) -> Any:
    """What a script of tools/ prints, as JSON, in a process of its own."""
    command = [sys.executable, ROOT / "tools" / script, *args]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"tools/bench: {script} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def layer_70b() -> list[Row]:
    r = in_process("workloads/layer70b.py")
    fits = "fits" if r["hbm_peak_bytes"] <= r["hbm_capacity_bytes"] else "does not fit"
    detail = (
        f"{r['simulated_ns'] / 1e6:.0f} ms simulated, HBM peak {r['hbm_peak_bytes'] / 2**30:.1f} of "
        f"{r['hbm_capacity_bytes'] / 2**30:.0f} GiB: {fits}"
    )
    wall, memory = r["wall_s"], r["host_bytes"] / 2**30
    name = "70B Llama layer, bf16, 4096 tokens, forward + backward, time only"
    return [
        Row(name, wall, "s", "", "<= 60", wall <= 60, detail),
        Row(f"{name}: memory of the process", memory, "GiB", "", "<= 4", memory <= 4),
    ]


def layer_8b() -> list[Row]:
    r = in_process("workloads/layer8b.py", NEURON_LOGICAL_NC_CONFIG="2")
    busy = "; ".join(
        f"core {n}: " + ", ".join(f"{unit} {100 * share:.0f} %" for unit, share in core.items())
        for n, core in enumerate(r["busy"])
    )
    detail = f"{r['simulated_ns'] / 1e6:.1f} ms simulated on {r['cores']} cores, bound by {r['bound']} ({busy})"
    name = "8B Llama layer compiled, bf16, 2048 tokens, forward + backward, LNC 2"
    return [
        Row(f"{name}: MFU", 100 * r["mfu"], "%", "", ">= 45", r["mfu"] >= 0.45, detail),
        Row(f"{name}: compile", r["compile_s"], "s", "", "<= 60", r["compile_s"] <= 60),
    ]


def small_op() -> list[Row]:
    """A cached pointwise op on [16, 64]: until the call returns, and until the result is ready."""
    import torch

    a, b = torch.ones(16, 64, device="neuron"), torch.ones(16, 64, device="neuron")
    for _ in range(100):
        torch.add(a, b)
    torch.neuron.synchronize()
    returns, ready = [], []
    for _ in range(500):
        start = time.perf_counter()
        torch.add(a, b)
        returned = time.perf_counter()
        torch.neuron.synchronize()
        ready.append(time.perf_counter() - start)
        returns.append(returned - start)
    call, result = 1e6 * statistics.median(returns), 1e6 * statistics.median(ready)
    return [
        Row("small eager op, cached: call returns", call, "us", "<= 10", "<= 3", call <= 10),
        Row("small eager op, cached: result ready", result, "us", "<= 80", "<= 20", result <= 80),
    ]


def import_overhead() -> Row:
    """Time of `import torch` with the plugin minus without, in fresh processes.

    The best of alternating runs of each: an import of seconds varies by more than the plugin costs.
    """

    def once(autoload: str) -> float:
        code = "import time; s = time.perf_counter(); import torch; print(time.perf_counter() - s)"
        env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
        return float(subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True).stdout)

    with_plugin, without = zip(*[(once("1"), once("0")) for _ in range(9)], strict=True)
    value = min(with_plugin) - min(without)
    return Row("import torch: overhead of the plugin", value, "s", "<= 0.3", "<= 0.1", value <= 0.3)


def native(name: str, *args: str | Path) -> Any:
    """Runs one of the C++ benchmark programs; they print JSON."""
    program = BUILD / name
    if not program.exists():
        sys.exit(f"tools/bench: {program.relative_to(ROOT)} is missing: run tools/setup in this checkout")
    done = subprocess.run([program, *args], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"tools/bench: {name} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Says on the terminal what runs."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"tools/bench: {what}") if console.is_terminal else contextlib.nullcontext():
        yield


def host_gemm() -> list[Row]:
    gflops = native("trnsim_bench_exec")["gflops"]
    host = gflops["library_sgemm_1024"]
    rows = []
    for dtype in ("fp32", "bf16"):
        tile = gflops[f"tile_{dtype}_128x128x512"]
        detail = f"{tile:.0f} of {host:.0f} GFLOP/s"
        rows.append(
            Row(f"tile matmul {dtype} vs host GEMM", tile / host, "of it", ">= 0.5", ">= 0.8", tile >= host / 2, detail)
        )
    return rows


def timing_only() -> list[Row]:
    rate = native("trnsim_bench_chip")["instructions_per_s"] / 1e6
    return [Row("timing only", rate, "M instructions/s", ">= 4", ">= 8", rate >= 4)]


def speed() -> list[Row]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    torch.set_num_threads(1)
    adam = lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)
    sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    graph = "matmul graph 4 x 2048x2048, batch 512, forward + backward, vs CPU eager"
    llama = "tiny Llama training step (AdamW), warm, vs CPU eager"
    digits = "digits CNN training step (SGD), warm, vs CPU eager"
    resnet = "small ResNet training step (SGD), warm, vs CPU eager"
    unet = "small UNet training step (AdamW), warm, vs CPU eager"
    adamw = "AdamW step over 200 parameters, foreach, vs CPU eager"
    steps: dict[str, Callable[[], list[Row]]] = {
        graph: lambda: [ratio_row(graph, training_step("matmul_graph"), 3, 3, 1.3)],
        llama: lambda: [ratio_row(llama, training_step("llama", adam), 10, 15, 4)],
        digits: lambda: [ratio_row(digits, training_step("digits_cnn", sgd, max_norm=1), 20, 15, 4)],
        resnet: lambda: [ratio_row(resnet, training_step("resnet", sgd), 10, 6, 4)],
        unet: lambda: [ratio_row(unet, training_step("unet", adam), 5, 6, 4)],
        adamw: lambda: [ratio_row(adamw, adamw_step, 10, 3, 3)],
        "first calls": lambda: [first_calls()],
        "70B layer": layer_70b,
        "8B layer": layer_8b,
        "small eager op": small_op,
        "import torch": lambda: [import_overhead()],
        "tile matmul": host_gemm,
        "timing only": timing_only,
    }
    rows = []
    for what, measure in steps.items():
        with working(what):
            rows += measure()
    return rows


def show(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="tools/bench speed")
    for column in ("what", "measured", "floor", "goal", "", "detail"):
        table.add_column(column)
    for r in rows:
        table.add_row(
            r.name, f"{r.value:.3g} {r.unit}", r.floor, r.goal, "ok" if r.ok else "[red]short[/red]", r.detail
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def fidelity(json_file: Path | None, page: Path | None, leave_one_out: bool) -> int:
    """Replays the published measurements; optionally writes the page docs/fidelity.md.

    The replay takes seconds; refitting the parameters of each family without its rows, which the page needs, minutes.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "fidelity.json"
        refit = ["--leave-one-out"] if leave_one_out or page else []
        code = subprocess.run([BUILD / "trnsim_fidelity", "--json", out, *refit], check=False).returncode
        if out.exists() and (json_file or page):
            result = json.loads(out.read_text())
            if json_file:
                json_file.write_text(json.dumps(result, indent=1) + "\n")
            if page:
                page.write_text(fidelity_page(result))
                (ROOT / "sim" / "runtime" / "measured_families.inc").write_text(measured_families(result))
    return code


def measured_families(result: dict) -> str:
    """The table behind the report's error band: family, mean error, shares of busy time."""
    lines = ["// Families of measured kernels. Written by tools/bench fidelity --page; do not edit."]
    for f in result["families"]:
        if "shares" in f and f["rows"]:
            shares = ", ".join(f"{s:.3f}" for s in f["shares"])
            lines.append(f'{{"{f["family"]}", {f["mean_error"]:.4f}, {{{{{shares}}}}}}},')
    return "\n".join(lines) + "\n"


def fidelity_page(result: dict) -> str:
    """docs/fidelity.md: sums first, then families, then every row."""
    one, held = result["instructions"], result["instructions_held_out"]
    big, blind, ranks = result["kernels"], result["kernels_blind"], result["ranks"]
    lines = [
        "# Fidelity",
        "",
        f"Published trn2 measurements replayed on `{result['config']}`. Written by `tools/bench fidelity --page",
        "docs/fidelity.md`; do not edit.",
        "",
        "| what | rows | median error | mean error | largest |",
        "|---|---|---|---|---|",
    ]
    for name, e in (
        ("single instructions and DMA transfers", one),
        ("those that set no parameter", held),
        ("kernels", big),
        ("those that set no parameter", blind),
    ):
        lines.append(
            f"| {name} | {e['rows']} | {e['median_error']:.2%} | {e['mean_error']:.2%} | {e['max_error']:.1%} |"
        )
    lines += [
        "",
        f"Rank order of the variants of one kernel: {ranks['right']} of {ranks['pairs']} pairs whose times differ by "
        f"more than {ranks['tolerance']:.0%} are right ({ranks['all_right']} of all {ranks['all_pairs']}). The "
        f"collection states a spread of {ranks['stated_spread']:.0%} for the times that it doubles: it excludes "
        f"{ranks['pairs'] - ranks['beyond_pairs']} of these pairs, and {ranks['beyond_right']} of the "
        f"{ranks['beyond_pairs']} beyond it are right.",
        f"{len(result['parameters'])} parameters are set by {one['rows'] + big['rows']} rows.",
        "",
        "**Method.** Single instructions run as assembler programs (`tools/fidelity/programs`). Kernels are rebuilt",
        "by generators (`tools/fidelity/kernels`) with the loop order, tile sizes and buffering of the description;",
        "a list scheduler of fixed reach stands for the vendor's compiler. The time base follows the row: NKB includes",
        "the launch; PROF adds the 16 us of a profile around the kernel; KDA times are printed as one half of the real",
        "time by their source and are doubled here (softmax: times the 2.22 of its profile). Rows whose description",
        "leaves the schedule open are listed and do not count.",
        "",
        "What the descriptions do not say, the number of buffers or the engine that empties PSUM, is the same for all",
        "rows of a family. It was chosen with the times of the family in view ([timing.md](timing.md) lists the",
        "choices), so a row that sets no parameter is a prediction of the laws, not of the schedule.",
        "",
        "## Families",
        "",
        "*Left out*: mean error of the family when the parameters that its rows set are refitted on the rows of all",
        "other families, from values of other sources on (below). A family without an entry sets no parameter.",
        "",
        "| family | rows | median | mean | largest | left out |",
        "|---|---|---|---|---|---|",
    ]
    for f in result["families"]:
        if not f["rows"]:
            continue
        out = f"{f['left_out']['mean_error']:.2%}" if "left_out" in f else ""
        lines.append(
            f"| {f['family']} | {f['rows']} | {f['median_error']:.2%} | {f['mean_error']:.2%} | {f['max_error']:.1%} | "
            f"{out} |"
        )
    lines += refitted_table(result)
    for kind, title in (("instruction", "Instructions and DMA transfers"), ("kernel", "Kernels")):
        lines += [
            "",
            f"## {title}",
            "",
            "| row | q | family | what | measured | predicted | error | sets |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for r in result["rows"]:
            if r["kind"] != kind or "predicted" not in r or "open" in r:
                continue
            # Kernels in us, instructions in ns.
            scale, unit = (1000, "us") if kind == "kernel" else (1, r["unit"])
            lines.append(
                f"| {r['id']} | {r['quality']} | {r['family']} | {r['what']} | {r['measured'] / scale:.5g} {unit} | "
                f"{r['predicted'] / scale:.5g} | {r['error']:+.1%} | {', '.join(f'`{k}`' for k in r['sets'])} |"
            )
    lines += ["", "## Schedule open", "", "| row | what | measured us | predicted us | why |", "|---|---|---|---|---|"]
    for r in result["rows"]:
        if "open" in r:
            predicted = f"{r['predicted'] / 1000:.5g}" if "predicted" in r else ""
            measured = f"{r['measured'] / 1000:.5g}" if r["measured"] else ""
            lines.append(f"| {r['id']} | {r['what']} | {measured} | {predicted} | {r['open']} |")
    lines += ["", "Not replayed:", ""]
    lines += [f"* {r['id']}: {r['reason']}" for r in result["not_reproduced"]]
    lines += wrong_pairs(result)
    lines += audit_table(result)
    return "\n".join(lines) + "\n"


def wrong_pairs(result: dict) -> list[str]:
    """Which variants of a kernel come out in the wrong order, and by how much."""
    lines = [
        "",
        "## Wrong order",
        "",
        "Times of the second by those of the first; [timing.md](timing.md) has the causes.",
        "",
        "| kernel | faster on the chip | slower on the chip | measured | predicted |",
        "|---|---|---|---|---|",
    ]
    return lines + [
        f"| {p['group']} | {p['fast']} | {p['slow']} | {p['measured_ratio']:.3f} | {p['predicted_ratio']:.3f} |"
        for p in result["wrong_pairs"]
    ]


def refitted_table(result: dict) -> list[str]:
    """The parameters of the leave-one-family-out fits."""
    lines = [
        "",
        "### Parameters without their family",
        "",
        "*Rows*: how many rows of other families depend on the parameter. Without any it keeps the value of its",
        "source, as do documented values and counts (-). Kernels of up to 5 ms take part; the common error of a kernel",
        "family is one more unknown.",
        "",
        "| family | parameter | full fit | source | refitted | rows |",
        "|---|---|---|---|---|---|",
    ]
    for f in result["families"]:
        for p in f.get("left_out_parameters", []):
            fitted = f"{p['fitted']:.4g}" if p["rows"] else "-"
            lines.append(
                f"| {f['family']} | `{p['key']}` | {p['full']:.4g} | {p['source']:.4g} | {fitted} | {p['rows']} |"
            )
    lines += ["", "Sources:", ""]
    lines += [f"* {f['family']}: {f['left_out_source']}" for f in result["families"] if "left_out_source" in f]
    return lines


def audit_table(result: dict) -> list[str]:
    """What became of every row of the collection."""
    lines = [
        "",
        "## Audit",
        "",
        "Every row of quality A and B: values that it gives, replayed and counted, listed with an open schedule.",
        "",
        "| row | q | values | replayed | open | |",
        "|---|---|---|---|---|---|",
    ]
    for a in result["audit"]:
        note = "" if a["complete"] and not a["listed"] else "under *not replayed*" if a["listed"] else "missing"
        lines.append(f"| {a['id']} | {a['quality']} | {a['values']} | {a['replayed']} | {a['open']} | {note} |")
    return lines


def output_file(text: str) -> Path:
    """A path that can be written, asked before minutes of measuring."""
    path = Path(text)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {text}")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["speed", "fidelity", "compile"])
    parser.add_argument("--json", metavar="FILE", type=output_file, help="also write the result as JSON")
    parser.add_argument(
        "--page", metavar="FILE", type=output_file, help="fidelity: also write the page docs/fidelity.md"
    )
    parser.add_argument(
        "--leave-one-out",
        action="store_true",
        help="fidelity: also refit the parameters of each family on the others (minutes; --page does)",
    )
    args = parser.parse_args()
    if args.what == "fidelity":
        return fidelity(args.json, args.page, args.leave_one_out)
    if args.page or args.leave_one_out:
        parser.error("--page and --leave-one-out go with fidelity")
    if args.what == "compile":
        with working("compiling and timing"):
            cases = bench_compile.measure(native)
            models = bench_models.measure(in_process)
        bench_compile.show(cases)
        bench_models.show(models)
        rows = [*cases, *models]
    else:
        rows = speed()
        show(rows)
    if args.json:
        args.json.write_text(json.dumps({"schema_version": 1, "rows": [asdict(r) for r in rows]}, indent=1) + "\n")
    return 0 if all(r.ok for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
