"""`--check`: faults in programs as errors and as warnings, from the command line and from Python."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """program "double" target "trn2"
tensor "x" input fp32 [128, 64] 32768 bytes
tensor "y" output fp32 [128, 64] 32768 bytes
location 1 "double.py" 7 "x + x"
stream sync
  dma_copy queue=0 dst=sbuf.fp32[0+128]@0{64:1} src0=hbm("x").fp32{8192:1} | then s16+=16
  wait s1>=1 | dma_copy queue=1 dst=hbm("y").fp32{8192:1} src0=sbuf.fp32[0+128]@4096{64:1} | then s17+=16
stream vector
  wait s16>=16 | tensor_tensor op0=add dst=sbuf.fp32[0+128]@4096{64:1} src0=sbuf.fp32[0+128]@0{64:1} \
src1=sbuf.fp32[0+128]@0{64:1} | then s1+=1 !1
"""
RACE = PROGRAM.replace("wait s16>=16 | tensor", "tensor")
EDGE = "add `wait s16>=16` to Vector instruction 0"


def trnsim(*args, cwd=None, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRNSIM_")}
    command = [sys.executable, "-m", "trnsim.cli", *map(str, args)]
    return subprocess.run(command, cwd=cwd, env={**clean, **env}, capture_output=True, text=True, check=False)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "good.trnasm").write_text(PROGRAM)
    (tmp_path / "race.trnasm").write_text(RACE)
    return tmp_path


def test_strict_makes_a_race_an_error(files):
    assert trnsim("run", "--mode", "time", "--check", "strict", "good.trnasm", cwd=files).returncode == 0
    done = trnsim("run", "--mode", "time", "--check", "strict", "race.trnasm", cwd=files)
    assert done.returncode != 0
    assert "race: Vector instruction 0 (tensor_tensor, double.py:7, x + x)" in done.stderr and EDGE in done.stderr


def test_warn_lists_it_once_and_in_the_report(files):
    args = ["run", "--mode", "time", "--repeat", "3", "--json", "r.json", "race.trnasm"]
    done = trnsim(*args, cwd=files, TRNSIM_CHECK="warn")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(EDGE) == 1
    report = json.loads((files / "r.json").read_text())
    assert len(report["warnings"]) == 1 and EDGE in report["warnings"][0]
    assert report["programs"][0]["sbuf_bytes"] == 4096 + 256 and report["programs"][0]["psum_bytes"] == 0


def test_off_is_the_default(files):
    done = trnsim("run", "--mode", "time", "--json", "r.json", "race.trnasm", cwd=files)
    assert done.returncode == 0 and EDGE not in done.stderr
    report = json.loads((files / "r.json").read_text())
    assert report["warnings"] == [] and "sbuf_bytes" not in report["programs"][0]


def test_a_pytorch_program_under_checks(tmp_path):
    script = """
import trnsim
trnsim.configure(check="strict")
import torch
x = torch.ones(64, 64, device="neuron")
print(((x @ x).relu() + x).sum().item())
assert max(p["psum_bytes"] for p in trnsim.report()["programs"]) > 0
"""
    (tmp_path / "s.py").write_text(script)
    done = trnsim("run", "--", "python", "s.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{64.0 * 64 * 65}" in done.stdout


def test_an_unknown_level_is_refused(files):
    done = trnsim("run", "--check", "hard", "good.trnasm", cwd=files)
    assert done.returncode == 2 and "pedantic|strict|warn|off" in done.stderr
