"""Attention that a model writes out, ``softmax(q @ k^T * scale + mask) @ v``, in a graph of operators.

The kernels of attention take its place in both directions, so that the forward pass keeps the statistics of the rows
for the gradient and not the probabilities. Legal when nobody else reads the scores or the probabilities (a dropout, a
result of the graph), the mask takes no gradient, and the gradients are those of the same operands. Scores of a narrow
type are rounded by the kernels where the graph rounds them. A mask that is 0 up to the diagonal and hides the rest
becomes `is_causal`.
"""

import math
import operator
from dataclasses import dataclass, field

import torch
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes

_aten = torch.ops.aten
_RESHAPES = {
    _aten.view.default, _aten._unsafe_view.default, _aten.reshape.default, _aten.unsqueeze.default,
    _aten.squeeze.default, _aten.squeeze.dim, _aten.squeeze.dims, _aten.expand.default, _aten.clone.default,
    _aten.alias.default, _aten.detach.default,
}  # fmt: skip
_COPIES = {_aten.clone.default, _aten.expand.default, _aten.alias.default, _aten.detach.default}
_PRODUCTS = {_aten.mul.Tensor, _aten.mul.Scalar}
_QUOTIENTS = {_aten.div.Tensor, _aten.div.Scalar}
_HIDDEN = -1e30  # what is added to a score to hide it, at least
_MAX_MASK = 1 << 26  # elements of a constant mask that is looked at
_MAX_WIDTH, _MAX_TOKENS_TIMES_WIDTH = 512, 1 << 21  # as eager execution takes them (aten/attention.cpp)


def _value(node):
    return node.meta["val"]


def _shape(node):
    return tuple(int(n) for n in _value(node).shape)


def _keeps_elements(node):
    """Whether the node shows the elements of its first argument in their order."""
    if node.op != "call_function":
        return False
    if node.target in (_aten.permute.default, _aten.transpose.int):
        sizes = _shape(node.args[0])
        axes = list(range(len(sizes)))
        if node.target is _aten.permute.default:
            axes = [axes[d] for d in node.args[1]]
        else:
            a, b = (axes[d] for d in node.args[1:])
            axes[a], axes[b] = b, a
        moved = [d for d in axes if sizes[d] != 1]
        return moved == sorted(moved)
    if node.target not in _RESHAPES:
        return False
    of = _value(node.args[0])
    return _value(node).numel() == of.numel() and _value(node).dtype == of.dtype


def _casts(node):
    """Whether it is its first argument in another type."""
    if node.op != "call_function" or node.target is not _aten._to_copy.default:
        return False
    return _value(node).device == _value(node.args[0]).device and _value(node).layout == _value(node.args[0]).layout


def _turns(node):
    """Whether it is the transposed matrices of its first argument."""
    if node.op != "call_function" or len(_shape(node)) != 3:
        return False
    if node.target is _aten.transpose.int:
        return {d % 3 for d in node.args[1:]} == {1, 2}
    return node.target is _aten.permute.default and [d % 3 for d in node.args[1]] == [0, 2, 1]


def _is_transposed(a, b):
    return (_turns(a) and a.args[0] is b) or (_turns(b) and b.args[0] is a)


class _Constants:
    """Values of nodes that depend on no argument of the graph."""

    def __init__(self, gm):
        self._gm = gm
        self._known = {}

    def of(self, node):
        """A tensor of the host or a number; None when it is no constant."""
        if not isinstance(node, Node):
            return node
        if node not in self._known:
            self._known[node] = self._evaluate(node)
        return self._known[node]

    def _evaluate(self, node):
        if node.op == "get_attr":
            value = getattr(self._gm, node.target, None)
            known = isinstance(value, torch.Tensor) and not isinstance(value, torch._subclasses.FakeTensor)
            return value.cpu() if known and value.numel() <= _MAX_MASK else None
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            return None
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.numel() > _MAX_MASK:
            return None
        if node.target._schema.is_mutable or torch.Tag.nondeterministic_seeded in node.target.tags:
            return None
        if any(self.of(source) is None for source in node.all_input_nodes):
            return None

        def on_host(a):
            return torch.device("cpu") if isinstance(a, torch.device) else a

        args = torch.fx.node.map_aggregate(torch.fx.node.map_arg(node.args, self.of), on_host)
        kwargs = torch.fx.node.map_aggregate(torch.fx.node.map_arg(dict(node.kwargs), self.of), on_host)
        try:
            return node.target(*args, **kwargs)
        except Exception:  # an operator that the host refuses: no constant
            return None

    def number(self, a):
        value = self.of(a)
        if isinstance(value, torch.Tensor):
            value = value.item() if value.numel() == 1 and not value.is_complex() else None
        return value if isinstance(value, (int, float)) else None


@dataclass
class _Attention:
    softmax: Node
    product: Node = None  # q @ k^T
    shape: tuple = ()  # of the scores that the mask is added to
    scale: float = 1.0
    mask: Node = None  # added
    shown: Node = None  # or bool: where it is false the score is -inf
    hidden: Node = None  # or bool: where it is true
    result: Node = None  # probabilities @ v
    grad_q: Node = None
    grad_kt: Node = None
    grad_v: Node = None
    types: list = field(default_factory=list)  # of what is computed between the product and the softmax
    above: Node = None  # grad_out @ v^T
    backward: list = field(default_factory=list)  # products that the gradients consist of


class _Finder:
    def __init__(self, constants):
        self.constants = constants

    def find(self, softmax):
        x = _value(softmax.args[0])
        if x.dim() == 0 or softmax.args[1] % x.dim() != x.dim() - 1:
            return None
        found = _Attention(softmax)
        if self._scores(found, softmax.args[0], softmax) and self._probabilities(found) and self._fits(found):
            return found
        return None

    def _scores(self, found, node, user):
        """From the softmax up to the product of query and key."""
        while set(node.users) == {user} and node.op == "call_function":
            target, user = node.target, node
            if target is _aten.bmm.default:
                found.product = node
                found.shape = found.shape or _shape(found.softmax)
                return set(found.types) <= {_value(node).dtype}
            if _keeps_elements(node):
                node = node.args[0]
            elif _casts(node) and not found.types and _value(node).dtype == torch.float32:
                node = node.args[0]
                found.types.append(_value(node).dtype)
            elif target in _PRODUCTS or target in _QUOTIENTS:
                factor = self.constants.number(node.args[1])
                if not factor or len(node.args) != 2:
                    return False
                found.scale *= factor if target in _PRODUCTS else 1 / factor
                found.types.append(_value(node).dtype)
                node = node.args[0]
            elif found.shape or found.scale != 1 or len(_shape(node)) > 4:
                return False
            else:
                found.shape = _shape(node)
                found.types.append(_value(node).dtype)
                node = self._masked(found, node)
                if node is None or _shape(node) != found.shape:
                    return False
        return False

    def _masked(self, found, node):
        """The scores that a mask is added to."""
        if node.target is _aten.add.Tensor and not node.kwargs and isinstance(node.args[1], Node):
            scores, mask = node.args
            if _shape(scores) != _shape(node) or self.constants.of(scores) is not None:
                scores, mask = mask, scores
            if _value(mask).dtype == _value(node).dtype:
                found.mask = mask
                return scores
        elif node.target in (_aten.masked_fill.Scalar, _aten.masked_fill.Tensor):
            if self.constants.number(node.args[2]) == -math.inf:
                found.hidden = node.args[1]
                return node.args[0]
        elif node.target is _aten.where.self:
            condition, a, b = node.args
            if self.constants.number(b) == -math.inf:
                found.shown = condition
                return a
            if self.constants.number(a) == -math.inf:
                found.hidden = condition
                return b
        return None

    def _probabilities(self, found):
        """From the softmax down: the product with the values, and the gradients."""
        gradient, shape = None, _shape(found.product)
        seen = [found.softmax]
        for node in seen:
            for user in node.users:
                if user.target is _aten._softmax_backward_data.default and user.args[0] is not node and not gradient:
                    gradient = user
                elif _turns(user) and _shape(node) == shape and len(user.users) == 1 and not found.grad_v:
                    (found.grad_v,) = user.users
                    if found.grad_v.target is not _aten.bmm.default or found.grad_v.args[0] is not user:
                        return False
                elif _keeps_elements(user) or (_casts(user) and _value(user).dtype == _value(found.product).dtype):
                    seen.append(user)
                elif user.target is _aten.bmm.default and user.args[0] is node and not found.result:
                    found.result = user
                else:
                    return False
        if not found.result or _shape(found.result.args[0]) != shape:
            return False
        if found.grad_v:
            found.backward.append(found.grad_v)
        return not gradient or (self._above(found, gradient) and self._below(found, gradient))

    def _above(self, found, gradient):
        """The gradient of the probabilities: grad_out @ v^T."""
        node, user = gradient.args[0], gradient
        while set(node.users) == {user} and (_keeps_elements(node) or _casts(node)):
            node, user = node.args[0], node
        if node.target is not _aten.bmm.default or set(node.users) != {user}:
            return False
        if not _is_transposed(node.args[1], found.result.args[1]) or _shape(node) != _shape(found.product):
            return False
        if found.grad_v and found.grad_v.args[1] is not node.args[0]:
            return False
        found.above = node
        found.backward.append(node)
        return True

    def _below(self, found, gradient):
        """The gradient of the scores, up to its products with key and query."""
        node, factor = gradient, 1.0
        while any(user.target is not _aten.bmm.default for user in node.users):
            if len(node.users) != 1:
                return False
            (user,) = node.users
            if user.op != "call_function":
                return False
            if user.target in _PRODUCTS or user.target in _QUOTIENTS:
                number = self.constants.number(user.args[1])
                if user.args[0] is not node or not number:
                    return False
                factor *= number if user.target in _PRODUCTS else 1 / number
            elif not (_keeps_elements(user) or _casts(user) or self._hides_as(found, user, node)):
                return False
            node = user
        q, kt = found.product.args
        for user in node.users:
            if user.args[0] is node and _is_transposed(user.args[1], kt) and not found.grad_q:
                found.grad_q = user
            elif user.args[1] is node and _is_transposed(user.args[0], q) and not found.grad_kt:
                found.grad_kt = user
            else:
                return False
            found.backward.append(user)
        return _shape(node) == _shape(found.product) and math.isclose(factor, found.scale, rel_tol=1e-6)

    def _hides_as(self, found, user, node):
        """Whether it is 0 where the mask of the forward pass hides a score."""
        if user.target in (_aten.masked_fill.Scalar, _aten.masked_fill.Tensor):
            return user.args[:2] == (node, found.hidden) and self.constants.number(user.args[2]) == 0
        if user.target is not _aten.where.self:
            return False
        if user.args[:2] == (found.shown, node):
            return self._is_zero(user.args[2])
        return (user.args[0], user.args[2]) == (found.hidden, node) and self._is_zero(user.args[1])

    def _is_zero(self, node):
        value = self.constants.of(node)
        return isinstance(value, torch.Tensor) and not value.any()

    def _fits(self, found):
        (_, queries, keys), width = _shape(found.product), _shape(found.product.args[0])[2]
        width = max(width, _shape(found.result)[2])
        dtype = _value(found.product).dtype
        if dtype not in (torch.float32, torch.bfloat16, torch.float16) or 0 in found.shape:
            return False
        if any(_value(a).dtype != dtype for a in (found.result, *found.backward)):
            return False
        if width == 0 or width > _MAX_WIDTH:
            return False
        return not found.backward or max(queries, 2 * keys) * width <= _MAX_TOKENS_TIMES_WIDTH


class _Writer:
    def __init__(self, graph, constants, fake_mode):
        self.graph = graph
        self.fake_mode = fake_mode
        self.constants = constants
        self.changes_arguments = any(node.target is _aten.copy_.default for node in graph.nodes)
        self.order = {node: i for i, node in enumerate(graph.nodes)}

    def _may_skip(self, node):
        """A copy of an argument that the graph changes has to stay."""
        return node.target is not _aten.clone.default or not self.changes_arguments

    def _call(self, like, target, *args, **kwargs):
        node = self.graph.call_function(target, args, kwargs)
        node.meta = {name: value for name, value in like.meta.items() if name not in ("val", "tensor_meta")}
        with self.fake_mode:
            node.meta["val"] = target(*torch.fx.node.map_arg(args, _value), **torch.fx.node.map_arg(kwargs, _value))
        return node

    def _turned(self, like, node):
        if node.target is _aten.transpose.int and {d % 4 for d in node.args[1:]} == {2, 3}:
            return node.args[0]
        return self._call(like, _aten.transpose.int, node, 2, 3)

    def _in_place_of(self, old, new):
        """`new` has the strides of a product, as those who read it expect."""
        if _value(new).stride() != _value(old).stride():
            new = self._call(old, _aten.clone.default, new, memory_format=torch.contiguous_format)
        old.replace_all_uses_with(new)

    def _mask(self, found):
        """(mask, is_causal, whether a query that sees no key gives NaN)"""
        given = found.mask or found.shown or found.hidden
        if given is None:
            return None, False, False
        value = self.constants.of(given)
        if value is not None:
            shown = value if given is found.shown else ~value if given is found.hidden else value == 0
            hidden = ~shown if given is not found.mask else value <= _HIDDEN
            if bool((shown | hidden).all()):
                rows, columns = found.shape[-2:]
                causal = torch.ones(rows, columns, dtype=torch.bool).tril()
                if torch.equal(shown.expand(found.shape), causal.expand(found.shape)):
                    return None, True, False
        if given is found.hidden:
            given = self._call(found.result, _aten.logical_not.default, given)
        return given, False, True

    def write(self, found):
        lead = found.shape[:-2]
        batch = lead if len(lead) == 2 else (1, math.prod(lead))
        q3, kt3 = found.product.args
        v3 = found.result.args[1]
        like = found.result

        def heads(like, node):
            """Matrices as [batch, heads, rows, columns], read where they were before they were copied for a product."""
            sizes = (*batch, *_shape(node)[1:])
            source = node
            while _shape(source) != sizes and _keeps_elements(source) and self._may_skip(source):
                source = source.args[0]
            while source.target in _COPIES and _shape(source) == _shape(source.args[0]) and self._may_skip(source):
                source = source.args[0]
            if _shape(source) == sizes:
                return source
            return self._call(like, _aten.view.default, node, list(sizes))

        with self.graph.inserting_before(found.result):
            q, kt, v = heads(like, q3), heads(like, kt3), heads(like, v3)
            k = self._turned(like, kt)
            mask, causal, blind_is_nan = self._mask(found)
            rounds = _value(q).dtype != torch.float32
            both = self._call(
                like, torch.ops.trnsim.attention.default, q, k, v, mask, causal, found.scale, blind_is_nan, rounds
            )
            out, statistics = (self._call(like, operator.getitem, both, i) for i in (0, 1))
            self._in_place_of(like, self._call(like, _aten.reshape.default, out, list(_shape(like))))
        if not found.backward:
            return
        first = min(found.backward, key=self.order.__getitem__)
        with self.graph.inserting_before(first):
            grad_out = heads(first, found.above.args[0] if found.above else found.grad_v.args[1])
            grads = self._call(
                first, torch.ops.trnsim.attention_backward.default,
                grad_out, q, k, v, mask, out, statistics, causal, found.scale, rounds,
            )  # fmt: skip
            for i, old in enumerate((found.grad_q, found.grad_kt, found.grad_v)):
                if old is None:
                    continue
                shape = list(_shape(old))
                new = self._call(old, operator.getitem, grads, i)
                if old is not found.grad_kt:
                    new = self._call(old, _aten.reshape.default, new, shape)
                else:
                    new = self._call(old, _aten.reshape.default, new, [shape[0], shape[2], shape[1]])
                    new = self._call(old, _aten.transpose.int, new, 1, 2)
                self._in_place_of(old, new)

    def clear(self, nodes):
        """Takes away what nobody reads any more, and what only that has read."""
        nodes = list(nodes)
        while nodes:
            node = nodes.pop()
            if node.op == "call_function" and not node.users and node in self.order:
                nodes += node.all_input_nodes
                del self.order[node]
                self.graph.erase_node(node)


def replace_attention(gm, min_scores=0):
    """Puts the kernels of attention in place of what a graph has written out, from that many scores per head on."""
    softmaxes = [n for n in gm.graph.nodes if n.target is _aten._softmax.default]
    if not softmaxes:
        return
    with _disable_current_modes(), torch.no_grad():
        constants = _Constants(gm)
        found = [a for a in map(_Finder(constants).find, softmaxes) if a and math.prod(a.shape[-2:]) >= min_scores]
        writer = _Writer(gm.graph, constants, torch._guards.detect_fake_mode([_value(softmaxes[0])]))
        for attention in found:
            writer.write(attention)
        for attention in found:
            writer.clear([attention.result, *attention.backward])
    gm.recompile()
