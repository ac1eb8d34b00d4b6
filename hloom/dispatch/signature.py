"""The signature of a call: its arguments as flat leaves, and the key by which its specialization is found."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.config import config
from hloom.dispatch.sharded import placed_arguments
from hloom.errors import ArgumentError
from hloom.ir.records import record, replace
from hloom.ir.sizes.expressions import known_facts
from hloom.ir.source import device_scopes
from hloom.ir.types import NARROWED
from hloom.platforms.device import Device
from hloom.sharding.explicit import explicit_dims
from hloom.sharding.meshes import current_mesh
from hloom.sharding.shardings import NamedSharding
from hloom.tracing.conversion import refused_argument
from hloom.tracing.exact import exact_arguments
from hloom.tracing.signatures import argument_hints
from hloom.tracing.trace import TRACES, RefArgument, Tracer, as_array
from hloom.tree import pytrees as tree


@record(frozen=True)
class JitOptions:
    """The options of `hl.jit`. steady: the number of leading arguments, one array each, for which most calls pass the
    same arrays, such as weights; values that depend only on them are computed once for many calls. dims,
    abstracted_axes: as in `hl.jit`."""

    static_argnums: tuple[int, ...] = ()
    static_argnames: tuple[str, ...] = ()
    donate_argnums: tuple[int, ...] = ()
    donate_argnames: tuple[str, ...] = ()
    inline: bool = False
    device: Device | None = None
    fusion: bool | None = None
    autotune: bool = False
    target: str | None = None
    in_shardings: Any = None
    out_shardings: Any = None
    steady: int = 0
    dims: Any = None
    abstracted_axes: Any = None


class Settings(NamedTuple):
    """The settings in `hl.config` that affect traces and compiled programs."""

    fusion: bool
    library_calls: bool
    enable_x64: bool
    cuda_tf32: bool
    cpu: str
    debug_checks: bool
    debug_key_reuse: bool
    log_device_placement: bool
    narrow_numpy: bool
    clamp_indexes: bool
    numpy_dtype_promotion: str
    numpy_rank_promotion: str
    tape_bytes: int

    @classmethod
    def current(cls) -> Settings:
        return cls(*[getattr(config, name) for name in cls._fields])


class Key(NamedTuple):
    """The key of a specialization. leaves: for each dynamic leaf its shape, or its shape, weak type and device."""

    structure: Any
    leaves: tuple
    statics: tuple
    settings: Settings

    def without_devices(self) -> Key:
        """The part of the key that a trace depends on."""
        if not any(type(leaf) is tuple for leaf in self.leaves):
            return self
        return self._replace(leaves=tuple([_without_device(leaf) for leaf in self.leaves]))


def _without_device(leaf):
    if type(leaf) is not tuple:
        return leaf
    shape, weak, place = leaf
    if place.__class__ is NamedSharding and explicit_dims(place, len(shape.dims)) is not None:
        return leaf  # a part of the type
    return (shape, True, None) if weak else shape


@record
class Call:
    """The arguments of a call: flat dynamic leaves, static values by position or name, indices of the donated leaves.
    hints: returns a readable name for each leaf. twins: whether results include theirs (`hloom.tracing.exact`).
    untyped: the leaves whose layout is not part of their type. updates: (result, the leaf in whose memory it is
    computed where it can be)."""

    leaves: list
    statics: dict[int | str, Any]
    key: Key
    donated: frozenset[int]
    hints: Callable[[], list[str]]
    twins: bool = True
    untyped: tuple[int, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()

    def in_place(self, updates: tuple[tuple[int, int], ...]) -> Call:
        """The call of another version, which computes results in the memory of leaves."""
        key = self.key._replace(statics=(*self.key.statics, ("in place", *updates)))
        return replace(self, key=key, updates=updates)

    def without_twins(self) -> Call:
        """The call of another version, whose results do not bring them."""
        key = self.key._replace(statics=(*self.key.statics, "without twins"))
        return replace(self, key=key, twins=False)

    @property
    def has_weak(self) -> bool:
        """Whether a leaf is weakly typed."""
        return any([leaf.weak for leaf in self.leaves])

    def values(self, wide: tuple[int, ...] = ()) -> list[np.ndarray] | None:
        """The leaves as NumPy arrays, then the exact values of some; None if one is known by its shape only."""
        if any(isinstance(leaf, ShapeDtypeStruct) for leaf in self.leaves):
            return None
        arrays = [as_array(leaf) for leaf in self.leaves]
        arrays += exact_arguments(arrays, wide)
        return [a._value() for a in arrays] if all(isinstance(a, Array) for a in arrays) else None


def argument_array(array: np.ndarray) -> Array:
    """A C-contiguous NumPy array as the argument of a call, during which alone it is read: no copy is needed."""
    view = array.view(np.ndarray)
    view.setflags(write=False)
    return Array(view)


class Signature:
    """The parameters of a function, and which of them `JitOptions` make static or donated. name: for people."""

    def __init__(self, function: Callable, name: str, options: JitOptions):
        """Raises ArgumentError if an option names an argument that the function does not have."""
        self.function, self.name, self.options = function, name, options
        self.has_statics = bool(options.static_argnums or options.static_argnames)
        self._has_donations = bool(options.donate_argnums or options.donate_argnames)
        if self.has_statics or self._has_donations:
            _check_arguments_exist(function, options)

    def bind(self, args: Sequence, kwargs: dict, settings: Settings) -> Call:
        """The call with these arguments. Raises ArgumentError."""
        options = self.options
        static_numbers, static_names = self.statics(len(args))
        statics: dict[int | str, Any] = {k: arg for k, arg in enumerate(args) if k in static_numbers}
        statics |= {name: value for name, value in kwargs.items() if name in static_names}
        positions = [k for k in range(len(args)) if k not in static_numbers]
        dynamic = tuple([args[k] for k in positions])
        named = {name: value for name, value in kwargs.items() if name not in static_names}
        leaves, structure = tree.flatten((dynamic, named))
        try:
            leaves = [self.leaf(leaf) for leaf in leaves]
        except RefArgument:
            raise
        except ArgumentError as error:
            raise refused_argument(self.function, self.name, structure, leaves, static_numbers, error) from None
        untyped: tuple[int, ...] = ()
        if options.in_shardings is not None:
            leaves, untyped = placed_arguments(leaves, options.in_shardings, dynamic, f"in_shardings of '{self.name}'")
        statics_key = (*self._static_key(statics), ("untyped", untyped)) if untyped else self._static_key(statics)
        key = Key(structure, tuple([leaf._key for leaf in leaves]), statics_key, settings)
        hints = functools.partial(argument_hints, self.function, dynamic, named, positions)
        donated = self._donated(positions, dynamic, named, len(args)) if self._has_donations else frozenset()
        return Call(leaves, statics, key, donated, hints, untyped=untyped)

    def leaf(self, leaf):
        """A dynamic leaf as an Array, unless it is one, is traced, or is known by its shape only."""
        if isinstance(leaf, np.ndarray) and leaf.flags.c_contiguous and leaf.dtype.isnative:
            if leaf.dtype in NARROWED:
                return Array(leaf.astype(NARROWED[leaf.dtype], subok=False))
            return argument_array(leaf)
        if isinstance(leaf, (Array, Tracer, ShapeDtypeStruct)):
            return leaf
        return as_array(leaf, f"an argument of '{self.name}'")

    def with_statics(self, statics: dict[int | str, Any]) -> Callable:
        """The function of the dynamic arguments alone."""
        if not statics:
            return self.function

        def call(*args, **kwargs):
            positional = list(args)
            for where, value in sorted((w, v) for w, v in statics.items() if isinstance(w, int)):
                positional.insert(where, value)
            named = {w: v for w, v in statics.items() if isinstance(w, str)}
            return self.function(*positional, **kwargs, **named)

        return call

    def _static_key(self, statics: dict[int | str, Any]) -> tuple:
        try:
            key: tuple = tuple((where, *distinct(statics[where])) for where in sorted(statics, key=str))
            if TRACES.axes:  # named axes of the vmaps around the call, to which collectives in the function refer
                key = (*key, TRACES.axes)
            if device_scopes.device and not TRACES.active:
                key = (*key, device_scopes.device)
            if TRACES.active and (known := known_facts()):  # the assumptions behind decisions by sizes in the function
                key = (*key, known)
            if (mesh := current_mesh()) is not None:  # resolves PartitionSpecs in the function
                key = (*key, mesh)
            hash(key)
        except TypeError:
            name, value = next((n, v) for n, v in statics.items() if not _hashable(v))
            raise ArgumentError(
                f"static argument {name!r} of '{self.name}' must be hashable",
                f"{type(value).__name__} {value!r:.60}",
                "pass a tuple instead of a list, or do not mark it as static",
            ) from None
        return key

    def _donated(self, positions: list[int], dynamic: tuple, named: dict, count: int) -> frozenset[int]:
        """Numbers of the leaves of donated arguments."""
        numbers, names = self._where(self.options.donate_argnums, self.options.donate_argnames, count)
        arguments = [(k in numbers, arg) for k, arg in zip(positions, dynamic, strict=True)]
        arguments += [(name in names, named[name]) for name in sorted(named)]
        flags = [flag for flag, argument in arguments for _ in tree.leaves(argument)]
        return frozenset(k for k, flag in enumerate(flags) if flag)

    def statics(self, count: int) -> tuple[set[int], set[str]]:
        """The positions and names of static arguments, of which `count` are passed by position."""
        return self._where(self.options.static_argnums, self.options.static_argnames, count)

    def _where(self, numbers, names, count: int) -> tuple[set[int], set[str]]:
        """Positions and names together: an argument may be passed either way. Where the options have both, they are
        meant as they are."""
        if not numbers and not names:
            return set(), set()
        parameters = self.parameters
        positions = {n % max(count, len(parameters), 1) if n < 0 else n for n in numbers}
        if numbers and names:
            return positions, set(names)
        positions |= {parameters.index(n) for n in names if n in parameters}
        return positions, set(names) | {parameters[n] for n in positions if n < len(parameters)}

    @functools.cached_property
    def parameters(self) -> list[str]:
        try:
            return list(inspect.signature(self.function).parameters)
        except (TypeError, ValueError):
            return []


def _check_arguments_exist(function: Callable, options: JitOptions) -> None:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    kinds = {p.kind for p in parameters.values()}
    count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters.values())
    unknown: list[int | str] = []
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        unknown += [k for k in (*options.static_argnums, *options.donate_argnums) if not -count <= k < count]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        unknown += [name for name in (*options.static_argnames, *options.donate_argnames) if name not in parameters]
    if unknown:
        raise ArgumentError(
            f"jit was told about argument {unknown[0]!r} of '{getattr(function, '__name__', function)}'",
            f"it takes ({', '.join(parameters)})",
            "name one of these, or count from 0",
        )


def distinct(value) -> tuple:
    """1, 1.0 and True are equal, and 0.0 and -0.0, but a function may return different things for them, and for tuples
    and frozen sets of them."""
    kind = type(value)
    if kind is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return (kind, tuple([distinct(one) for one in value]))
    if kind is frozenset:
        return (kind, frozenset(map(distinct, value)))
    return (kind, repr(value)) if kind in (float, complex) else (kind, value)


def _hashable(value) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
