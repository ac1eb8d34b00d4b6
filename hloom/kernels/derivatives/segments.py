"""Loops in segments: where the tape of a whole loop would be too large, the arrays and variables at the beginning of
each segment are kept, and the backward pass runs one segment again, with a tape, before it goes back through it.

Of n iterations with tapes of t bytes and a state of a bytes, segments of sqrt(n a / t) iterations take the least
memory: 2 sqrt(n a t). Source: A. Griewank, A. Walther, Evaluating Derivatives (2008), chapter
12: checkpoints in one level.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from hloom.compiler.kernel_ir.nodes import Assign, Binary, Call, Const, Expr, For, Load, Stmt, Store, Var
from hloom.compiler.kernel_ir.rewrite import assigned, read
from hloom.compiler.kernel_ir.types import REGISTER
from hloom.ir.records import record, replace
from hloom.ir.types import DTYPES
from hloom.kernels.programs import Array, Names

__all__ = ["Segments", "segments_of"]


@record(eq=False)
class Segments:
    """A loop in segments. loop: over one segment. length: its iterations, at most. count: of segments. part: the number
    of a segment. bounds: statements that compute where it begins and ends. state: what is kept at its beginning, with
    the memory for all segments and the elements of one."""

    loop: For
    length: int
    count: int
    part: Var
    bounds: list[Stmt]
    state: dict[Var, tuple[Var, int]]
    names: Names

    @property
    def bytes(self) -> int:
        """Of what is kept."""
        return sum(array.count * array.dtype.itemsize for array in self.arrays().values())

    def arrays(self) -> dict[Var, Array]:
        """The memory of what is kept."""
        return {
            kept: Array(DTYPES[kept.type[1:]], (self.count * size,), "temporary") for kept, size in self.state.values()
        }

    def forward(self, body: list[Stmt]) -> Stmt:
        """All segments. body: of one iteration."""
        saved = self._copies(lambda kept, at, var, index: Store(kept, at, _value(var, index), kept.type[1:]))
        inner = [*self.bounds, *saved, replace(self.loop, body=body)]
        return For(self.part, Const("s64", 0), Const("s64", self.count), Const("s64", 1), inner)

    def backward(self, body: list[Stmt], back: Stmt) -> Stmt:
        """All segments from the last to the first. body: of an iteration with its tape. back: goes back through a
        segment."""

        def restored(kept: Var, at: Expr, var: Var, index: Expr) -> Stmt:
            stored = kept.type[1:]
            value = Load(REGISTER.get(stored, stored), kept, at)
            return Store(var, index, value, stored) if var.type[0] == "*" else Assign(var, value)

        inner = [*self.bounds, *self._copies(restored), replace(self.loop, body=body), back]
        return For(self.part, Const("s64", self.count - 1), Const("s64", -1), Const("s64", -1), inner)

    def _copies(self, made) -> list[Stmt]:
        copies: list[Stmt] = []
        for var, (kept, size) in self.state.items():
            first = Binary("s64", "*", self.part, Const("s64", size))
            if var.type[0] != "*":
                copies.append(made(kept, first, var, Const("s64", 0)))
                continue
            k = Var("s64", self.names.fresh("k"))
            copy = made(kept, Binary("s64", "+", first, k), var, k)
            copies.append(For(k, Const("s64", 0), Const("s64", size), Const("s64", 1), [copy]))
        return copies


def _value(var: Var, index: Expr) -> Expr:
    if var.type[0] != "*":
        return var
    stored = var.type[1:]
    return Load(REGISTER.get(stored, stored), var, index)


def segments_of(
    loop: For, trips: int, tape_bytes: int, sizes: Mapping[Var, int], names: Names, stored: Iterable[Var]
) -> Segments:  # fmt: skip
    """The segments of a loop that take the least memory. trips: its iterations. tape_bytes: of the tape of all.
    sizes: elements of arrays, by pointer. stored: the arrays that the loop changes."""
    variables = [v for v in dict.fromkeys([*assigned(loop.body), *read(loop.body)]) if v.varies and v.type[0] != "*"]
    state: dict[Var, tuple[Var, int]] = {}
    for var in (*variables, *stored):
        stored_type = var.type.removeprefix("*")
        state[var] = Var(f"*{stored_type}", names.fresh(f"{var.name}_kept")), sizes.get(var, 1)
    held = sum(size * DTYPES[kept.type[1:]].itemsize for kept, size in state.values())
    length = max(1, min(trips, round(math.sqrt(trips * held / max(1, tape_bytes / trips)))))
    part, first, last = (Var("s64", names.fresh(name)) for name in ("part", "first", "last"))
    assert isinstance(loop.step, Const)
    step = length * loop.step.value
    bounds: list[Stmt] = [
        Assign(first, Binary("s64", "+", loop.start, Binary("s64", "*", part, Const("s64", step)))),
        Assign(last, Call("s64", "min" if step > 0 else "max",
                          (Binary("s64", "+", first, Const("s64", step)), loop.stop))),
    ]  # fmt: skip
    one = replace(loop, start=first, stop=last)
    return Segments(one, length, -(-trips // length), part, bounds, state, names)
