"""Runs PyTorch's test databases on the device: operators, foreach functions, modules, optimizers.

One result per entry and type: native, fallback (named), wrong, error, skipped (with the reason). The results go to a
file as they come, so that a sweep can be interrupted and resumed, and so that cases named by a pattern replace what the
last sweep said of them; from a whole one come docs/conformance.md and, with --freeze, the list of native cases that the
tests keep (tests/python/conformance.txt).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import queue
import re
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "python"
PAGE = ROOT / "docs" / "conformance.md"
RESULTS = ROOT / "build" / "conformance.jsonl"
TIMEOUT_S = 600
sys.path.insert(0, str(TESTS))


# ---- one process that runs cases ---------------------------------------------------------------------------------
def work() -> None:
    """Reads names of cases, writes results. What tests print goes to the standard error output."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import conformance_cases as conformance
    import torch

    torch.set_num_threads(1)
    cases = {str(case): case for case in conformance.all_cases()}
    for line in sys.stdin:
        name = line.strip()
        start, excused = time.monotonic(), False
        try:
            outcome = conformance.run_case(cases[name])
            result, detail, excused = outcome.result, outcome.detail, outcome.excused_only
        except Exception as e:  # a fault of the harness must not end the sweep
            result, detail = "error", f"{type(e).__name__}: {e}"
        row = {"case": name, "result": result, "detail": detail[:600], "excused": excused}
        out.write(json.dumps({**row, "seconds": round(time.monotonic() - start, 3)}) + "\n")


class Worker:
    """Runs cases in a process of its own, and in a new one when a case has ended the last."""

    def __init__(self):
        self.process = None

    def run(self, name: str) -> dict:
        if self.process is not None and self.process.poll() is not None:
            self.end()  # it ended after its last result; that is no fault of this case
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--work"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        with contextlib.suppress(BrokenPipeError):  # it ends just now: what is left to read says so
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT_S)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        code = self.end(kill=not ready)
        why = f"ended by code {code}" if ready else f"no result after {TIMEOUT_S} s"
        return {"case": name, "result": "error", "detail": f"the process: {why}", "seconds": 0.0}

    def end(self, kill: bool = False) -> int:
        """Lets the process finish; returns its exit code."""
        if self.process is None:
            return 0
        if kill:
            self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        code = self.process.wait()
        self.process = None
        return code


# What most programs use comes first, so that an interrupted sweep says most.
ORDER = ["float32", "any", "bfloat16", "float16", "int64", "bool", "int32", "uint8"]


def rank(name: str) -> tuple[int, bool]:
    dtype = name.rsplit("/", 1)[1]
    return (ORDER.index(dtype) if dtype in ORDER else len(ORDER), not name.startswith("operators/"))


def sweep(names: list[str], jobs: int, results: Path, done: dict[str, dict]) -> None:
    todo = queue.SimpleQueue()
    for name in names:
        todo.put(name)
    lock = threading.Lock()
    start = time.monotonic()
    with results.open("a", encoding="utf-8") as file:

        def run() -> None:
            worker = Worker()
            while True:
                try:
                    name = todo.get_nowait()
                except queue.Empty:
                    break
                row = worker.run(name)
                with lock:
                    done[name] = row
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    show(len(names), todo.qsize(), start)
            worker.end()

        threads = [threading.Thread(target=run, daemon=True) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if sys.stderr.isatty():
        print(file=sys.stderr)


def show(total: int, left: int, start: float) -> None:
    if sys.stderr.isatty():
        text = f"{total - left} of {total} cases, {time.monotonic() - start:.0f} s"
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


# ---- the page ----------------------------------------------------------------------------------------------------
WORST_FIRST = ("wrong", "error", "fallback", "native", "skipped")
TYPES = ["float32", "bfloat16", "float16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64"]
TARGETS = {"float32": 97, "bfloat16": 95, "float16": 95, "integers and bool": 95, "error inputs": 98}


def combined(rows: list[dict]) -> str:
    """The result of an entry in a type is the worst of its forms."""
    results = {row["result"] for row in rows}
    return next(r for r in WORST_FIRST if r in results)


def by_entry(done: dict[str, dict]) -> dict[str, dict[str, dict[str, list[dict]]]]:
    """group -> entry -> type -> rows"""
    table: dict = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    for row in done.values():
        group, rest = row["case"].split("/", 1)
        entry, _form, dtype = rest.rsplit("/", 2)
        table[group][entry][dtype].append(row)
    return table


def share(counts: collections.Counter) -> str:
    judged = sum(counts.values()) - counts["skipped"]
    return f"{100 * counts['native'] / judged:.1f} %" if judged else "-"


def summary(done: dict[str, dict]) -> list[str]:
    lines = [
        "| databases | type | native | fallback | wrong | error | skipped | native, of those judged | goal |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    integers: collections.Counter = collections.Counter()

    def line(group, name, counts, goal=None):
        cells = " | ".join(str(counts[r]) for r in ("native", "fallback", "wrong", "error", "skipped"))
        lines.append(f"| {group} | {name} | {cells} | {share(counts)} | {f'{goal} %' if goal else ''} |")

    for group, entries in sorted(by_entry(done).items(), key=lambda item: item[0] != "operators"):
        types = {dtype for rows in entries.values() for dtype in rows}
        for dtype in [t for t in TYPES if t in types] + (["any"] if "any" in types else []):
            counts = collections.Counter(combined(rows[dtype]) for rows in entries.values() if dtype in rows)
            if group == "operators" and (dtype.startswith(("int", "uint")) or dtype == "bool"):
                integers += counts
            name = "error inputs" if dtype == "any" else dtype
            line(group, name, counts, TARGETS.get(name) if group == "operators" else None)
        if group == "operators" and integers:
            line(group, "integers and bool", integers, TARGETS["integers and bool"])
    return lines


def brief(detail: str) -> str:
    """What is wrong, without the sample that showed it."""
    line = detail.splitlines()[0]
    found = re.search(r"(\w+(Error|Exception)\b.*|result \d+: .*|accepted .*)", line)
    return (found.group(1) if found else line)[:160].replace("|", "\\|")


def page(done: dict[str, dict], total: int) -> str:
    import torch

    lines = [
        "# Conformance",
        "",
        "Generated by `tools/conformance`; do not edit. Each entry of PyTorch's own test databases "
        f"(`torch.testing._internal` of PyTorch {torch.__version__.split('+')[0]}) is run on the device with its "
        "samples: forward and backward, in-place and `out=` forms, non-contiguous, empty and 0-d tensors. It counts as "
        "*native* in a type when every value is right and nothing ran on the host, as *fallback* when the host took a "
        "part, by name. For error inputs, native means that the same class of exception is raised. Tolerances and "
        "named exceptions are in `tests/python/conformance_cases.py`, the cases that the tests keep native in "
        "`tests/python/conformance.txt`.",
        "",
        *([f"This sweep ended after {len(done)} of {total} cases.", ""] if len(done) < total else []),
        *summary(done),
        "",
    ]
    table = by_entry(done)
    for result, title in (("wrong", "Wrong"), ("error", "Errors"), ("fallback", "On the host, by operator")):
        rows = []
        for group, entries in sorted(table.items()):
            for entry, types in sorted(entries.items()):
                hit = [d for d in [*TYPES, "any"] if d in types and combined(types[d]) == result]
                if not hit:
                    continue
                details = {r["detail"] for d in hit for r in types[d] if r["result"] == result}
                rows.append((group, entry, hit, details))
        lines += [f"## {title}", ""]
        if not rows:
            lines += ["None.", ""]
            continue
        lines += ["| entry | types | what |", "|---|---|---|"]
        for group, entry, hit, details in rows:
            if result == "fallback":
                text = ", ".join(sorted({f"`{op}`" for d in details for op in d.split(", ")}))
            else:
                text = brief(min(details))
            name = entry if group == "operators" else f"{group}: {entry}"
            lines.append(f"| {name} | {', '.join('error inputs' if d == 'any' else d for d in hit)} | {text} |")
        lines.append("")
    reasons: dict[str, int] = collections.Counter(
        re.sub(r" in torch\.\w+", "", row["detail"]) for row in done.values() if row["result"] == "skipped"
    )
    lines += ["## Not judged", "", "| cases | reason |", "|---|---|"]
    lines += [f"| {count} | {reason} |" for reason, count in sorted(reasons.items(), key=lambda item: -item[1])]
    return "\n".join(lines) + "\n"


# ---- the command -------------------------------------------------------------------------------------------------
def read_results(path: Path) -> dict[str, dict]:
    rows = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:  # an interrupted write
                continue
            rows[row["case"]] = row
    return rows


def write_results(path: Path, rows: dict[str, dict]) -> None:
    """One line per case, the last result of each; an interrupted write goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text("".join(json.dumps(row) + "\n" for row in rows.values()), encoding="utf-8")
    new.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/conformance", description=__doc__.splitlines()[0])
    parser.add_argument("pattern", nargs="*", help="only cases whose name (group/entry/form/type) matches one of these")
    parser.add_argument("--resume", action="store_true", help="keep the results that are there")
    parser.add_argument("--freeze", action="store_true", help="add what is native to the list that the tests keep")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, help="where the page goes; default for a whole sweep: docs/conformance.md")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return 0
    import conformance_cases as conformance

    names = [str(case) for case in conformance.all_cases()]
    chosen = [n for n in names if not options.pattern or any(re.search(p, n) for p in options.pattern)]
    if not chosen:
        parser.error("user error: no case matches; a name is group/entry/form/type, e.g. operators/add/values/float32")
    if not options.resume and not options.pattern:
        options.results.unlink(missing_ok=True)
    known = set(names)
    done = {name: row for name, row in read_results(options.results).items() if name in known}
    write_results(options.results, done)
    todo = [name for name in chosen if not options.resume or name not in done]
    sweep(sorted(todo, key=rank), options.jobs, options.results, done)

    judged = {name: done[name] for name in chosen}
    print("\n".join(summary(judged)))
    frozen = conformance.read_frozen()
    native = {name for name, row in judged.items() if row["result"] == "native"}
    kept = {name for name, row in judged.items() if row["result"] == "skipped" or row.get("excused")}
    lost = sorted((frozen & judged.keys()) - native - kept)
    for name in lost:
        print(f"no longer native: {name}: {judged[name]['result']}: {judged[name]['detail'].splitlines()[0:1]}")
    print(f"{len(native - frozen)} native cases are new" + ("" if options.freeze else "; --freeze adds them"))
    if options.freeze:
        conformance.write_frozen(frozen | native)
    target = options.page or (PAGE if len(done) == len(names) else None)
    if target is not None:
        target.write_text(page(done, len(names)), encoding="utf-8")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
