"""Shared by all tests of the device. Tests run against the package that is importable: the installed one, or a build
tree with PYTHONPATH=<build>/python."""

import os
import subprocess
import sys
import warnings

import pytest
import torch

# Every program that the compiler emits must be clean; set the variable to run without.
os.environ.setdefault("TRNSIM_CHECK", "strict")

warnings.filterwarnings("ignore", message="neuron: int64")
warnings.filterwarnings("ignore", message="neuron: float64")


@pytest.fixture
def device():
    return torch.device("neuron")


@pytest.fixture
def run_python():
    """Runs a script in a fresh process and returns what it printed; env adds variables."""

    def run(script, check=True, **env):
        result = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=300,
        )
        if check and result.returncode != 0:
            raise AssertionError(f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result

    return run
