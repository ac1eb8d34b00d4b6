"""Scalar constants that depend on named dimensions, such as the number of elements in a mean: they become parameters,
which the driver computes from the sizes of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hloom.compiler.pipeline import run_passes
from hloom.errors import ExportError
from hloom.export.extents import Sizes
from hloom.export.nodes import value_of
from hloom.export.symbolic import scalar_expression
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.records import record
from hloom.ir.types import Shape

__all__ = ["Lifted", "inlined", "lifted_scalars", "with_scalars"]


@record(frozen=True)
class Lifted:
    """A scalar that depends on dimensions. source: the user's line; expression: of its bits, as of `nodes`."""

    source: Any
    dtype: np.dtype
    expression: Any

    def value(self, sizes: Sizes) -> np.ndarray:
        return np.array(_value(self.expression, sizes), self.dtype)


def _value(expression: Any, sizes: Sizes) -> Any:
    return value_of(expression[1], sizes) if expression[0] == "single" else value_of(expression, sizes)


def inlined(module: Module) -> Module:
    return run_passes(module, ("inline-calls",))


def _constants(module: Module) -> list[Instruction]:
    return [i for computation in module.computations() for i in computation.instructions if i.opcode == "constant"]


def lifted_scalars(
    name: str, modules: Mapping[Sizes, Module], low: Sizes, high: Sizes, names: Sequence[str]
) -> list[Lifted]:
    """The scalars that differ between inlined modules of the same function at several sizes. Raises ExportError for
    other constants that differ, and for scalars whose dependence is not known."""
    found = {sizes: _constants(module) for sizes, module in modules.items()}
    lengths = {len(constants) for constants in found.values()}
    if len(lengths) != 1:
        raise ExportError(
            f"export of {name!r} for a range of {', '.join(names)}",
            "another program is traced for other sizes",
            "let the function do the same for all sizes, or narrow the range of the Dim",
            source="",
        )
    made: dict[Any, Lifted] = {}
    for position in range(lengths.pop()):
        group = {sizes: constants[position] for sizes, constants in found.items()}
        first = next(iter(group.values()))
        values = {sizes: np.asarray(one["value"]) for sizes, one in group.items()}
        if len({(v.shape, v.dtype.str, v.tobytes()) for v in values.values()}) == 1:
            continue
        expression = None
        if all(v.shape == () for v in values.values()) and len({v.dtype for v in values.values()}) == 1:
            expression = scalar_expression({s: v[()] for s, v in values.items()}, low, high, names)
        if expression is None or not isinstance(expression, tuple):
            shown = ", ".join(f"{v[()]:g}" if v.shape == () else f"{v.shape}" for v in values.values())
            raise ExportError(
                f"export of {name!r} for a range of {', '.join(names)}",
                f"a constant depends on the size in a way that is not known: {shown}",
                "compute it outside and pass it as an argument, or from a size and its reciprocal",
                source=first.source,
            )
        made[first.source, expression] = Lifted(first.source, first.dtype, expression)
    return list(made.values())


def with_scalars(module: Module, lifted: Sequence[Lifted], sizes: Sizes) -> Module:
    """An inlined module with parameters in place of the scalars, after its own. A constant of the same line with the
    same value is taken for one: at these sizes that is right as well."""
    if not lifted:
        return module
    entry = module.entry
    count = len(entry.parameters)
    parameters = [
        Instruction("parameter", (), Shape(one.dtype, ()), {"index": count + k}, f"scalar{k}", one.source)
        for k, one in enumerate(lifted)
    ]
    wanted = {
        (one.source, one.dtype.str, one.value(sizes).tobytes()): parameter
        for one, parameter in zip(lifted, parameters, strict=True)
    }
    changed: dict[Instruction, Instruction] = {}
    instructions = [*parameters]
    for instruction in entry.instructions:
        if instruction.opcode == "constant" and instruction.shape.dims == ():
            value = np.asarray(instruction["value"])
            parameter = wanted.get((instruction.source, value.dtype.str, value.tobytes()))
            if parameter is not None:
                changed[instruction] = parameter
                continue
        made = instruction.replaced(changed, {})
        if made is not instruction:
            changed[instruction] = made
        instructions.append(made)
    own = [changed.get(p, p) for p in entry.parameters]
    root = changed.get(entry.root, entry.root)
    return module.with_entry(Computation(entry.name, [*own, *parameters], instructions, root))
