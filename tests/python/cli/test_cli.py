"""The `trnsim` command: scripts, program files, tools, and its errors."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from trnsim import cli

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
        (["run", "--", "-x"], "options of trnsim go before --"),
        (["run", "--confg", "trn2", "--", "python", "-c", "0"], "--confg"),
        (["compare", "missing-a.json", "missing-b.json"], "cannot read"),
        (["compare", ".", "."], "cannot read"),
        (["report", "/dev/null"], "is not JSON"),
    ],
)
def test_wrong_use_is_a_worded_error(args, message, tmp_path):
    done = trnsim(*args, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr


TOUCH = "import pathlib; pathlib.Path('began').touch()"


@pytest.mark.parametrize(
    ("options", "env", "message"),
    [
        (["--set", "hbm.stack_bandwith_gb_per_s=1"], {}, "hbm.stack_bandwidth_gb_per_s"),
        (["--set", "chip.cores=-1"], {}, "chip.cores"),
        (["--set", "foo=1"], {}, "the nearest name is"),
        (["--config", "trn9"], {}, "did you mean 'trn2'"),
        (["--config", "/etc"], {}, "it is a folder"),
        (["--mode", "tim"], {}, "nearest: time"),
        (["--json", "missing_dir/x.json"], {}, "there is no folder missing_dir"),
        (["--json", "."], {}, "it is a folder"),
        (["--json", "/proc/x"], {}, "no file can be made in the folder /proc"),
        (["--json", "kept.py"], {}, "the file that is there is no report"),
        ([], {"TRNSIM_JSON": "kept.py"}, "the file that is there is no report"),
        ([], {"TRNSIM_JSON": "missing_dir/x.json"}, "there is no folder missing_dir"),
        ([], {"TRNSIM_CONFIG": "trn9"}, "did you mean 'trn2'"),
        ([], {"TRNSIM_SET": "chip.core=1"}, "chip.cores"),
        ([], {"TRNSIM_MODE": "tim"}, "nearest: time"),
        ([], {"TRNSIM_MODUS": "time"}, "TRNSIM_MODE"),
        ([], {"TRNSIM_FALLBACK": "never"}, "allow|error"),
        ([], {"TRNSIM_TRACE": "x"}, "not simulated: TRNSIM_TRACE"),
        ([], {"TRNSIM_REPORT": "x"}, "not simulated: TRNSIM_REPORT"),
        ([], {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn9"}, "known targets: trn2, trn3"),
        ([], {"NEURON_LAUNCH_BLOCKING": "maybe"}, "0|1|false|true"),
    ],
)
def test_what_the_device_would_refuse_is_refused_before_the_script_begins(options, env, message, tmp_path):
    (tmp_path / "kept.py").write_text(NO_DEVICE_SCRIPT)
    done = trnsim("run", *options, "--", "python", "-c", TOUCH, cwd=tmp_path, **env)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "began").exists() and (tmp_path / "kept.py").read_text() == NO_DEVICE_SCRIPT
    assert [path.name for path in tmp_path.iterdir()] == ["kept.py"]


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        ("config='trn9'", {}, "did you mean 'trn2'"),
        ("overrides={'foo': 1}", {}, "unknown parameter 'foo'"),
        ("mode='tim'", {}, "mode"),
        ("mode='time'", {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn9"}, "known targets: trn2, trn3"),
        ("config='trn2'", {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn3"}, "unset one of the two"),
    ],
)
def test_configure_refuses_at_once(arguments, env, message, run_python):
    done = run_python(f"import trnsim\ntry: trnsim.configure({arguments})\nexcept ValueError as e: print(e)", **env)
    assert message in done.stdout


def test_the_platform_target_chooses_the_chip(tmp_path):
    done = trnsim("config", "check", NEURON_PLATFORM_TARGET_OVERRIDE="gen4")
    assert done.stdout == "trn3: good\n"


def test_report_alone_on_the_standard_output(tmp_path):
    (tmp_path / "s.py").write_text(ADD_SCRIPT)
    done = trnsim("run", "--json", "-", "--", "python", "s.py", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0] == "32.0" and len(lines) == 2 and done.stderr == ""
    jsonschema.validate(json.loads(lines[1]), SCHEMA)


def test_a_report_of_an_earlier_run_stays_until_there_is_another(tmp_path):
    earlier = '{"schema_version": 1}'
    (tmp_path / "r.json").write_text(earlier)
    done = trnsim("run", "--json", "r.json", "--", "python", "-c", NO_DEVICE_SCRIPT, cwd=tmp_path)
    assert done.returncode == 0 and "r.json is of an earlier run" in done.stderr
    assert (tmp_path / "r.json").read_text() == earlier
    done = trnsim("run", "--json", "r.json", "--", "python", "-c", ADD_SCRIPT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    jsonschema.validate(json.loads((tmp_path / "r.json").read_text()), SCHEMA)
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_a_report_that_cannot_be_written_at_the_end_is_said_in_words(tmp_path):
    done = trnsim("run", "--json", "/dev/full", "--", "python", "-c", ADD_SCRIPT, cwd=tmp_path)
    assert done.returncode == 1 and "/dev/full: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "args", [["run", "missing.trnp"], ["config", "check", "/bin/ls"], ["config", "explain", "foo"], ["isa", "nope"]]
)
def test_wrong_names_and_files_have_exit_code_2_in_the_native_tool_as_well(args, tmp_path):
    done = trnsim(*args, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("trnsim: ")


def test_two_runs_at_once_have_their_own_reports(tmp_path):
    (tmp_path / "s.py").write_text(ADD_SCRIPT)
    command = [sys.executable, "-m", "trnsim.cli", "run", "--json"]
    runs = [subprocess.Popen([*command, f"{i}.json", "--", "python", "s.py"], cwd=tmp_path) for i in range(2)]
    assert [run.wait() for run in runs] == [0, 0]
    times = [json.loads((tmp_path / f"{i}.json").read_text())["simulated_ns"] for i in range(2)]
    assert times[0] == times[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_script_and_its_code_says_so(number, tmp_path):
    script = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); print('on', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-m", "trnsim.cli", "run", "--", "python", "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as run:
        assert run.stdout.readline() == b"on\n"
        run.send_signal(number)
        _, errors = run.communicate(timeout=30)
    assert run.returncode == 128 + number and b"Traceback" not in errors


@pytest.mark.parametrize("args", [["isa"], ["config", "show"], ["isa", "--markdown"]])
def test_a_closed_pipe_ends_it_without_a_word(args, tmp_path):
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-m", "trnsim.cli", *args], stdout=pipe, stderr=pipe) as run:
        run.stdout.close()
        assert run.stderr.read() == b"" and run.wait() != 0


def seen_on_terminal(command, text, cwd):
    """Runs a command with a terminal as its stderr until it has written `text` there, then ends it as ^C does."""
    leader, follower = pty.openpty()
    quiet = subprocess.DEVNULL
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRNSIM_")}
    with subprocess.Popen(command, cwd=cwd, env=clean, stdin=quiet, stdout=quiet, stderr=follower) as run:
        os.close(follower)
        shown = b""
        while text.encode() not in shown and run.poll() is None:
            if select.select([leader], [], [], 1)[0]:
                with contextlib.suppress(OSError):  # the other side is closed
                    shown += os.read(leader, 4096)
        run.send_signal(signal.SIGINT)
    os.close(leader)
    return text.encode() in shown


def test_a_long_program_shows_progress_on_a_terminal(tmp_path):
    program = Path(__file__).resolve().parents[2] / "c" / "scale_add.trnasm"
    command = [sys.executable, "-m", "trnsim.cli", "run", program, "--mode", "time", "--repeat", "2000000000"]
    assert seen_on_terminal(command, "of 2000000000", tmp_path)


LONG_SCRIPT = """
import torch
x = torch.ones(2048, 2048, device="neuron")
for _ in range(1000):
    x = x @ x
torch.neuron.synchronize()
"""


def test_a_script_that_waits_for_the_simulator_shows_progress_on_a_terminal(tmp_path):
    (tmp_path / "s.py").write_text("import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)" + LONG_SCRIPT)
    command = [sys.executable, "-m", "trnsim.cli", "run", "--", "python", "s.py"]
    assert seen_on_terminal(command, "on the chip so far", tmp_path)


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


def test_version():
    words = trnsim("--version").stdout.split()
    assert words[0] == "trnsim" and words[1][0].isdigit()
    native = Path(cli.__file__).parent / "bin" / "trnsim-native"
    assert subprocess.run([native, "--version"], capture_output=True, text=True, check=True).stdout.split() == words


def test_all_faults_of_a_configuration_and_an_environment_are_told_at_once(tmp_path):
    faults = "vector { clok_ghz: 1 }\nhbm { stack_bandwidth_gb_per_s: -1 }\n"
    (tmp_path / "c.textproto").write_text('base: "trn2"\n' + faults)
    done = trnsim("config", "check", "c.textproto", cwd=tmp_path)
    assert done.returncode == 2 and "c.textproto:2:" in done.stderr and "c.textproto:3:" in done.stderr
    done = trnsim("config", "check", TRNSIM_CHEK="1", TRNSIM_MODE="tim", TRNSIM_SET="foo=1,chip.cores=-1")
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and len(lines) == 4
    for part in ("TRNSIM_CHEK", "TRNSIM_MODE", "override 1", "override 2"):
        assert any(part in line for line in lines), part


def test_validate_points_to_the_checks_of_a_run():
    program = Path(__file__).resolve().parents[2] / "c" / "scale_add.trnasm"
    done = trnsim("validate", program)
    assert done.returncode == 0 and f"run --check strict {program}" in done.stdout


def test_a_run_without_time_does_not_show_a_cost_of_nothing(tmp_path):
    (tmp_path / "s.py").write_text(ADD_SCRIPT)
    done = trnsim("run", "--mode", "data", "--json", "d.json", "--", "python", "s.py", cwd=tmp_path)
    shown = done.stdout + done.stderr
    assert "unknown without simulated time" in shown and "$" not in shown
    report = json.loads((tmp_path / "d.json").read_text())
    jsonschema.validate(report, SCHEMA)
    assert report["cost"]["usd"] is None
    assert trnsim("run", "--json", "b.json", "-q", "--", "python", "s.py", cwd=tmp_path).returncode == 0
    for pair, which in ((("d.json", "b.json"), "first"), (("b.json", "d.json"), "second")):
        assert f"The {which} report is of mode data" in " ".join(trnsim("compare", *pair, cwd=tmp_path).stdout.split())


def test_the_report_is_whole_before_the_device_is_used(run_python):
    out = run_python(
        "import json, trnsim\nbefore = trnsim.report()\nimport torch\ntorch.ones(2, device='neuron').sum().item()\n"
        "print(json.dumps([before, trnsim.report()]))"
    ).stdout
    before, after = json.loads(out)
    jsonschema.validate(before, SCHEMA)
    assert before.keys() == after.keys() and before["simulated_ns"] == 0 and before["programs"] == []
