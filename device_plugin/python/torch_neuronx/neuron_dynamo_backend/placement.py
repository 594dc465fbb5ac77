"""Which nodes of an FX graph become programs, and in which order programs and other nodes run.

A graph is a chain: host steps of level 0, program 0, host steps of level 1, program 1, ... Each node goes as early as
its inputs allow, so that host steps in the middle cut a graph into as few programs as possible. Order is kept where it
is visible: around changes of memory, random numbers and side effects."""

import operator

import torch

from torch_neuronx._random_state import USE_RANDOM_STATE

from .operators import DEVICE_TYPES, functional_name, has_kernel

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)


def tensors_of(value):
    """The tensors of a node's value, which may be a tuple or list."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in tensors_of(v)]
    return []


def _has_only_tensors(value):
    if value is None or isinstance(value, torch.Tensor):
        return True
    return isinstance(value, (tuple, list)) and all(_has_only_tensors(v) for v in value)


def _is_random(op):
    return torch.Tag.nondeterministic_seeded in op.tags


def host_reason(node, device):
    """Why a node is no part of a program; None when it is."""
    if node.target in USE_RANDOM_STATE:
        return "the random state is kept for a second run of it"
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return "a higher-order operator: the host decides which of its compiled parts run"
    if not isinstance(node.target, torch._ops.OpOverload):
        return "no operator of PyTorch's dispatcher"
    value = node.meta.get("val")
    tensors = tensors_of(value)
    if not tensors and not any(a.alias_info and a.alias_info.is_write for a in node.target._schema.arguments):
        return "its result is no tensor"
    if not _has_only_tensors(value):
        return "its result is no tensor"
    for t in tensors:
        if t.device != device:
            return "computed on the host" if t.device.type == "cpu" else f"computed on {t.device}"
    for t in tensors + [t for source in node.all_input_nodes for t in tensors_of(source.meta.get("val"))]:
        if t.layout != torch.strided:
            return f"layout {t.layout}"
        if t.dtype not in DEVICE_TYPES:
            return f"the hardware has no {t.dtype} type"
    if node.target.namespace == "aten" and not has_kernel(node.target):
        return "no lowering for this operator"
    for argument, given in zip(node.target._schema.arguments, node.args, strict=False):
        # A number that is known when the graph runs can stand for a tensor, not for a Scalar.
        is_number = isinstance(given, torch.fx.Node) and isinstance(given.meta.get("val"), _NUMBERS)
        if is_number and argument.type.kind() not in ("TensorType", "OptionalType"):
            return "a number that is known when the graph runs"
    return None


class Placement:
    """``level`` of every node that runs; ``host[node]`` is the reason of a host step."""

    def __init__(self, graph, device, refused):
        self.level = {}
        self.host = {}
        self.views = {}
        self._root = {}
        self._last_write = {}  # by memory: the node that wrote it last ...
        self._readers = {}  # ... and those that have read it since
        self._ordered = {}  # the last node that used random numbers, the last with side effects
        for node in graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self._root[node] = node
            elif node.op == "call_function":
                self._place(node, refused.get(node) or self._reason(node, device))
            elif node.op != "output":
                raise RuntimeError(f"internal error: a node of kind {node.op} in a graph of operators")
        self.num_programs = 1 + max((n for node, n in self.level.items() if node not in self.host), default=-1)

    def _reason(self, node, device):
        if node.target is operator.getitem:
            return self.host.get(node.args[0])
        return host_reason(node, device)

    def _after(self, node, is_host):
        """The lowest level that runs after `node`."""
        if node not in self.level:
            return 0
        if node in self.host:
            return self.level[node]
        return self.level[node] + 1 if is_host else self.level[node]

    def _place(self, node, reason):
        is_host = reason is not None
        before = list(node.all_input_nodes)
        written = self._written(node)
        for source in node.all_input_nodes:
            root = self._root.get(source, source)
            if root in self._last_write:
                before.append(self._last_write[root])
            if source in written:
                before += self._readers.get(root, ())
        orders = self._orders(node)
        before += [self._ordered[o] for o in orders if o in self._ordered]
        if is_host:
            self.host[node] = reason
        self.level[node] = max((self._after(b, is_host) for b in before), default=0)
        for o in orders:
            self._ordered[o] = node
        for source in node.all_input_nodes:
            root = self._root.get(source, source)
            if source in written:
                self._last_write[root] = node
                self._readers[root] = []
            else:
                self._readers.setdefault(root, []).append(node)
        self._root[node] = self._root_of(node)

    @staticmethod
    def _orders(node):
        """What the node must not overtake nodes of."""
        if isinstance(node.target, torch._ops.OpOverload):
            return ["random"] if _is_random(node.target) else []
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return ["random", "effects"]
        return []

    @staticmethod
    def _written(node):
        if not isinstance(node.target, torch._ops.OpOverload):
            return set()
        sources = set()
        for i, a in enumerate(node.target._schema.arguments):
            if a.alias_info is not None and a.alias_info.is_write:
                given = node.args[i] if i < len(node.args) else node.kwargs.get(a.name)
                sources.update(n for n in (given if isinstance(given, (list, tuple)) else [given]) if n is not None)
        return sources

    def _root_of(self, node):
        """The node whose memory a view shows; the node itself when it has memory of its own."""
        if node.target is operator.getitem:
            return self._root[node.args[0]]
        if isinstance(node.target, torch._ops.OpOverload) and any(r.alias_info for r in node.target._schema.returns):
            for a, given in zip(node.target._schema.arguments, node.args, strict=False):
                if a.alias_info is not None and isinstance(given, torch.fx.Node):
                    return self._root.get(given, given)
        return node


def described(node):
    """An operator as messages name it."""
    target = node.target
    if target in USE_RANDOM_STATE:
        target = next(a for a in node.args if isinstance(a, torch._ops.OpOverload))
    if isinstance(target, torch._ops.OpOverload):
        return functional_name(target)
    return node.target.name() if isinstance(node.target, torch._ops.OperatorBase) else str(node.target)
