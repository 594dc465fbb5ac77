"""The `trnsim` command: scripts, program files, tools, and its errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs" / "report.schema.json").read_text())

ADD_SCRIPT = """
import torch
x = torch.ones(4, 4, device="neuron")
print((x + x).sum().item())
"""
NO_DEVICE_SCRIPT = "print('no device here')"


def trnsim(*args, cwd=None, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRNSIM_")}
    command = [sys.executable, "-m", "trnsim.cli", *map(str, args)]
    return subprocess.run(command, cwd=cwd, env={**clean, **env}, capture_output=True, text=True, check=False)


def test_run_script_prints_its_output_and_a_report(tmp_path):
    (tmp_path / "s.py").write_text(ADD_SCRIPT)
    done = trnsim("run", "--json", tmp_path / "r.json", "--", "python", "s.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "32.0" in done.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    jsonschema.validate(report, SCHEMA)
    assert report["simulated_ns"] > 0 and report["fallbacks"] == []
    assert "trnsim report" in done.stdout + done.stderr


def test_set_changes_the_simulated_time(tmp_path):
    (tmp_path / "s.py").write_text(ADD_SCRIPT)
    times = []
    for name, extra in (("a", []), ("b", ["--set", "launch.start_ns=100000"])):
        done = trnsim("run", *extra, "--json", tmp_path / name, "--", "python", "s.py", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        times.append(json.loads((tmp_path / name).read_text())["simulated_ns"])
    assert times[1] > times[0]


def test_run_passes_the_exit_code_on(tmp_path):
    (tmp_path / "s.py").write_text("raise SystemExit(7)")
    assert trnsim("run", "--", "python", "s.py", cwd=tmp_path).returncode == 7


def test_run_without_the_device_says_so(tmp_path):
    (tmp_path / "s.py").write_text(NO_DEVICE_SCRIPT)
    done = trnsim("run", "--", "python", "s.py", cwd=tmp_path)
    assert done.returncode == 0 and "did not use the device neuron" in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run"], "nothing to run"),
        (["run", "--", "no-such-program-here"], "not found"),
        (["run", "--input", "a=b.npy", "--", "python", "-c", "0"], "go with program files"),
        (["compare", "missing-a.json", "missing-b.json"], "cannot read"),
    ],
)
def test_wrong_use_is_a_worded_error(args, message, tmp_path):
    done = trnsim(*args, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr


@pytest.mark.parametrize(
    ("set_", "message"),
    [("hbm.stack_bandwith_gb_per_s=1", "hbm.stack_bandwidth_gb_per_s"), ("chip.cores=-1", "chip.cores")],
)
def test_wrong_override_names_the_key(set_, message, tmp_path):
    (tmp_path / "s.py").write_text(ADD_SCRIPT)
    done = trnsim("run", "--set", set_, "--", "python", "s.py", cwd=tmp_path)
    assert done.returncode != 0 and message in done.stderr


@pytest.mark.parametrize("name", ["TRNSIM_TRACE", "TRNSIM_REPORT"])
def test_outputs_that_do_not_exist_yet_are_refused(name, tmp_path):
    (tmp_path / "s.py").write_text(ADD_SCRIPT)
    done = trnsim("run", "--", "python", "s.py", cwd=tmp_path, **{name: str(tmp_path / "x")})
    assert done.returncode != 0 and "not simulated" in done.stderr and name in done.stderr


def test_isa_prints_one_instruction():
    done = trnsim("isa", "tensor_tensor")
    assert done.returncode == 0 and "vector" in done.stdout


def test_config_show_lists_units():
    done = trnsim("config", "show")
    assert done.returncode == 0 and "hbm.stack_bandwidth_gb_per_s" in done.stdout and "GB/s" in done.stdout


def test_every_builtin_configuration_runs_a_script(tmp_path):
    (tmp_path / "s.py").write_text("import torch\ntorch.manual_seed(0)\n" + ADD_SCRIPT)
    for name in ("trn2", "trn3", "trn2.48xlarge", "trn2_memory_x2"):
        env = {"NEURON_LOGICAL_NC_CONFIG": "1"}  # the largest number of devices
        done = trnsim("run", "--config", name, "--", "python", "s.py", cwd=tmp_path, **env)
        assert done.returncode == 0 and "32.0" in done.stdout, (name, done.stderr)
