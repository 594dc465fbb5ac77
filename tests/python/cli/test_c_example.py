"""The C program of docs/runtime.md is built and run as the page says."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "runtime.md").read_text()


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.S).group(1)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_c_program_of_the_page_compiles_links_and_runs(tmp_path):
    (tmp_path / "double.trnasm").write_text(block("trnasm"))
    (tmp_path / "main.c").write_text(block("c"))
    as_installed = f'set -e\npython() {{ \'{sys.executable}\' "$@"; }}\ntrnsim() {{ python -m trnsim.cli "$@"; }}\n'
    commands = as_installed + block("sh")
    done = subprocess.run(["bash", "-c", commands], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    assert re.search(r"y\[255\] = 510 after [1-9]\d* ps on the chip", done.stdout)
