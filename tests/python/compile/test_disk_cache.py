"""A second process finds the programs of the first one on disk and compiles nothing."""

import json

SCRIPT = """
import json, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to("neuron")
x = torch.ones(3, 8, device="neuron")
loss = torch.compile(model, backend="neuron")(x).square().sum()
loss.backward()
print("RESULT" + json.dumps({**torch.neuron.get_dynamo_metrics(), "loss": loss.item()}))
"""


def test_a_second_process_compiles_nothing(run_python, tmp_path):
    results = []
    for _ in range(2):
        out = run_python(SCRIPT, TORCH_NEURONX_NEFF_CACHE_DIR=str(tmp_path)).stdout
        results.append(json.loads(out[out.index("RESULT") + 6 :]))
    first, second = results
    assert first["programs_compiled"] == 2 and first["programs_from_cache"] == 0
    assert second["programs_compiled"] == 0 and second["programs_from_cache"] == 2
    assert first["loss"] == second["loss"]
