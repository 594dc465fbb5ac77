"""The bound on loaded programs."""

import pytest

SCRIPT = """
import os, torch
def resident_mib():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
x = torch.arange(4096.0, device="neuron")
sizes = []
for n in range(1, 601):
    y = x[:n] + 1
    if n % 50 == 1:
        torch.testing.assert_close(y.cpu(), torch.arange(float(n)) + 1)
    if n % 200 == 0:
        sizes.append(resident_mib())
again = x[:3] + 1  # dropped and loaded again
print(again.tolist(), *sizes)
"""


def test_programs_of_many_shapes_do_not_grow_without_end(run_python):
    out = run_python(SCRIPT, NEURON_EAGER_MODEL_CACHE_SIZE="32").stdout
    values, sizes = out.split("]")
    assert values == "[1.0, 2.0, 3.0"
    first, *_, last = map(int, sizes.split())
    assert last - first < 40, sizes


def test_a_dropped_program_runs_what_is_queued(run_python):
    """Every launch is of another shape, so the cache has dropped most programs before the queue gets to them."""
    out = run_python(
        """
import torch
x = torch.ones(512, 512, device="neuron")
for _ in range(20):
    y = x @ x  # keeps the device busy
results = [torch.full((n,), 2.0, device="neuron") * n for n in range(1, 200)]
print(all((r == 2.0 * (i + 1)).all().item() for i, r in enumerate(results)))
torch.neuron.empty_cache()
print((x + 1).sum().item())
""",
        NEURON_EAGER_MODEL_CACHE_SIZE="2",
    ).stdout
    assert out.split() == ["True", str(512.0 * 512 * 2)]


@pytest.mark.parametrize("value", ["many", "0", "-3", "1.5"])
def test_a_limit_that_is_no_number_is_refused(run_python, value):
    result = run_python(
        "import torch; torch.ones(2, device='neuron') + 1", check=False, NEURON_EAGER_MODEL_CACHE_SIZE=value
    )
    assert result.returncode != 0
    assert f"NEURON_EAGER_MODEL_CACHE_SIZE={value}" in result.stderr and "user error" in result.stderr
