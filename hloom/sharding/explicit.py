"""Layouts in the types of traced values: along mesh axes of the type Explicit, what `hl.typeof(x).sharding` says.

Each trace knows the layouts of its values that explicit axes split (`Trace.layouts`), and derives that of a result when
an op is recorded (`hloom.ir.spmd.explicit`). Nothing is recorded where no argument has such a layout.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hloom.ir.spmd.explicit import Dims, Rules
from hloom.ir.types import TupleShape
from hloom.sharding.meshes import AbstractMesh, AxisType, Mesh
from hloom.sharding.shardings import NamedSharding, PartitionSpec


class _State(threading.local):
    def __init__(self):
        self.lenient = False  # ambiguous layouts are no errors
        self.hidden_axes: frozenset = frozenset()  # axes that are left to the compiler, whatever their type


_state = _State()


def is_lenient() -> bool:
    """Whether ambiguous layouts are no errors now."""
    return _state.lenient


def explicit_sizes(mesh: Mesh | AbstractMesh) -> dict[str, int]:
    """The sizes of the axes of a mesh whose layouts are part of types, by name."""
    axes = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    return {str(n): s for n, s, t in axes if t is AxisType.Explicit and str(n) not in _state.hidden_axes}


def explicit_dims(sharding, rank: int) -> Dims | None:
    """What a sharding says about explicit axes; None where they split nothing."""
    if sharding.__class__ is not NamedSharding:
        return None
    sizes = explicit_sizes(sharding.mesh)
    dims = tuple(tuple(str(n) for n in axes if str(n) in sizes) for axes in sharding.spec.axes())
    return dims + ((),) * (rank - len(dims)) if any(dims) else None


class Layouts:
    """The layouts of a trace's values over the explicit axes of one mesh."""

    def __init__(self, mesh: Mesh | AbstractMesh):
        self.mesh = mesh
        self.found: dict[Any, Any] = {}  # by instruction, what is not replicated: Dims, of a tuple a list

    def note(self, instruction, dims: Dims | None) -> None:
        """Records a layout that is known."""
        if dims is not None:
            self.found[instruction] = dims
        else:
            self.found.pop(instruction, None)

    def record(self, instruction, strict: bool) -> None:
        """Derives the layout of a result from those of the operands. Raises ShardingTypeError."""
        rules = Rules(explicit_sizes(self.mesh), strict)
        dims = rules.result(instruction, [self.of(o) for o in instruction.operands])
        self.note(instruction, dims if not isinstance(dims, list) or any(dims) else None)

    def of(self, instruction):
        found = self.found.get(instruction)
        if found is None and isinstance(instruction.shape, TupleShape):
            return [None] * len(instruction.shape.elements)
        return _visible(found) if _state.hidden_axes else found

    def sharding(self, instruction, mesh: Mesh | AbstractMesh | None = None) -> NamedSharding:
        """The layout of a value as a NamedSharding whose spec has an entry for each dimension."""
        names = {str(n): n for n in self.mesh.axis_names}
        dims = self.of(instruction) or ((),) * len(instruction.shape.dims)
        return NamedSharding(mesh or self.mesh, PartitionSpec(*(tuple(names[n] for n in a) or None for a in dims)))


def _visible(layout):
    """A layout without the hidden axes."""
    if layout is None:
        return None
    if isinstance(layout, list):
        return [_visible(element) for element in layout]
    dims = tuple(tuple(n for n in axes if n not in _state.hidden_axes) for axes in layout)
    return dims if any(dims) else None


@contextmanager
def lenient() -> Iterator[None]:
    """Within it an op whose layout is ambiguous raises no error: its result is whole along the axis in question."""
    before, _state.lenient = _state.lenient, True
    try:
        yield
    finally:
        _state.lenient = before


@contextmanager
def hidden(axes) -> Iterator[None]:
    """Within it these mesh axes are left to the compiler, as if they had the type Auto."""
    before, _state.hidden_axes = _state.hidden_axes, _state.hidden_axes | frozenset(map(str, axes))
    try:
        yield
    finally:
        _state.hidden_axes = before


__all__ = ["Layouts", "explicit_dims", "explicit_sizes", "hidden", "is_lenient", "lenient"]
