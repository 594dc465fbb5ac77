"""Names that are no UTF-8: of configurations, programs, scripts, folders. JSON stays JSON, errors keep their words."""

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "c" / "scale_add.trnasm"
NAME = b"n\xff\xe9"
SHOWN = "n\ufffd\ufffd"
SCRIPT = b'import torch\nprint((torch.ones(3, device="neuron") + 1).sum().item())\n'


def run(folder, *command, **variables):
    clean = {k: v for k, v in os.environb.items() if not k.startswith((b"TRNSIM_", b"TORCH_NEURONX_"))}
    more = {k.encode(): v for k, v in variables.items()}
    command = [os.fsencode(c) for c in (sys.executable, *command)]
    return subprocess.run(command, cwd=folder, env={**clean, **more}, capture_output=True, check=False)


def in_folder(folder, name, content):
    with open(os.path.join(os.fsencode(folder), name), "wb") as f:
        f.write(content)


def test_a_configuration(tmp_path):
    in_folder(tmp_path, NAME + b".textproto", b'base: "trn2"\n')
    shown = run(tmp_path, "-m", "trnsim.cli", "config", "show", NAME + b".textproto", "--json")
    assert shown.returncode == 0 and SHOWN in json.loads(shown.stdout)["name"]


def test_a_program(tmp_path):
    text = PROGRAM.read_bytes().replace(b'program "scale_add"', b'program "' + NAME + b'"')
    in_folder(tmp_path, NAME + b".trnasm", text)
    done = run(tmp_path, "-m", "trnsim.cli", "run", "--mode", "time", "--json", "-", NAME + b".trnasm")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["programs"][0]["name"] == SHOWN


def test_an_error_of_the_device(tmp_path):
    in_folder(tmp_path, b"s.py", SCRIPT)
    done = run(tmp_path, "s.py", TRNSIM_CONFIG=NAME)
    assert f"user error: configuration '{SHOWN}'" in done.stderr.decode()
