"""Loops whose iterations combine values in shared elements (`hl.atomic_add`), privatized.

The iterations are split into parts, each with a private table, and a second loop combines the tables in the order of
the parts. The number of parts depends on sizes only, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from hloom.compiler.kernel_ir.builder import number
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    For,
    Load,
    Stmt,
    Store,
    Together,
    Var,
)
from hloom.compiler.kernel_ir.rewrite import with_arrays
from hloom.ir.op_table import OPS
from hloom.ir.records import record
from hloom.ir.types import HLO_NAME, compute_dtype

__all__ = ["Parts", "in_parts"]

PARTS = 8  # at most so many
ENOUGH = 1 << 15  # element operations of a part, at least
TABLES = 16  # so many operations for each element of a table, which is begun and joined
_OPCODES = {"+": "add", "max": "maximum", "min": "minimum"}


class _Array(Protocol):
    @property
    def dtype(self) -> np.dtype: ...
    @property
    def shared(self) -> bool: ...
    @property
    def count(self) -> int: ...


@record(frozen=True, eq=False)
class Parts:
    """body: of the loop over parts, `part` its variable. each: the variable that holds the end of a part's iterations.
    joins: (the loop's variable, its number of iterations, its body) for each array. tables: the elements of each table,
    by pointer."""

    part: Var
    count: int
    each: Var
    body: list[Stmt]
    joins: list[tuple[Var, int, list[Stmt]]]
    tables: dict[Var, tuple[np.dtype, int]]


def in_parts(
    statements: Sequence[Stmt], item: Var, items: int, work: float, arrays: Mapping[Var, _Array], fresh
) -> Parts | None:
    """The loop in parts; None where it does not pay, or iterations do more with an array than combine values.

    work: of one iteration. fresh: makes names.
    """
    updates = _updates(statements, arrays)
    if updates is None:
        return None
    elements = sum(arrays[pointer].count for pointer in updates)
    count = min(PARTS, items, int(items * work) // max(ENOUGH, TABLES * elements))
    if count < 2:
        return None
    part, first, end = (Var("s64", fresh(hint)) for hint in ("part", "first", "end"))
    body: list[Stmt] = []
    joins = []
    tables: dict[Var, tuple[np.dtype, int]] = {}
    places: dict[Var, tuple[Var, Expr]] = {}
    for pointer, (op, update) in updates.items():
        array = arrays[pointer]
        table, start = Var(pointer.type, fresh(f"{pointer.name}_table")), Var("s64", fresh(f"{pointer.name}_start"))
        places[pointer], tables[table] = (table, start), (array.dtype, count * array.count)
        size = Const("s64", array.count)
        k, register = Var("s64", fresh("k")), HLO_NAME[compute_dtype(array.dtype)]
        neutral = number(OPS[_OPCODES[op]].neutral(array.dtype).item(), register)
        body.append(Assign(start, Binary("s64", "*", part, size)))
        begin = Store(table, Binary("s64", "+", start, k), neutral, update.stored)
        body.append(For(k, Const("s64", 0), size, Const("s64", 1), [begin]))
        joins.append(_join(pointer, table, update, array.count, count, register, fresh))
    total, parts = Const("s64", items), Const("s64", count)
    following = Binary("s64", "+", part, Const("s64", 1))
    body.append(Assign(first, Binary("s64", "//", Binary("s64", "*", part, total), parts)))
    body.append(Assign(end, Binary("s64", "//", Binary("s64", "*", following, total), parts)))
    body.append(For(item, first, end, Const("s64", 1), with_arrays(statements, places)))
    return Parts(part, count, end, body, joins, tables)


def _updates(statements: Sequence[Stmt], arrays: Mapping[Var, _Array]) -> dict[Var, tuple[str, Store]] | None:
    """(operation, one of its statements) by array, where all that is written is `p[i] = op(p[i], value)`."""
    found: dict[Var, tuple[str, Store]] = {}
    reads: dict[Var, int] = {}
    stores: dict[Var, int] = {}
    for statement in _all(statements):
        if isinstance(statement, Together):
            return None
        for expression in statement.expressions():
            for one in expression.walk():
                if isinstance(one, Load) and isinstance(one.pointer, Var):
                    reads[one.pointer] = reads.get(one.pointer, 0) + 1
        pointer = statement.pointer if isinstance(statement, Store) else None
        if not isinstance(statement, Store) or not isinstance(pointer, Var) or pointer not in arrays:
            continue
        if arrays[pointer].shared:  # where an index that is out of range is told
            continue
        op = _operation(statement)
        known = found.get(pointer)
        if op is None or (known is not None and known[0] != op):
            return None
        found[pointer] = (op, statement)
        stores[pointer] = stores.get(pointer, 0) + 1
    if not found or any(reads.get(pointer) != count for pointer, count in stores.items()):
        return None
    return found


def _all(statements: Sequence[Stmt]) -> Iterator[Stmt]:
    for statement in statements:
        yield from statement.walk()


def _operation(store: Store) -> str | None:
    """Of a statement that combines an element with a value; None for others."""
    value = store.value
    if isinstance(value, Cast):  # a sum of narrow integers
        value = value.operand
    match value:
        case Binary(op="+", left=Load(pointer=pointer, index=index)):
            op = "+"
        case Call(function=function, arguments=(Load(pointer=pointer, index=index), _)):
            op = function.partition("_")[0]
        case _:
            return None
    dtype = store.stored
    if pointer is not store.pointer or index != store.index or op not in _OPCODES or dtype in ("u64", "pred"):
        return None
    return None if store.augmented else op


def _join(pointer: Var, table: Var, update: Store, size: int, count: int, register: str, fresh):
    k, p, total = Var("s64", fresh("k")), Var("s64", fresh("p")), Var(register, fresh("total"), True)
    other = Load(register, table, Binary("s64", "+", Binary("s64", "*", p, Const("s64", size)), k))
    body: list[Stmt] = [
        Assign(total, Load(register, pointer, k)),
        For(
            p,
            Const("s64", 0),
            Const("s64", count),
            Const("s64", 1),
            [Assign(total, _again(update.value, total, other))],
        ),
        Store(pointer, k, total, update.stored),
    ]
    return k, size, body


def _again(value: Expr, total: Expr, other: Expr) -> Expr:
    """The operation of an update, of other operands."""
    match value:
        case Cast():
            return Cast(value.type, _again(value.operand, total, other))
        case Binary():
            return Binary(value.type, value.op, total, other)
    assert isinstance(value, Call)
    return Call(value.type, value.function, (total, other))
