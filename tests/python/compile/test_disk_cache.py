"""A second process finds traced graphs and programs of the first one on disk: it neither traces in AOTAutograd nor
compiles."""

import json

import pytest

SCRIPT = """
import json, torch, warnings
{before}
torch.manual_seed(0)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
        self.dropout = torch.nn.Dropout(0.25)
    def forward(self, x):
        bias = torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)
        return self.second(self.dropout(torch.nn.functional.gelu(self.first(x)))) * 2 + bias
model = Model().to("neuron")
x = torch.ones(3, 8, device="neuron")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loss = torch.compile(model, backend="neuron")(x).square().sum()
loss.backward()
grad = model.first.weight.grad.sum().item()
damaged = [str(w.message) for w in caught if "damaged" in str(w.message)]
print("RESULT" + json.dumps({{**torch.neuron.get_dynamo_metrics(), "values": [loss.item(), grad], "damaged": damaged}}))
"""


@pytest.fixture
def run(run_python, tmp_path):
    def run(before="", **env):
        path = tmp_path / "model.py"
        path.write_text(SCRIPT.format(before=before))
        script = f"import runpy; runpy.run_path({str(path)!r})"
        env = {
            "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path),
            "TORCH_CACHING_PRECOMPILE": "0",  # Dynamo's own results: test_dynamo_cache.py
            "NEURON_LOGICAL_NC_CONFIG": "1",
            **env,
        }
        out = run_python(script, **env).stdout
        result = json.loads(out[out.index("RESULT") + 6 :])
        counts = [result[name] for name in ("graphs_from_cache", "programs_from_cache", "programs_compiled")]
        return counts, result

    return run


def test_a_second_process_compiles_nothing(run):
    counts, first = run()
    assert counts == [0, 0, 2]
    counts, second = run()
    assert counts == [2, 2, 0]
    assert first["values"] == second["values"]  # dropout too: the generator is used in the same order
    # Another line of the user's code is another entry: messages name lines.
    assert run(before="\n")[0][0] == 0
    # Traced graphs hold no programs: for two cores the same graphs become others.
    assert run(NEURON_LOGICAL_NC_CONFIG="2")[0] == [2, 0, 2]


def test_a_damaged_graph_is_traced_again(run, tmp_path):
    _, first = run()
    (entry,) = [path for path in tmp_path.glob("graphs/aotautograd/*/*") if path.is_file()]
    whole = entry.read_bytes()
    middle = whole.index(b"aten")
    entry.write_bytes(whole[:middle] + b"nota" + whole[middle + 4 :])
    counts, second = run()
    assert counts == [0, 2, 0] and second["values"] == first["values"]
    assert "graph.forward: a traced graph from the cache is damaged" in second["damaged"][0]
    entry.write_bytes(whole[:100])  # PyTorch itself sees this, says so and writes the entry anew
    assert run()[0] == [0, 2, 0]
    assert run()[0] == [2, 2, 0]


OPTIMIZER = """
import json, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4)).to("neuron")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
x = torch.randn(6, 8).to("neuron")
step = torch.compile(optimizer.step, backend="neuron")
losses = []
for _ in range(3):
    loss = model(x).square().mean()
    loss.backward()
    step()
    schedule.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print("RESULT" + json.dumps([losses, torch.neuron.get_dynamo_metrics()]))
"""


@pytest.mark.slow
def test_optimizer_steps(run_python, tmp_path):
    """Parameters and states are attributes of these graphs, and rates are numbers that change."""
    results = []
    for _ in range(2):
        out = run_python(OPTIMIZER, TORCH_NEURONX_NEFF_CACHE_DIR=str(tmp_path)).stdout
        results.append(json.loads(out[out.index("RESULT") + 6 :]))
    (first, written), (second, found) = results
    assert first == second
    assert written["graphs_from_cache"] == 0 and found["graphs_from_cache"] == found["graphs"] > 1
    assert found["programs_compiled"] == 0
