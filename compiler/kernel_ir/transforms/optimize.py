"""Which loops of a kernel are transformed, by what it gains (docs/decisions/2026-11-28-transformations.md).

transformed(kernel, {"n": 200}) -> the kernel, or itself where nothing is gained
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hloom.compiler.kernel_ir.affine.dependences import SAME, Access, Distance, Nest, Range
from hloom.compiler.kernel_ir.nodes import Assign, Call, For, Kernel, Stmt
from hloom.compiler.kernel_ir.rewrite import mapped, read
from hloom.compiler.kernel_ir.transforms.checks import with_short_checks
from hloom.compiler.kernel_ir.transforms.divide import divided
from hloom.compiler.kernel_ir.transforms.interchange import can_be_interchanged, interchanged
from hloom.compiler.kernel_ir.transforms.jam import can_be_jammed, jammed
from hloom.compiler.kernel_ir.transforms.nests import Around, Path, innermost, is_within
from hloom.compiler.kernel_ir.transforms.peel import peeled
from hloom.compiler.kernel_ir.transforms.registers import in_registers
from hloom.ir.records import replace

__all__ = ["transformed"]

ROWS = 4  # loops that are done side by side
MOST_NODES = 150  # of a body that is repeated
SHORT = 8  # iterations; shorter loops are unrolled
CHAIN = 3  # iterations within which an element that was written is read again
# Functions of few instructions: four of larger ones side by side leave no registers.
_CHEAP = (
    "min", "max", "accm", "sum_", "prod_", "abs", "sqrt", "fma", "select", "sign", "bitcast", "convert", "floor",
)  # fmt: skip
_APART = 10.0  # what it costs that the iterations of a loop wait for each other
_STRIDED = 8.0  # what an element costs that does not lie beside the last one

Change = Callable[[Around, Nest, Path], "dict[int, list[Stmt]]"]


def transformed(kernel: Kernel, ranges: Mapping[str, Range]) -> Kernel:
    """A kernel whose loops compute the same elements by the same operations, faster.

    ranges: of integer parameters the value, or the least and the greatest.
    """
    made = kernel
    body = peeled(Around(kernel, ranges), kernel.body)
    if any(one is not other for one, other in zip(body, kernel.body, strict=False)) or len(body) != len(kernel.body):
        made = replace(kernel, body=body)
    for change in (_interchange, _jam, _divide, _registers):
        around = Around(made, ranges)
        body = [one for statement in made.body for one in _changed(around, statement, change)]
        if any(one is not other for one, other in zip(body, made.body, strict=False)) or len(body) != len(made.body):
            made = replace(made, body=body)
    return with_short_checks(made, ranges)


def _changed(around: Around, statement: Stmt, change: Change) -> list[Stmt]:
    paths = [*innermost([statement])]
    if not paths:
        return [statement]
    nest = around.nest([statement])
    found: dict[int, list[Stmt]] = {}
    for path in paths:
        found |= change(around, nest, path)
    return mapped([statement], lambda one: found.get(id(one))) if found else [statement]


def _is_short(nest: Nest, loop: For, least: int) -> bool:
    trips = nest.trips(loop)
    return trips is not None and trips < least


# --- which loop is innermost


def _interchange(around: Around, nest: Nest, path: Path) -> dict[int, list[Stmt]]:
    if len(path) < 2 or len(path[-2].body) != 1 or around.is_of_items(path[-2]):
        return {}
    if any(_is_short(nest, loop, SHORT) for loop in path[-2:]):
        return {}
    now, then = (_cost(around, nest, path, loop) for loop in (path[-1], path[-2]))
    if then * 1.5 > now or not can_be_interchanged(around, nest, path):
        return {}
    return {id(path[-2]): [interchanged(*path[-2:])]}


def _cost(around: Around, nest: Nest, path: Path, loop: For) -> float:
    """What an iteration costs where this loop is the innermost one."""
    among = [access for access in nest.accesses if is_within(access, path)]
    total = 0.0
    for access in among:
        form = around.index(access.index, nest, {path[-1].var})
        stride = None if form is None else form.terms.get(loop.var, 0)
        total += 0.0 if stride == 0 else 1.0 if stride in (1, -1) else _STRIDED
    depth = len(path) - 1 if loop is path[-1] else len(path) - 2
    waits = any(nest.may_meet(first, second, [*[SAME] * depth, (1, CHAIN)])
                for first, second in nest.pairs(among) if first.written and not second.written)  # fmt: skip
    return total + _APART * waits


# --- loops side by side


def _jam(around: Around, nest: Nest, path: Path) -> dict[int, list[Stmt]]:
    if len(path) < 2 or _is_short(nest, path[-1], SHORT) or _is_short(nest, path[-2], 2 * ROWS):
        return {}
    if not all(name.startswith(_CHEAP) for name in path[-2].called()):
        return {}
    if not (_waits(around, nest, path) or _writes_again(around, nest, path)):
        return {}
    if sum(1 for s in path[-1].walk() for e in s.expressions() for _ in e.walk()) > MOST_NODES:
        return {}
    if not can_be_jammed(around, nest, path[:-1], ROWS):
        return {}
    return {id(path[-2]): jammed(around, path[-2], ROWS)}


def _waits(around: Around, nest: Nest, path: Path) -> bool:
    """Whether each iteration of the last loop waits for the one before it."""
    loop = path[-1]
    for statement in loop.walk():
        if isinstance(statement, Assign) and statement.var.type in ("f32", "f64") and not _is_sum(statement):
            if statement.var in around.varying and statement.var in read([statement]):
                return True
    among: list[Access] = [access for access in nest.accesses if is_within(access, path)]
    soon: list[Distance] = [*[SAME] * (len(path) - 1), (1, CHAIN)]
    return any(
        first.written and not second.written and nest.may_meet(first, second, soon)
        for first, second in nest.pairs(among)
    )


def _writes_again(around: Around, nest: Nest, path: Path) -> bool:
    """Whether each iteration of the loop around the last one changes the same elements again."""
    outer, inner = path[-2:]
    for access in nest.accesses:
        if access.written and is_within(access, path):
            form = around.index(access.index, nest, {outer.var, inner.var})
            if form is not None and not form.terms.get(outer.var) and form.terms.get(inner.var):
                return True
    return False


def _is_sum(statement: Assign) -> bool:
    """Whether the order of what is combined is free, so that it is computed in vectors."""
    return isinstance(statement.value, Call) and statement.value.function.partition("_")[0] in ("sum", "prod")


# --- slow functions apart


def _divide(around: Around, nest: Nest, path: Path) -> dict[int, list[Stmt]]:
    if _is_short(nest, path[-1], SHORT) or around.is_of_items(path[-1]):
        return {}
    made = divided(around, path[-1])
    return {} if made is None else {id(path[-1]): made}


# --- elements in variables


def _registers(around: Around, nest: Nest, path: Path) -> dict[int, list[Stmt]]:
    made = in_registers(around, nest, path)
    return {} if made is None else {id(path[-1]): made}
