"""A short run of tools/fuzz_graphs.py: random graphs compiled, eager and on the CPU."""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import fuzz_graphs  # noqa: E402


def test_random_graphs(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judged, failures = fuzz_graphs.fuzz(20, seed=7000, shrink=True)
    assert not failures, capsys.readouterr().out
    assert judged >= 15


def test_a_wrong_operator_is_found_and_shrunk(monkeypatch):
    """The fuzzer's own check: with a device that adds 0.5 too much, a graph fails and shrinks to that addition."""
    case = fuzz_graphs.Case(1, [((4, 8), (8, 1), fuzz_graphs.torch.float32)])
    texts = ("v0.sin()", "v1 + 2", "v2.exp()", "v3 * 2")
    case.steps = [fuzz_graphs.Step(text, (i,)) for i, text in enumerate(texts)]
    right = fuzz_graphs.run

    def wrong(case, device, compiled):
        results = right(case, device, False)
        spoilt = device == "neuron" and compiled and any("+ 2" in s.text for s in case.steps)
        return [r + 0.5 for r in results] if spoilt else results

    monkeypatch.setattr(fuzz_graphs, "run", wrong)
    assert "compiled and eager" in fuzz_graphs.failure(case)
    assert [s.text for s in fuzz_graphs.shrunk(case).steps] == ["v0 + 2"]
