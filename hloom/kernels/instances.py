"""Kernels as attributes of instructions: batches of calls, derivatives, evaluation."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.compiler.kernel_ir.nodes import Var
from hloom.config import config
from hloom.contexts import disable_jit
from hloom.dispatch.jit import jit
from hloom.ir.build import Value, tuple_elements
from hloom.ir.ops.programs.kernel import UserKernel
from hloom.ir.types import TupleShape
from hloom.kernels.derivatives.forward import tangents_of
from hloom.kernels.derivatives.reverse import cotangents_of
from hloom.kernels.faults import watch_tape
from hloom.kernels.programs import Batch, Body, assembled
from hloom.tracing.trace import bind, resumed

__all__ = ["Instance", "instance"]

_numbers = itertools.count(1)


class Instance(UserKernel):
    """body: the loops of one call. fault: the pointer that checks of indices store to. batch: the number of calls
    computed together.

    tangents_of: the kernel and the operands whose tangents these are; None for other kernels. python: computes the
    results in Python; None without such a function. bodies: the loops for a number of calls that share the memory of a
    tape.
    """

    body: Body
    fault: Var
    batch: Batch
    tangents_of: tuple[Instance, tuple[int, ...]] | None
    python: Callable[[Sequence[np.ndarray], Batch], Sequence[np.ndarray]] | None
    derived: dict[Any, Instance]
    bodies: Callable[[int], Body]

    def evaluate(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        if config.disable_jit and self.python is not None:
            return tuple(self.python(arrays, self.batch))
        with disable_jit(False), resumed(None):  # loops in Python take thousands of times as long
            return tuple([np.asarray(result) for result in self._run(*arrays)])

    @functools.cached_property
    def _run(self):
        return jit(lambda *arrays: bind("kernel", *arrays, kernel=self))

    def _derive(self, key, bodies: Callable[[int], Body], batch: Batch, **more) -> Instance:
        key = (*key, config.tape_bytes)
        found = self.derived.get(key)
        if found is None:
            calls = math.prod([size for size, _ in batch])
            found = self.derived[key] = instance(bodies(calls), self.fault, batch, bodies=bodies, **more)
        return found

    def batched(self, size: Any, mapped: Sequence[bool]) -> Instance:
        level = (size, tuple(mapped))
        bodies = self.bodies if self.body.is_open else lambda calls: self.body
        return self._derive(
            ("batch", level), bodies, (level, *self.batch), tangents_of=self.tangents_of, python=self.python
        )

    def jvp(self, build, instruction, primals, tangents):
        operands = tuple([k for k, t in enumerate(tangents) if t is not None])
        batch = tuple([(size, (*which, *[which[k] for k in operands])) for size, which in self.batch])
        kernel = self._derive(
            ("jvp", operands), lambda calls: tangents_of(self.bodies(calls), operands, self.fault), batch,
            tangents_of=(self, operands),
        )  # fmt: skip
        given = [*primals, *[tangents[k] for k in operands]]
        made = iter(_results(build.builder, kernel, given))
        return [next(made) if self._has_tangent(k) else None for k in range(len(self.shape.elements))]

    def _has_tangent(self, result: int) -> bool:
        array = self.body.results()[result]
        return array.dtype.kind in "fV" or array.dtype.name == "bfloat16"

    def transpose(self, build, instruction, cotangent, operands):
        if self.tangents_of is None:
            raise self.lost()
        of, wanted = self.tangents_of
        floats = [k for k in range(len(of.shape.elements)) if of._has_tangent(k)]
        pairs = [(k, bar) for k, bar in zip(floats, cotangent, strict=True) if bar is not None]
        results = tuple([k for k, _ in pairs])
        count = len(operands) - len(wanted)
        batch = tuple([(size, (*which[:count], *[True] * len(results))) for size, which in self.batch])
        kernel = of._derive(
            ("vjp", wanted, results),
            lambda calls: cotangents_of(of.bodies(calls), wanted, results, of.fault, calls), batch,
        )  # fmt: skip
        made = _results(build, kernel, [*operands[:count], *[bar for _, bar in pairs]])
        if kernel.body.is_open:
            watch_tape(build, of.body.name, made.pop(), instruction.source)
        found: list[Any] = [None] * count
        for number, value in zip(wanted, made, strict=True):
            axes = [level for level, (_, which) in enumerate(self.batch) if not which[number]]
            found.append(value.sum(axes) if axes else value)
        return found


def _results(builder, kernel: Instance, given: Sequence[Value]) -> list[Value]:
    made = builder.emit("kernel", *[value.instruction for value in given], kernel=kernel)
    return [Value(builder, element) for element in tuple_elements(builder, made)]


def instance(body: Body, fault: Var, batch: Batch = (), tangents_of=None, python=None, bodies=None) -> Instance:
    """A kernel of loops, for a batch of calls."""
    made = Instance(f"{body.name}.{next(_numbers)}")
    made.body, made.fault, made.batch, made.tangents_of, made.python = body, fault, batch, tangents_of, python
    made.program, shapes = assembled(body, batch)
    made.shape, made.derived = TupleShape(shapes), {}
    made.bodies = bodies or (lambda calls: body)
    return made
