"""An FX graph of operators as bytes: what graphs.py reads of it, and nothing of the process that traced it."""

import functools
import hashlib
import io
import os
import pathlib
import pickle

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from trnsim import _C


class NotKept(Exception):
    """The graph holds something that is known to this process alone."""


class _Pickler(pickle.Pickler):
    """Operators go by name, nodes by number, tensors that stand for values by their metadata."""

    def __init__(self, file, number_of):
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._number_of = number_of

    def persistent_id(self, value):
        if isinstance(value, torch.fx.Node):
            return ("node", self._number_of[value])
        if isinstance(value, torch._ops.OpOverload):
            return ("operator", value.namespace, value._opname, value._overloadname)
        if isinstance(value, FakeTensor):
            sizes, strides = tuple(int(n) for n in value.shape), tuple(int(n) for n in value.stride())
            return ("tensor", value.dtype, sizes, strides, int(value.storage_offset()), value.device)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise NotKept("a number that is known when the graph runs")
        if isinstance(value, (torch.nn.Module, torch._ops.HigherOrderOperator)):
            raise NotKept("a higher-order operator")
        return None

    def reducer_override(self, value):
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":  # a constant of the graph
            return _constant, (value.detach().cpu(), value.device)
        return NotImplemented


def _constant(values, device):
    return values.to(device)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file):
        super().__init__(file)
        self.nodes = []
        self._fake = FakeTensorMode()

    def persistent_load(self, kept):
        kind, *rest = kept
        if kind == "node":
            return self.nodes[rest[0]]
        if kind == "operator":
            namespace, name, overload = rest
            return getattr(getattr(getattr(torch.ops, namespace), name), overload)
        dtype, sizes, strides, offset, device = rest
        extent = offset
        if 0 not in sizes:
            extent += 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        memory = torch.empty(extent, dtype=dtype, device="meta")
        return FakeTensor(self._fake, memory.as_strided(sizes, strides, offset), device)


class ListedGraph:
    """In place of a GraphModule: the graph, and its constants as attributes."""

    def __init__(self):
        self.graph = torch.fx.Graph()


@functools.cache
def version():
    """Of all that turns a graph of Dynamo into a listing, and a listing into programs."""
    digest = hashlib.sha256()
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    device = os.stat(_C.__file__)
    digest.update(f"{torch.__version__} {device.st_size} {device.st_mtime_ns}".encode())
    return digest.hexdigest()


def _header(listing):
    return f"{version()} {hashlib.sha256(listing).hexdigest()}\n".encode()


def dump(gm, source_line):
    """Bytes for `load`, or why there are none (NotKept). `source_line(node)` is the user's line."""
    try:
        with _disable_current_modes():
            listing = _dump(gm, source_line)
    except NotKept as e:
        return e
    return _header(listing) + listing


def _dump(gm, source_line):
    nodes = list(gm.graph.nodes)
    out = io.BytesIO()
    pickler = _Pickler(out, {node: i for i, node in enumerate(nodes)})
    pickler.dump(len(nodes))
    for node in nodes:
        constant = None
        if node.op == "get_attr":
            constant = gm
            for part in node.target.split("."):
                constant = getattr(constant, part)
        value = node.meta.get("val")
        try:
            pickler.dump((node.op, node.name, node.target, node.args, node.kwargs, value, source_line(node), constant))
        except (pickle.PicklingError, TypeError, AttributeError) as e:
            raise NotKept(f"{node.name}: {e}") from e
    return out.getvalue()


def load(data):
    """The graph that `dump` wrote; its nodes have meta "val" and "stack_trace"."""
    header, _, listing = data.partition(b"\n")
    if header + b"\n" != _header(listing):
        raise RuntimeError("a traced graph from the cache is damaged or of another version; it is traced again")
    listed = ListedGraph()
    unpickler = _Unpickler(io.BytesIO(listing))
    with _disable_current_modes(), torch.inference_mode(False):
        for _ in range(unpickler.load()):
            op, name, target, args, kwargs, value, (file, line), constant = unpickler.load()
            if op == "get_attr":
                target = f"constant_{len(unpickler.nodes)}"
                setattr(listed, target, constant)
            node = listed.graph.create_node(op, target, args, kwargs, name)
            node.meta["val"] = value
            if file:
                node.meta["stack_trace"] = f'File "{file}", line {line}'
            unpickler.nodes.append(node)
    return listed
