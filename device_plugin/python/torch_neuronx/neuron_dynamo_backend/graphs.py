"""One FX graph of ATen operators -> programs, and the callable that runs them."""

import operator
import os
import re
import time
import warnings

import torch
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._guards import detect_fake_mode
from torch._inductor.output_code import OutputCode
from torch._prims.rng_prims import run_with_rng_state
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._python_dispatch import _disable_current_modes

from trnsim import _C

from . import graph_listing, metrics
from .placement import Placement, described, tensors_of
from .settings import artefact_folder


class DynamicShapes(RuntimeError):
    """A size that is not known when the graph is compiled."""


# ---- symbols
def has_symbols(number):
    return isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)) and number.node.maybe_as_int() is None


def concrete_size(size, what):
    """A size as an int. A symbolic one becomes a constant of the graph, with a guard."""
    if not isinstance(size, torch.SymInt):
        return size
    if free_unbacked_symbols(size):
        raise DynamicShapes(
            f"not simulated: {what} has a size that depends on values ({size}); graphs of this backend need static "
            "shapes. Keep the operator out of the compiled region (torch.compiler.disable), or let the graph run "
            "eagerly with TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION=0."
        )
    return int(size)


def _literal(value):
    """A symbolic number that has become a constant, or None."""
    if isinstance(value, (torch.SymInt, torch.SymBool)):
        constant = value.node.maybe_as_int() if isinstance(value, torch.SymInt) else value.node.maybe_as_bool()
        return constant
    if isinstance(value, torch.SymFloat):
        return value.node.maybe_as_float()
    return None


def _fix_sizes(gm):
    for node in gm.graph.nodes:
        for t in tensors_of(node.meta.get("val")):
            for size in (*t.shape, *t.stride(), t.storage_offset()):
                concrete_size(size, f"{node.name} ({described(node) if node.op == 'call_function' else node.op})")


# ---- where a node comes from
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def source_line(node):
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return (frames[-1][0], int(frames[-1][1])) if frames else ("", 0)


# ---- steps
class _Program:
    """A program between its inputs and outputs in the table of values."""

    def __init__(self, program, tensors, numbers, uploads, results):
        self.program = program
        self.tensors = tensors
        self.numbers = numbers
        self.uploads = uploads
        self.results = results

    def __call__(self, values):
        tensors = [values[i] for i in self.tensors]
        for position, device in self.uploads:  # the host's tensor stays where it is: others may want it
            tensors[position] = tensors[position].to(device)
        made = self.program(tensors, [values[i] for i in self.numbers])
        for slot, value in zip(self.results, made, strict=True):
            values[slot] = value


class _HostStep:
    """One node, called with tensors: on the host, or by the eager programs of the device."""

    def __init__(self, target, args, kwargs, result):
        self.target, self.args, self.kwargs, self.result = target, args, kwargs, result

    def __call__(self, values):
        def filled(a):
            return values[a.index] if isinstance(a, _Slot) else a

        args = torch.fx.node.map_aggregate(self.args, filled)
        kwargs = torch.fx.node.map_aggregate(self.kwargs, filled)
        values[self.result] = self.target(*args, **kwargs)


class _Slot:
    __slots__ = ("index",)

    def __init__(self, index):
        self.index = index


class _LazySubgraph:
    """A branch or body of a higher-order operator: compiled when it is called first."""

    def __init__(self, gm, settings, name):
        self.gm, self.settings, self.name, self.compiled = gm, settings, name, None

    def __call__(self, *args):
        if self.compiled is None:
            self.compiled = compile_graph(self.gm, args, settings=self.settings, kind=self.name)
        results = self.compiled(list(args))
        form = self.gm.graph.output_node().args[0]
        if isinstance(form, tuple):
            return tuple(results)
        return results if isinstance(form, list) else results[0]


class CompiledGraph(OutputCode):
    """Takes the arguments as one list, as AOTAutograd does. Another process gets the FX graph as a listing and makes
    programs of it again: they are found in the program store when nothing that counts for them has changed."""

    def __init__(self, settings, kind, listing):
        super().__init__()
        self.__name__ = f"{settings.model_name}.{kind}"
        self._boxed_call = True
        self._settings, self._kind, self._listing = settings, kind, listing
        self._steps = None

    def fill(self, num_arguments, num_values, constants, steps, results):
        self._padding = [None] * (num_values - num_arguments)
        self._constants = constants
        self._steps = steps
        self._results = results
        one = steps[0] if len(steps) == 1 and isinstance(steps[0], _Program) and not constants else None
        self._direct = one if one is not None and not one.uploads and one.results == results else None

    def prepare_for_serialization(self):
        if isinstance(self._listing, graph_listing.NotKept):
            raise BypassAOTAutogradCache(f"{self.__name__} holds {self._listing}")
        self._padding = self._constants = self._steps = self._results = self._direct = None

    def post_compile(self, example_inputs, constants, graph_kwargs):
        if self._steps is not None:
            return
        try:
            listed = graph_listing.load(self._listing)
        except Exception as e:
            warnings.warn(f"neuron: {self.__name__}: {e}", stacklevel=2)
            raise
        _compile(listed, self)
        metrics.count(graphs_from_cache=1)

    def set_triton_bundle(self, triton_bundle):
        """There is none."""

    def __call__(self, args):
        metrics.count(calls=1)
        if self._direct is not None:
            one = self._direct
            tensors, numbers = [args[i] for i in one.tensors], [args[i] for i in one.numbers]
            args.clear()
            return one.program(tensors, numbers)
        values = [*args, *self._padding]
        args.clear()
        for slot, value in self._constants:
            values[slot] = value
        for step in self._steps:
            step(values)
        return [values[i] if i is not None else None for i in self._results]


# ---- the compiler of one graph
class _GraphCompiler:
    def __init__(self, gm, settings, kind):
        self.gm, self.settings, self.kind = gm, settings, kind
        self.nodes = list(gm.graph.nodes)
        self.number_of = {node: i for i, node in enumerate(self.nodes)}
        self.device = self._device()
        self.refused = {}  # node -> why it is no part of a program
        self.slots = {}
        self.constants = []
        for node in self.nodes:
            if node.op == "placeholder":
                self._slot(node)

    def _device(self):
        for node in self.nodes:
            for t in tensors_of(node.meta.get("val")):
                if t.device.type == "neuron":
                    return t.device
        return torch.device("neuron", torch.neuron.current_device())

    def _slot(self, node):
        return self.slots.setdefault(node, len(self.slots))

    @property
    def name(self):
        return f"{self.settings.model_name}.{self.kind}"

    def compile(self, compiled):
        """Places and records until no operator refuses; each refusal moves an operator to the host steps. What comes
        out goes into `compiled`."""
        while True:
            placement = Placement(self.gm.graph, self.device, self.refused)
            self.slots = {node: i for i, node in enumerate(n for n in self.nodes if n.op == "placeholder")}
            self.constants = []
            try:
                steps, programs = self._steps(placement)
            except _Refused as refusal:
                self.refused.update(refusal.nodes)
                continue
            break
        self._report(placement, programs)
        results = [self._result_slot(r) for r in self._results()]
        num_arguments = sum(node.op == "placeholder" for node in self.nodes)
        compiled.fill(num_arguments, len(self.slots), self.constants, steps, results)

    def _results(self):
        """What the graph returns: a list, but for subgraphs with one result."""
        results = self.nodes[-1].args[0]
        return results if isinstance(results, (list, tuple)) else [results]

    def _result_slot(self, result):
        if isinstance(result, torch.fx.Node):
            literal = _literal(result.meta.get("val"))
            if literal is None:
                return self._fetch(result)
            result = literal
        if result is None:
            return None
        slot = len(self.slots)
        self.slots[("literal", slot)] = slot
        self.constants.append((slot, result))
        return slot

    def _fetch(self, node):
        """The slot of a value; attributes of the graph are put into theirs."""
        if node.op == "get_attr" and node not in self.slots:
            self.constants.append((self._slot(node), self._attribute(node)))
        return self._slot(node)

    def _attribute(self, node):
        value = self.gm
        for part in node.target.split("."):
            value = getattr(value, part)
        if isinstance(value, torch.fx.GraphModule):
            return _LazySubgraph(value, self.settings, f"{self.kind}.{node.name}")
        return value

    # ---- steps in order
    def _steps(self, placement):
        members = [[] for _ in range(placement.num_programs + 1)]
        hosts = [[] for _ in range(placement.num_programs + 2)]
        for node, level in placement.level.items():
            if node in placement.host:
                while level >= len(hosts):
                    hosts.append([])
                hosts[level].append(node)
            else:
                members[level].append(node)
        outputs = {r for r in self._results() if isinstance(r, torch.fx.Node)}
        steps, programs = [], []
        for level in range(len(hosts)):
            steps += [self._host_step(node) for node in hosts[level]]
            if level < len(members) and members[level]:
                name = self.name if placement.num_programs == 1 else f"{self.name}.{level}"
                step = self._record(name, members[level], outputs)
                steps.append(step)
                programs.append(step.program)
        return steps, programs

    def _host_step(self, node):
        def slot(a):
            literal = _literal(a.meta.get("val"))
            return literal if literal is not None else _Slot(self._fetch(a))

        args = torch.fx.node.map_arg(node.args, slot)
        kwargs = torch.fx.node.map_arg(node.kwargs, slot)
        return _HostStep(node.target, args, kwargs, self._slot(node))

    # ---- one program
    def _record(self, name, members, outputs):
        inside = set(members)
        recorder = _C.GraphRecorder(name, self.device.index)
        env, tensors, numbers, uploads = {}, [], [], []

        def outside(node):
            """The stand-in of a value that the program gets."""
            value = node.meta.get("val")
            literal = _literal(value)
            if literal is not None:
                return literal
            if node.op == "get_attr":
                constant = self._attribute(node)
                on_host = isinstance(constant, torch.Tensor) and constant.device.type == "cpu" and constant.dim() > 0
                return constant.to(self.device) if on_host else constant
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                numbers.append(self._fetch(node))
                return recorder.number(torch.float64 if isinstance(value, torch.SymFloat) else torch.int64, True)
            if not isinstance(value, torch.Tensor):
                raise RuntimeError(f"internal error: {node.name} has no value to compile for")
            if value.device.type == "cpu" and value.dim() == 0:
                numbers.append(self._fetch(node))
                return recorder.number(value.dtype, False)
            slot = self._fetch(node)
            if value.device.type == "cpu":
                uploads.append((len(tensors), self.device))
            tensors.append(slot)
            return recorder.input(
                value.dtype,
                [int(s) for s in value.shape],
                [int(s) for s in value.stride()],
                int(value.storage_offset()),
            )

        def argument(node):
            if node not in env:
                env[node] = outside(node)
            return env[node]

        kept = []
        recorder.begin()
        try:
            with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
                for node in members:
                    recorder.locate(*source_line(node), self.number_of[node])
                    try:
                        args = torch.fx.node.map_arg(node.args, argument)
                        kwargs = torch.fx.node.map_arg(node.kwargs, argument)
                        env[node] = node.target(*args, **kwargs)
                    except Exception as e:
                        raise self._refusal(recorder, node, e) from e
                for node in members:
                    others = [user for user in node.users if user.op != "output" and user not in inside]
                    if (others or node in outputs) and isinstance(env[node], torch.Tensor):
                        kept.append((node, self._laid_out(env[node], node) if node in outputs else env[node]))
        finally:
            recorder.end()
        try:
            program = recorder.finish([t for _, t in kept])
        except RuntimeError as e:
            raise RuntimeError(f"{e}\n(while compiling {name}, {len(members)} operators)") from e
        if program is None:
            raise _Refused({self.nodes[tag]: reason for tag, _, reason in recorder.refusals()})
        return _Program(program, tensors, numbers, uploads, [self._slot(node) for node, _ in kept])

    def _refusal(self, recorder, node, error):
        if recorder.refusals():
            return _Refused({node: recorder.refusals()[-1][2]})
        if isinstance(error, NotImplementedError):
            return _Refused({node: str(error).splitlines()[0]})
        file, line = source_line(node)
        place = f" at {file}:{line}" if file else ""
        return (
            type(error)(f"{error}\n(while compiling {described(node)}{place} in {self.name})")
            if isinstance(error, RuntimeError)
            else error
        )

    @staticmethod
    def _laid_out(tensor, node):
        """With the strides that AOTAutograd has promised its callers."""
        value = node.meta["val"]
        strides = tuple(int(s) for s in value.stride())
        if tensor.stride() == strides or tensor.numel() == 0 or 0 in strides:
            return tensor
        if all(n == 1 or a == b for n, a, b in zip(tensor.shape, tensor.stride(), strides, strict=True)):
            return tensor
        copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
        copy.copy_(tensor)
        return copy

    def _report(self, placement, programs):
        compiled = sum(p.compiled for p in programs)
        metrics.count(
            graphs=1,
            programs=len(programs),
            programs_compiled=compiled,
            programs_from_cache=len(programs) - compiled,
            nodes=sum(p.num_nodes for p in programs),
            compile_seconds=sum(p.compile_us for p in programs) * 1e-6,
        )
        for node, reason in placement.host.items():
            if node.target is operator.getitem or reason == "computed on the host":
                continue
            metrics.count_host_operator(described(node), reason)
            file, line = source_line(node)
            warnings.warn(
                f"neuron: {described(node)}{f' at {file}:{line}' if file else ''} is no part of a compiled program of "
                f"{self.name} and runs by itself: {reason}",
                stacklevel=2,
            )


class _Refused(Exception):
    def __init__(self, nodes):
        super().__init__(str(nodes))
        self.nodes = nodes


def _write_artefact(gm, name):
    folder = artefact_folder()
    if folder is None:
        return
    text = gm.print_readable(print_output=False, include_stride=True, include_device=True)
    os.makedirs(folder, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9_.]", "_", name)
    number = 0
    while True:
        path = os.path.join(folder, f"{stem}-{number}.fx.txt")
        try:
            with open(path, "x") as file:
                file.write(text)
            return
        except FileExistsError:
            number += 1


def compile_graph(gm, example_inputs, *, settings, kind, keep=False):
    """The compiler that AOTAutograd calls for a forward, backward or inference graph. `keep`: for other processes."""
    if not any("val" in node.meta for node in gm.graph.nodes):
        _find_values(gm, example_inputs)
    _find_values_of_second_runs(gm, example_inputs)
    _fix_sizes(gm)
    listing = graph_listing.dump(gm, source_line) if keep else None
    compiled = CompiledGraph(settings, kind, listing)
    _write_artefact(gm, compiled.__name__)
    _compile(gm, compiled)
    return compiled


def _compile(gm, compiled):
    begin = time.perf_counter()
    with _disable_current_modes():  # AOTAutograd traces with fake tensors; what is recorded are the device's own
        _GraphCompiler(gm, compiled._settings, compiled._kind).compile(compiled)
    metrics.count(graph_seconds=time.perf_counter() - begin)


def _find_values(gm, example_inputs):
    """Gives the nodes of a subgraph the tensors that its operators would make."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    FakeTensorProp(gm, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*example_inputs)


def _find_values_of_second_runs(gm, example_inputs):
    """PyTorch's partitioner puts random operators that run again into the backward graph without their values."""
    for node in gm.graph.nodes:
        if node.target is run_with_rng_state and "val" not in node.meta:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
            with detect_fake_mode(example_inputs):
                node.meta["val"] = node.target(*args, **kwargs)
