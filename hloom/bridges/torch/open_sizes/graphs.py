"""Graphs whose sizes torch left open: translated once with dimensions, so that one executable runs all sizes.

A translation makes some decisions by the sizes of the call that it is made for (`SampledScope`), and serves the sizes
for which these decisions are the same; others get another translation. Its module is an `OpenExecutable`. Graphs that
cannot be translated with dimensions are compiled separately for each set of sizes, and a warning says why.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch

from hloom.backends.cpu.open_sizes import OpenExecutable
from hloom.bridges.torch.calls import Program, compiled, in_place
from hloom.bridges.torch.errors import RefusedOps, refusal, warn, warn_of_calls
from hloom.bridges.torch.graphs import declare, has_open_sizes, is_op, placeholders
from hloom.bridges.torch.open_sizes.symbols import Sizes, numbers_of, open_symbols, ranges_of
from hloom.bridges.torch.parts import Parts, left_to_torch
from hloom.bridges.torch.saved import lying_otherwise, places_of_saved, wanted_strides
from hloom.bridges.torch.translate import translate
from hloom.bridges.torch.translation import Translation
from hloom.errors import DeviceError, FallbackWarning, OutOfMemoryError
from hloom.ir.process import forking
from hloom.ir.sizes.expressions import Dim
from hloom.ir.sizes.guards import SampledScope
from hloom.platforms.backend import CompileOptions

__all__ = ["OpenGraph", "callable_of"]

MOST_SIZES = 64  # sets of sizes whose programs a graph keeps, and translations

Runs = Callable[[list], list]  # of a call's arguments


class OpenTranslation:
    """A graph translated with dimensions, by name. fixed: sizes that are constants in it, by name."""

    def __init__(
        self, translation: Translation, dims: Mapping[str, Dim], fixed: Mapping[str, int], scope: SampledScope,
        tracked: bool, options: CompileOptions,
    ):  # fmt: skip
        self.translation, self.dims, self.fixed, self.scope, self.tracked = translation, dims, fixed, scope, tracked
        self.options = options
        self.executable: OpenExecutable | None = None
        if translation.module is not None and dims:
            updates = in_place(translation)
            self.executable = OpenExecutable(translation.module, options, dims=dims, updates=updates)

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is right for sizes, by name."""
        return (
            all([sizes[name] == size for name, size in self.fixed.items()])
            and all([dim.takes(sizes[name]) for name, dim in self.dims.items()])
            and all([guard.holds(sizes) for guard in self.scope.guards])
        )

    def program(self, sizes: Mapping[str, int]) -> Program:
        translation = self.translation.at(sizes)
        if self.executable is None:
            return Program(translation, self.options, tracked=self.tracked)
        runs = self.executable.program({name: sizes[name] for name in self.dims})
        return Program(translation, self.options, tracked=self.tracked, runs=runs)


class OpenGraph:
    """A graph with open sizes. options, tracked: as Program has them. root: the graph of which it is a part."""

    def __init__(
        self, graph_module, name: str, options: CompileOptions, *, tracked: bool = False, root: OpenGraph | None = None
    ):
        self.graph_module, self.name, self.options, self.tracked = graph_module, name, options, tracked
        self._root = root or self
        self._open = _open_places(graph_module)
        self._programs: OrderedDict[tuple, Runs] = OrderedDict()
        self.translations: list[OpenTranslation] = []
        self._parts: Parts | None = None
        self._alone = False  # whether each set of sizes is compiled separately
        self._lock = forking.rlock()

    def __call__(self, arguments: list) -> list:
        key = tuple([arguments[k] if axis is None else arguments[k].shape[axis] for k, axis in self._open])
        program = self._programs.get(key)
        if program is not None:
            with contextlib.suppress(KeyError):  # another thread has dropped it just now
                self._programs.move_to_end(key)
        else:
            with self._lock:
                program = self._programs.get(key)
                if program is None:
                    program = self._programs[key] = self.program(numbers_of(self.graph_module, arguments))
                while len(self._programs) > MOST_SIZES:
                    self._programs.popitem(last=False)
        return program(arguments)

    def program(self, numbers: Mapping[Any, int]) -> Runs:
        """The caller of the graph for these values of torch's symbols."""
        with self._lock:
            if self._parts is None and not self._alone:
                program = self._open_program(numbers)
                if program is not None:
                    return program
            if self._parts is None:
                return compiled(self.graph_module, Sizes(numbers), self.name, self.options, tracked=self.tracked)
        return self._parts.with_calls(lambda call: call.program(numbers) if isinstance(call, OpenGraph) else call)

    def _open_program(self, numbers: Mapping[Any, int]) -> Program | None:
        """The program by a translation with dimensions. None if there is none: the graph is in parts, or each set of
        sizes is compiled separately."""
        sizes = {symbol.name: number for symbol, number in numbers.items()}
        try:
            found = next((one for one in self.translations if one.serves(sizes)), None)
            if found is None:
                found = self._translated(numbers)
                if found is None:
                    return None
                self.translations.append(found)
                del self.translations[:-MOST_SIZES]
            return found.program(sizes)
        except (DeviceError, OutOfMemoryError):
            raise
        except Exception as error:  # of a rule or the compiler, with sizes that are expressions
            self._compile_alone(refusal(error))
            return None

    def _translated(self, numbers: Mapping[Any, int]) -> OpenTranslation | None:
        """A translation that serves these values; None if the graph is in parts from here on."""
        by_torch = left_to_torch(self.graph_module)
        if not by_torch:
            pinned: set[str] = set()
            try:
                while True:
                    symbols, scope = open_symbols(numbers, ranges_of(self._root.graph_module), pinned)
                    translation = translate(self.graph_module, Sizes(symbols), self.name)
                    if not scope.pinned:
                        break
                    pinned |= scope.pinned  # fixed sizes make a smaller program
            except RefusedOps as error:
                by_torch = self._refused(error, numbers)
                if not by_torch:
                    return None
            else:
                dims = {symbol.name: size for symbol, size in symbols.items() if isinstance(size, Dim)}
                fixed = {symbol.name: size for symbol, size in symbols.items() if isinstance(size, int)}
                return OpenTranslation(translation, dims, fixed, scope, self.tracked, self.options)
        warn_of_calls({n: why for n, why in by_torch.items() if is_op(n)}, self.name)
        self._parts = Parts(self.graph_module, by_torch, self.name, self._part)
        return None

    def _refused(self, refused: RefusedOps, numbers: Mapping[Any, int]) -> dict:
        """The nodes that torch computes, where rules refuse some of them; none where they refuse them for sizes that
        are expressions only."""
        try:
            translate(self.graph_module, Sizes(numbers), self.name)
        except RefusedOps as error:
            return left_to_torch(self.graph_module, error.reasons)
        self._compile_alone("; ".join(f"{node.target}: {reason}" for node, reason in refused.reasons.items()))
        return {}

    def _part(self, segment, name: str) -> OpenGraph:
        return OpenGraph(segment, name, self.options, root=self._root)

    def _compile_alone(self, reason: str) -> None:
        self._alone = True
        warn(
            f"the program '{self.name}' is compiled for each set of sizes by itself: {reason}\n"
            "  cost:   a compilation for each new set of sizes\n"
            "  repair: none is needed; its results are right",
            FallbackWarning,
        )


def _open_places(graph_module) -> list[tuple[int, int | None]]:
    """Where a call tells open sizes: (position of an argument, its dimension; None for one that is a number)."""
    found: list[tuple[int, int | None]] = []
    for position, node in enumerate(placeholders(graph_module)):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            found.append((position, None))
        elif isinstance(value, torch.Tensor):
            found += [(position, axis) for axis, n in enumerate(value.shape) if isinstance(n, torch.SymInt)]
    return found


def callable_of(
    graph_module, examples, name: str, options: CompileOptions | None = None, *, strides: list | None = None,
    saves: bool = False, tracked: bool = False,
) -> Callable[[list], list]:  # fmt: skip
    """The caller of a graph: compiled immediately, unless its sizes are open. strides: of the user's results. saves:
    whether results are saved for the derivative's graph, which torch compiles next. options, tracked: as in Program.
    Raises DeviceError for tensors that are not on the CPU."""
    options = options or CompileOptions()
    declare(graph_module)
    if has_open_sizes(graph_module):
        return OpenGraph(graph_module, name, options, tracked=tracked)
    saved = places_of_saved(len(list(graph_module.graph.output_node().args[0]))) if saves else ()
    sizes, lying = Sizes(numbers_of(graph_module, examples)), lying_otherwise(graph_module, examples)
    return compiled(graph_module, sizes, name, options, lying, saved, wanted_strides(strides), tracked=tracked)
