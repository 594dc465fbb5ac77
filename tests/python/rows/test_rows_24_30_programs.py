"""Checklist rows 24 to 30: values, programs and their cache, fallback, tracking."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db

import torch_neuronx
import trnsim
from trnsim import _C


def compiles():
    return _C.caches()[2]


def test_row_25_shared_weights_and_early_optimizers_survive_module_to():
    model = nn.Module()
    model.a, model.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    model.b.weight = model.a.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.to("neuron")
    assert model.a.weight is model.b.weight
    model.a.weight.grad = torch.ones_like(model.a.weight)
    before = model.b.weight.detach().cpu().clone()
    optimizer.step()
    torch.testing.assert_close(model.b.weight.detach().cpu(), before - 1)


def test_row_25_one_compilation_per_shape():
    x, y = torch.rand(7, 11, device="neuron"), torch.rand(3, 13, device="neuron")
    torch.neuron.synchronize()
    before = compiles()
    torch.sinc(x).cpu()
    first = compiles() - before
    assert first >= 1
    torch.sinc(x + 0).cpu()
    after_repeat = compiles()
    torch.sinc(x).cpu()
    assert compiles() == after_repeat
    torch.sinc(y).cpu()
    assert compiles() > after_repeat


def test_row_25_scalars_do_not_recompile():
    x = torch.rand(5, 9, device="neuron")
    (x * 0.1 + 1.0).cpu()
    before = compiles()
    for i in range(5):
        torch.testing.assert_close((x * (0.2 + i) + float(i)).cpu(), x.cpu() * (0.2 + i) + float(i))
    assert compiles() == before


@pytest.mark.filterwarnings("ignore:neuron")
def test_row_28_and_30_fallback_is_right_counted_and_named():
    torch_neuronx.clear_op_tracking()
    trnsim.reset_report()
    x = torch.randn(6, 6)
    x = x + x.mT
    value = torch.linalg.ldl_factor(x.to("neuron")).LD
    value = torch.linalg.ldl_factor(x.to("neuron")).LD
    assert value.device.type == "neuron"
    torch.testing.assert_close(value.cpu(), torch.linalg.ldl_factor(x).LD)
    y = torch.ones(3, device="neuron") + 1
    y = y + 1
    names = torch_neuronx.get_fallback_ops()
    assert len([n for n in names if "linalg" in n]) == 2
    assert torch_neuronx.get_executed_ops().count("aten::add.Tensor") == 2
    row = next(r for r in trnsim.fallbacks() if "linalg" in r["op"])
    assert row["count"] == 2 and row["reason"]
    torch_neuronx.clear_op_tracking()
    assert torch_neuronx.get_fallback_ops() == torch_neuronx.get_executed_ops() == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["mul", "softmax", "matmul", "nn.functional.layer_norm", "index_select", "cumsum"])
def test_row_24_eager_values_and_gradients_are_those_of_the_cpu(name, dtype):
    """A glance at each kind of program; test_opinfo.py goes through the whole of PyTorch's database."""
    import opinfo_cases as cases

    op = next(op for op in op_db if op.name == name)
    assert cases.check_values(op, dtype, 2) == []


CACHED = """
import warnings, torch, trnsim
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = torch.arange(12.0, device="neuron").reshape(3, 4)
    y = torch.softmax(x @ x.t() * 0.5, -1)
    print(y.sum().item())
caches = trnsim.report()["caches"]
print(caches["compiles"], caches["disk_hits"])
print(*[w.message for w in caught if "int64" not in str(w.message)])
"""


def cached(run_python, folder, **env):
    value, counts, *warned = run_python(CACHED, TORCH_NEURONX_NEFF_CACHE_DIR=str(folder), **env).stdout.split("\n")
    return float(value), *map(int, counts.split()), " ".join(warned).strip()


def test_row_26_a_second_process_finds_the_programs_of_the_first(run_python, tmp_path):
    value, made, found, warned = cached(run_python, tmp_path)
    assert value == pytest.approx(3.0) and made > 0 and found == 0 and warned == ""
    files = sorted(tmp_path.rglob("*"))
    assert len([f for f in files if f.suffix == ".trnp"]) == made and not [f for f in files if f.suffix == ".tmp"]
    assert cached(run_python, tmp_path) == (value, 0, made, "")
    for switch in ("TORCH_NEURONX_DISABLE_NEFF_CACHE", "TORCH_NEURONX_NEFF_DISABLE_CACHE"):
        assert cached(run_python, tmp_path, **{switch: "1"})[1:3] == (made, 0)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "other"])
def test_row_26_a_damaged_entry_is_compiled_again_with_a_warning(run_python, tmp_path, damage):
    value, made, _, _ = cached(run_python, tmp_path)
    victim = sorted(tmp_path.rglob("*.trnp"))[0]
    contents = bytearray(victim.read_bytes())
    contents[-20] ^= 4
    victim.write_bytes(
        {"truncated": contents[:-7], "flipped": contents, "empty": b"", "other": b"something else" * 30}[damage]
    )
    again, compiled, found, warned = cached(run_python, tmp_path)
    assert (again, compiled, found) == (value, 1, made - 1)
    assert f"{victim} is damaged; it is compiled and written again" in warned
    assert cached(run_python, tmp_path) == (value, 0, made, "")


def test_row_26_several_processes_at_once(tmp_path, run_python):
    import os

    env = {**os.environ, "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.Popen([sys.executable, "-W", "ignore", "-c", CACHED], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [run.communicate()[0].split("\n") for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert len({output[0] for output in outputs}) == 1 and all(output[2] == "" for output in outputs)
    _, compiled, found, warned = cached(run_python, tmp_path)
    assert compiled == 0 and found > 0 and warned == ""


def chain(x, look=lambda t: None):
    for _ in range(4):
        x = torch.tanh(x * 1.25 + 0.1)
        look(x)
        x = x - x.mean(dim=-1, keepdim=True)
        look(x)
    return x


def test_row_27_looking_at_intermediate_values_changes_no_bit():
    x = torch.randn(17, 33, generator=torch.Generator().manual_seed(0)).to("neuron")
    plain = chain(x).cpu()
    assert torch.equal(chain(x, lambda t: repr(t)).cpu(), plain)
    assert torch.equal(chain(x, lambda t: t.sum().item()).cpu(), plain)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(chain(x).cpu(), plain)
    finally:
        torch.use_deterministic_algorithms(False)


STRICT = """
import torch
x = torch.eye(3, device="neuron")
print(torch.linalg.ldl_factor(x).LD[0, 0].item())  # no lowering at all
try:
    (x + 1j).logcumsumexp(0)  # a lowering, but not for complex numbers
    print("ran")
except RuntimeError as e:
    print(e)
"""


def test_row_29_an_operator_with_a_lowering_must_not_fall_back(run_python):
    assert run_python(STRICT).stdout.split() == ["1.0", "ran"]
    out = run_python(STRICT, TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS="1").stdout.split("\n")
    assert out[0] == "1.0" and "logcumsumexp" in out[1]
    assert "fallback is disabled by TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS" in out[1]
    assert run_python(STRICT, check=False, TRNSIM_FALLBACK="error").returncode != 0
