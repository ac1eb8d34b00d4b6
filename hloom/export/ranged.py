"""A function with named dimensions as one program: traced and planned for samples, joined to plans for ranges.

Scalar constants that depend on the dimensions, such as the number of elements in a mean, become parameters, which the
driver computes from the sizes of a call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hloom.compiler.kernels.contractions.blocking import blocks_for_ranges
from hloom.compiler.pipeline import run_passes
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.targets.cpu.cross import CrossMachine
from hloom.errors import ExportError
from hloom.export import emit
from hloom.export.extents import Extent, Sizes, fitted
from hloom.export.functions import TracedFunction, Value, keep, lowered_at, plan_of, refuse_python
from hloom.export.nodes import value_of
from hloom.export.symbolic import Box, boxes_of, scalar_expression
from hloom.export.tables import USE_SCALAR, Shared, Tables, tables_of
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.records import record
from hloom.ir.sizes.expressions import Dim
from hloom.ir.types import Shape

__all__ = ["ranged_body"]

MOST_CHECKED = 8192  # sizes that are all planned


class _Ranged:
    """A function at sizes of its dimensions. Sizes are tuples, in the order of `dims`."""

    def __init__(self, function: TracedFunction, machine: CrossMachine, dims: list[Dim]):
        self.function, self.machine, self.dims = function, machine, dims
        self.names = [d.name for d in dims]
        self.low, self.high = tuple(d.min for d in dims), tuple(d.most for d in dims)
        self._modules: dict[Sizes, Module] = {}
        self._shapes: dict[Sizes, list[list[tuple[int, ...]]]] = {}
        points = self._points()
        self.lifted = lifted_scalars(
            function.request.name, {p: self.module(p) for p in points}, points[0], points[-1], self.names
        )
        self.values(points)

    def _points(self) -> list[Sizes]:
        """Corners of the range and sizes in it; of ranges with other sizes not 1 and 2, for which other programs may be
        traced. A range of several sizes has two different corners: a single one would look like a constant."""
        low = tuple([max(d.min, min(d.most - 1, 3)) for d in self.dims])
        found = [low]
        for subset in range(1, 1 << len(self.dims)):
            found.append(tuple([d.most if subset >> k & 1 else low[k] for k, d in enumerate(self.dims)]))
        middle = tuple([a + (b - a) * 2 // 3 for a, b in zip(low, self.high, strict=True)])
        near = tuple([min(a + 2, b) for a, b in zip(low, self.high, strict=True)])
        return list(dict.fromkeys([*found[:-1], middle, near, found[-1]]))

    def module(self, sizes: Sizes) -> Module:
        if sizes not in self._modules:
            lowered = lowered_at(self.function, dict(zip(self.names, sizes, strict=True)))
            outputs = [o.shape.dims for o in lowered._traced.computation.outputs()]
            inputs = [leaf._shape.dims for leaf in lowered._call.leaves]
            self._shapes[sizes] = [inputs, outputs]
            self._modules[sizes] = inlined(lowered.module)
        return self._modules[sizes]

    def plan(self, sizes: Sizes) -> Plan:
        module = with_scalars(self.module(sizes), self.lifted, sizes)
        with blocks_for_ranges():
            plan = plan_of(self.function, self.machine, module)
        refuse_python({self.function.request.name: plan})
        del self._modules[sizes]  # it is large, and not needed again
        return plan

    def values(self, points: list[Sizes]) -> None:
        """Replaces the extents of inputs and outputs by expressions of the dimensions."""
        function = self.function
        for side, slots, kind in ((0, function.parameter_slots, "input"), (1, function.result_slots, "output")):
            values = [function.inputs, function.outputs][side]
            positions = [k for k, (one, _) in enumerate(slots) if one == kind]
            for number, k in enumerate(positions):
                shapes = {p: self._shapes[p][side][k] for p in points}
                values[number] = self._value(values[number], shapes, points)
        for k, (kind, _) in enumerate(function.result_slots):
            if kind == "next" and len({self._shapes[p][1][k] for p in points}) != 1:
                raise ExportError(
                    f"export of {function.request.name!r}",
                    f"the state depends on {', '.join(self.names)}",
                    "keep the state of one size, and pass what varies as arguments",
                )

    def _value(self, value: Value, shapes: dict[Sizes, tuple[int, ...]], points: list[Sizes]) -> Value:
        extents: list[Any] = []
        for axis in range(len(value.extents)):
            sizes = {p: shape[axis] for p, shape in shapes.items()}
            made = fitted(sizes, points[0], points[-1], self.names)
            if made is None:
                raise ExportError(
                    f"export of {self.function.request.name!r}",
                    f"dimension {axis} of {value.name!r} depends on {', '.join(self.names)} in a way that is not known",
                    "return an array whose sizes are sums and products of the dimensions",
                )
            extents.append(made)
        return Value(value.name, value.dtype, tuple(extents))


def ranged_body(
    function: TracedFunction, machine: CrossMachine, shared: Shared, all_dims: list[Dim], dims: list[Dim], check: str
) -> emit.Body:
    """The function with its plans for all sizes of its dimensions."""
    count = math.prod(d.most - d.min + 1 for d in dims)
    if check == "all" and count > MOST_CHECKED:
        raise ExportError(
            f"export of {function.request.name!r} for {count:,} sizes, each compared with its plan",
            f"{MOST_CHECKED:,} are possible, some 20 ms each",
            "narrow the ranges, or pass check='samples' to compare some of them only",
            source="",
        )
    ranged = _Ranged(function, machine, dims)
    boxes = boxes_of(ranged.plan, ranged.low, ranged.high, ranged.names, check)
    if len({tuple(sorted(box.plan.donated.items())) for box in boxes}) != 1:
        raise ExportError(
            f"export of {function.request.name!r}",
            "its state is computed in place for some sizes only",
            "narrow the range of the Dim",
        )
    keep(function, boxes[0].plan)
    places = {dim.name: k for k, dim in enumerate(all_dims)}
    numbers = {k: places[dim.name] for k, dim in enumerate(dims)}
    for values in (function.inputs, function.outputs):
        values[:] = [Value(v.name, v.dtype, tuple([_renumbered_extent(e, numbers) for e in v.extents])) for v in values]
    plans, guards = [], []
    for box in boxes:
        plans.append(_tables(box, shared, ranged, numbers))
        guards.append([_renumbered(guard, numbers) for guard in box.guards(ranged.low, ranged.high)])
    scalars = [_renumbered(one.expression, numbers) for one in ranged.lifted]
    return emit.Body(function, plans, guards, scalars)


def _tables(box: Box, shared: Shared, ranged: _Ranged, numbers: dict[int, int]) -> Tables:
    tables = tables_of(box.plan, shared)
    tables.uses += [(kind, index, _renumbered_extent(made, numbers)) for kind, index, made in box.uses]
    tables.uses += [
        (USE_SCALAR, k, Extent(_renumbered(one.expression, numbers), "")) for k, one in enumerate(ranged.lifted)
    ]
    return tables


def _renumbered(expression: Any, numbers: dict[int, int]) -> Any:
    if not isinstance(expression, tuple):
        return expression
    if expression[0] == "dimension":
        return "dimension", numbers[expression[1]]
    return (expression[0], *[_renumbered(one, numbers) for one in expression[1:]])


def _renumbered_extent(extent: Any, numbers: dict[int, int]) -> Any:
    return Extent(_renumbered(extent.expression, numbers), extent.text) if isinstance(extent, Extent) else extent


# --- scalars that depend on dimensions ---


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
