"""Runs the device-generic tests of a PyTorch checkout on the device, and says what passed, was skipped and failed.

PyTorch makes a class of every generic test class for every device it knows; this device is its PrivateUse1. Only those
classes run, each file in a process of its own. A test that ends the process counts as "crashed", and the rest goes on.
A test that fails on the CPU of the installed PyTorch as well, that passes in another mode of the device (MODES), or
that fails for a reason that upstream_reasons.py names, counts as "explained".
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from upstream_reasons import REASONS

HERE = Path(__file__).resolve().parent
OUTCOMES = ("passed", "skipped", "explained", "failed", "crashed")
HELPERS = ("pytest", "torch", "numpy", "expecttest", "hypothesis")  # what PyTorch's tests import
# Modes of the device in which PyTorch's assumptions hold: which messages, the variable, its value, and why.
MODES = (
    (r"not raised", "NEURON_LAUNCH_BLOCKING", "1", "errors come late"),
    (r"^(?!TimeLimit)", "TRNSIM_INT64", "exact", "int64 is computed as int32"),
)
DEFAULT_FILES = [
    f"test_{name}.py"
    for name in (
        "torch", "ops", "nn", "autograd", "unary_ufuncs", "binary_ufuncs", "reductions", "indexing", "view_ops",
        "tensor_creation_ops", "type_promotion", "sort_and_select", "shape_ops", "scatter_gather_ops", "linalg",
        "foreach", "modules", "optim", "masked", "testing", "transformers", "complex", "dataloader", "serialization",
        "dlpack", "namedtensor", "stateless", "autocast",
    )
]  # fmt: skip


def run_tests(
    path: Path, device: str, limit_s: int, expression: str = "", only: list[str] = (), mode: dict | None = None,
    results: Path | None = None,
) -> list[dict]:
    """Rows {"test", "outcome", "reason"} of one file, of the classes for "neuron" or "cpu".

    The tests that `results` already tells of are not run again.
    """  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        results = results or Path(folder) / "results.jsonl"
        forget_last_unless_ended(results)
        only_file = Path(folder) / "only.txt"
        only_file.write_text("\n".join(only))
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTORCH_TESTING_DEVICE_ONLY_FOR": "privateuse1" if device == "neuron" else device,
            "PYTORCH_PRINT_REPRO_ON_FAILURE": "0",
            "UPSTREAM_RESULTS": str(results),
            "UPSTREAM_SUFFIXES": "PRIVATEUSE1,NEURON" if device == "neuron" else device.upper(),
            "UPSTREAM_ONLY": str(only_file),
            "UPSTREAM_LIMIT_S": str(limit_s),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            **(mode or {}),
        }
        if device == "cpu":
            env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        # The checkout's own conftest.py and pytest.ini belong to its version of pytest, and serve its CI only.
        command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-c", os.devnull, f"--rootdir={path.parent}"]
        command += ["--capture=sys", "--assert=plain", "--tb=native", "-p", "no:warnings", "-p", "no:cacheprovider"]
        command += ["-p", "upstream_plugin", str(path), *(["-k", expression] if expression else [])]
        while True:
            before = results.read_text()
            done = subprocess.run(command, cwd=path.parent, env=env, capture_output=True, text=True, check=False)
            now = results.read_text()
            if now != before and "outcome" not in json.loads(now.splitlines()[-1]):
                # The last test ended the process, with whatever code; the next one goes on after it.
                test = json.loads(now.splitlines()[-1])["test"]
                why = f"ran longer than {limit_s} s" if "Timeout (" in done.stderr else "the process ended"
                with results.open("a") as file:
                    file.write(json.dumps({"test": test, "outcome": "crashed", "reason": why}) + "\n")
                continue
            rows = read(results)
            told = any(row["outcome"] == "failed" for row in rows)
            if done.returncode not in (0, 5) and not told:  # 5: no test is left
                why = (done.stdout + done.stderr).strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
                rows.append({"test": "(the file)", "outcome": "failed", "reason": why[0]})
            return rows


def forget_last_unless_ended(results: Path) -> None:
    """What an interrupted run began last, the next one begins again."""
    lines = results.read_text().splitlines(keepends=True) if results.exists() else []
    while lines and not ('"outcome"' in lines[-1] and lines[-1].endswith("\n")):
        lines.pop()
    results.write_text("".join(lines))


def read(results: Path) -> list[dict]:
    """The outcome of each test; the first failure of one that reports several, as subtests do."""
    rows: dict[str, dict] = {}
    for line in results.read_text().splitlines():
        row = json.loads(line)
        if "outcome" in row and rows.get(row["test"], {}).get("outcome") not in ("failed", "crashed"):
            if missing := re.search(r"No module named '([\w.]+)'", row["reason"]):
                row["reason"] += f"; next step: pip install {missing[1]}"
            rows[row["test"]] = row
    return list(rows.values())


def explain(path: Path, rows: list[dict], limit_s: int) -> None:
    """Tells faults of the device from the failures that have a reason outside of it."""
    failures = [row for row in rows if row["outcome"] in ("failed", "crashed")]
    for row in failures:
        for tests, message, why in REASONS:
            if re.search(tests, f"{path.name}::{row['test']}") and re.search(message, row["reason"]):
                row.update(outcome="explained", why=why)
                break
    # What passes by itself depends on the tests before it, or on chance, and not on a mode.
    failed = [row for row in failures if row["outcome"] == "failed" and "::" in row["test"]]
    failed = [row for row in failed if any(re.search(message, row["reason"]) for message, *_ in MODES)]
    again = run_tests(path, "neuron", limit_s, only=[row["test"] for row in failed]) if failed else []
    alone = {row["test"] for row in again if row["outcome"] == "passed"}
    for row in failed:
        if row["test"] in alone:
            row["reason"] = f"passes by itself; among the others: {row['reason']}"
    for message, variable, value, why in MODES:
        left = {row["test"]: row for row in failed if row["outcome"] == "failed" and row["test"] not in alone}
        left = {test: row for test, row in left.items() if re.search(message, row["reason"])}
        if not left:
            continue
        for row in run_tests(path, "neuron", limit_s, only=list(left), mode={variable: value}):
            if row["outcome"] == "passed":
                left[row["test"]].update(outcome="explained", why=f"passes with {variable}={value}: {why}")
    twins = {twin(row["test"]): row for row in failures if row["outcome"] != "explained" and "::" in row["test"]}
    if not twins:
        return
    for on_cpu in run_tests(path, "cpu", limit_s, only=list(twins)):
        if on_cpu["outcome"] in ("failed", "crashed") and on_cpu["test"] in twins:
            twins[on_cpu["test"]].update(outcome="explained", why="fails on the CPU of the installed PyTorch, too")


def twin(test: str) -> str:
    """The name that PyTorch gives the same test for the CPU."""
    group, _, name = test.rpartition("::")
    head, _, tail = name.rpartition("_neuron")
    return re.sub("(NEURON|PRIVATEUSE1)$", "CPU", group) + "::" + (f"{head}_cpu{tail}" if head else name)


def page(results: dict) -> str:
    import torch

    by_file = results["files"]
    lines = ["| file | " + " | ".join(OUTCOMES) + " |", "|---" * (len(OUTCOMES) + 1) + "|"]
    total: collections.Counter = collections.Counter()
    for name, rows in sorted(by_file.items()):
        counts = collections.Counter(row["outcome"] for row in rows)
        total += counts
        told = " ".join([name, *(f'`-k "{expression}"`' for expression in results["only"].get(name, []))])
        lines.append(f"| {told} | " + " | ".join(str(counts[o]) for o in OUTCOMES) + " |")
    lines.append("| all | " + " | ".join(str(total[o]) for o in OUTCOMES) + " |")
    rows = [(name, row) for name, rows in sorted(by_file.items()) for row in rows]
    for outcome, title, key in (("skipped", "Skipped by PyTorch", "reason"), ("explained", "Explained", "why")):
        words = [row[key] for _, row in rows if row["outcome"] == outcome]
        reasons = collections.Counter(map(general, words) if outcome == "skipped" else words)
        if reasons:
            lines += ["", f"## {title}", "", "| tests | reason |", "|---|---|"]
            lines += [f"| {count} | {cell(reason)} |" for reason, count in reasons.most_common()]
    failures: dict[tuple, list[str]] = {}
    for name, row in rows:
        if row["outcome"] in ("failed", "crashed"):
            test = row["test"].rpartition("::")[2].rpartition("_neuron")[0] or row["test"]
            failures.setdefault((row["outcome"], f"{name}: {test}"), []).append(row["reason"])
    if failures:
        lines += ["", "## Left", "", "| test | outcome | types | reason of the first |", "|---|---|---|---|"]
        lines += [f"| {test} | {how} | {len(why)} | {cell(why[0])} |" for (how, test), why in failures.items()]
    installed = torch.__version__.partition("+")[0]
    head = (
        "# PyTorch's own tests\n\nGenerated by `tools/upstream`; do not edit. The device-generic classes of the test"
        f" files of PyTorch {results['checkout']}, run with PyTorch {installed}. *Explained* are failures for a reason"
        " outside of the device; float64 is compared by the tolerances of float32, as which it is computed.\n\n"
    )
    return head + "\n".join(lines) + "\n"


def general(reason: str) -> str:
    """A reason of skipping without what differs between the cases of one test."""
    return re.sub(r"\b(torch\.)?(b?float|complex|u?int)\d+\b", "this type", (reason.splitlines() or [""])[0])


def cell(text: str) -> str:
    return " ".join(text.split())[:160].replace("|", "\\|")


def unfinished(options: argparse.Namespace, name: str) -> Path | None:
    """Where the outcomes of a file lie until it is done, so that a run that was interrupted goes on."""
    if not options.json:
        return None
    asked = f"{options.expression}{' failed' * options.failed}"
    words = hashlib.sha256(asked.encode()).hexdigest()[:8] if asked else "whole"
    return options.json.with_suffix(f".{name.replace('/', '.')}.{words}.jsonl")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/upstream", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the folder test/ of a PyTorch checkout, best of the version in use")
    parser.add_argument("files", nargs="*", help="files in it; default: those of tensors, operators and modules")
    parser.add_argument("-k", dest="expression", default="", help="only tests that match, as in pytest")
    parser.add_argument("--page", type=Path, help="write the tables to this file, too")
    parser.add_argument("--json", type=Path, help="keep every result here, beside those of other files and -k")
    parser.add_argument("--failed", action="store_true", help="only tests that failed by --json; others keep theirs")
    parser.add_argument("--limit", type=int, default=180, help="seconds for one test (180)")
    return parser


def main() -> int:
    command = parser()
    options = command.parse_args()
    if not options.folder.is_dir():
        command.error(f"user error: {options.folder} is no folder; give test/ of a PyTorch source checkout")
    names = options.files or [name for name in DEFAULT_FILES if (options.folder / name).exists()]
    missing = [name for name in names if not (options.folder / name).exists()]
    if missing or not names:
        command.error(f"user error: {options.folder} has no {', '.join(missing) or 'test file of PyTorch'}")
    if missing := [name for name in HELPERS if importlib.util.find_spec(name) is None]:
        words = " ".join(missing)
        command.error(f"user error: PyTorch's tests need what is missing: {words}; next step: pip install {words}")
    version = options.folder / ".." / "version.txt"
    results = {"checkout": version.read_text().strip() if version.exists() else "of unknown version"}
    results |= {"files": {}, "only": {}}  # rows of each file; the choices of it, none is all
    if options.json and options.json.exists():
        results |= json.loads(options.json.read_text())
    failed = False
    for name in names:
        path = (options.folder / name).resolve()
        before = results["files"].get(name, []) if options.failed or options.expression else []
        only = [row["test"] for row in before if options.failed and row["outcome"] in ("failed", "crashed")]
        if options.failed and not only:
            continue
        begun = unfinished(options, name)
        rows = run_tests(path, "neuron", options.limit, options.expression, only, results=begun)
        explain(path, rows, options.limit)
        rows = [row for row in before if row["test"] not in {again["test"] for again in rows}] + rows
        results["files"][name] = rows
        if not options.failed:
            choices = results["only"].get(name, []) if before else [options.expression]
            results["only"][name] = sorted({*choices, options.expression}) if choices and options.expression else []
        counts = collections.Counter(row["outcome"] for row in rows)
        failed |= counts["failed"] + counts["crashed"] > 0
        print(f"{name}: " + ", ".join(f"{counts[o]} {o}" for o in OUTCOMES), file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n")
            begun.unlink()
    text = page(results)
    print(text, end="")
    if options.page:
        options.page.write_text(text)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
