"""The end of a process that uses the device: daemon threads, pending work, exceptions, forks, signals."""

import os
import signal
import subprocess
import sys
import time

import pytest

LIMIT_S = 120  # a hang, on a machine of any load

DAEMON = """
import sys, threading
import torch
x = torch.ones(64, 64, device="neuron")
started = threading.Event()
def work():
    y = x
    while True:
        {body}
        started.set()
for _ in range({threads}):
    threading.Thread(target=work, daemon=True).start()
started.wait()
{end}
"""

BODIES = {
    "launch": "y = y * 1.0 + 1",
    "read": "(x @ x)[0, 0].item()",
    "synchronize": "x + 1; torch.neuron.synchronize()",
    "swallow errors": """
        try:
            (x + 1).cpu()
        except Exception:
            pass""",
    "backward": "w = x.clone().requires_grad_(); (w @ w).sum().backward()",
    "host operator": "torch.linalg.ldl_factor(torch.eye(4, device=x.device))",
}


def end_of(script, **env):
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize("body", BODIES, ids=lambda name: name.replace(" ", "-"))
def test_exit_while_daemon_threads_issue_work(body):
    code, _, errors = end_of(DAEMON.format(body=BODIES[body], threads=2, end=""))
    assert (code, errors) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("body", BODIES, ids=lambda name: name.replace(" ", "-"))
def test_every_kind_of_exit_while_a_daemon_thread_issues_work(body):
    for end in ("", "sys.exit(3)", "z = [x @ x for _ in range(300)]", "import time; time.sleep(0.01)"):
        code, _, errors = end_of(DAEMON.format(body=BODIES[body], threads=1, end=end))
        assert (code, errors) == (3 if "exit" in end else 0, ""), end


def test_exit_by_an_exception_keeps_its_code_and_message():
    code, _, errors = end_of(DAEMON.format(body=BODIES["launch"], threads=1, end="raise RuntimeError('the reason')"))
    assert code == 1
    assert errors.rstrip().endswith("RuntimeError: the reason")


def test_exit_with_pending_work_finishes_it(tmp_path):
    report = tmp_path / "report.json"
    script = """
import torch
x = torch.ones(128, 128, device="neuron")
for _ in range(50):
    x = x @ x
"""
    assert end_of(script, TRNSIM_JSON=str(report)) == (0, "", "")
    import json

    assert {p["name"]: p["count"] for p in json.loads(report.read_text())["programs"]}["aten::mm"] == 50


def test_a_report_that_cannot_be_written_is_said_in_words():
    script = 'import torch; print(torch.ones(2, device="neuron").sum().item())'
    code, out, errors = end_of(script, TRNSIM_JSON="/dev/full")
    assert (code, out) == (0, "2.0\n")
    assert errors == (
        "trnsim: user error: the report cannot be written to /dev/full (TRNSIM_JSON): No space left on device\n"
    )


def test_work_after_the_shutdown_is_refused_in_words():
    code, out, _ = end_of(
        """
import torch
x = torch.ones(2, device="neuron")
from trnsim import _C
_C.shutdown()
for use in (lambda: x + 1, lambda: x.cpu(), lambda: torch.ones(1, device="neuron"), torch.neuron.synchronize):
    try:
        use()
    except RuntimeError as e:
        print(e)
"""
    )
    assert code == 0
    assert out.count("shut down") == 4


FORK = """
import os, sys
import torch
x = torch.ones(4, 4, device="neuron")
y = [x @ x for _ in range(20)]
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    for use in (lambda: x + 1, lambda: x.cpu(), lambda: x[0, 0].item(), lambda: torch.ones(1, device="neuron"),
                torch.neuron.synchronize, lambda: x.clone().resize_(100), lambda: torch.linalg.ldl_factor(x)):
        try:
            use()
            os.write(w, b"worked\\n")
        except RuntimeError as e:
            os.write(w, str(e).encode() + b"\\n")
    del x, y
    torch.ones(3) + 1
    {end}
os.close(w)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(open(r).read(), end="")
print((x + 1).sum().item())
"""


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
def test_a_forked_child_gets_a_worded_error_and_ends(end):
    code, out, errors = end_of(FORK.format(end=end))
    lines = out.strip().split("\n")
    assert (code, errors) == (0, ""), errors
    assert lines[0] == "0" and lines[-1] == "32.0"
    assert len(lines) == 9 and all("fork" in line and "spawn" in line for line in lines[1:-1])


def test_workers_of_a_data_loader_start_after_the_device_was_used():
    code, out, errors = end_of(
        """
import torch
x = torch.ones(2, device="neuron")
data = torch.utils.data.TensorDataset(torch.arange(8.0))
loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context="fork")
print(sum((batch.to("neuron") + x[0]).sum().item() for batch, in loader))
"""
    )
    assert (code, out.strip(), errors) == (0, "36.0", "")


def test_an_interrupt_ends_a_wait_and_the_process():
    script = """
import signal, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background hands down SIG_IGN
x = torch.ones(1024, 1024, device="neuron")
for _ in range(3):
    y = x @ x
torch.neuron.synchronize()
print("ready", flush=True)
try:
    for _ in range(100):
        for _ in range(900):
            y = x @ x
        torch.neuron.synchronize()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        # The thousand programs that are queued take longer than this.
        assert process.stdout.readline() == "interrupted\n"
        process.send_signal(signal.SIGINT)  # at exit: drops what is queued
        process.wait(timeout=LIMIT_S)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in process.stderr.read()
