"""What README.md shows is what a user gets."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", TEXT, re.S)
EXAMPLE = next(text for language, text in BLOCKS if language == "python")
COMPILED_LOOP = next(text for language, text in BLOCKS if language == "python" and "torch.compile" in text)
SHOWN, SHOWN_COMPILED = (text for language, text in BLOCKS if text.startswith("loss "))
COMMANDS = [line for _, text in BLOCKS for line in text.splitlines() if line.startswith("trnsim ")]


def parts(line):
    loss, milliseconds, rest = re.fullmatch(r"loss (\S+), (\S+) ms(.*)\n", line).groups()
    return loss, float(milliseconds), rest


def check(run_python, script, shown):
    loss, milliseconds, rest = parts(run_python(script).stdout)
    shown_loss, shown_milliseconds, shown_rest = parts(shown)
    assert rest == shown_rest
    assert float(loss) == pytest.approx(float(shown_loss), abs=2e-4)
    # A better calibration may move the time before the page follows.
    assert milliseconds == pytest.approx(shown_milliseconds, rel=0.1)


def test_the_example_prints_what_is_shown(run_python):
    check(run_python, EXAMPLE, SHOWN)


def test_the_compiled_example_prints_what_is_shown(run_python):
    begin, end = EXAMPLE.index("for step"), EXAMPLE.index("print(")
    check(run_python, EXAMPLE[:begin] + COMPILED_LOOP + EXAMPLE[end:], SHOWN_COMPILED)


@pytest.mark.slow
def test_the_commands_work(tmp_path):
    (tmp_path / "example.py").write_text(EXAMPLE)
    assert len(COMMANDS) >= 5
    for line in COMMANDS:
        command = [sys.executable, "-m", "trnsim.cli", *line.split()[1:]]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TRNSIM_")}
        done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)


def test_the_number_of_instructions_is_that_of_the_table():
    table = subprocess.run([sys.executable, "-m", "trnsim.cli", "isa"], capture_output=True, text=True, check=True)
    assert f"| instructions | {len(table.stdout.splitlines())}, " in TEXT
