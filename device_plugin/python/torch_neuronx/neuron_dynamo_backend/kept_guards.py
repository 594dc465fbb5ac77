"""Guards kept for other processes.

PyTorch drops every guard on the identity of a function, class or module of what it keeps, because an address means
nothing to another process: a model with another activation function would run with the graph of the first one. Here
these guards stay. They are built again on the objects that the other process has under the same names. Graph and guards
are only used when each guard says what it said (the value of a class attribute would be that of the other process) and
when all objects that guards lead through are what they were: the same module, class or operator, a function with the
same code, a class with the same functions. What cannot be recognised like that is not kept."""

import contextlib
import contextvars
import functools
import logging
import re
import types

import torch
from torch._dynamo import config, guards, package
from torch._dynamo.exc import PackageError
from torch._dynamo.source import DictGetItemSource, TypeSource

from .identities import behaviour, identity

_IDENTITY = {"ID_MATCH", "FUNCTION_MATCH", "CLASS_MATCH", "MODULE_MATCH", "CLOSURE_MATCH"}
# While guards are built from an entry: what the guarded objects have to be, by the names of the guards, and where.
_expected = contextvars.ContextVar("expected", default=None)
_log = logging.getLogger(__name__)
_alive = []  # addresses in guards must not be used again


class _Changed(RuntimeError):
    pass


def _said(guard):
    """What a guard checks, without addresses."""
    found = set()
    for text in guard.code_list or ():
        text = re.sub(r"\b0x[0-9a-f]+", "#", text)
        found.add(re.sub(r", \d+\)", ", #)", text) if "___check_" in text else text)
    return found


def _behaviours(builder, found):
    """Of all objects that guards lead through, by their names."""
    names, classes = {}, {}
    for guard in found:
        source = guard.originating_source
        while source is not None and source.name not in names:
            try:
                value = builder.get(source)
            except Exception:  # some guards say that there is no such object
                value = None
            names[source.name] = behaviour(value, classes)
            source = getattr(source, "base", None)
    return {name: found for name, found in names.items() if found is not None}


def _never():
    """Guards of a graph that this process has no use for."""
    made = guards.GuardManagerWrapper()
    made.root.add_lambda_guard(lambda _: False, ["made for other objects"], None)
    return made


@contextlib.contextmanager
def _quiet(log):
    """PyTorch tells of each guard that is not built, with its stack."""
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def keep_identities():
    build, match = guards.CheckFunctionManager.__init__, guards.GuardBuilder.id_match_unchecked
    write, dump = guards.CheckFunctionManager.serialize_guards, guards.pickle_guards_state
    build_all, load = guards.CheckFunctionManager.build_guards, package.load_guard_manager

    @functools.wraps(build)
    def built(self, *args, **kwargs):
        self.identities, self.addresses = {}, {}
        keep = kwargs.get("save_guards") or _expected.get() is not None
        # The first switch drops guards, the second one those that say that modules have no hooks.
        hooks = config.skip_nnmodule_hook_guards and not keep
        with config.patch(caching_precompile=False, skip_nnmodule_hook_guards=hooks):
            build(self, *args, **kwargs)
        if kwargs.get("save_guards") and self.guards_state is None:
            self.guards_state = b""  # of an entry that is not kept

    @functools.wraps(build_all)
    def all_built(self, found, *args, **kwargs):
        if _expected.get() is None:
            return build_all(self, found, *args, **kwargs)
        said = [_said(guard) for guard in found]
        for guard in found:
            guard.code_list = None
        builder, manager = build_all(self, found, *args, **kwargs)
        for guard, before in zip(found, said, strict=True):
            if not _said(guard) <= before:
                raise _Changed(f"{guard.name or guard.create_fn_name()} is not what it was")
        now = _behaviours(builder, found)
        for name, before in _expected.get()[2].items():
            if now.get(name) != before:
                raise _Changed(f"{name} does not do what it did")
        return builder, manager

    @functools.wraps(match)
    def matched(self, guard, *args, **kwargs):
        if not isinstance(guard.originating_source, TypeSource):
            name, value, manager = guard.name, self.get(guard), self.check_fn_manager
            manager.identities[name], manager.addresses[name] = identity(value), id(value)
            if _expected.get() is not None:
                identities, addresses, _ = _expected.get()
                if identities.get(name) != manager.identities[name] or addresses.get(name, id(value)) != id(value):
                    raise _Changed(f"{name} is not what it was")
                _alive.append(value)
            if self.save_guards and isinstance(guard.originating_source, DictGetItemSource):
                manager.used_builtin_vars.add(guard.originating_source.index)
        return match(self, guard, *args, **kwargs)

    def rebuilt(state, code, scope, addresses=()):
        token = _expected.set((state.identities, dict(addresses), state.behaviours))
        try:
            with _quiet(torch._guards.log):
                return load(state, code, scope)
        finally:
            _expected.reset(token)

    @functools.wraps(load)
    def loaded(state, code, scope):
        if not hasattr(state, "identities"):  # of another backend, with PyTorch's own switch
            return load(state, code, scope)
        try:
            return rebuilt(state, code, scope)
        except Exception as e:  # objects have changed or are gone: as if a guard failed
            _log.info("%s is traced again: %s", code.co_qualname, e)
            return _never()

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
        state.behaviours = _behaviours(builder, state.output_graph._guards)
        data = dump(state, builder)
        try:  # as another process would: the guards have to end at the same objects
            rebuilt(package.load_guards_state(data), builder.f_code, builder.runtime_global_scope, manager.addresses)
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
    guards.CheckFunctionManager.build_guards = all_built
    guards.GuardBuilder.id_match_unchecked = matched
    guards.pickle_guards_state = dumped
    package.load_guard_manager = loaded
