"""tools/upstream and tools/conformance on something small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "tests" / "python" / "upstream_sample"
sys.path.insert(0, str(ROOT / "tools"))
import conformance  # noqa: E402
import upstream  # noqa: E402


def tool(name, *args, code=0):
    command = [sys.executable, ROOT / "tools" / f"{name}.py", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def test_upstream_runs_the_classes_of_the_device_and_names_every_outcome(tmp_path):
    done = tool(
        "upstream", SAMPLE, "generic_sample.py", "--limit", 10, "--json", tmp_path / "r.json", "--page",
        tmp_path / "p.md", code=1,
    )  # fmt: skip
    rows = json.loads((tmp_path / "r.json").read_text())["files"]["generic_sample.py"]
    outcomes = {row["test"].split("::")[-1]: (row["outcome"], row["reason"]) for row in rows}
    assert {name: outcome for name, (outcome, _) in outcomes.items()} == {
        "test_add_neuron_float32": "passed",
        "test_add_neuron_bfloat16": "passed",
        "test_of_another_device_neuron": "skipped",
        "test_that_fails_neuron": "failed",
        "test_that_ends_the_process_neuron": "crashed",
        "test_that_exits_neuron": "crashed",
        "test_that_does_not_end_neuron": "failed",
        "test_that_fails_everywhere_neuron": "explained",
        "test_subtests_neuron": "failed",
        "test_of_float64_neuron": "passed",
        "test_gradient_neuron": "passed",
        "test_that_expects_an_error_neuron": "explained",
        "test_view_neuron": "passed",
        "test_of_cpu_and_cuda_neuron": "passed",
    }
    assert "cuda" in outcomes["test_of_another_device_neuron"][1]
    assert "Scalars are not" in outcomes["test_that_fails_neuron"][1]
    assert outcomes["test_that_does_not_end_neuron"][1] == "TimeLimit: ran longer than 10 s"
    assert "Expected 5 but got 1" in outcomes["test_subtests_neuron"][1]  # and no count of subtests
    text = (tmp_path / "p.md").read_text()
    assert "| all | 6 | 1 | 2 | 3 | 2 |" in done.stdout and "| all | 6 | 1 | 2 | 3 | 2 |" in text
    assert "| 1 | fails on the CPU of the installed PyTorch, too |" in text
    again = tool(
        "upstream", SAMPLE, "generic_sample.py", "--failed", "-k", "fails", "--json", tmp_path / "r.json", code=1
    )  # fmt: skip
    assert "generic_sample.py: 6 passed, 1 skipped, 2 explained, 3 failed, 2 crashed" in again.stderr
    assert "| 1 | passes with NEURON_LAUNCH_BLOCKING=1: errors come late |" in text


def test_upstream_goes_on_with_an_interrupted_run_and_joins_choices(tmp_path):
    before = [{"test": "TestSamplePRIVATEUSE1::test_that_fails_neuron", "outcome": "passed", "reason": "as told"}]
    before += [{"test": "TestSamplePRIVATEUSE1::test_that_fails_everywhere_neuron"}]  # the run ended in it
    results = tmp_path / "r.json"
    command = ["upstream", SAMPLE, "generic_sample.py", "--json", results]
    begun = upstream.unfinished(upstream.parser().parse_args([*map(str, command[1:]), "-k", "fails"]), command[2])
    begun.write_text("\n".join(map(json.dumps, before)))
    assert "1 passed, 0 skipped, 1 explained, 0 failed" in tool(*command, "-k", "fails").stderr
    assert not begun.exists()
    for _ in range(2):
        assert "2 passed, 0 skipped, 1 explained, 0 failed" in tool(*command, "-k", "view").stderr
        assert json.loads(results.read_text())["only"] == {"generic_sample.py": ["fails", "view"]}


def test_upstream_says_what_a_file_needs(tmp_path):
    (tmp_path / "conftest.py").write_text("raise RuntimeError('of another version of pytest')\n")
    (tmp_path / "test_x.py").write_text("import no_such_module\n")
    assert "No module named 'no_such_module'; next step: pip install no_such_module" in tool(
        "upstream", tmp_path, "test_x.py", code=1
    ).stdout


def test_upstream_explains_failures_by_its_table(monkeypatch):
    monkeypatch.setattr(upstream, "REASONS", [("test_a.py::.*_float64$", "precision", "has no float64")])
    rows = [
        {"test": f"TestNEURON::test_neuron_{kind}", "outcome": "failed", "reason": why}
        for kind, why in (
            ("float64", "bad precision"), ("int64", "bad shape"), ("float32", "bad precision"), ("bool", "bad shape")
        )
    ]  # fmt: skip
    asked = []

    def run_tests(path, device, limit_s, only, mode=None):
        asked.append((device, only, mode))
        fails = device == "neuron" and mode is None
        return [{"test": t, "outcome": "failed" if fails and "int64" in t else "passed", "reason": ""} for t in only]

    monkeypatch.setattr(upstream, "MODES", [("shape", "TRNSIM_INT64", "exact", "int64 is narrow")])
    monkeypatch.setattr(upstream, "run_tests", run_tests)
    upstream.explain(Path("test_a.py"), rows, 1)
    assert [row["outcome"] for row in rows] == ["explained", "explained", "failed", "failed"]
    assert rows[1]["why"] == "passes with TRNSIM_INT64=exact: int64 is narrow"
    assert rows[3]["reason"] == "passes by itself; among the others: bad shape"
    assert asked == [
        ("neuron", ["TestNEURON::test_neuron_int64", "TestNEURON::test_neuron_bool"], None),
        ("neuron", ["TestNEURON::test_neuron_int64"], {"TRNSIM_INT64": "exact"}),
        ("cpu", ["TestCPU::test_cpu_float32", "TestCPU::test_cpu_bool"], None),
    ]


@pytest.mark.parametrize(
    ("args", "words"), [(["/nowhere"], "is no folder"), ([SAMPLE, "test_x.py"], "has no test_x.py")]
)
def test_upstream_without_a_checkout_says_what_is_missing(args, words):
    assert words in tool("upstream", *args, code=2).stderr


def test_conformance_resumes_and_writes_its_page(tmp_path):
    results, page = tmp_path / "r.jsonl", tmp_path / "p.md"
    common = ["--results", results, "--page", page, "--jobs", 1]
    tool("conformance", *common, "^operators/(sigmoid|linalg.ldl_factor)/(values|errors)/(float32|any|complex128)$")
    rows = {row["case"]: row for row in map(json.loads, results.read_text().splitlines())}
    assert rows["operators/sigmoid/values/float32"]["result"] == "native"
    fallback = rows["operators/linalg.ldl_factor/values/float32"]
    assert fallback["result"] == "fallback" and "linalg" in fallback["detail"]
    assert rows["operators/linalg.ldl_factor/values/complex128"]["result"] == "skipped"
    text = page.read_text()
    assert "| linalg.ldl_factor | float32 | `aten::" in text and "computed as complex64 is" in text
    tool("conformance", *common, "--resume", "^operators/(sigmoid|linalg.ldl_factor|neg)/values/float32$")
    cases = [json.loads(line)["case"] for line in results.read_text().splitlines()]
    assert len(cases) == len(set(cases)) == len(rows) + 1  # neg alone was left
    assert "no case matches" in tool("conformance", "nothing-like-this", code=2).stderr


def test_conformance_keeps_what_a_pattern_does_not_name(tmp_path):
    results = tmp_path / "r.jsonl"
    old = [{"case": f"operators/{name}/values/bool", "result": "wrong", "detail": "-"} for name in ("all", "any")]
    results.write_text("".join(json.dumps(row) + "\n" for row in old) + '{"case": "operators/a')  # cut off
    tool("conformance", "--results", results, "--page", tmp_path / "p.md", "--jobs", 1, "^operators/any/values/bool$")
    rows = {row["case"]: row for row in conformance.read_results(results).values()}
    assert rows["operators/all/values/bool"]["result"] == "wrong"
    assert rows["operators/any/values/bool"]["result"] == "native"


def test_conformance_goes_on_after_a_worker_has_ended(monkeypatch, tmp_path):
    """One that ends with its case is an error of that case, one that ended before it is not."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    name = line.strip()\n"
        "    if name == 'fatal': os._exit(3)\n"
        "    print(json.dumps({'case': name, 'result': 'native'}), flush=True)\n"
        "    if name == 'last': os._exit(0)\n"
    )
    monkeypatch.setattr(conformance, "__file__", str(script))
    worker = conformance.Worker()
    results = [worker.run(name) for name in ("a", "fatal", "b", "last")]
    worker.process.wait()
    results.append(worker.run("c"))
    worker.end()
    assert [row["result"] for row in results] == ["native", "error", "native", "native", "native"]
    assert results[1]["detail"] == "the process: ended by code 3"
