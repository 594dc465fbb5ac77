"""With a cache folder a second process finds what Dynamo made of a function, and uses it only where every object that
the first one relied upon is the same."""

import json

import pytest

HELPER = """
import functools, typing
def scaled(function):
    @functools.wraps(function)
    def run(x):
        return function(x) * 2
    return run
@scaled
def gate(x):
    return x.relu()
def other_gate(x):
    return x.abs()
TABLE = {"gate": gate}
FORMS = {typing.Union: 1.0}
"""

SCRIPT = """
import json, os, torch, typing, warnings
import torch.nn.functional as F
import helper
exec(os.environ["BEFORE"])
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.activation = torch.nn.Linear(8, 16), eval(os.environ["ACTIVATION"])
    def forward(self, x):
        table = helper.FORMS[typing.Union] + sum(1 for form in helper.FORMS if form is typing.Union)
        return helper.TABLE["gate"](self.activation(self.layer(x))) + helper.gate(x).sum() * table
torch.manual_seed(0)
model = Model().to("neuron")
x = torch.randn(3, 8).to("neuron")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    result = torch.compile(model, backend="neuron")(x)
result.square().sum().backward()
torch.testing.assert_close(result.cpu(), model(x).cpu())
from torch._dynamo.utils import counters
print("RESULT" + json.dumps({
    "traced": counters["stats"]["unique_graphs"], "from_cache": torch.neuron.get_dynamo_metrics()["graphs_from_cache"],
    "compiled": torch.neuron.get_dynamo_metrics()["programs_compiled"],
    "warnings": [str(w.message) for w in caught if "Dynamo" in str(w.message)],
}))
"""


def ask(run_python, tmp_path, code, **environment):
    """What a script that imports from this folder, and keeps its graphs there, tells at its end."""
    environment = {"TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "cache"), **environment}
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"
    out = run_python(script, PYTHONDONTWRITEBYTECODE="1", **environment).stdout
    return json.loads(out[out.index("RESULT") + 6 :])


@pytest.fixture
def run(run_python, tmp_path):
    def run(before="", activation="F.silu", helper=HELPER, **switches):
        (tmp_path / "helper.py").write_text(helper)
        (tmp_path / "model.py").write_text(SCRIPT)
        return ask(run_python, tmp_path, "import model", BEFORE=before, ACTIVATION=activation, **switches)

    return run


def test_a_second_process_traces_nothing(run):
    assert run() == {"traced": 1, "from_cache": 0, "compiled": 2, "warnings": []}
    assert run() == {"traced": 0, "from_cache": 2, "compiled": 0, "warnings": []}


@pytest.mark.slow
def test_the_switch_is_pytorchs(run):
    run(TORCH_CACHING_PRECOMPILE="1")
    assert run(TORCH_CACHING_PRECOMPILE="0")["traced"] == 1
    assert run(TORCH_CACHING_PRECOMPILE="1")["traced"] == run()["traced"] == 0


@pytest.mark.slow
def test_other_backends_trace_for_themselves(run_python, tmp_path):
    """Dynamo would take what is kept for whatever backend calls the function."""
    for order in ("neuron", "theirs"), ("neuron", "theirs"), ("theirs", "neuron"):
        (tmp_path / "ours.py").write_text(OTHERS.format(order=order))
        run_python(
            f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import ours",
            TORCH_NEURONX_NEFF_CACHE_DIR=str(tmp_path / "cache"),
        )


@pytest.mark.slow
def test_models_of_one_class_are_kept_apart(run_python, tmp_path):
    (tmp_path / "models.py").write_text(MODELS)
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import models; models.run"
    for traced in (1, 0):
        for width, activation in ((8, "SiLU"), (16, "SiLU"), (8, "GELU")):
            out = run_python(f"{script}({width}, '{activation}')", TORCH_NEURONX_NEFF_CACHE_DIR=str(tmp_path / "cache"))
            assert out.stdout.split("RESULT")[1].split() == [str(traced)]
    assert len(list((tmp_path / "cache/graphs/dynamo").glob("*/entry"))) == 3


@pytest.mark.slow
def test_what_has_changed_is_traced(run, tmp_path):
    """Each script compares its result with eager execution."""
    run()
    # Another function in an attribute: the entry stays, its guards fail, and the new trace joins it.
    assert run(activation="F.gelu")["traced"] == 1
    assert run(activation="F.gelu")["traced"] == 0
    assert run()["traced"] == 0
    # Another function under a name that the trace has used, in a module and in a dict: the same.
    for change in ("helper.gate = helper.other_gate", "helper.TABLE['gate'] = helper.other_gate"):
        result = run(before=change)
        assert result["traced"] == 1 and not result["warnings"], result
        assert run(before=change)["traced"] == 0
    assert run()["traced"] == 0
    # Another text, though nothing that is traced: Dynamo cannot be asked what it relies upon. Another switch.
    (entry,) = (tmp_path / "cache/graphs/dynamo").glob("*/entry")
    assert run(helper=HELPER + "unused = 1")["traced"] == 1
    assert run(TRNSIM_INT64="exact")["traced"] == 1
    assert run()["traced"] == 0
    entry.write_bytes(entry.read_bytes()[:1000])
    result = run()
    assert result["traced"] == 1 and "is damaged" in result["warnings"][0], result
    whole = entry.read_bytes()
    middle = whole.index(b"aten")
    entry.write_bytes(whole[:middle] + b"nota" + whole[middle + 4 :])
    result = run()
    assert result["traced"] == 1 and any("damaged" in text for text in result["warnings"]), result


@pytest.mark.slow
def test_what_carries_no_guard_of_pytorch_is_found_changed(run_python, tmp_path):
    """Each function is compared with eager execution, in processes with other values behind the same names."""
    (tmp_path / "changing.py").write_text(CHANGING)
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import changing"
    first, again, other, back = (
        run_python(script, VARIANT=variant, TORCH_NEURONX_NEFF_CACHE_DIR=str(tmp_path / "cache")) for variant in "1121"
    )
    for result in first, again, other, back:
        assert "Error" not in result.stderr and "guard" not in result.stderr, result.stderr
    everything = set(first.stdout.split())
    local = {"constant_result", "environment", "operator"}  # belong to a process
    assert set(again.stdout.split()) == set(back.stdout.split()) == local
    assert set(other.stdout.split()) == everything - {"early"}


OTHERS = """
import torch
def f(x):
    return x.exp() + 1
early = torch.compile(torch.nn.ReLU(), backend="eager")  # before this backend is there
graphs = []
def theirs(graph, inputs):
    graphs.append(graph)
    return graph.forward
compiled = {{"neuron": torch.compile(f, backend="neuron"), "theirs": torch.compile(f, backend=theirs)}}
x = torch.ones(5, device="neuron")
for name in {order}:
    torch.testing.assert_close(compiled[name](x).cpu(), f(x).cpu())
assert len(graphs) == 1
late = []
torch.compile(f, backend=lambda graph, inputs: late.append(graph) or graph.forward)(x)
assert len(late) == 1
early._initialize()  # as copy and pickle do
torch.testing.assert_close(early(x).cpu(), x.cpu())
"""

CHANGING = """
import enum, functools, os, torch
from torch._dynamo.utils import counters
K = int(os.environ["VARIANT"])
@torch.compile(backend="neuron")
def early(x):  # relies upon what comes later
    return later(x)
def later(x):
    return x * 2
class Settings:
    factor, table = K, {"factor": K}
class Level(enum.IntEnum):
    HIGH = K
class Scaled:
    if K == 1:
        def scaled(self, x): return x * 3
    else:
        def scaled(self, x): return x * 4
class Other:
    def act(self, x): return x.exp()
class First:
    def act(self, x): return x.abs()
class Act(torch.nn.Module, First if K == 1 else Other):
    def forward(self, x): return self.act(x)
class Hooked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.ReLU()
    def forward(self, x): return self.inner(x) * 2
def hook(module, inputs, result):
    return result + 1
@torch.compiler.assume_constant_result
def constant():
    return K
@torch.library.custom_op("changing::op", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return x * 2
op.register_fake(torch.empty_like)
op.register_autograd(lambda ctx, grad: grad * K)
def decorated(factor):
    def scaled(function):
        @functools.wraps(function)
        def run(x): return function(x) * factor
        return run
    return scaled
@decorated(K)
def ones(x): return x + 1
def of_default(x, factor=K): return x * factor
scaled = Scaled()
def class_attribute(x): return x * Settings.factor
def class_table(x): return x * Settings.table["factor"]
def enumerated(x): return x * Level.HIGH
def method(x): return scaled.scaled(x)
def method_of_new(x): return Scaled().scaled(x)
def default(x): return of_default(x)
def decorator(x): return ones(x)
def base(x): return x * 2 if issubclass(Act, Other) else x * 3
def constant_result(x): return x * constant()
def environment(x): return x * int(os.getenv("VARIANT"))
def mapping(x): return x * int(os.environ["VARIANT"])
def operator(x): return torch.ops.changing.op(x)
hooked = Hooked()
if K == 2:
    hooked.inner.register_forward_hook(hook)
def run(name, function, compiled):
    results, traced = [], counters["stats"]["unique_graphs"]
    for f in (function, compiled):
        x = torch.linspace(-2, 2, 6).to("neuron").requires_grad_()
        y = f(x)
        y.square().sum().backward()
        results.append((y.detach().cpu(), x.grad.cpu()))
    torch.testing.assert_close(*results)
    if counters["stats"]["unique_graphs"] > traced:
        print(name)
functions = [class_attribute, class_table, enumerated, method, method_of_new, default, decorator, base, constant_result]
for f in (*functions, environment, mapping, operator):
    run(f.__name__, f, torch.compile(f, backend="neuron"))
run("early", later, early)
for module in (Act(), hooked):
    run(type(module).__name__, module, torch.compile(module, backend="neuron"))
"""

MODELS = """
import torch
from torch._dynamo.utils import counters
class Model(torch.nn.Module):
    def __init__(self, width, activation):
        super().__init__()
        self.layer, self.activation = torch.nn.Linear(4, width), getattr(torch.nn, activation)()
    def forward(self, x):
        return self.activation(self.layer(x))
def run(width, activation):
    torch.compile(Model(width, activation).to("neuron"), backend="neuron")(torch.ones(2, 4, device="neuron"))
    print("RESULT", counters["stats"]["unique_graphs"])
"""

LOCAL = """
import json, torch
def make(scale):
    class Local:
        factor = scale
    def inner(x):
        torch._dynamo.graph_break()
        return x * Local.factor
    return inner
inner = make(3)
def outer(x):
    return inner(x.exp()) + 1
x = torch.ones(5, device="neuron")
torch.testing.assert_close(torch.compile(outer, backend="neuron")(x).cpu(), outer(x).cpu())
host = torch.ones(5)  # graphs that copy their inputs to the device are not kept
torch.testing.assert_close(torch.compile(lambda x: x.exp() * 2, backend="neuron")(host).cpu(), host.exp() * 2)
"""


RANKS = """
import json, torch, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch._dynamo.utils import counters

def where(x):
    return x + dist.get_rank() + 10 * dist.get_world_size() if dist.is_initialized() else x + 1

def begin(rank):
    dist.init_process_group("fake", rank=rank, world_size=3, store=FakeStore())

def run(*sizes):
    return [torch.compile(where, backend="neuron")(torch.zeros(size, device="neuron"))[0].item() for size in sizes]

def tell(results):
    print("RESULT" + json.dumps([results, counters["stats"]["unique_graphs"]]))
"""


@pytest.mark.slow
def test_the_process_group_is_asked(run_python, tmp_path):
    (tmp_path / "ranks.py").write_text(RANKS)

    def run(code, **environment):
        return ask(run_python, tmp_path, f"from ranks import *\n{code}", **environment)

    for traced in (1, 0):
        assert run("tell(run(4))") == [[1], traced]
        for rank in (0, 2):
            launched = {"TORCHELASTIC_RUN_ID": f"run {traced}"}
            assert run(f"begin({rank}); tell(run(4))", **launched) == [[30 + rank], traced]
    # Dynamo keeps to the group that it traced with, but others are not told of it.
    assert run("run(3); begin(1); tell(run(5))")[0] == [31]
    assert run("tell(run(5))") == [[1], 1]


@pytest.mark.slow
def test_what_cannot_be_kept_runs_all_the_same(run_python, tmp_path):
    for _ in range(2):
        run_python(LOCAL, TORCH_NEURONX_NEFF_CACHE_DIR=str(tmp_path))
