"""`hl.jit`: compile a function of arrays for the shapes that it is called with."""

from __future__ import annotations

import functools
import sys
import time
import weakref
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.checks import check_outputs, check_result
from hloom.config import config
from hloom.dispatch.backend import check_target, log_placement, select_backend
from hloom.dispatch.counted_programs import compiled_module, refuse_computed_sizes
from hloom.dispatch.counted_sizes import with_own_sizes
from hloom.dispatch.explanations import changes
from hloom.dispatch.kept_programs import KeptProgram, kept_programs, traced_bytes
from hloom.dispatch.open_arguments import open_arguments
from hloom.dispatch.sharded import constrained, over_meshes, spread_shardings
from hloom.dispatch.signature import Call, JitOptions, Key, Settings, Signature
from hloom.dispatch.specialization import Specialization
from hloom.dispatch.spmd import (
    OpenSpmdSpecialization,
    SpmdProgram,
    SpmdSpecialization,
    check_one_place,
    eager_programs,
    is_over_several,
    sharding_of,
)
from hloom.dispatch.stages import Lowered, TracedFunction
from hloom.errors import ArgumentError, DeviceError
from hloom.ir.module import Module
from hloom.ir.ops.programs.sizes import computes_sizes
from hloom.ir.process import forking, memory
from hloom.ir.process.living import Living
from hloom.ir.source import current_source, device_scope, device_scopes
from hloom.platforms.backend import CompileOptions, Executable, OpenSpmd
from hloom.platforms.device import Device, program_devices
from hloom.sharding.meshes import note_use_of_mesh, uses_of_mesh
from hloom.sharding.shardings import device_of
from hloom.tracing.active import adopt, computed_sizes
from hloom.tracing.exact import exact_arguments
from hloom.tracing.key_reuse import use_key
from hloom.tracing.refs import OuterRef, RefArgument, compiled_with_refs
from hloom.tracing.signatures import function_name, wraps
from hloom.tracing.trace import TRACES, Traced, as_array, call_computation, current_trace, trace_function
from hloom.tree import pytrees as tree

_LATE = 16  # versions that are looked through for one that differs in devices only, or least
_QUICK = 1024  # sizes of a function with open ones whose calls take the fast path
_LEAVES = frozenset((Array, np.ndarray, float, int, bool, complex))  # types of arguments that are not trees


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
    backend: str | None = None,
    in_shardings=None,
    out_shardings=None,
    keep_unused: bool = False,
    compiler_options: dict | None = None,
    abstracted_axes=None,
    dims=None,
):
    """Compiles a function of arrays. Use it as `@hl.jit`, `@hl.jit(static_argnums=1)` or `hl.jit(f)`.

    The function is traced once for each combination of shapes, dtypes, tree structure and static values, and must be
    pure. Arguments and results are trees of arrays and numbers.

    static_argnums, static_argnames: arguments taken as Python values; they must be hashable.
    donate_argnums, donate_argnames: arguments whose buffers the results may overwrite; they are unusable afterwards.
    inline: called inside another traced function, its operations are put in place instead of a `call`.
    device: 'cpu:0' or a Device. fusion: False compiles one kernel per operation; None uses `hl.config.fusion`.
    autotune: True times programs with other block sizes on the first arguments of each shape, for
    `hl.config.autotune_seconds`, and keeps the choice in the cache folder (docs/reference/kernels.md).
    backend: the device, as JAX names it: 'cpu'. in_shardings, out_shardings: trees of shardings that are prefixes of
    the arguments and of the result; None keeps the arguments' own shardings, or the compiler's choice. A sharding over
    several devices lays an array out over its mesh, and the program runs on all of them (docs/guides/sharding.md).
    keep_unused, compiler_options: accepted; unused arguments are always kept, and XLA's options have no effect.
    dims: {"x": ("n", 128)} gives the dimensions of arguments, or of all arrays in them: a name or a `hl.Dim` is a size
    that may differ from call to call, and one program serves all sizes (docs/guides/sizes.md). abstracted_axes: JAX's
    spelling of this for positional arguments, ({0: "n"}, ("n", None)): a tree that is a prefix of theirs.
    target: 'cuda:sm_90' compiles for that architecture, with or without a GPU: `f.lower(...).compile()` has its code.

    >>> @hl.jit
    ... def normalize(x):
    ...     return (x - x.mean()) / x.std()
    >>> normalize(hnp.array([1.0, 3.0]))
    Array([-1.,  1.], dtype=float32)
    >>> compiled = normalize.lower(hnp.zeros(1000)).compile()
    >>> compiled.cost_analysis()["kernels"]
    1.0
    """
    if target is not None:
        check_target(target, device)
    several = over_meshes(in_shardings) or over_meshes(out_shardings)
    device = _device_of(device, backend, () if several else (in_shardings, out_shardings))
    options = JitOptions(
        _tuple_of(static_argnums, int), _tuple_of(static_argnames, str), _tuple_of(donate_argnums, int),
        _tuple_of(donate_argnames, str), inline, device, fusion, bool(autotune),
        target, in_shardings if several else None, out_shardings if several else None, dims=dims,
        abstracted_axes=abstracted_axes,
    )  # fmt: skip
    if function is None:
        return lambda f: JitFunction(f, options)
    return JitFunction(function, options)


def _device_of(device, backend: str | None, shardings) -> Device | None:
    """The one device that the options of a jit name. Raises DeviceError."""
    named = [device, *tree.leaves(shardings)]
    found = [device_of(n) for n in named if n is not None] + (
        [program_devices(backend)[0]] if backend is not None else []
    )
    if any(other != found[0] for other in found):
        raise DeviceError(
            "jit compiles for one device", ", ".join(str(f) for f in found), "name one device in all of its options"
        )
    return found[0] if found else None


def _tuple_of(value, kind: type) -> tuple:
    if value is None:
        return ()
    return (value,) if isinstance(value, kind) else tuple(value)


class _Settings:
    """The settings that calls depend on, where they are quick to read, and the functions that a change concerns."""

    def __init__(self):
        self.functions: Living[JitFunction] = Living()
        self._read()
        for name in (*Settings._fields, "disable_jit", "debug_nans", "debug_infs"):
            config.on_change(name, self._change)

    def _read(self) -> None:
        self.current = Settings.current()
        self.checked = config.disable_jit or config.debug_nans or config.debug_infs or config.debug_key_reuse

    def _change(self, _) -> None:
        self._read()
        for function in self.functions:
            function._fast.clear()


_settings = _Settings()


def call_settings() -> _Settings:
    """`current`: the settings that programs are compiled with; `checked`: whether calls are checked step by step."""
    return _settings


def _found(module: str | None, qualified_name: str) -> object:
    """A module's attribute by name, or None."""
    found: object = sys.modules.get(module or "")
    for name in qualified_name.split("."):
        found = getattr(found, name, None)
    return found


class JitFunction:
    """A function that is compiled when it is called. `jit` returns one."""

    def __init__(self, function, options: JitOptions):
        if not callable(function):
            raise ArgumentError(
                "jit takes a function", f"{type(function).__name__} {function!r:.60}", "pass a function"
            )
        name = function_name(function).strip("<>") or "function"
        signature = Signature(function, name, options)
        wraps(function)(self)
        self.function, self.options, self._name, self._signature = function, options, name, signature
        self._specializations: dict[Key, Specialization] = {}
        self._traced: dict[Key, Traced] = {}
        self._fast: dict[tuple, Any] = {}
        self._kept: dict[Key, KeptProgram] = {}  # by the keys of the two dictionaries above
        self._lock = forking.rlock()
        self._ref_versions: dict | None = None  # compiled forms that take values of Refs, by which arguments are Refs
        self._closed_refs: list = []
        self._open = open_arguments(signature)
        _settings.functions.add(self)

    def __reduce__(self):
        """By its name where its module has it, otherwise as the function and the options; nothing compiled goes along.

        Picklers that take the functions of `__main__` by value (cloudpickle, Ray's) take these so too.
        """
        module, name = getattr(self, "__module__", None), getattr(self, "__qualname__", "")
        by_value = "cloudpickle" in sys._getframe(1).f_globals.get("__name__", "") and module == "__main__"
        if not by_value and _found(module, name) is self:
            return name
        return JitFunction, (self.function, self.options)

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {self._name}>"

    # --- a call, from the shortest way to the longest ---

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
        """A call with trees, numbers or NumPy arrays: looked up by structure and shapes."""
        if _settings.checked:
            return self._checked_call(args, kwargs)
        if not TRACES.active and not self._signature.has_statics and not device_scopes.device:
            leaf_of, plain = self._signature.leaf, not kwargs and _LEAVES.issuperset(map(type, args))
            leaves, structure = (args, None) if plain else tree.flatten((args, kwargs))
            try:
                leaves = [leaf if type(leaf) is Array else leaf_of(leaf) for leaf in leaves]
            except ArgumentError:
                return self._full_call(args, kwargs)  # raises an error that names the argument
            keys = tuple([leaf._key for leaf in leaves])
            fast = self._fast.get(keys if plain else (structure, keys))
            if fast is not None:
                return fast(leaves)
        return self._full_call(args, kwargs)

    def _checked_call(self, args, kwargs):
        """A call with `disable_jit` or one of the settings `debug_*` set."""
        if config.disable_jit:
            return self.function(*args, **kwargs)
        call = self._signature.bind(args, kwargs, self._current_settings())
        if current_trace() is not None:
            return self._call_in_trace(call)
        traced = self._trace(call)
        self._use_keys(call, traced)
        arrays = [as_array(leaf) for leaf in call.leaves]
        arrays += exact_arguments(arrays, traced.wide)
        inputs = [a._value() for a in arrays]  # also of donated arguments, which a call may overwrite
        inputs = [value.copy() if k in call.donated else value for k, value in enumerate(inputs)]
        result = self._full_call(args, kwargs)
        if computes_sizes(traced.computation):  # the references have no values beyond the sizes
            check_result(result)
        else:
            check_outputs(result, traced.computation, inputs)
        return result

    def _use_keys(self, call: Call, traced: Traced) -> None:
        """Records the arguments that are random keys consumed by the function."""
        if config.debug_key_reuse:
            for k in traced.used_keys:
                use_key(call.leaves[k], f"'{self._name}'")

    def _full_call(self, args, kwargs):
        """A first call, one with static arguments, or one inside a trace."""
        call = self._signature.bind(args, kwargs, self._current_settings())
        if current_trace() is not None:
            return self._call_in_trace(call)
        specialization = self._version(call, args, kwargs)
        if not call.statics and not device_scopes.device:
            self._remember(args, kwargs, specialization, call.key)
        return specialization([leaf if isinstance(leaf, Array) else as_array(leaf) for leaf in call.leaves])

    def _version(self, call: Call, args, kwargs) -> Specialization:
        """The compiled version for a call with these arguments; compiled now where there is none."""
        if self._open is not None:
            shapes, named = self._open.shapes(args, kwargs)
            call = self._signature.bind(shapes, named, self._current_settings()).without_twins()
        specialization = self._specializations.get(call.key)
        if specialization is None:
            with self._lock:
                specialization = self._specializations.get(call.key)
                if specialization is None:
                    specialization = self._specialize(call, self._trace(call))
        specialization.kept.used = True
        return specialization

    def _remember(self, args, kwargs, specialization: Specialization, key: Key) -> None:
        """Such calls go the shortest way from now on."""
        kept = specialization.kept
        kept.used = True
        if not _settings.checked and not specialization.traced.uses_mesh:
            plain = not kwargs and _LEAVES.issuperset(map(type, args))
            kept.fast_key = key.leaves if plain else (key.structure, key.leaves)
            if len(self._fast) >= _QUICK and self._open is not None:
                self._fast.clear()
            self._fast[kept.fast_key] = specialization.fast()

    def _call_in_trace(self, call: Call):
        call, traced = self._nested(call)
        if traced.assumptions:
            adopt(*traced.assumptions)  # of the caller, too: the trace may be an earlier one
        self._use_keys(call, traced)
        operands = [*call.leaves, *exact_arguments(call.leaves, traced.wide), *traced.captures]
        with device_scope(str(self.options.device or device_scopes.device)):
            results = call_computation(with_own_sizes(traced.computation), operands, self.options.inline)
        if self.options.out_shardings is not None:
            asked = self._out_shardings(traced)
            asked += [asked[k] for k in traced.twins]
            results = [r if s is None else constrained(r, s) for r, s in zip(results, asked, strict=True)]
        return traced.unflatten(results)

    def _nested(self, call: Call) -> tuple[Call, Traced]:
        """(call, traced function) of a call in a trace, with the twins of results where nested functions bring them."""
        if not TRACES.twins and call.has_weak:
            call = call.without_twins()
        traced = self._trace(call)
        if traced.twins and not TRACES.twins:  # of results that depend on no argument
            call = call.without_twins()
            traced = self._trace(call)
        return call, traced

    def _out_shardings(self, traced: Traced) -> list:
        """The requested sharding of each result; None for results without one over several devices."""
        typed = _results_of_types(traced)
        if self.options.out_shardings is None:
            return typed
        asked = spread_shardings(self.options.out_shardings, traced.out_tree, f"out_shardings of '{self._name}'")
        return [a or t for a, t in zip(asked, typed, strict=True)]

    def _program(self, call: Call, traced: Traced) -> SpmdProgram | None:
        """The program over several devices for this call; None if it is for one, or for parts on several."""
        asked = self._out_shardings(traced)
        if not is_over_several(call.leaves, traced.computation, asked):
            return None
        asked += [asked[k] for k in traced.twins]
        what = f"'{self._name}'"
        refuse_computed_sizes(traced.computation, "over several devices")
        check_one_place(self.options.device, call.leaves, what)
        return SpmdProgram(self._name, traced.computation, [sharding_of(a) for a in call.leaves], asked, what)

    # --- compiling: trace, choose a backend, compile ---

    def _trace(self, call: Call) -> Traced:
        traced = self._traced.get(call.key) or self._traced_for_other_devices(call.key)
        if traced is None:
            function = self._signature.with_statics(call.statics)
            started, uses = time.perf_counter(), uses_of_mesh()
            # The device of a call is recorded at the call, as the trace serves others too.
            with device_scope(""), computed_sizes():
                hints = call.hints()
                traced = trace_function(
                    function,
                    call.leaves,
                    call.key.structure,
                    self._name,
                    hints=hints,
                    weak=True,
                    twins=call.twins,
                    untyped=call.untyped,
                )
            traced.seconds, traced.uses_mesh = time.perf_counter() - started, uses_of_mesh() != uses
            if not traced.captures:  # captured tracers belong to one outer trace only
                self._traced[call.key] = traced
                self._keep(call.key, traced)
        else:
            self._kept[call.key].used = True
            if traced.uses_mesh:
                note_use_of_mesh()
        return traced

    def _traced_for_other_devices(self, key: Key) -> Traced | None:
        """A recent trace for these arguments on other devices, on which traces do not depend: the second call of a step
        takes the results of the first one as arguments, on the devices that computed them."""
        wanted = key.without_devices()
        if wanted == key and not self._traced:
            return None
        for known, traced in reversed([*self._traced.items()][-_LATE:]):
            if known.without_devices() == wanted:
                self._traced[key] = traced
                self._keep(key, traced)
                return traced
        return None

    def _keep(self, key: Key, traced: Traced) -> KeptProgram:
        """Registers a version of this function, which is kept from now on."""
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = KeptProgram(weakref.ref(self), key)
            kept_programs.add(kept, traced_bytes(traced.computation))
        return kept

    def slow_down(self, kept: KeptProgram) -> None:
        """From now on calls of a version take a path that records its use."""
        if kept.fast_key is not None:
            if self._open is None:
                self._fast.pop(kept.fast_key, None)
            else:  # a version serves many sizes
                self._fast.clear()
            kept.fast_key = None

    def forget(self, kept: KeptProgram) -> None:
        """Drops a version, which is traced and compiled again on its next call. Any thread may call it."""
        self.slow_down(kept)
        for versions in (self._specializations, self._traced, self._kept):
            versions.pop(kept.key, None)

    def __del__(self) -> None:
        kept_programs.end([*getattr(self, "_kept", {}).values()])

    def _specialize(self, call: Call, traced: Traced) -> Specialization:
        """The compiled version for this call; compiled now where there is none."""
        with self._lock:
            found = self._specializations.get(call.key)
            if found is not None:
                return found
            if traced.captures:
                traced.captures[0].trace_ended()
            program = self._program(call, traced)
            found = self._on_one(call, traced) if program is None else self._on_several(program, call, traced)
            found.warn_of_unused_donations()
            self._specializations[call.key] = found
        return found

    def _on_one(self, call: Call, traced: Traced) -> Specialization:
        backend, options, device = select_backend(self.options, call, traced)
        executable = self._compiled_for_other_devices(traced, call.donated, options)
        if executable is None:
            self._explain(call)
            module = Module(self._name, traced.computation, assumptions=traced.assumptions)
            executable = compiled_module(backend, module, options)
            if config.log_device_placement and executable.output_devices is None:
                log_placement(module, options.target or options.device)
        return Specialization(self._name, traced, executable, call.donated, device, self._keep(call.key, traced))

    def _on_several(self, program: SpmdProgram, call: Call, traced: Traced) -> Specialization:
        self._explain(call)
        executable = program.compiled(program.options(donated=call.donated, fusion=call.key.settings.fusion))
        if config.log_device_placement:
            log_placement(program.module, *map(str, program.assignment.devices))
        kept = self._keep(call.key, traced)
        if isinstance(executable, OpenSpmd):
            return OpenSpmdSpecialization(program, traced, executable, call.donated, kept)
        return SpmdSpecialization(program, traced, executable, call.donated, kept)

    def _compiled_for_other_devices(
        self, traced: Traced, donated: frozenset[int], options: CompileOptions
    ) -> Executable | None:
        """A program compiled lately for these arguments on other devices, if it can read them where they are."""
        for known in reversed([*self._specializations.values()][-_LATE:]):
            if known.traced is traced and known.donated == donated and known.executable.serves(options):
                return known.executable
        return None

    def _current_settings(self) -> Settings:
        fusion = self.options.fusion
        return _settings.current if fusion is None else _settings.current._replace(fusion=fusion)

    def _explain(self, call: Call) -> None:
        if config.debug >= 1 and self._specializations:
            known = [*self._specializations][: -_LATE - 1 : -1]  # the last one first
            print(
                f"hloom: {self._name} is compiled again ({len(self._specializations) + 1}): "
                f"{changes(self.function, known, call.key)}, at {current_source()}",
                file=sys.stderr,
            )

    # --- looking in ---

    def ready_for(self, *args) -> bool:
        """Compiles the program that a call with these arrays runs, outside traces. Returns whether it normally serves
        other sizes, too. Raises the errors that the call would raise before it consumes a donated argument."""
        call = self._signature.bind(args, {}, self._current_settings())
        return self._version(call, args, {}).ready_for([as_array(leaf) for leaf in call.leaves])

    def lower(self, *args, **kwargs) -> Lowered:
        """Traces for these arguments (arrays, numbers or ShapeDtypeStructs) without running. See Lowered."""
        call = self._signature.bind(args, kwargs, self._current_settings())
        traced = self._trace(call)
        if traced.twins:
            call = call.without_twins()
            traced = self._trace(call)
        return Lowered(self._signature, call, traced, self._specialize, self._program, (self, args, kwargs))

    def eval_shape(self, *args, **kwargs):
        """The tree of results for these arguments, as ShapeDtypeStructs, without compiling or running."""
        return self.lower(*args, **kwargs).out_info

    def trace(self, *args, **kwargs) -> TracedFunction:
        """The module as traced, with the shapes of arguments and results, and `lower()`."""
        return TracedFunction(self.lower(*args, **kwargs))

    def clear_cache(self) -> None:
        """Forgets all traced and compiled versions, and frees their memory."""
        self._clear()
        memory.release()

    def _clear(self) -> None:
        with self._lock:
            kept_programs.remove([*self._kept.values()])
            for versions in (self._specializations, self._traced, self._fast, self._kept, self._ref_versions or {}):
                versions.clear()


def _results_of_types(traced: Traced) -> list:
    """The sharding of each result if all axes of the mesh are explicit; else None, the compiler's choice."""
    if traced.shardings is None or not traced.shardings or not traced.shardings[0].mesh.are_all_axes_explicit:
        return [None] * traced.out_tree.num_leaves
    return list(traced.shardings)


def make_module(function):
    """`make_module(f)(*args)` is the Module of f traced for these arguments (arrays, numbers or ShapeDtypeStructs).

    >>> module = hl.make_module(lambda x: x + 1)(hnp.zeros(3))
    >>> module.entry.root.shape
    f32[3]
    """
    jitted = function if isinstance(function, JitFunction) else jit(function)

    @functools.wraps(jitted.function)
    def make(*args, **kwargs) -> Module:
        return jitted.lower(*args, **kwargs).module

    return make


def clear_all() -> None:
    """Discards all traced and compiled versions of all functions, and returns unused memory to the system."""
    for function in _settings.functions:
        function._clear()
    eager_programs.clear()
    memory.release(everything=True)


__all__ = ["JitFunction", "clear_all", "jit", "make_module"]
