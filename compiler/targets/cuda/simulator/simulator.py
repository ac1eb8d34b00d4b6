"""A simulator for CUDA texts that needs no GPU and no CUDA package: every thread a generator, every collective a yield.

It runs the text that is compiled, letter for letter: `cuda.syncthreads()`, `cuda.syncwarp()` and `shuffle_xor(..)`
become yields in its syntax tree. Threads of a block run one after the other between two collectives; races that this
order hides are found by the log of accesses in `memory`. The names of the dialect have their meanings from `dialect`.
"""

from __future__ import annotations

import ast
import functools
import types as python_types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.compiler.kernels.codegen.description import Nest
from hloom.compiler.kernels.codegen.source import parsed
from hloom.compiler.targets.cuda.codegen.render import render
from hloom.compiler.targets.cuda.codegen.source import WARP, CudaSource
from hloom.compiler.targets.cuda.launches import CudaLaunch
from hloom.compiler.targets.cuda.simulator import dialect, tensor_cores
from hloom.compiler.targets.cuda.simulator.memory import LockstepError, Memory, Place, View
from hloom.ir.types import DTYPES

_END = ("end", None, 0, 0)  # the kind of a collective, what the thread brings, the distance of a shuffle, the line


# Collectives of a warp besides shuffles, from what its lanes bring to what each gets.
_OF_A_WARP: dict[str, Callable] = {
    "ballot": lambda values, read: [np.uint32(sum([1 << lane for lane, (x,) in enumerate(values) if x]))] * WARP,
    "load_matrix4": lambda values, read: tensor_cores.load_matrix4(values, False, read),
    "load_matrix4_turned": lambda values, read: tensor_cores.load_matrix4(values, True, read),
    **{f"mma_{kind}": functools.partial(lambda kind, values, _: tensor_cores.multiply(values, kind), kind)
       for kind in ("f16", "bf16", "tf32")},
}  # fmt: skip
# Names that the machine gives, for it knows whose shared memory and copies they mean, and the dtypes of memory.
_SHARED = {f"{kind}_{dtype}": (kind, dtype) for kind in ("shared", "shared_as", "shared_part") for dtype in DTYPES}
_COPIES = ("copy_ahead", "close_ahead", "wait_ahead")


class _Collectives(ast.NodeTransformer):
    """Collectives as yields: `shuffle_xor(x, d)` in line 7 becomes `(yield ("shuffle", x, d, 7))`."""

    def visit_Call(self, node: ast.Call):
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name in ("cuda.syncthreads", "cuda.syncwarp"):
            kind = "barrier" if name == "cuda.syncthreads" else "warp"
            values: list[ast.expr] = [ast.Constant(kind), ast.Constant(None), ast.Constant(0)]
        elif name == "shuffle_xor":
            values = [ast.Constant("shuffle"), *node.args]
        elif name in _OF_A_WARP:
            values = [ast.Constant(name), ast.Tuple(node.args, ast.Load()), ast.Constant(0)]
        else:
            return node
        values.append(ast.Constant(node.lineno))
        return ast.copy_location(ast.Yield(ast.Tuple(values, ast.Load())), node)


@functools.lru_cache(256)
def _compiled(name: str, text: str) -> tuple[python_types.CodeType, frozenset[str], frozenset[str]]:
    """The text's function as a generator, the names that it calls, and the casts that it loads."""
    tree = parsed(text)
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    loaded = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    tree = _Collectives().visit(tree)
    (function,) = tree.body
    # A yield that is never reached makes a text without collectives a generator too.
    function.body.append(parsed("if False:\n    yield").body[0])
    code = compile(ast.fix_missing_locations(tree), f"<{name}>", "exec")
    return code, frozenset(called), frozenset(loaded & dialect.CASTS)


def _generator(source: CudaSource, machine: _Machine) -> Callable:
    code, called, casts = _compiled(source.name, source.text)
    own = {name for name in called if name in _SHARED or name in _COPIES}
    known = called - {"shuffle_xor", "min", "max"} - own - _OF_A_WARP.keys() | casts
    scope: dict[str, Any] = {"cuda": machine.namespace(), "nan": np.nan, "inf": np.inf}
    scope |= {name: dialect.function(name) for name in known} | {name: machine.meaning(name) for name in own}
    exec(code, scope)
    return scope[source.name]


class _Thread:
    """A thread of a block: its generator and the collective at which it waits."""

    __slots__ = ("send", "number", "warp", "shared_calls", "waits", "copies")

    def __init__(self, number: int, generator):
        self.number, self.warp, self.send = number, number // WARP, generator.send
        self.shared_calls = 0
        self.copies: list[list[tuple]] = [[]]  # on their way, a list for each group; the last one is open
        self.waits: tuple = _END

    @property
    def place(self) -> tuple[str, int]:
        """The collective's kind and line."""
        return self.waits[0], self.waits[3]


class _Machine:
    """What `cuda` and the threads share: the running thread, and the shared arrays of its block."""

    def __init__(self, source: CudaSource, blocks: int):
        self.source, self.blocks = source, blocks
        self.place = Place()
        self.thread: _Thread
        self.arrays: list[Memory] = []

    def namespace(self) -> python_types.SimpleNamespace:
        """The `cuda` of the text."""
        machine = self

        class Index:
            @property
            def x(self):
                return machine.place.now[1]

        class BlockIndex:
            @property
            def x(self):
                return machine.place.now[0]

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

    def meaning(self, name: str) -> Callable:
        """What a name of `_SHARED` or `_COPIES` does."""
        if name in _COPIES:
            made: Callable = getattr(self, name)
            return made
        kind, dtype = _SHARED[name]
        of = DTYPES[dtype]
        if kind == "shared":
            return lambda size: self.shared_array(size, python_types.SimpleNamespace(dtype=of))
        return lambda memory, start=0: View(memory, of, start)

    def copy_ahead(self, to: Memory, index, source: Memory, source_index, inside) -> None:
        """16 bytes, or zeros in their place, that arrive in `to` at some time before they are waited for."""
        count = 16 // to.array.itemsize
        for memory, place in ((to, index), *(((source, source_index),) if inside else ())):
            if int(place) % count:
                raise LockstepError(f"16 bytes are copied at {memory.name}[{place}], which is not aligned to them")
        values = np.zeros(count, to.array.dtype)
        if inside:
            values[:] = tensor_cores.load_wide(source, source_index, count)
        to.expect(int(index), values)
        self.thread.copies[-1].append((to, int(index), count))

    def close_ahead(self) -> None:
        self.thread.copies.append([])

    def wait_ahead(self, open_groups: int) -> None:
        """All but the last `open_groups` groups of the running thread have arrived."""
        groups = self.thread.copies
        while len(groups) > open_groups + 1:
            for memory, index, count in groups.pop(0):
                memory.arrive(index, count)

    def run_block(self, block: int, function: Callable, arguments: Sequence, reverse: bool) -> None:
        self.arrays = []
        threads = [_Thread(number, function(*arguments)) for number in range(self.source.threads)]
        if reverse:
            threads.reverse()
        warps: dict[int, list[_Thread]] = {}
        for thread in threads:
            warps.setdefault(thread.warp, []).append(thread)
        epochs, passed, place = dict.fromkeys(warps, 0), 0, self.place

        def resume(thread: _Thread, value) -> None:
            self.thread = thread
            place.now = (block, thread.number, passed, epochs[thread.warp])
            try:
                thread.waits = thread.send(value)
            except StopIteration:
                thread.waits = _END

        for thread in threads:
            resume(thread, None)
        while True:
            for number, warp in warps.items():
                self._run_warp(block, number, warp, passed, epochs, resume)
            waiting = {thread.place for thread in threads}
            if waiting == {("end", 0)}:
                return
            if len(waiting) > 1:
                raise LockstepError(f"block {block}: threads wait at different places: {self._places(threads)}")
            passed += 1
            for thread in threads:
                resume(thread, None)

    def _run_warp(self, block: int, number: int, warp: list[_Thread], passed: int, epochs, resume) -> None:
        """Until the warp is at a barrier of the block or at its end."""
        while True:
            waiting = {(thread.waits[0], thread.waits[2], thread.waits[3]) for thread in warp}
            if {kind for kind, _, _ in waiting} <= {"barrier", "end"}:
                return
            if len(waiting) > 1:
                raise LockstepError(f"warp {number} of block {block} diverges: {self._places(warp)}")
            ((kind, distance, _),) = waiting
            if kind == "warp":
                epochs[number] += 1
            values = {thread.number % WARP: thread.waits[1] for thread in warp}
            if kind in _OF_A_WARP:

                def read(lane: int, memory: Memory, index: int):
                    self.place.now = (block, number * WARP + lane, passed, epochs[number])
                    return memory[index]

                results = _OF_A_WARP[kind]([values[lane] for lane in range(WARP)], read)
                for thread in warp:
                    resume(thread, results[thread.number % WARP])
                continue
            for thread in warp:
                resume(thread, values[thread.number % WARP ^ distance] if kind == "shuffle" else None)

    def _places(self, threads: list[_Thread]) -> str:
        lines = ["", *self.source.text.splitlines()]
        places: dict[tuple, list[int]] = {}
        for thread in threads:
            places.setdefault(thread.place, []).append(thread.number)
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
    if source.grain in ("element", "serial", "product") and blocks and blocks < source.blocks():
        raise ValueError(f"{source.name} needs {source.blocks()} blocks for {source.items} items, not {blocks}")
    blocks = blocks or source.blocks()
    machine = _Machine(source, blocks)
    function = _generator(source, machine)
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


def simulate_launches(
    launches: Sequence[CudaLaunch], arrays: Mapping[str, np.ndarray], reverse: bool = False
) -> dict[str, np.ndarray]:
    """Runs launches of CUDA texts one after the other; returns all arrays, temporaries included, by name.

    arrays: inputs and outputs by pointer name, outputs are written in place.
    """
    given = dict(arrays)
    for launch in launches:
        source = launch.source
        for name, size in launch.temporaries.items():
            if name not in given:
                given[name] = np.zeros(size, np.uint8)
        pointers = len(source.params) - len(source.arguments)
        memory = {}
        for name, argument, kind in zip(source.parameters, launch.arguments, source.params[:pointers], strict=False):
            assert isinstance(argument, str)  # pointers come first
            array = given[argument]
            memory[name] = array.view(DTYPES[kind[:-1]]) if argument in launch.temporaries else array
        values = (value for value in launch.arguments[pointers:] if isinstance(value, int))
        integers = dict(zip(source.arguments, values, strict=True))
        run(source, memory, integers, None, reverse)
    return given


def _flat(name: str, array: np.ndarray) -> np.ndarray:
    if not array.flags.c_contiguous:
        raise ValueError(f"the array for {name} is not contiguous")
    return array.reshape(-1)
