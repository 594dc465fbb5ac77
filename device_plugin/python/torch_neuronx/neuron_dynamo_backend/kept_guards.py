"""Guards on the identity of objects, kept for other processes.

PyTorch drops every guard on the identity of a function, class or module of what it keeps, because an address means
nothing to another process: a model with another activation function would run with the graph of the first one. Here
these guards stay. They are built again on the objects that the other process has under the same names, and an entry is
only used when each of them is what it was: the same module, class or operator, a function with the same code. What
cannot be recognised like that is not kept."""

import contextvars
import enum
import functools
import hashlib
import pickle
import sys
import types

import torch
from torch._dynamo import config, guards, package
from torch._dynamo.exc import PackageError
from torch._dynamo.source import DictGetItemSource, TypeSource

_IDENTITY = {"ID_MATCH", "FUNCTION_MATCH", "CLASS_MATCH", "MODULE_MATCH", "CLOSURE_MATCH"}
_SINGLETONS = (None, ..., NotImplemented)
# While guards are built from an entry: what the guarded objects have to be, by the names of the guards, and where.
_expected = contextvars.ContextVar("expected", default=None)
_alive = []  # addresses in guards must not be used again


class _Changed(RuntimeError):
    pass


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
        return (kind, type(value).__module__, type(value).__qualname__, value.name)
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


def keep_identities():
    build, match = guards.CheckFunctionManager.__init__, guards.GuardBuilder.id_match_unchecked
    write, dump = guards.CheckFunctionManager.serialize_guards, guards.pickle_guards_state
    load = package.load_guard_manager

    @functools.wraps(build)
    def built(self, *args, **kwargs):
        self.identities, self.addresses = {}, {}
        with config.patch(caching_precompile=False):  # this is where PyTorch drops guards
            build(self, *args, **kwargs)
        if kwargs.get("save_guards") and self.guards_state is None:
            self.guards_state = b""  # of an entry that is not kept

    @functools.wraps(match)
    def matched(self, guard, *args, **kwargs):
        if not isinstance(guard.originating_source, TypeSource):
            name, value, manager = guard.name, self.get(guard), self.check_fn_manager
            manager.identities[name], manager.addresses[name] = identity(value), id(value)
            if _expected.get() is not None:
                identities, addresses = _expected.get()
                if identities.get(name) != manager.identities[name] or addresses.get(name, id(value)) != id(value):
                    raise _Changed(f"{name} is not what it was")
                _alive.append(value)
            if self.save_guards and isinstance(guard.originating_source, DictGetItemSource):
                manager.used_builtin_vars.add(guard.originating_source.index)
        return match(self, guard, *args, **kwargs)

    def loaded(state, code, scope, addresses=()):
        token = _expected.set((getattr(state, "identities", {}), dict(addresses)))
        try:
            return load(state, code, scope)
        finally:
            _expected.reset(token)

    @functools.wraps(dump)
    def dumped(state, builder):
        manager = builder.check_fn_manager
        unknown = [name for name, found in manager.identities.items() if found is None]
        for name, value in state.output_graph.global_scope.items():
            if str(id(value)) not in name:
                continue
            kept = getattr(manager.output_graph, "package", None)
            if kept is not None and isinstance(value, types.ModuleType):  # the name stays, the module is imported
                kept.add_import_source(name, value.__name__)
            else:
                unknown.append(name)
        if unknown:
            raise PackageError(f"nothing but its address identifies {unknown[0]}")
        state.identities = manager.identities
        data = dump(state, builder)
        try:  # as another process would: the guards have to end at the same objects
            loaded(package.load_guards_state(data), builder.f_code, builder.runtime_global_scope, manager.addresses)
        except Exception as e:
            raise PackageError(f"its guards cannot be built again: {e}") from e
        return data

    @functools.wraps(write)
    def written(self, *args):
        try:
            return write(self, *args)
        except PackageError:
            raise
        except Exception as e:  # any object may be in a guard, and not every one can be pickled
            raise PackageError(f"its guards cannot be written: {e}") from e

    guards.CheckFunctionManager.serialize_guards = written
    guards.CheckFunctionManager.__init__ = built
    guards.CheckFunctionManager.UNSUPPORTED_SERIALIZATION_GUARD_TYPES = tuple(
        kind for kind in guards.CheckFunctionManager.UNSUPPORTED_SERIALIZATION_GUARD_TYPES if kind not in _IDENTITY
    )
    guards.GuardBuilder.id_match_unchecked = matched
    guards.pickle_guards_state = dumped
    package.load_guard_manager = loaded
