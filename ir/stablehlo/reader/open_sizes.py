"""A StableHLO program for arguments of many sizes, read once.

Open sizes (`tensor<?x4xf32>`) are dimensions of a `GuardedScope`: decisions on sizes (equality, overflow of an i32, an
assertion) are made for a sample, and become conditions of the module. Sizes that must be equal become one dimension.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from hloom.ir.errors import ShapeError
from hloom.ir.module import Module
from hloom.ir.ops.specialize import Specialization
from hloom.ir.records import record
from hloom.ir.sizes.expressions import LARGEST, Comparison, Dim, Scope, Size, SizeExpression, dims_of, size_with
from hloom.ir.sizes.guards import GuardedScope, inner
from hloom.ir.sizes.policy import SMALLEST
from hloom.ir.stablehlo.reader.module import Converter
from hloom.ir.stablehlo.syntax import Operation, Program
from hloom.ir.stablehlo.types import Tensor

__all__ = ["OpenModule", "bounds_of", "open_module"]

_MOST = (1 << 31) - 1  # bound of an unbounded size: `get_dimension_size` returns an i32
_BOUNDS = re.compile(r"#stablehlo\.(?:bounds<([^<>]*)>|type_extensions<\s*bounds\s*=\s*\[([^<>\[\]]*)\]\s*>)")


@record(frozen=True)
class OpenModule:
    """A module for arguments whose sizes satisfy its conditions.

    places: the origin of each size that is not a literal in the text, by name: the argument's index and axis, or None
    for the argument's value. fixed: those of them that are numbers in the module. shapes: the dimensions of each
    argument, including those of `dims`. alone: those of `dims` that occur in no shape.
    """

    module: Module
    places: Mapping[str, tuple[int, int | None]]
    fixed: Mapping[str, int]
    conditions: Sequence[Comparison]
    shapes: Sequence[tuple[Size, ...]]
    dims: Mapping[str, Dim]
    alone: Sequence[Dim]

    def serves(self, shapes: Sequence[Sequence[int]], values: Sequence[int | None]) -> bool:
        """Whether the module is valid for arguments with these shapes and scalar values."""
        sizes = {}
        for name, (k, axis) in self.places.items():
            size = values[k] if axis is None else shapes[k][axis]
            if size is None or self.fixed.get(name, size) != size:
                return False
            sizes[name] = size
        return all([condition.holds(sizes) for condition in self.conditions])

    def sizes(self, values: Sequence[int | None]) -> list[int]:
        """The sizes in `alone`, for values of the arguments."""
        found = []
        for dim in self.alone:
            value = values[self.places[dim.name][0]]
            assert value is not None, dim.name
            found.append(value)
        return found


def bounds_of(type_: Tensor) -> tuple[int | None, ...]:
    """The bound of each dimension, from the type's encoding: `#stablehlo.bounds<8, ?>`. Raises ValueError."""
    found = _BOUNDS.fullmatch(type_.encoding)
    if found is None:
        return (None,) * len(type_.dims)
    parts = [part.strip() for part in (found[1] or found[2] or "").split(",")]
    if len(parts) != len(type_.dims) or not all(part == "?" or part.isdecimal() for part in parts):
        raise ValueError(f"{type_.encoding} bounds {len(parts)} dimensions of {len(type_.dims)}")
    return tuple([None if part == "?" else int(part) for part in parts])


def open_module(
    program: Program, function: Operation, shapes: Sequence[Sequence[int]], values: Sequence[int | None]
) -> OpenModule:
    """The module of a function for arguments of these shapes, and of all others with the same decisions.

    values: of scalar arguments that may be sizes. Raises the errors of `to_module` for these shapes and values; also
    UndecidedSizeError if an op does not support open sizes.
    """
    found = _Open(function, shapes, values)
    converter = Converter(program, False)
    module = converter.module(function.attributes["sym_name"], found.shapes, found.values)[0]
    asked = {p for p in module.entry.parameters if p in converter.given.asked}
    return found.finished(module, {found.value_names[p["index"]] for p in asked})


class _Open:
    """The sizes of a function's arguments: open sizes, and the values of scalars."""

    def __init__(self, function: Operation, shapes: Sequence[Sequence[int]], values: Sequence[int | None]):
        self.places: dict[str, tuple[int, int | None]] = {}
        self.value_names: dict[int, str] = {}
        self.outer: dict[str, Dim] = {}  # the free ones
        self.fixed: dict[str, int] = {}
        types = function.attributes["function_type"].inputs
        names = [re.sub(r"\W", "_", name.lstrip("%")) for name, _ in function.regions[0].arguments]
        named: list[list[str | None]] = []
        sample: dict[str, int] = {}
        for k, (type_, name, shape) in enumerate(zip(types, names, shapes, strict=True)):
            row: list[str | None] = []
            for axis, (stated, bound) in enumerate(zip(type_.dims, bounds_of(type_), strict=True)):
                row.append(None if stated is not None else self._add(f"{name}_{axis}", (k, axis), shape[axis], bound))
            named.append(row)
            value = values[k]
            if value is not None:
                self.value_names[k] = self._add(name, (k, None), value, None)
        sizes = {n: (shapes[k][a] if a is not None else values[k]) for n, (k, a) in self.places.items()}
        sample = {name: size for name, size in sizes.items() if name in self.outer and size is not None}
        self.scope = GuardedScope(sample)
        self.inner: dict[str, Size] = {n: self.scope.dim(dim, SMALLEST) for n, dim in self.outer.items()}
        self.inner |= self.fixed
        self.shapes = [
            tuple([size if name is None else self.inner[name] for name, size in zip(row, shape, strict=True)])
            for row, shape in zip(named, shapes, strict=True)
        ]
        self.values = [self.inner[self.value_names[k]] if k in self.value_names else None for k in range(len(types))]

    def _add(self, wanted: str, place: tuple[int, int | None], size: int, bound: int | None) -> str:
        name = wanted if wanted.isidentifier() and wanted not in self.places else f"size_{len(self.places)}"
        self.places[name] = place
        most = LARGEST if bound is None and place[1] is None else _MOST if bound is None else bound
        if SMALLEST <= size <= most:
            self.outer[name] = Dim(name, 0, most)
        else:
            self.fixed[name] = size
        return name

    def finished(self, module: Module, asked: set[str]) -> OpenModule:
        """The module over independent dimensions. asked: the argument values that the module depends on."""
        used = {name for name, (_, axis) in self.places.items() if axis is not None or name in asked}
        dims, left, sizes = self._independent(used, asked)
        entry = Specialization(sizes).computation(module.entry)
        shapes = [tuple([size_with(size, sizes) for size in shape]) for shape in self.shapes]
        shown = {name for shape in shapes for size in shape for name in dims_of(size)}
        kept = {dim.name: dim for dim in left.values()}
        return OpenModule(
            module.with_entry(entry),
            {name: place for name, place in self.places.items() if name in used},
            {name: size for name, size in self.fixed.items() if name in used},
            self._conditions({inner(n): self.outer[n] for n in dims}),
            shapes,
            kept,
            [dim for name, dim in kept.items() if name not in shown],
        )

    def _independent(self, used: set[str], asked: set[str]) -> tuple[dict[str, Dim], dict[str, Dim], dict[str, Size]]:
        """(the dimensions of a scope with the guards' facts, by name; the independent ones, and the sizes of all, by
        inner name), after eliminating dimensions by the guards' equations."""
        free = {name: size for name, size in self.inner.items() if name in used and name in self.outer}
        merged = _merged({inner(n): size for n, size in free.items() if isinstance(size, Dim)}, self.scope.guards,
                         {inner(n) for n in asked})  # fmt: skip
        scope = Scope()
        dims = {n: Dim(n, SMALLEST, d.most, scope=scope) for n, d in self.outer.items() if n in used}
        left = {inner(n): dim for n, dim in dims.items() if inner(n) not in merged}
        sizes: dict[str, Size] = {**left, **{n: size_with(size, left) for n, size in merged.items()}}
        for n, dim in dims.items():
            size = sizes[inner(n)]
            if isinstance(size, SizeExpression) and size is not dim:
                _add(scope, size >= SMALLEST)
                _add(scope, size <= dim.most)
        for guard in self.scope.guards:
            if all(name in sizes for name in (*dims_of(guard.left), *dims_of(guard.right))):
                _add(scope, guard.over(sizes))
        return dims, left, sizes

    def _conditions(self, outer: Mapping[str, Dim]) -> list[Comparison]:
        """The conditions on sizes of arguments: bounds, and decisions."""
        known = [*(dim >= SMALLEST for dim in outer.values()), *(dim <= dim.most for dim in outer.values())]
        known += [guard.over(outer) for guard in self.scope.guards]
        return [*{repr(c): c for c in known if isinstance(c, Comparison)}.values()]


def _add(scope: Scope, known: Comparison | bool) -> None:
    if isinstance(known, Comparison):
        scope.add(repr(known), known)
    elif not known:
        raise ShapeError("a program for arguments of these sizes", "no sizes are possible", "pass other arrays")


def _merged(dims: Mapping[str, Dim], guards: Sequence[Comparison], first: set[str]) -> dict[str, Size]:
    """Substitutions of dimensions that equations determine as others, or as numbers. first: those preferably
    replaced."""
    found: dict[str, Size] = {}
    order = sorted(dims.values(), key=lambda dim: dim.name not in first)
    for guard in guards:
        if guard.how != "==":
            continue
        difference = size_with(guard.left, found) - size_with(guard.right, found)
        if not isinstance(difference, SizeExpression):
            continue
        for dim in order:
            if dim.name in found or dim.name not in dims_of(difference):
                continue
            rest = _without(difference, dim)
            if rest is not None:
                found = {name: size_with(size, {dim.name: rest}) for name, size in found.items()} | {dim.name: rest}
                break
    return found


def _without(difference: SizeExpression, dim: Dim) -> Size | None:
    """The size of a dimension for which a difference is 0; None if the dimension is not a separate term."""
    difference = difference // math.gcd(*[factor for _, factor in difference.terms])
    try:
        rest = size_with(difference, {dim.name: 0})
    except ShapeError:  # it divides
        return None
    part = difference - rest
    if isinstance(part, SizeExpression) and part.terms == dim.terms:
        return -rest
    return rest if isinstance(part, SizeExpression) and (-part).terms == dim.terms else None
