"""What Dynamo makes of a frame, kept for other processes: PyTorch's ``torch._dynamo.config.caching_precompile``
(TORCH_CACHING_PRECOMPILE=1), made safe.

PyTorch drops every guard on the identity of a function, class or module then, because an address means nothing to
another process: a model with another activation function would run with the graph of the first one. Here these guards
stay. They are built again on the objects that the other process has under the same names, and an entry is only used
when each of them is what it was: the same module, class or operator, a function with the same code. What cannot be
recognised like that is not kept, nor are functions with graph breaks. PyTorch writes entries on request
(``torch.compiler.save_cache_artifacts()``); here they are written when the process ends, too."""

import atexit
import contextvars
import enum
import functools
import hashlib
import itertools
import os
import pickle
import sys
import types
import warnings

import torch
from torch._dynamo import bytecode_transformation, config, guards, package, precompile_context
from torch._dynamo.exc import PackageError
from torch._dynamo.source import DictGetItemSource, TypeSource
from torch._inductor.runtime import cache_dir_utils

from .settings import cache_folder, graph_folder

_IDENTITY = {"ID_MATCH", "FUNCTION_MATCH", "CLASS_MATCH", "MODULE_MATCH", "CLOSURE_MATCH"}
_SINGLETONS = (None, ..., NotImplemented)
# While guards are built from an entry: what the guarded objects have to be, by the names of the guards, and where.
_expected = contextvars.ContextVar("expected", default=None)
_alive = []  # addresses in guards must not be used again


class _Changed(RuntimeError):
    pass


def _digest(code):
    """Of what a function does, not of where it is written."""

    def plain(constant):
        if isinstance(constant, types.CodeType):
            return _digest(constant)
        return sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)

    parts = (code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags)
    return hashlib.sha256(repr((parts, [plain(c) for c in code.co_consts])).encode()).hexdigest()


def identity(value):
    """What another process recognises an object by, or None."""
    kind = type(value).__name__
    if isinstance(value, types.ModuleType):
        return (kind, value.__name__)
    if isinstance(value, types.CodeType):
        return (kind, value.co_name, _digest(value))
    if isinstance(value, types.FunctionType):
        return (kind, value.__module__, value.__qualname__, _digest(value.__code__))
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


def _keep_identities():
    build, match = guards.CheckFunctionManager.__init__, guards.GuardBuilder.id_match_unchecked
    dump, load = guards.pickle_guards_state, package.load_guard_manager

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

    guards.CheckFunctionManager.__init__ = built
    guards.CheckFunctionManager.UNSUPPORTED_SERIALIZATION_GUARD_TYPES = tuple(
        kind for kind in guards.CheckFunctionManager.UNSUPPORTED_SERIALIZATION_GUARD_TYPES if kind not in _IDENTITY
    )
    guards.GuardBuilder.id_match_unchecked = matched
    guards.pickle_guards_state = dumped
    package.load_guard_manager = loaded


def _survive_what_cannot_be_used():
    """An entry that does not fit is left alone, functions without a name and functions with graph breaks are not kept:
    PyTorch raises, the last one when a guard of such an entry fails."""
    install, add = package.CompilePackage.install, package.CompilePackage._add_user_function
    record = package.DynamoStore.record_package

    @functools.wraps(install)
    def installed(self, backends):
        try:
            return install(self, backends)
        except Exception as e:
            name = self._innermost_fn.__qualname__
            warnings.warn(f"neuron: what Dynamo has kept of {name} is not used: {e}", stacklevel=2)
        function = self._innermost_fn
        self.uninstall()
        self.__init__(function)

    @functools.wraps(add)
    def added(self, code):
        try:
            add(self, code)
        except PackageError:
            self._add_function(code, "__main__")
            self._codes[code].bypassed = True

    @functools.wraps(record)
    def recorded(self, made):
        if len(made._codes) == 1:
            record(self, made)
        else:
            precompile_context.PrecompileContext._dynamo_cache_entries.pop(made.source_id, None)

    # Names of globals end in a number that counts up from 0 in each process: those of an entry would be given again.
    bytecode_transformation._unique_id_counter = itertools.count(int.from_bytes(os.urandom(6), "big"))
    package.DynamoStore.record_package = recorded
    package.CompilePackage.install = installed
    package.CompilePackage._add_user_function = added


def _save():
    try:
        precompile_context.PrecompileContext.save_to_dynamo_cache()
    except Exception as e:
        warnings.warn(f"neuron: what Dynamo has made is not kept for other processes: {e}", stacklevel=2)


@functools.cache
def _install():
    _keep_identities()
    _survive_what_cannot_be_used()
    atexit.register(_save)
    # PyTorch has a folder of its own for this; the user may have named another one.
    theirs = os.path.abspath(cache_dir_utils.default_cache_dir())
    if cache_folder() is not None and cache_dir_utils.cache_dir() == theirs:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = graph_folder()


def install_when_wanted():
    """At the first use of the backend after the user has turned the switch on."""
    if config.caching_precompile:
        _install()
