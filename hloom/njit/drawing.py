"""Generators of `np.random` in a NumPy program: those that are passed, those around the function, and new ones."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from hloom import numpy as hnp
from hloom.ir.source import current_source
from hloom.ir.types import Shape
from hloom.kernels.frontend.lowering import lowered
from hloom.kernels.frontend.syntax import definition_of, outside_names
from hloom.kernels.instances import instance
from hloom.njit.arguments.instances import flatten, unflatten
from hloom.njit.generators import draws, methods
from hloom.njit.generators.methods import drawn, refuse
from hloom.njit.guards import watching
from hloom.njit.lowering import NumpyLowering
from hloom.njit.outside import contents
from hloom.njit.values import Array, Number, Undecided, Value, as_value
from hloom.tracing.trace import bind, current_trace
from hloom.tree import pytrees as tree

__all__ = [
    "OUTER", "Generator", "around", "captured", "generator_of", "method_of", "of_random", "running",
]  # fmt: skip

# Generators around the function of a program, by the identity of NumPy's.
captured: ContextVar[Mapping[int, Generator] | None] = ContextVar("captured", default=None)


class Generator(methods.Generator):
    """A generator of a program. state: an array of it; of one that is passed, an array of NumPy."""

    def run(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if name in ("shuffle", "permutation"):
            return self._in_another_order(name, *args, **kwargs)
        found = drawn(name, args, kwargs, lambda value: value)
        parameters = {key: as_value(value) for key, value in (("a", found.a), ("b", found.b)) if value is not None}
        if any(isinstance(p, Array) for p in parameters.values()):
            refuse(f"a generator's {name} with arrays as parameters", f"{args!r:.60}",
                   "draw in a loop over their elements")  # fmt: skip
        fill = draws.single if found.shape is None else draws.filled
        # The state is the first argument, and then the numbers that the program computes.
        given = {"state": self.state.traced}
        given |= {key: p.traced for key, p in parameters.items() if isinstance(p, Number)}
        weak = frozenset(k for k, p in parameters.items() if isinstance(p, Number) and p.python is not None)
        shapes: dict[str, Any] = {key: Shape(v.dtype, v.shape) for key, v in given.items()}
        constants = {"draw": found.draw, "a": None, "b": None, "dtype": found.dtype, **parameters}
        if found.shape is not None:
            constants["size"] = int(np.prod(found.shape, dtype=np.int64))
        shapes = {**shapes, **{key: v for key, v in constants.items() if key not in shapes}}
        made, results = self._drawn(name, fill, given, shapes, weak, {"state"})
        value = results[made.result]
        if found.shape is None:
            return Number(value, found.python)
        return Array.of(value.reshape(found.shape))

    def _drawn(
        self, name: str, function: Any, given: dict[str, Any], arguments: dict[str, Any], weak: frozenset[str],
        written: set[str],
    ) -> tuple[Any, Any]:  # fmt: skip
        """(the kernel of a function of the state, its results); the state changes."""
        definition, file, above = definition_of(function)
        made = lowered(
            definition, file, above, outside_names(function), arguments, name, weak, prange=False, written=written,
            lowering=functools.partial(_Drawing, serial=set(), sizes={}, source=current_source()),
        )  # fmt: skip
        kernel = instance(made.body, made.fault)
        results = bind("kernel", *given.values(), kernel=kernel)
        if made.checks:
            watching.get()(name, kernel, made.checks, results[-1])
        self.state.write(results[made.changed["state"]])
        return made, results

    def _in_another_order(self, name: str, x: Any, axis: Any = 0) -> Any:
        """`shuffle` and `permutation` of vectors."""
        if name == "permutation":
            x = operator.index(x) if isinstance(x, Number) else x
            x = Array.of(as_value(np.arange(x) if isinstance(x, (int, np.integer)) else x).traced)
        if not isinstance(x, Array) or x.ndim != 1 or axis not in (0, -1):
            refuse(
                f"a generator's {name} of {x!r:.60}", "it is no vector", "draw the order: x[rng.permutation(len(x))]"
            )
        given = {"state": self.state.traced, "x": x.traced}
        shapes = {key: Shape(v.dtype, v.shape) for key, v in given.items()}
        made, results = self._drawn(name, draws.shuffled, given, shapes, frozenset(), {"state", "x"})
        x.write(results[made.changed["x"]])
        return x if name == "permutation" else None


class _Drawing(NumpyLowering):
    """A kernel of one draw, or of an array of them, at the user's line."""

    drawing = True

    def __init__(self, *given: Any, source: Any, **options: Any):
        super().__init__(*given, **options)
        self.source = source or self.source


tree.register(Generator, lambda g: ((g.state,), None), lambda _, children: Generator(*children))


def generator_of(value: Any) -> Generator | None:
    """The generator of the program that a value is."""
    if isinstance(value, Generator):
        return value
    known = captured.get()
    return known.get(id(value)) if known and isinstance(value, np.random.Generator) else None


def around(function: Any, names: Iterable[str]) -> list[np.random.Generator]:
    """The generators that a function reads of its module, by these names, or of the functions around it."""
    read = [*[function.__globals__.get(name) for name in names], *map(contents, function.__closure__ or ())]
    return [value for value in read if isinstance(value, np.random.Generator)]


@contextmanager
def running(bound: dict[str, Any], outer: Sequence[np.random.Generator], changes: bool = True) -> Iterator[Any]:
    """The arguments of a call, with states in the place of generators, whose last values the generators have after it.

    outer: generators around the function, which become an argument more. changes: whether generators change.
    """
    leaves, structure = flatten(list(bound.values()))
    leaves += outer
    if not any(isinstance(leaf, np.random.Generator) for leaf in leaves):
        yield bound
        return
    if current_trace() is not None:
        refuse("a generator of NumPy", "it is passed in a traced function, whose calls would all have its numbers now",
               "call the program outside of it, or draw with hl.random")  # fmt: skip
    found: dict[int, np.random.Generator] = {}
    for leaf in leaves:
        if isinstance(leaf, np.random.Generator):
            _require_known(leaf)
            found[id(leaf)] = leaf
    with ExitStack() as stack:
        for _, generator in sorted(found.items()):  # in one order: threads do not wait for each other
            stack.enter_context(generator.bit_generator.lock)
        words = {key: _words(generator.bit_generator.state) for key, generator in found.items()}
        states = {key: Generator(words[key].copy()) for key in found}
        passed = [states.get(id(leaf), leaf) for leaf in leaves]
        given = dict(zip(bound, unflatten(structure, passed[: len(leaves) - len(outer)]), strict=True))
        yield {**given, OUTER: passed[len(leaves) - len(outer) :]} if outer else given
        for key, generator in found.items() if changes else ():
            if (states[key].state != words[key]).any():  # else nothing drew, or Python did
                generator.bit_generator.state = _state(states[key].state)


OUTER = "generators around the function"  # the name of an argument


def _require_known(generator: np.random.Generator) -> None:
    bits = type(generator.bit_generator)
    if type(generator) is not np.random.Generator or bits is not np.random.PCG64:
        refuse("a generator", f"it is {type(generator).__name__}({bits.__name__})", "pass np.random.default_rng(seed)")


def _words(state: Mapping[str, Any]) -> np.ndarray:
    mask = (1 << 64) - 1
    numbers = state["state"]["state"], state["state"]["inc"]
    halves = [part for number in numbers for part in (number >> 64, number & mask)]
    return np.array([*halves, state["has_uint32"], state["uinteger"]], np.uint64)


def _state(words: np.ndarray) -> dict[str, Any]:
    numbers = list(map(int, words))
    return {"bit_generator": "PCG64", "state": {"state": numbers[0] << 64 | numbers[1],
            "inc": numbers[2] << 64 | numbers[3]}, "has_uint32": numbers[4], "uinteger": numbers[5]}  # fmt: skip


def of_random(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Generator:
    """A call of a function of `np.random`."""
    if function is not np.random.default_rng:
        owner = getattr(function, "__self__", None)
        whose = "a generator's " if isinstance(owner, np.random.Generator) else "np.random."
        refuse(f"{whose}{function.__name__}", "its numbers would be those of the first call",
               "pass a generator as an argument, rng = np.random.default_rng(seed), and call its methods")  # fmt: skip
    seed = dict(zip(("seed",), args, strict=False)).get("seed", kwargs.get("seed"))
    if isinstance(seed, np.random.Generator):
        return method_of(seed)
    if isinstance(seed, Generator):
        return seed
    if isinstance(seed, Value) or (isinstance(seed, (list, tuple)) and any(isinstance(s, Value) for s in seed)):
        raise Undecided("a seed of np.random.default_rng")
    if seed is None or isinstance(seed, (np.random.BitGenerator, np.random.SeedSequence)):
        refuse("np.random.default_rng", f"its seed is {seed!r:.60}",
               "give it an integer, or pass a generator as an argument")  # fmt: skip
    return Generator(Array.of(hnp.asarray(_words(np.random.default_rng(seed).bit_generator.state))))


def method_of(generator: np.random.Generator) -> Generator:
    """The generator of the program for one of NumPy."""
    found = generator_of(generator)
    if found is None:
        refuse("a generator", "the program does not have its state",
               "pass it as an argument, or make it with np.random.default_rng(seed)")  # fmt: skip
    return found
