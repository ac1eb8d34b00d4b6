"""`hl.jit`: compile a function of arrays for the shapes that it is called with."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.config import config
from hloom.dispatch.specialization import Call, DonationWarning, Entry  # noqa: F401  (the warning is public here)
from hloom.dispatch.stages import Lowered
from hloom.errors import ArgumentError
from hloom.ir.module import Module
from hloom.ir.records import record
from hloom.ir.source import current_source, device_scope, device_scopes
from hloom.platforms.device import Device, find_device
from hloom.tracing.refs import OuterRef, RefArgument, compiled_with_refs
from hloom.tracing.trace import (
    TRACES,
    Traced,
    Tracer,
    argument_hints,
    as_array,
    call_computation,
    current_trace,
    trace_function,
)
from hloom.tree import pytrees as tree


def jit(
    function=None,
    *,
    static_argnums=(),
    static_argnames=(),
    donate_argnums=(),
    donate_argnames=(),
    inline: bool = False,
    device=None,
    fusion: bool | None = None,
    autotune: bool = False,
    target: str | None = None,
):
    """Compiles a function of arrays. Use it as `@hl.jit`, `@hl.jit(static_argnums=1)` or `hl.jit(f)`.

    The function is traced once for each combination of shapes, dtypes, tree structure and static values, and must be
    pure. Arguments and results are trees of arrays and numbers.

    static_argnums, static_argnames: arguments taken as Python values; they must be hashable.
    donate_argnums, donate_argnames: arguments whose buffers the results may overwrite; they are unusable afterwards.
    inline: called inside another traced function, its operations are put in place instead of a `call`.
    device: 'cpu:0' or a Device. fusion: False compiles one kernel an operation; None takes `hl.config.fusion`.
    autotune: True tries other sizes of blocks on the first arguments of each shape, `hl.config.autotune_seconds` long,
    and keeps the choice in the cache folder (docs/reference/kernels.md).
    target: 'cuda:sm_90' compiles for that architecture, with or without a GPU: `f.lower(...).compile()` has its code.
    """
    target = _checked_target(target, device)
    options = _Options(
        _numbers(static_argnums), _names(static_argnames), _numbers(donate_argnums), _names(donate_argnames),
        inline, None if device is None else find_device(device), fusion, bool(autotune), target,
    )  # fmt: skip
    if function is None:
        return lambda f: JitFunction(f, options)
    return JitFunction(function, options)


def _checked_target(target: str | None, device) -> str | None:
    if target is not None:
        from hloom.backends.cuda.compilation import parse_target

        parse_target(target)
        if device is not None:
            raise ArgumentError(
                f"jit(target={target!r}, device={str(device)!r})",
                "a target says what is compiled for, a device where it runs",
                "leave out one of them: what runs on a device is compiled for it",
            )
    return target


def _check_arguments_exist(function, options: _Options) -> None:
    """Raises ArgumentError where an option names an argument that the function does not have."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    kinds = {p.kind for p in parameters.values()}
    count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters.values())
    unknown = []
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        unknown += [k for k in (*options.static_numbers, *options.donate_numbers) if not -count <= k < count]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        unknown += [name for name in (*options.static_names, *options.donate_names) if name not in parameters]
    if unknown:
        raise ArgumentError(
            f"jit was told about argument {unknown[0]!r} of '{getattr(function, '__name__', function)}'",
            f"it takes ({', '.join(parameters)})",
            "name one of these, or count from 0",
        )


class _Setting:
    """What of `hl.config` shapes compiled programs where it is quick to read, and the functions that notice changes."""

    def __init__(self):
        self._read()
        self.functions: weakref.WeakSet[JitFunction] = weakref.WeakSet()
        config.on_change("fusion", self._change)
        for name in ("enable_x64", "cuda_tf32", "disable_jit", "debug_nans", "debug_infs"):
            config.on_change(name, self._change)

    def _read(self) -> None:
        self.others = config.enable_x64, config.cuda_tf32
        self.key = (config.fusion, *self.others)
        self.checked = config.disable_jit or config.debug_nans or config.debug_infs

    def _change(self, _) -> None:
        self._read()
        for function in list(self.functions):
            function._fast.clear()


_setting = _Setting()


@record(frozen=True)
class _Options:
    static_numbers: tuple[int, ...]
    static_names: tuple[str, ...]
    donate_numbers: tuple[int, ...]
    donate_names: tuple[str, ...]
    inline: bool
    device: Device | None
    fusion: bool | None
    autotune: bool = False
    target: str | None = None


def _numbers(value) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _names(value) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


class JitFunction:
    """A function that is compiled when it is called. Made by `jit`."""

    def __init__(self, function, options: _Options):
        if not callable(function):
            raise ArgumentError(
                "jit takes a function", f"{type(function).__name__} {function!r:.60}", "pass a function"
            )
        _check_arguments_exist(function, options)
        functools.update_wrapper(self, function)
        self.function = function
        self.options = options
        self._entries: dict[Any, Entry] = {}
        self._traced: dict[Any, Traced] = {}
        self._fast: dict[tuple, Any] = {}
        _setting.functions.add(self)
        self._has_statics = bool(options.static_numbers or options.static_names)
        self._lock = threading.RLock()
        self._name = getattr(function, "__name__", "function").strip("<>") or "function"
        self._signature = None
        self._ref_versions: dict | None = None  # compiled forms that take values of Refs, by which arguments are Refs
        self._closed_refs: list = []

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args, **kwargs):
        if not kwargs:
            try:
                fast = self._fast[tuple([a._key for a in args])]
            except (KeyError, AttributeError, TypeError):
                pass
            else:
                if not TRACES.active and not device_scopes.device:
                    return fast(args)
        return self._tree_call(args, kwargs)

    # --- looking in ---

    def lower(self, *args, **kwargs) -> Lowered:
        """Traces for these arguments (arrays, numbers or ShapeDtypeStructs) without running. See Lowered."""
        call = self._take_apart(args, kwargs)
        return Lowered(self, call, self._trace(call))

    def trace(self, *args, **kwargs) -> Module:
        """The module as traced."""
        return self.lower(*args, **kwargs).module

    def clear_cache(self) -> None:
        """Forgets all traced and compiled versions."""
        with self._lock:
            self._entries.clear()
            self._traced.clear()
            self._fast.clear()

    def __repr__(self) -> str:
        return f"<jit of {self._name}>"

    def entry(self, call: Call, traced: Traced) -> Entry:
        """The compiled version for this call; compiled now where there is none."""
        with self._lock:
            found = self._entries.get(call.key)
            if found is None:
                found = self._entries[call.key] = Entry(self, call, traced)
        return found

    # --- calling ---

    def _tree_call(self, args, kwargs):
        """A call with trees, NumPy arrays or Refs."""
        if self._ref_versions is None:
            try:
                return self._call_of_arrays(args, kwargs)
            except RefArgument:
                self._ref_versions = {}
            except OuterRef as found:
                self._ref_versions = {}
                self._closed_refs.append(found.ref)
        return compiled_with_refs(self._on_values, self._ref_versions, self._closed_refs, self.function)(args, kwargs)

    def _on_values(self, function):
        """The call of a function compiled with the same options, which takes no Refs."""
        compiled = JitFunction(function, self.options)
        return lambda *args, **kwargs: compiled._call_of_arrays(args, kwargs)

    def _call_of_arrays(self, args, kwargs):
        """A call with trees or NumPy arrays: looked up by structure and shapes."""
        if _setting.checked:
            return self._checked_call(args, kwargs)
        if not TRACES.active and not self._has_statics and not device_scopes.device:
            leaves, structure = tree.flatten((args, kwargs))
            leaves = [leaf if type(leaf) is Array else self._leaf(leaf) for leaf in leaves]
            entry = self._entries.get((structure, tuple([leaf._key for leaf in leaves]), (), self._settings()))
            if entry is not None:
                self._remember(args, kwargs, entry)
                return entry.run(leaves)
        return self._full_call(args, kwargs)

    def _remember(self, args, kwargs, entry: Entry) -> None:
        """Calls with plain arrays go the shortest way from now on."""
        if not kwargs and not _setting.checked and all(type(a) is Array for a in args):
            self._fast[tuple(a._key for a in args)] = entry.fast()

    def _checked_call(self, args, kwargs):
        """A call with `disable_jit`, `debug_nans` or `debug_infs` set."""
        from hloom.arrays.checks import check_result

        if config.disable_jit:
            return self.function(*args, **kwargs)
        result = self._full_call(args, kwargs)
        check_result(result)
        return result

    def _full_call(self, args, kwargs):
        """The way of a first call, of static arguments, and of calls inside a trace."""
        call = self._take_apart(args, kwargs)
        if current_trace() is not None:
            return self._call_in_trace(call)
        entry = self._entries.get(call.key)
        if entry is None:
            with self._lock:
                entry = self._entries.get(call.key)
                if entry is None:
                    self._explain(call)
                    entry = Entry(self, call, self._trace(call))
                    self._entries[call.key] = entry
        if not call.statics and not device_scopes.device:
            self._remember(args, kwargs, entry)
        return entry.run([leaf if isinstance(leaf, Array) else as_array(leaf) for leaf in call.leaves])

    def _call_in_trace(self, call: Call):
        traced = self._trace(call)
        operands = [*call.leaves, *traced.captures]
        with device_scope(str(self.options.device or device_scopes.device)):
            results = call_computation(traced.computation, operands, self.options.inline)
        for result, weak in zip(results, traced.weak, strict=True):
            result.weak = weak
        return tree.unflatten(traced.out_tree, results)

    def _trace(self, call: Call) -> Traced:
        traced = self._traced.get(call.key)
        if traced is None:
            function = self._with_statics(call.statics)
            started = time.perf_counter()
            with device_scope(""):  # that of a call is noted at the call, as the trace serves others too
                traced = trace_function(function, call.leaves, call.structure, self._name, hints=call.hints())
            traced.seconds = time.perf_counter() - started
            if not traced.captures:  # captured tracers belong to one outer trace only
                self._traced[call.key] = traced
        return traced

    def _with_statics(self, statics: dict):
        if not statics:
            return self.function

        def call(*args, **kwargs):
            positional = list(args)
            for where, value in sorted((w, v) for w, v in statics.items() if isinstance(w, int)):
                positional.insert(where, value)
            named = {w: v for w, v in statics.items() if isinstance(w, str)}
            return self.function(*positional, **kwargs, **named)

        return call

    def _take_apart(self, args, kwargs) -> Call:
        options = self.options
        statics: dict[int | str, Any] = {}
        dynamic, donated_flags = [], []
        static_numbers, static_names = self._statics(len(args))
        donate_numbers, donate_names = self._donations(len(args))
        for k, arg in enumerate(args):
            if k in static_numbers:
                statics[k] = arg
            else:
                dynamic.append(arg)
                donated_flags.append(k in donate_numbers)
        named = {}
        for name, value in kwargs.items():
            if name in static_names:
                statics[name] = value
            else:
                named[name] = value
        leaves, structure = tree.flatten((tuple(dynamic), named))
        leaves = [self._leaf(leaf) for leaf in leaves]
        try:
            static_key = tuple((where, *_distinct(statics[where])) for where in sorted(statics, key=str))
            if TRACES.axes:  # named axes of the vmaps around the call: what collectives in the function mean
                static_key = (*static_key, TRACES.axes)
            if device_scopes.device and not TRACES.active:
                static_key = (*static_key, device_scopes.device)
            hash(static_key)
        except TypeError:
            name, value = next((n, v) for n, v in statics.items() if not _hashable(v))
            raise ArgumentError(
                f"static argument {name!r} of '{self._name}' must be hashable",
                f"{type(value).__name__} {value!r:.60}",
                "pass a tuple instead of a list, or do not mark it as static",
            ) from None
        keys = tuple([leaf._key for leaf in leaves])
        key = (structure, keys, static_key, self._settings())
        donated: set[int] = set()
        if options.donate_numbers or options.donate_names:
            position = 0
            flags = [*donated_flags, *(name in donate_names for name in sorted(named))]
            for arg, flag in zip([*dynamic, *(named[n] for n in sorted(named))], flags, strict=True):
                count = len(tree.leaves(arg))
                if flag:
                    donated |= set(range(position, position + count))
                position += count

        positions = [k for k in range(len(args)) if k not in static_numbers]
        hints = functools.partial(argument_hints, self.function, dynamic, named, positions)
        return Call(leaves, structure, statics, key, hints, frozenset(donated))

    def _leaf(self, leaf):
        if isinstance(leaf, (Array, Tracer, ShapeDtypeStruct)):
            return leaf
        if isinstance(leaf, np.ndarray) and leaf.flags.c_contiguous and leaf.dtype.isnative:
            view = leaf.view()  # read during the call only, so no copy is needed
            view.flags.writeable = False
            return Array(view)
        return as_array(leaf, f"an argument of '{self._name}'")

    def _parameter_names(self) -> list[str]:
        if self._signature is None:
            try:
                self._signature = list(inspect.signature(self.function).parameters)
            except (TypeError, ValueError):
                self._signature = []
        return self._signature

    def _statics(self, count: int):
        return self._where(self.options.static_numbers, self.options.static_names, count)

    def _donations(self, count: int):
        return self._where(self.options.donate_numbers, self.options.donate_names, count)

    def _where(self, numbers, names, count: int) -> tuple[set[int], set[str]]:
        """Positions and names together: an argument may be passed either way."""
        if not numbers and not names:
            return set(), set()
        parameters = self._parameter_names()
        positions = {n % max(count, len(parameters), 1) if n < 0 else n for n in numbers}
        positions |= {parameters.index(n) for n in names if n in parameters}
        return positions, set(names) | {parameters[n] for n in positions if n < len(parameters)}

    def _settings(self) -> tuple[bool, ...]:
        """What of `hl.config` shapes the compiled program: fusion, enable_x64 and cuda_tf32."""
        return _setting.key if self.options.fusion is None else (self.options.fusion, *_setting.others)

    def _explain(self, call: Call) -> None:
        if config.debug >= 1 and self._entries:
            known = next(reversed(self._entries))
            parts = ("tree structure", "shapes, dtypes or devices", "static values", "hl.config")
            changed = [name for name, old, new in zip(parts, known, call.key, strict=True) if old != new]
            print(
                f"hloom: {self._name} is compiled again ({len(self._entries) + 1}): "
                f"{' and '.join(changed)} changed, at {current_source()}",
                file=sys.stderr,
            )


def _distinct(value) -> tuple:
    """1, 1.0 and True are equal, and 0.0 and -0.0, but a function may return different things for them."""
    kind = type(value)
    return (kind, repr(value)) if kind in (float, complex) else (kind, value)


def _hashable(value) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def make_module(function):
    """`make_module(f)(*args)` is the Module of f traced for these arguments (arrays, numbers or ShapeDtypeStructs)."""
    jitted = function if isinstance(function, JitFunction) else jit(function)

    @functools.wraps(jitted.function)
    def make(*args, **kwargs) -> Module:
        return jitted.lower(*args, **kwargs).module

    return make


def clear_all() -> None:
    """Forgets all traced and compiled versions of all functions."""
    for function in list(_setting.functions):
        function.clear_cache()
