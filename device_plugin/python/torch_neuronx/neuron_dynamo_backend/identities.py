"""What another process recognises the objects of a trace by: their names, and what their code does."""

import enum
import functools
import hashlib
import pickle
import sys
import types
from collections import OrderedDict

import torch

_SINGLETONS = (None, ..., NotImplemented)
_PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device)
_MOST_WRAPPERS = 4  # one around the other, of a function


@functools.lru_cache(None)
def digest(code):
    """Of what a function does, not of where it is written."""

    def plain(constant):
        if isinstance(constant, types.CodeType):
            return digest(constant)
        return sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)

    parts = (code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags)
    return hashlib.sha256(repr((parts, [plain(c) for c in code.co_consts])).encode()).hexdigest()


def identity(value):
    """What another process recognises an object by, or None."""
    kind = type(value).__name__
    if isinstance(value, types.ModuleType):
        return (kind, value.__name__)
    if isinstance(value, types.CodeType):
        return (kind, value.co_name, digest(value))
    if isinstance(value, types.FunctionType):
        return (kind, value.__module__, value.__qualname__, digest(value.__code__))
    if isinstance(value, enum.Enum):
        plain = repr(value.value) if type(value.value) in _PLAIN else None
        return (kind, type(value).__module__, type(value).__qualname__, value.name, plain)
    if isinstance(value, (torch._ops.OperatorBase, torch._ops.OpOverloadPacket)):
        return (kind, str(value))
    if any(value is single for single in _SINGLETONS):
        return (kind,)
    if isinstance(value, types.BuiltinFunctionType):
        owner = value.__self__
        if owner is not None and not isinstance(owner, (type, types.ModuleType)):
            return None
        return (kind, value.__module__, value.__qualname__)
    if isinstance(value, (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)):
        return (kind, value.__objclass__.__module__, value.__qualname__)
    if isinstance(value, type) and "<locals>" not in value.__qualname__:
        return ("class", value.__module__, value.__qualname__)
    if isinstance(value, functools._lru_cache_wrapper) and isinstance(value.__wrapped__, types.FunctionType):
        return (kind, *identity(value.__wrapped__))
    return None if isinstance(value, (torch.Tensor, torch.nn.Module)) else _global(value)


def _global(value):
    """Of what pickle writes as the name of a global: the special forms of typing, constants that say so."""
    try:
        name = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        module = pickle.whichmodule(value, name) if isinstance(name, str) else None
    except Exception:
        return None
    found = sys.modules.get(module)
    for part in name.split(".") if module else ():
        found = getattr(found, part, None)
    return (type(value).__name__, module, name) if found is value else None


def _function(function, depth=0):
    """With what its text does not say: default arguments, and what it has of the functions around it."""
    held = [*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())]
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not yet filled
            held.append(None)
    return (*identity(function), [_member(value, depth + 1) for value in held])


def _member(value, depth=0):
    """What a function does, or what stands for one in a class; the value of a plain object, the kind of others."""
    kind = type(value).__name__
    if type(value) in _PLAIN:
        return repr(value)
    if depth > _MOST_WRAPPERS:
        return kind
    if isinstance(value, types.FunctionType):
        return _function(value, depth)
    if isinstance(value, tuple):
        return (kind, [_member(part, depth + 1) for part in value])
    if isinstance(value, (staticmethod, classmethod, property, functools.cached_property, types.MethodType)):
        parts = (getattr(value, part, None) for part in ("__func__", "fget", "fset", "func"))
        return (kind, [_member(part, depth + 1) for part in parts])
    return kind


def _functions(kind):
    """Of a class, by the names of the classes that have them."""
    for base in (*kind.__mro__, *type(kind).__mro__):
        if base is not object and base is not type:
            members = ((name, _member(value)) for name, value in list(vars(base).items()))
            yield base.__module__, base.__qualname__, sorted(m for m in members if not isinstance(m[1], str))


def _hash(found):
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


def behaviour(value, classes):
    """Digest of what an object does when it is called, or when its methods are: no guard is on the class that has
    them. None of what is always the same. `classes` remembers the digests of classes."""
    if type(value) in (dict, list, OrderedDict):
        return None if value else "empty"
    kind = value if isinstance(value, type) else type(value)
    if isinstance(value, types.FunctionType):
        return _hash(_function(value))
    if kind.__module__ == "builtins" or kind in _PLAIN or issubclass(kind, torch.Tensor):
        return None
    if kind not in classes:
        classes[kind] = _hash(list(_functions(kind)))
    return classes[kind]
