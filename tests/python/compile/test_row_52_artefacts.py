"""Row 52: the FX graph and every level of the compiler are kept when asked for."""

SCRIPT = """
import torch
def f(x):
    return torch.softmax(x, -1) * 2
torch.compile(f, backend="neuron", options={"model_name": "kept"})(torch.randn(4, 8, device="neuron"))
torch.neuron.synchronize()
"""


def test_artefacts_are_kept(run_python, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run_python(
        f"import runpy; runpy.run_path({str(script)!r})",
        TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS="1",
        TORCH_NEURONX_DEBUG_DIR=str(tmp_path),
        TORCH_NEURONX_NEFF_CACHE_DIR="",
    )
    names = {p.name for p in tmp_path.iterdir() if p.name.startswith("kept.inference")}
    for level in (".fx.txt", ".graph.txt", ".kernels.txt", ".tiles.txt"):
        assert any(n.endswith(level) for n in names), names
    graph = next(p for p in tmp_path.iterdir() if p.name.startswith("kept") and p.name.endswith(".graph.txt"))
    assert '"aten::_softmax"' in graph.read_text() and f'at "{script}":4' in graph.read_text()


def test_nothing_is_kept_by_default(run_python, tmp_path):
    run_python(
        "import torch; torch.compile(lambda x: x + 1, backend='neuron')(torch.ones(3, device='neuron'))",
        TORCH_NEURONX_DEBUG_DIR=str(tmp_path),
    )
    assert not list(tmp_path.iterdir())
