"""The simulated time of a model: the same in every process, with and without values."""

import json
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"

BODY = f"""
import json, sys
sys.path.insert(0, {str(TOOLS)!r})
import torch, trnsim
from workloads import transformer

model = transformer.llama().to("neuron")
ids = transformer.llama_ids().to("neuron")
model(ids, labels=ids).loss.backward()
torch.neuron.synchronize()
report = trnsim.report()
assert report["fallbacks"] == [], report["fallbacks"]
print("RESULT" + json.dumps(report["simulated_ns"]))
"""


def simulated_ns(run_python, **env):
    out = run_python(BODY, TRNSIM_FALLBACK="error", **env).stdout
    return json.loads(out[out.index("RESULT") + len("RESULT") :])


def test_processes_and_modes_give_the_same_simulated_time(run_python):
    times = {simulated_ns(run_python) for _ in range(2)}
    times.add(simulated_ns(run_python, TRNSIM_MODE="time"))
    assert len(times) == 1 and times.pop() > 0
