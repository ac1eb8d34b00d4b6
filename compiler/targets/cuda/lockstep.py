"""A simulator for CUDA texts that needs no GPU and no CUDA package: every thread a generator, every collective a yield.

It runs the text that is compiled, letter for letter: `cuda.syncthreads()`, `cuda.syncwarp()` and `shuffle_xor(..)`
become yields in its syntax tree. Threads of a block run one after the other between two collectives; races that this
order hides are found by the log of accesses in `memory`. The names of the dialect have their meanings from `reference`.
"""

from __future__ import annotations

import ast
import types as python_types
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hloom.compiler.kernels.description import Nest
from hloom.compiler.targets.cuda import reference
from hloom.compiler.targets.cuda.memory import LockstepError, Memory, Place
from hloom.compiler.targets.cuda.render import WARP, CudaSource, render
from hloom.ir.types import DTYPES

_END = ("end", None, 0)


class _Collectives(ast.NodeTransformer):
    """Collectives as yields: `shuffle_xor(x, d)` becomes `(yield ("shuffle", x, d))`."""

    def visit_Call(self, node: ast.Call):
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name in ("cuda.syncthreads", "cuda.syncwarp"):
            kind = "barrier" if name == "cuda.syncthreads" else "warp"
            values = [ast.Constant(kind), ast.Constant(None), ast.Constant(0)]
        elif name == "shuffle_xor":
            values = [ast.Constant("shuffle"), *node.args]
        else:
            return node
        return ast.copy_location(ast.Yield(ast.Tuple(values, ast.Load())), node)


def _generator(source: CudaSource, cuda: python_types.SimpleNamespace) -> Callable:
    tree = ast.parse(source.text)
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    loaded = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    known = called - {"shuffle_xor", "min", "max"} | loaded & reference.CASTS
    scope = {"cuda": cuda, "nan": np.nan, "inf": np.inf} | {name: reference.function(name) for name in known}
    tree = _Collectives().visit(tree)
    (function,) = tree.body
    # A yield that is never reached makes a text without collectives a generator too.
    function.body.append(ast.parse("if False:\n    yield").body[0])
    exec(compile(ast.fix_missing_locations(tree), f"<{source.name}>", "exec"), scope)
    return scope[source.name]


class _Thread:
    """A thread of a block: its generator and the collective at which it waits."""

    __slots__ = ("generator", "number", "shared_calls", "waits", "line")

    def __init__(self, number: int, generator):
        self.number, self.generator = number, generator
        self.shared_calls = 0
        self.waits: tuple | None = None
        self.line = 0

    def resume(self, value) -> None:
        try:
            self.waits = self.generator.send(value)
            self.line = self.generator.gi_frame.f_lineno
        except StopIteration:
            self.waits, self.line = _END, 0


class _Machine:
    """What `cuda` and the threads share: the running thread, and the shared arrays of its block."""

    def __init__(self, source: CudaSource, blocks: int):
        self.source, self.blocks = source, blocks
        self.place = Place()
        self.thread: _Thread | None = None
        self.arrays: list[Memory] = []

    def namespace(self) -> python_types.SimpleNamespace:
        """The `cuda` of the text."""
        machine = self

        class Index:
            @property
            def x(self):
                return machine.place.thread

        class BlockIndex:
            @property
            def x(self):
                return machine.place.block

        axis = python_types.SimpleNamespace
        return axis(
            threadIdx=Index(), blockIdx=BlockIndex(), blockDim=axis(x=self.source.threads), gridDim=axis(x=self.blocks),
            shared=axis(array=self.shared_array),
        )  # fmt: skip

    def shared_array(self, size: int, dtype) -> Memory:
        """The n-th call of a thread gives the block's n-th array."""
        call, self.thread.shared_calls = self.thread.shared_calls, self.thread.shared_calls + 1
        if call == len(self.arrays):
            name = f"shared array {call}"
            self.arrays.append(Memory(name, np.zeros(size, dtype.dtype), self.place, initialised=False))
        return self.arrays[call]

    def run_block(self, block: int, function: Callable, arguments: Sequence, reverse: bool) -> None:
        self.arrays = []
        self.place.block = block
        threads = [_Thread(number, function(*arguments)) for number in range(self.source.threads)]
        if reverse:
            threads.reverse()
        warps: dict[int, list[_Thread]] = {}
        for thread in threads:
            warps.setdefault(thread.number // WARP, []).append(thread)
        epochs = dict.fromkeys(warps, 0)

        def resume(thread: _Thread, value) -> None:
            self.thread = thread
            self.place.thread, self.place.warp_epoch = thread.number, epochs[thread.number // WARP]
            thread.resume(value)

        self.place.epoch = 0
        for thread in threads:
            resume(thread, None)
        while True:
            for number, warp in warps.items():
                self._run_warp(block, number, warp, epochs, resume)
            waiting = {(thread.waits[0], thread.line) for thread in threads}
            if waiting == {("end", 0)}:
                return
            if len(waiting) > 1:
                raise LockstepError(f"block {block}: threads wait at different places: {self._places(threads)}")
            self.place.epoch += 1
            for thread in threads:
                resume(thread, None)

    def _run_warp(self, block: int, number: int, warp: list[_Thread], epochs, resume) -> None:
        """Until the warp is at a barrier of the block or at its end."""
        while True:
            waiting = {(thread.waits[0], thread.line) for thread in warp}
            kinds = {kind for kind, _ in waiting}
            if kinds <= {"barrier", "end"}:
                return
            distances = {thread.waits[2] for thread in warp}
            if len(waiting) > 1 or len(distances) > 1:
                raise LockstepError(f"warp {number} of block {block} diverges: {self._places(warp)}")
            (kind,) = kinds
            if kind == "warp":
                epochs[number] += 1
            (distance,) = distances
            values = {thread.number % WARP: thread.waits[1] for thread in warp}
            for thread in warp:
                resume(thread, values[thread.number % WARP ^ distance] if kind == "shuffle" else None)

    def _places(self, threads: list[_Thread]) -> str:
        lines = ["", *self.source.text.splitlines()]
        places: dict[tuple, list[int]] = {}
        for thread in threads:
            places.setdefault((thread.waits[0], thread.line), []).append(thread.number)
        return "; ".join(
            f"{len(numbers)} threads from {min(numbers)} on at "
            + (f"'{lines[line].strip()}' (line {line})" if line else "the end")
            for (_, line), numbers in sorted(places.items())
        )


def run(
    source: CudaSource,
    arrays: Mapping[str, np.ndarray],
    integers: Mapping[str, int],
    blocks: int | None = None,
    reverse: bool = False,
) -> None:
    """Runs a text over all blocks; arrays are changed in place.

    arrays: contiguous arrays by the names of the pointer parameters. integers: values of `source.arguments`.
    blocks: the size of the grid, by default what the source asks for. reverse: blocks and threads run from the last to
    the first.

    Raises LockstepError for divergence around a collective, a barrier that part of a block misses, a read of shared
    memory that was not written, an index out of bounds, and a race.
    """
    if source.grain in ("element", "serial") and blocks and blocks < source.blocks():
        raise ValueError(f"{source.name} needs {source.blocks()} blocks for {source.items} items, not {blocks}")
    blocks = blocks or source.blocks()
    machine = _Machine(source, blocks)
    function = _generator(source, machine.namespace())
    pointers = source.parameters[: len(source.params) - len(source.arguments)]
    arguments: list = [Memory(name, _flat(name, arrays[name]), machine.place) for name in pointers]
    arguments += [integers[name] for name in source.arguments]
    with np.errstate(all="ignore"):
        for block in range(blocks)[:: -1 if reverse else 1]:
            machine.run_block(block, function, arguments, reverse)


def simulate(
    nest: Nest,
    arrays: Mapping[str, np.ndarray],
    blocks: int | None = None,
    threads: int | None = None,
    reverse: bool = False,
) -> dict[str, np.ndarray]:
    """Renders a nest and runs it; returns its outputs and temporaries by pointer name.

    arrays: inputs and outputs by pointer name, outputs are written in place. Temporaries that are not given are made.
    blocks, threads: size of the grid and of a block, by default the usual ones.
    """
    given = dict(arrays)
    for name, dtype in nest.pointers:
        if name not in given and name in nest.temporaries:
            kind = DTYPES[dtype]
            given[name] = np.zeros(nest.temporaries[name] // kind.itemsize, kind)
    run(render(nest, threads), given, nest.integers, blocks, reverse)
    return {name: given[name] for name, _ in nest.pointers if name in nest.outputs or name in nest.temporaries}


def _flat(name: str, array: np.ndarray) -> np.ndarray:
    if not array.flags.c_contiguous:
        raise ValueError(f"the array for {name} is not contiguous")
    return array.reshape(-1)
