"""What loading the device does, and refuses, beside rows 1 to 7 of the checklist (rows/)."""


def test_import_does_not_start_the_simulator(run_python):
    out = run_python(
        """
import torch
from trnsim import _C
print(_C.is_initialized(), "libnrt" in open("/proc/self/maps").read())
"""
    ).stdout
    assert out.split() == ["False", "False"]


def test_the_package_of_real_hardware_is_refused(tmp_path, run_python):
    import os

    info = tmp_path / "torch_neuronx-2.14.3.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-neuronx\nVersion: 2.14.3.0\n")
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(tmp_path)]))
    result = run_python("import torch", check=False, PYTHONPATH=path)
    assert result.returncode != 0
    assert "torch-neuronx 2.14.3.0" in result.stderr and "uninstall" in result.stderr


NO_DEVICE = """
import warnings, torch
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(torch.neuron.is_available(), torch.accelerator.is_available())
print(len(caught), caught[0].message)
for use in (torch.neuron.device_count, lambda: torch.ones(1, device="neuron")):
    try:
        use()
    except Exception as e:
        print(type(e).__name__, e)
"""


def test_a_refused_configuration_is_seen_where_there_are_no_devices(run_python):
    out = run_python(NO_DEVICE, TRNSIM_CONFIG="trn9").stdout.strip().split("\n")
    assert out[0] == "False False"
    warned, problems = out[1], out[2:]
    assert "no neuron device is available" in warned and "trn9" in warned
    assert all("trn9" in line for line in problems[:1] + problems[-1:])


def test_a_process_without_a_core_is_told_why(run_python):
    out = run_python(NO_DEVICE, NEURON_RT_VISIBLE_CORES="77").stdout
    assert out.startswith("False False") and "NEURON_RT_VISIBLE_CORES" in out.split("\n")[1]


def test_a_cache_folder_that_cannot_be_written_is_warned_about_once(run_python, tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    out = run_python(
        """
import warnings, torch
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = torch.ones(3, device="neuron")
    print(((x + 1) * 3).cpu().tolist())
texts = [str(w.message) for w in caught if "TORCH_NEURONX_NEFF_CACHE_DIR" in str(w.message)]
print(len(texts), *texts)
""",
        TORCH_NEURONX_NEFF_CACHE_DIR=str(in_the_way / "cache"),
    ).stdout.split("\n")
    assert out[0] == "[6.0, 6.0, 6.0]"
    assert out[1].startswith("1 ") and str(in_the_way) in out[1] and "Not a directory" in out[1]


def test_a_missing_cache_folder_is_made(run_python, tmp_path):
    folder = tmp_path / "a" / "b"
    result = run_python(
        "import torch; print((torch.ones(3, device='neuron') + 1).tolist())", TORCH_NEURONX_NEFF_CACHE_DIR=str(folder)
    )
    assert result.stdout.strip() == "[2.0, 2.0, 2.0]"
    assert list(folder.rglob("*.trnp"))


def test_the_process_group_says_that_it_is_not_simulated(run_python):
    out = run_python(
        """
import os, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
for backend in ("neuron", "cpu:gloo,neuron:neuron", None):
    try:
        dist.init_process_group(backend)
    except NotImplementedError as e:
        print(e)
"""
    ).stdout.strip()
    assert out.count("not simulated: the process group 'neuron'") == 3 and out.count("gloo") == 3
