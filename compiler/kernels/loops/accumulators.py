"""Accumulators of reductions: their first values, adding an element, joining."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.compiler.kernel_ir.builder import call
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.nodes import Expr, Var
from hloom.compiler.kernel_ir.of_ops import applied
from hloom.compiler.kernels.codegen.constants import literal
from hloom.compiler.kernels.codegen.description import Block, Collective
from hloom.compiler.kernels.codegen.writer import Writer
from hloom.ir.build import combiner_opcode
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops import OPS
from hloom.ir.types import COMPLEX, HLO_NAME, PRED, compute_dtype

# Reassociating accumulators of the dialect by HLO op; others are joined by the op's own expression, in order.
_ACCUMULATORS = {"add": "sum", "multiply": "prod", "maximum": "accmax", "minimum": "accmin"}


class Reduction:
    """One reduce instruction: its arrays, initial values and combiner.

    keys: whether a maximum or minimum of floats compares their keys (`kernels.math.keys`), integers that the
    accumulators hold until `settle`. kind: HLO dtype of the numbers that they hold then.
    """

    def __init__(self, instruction: Instruction, keys: bool = False):
        self.instruction = instruction
        count = len(instruction.operands) // 2
        self.arrays = instruction.operands[:count]
        self.initial = instruction.operands[count:]
        self.combiner = instruction["to_apply"]
        self.opcode = combiner_opcode(self.combiner) if count == 1 else None
        self.names: list[Expr] = []
        self.kind = HLO_NAME[compute_dtype(self.arrays[0].dtype)]
        self.key = ""
        if keys and self.opcode in ("maximum", "minimum") and self.kind in ("f32", "f64"):
            self.key = f"{self.opcode[:3]}key_{self.kind}"

    @property
    def splittable(self) -> bool:
        """Whether parts may be reduced alone, from the neutral element, and joined afterwards."""
        return self.opcode is not None

    @property
    def is_sum(self) -> bool:
        """Whether it adds floats, whose partial sums lose digits."""
        return self.opcode == "add" and self.kind in ("f32", "f64")

    def start(self, writer: Writer, block: Block) -> None:
        """Declares the accumulators in `block`: the neutral element of a known combiner, else the initial values."""
        names = [writer.fresh("a") for _ in self.arrays]
        self.names = []
        for name, array, initial in zip(names, self.arrays, self.initial, strict=True):
            value = self.neutral(array) if self.splittable else writer.value(initial, (), block)
            self.names.append(block.let(name, self._keyed(value)))

    def _identity(self, dtype: np.dtype):
        """The neutral element of a known combiner."""
        assert self.opcode is not None
        identity = OPS[self.opcode].identity
        assert identity is not None, f"{self.opcode} combines elements, so it has a neutral one"
        return identity(dtype)

    def _keyed(self, value: Expr) -> Expr:
        return call(self.key, (value,), by_name) if self.key else value

    def neutral(self, array: Instruction) -> Expr:
        return literal(self._identity(array.dtype), array.dtype)

    def take(self, writer: Writer, block: Block, values: Sequence[Expr]) -> None:
        """Statements that put the elements `values` into the accumulators."""
        if self.opcode in _ACCUMULATORS and self.arrays[0].dtype != PRED and self.arrays[0].dtype not in COMPLEX:
            kind = self.kind.replace("f", "s") if self.key else self.kind
            arguments = self.names[0], self._keyed(values[0])
            block.set(self.names, [call(f"{_ACCUMULATORS[self.opcode]}_{kind}", arguments, by_name)])
            return
        block.set(self.names, self.join(writer, block, self.names, values))

    def join(self, writer: Writer, block: Block, left: Sequence[Expr], right: Sequence[Expr]) -> list[Expr]:
        """The combiner's expressions of two groups of values, its statements written into `block`."""
        return inline_scalars(writer, block, self.combiner, [*left, *right])

    def initial_is_neutral(self) -> bool:
        (initial,) = self.initial
        if initial.opcode != "constant":
            return False
        return bool(initial["value"].reshape(())[()] == self._identity(initial.dtype))

    def collective(self) -> Collective:
        """What combines the accumulator over the lanes of an item."""
        assert self.opcode is not None, "a reduction that is not splittable"
        (var,) = self.names
        assert isinstance(var, Var)
        return Collective(var, self.opcode, self.kind)

    def settle(self, writer: Writer, block: Block) -> None:
        """Numbers in place of keys in the accumulators."""
        if self.key:
            (key,), name, self.key = self.names, writer.fresh("a"), ""
            self.names = [block.let(name, call(f"keyed_{self.kind}", (key,), by_name))]

    def finish(self, writer: Writer, block: Block) -> list[Expr]:
        """The results: the accumulators, which are settled, joined with the initial value where that is not neutral."""
        if not self.splittable or self.initial_is_neutral():
            return list(self.names)
        return self.join(writer, block, [writer.value(self.initial[0], (), block)], self.names)

    def define(self, writer: Writer, block: Block) -> None:
        """Sets the values of the instruction to the results, in `block`."""
        results = self.finish(writer, block)
        if len(results) == 1:
            writer.overrides[self.instruction] = (results[0], block)
        else:
            writer.elements[self.instruction] = [(name, block) for name in results]


def inline_scalars(writer: Writer, block: Block, computation: Computation, arguments: Sequence[Expr]) -> list[Expr]:
    """Writes the statements of a computation on scalars into `block`; returns the expressions of its outputs."""
    names: dict[Instruction, Expr] = dict(zip(computation.parameters, arguments, strict=True))
    for instruction in computation.instructions:
        if instruction in names or instruction.opcode == "tuple":
            continue
        if instruction.opcode == "constant":
            names[instruction] = literal(instruction["value"].reshape(())[()], instruction.dtype)
            continue
        value = applied(instruction, [names[o] for o in instruction.operands])
        names[instruction] = block.let(writer.fresh(), value)
    return [names[o] for o in computation.outputs()]
