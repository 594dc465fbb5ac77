"""What Dynamo makes of a function, kept for other processes: PyTorch's ``torch._dynamo.config.caching_precompile``, for
the functions that this backend compiles, and made safe.

PyTorch's switch counts for every backend of a process. Here it is on for this backend alone, as long as there is a
cache folder and TORCH_CACHING_PRECOMPILE does not say otherwise. Kept are functions with a name and a text, without
graph breaks, at the first time that a process compiles them. PyTorch writes entries on request
(``torch.compiler.save_cache_artifacts()``); here they are written when the process ends, too. See kept_guards.py for
what makes an entry safe to use."""

import atexit
import contextlib
import functools
import hashlib
import itertools
import os
import sys
import sysconfig
import threading
import types
import warnings
import weakref

import torch
from torch._dynamo import bytecode_transformation, config, eval_frame, output_graph, package, precompile_context
from torch._dynamo.exc import PackageError
from torch._dynamo.variables import functions, nn_module

from . import identities, kept_guards
from .settings import cache_folder, graph_folder, keeps_frames

_SWITCHES = ("TORCH", "PYTORCH", "NEURON", "TRNSIM")  # in the environment: how their names begin
_FOLDERS = ("TORCH_NEURONX_NEFF_CACHE_DIR", "TORCH_CACHING_PRECOMPILE", "TORCHINDUCTOR_CACHE_DIR")  # change no graph
_LAUNCHER = "TORCHELASTIC_"  # how a launcher's process is named and watched, other in each run
_MOST_GRAPHS = 16  # of one function, kept in one entry; the oldest go first
_packages = weakref.WeakSet()  # of this backend
_compiled = weakref.WeakSet()  # code that has had a package in this process
_loading = threading.RLock()


def _owner(function):
    return getattr(function, "__self__", None)


@functools.lru_cache(None)
def _text(path):
    """Digest of a file, as it was when this process first asked."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _users_files():
    """What the user edits: the modules that are loaded, but for installed ones. What is traced of those is compared."""
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return sorted((path, _text(path)) for path in paths - {None} if not path.startswith(installed))


def _process_group():
    """What Dynamo takes of torch.distributed for constant, without a guard."""
    group = torch.distributed
    if not group.is_available() or not group.is_initialized():
        return None
    return group.get_rank(), group.get_world_size(), group.get_backend()


def _switches():
    names = [name for name in os.environ if name.startswith(_SWITCHES) and not name.startswith(_LAUNCHER)]
    return sorted((name, os.environ[name]) for name in names if name not in _FOLDERS)


def _source_id(function):
    """The name of an entry. PyTorch's has the name and the line of the function: all of torch.nn.Sequential, and
    functions of one name in two files, would share one. Dynamo takes much for granted while a process lasts: the
    user's files, the switches in the environment and the process group are in the name, so that nothing is found once
    they are edited."""
    function = eval_frame.innermost_fn(function)
    code, parts = function.__code__, [function.__module__, function.__qualname__, _users_files()]
    parts += [_switches(), _process_group(), code.co_filename, code.co_firstlineno, identities.digest(code)]
    if isinstance(_owner(function), torch.nn.Module):
        module = _owner(function)
        parts += [type(module).__module__, [(name, type(m).__qualname__) for name, m in module.named_modules()]]
        parts += [(name, tuple(p.shape), str(p.dtype), str(p.device)) for name, p in module.named_parameters()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _code(function):
    """None: of an object that is called by other means."""
    function = eval_frame.innermost_fn(function.forward if isinstance(function, torch.nn.Module) else function)
    function = getattr(function, "__func__", function)
    return function.__code__ if isinstance(function, types.FunctionType) else None


def _can_be_kept(function):
    code = _code(function)
    return code is not None and code not in _compiled


def _leave_to_others(function):
    """Dynamo takes an entry for whatever backend calls the function."""
    code = _code(function)
    if code is None:
        return
    _compiled.add(code)
    for made in list(_packages):
        if made.is_initialized() and code in made._codes:
            made.uninstall()


def _backend(context):
    """None: of a context that was made before this backend was first used."""
    return eval_frame.innermost_backend(getattr(context, "_convert_frame", None))


def _set_package(compile_fn, made):
    for part in (compile_fn, getattr(compile_fn, "_inner_convert", None)):
        if hasattr(part, "_package"):
            part._package = made


def _load(context, made, function):
    """At the first call: a decorated function relies upon objects that its file makes later."""
    with _loading:
        context.enter_exit_hooks = [
            hook for hook in context.enter_exit_hooks if getattr(hook, "func", None) is not _load
        ]
        if made.is_initialized():
            pass
        elif _can_be_kept(function):
            function = function.forward if isinstance(function, torch.nn.Module) else function
            entry = _read(package.CompilePackage.source_id_from_fn(function), function)
            made.initialize(function, entry and entry.dynamo)
            if entry is not None:
                made.install(entry.backends)
        else:
            context._package = None
            _set_package(context._convert_frame, None)
    return eval_frame.nothing  # to be done after the call


def _read(key, function):
    try:
        return package.DynamoCache.load_cache_entry(key)
    except Exception as e:
        if not isinstance(e.__cause__, OSError):  # there is one
            name = eval_frame.innermost_fn(function).__qualname__
            warnings.warn(f"neuron: what Dynamo has kept of {name} is damaged: {e}", stacklevel=2)
        return None


def _keep_functions_of(is_ours):
    """Gives the functions that this backend compiles a package, which collects what is kept. PyTorch makes packages
    when its switch is on at the call of torch.compile; a package counts only while the switch is on."""
    make_context, call = eval_frame._optimize_catch_errors, eval_frame._TorchDynamoContext.__call__
    collect = package.CompilePackage.code_context

    @functools.wraps(make_context)
    def context_made(compile_fn, *args, **kwargs):
        if is_ours(eval_frame.innermost_backend(compile_fn)) and (keeps_frames() or config.caching_precompile):
            if kwargs.get("package") is None:
                kwargs["package"] = package.CompilePackage(fn=None)
                _set_package(compile_fn, kwargs["package"])
            _packages.add(kwargs["package"])
        made = make_context(compile_fn, *args, **kwargs)
        made._convert_frame = compile_fn
        return made

    @functools.wraps(call)
    def called(self, function):
        made = getattr(self, "_package", None)
        if made is None and isinstance(self, eval_frame.OptimizeContext) and not is_ours(_backend(self)):
            _leave_to_others(function)
        if made not in _packages or made.is_initialized():
            return call(self, function)
        self.enter_exit_hooks = [*self.enter_exit_hooks, functools.partial(_load, self, made, function)]
        with config.patch(caching_precompile=False):  # PyTorch would load it now
            return call(self, function)

    @contextlib.contextmanager
    @functools.wraps(collect)
    def collected(self, code):
        with collect(self, code):
            yield
            if self in _packages and self.process_group != _process_group():
                self.bypass_current_entry()
        if self in _packages:
            package.DynamoCache.record_package(self)

    eval_frame._optimize_catch_errors = context_made
    eval_frame._TorchDynamoContext.__call__ = called
    package.CompilePackage.code_context = collected


def _survive_what_cannot_be_used():
    """An entry that does not fit is left alone, functions without a name and functions with graph breaks are not kept:
    PyTorch raises, the last one when a guard of such an entry fails."""
    kept = package.CompilePackage
    initialize, install, add, add_sources = (
        kept.initialize,
        kept.install,
        kept._add_user_function,
        kept.add_inlined_source,
    )
    constant = functions.invoke_and_store_as_constant
    record, bypass = package.DynamoStore.record_package, output_graph.OutputGraph.bypass_package

    @functools.wraps(initialize)
    def initialized(self, function, entry=None, ignore_inlined_sources=False):
        self.from_entry, self.process_group = entry is not None, _process_group()
        try:
            initialize(self, function, entry, ignore_inlined_sources)
        except Exception:  # the text of a function has changed, or a version
            if entry is None:
                raise
            self.__init__(None)
            self.initialize(function)
        _compiled.add(next(iter(self._codes)))

    def without_entry(self):
        function = self._innermost_fn
        self.uninstall()
        self.__init__(function)

    @functools.wraps(install)
    def installed(self, backends):
        if not self.from_entry:
            return
        try:
            return install(self, backends)
        except Exception as e:
            name = self._innermost_fn.__qualname__
            warnings.warn(f"neuron: what Dynamo has kept of {name} is not used: {e}", stacklevel=2)
        without_entry(self)

    @functools.wraps(add)
    def added(self, code):
        try:
            add(self, code)
        except PackageError:
            self._add_function(code, "__main__")
            self._codes[code].bypassed = True

    @functools.wraps(add_sources)
    def sources_added(self, sources):
        try:
            if os.getenv.__code__ in sources:  # what it reads has no guard; os.environ has
                self.bypass_current_entry()
            add_sources(self, sources)
        except (AssertionError, OSError, TypeError):  # no text, or another one than was compiled
            self.bypass_current_entry()

    @functools.wraps(record)
    def recorded(self, made):
        (main, *others) = made._codes.values()
        _drop_graphs(main)
        if main.guarded_codes and not main.bypassed and not others:
            record(self, made)
        else:
            precompile_context.PrecompileContext._dynamo_cache_entries.pop(made.source_id, None)

    @functools.wraps(bypass)
    def bypassed(self, reason="", **kwargs):
        if self.package not in _packages:
            return bypass(self, reason, **kwargs)
        # Nobody asked for this function to be kept: PyTorch warns.
        self.package.bypass_current_entry()
        self.package = None

    @functools.wraps(constant)
    def taken_as_constant(tx, function, name, *args):
        """torch.compiler.assume_constant_result: for one process."""
        if tx.output.package in _packages:
            tx.output.bypass_package(f"the result of {name} belongs to this process")
        return constant(tx, function, name, *args)

    functions.invoke_and_store_as_constant = nn_module.invoke_and_store_as_constant = taken_as_constant
    # Names of globals end in a number that counts up from 0 in each process: those of an entry would be given again.
    bytecode_transformation._unique_id_counter = itertools.count(int.from_bytes(os.urandom(6), "big"))
    package.DynamoStore.record_package, output_graph.OutputGraph.bypass_package = recorded, bypassed
    kept.initialize, kept.install, kept._add_user_function = initialized, installed, added
    kept.process_group = None
    kept.add_inlined_source, kept.source_id_from_fn = sources_added, staticmethod(_source_id)


def _drop_graphs(entry):
    """That nothing was kept of, and the oldest."""
    kept = precompile_context.PrecompileContext._backend_artifacts_by_key

    def graphs(code):
        return [name for name in entry.backend_ids if name in code.dynamo_code.co_names]

    entry.guarded_codes[:] = [code for code in entry.guarded_codes if all(name in kept for name in graphs(code))]
    del entry.guarded_codes[:-_MOST_GRAPHS]
    entry.backend_ids[:] = [name for code in entry.guarded_codes for name in graphs(code)]


def _save():
    try:
        precompile_context.PrecompileContext.save_to_dynamo_cache()
    except Exception as e:
        warnings.warn(f"neuron: what Dynamo has made is not kept for other processes: {e}", stacklevel=2)


@functools.cache
def _install(is_ours):
    kept_guards.keep_identities()
    _survive_what_cannot_be_used()
    _keep_functions_of(is_ours)
    atexit.register(_save)
    theirs = package.cache_dir
    package.cache_dir = lambda: theirs() if cache_folder() is None else graph_folder()


def install_when_wanted(is_ours):
    """At the first use of the backend with a cache folder, or with PyTorch's switch. `is_ours(backend)` tells this
    backend from others."""
    if config.caching_precompile or keeps_frames():
        _install(is_ours)
