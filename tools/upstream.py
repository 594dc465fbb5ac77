"""Runs the device-generic tests of a PyTorch checkout on the device, and says what passed, was skipped and failed.

PyTorch makes a class of every generic test class for every device it knows; this device is its PrivateUse1. Only those
classes run, each file in a process of its own. A test that ends the process counts as "crashed", and the rest goes on.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUTCOMES = ("passed", "skipped", "failed", "crashed")
DEFAULT_FILES = [
    f"test_{name}.py"
    for name in (
        "torch", "ops", "nn", "autograd", "unary_ufuncs", "binary_ufuncs", "reductions", "indexing", "view_ops",
        "tensor_creation_ops", "type_promotion", "sort_and_select", "shape_ops", "scatter_gather_ops", "linalg",
        "foreach", "modules", "optim", "masked", "testing",
    )
]  # fmt: skip


def run_file(path: Path, expression: str | None, timeout_s: int) -> list[dict]:
    """Rows {"test", "outcome", "reason"} of one file."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.jsonl"
        results.touch()
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTORCH_TESTING_DEVICE_ONLY_FOR": "privateuse1",
            "UPSTREAM_RESULTS": str(results),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "upstream_plugin", "-p", "no:cacheprovider", str(path)]
        command += ["-k", expression] if expression else []
        while True:
            before = results.read_text()
            try:
                done = subprocess.run(
                    command, cwd=path.parent, env=env, capture_output=True, text=True, timeout=timeout_s, check=False
                )
            except subprocess.TimeoutExpired:  # the results so far stand; the test that ran counts as crashed
                return read(results)
            rows = read(results)
            now = results.read_text()
            if now != before and "outcome" not in json.loads(now.splitlines()[-1]):
                continue  # the last test ended the process, with whatever code
            if done.returncode in (0, 1, 5):  # tests ran: good, some failed, none
                break
            if done.returncode >= 0 or now == before:  # no test had begun
                why = (done.stdout + done.stderr).strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
                rows.append({"test": "(the file)", "outcome": "failed", "reason": why[0]})
                break
        return rows


def read(results: Path) -> list[dict]:
    """The outcome of each test; one that began and has none ended its process."""
    rows: dict[str, dict] = {}
    for line in results.read_text().splitlines():
        row = json.loads(line)
        rows[row["test"]] = row if "outcome" in row else {**row, "outcome": "crashed", "reason": "the process ended"}
    return list(rows.values())


def table(by_file: dict[str, list[dict]]) -> str:
    lines = ["| file | passed | skipped | failed | crashed |", "|---|---|---|---|---|"]
    total: collections.Counter = collections.Counter()
    for name, rows in by_file.items():
        counts = collections.Counter(row["outcome"] for row in rows)
        total += counts
        lines.append(f"| {name} | " + " | ".join(str(counts[o]) for o in OUTCOMES) + " |")
    lines.append("| all | " + " | ".join(str(total[o]) for o in OUTCOMES) + " |")
    for outcome, title in (("skipped", "Skipped"), ("failed", "Failed"), ("crashed", "Crashed")):
        rows = [(name, row) for name, rows in by_file.items() for row in rows if row["outcome"] == outcome]
        if not rows:
            continue
        lines += ["", f"## {title}", ""]
        if outcome == "skipped":
            reasons = collections.Counter(row["reason"] for _, row in rows)
            lines += ["| tests | reason |", "|---|---|"]
            lines += [f"| {count} | {cell(reason)} |" for reason, count in reasons.most_common()]
        else:
            lines += ["| test | reason |", "|---|---|"]
            lines += [f"| {name}: {row['test']} | {cell(row['reason'])} |" for name, row in rows]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    return (text.splitlines() or [""])[0][:200].replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/upstream", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the folder test/ of a PyTorch checkout of the installed version")
    parser.add_argument("files", nargs="*", help="files in it; default: those of tensors, operators and modules")
    parser.add_argument("-k", dest="expression", help="only tests that match, as in pytest")
    parser.add_argument("--page", type=Path, help="write the table to this file, too")
    parser.add_argument("--json", type=Path, help="write the result of every test to this file")
    parser.add_argument("--timeout", type=int, default=6 * 3600, help="seconds for one file")
    options = parser.parse_args()
    if not options.folder.is_dir():
        parser.error(f"user error: {options.folder} is no folder; give test/ of a PyTorch source checkout")
    names = options.files or [name for name in DEFAULT_FILES if (options.folder / name).exists()]
    missing = [name for name in names if not (options.folder / name).exists()]
    if missing or not names:
        parser.error(f"user error: {options.folder} has no {', '.join(missing) or 'test file of PyTorch'}")
    by_file = {}
    for name in names:
        by_file[name] = run_file((options.folder / name).resolve(), options.expression, options.timeout)
        counts = collections.Counter(row["outcome"] for row in by_file[name])
        print(f"{name}: " + ", ".join(f"{counts[o]} {o}" for o in OUTCOMES), file=sys.stderr, flush=True)
    text = table(by_file)
    print(text, end="")
    if options.page:
        options.page.write_text("# PyTorch's own tests\n\nGenerated by `tools/upstream`.\n\n" + text)
    if options.json:
        options.json.write_text(json.dumps(by_file, indent=1) + "\n")
    return int(any(row["outcome"] in ("failed", "crashed") for rows in by_file.values() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
