"""Random programs of unknown sizes, for comparing what they compute at some sizes with the same program of fixed sizes.

A program is drawn while it is traced with dimensions: each step is a function of the values so far that asks for sizes
by `x.shape` alone, so that the same steps run on arrays. What is refused for want of a fact is not taken, and counted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import lax, nn
from hloom.backends.cpu.open_sizes import OpenExecutable
from hloom.errors import HloomError, UndecidedSizeError
from hloom.ir.interpret import evaluate
from hloom.ir.module import Computation, Module
from hloom.ir.ops.specialize import Specialization
from hloom.ir.sizes.expressions import Dim, size_at
from hloom.platforms.backend import CompileOptions
from hloom.tracing.trace import trace_function
from hloom.tree import pytrees as tree

NAMES = "nmkp"
# Sizes that are constants of the programs as well, and their neighbours.
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17)
CONSTANTS = (1, 2, 3, 4, 5, 8, 16, 17, 1_299_709, 1_523_891, 100_000, 1_300_000, 2**24)
ELEMENTS = 4096  # of a value, at all sizes that it is computed for
Step = Callable[[list], Any]


class Open:
    """A program: structs of its arguments, its steps, and its computation. refused: steps that lack a fact, by name."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.refused: Counter = Counter()
        self.used: Counter = Counter()
        self.dims = [Dim(name) for name in NAMES[: self.random.randint(1, 4)]]
        self.points = [{dim.name: self.random.choice(SIZES) for dim in self.dims} for _ in range(4)]
        self.arguments = [
            hl.ShapeDtypeStruct(self._dims(), self.random.choice(["float32", "float32", "float64", "int32"]))
            for _ in range(self.random.randint(1, 3))
        ]
        self.steps: list[Step] = []
        self.computation: Computation = self._traced()

    def _size(self):
        chance = self.random.random()
        if chance < 0.6:
            return self.random.choice(self.dims)
        if chance < 0.75:
            return self.random.choice([2, 3]) * self.random.choice(self.dims) + self.random.choice([0, 1])
        return self.random.choice([1, 2, 3, 4, 5])

    def _dims(self) -> tuple:
        return tuple([self._size() for _ in range(self.random.choice([1, 2, 2, 3]))])

    def _small(self, value) -> bool:
        return all(size_at(value._shape.size, point) <= ELEMENTS for point in self.points)

    def arrays(self, generator: np.random.Generator, point: dict[str, int]) -> list[np.ndarray]:
        """Arguments for sizes."""
        dims = [tuple([size_at(n, point) for n in one.shape]) for one in self.arguments]
        pairs = zip(dims, self.arguments, strict=True)
        return [(generator.random(given) * 4 - 1).astype(one.dtype) for given, one in pairs]

    def _traced(self) -> Computation:
        def run(*given):
            values = list(given)
            self.steps.clear()  # a trace may start again
            for _ in range(self.random.randint(3, 9)):
                name, step = self._drawn(values)
                try:
                    made = step(values)
                except UndecidedSizeError:
                    self.refused[name] += 1
                    continue
                except (HloomError, IndexError):
                    continue  # shapes that do not go together, axes that are not there
                if self._small(made):
                    self.used[name] += 1
                    self.steps.append(step)
                    values.append(made)
            return tuple(values[len(given) :]) or values[0]

        return trace_function(run, *tree.flatten((tuple(self.arguments), {})), "random").computation

    # --- steps ---

    def _drawn(self, values: list) -> tuple[str, Step]:
        name = self.random.choice([n for n in dir(self) if n.startswith("_step_")])
        return name.removeprefix("_step_"), getattr(self, name)(values)

    def _value(self, values: list, least_rank: int = 0) -> int:
        fitting = [k for k, v in enumerate(values) if v.ndim >= least_rank] or [0]
        return self.random.choice(fitting[-4:])

    def _axis(self, value) -> int:
        return self.random.randrange(max(value.ndim, 1))

    def _step_elementwise(self, values: list) -> Step:
        k = self._value(values)
        function = self.random.choice([hnp.sin, hnp.tanh, hnp.abs, hnp.square, hnp.negative, nn.relu])
        return lambda v: function(v[k])

    def _step_binary(self, values: list) -> Step:
        a, b = self._value(values), self._value(values)
        function = self.random.choice([hnp.add, hnp.multiply, hnp.maximum, hnp.subtract])
        return lambda v: function(v[a], v[b])

    def _step_constant(self, values: list) -> Step:
        k, number = self._value(values), self.random.choice(CONSTANTS)
        return lambda v: v[k] * 0.5 + number

    def _step_large_range(self, values: list) -> Step:
        k, number = self._value(values), self.random.choice([n for n in CONSTANTS if n < 2**21])
        return lambda v: v[k] + hnp.arange(number)[-1]

    def _step_size(self, values: list) -> Step:
        k, axis = self._value(values, 1), self.random.choice([0, -1])
        function = self.random.choice([
            lambda x, n: x / n, lambda x, n: x + n * 2 - 1, lambda x, n: x * (1 / (n + 1)), lambda x, n: x + n % 3,
            lambda x, n: x - n // 2, lambda x, n: x * n**0.5, lambda x, n: x + np.log(n + 1), lambda x, n: x + x.size,
        ])  # fmt: skip
        return lambda v: function(v[k], v[k].shape[axis])

    def _step_reduce(self, values: list) -> Step:
        k = self._value(values, 1)
        axis, keep = self._axis(values[k]), self.random.random() < 0.5
        function = self.random.choice([hnp.sum, hnp.mean, hnp.max, hnp.min, hnp.var, hnp.argmax])
        return lambda v: function(v[k], axis=axis, keepdims=keep)

    def _step_along(self, values: list) -> Step:
        k = self._value(values, 1)
        axis = self._axis(values[k])
        function = self.random.choice([hnp.cumsum, hnp.sort, hnp.argsort, hnp.flip, nn.softmax])
        return lambda v: function(v[k], axis=axis)

    def _step_slice(self, values: list) -> Step:
        k = self._value(values, 1)
        axis, rank = self._axis(values[k]), values[k].ndim
        ends = [None, None, 1, 2, -1, -2, 4]
        part = slice(self.random.choice(ends), self.random.choice(ends), self.random.choice([None, None, 2, 3, -1, -2]))
        index = tuple([part if one == axis else slice(None) for one in range(rank)])
        return lambda v: v[k][index]

    def _step_slice_by_size(self, values: list) -> Step:
        k, from_end = self._value(values, 1), self.random.choice([1, 2, 3])
        if self.random.random() < 0.5:
            return lambda v: v[k][: v[k].shape[0] // from_end]
        return lambda v: v[k][v[k].shape[0] - 1 :]

    def _step_pick(self, values: list) -> Step:
        k, place = self._value(values, 1), self.random.choice([0, -1, 1])
        return lambda v: v[k][place]

    def _step_reshape(self, values: list) -> Step:
        k = self._value(values)
        kind = self.random.randrange(4)
        if kind == 0:
            return lambda v: v[k].reshape(-1)
        if kind == 1:
            return lambda v: v[k].reshape(v[k].shape[0] if v[k].ndim else 1, -1)
        if kind == 2:
            return lambda v: v[k].reshape(-1, 2)
        return lambda v: v[k][..., None]

    def _step_transpose(self, values: list) -> Step:
        k = self._value(values)
        return lambda v: v[k].T

    def _step_join(self, values: list) -> Step:
        a, b = self._value(values, 1), self._value(values, 1)
        return lambda v: hnp.concatenate([v[a], v[b]])

    def _step_stack(self, values: list) -> Step:
        k = self._value(values)
        return lambda v: hnp.stack([v[k], v[k] * 2])

    def _step_pad(self, values: list) -> Step:
        k = self._value(values, 1)
        rank, width = values[k].ndim, (self.random.choice([0, 1, 3]), self.random.choice([0, 2]))
        return lambda v: hnp.pad(v[k], [width] + [(0, 0)] * (rank - 1))

    def _step_repeat(self, values: list) -> Step:
        k, times = self._value(values, 1), self.random.choice([2, 3])
        function = self.random.choice([hnp.repeat, lambda x, n, axis: hnp.tile(x, (n,) + (1,) * (x.ndim - 1))])
        return lambda v: function(v[k], times, axis=0)

    def _step_roll(self, values: list) -> Step:
        k, shift = self._value(values, 1), self.random.choice([1, -1, 2, 5])
        return lambda v: hnp.roll(v[k], shift, axis=0)

    def _step_made(self, values: list) -> Step:
        k = self._value(values, 1)
        function = self.random.choice([
            lambda n: hnp.arange(n), lambda n: hnp.zeros((n, 2)) + 1, lambda n: hnp.full((2 * n + 1,), 3.0),
            lambda n: hnp.eye(n), lambda n: hnp.linspace(0.0, 1.0, n), lambda n: hnp.arange(1, n, 2),
        ])  # fmt: skip
        return lambda v: function(v[k].shape[0])

    def _step_product(self, values: list) -> Step:
        k = self._value(values, 2)
        return lambda v: (v[k] @ v[k].swapaxes(-1, -2)) * 0.01

    def _step_outer(self, values: list) -> Step:
        a, b = self._value(values, 1), self._value(values, 1)
        return lambda v: v[a].reshape(-1)[:, None] * v[b].reshape(-1)[None]

    def _step_update(self, values: list) -> Step:
        k, kind = self._value(values, 1), self.random.randrange(3)
        if kind == 0:
            return lambda v: v[k].at[-1].set(7)
        if kind == 1:
            return lambda v: v[k].at[::2].add(3)
        return lambda v: v[k].at[: v[k].shape[0] // 2].multiply(2)

    def _step_take(self, values: list) -> Step:
        k = self._value(values, 1)
        return lambda v: hnp.take(v[k], hnp.arange(v[k].shape[0]) // 2, axis=0)

    def _step_mask(self, values: list) -> Step:
        k = self._value(values, 2)
        return lambda v: hnp.where(hnp.arange(v[k].shape[-1]) < v[k].shape[-2], v[k], 0)

    def _step_loop(self, values: list) -> Step:
        k = self._value(values, 1)
        return lambda v: lax.fori_loop(0, v[k].shape[0], lambda i, s: s * 0.5 + v[k][i], v[k][0] * 0.0)

    def _step_scan(self, values: list) -> Step:
        k = self._value(values, 1)
        return lambda v: lax.scan(lambda c, row: (c * 0.5 + row, c), v[k][0] * 0.0, v[k])[1]

    def _step_gradient(self, values: list) -> Step:
        k = self._value(values, 1)
        return lambda v: hl.grad(lambda x: (hnp.tanh(x)[1:] ** 2).mean() + x.sum())(v[k].astype("float32"))

    def _step_mapped(self, values: list) -> Step:
        k = self._value(values, 1)
        return lambda v: hl.vmap(lambda row: (row * row).sum() + row.size)(v[k])


def check(seed: int) -> tuple[Counter, Counter]:
    """Compares a program at four points with its steps on arrays. Returns the steps that were used, and those that were
    refused, by name. Raises AssertionError."""
    program = Open(seed)
    generator = np.random.default_rng(seed)
    for point in program.points:
        given = program.arrays(generator, point)
        values: list = [hnp.asarray(one) for one in given]
        try:
            for step in program.steps:
                values.append(step(values))
        except HloomError:  # an index outside of an axis of this size
            try:
                evaluate(Specialization(point).computation(program.computation), given)
            except HloomError:
                continue
            raise AssertionError(f"seed {seed} at {point}: refused of fixed sizes, and computed of open ones") from None
        wanted = [np.asarray(v) for v in values[len(given) :]] or [given[0]]
        try:
            found = evaluate(Specialization(point).computation(program.computation), given)
        except HloomError:  # a size of 0 or 1 for which the program was not built
            program.refused["at a size"] += 1
            continue
        for one, other in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
            assert one.shape == other.shape and one.dtype == other.dtype, (seed, point, one.shape, other.shape)
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-3, err_msg=f"seed {seed} at {point}")
    return program.used, program.refused


def check_compiled(seed: int) -> tuple[int, int]:
    """Compares one executable for all sizes with the reference interpreter, at the points of a program and beside two
    of them. Returns the calls and the variants that they needed. Raises AssertionError."""
    program, calls = Open(seed), 0
    executable = OpenExecutable(Module("random", program.computation), CompileOptions())
    generator = np.random.default_rng(seed)
    beside = [{name: size + 1 for name, size in point.items()} for point in program.points[:2]]
    for point in program.points + beside:
        given = program.arrays(generator, point)
        if executable.sizes([one.shape for one in given]) != {name: point[name] for name in executable.dims}:
            continue  # sizes that nothing tells apart
        try:
            wanted = evaluate(Specialization(point).computation(program.computation), given)
        except HloomError:  # a size for which the program was not built
            continue
        calls += 1
        for one, other in zip(executable(given), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            assert one.shape == other.shape and one.dtype == other.dtype, (seed, point, one.shape, other.shape)
            np.testing.assert_allclose(one, other, rtol=3e-4, atol=3e-3, err_msg=f"seed {seed} at {point}")
    return calls, len(executable.variants)


__all__ = ["Open", "check", "check_compiled"]
