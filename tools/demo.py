"""The main job on real data: train, generate, compare with the CPU, report, and two what-ifs.

Each run of the device is a process of its own, because a process has one configuration.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from workloads import digits, transformer  # noqa: E402


def work(device: str, epochs: int, quiet: bool = False) -> dict:
    """The demo's job on one device; what it returns is compared between devices."""
    torch.manual_seed(0)
    model = digits.cnn()

    def progress(epoch: int, begin: int, total: int) -> None:
        if not quiet and sys.stderr.isatty():
            print(f"\r  epoch {epoch + 1}/{epochs}  {begin:5d}/{total}", end="", file=sys.stderr, flush=True)

    run = digits.train(model, device, epochs=epochs, progress=progress)
    if not quiet and sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    llama = transformer.llama().to(device)
    tokens = transformer.generate(llama, transformer.llama_ids().to(device))
    return {"accuracy": run.accuracy, "losses": run.losses, "tokens": tokens}


def run_on_device(name: str, folder: Path, epochs: int, quiet: bool, **env: str) -> tuple[dict, dict]:
    """Runs the job on `neuron` in a fresh process; returns (result, report)."""
    result, report = folder / f"{name}.result.json", folder / f"{name}.report.json"
    # The one warning of the job (int64 computes as 32 bits) is in the documentation and would repeat in every process.
    command = [sys.executable, "-W", "ignore::UserWarning", __file__, "--job", str(result), "--epochs", str(epochs)]
    command += ["--quiet"] if quiet else []
    subprocess.run(command, env={**os.environ, **env, "TRNSIM_JSON": str(report)}, check=True)
    return json.loads(result.read_text()), json.loads(report.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--job", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--quiet", action="store_true", help="no progress")
    args = parser.parse_args()
    if args.job:
        Path(args.job).write_text(json.dumps(work("neuron", args.epochs, args.quiet)))
        return 0

    from rich.console import Console

    from trnsim.report_view import print_report, render_comparison

    out = Console()
    strict = {"TRNSIM_FALLBACK": "error"}
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        out.print("[bold]1. Train a CNN on handwritten digits and generate with a Llama, on the simulated chip[/bold]")
        result, report = run_on_device("trn2", folder, args.epochs, args.quiet, **strict)
        cpu = work("cpu", args.epochs, quiet=True)
        worst = max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(result["losses"], cpu["losses"], strict=True))
        out.print(f"   test accuracy   neuron {result['accuracy']:.4f}   cpu {cpu['accuracy']:.4f}")
        out.print(
            f"   training loss   largest relative difference to the cpu over {len(cpu['losses'])} steps: {worst:.1e}"
        )
        same = "the same as" if result["tokens"] == cpu["tokens"] else "DIFFERENT from"
        out.print(f"   llama tokens    {result['tokens']}, {same} the cpu's")
        out.print("\n[bold]2. What it did and how long it would take on the chip[/bold]")
        print_report(report, out)
        key, value = hbm_bandwidth()
        out.print(f"\n[bold]3. What if HBM were twice as fast?[/bold]   (--set {key}={2 * value:g})")
        overrides = ",".join(filter(None, [os.environ.get("TRNSIM_SET", ""), f"{key}={2 * value:g}"]))
        _, faster = run_on_device("hbm2x", folder, 1, args.quiet, TRNSIM_SET=overrides)
        _, base = run_on_device("base", folder, 1, args.quiet)
        out.print(render_comparison(base, faster, names=("trn2", f"trn2, {key}={2 * value:g}")))
        out.print("\n[bold]4. And on Trainium3?[/bold]   (--config trn3)")
        _, trn3 = run_on_device("trn3", folder, 1, args.quiet, TRNSIM_CONFIG="trn3")
        out.print(render_comparison(base, trn3, names=("trn2", "trn3")))
    ok = result["tokens"] == cpu["tokens"] and worst < 1e-3 and result["accuracy"] > 0.9
    return 0 if ok else 1


def hbm_bandwidth() -> tuple[str, float]:
    """The configuration's key and value for HBM bandwidth."""
    from trnsim import cli

    rows = json.loads(subprocess.run([cli.NATIVE, "config", "show", "--json"], check=True, capture_output=True).stdout)
    rows = rows["parameters"] if isinstance(rows, dict) else rows
    row = next(r for r in rows if r["key"].startswith("hbm.") and "bandwidth" in r["key"])
    return row["key"], float(row["value"])


if __name__ == "__main__":
    sys.exit(main())
