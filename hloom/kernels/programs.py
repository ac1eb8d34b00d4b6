"""A kernel's loops as a program: the memory of each pointer, batches of calls, phases with their parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Const,
    Expr,
    For,
    Kernel,
    Load,
    Scratch,
    Stmt,
    Store,
    Var,
)
from hloom.compiler.kernel_ir.rewrite import assigned, read, with_arrays
from hloom.compiler.kernels.user import Phase, Program
from hloom.ir.records import field, record, replace
from hloom.ir.types import DTYPES, Shape
from hloom.kernels.combined import in_parts
from hloom.kernels.work import work_of

__all__ = ["Array", "Batch", "Body", "Draft", "Names", "Table", "Tile", "assembled", "fault_array", "passed_on"]

# The batch dimensions, outermost first: the size, and the operands that have the dimension.
Batch: TypeAlias = tuple[tuple[int, tuple[bool, ...]], ...]


class Table:
    """Constants that kernels read, of hloom's own functions: `TABLE[k]`."""

    def __init__(self, values: np.ndarray):
        self.values = values

    def __getitem__(self, index):
        return self.values[index]


class Names:
    """Names of variables, each given once."""

    def __init__(self, taken: Iterable[str] = ()):
        self.taken = set(taken)

    def fresh(self, hint: str) -> str:
        """A name that nothing else has."""
        name, k = hint, 1
        while name in self.taken:
            name, k = f"{hint}_{k}", k + 1
        self.taken.add(name)
        return name


@record(eq=False)
class Draft:
    """A parallel loop, or the statements between two loops, before its parameters are known.

    body: statements of one iteration, of which `item` is the number (None: they run once). items: iterations.
    prologue: before the first iteration. whole: one thread runs all of them. digits: the indices that the number of an
    iteration is made of. copies: of a loop that only copies an operand to a result, (the result, the operand).
    """

    body: list[Stmt]
    item: Var | None
    items: int
    scratches: list[Scratch] = field(default_factory=list)
    prologue: list[Stmt] = field(default_factory=list)
    whole: bool = False
    digits: tuple[Var, ...] = ()
    copies: tuple[Var, Var] | None = None


@record(frozen=True)
class Array:
    """The memory behind a pointer. dims: of one call. role: 'in', 'out', 'temporary' or 'table'. number: of an operand
    or a result. shared: one for all calls of a batch. table: the constants of a table."""

    dtype: np.dtype
    dims: tuple[int, ...]
    role: str
    number: int = 0
    shared: bool = False
    table: Table | None = None

    @property
    def count(self) -> int:
        return math.prod(self.dims)


@record(frozen=True, eq=False)
class Tile:
    """The length of a part of an index space. digit: the number of the part. step: elements of a part but the last.
    size: of all."""

    digit: Var
    step: int
    size: int


@record(eq=False)
class Body:
    """The loops of one call.

    arrays: by pointer. sizes: values of variables that are sizes. trips: the greatest number of iterations of loops, by
    variable, where it is known. spans: the least and the greatest value of the loops' variables. tiles: by the variable
    of a tile's length. is_open: whether some arrays have as much memory as is allowed, for loops without a bound.
    """

    name: str
    drafts: list[Draft]
    arrays: dict[Var, Array]
    sizes: dict[Var, int]
    names: Names
    trips: dict[Var, int] = field(default_factory=dict)
    spans: dict[Var, tuple[int | None, int | None]] = field(default_factory=dict)
    tiles: dict[Var, Tile] = field(default_factory=dict)
    is_open: bool = False

    def results(self) -> list[Array]:
        """The results, in order."""
        return sorted([a for a in self.arrays.values() if a.role == "out"], key=lambda a: a.number)


def fault_array(role: str, number: int = 0) -> Array:
    """Where a kernel says which index was out of range."""
    return Array(np.dtype(np.int64), (1,), role, number, shared=True)


def assembled(body: Body, batch: Batch = ()) -> tuple[Program, list[Shape]]:
    """(launches, shapes of the results) for a batch of calls."""
    sizes = [size for size, _ in batch]
    arrays, trips = dict(body.arrays), dict(body.sizes)
    drafts: list[Draft] = []
    for draft in body.drafts:
        drafts += [_batched(body, draft, batch)] if batch else _in_parts(body, draft, arrays, trips)
    arguments: dict[Var, str | int] = {}
    temporaries: dict[str, int] = {}
    tables: dict[str, np.ndarray] = {}
    for pointer, array in arrays.items():
        own = array.role in ("temporary", "table")
        arguments[pointer] = argument = f"{array.role}_{pointer.name}" if own else f"{array.role}{array.number}"
        if array.table is not None:
            tables[argument] = array.table.values
        elif own:
            calls = 1 if array.shared else math.prod(sizes)
            temporaries[argument] = max(1, array.count * calls) * array.dtype.itemsize
    arguments |= body.sizes
    phases = []
    for k, draft in enumerate(drafts):
        name = f"kernel_{body.name}_{k}" if len(drafts) > 1 else f"kernel_{body.name}"
        phases.append(_phase(draft, "".join(c if c.isalnum() else "_" for c in name), arguments, trips, arrays))
    shapes = [Shape(a.dtype, a.dims if a.shared else (*sizes, *a.dims)) for a in body.results()]
    return Program(tuple(phases), temporaries, tables), shapes


def _in_parts(body: Body, draft: Draft, arrays: dict[Var, Array], trips: dict[Var, int]) -> list[Draft]:
    """A loop that one thread would run, in parts where it combines values, and the loops that join them."""
    if not draft.whole or draft.item is None:
        return [draft]
    work = work_of(draft.body, body.sizes)
    made = in_parts(draft.body, draft.item, draft.items, work, body.arrays, body.names.fresh)
    if made is None:
        return [draft]
    trips[made.each] = -(-draft.items // made.count)
    for table, (dtype, count) in made.tables.items():
        arrays[table] = Array(dtype, (count,), "temporary")
    loop = replace(draft, body=made.body, item=made.part, items=made.count, whole=False, digits=(made.part,))
    return [loop, *[Draft(statements, k, count) for k, count, statements in made.joins]]


def _phase(
    draft: Draft, name: str, arguments: Mapping[Var, str | int], sizes: Mapping[Var, int], arrays: Mapping[Var, Array]
) -> Phase:
    """The kernel of a loop, with the parameters that it uses."""
    low, high = Var("s64", "lo"), Var("s64", "hi")
    loop = For(draft.item or Var("s64", "item"), low, high, Const("s64", 1), draft.body)
    body = [*draft.prologue, *draft.scratches, loop]
    reads = set(read(body))
    params = [var for var in arguments if var in reads]
    kernel = Kernel(name, (*params, low, high), body)
    work = max(1.0, work_of(draft.body, sizes))
    copies = _copies(draft, arrays)
    names = None if copies is None else (str(arguments[copies[0]]), str(arguments[copies[1]]))
    return Phase(kernel, tuple([arguments[var] for var in params]), draft.items, work, draft.whole, names)


def _copies(draft: Draft, arrays: Mapping[Var, Array]) -> tuple[Var, Var] | None:
    """The result and the operand of a loop that copies. A loop made of such a one, for derivatives, may compute
    something else, and between temporaries."""
    if draft.copies is None or [arrays[pointer].role for pointer in draft.copies] != ["out", "in"]:
        return None
    body = draft.body
    while len(body) == 1 and isinstance(body[0], For):
        body = body[0].body
    *before, last = body
    if draft.prologue or not all(isinstance(statement, Assign) for statement in before):
        return None
    if not isinstance(last, Store) or not isinstance(last.value, Load):
        return None
    return draft.copies if (last.pointer, last.value.pointer) == draft.copies else None


def _batched(body: Body, draft: Draft, batch: Batch) -> Draft:
    """A loop over the iterations of all calls: each has its own part of the arrays."""
    fresh = body.names.fresh
    calls = [Var("s64", fresh("call")) for _ in batch]
    every = rest = Var("s64", fresh("every"))
    head: list[Stmt] = []
    for var, size in [(draft.item, draft.items), *reversed(list(zip(calls, [n for n, _ in batch], strict=True)))]:
        if var is not None:
            head.append(Assign(var, Binary("s64", "%", rest, Const("s64", size))))
            following = Var("s64", fresh("rest"))
            head.append(Assign(following, Binary("s64", "//", rest, Const("s64", size))))
            rest = following
    starts: dict[Var, Var] = {}
    for pointer, array in body.arrays.items():
        own = [False if array.shared else array.role != "in" or which[array.number] for _, which in batch]
        number: Expr | None = None
        for call, (size, _), mine in zip(calls, batch, own, strict=True):
            if mine:
                number = call if number is None else Binary(
                    "s64", "+", Binary("s64", "*", number, Const("s64", size)), call
                )  # fmt: skip
        if number is not None:
            start = Var("s64", fresh(f"{pointer.name}_of_call"))
            head.append(Assign(start, Binary("s64", "*", number, Const("s64", array.count))))
            starts[pointer] = start
    used = {*read([*draft.prologue, *draft.body])}
    unused = {start for pointer, start in starts.items() if pointer not in used}
    head = [s for s in head if not (isinstance(s, Assign) and s.var in unused)]
    inner = with_arrays([*draft.prologue, *draft.body], {p: (p, start) for p, start in starts.items()})
    items = draft.items * math.prod([n for n, _ in batch])
    return replace(draft, body=[*head, *inner], item=every, items=items, prologue=[])


def passed_on(drafts: Sequence[Draft], arrays: dict[Var, Array], names: Names) -> None:
    """Numbers that statements between the loops compute for later ones go through memory."""
    makers: dict[Var, Draft] = {}
    cells: dict[Var, Var] = {}
    zero = Const("s64", 0)
    for draft in drafts:
        own = assigned([*draft.prologue, *draft.body])
        loads: list[Stmt] = []
        # Statements that run once may assign a number under a condition: otherwise it keeps its value.
        kept = assigned(draft.body) if draft.item is None else ()
        for var in dict.fromkeys([*read([*draft.prologue, *draft.body]), *kept]):
            maker = makers.get(var)
            if maker is None or (var in own and draft.item is not None):
                continue
            if var not in cells:
                cells[var] = Var(f"*{var.type}", names.fresh(f"{var.name}_cell"))
                arrays[cells[var]] = Array(DTYPES[var.type], (1,), "temporary")
            if not any(isinstance(s, Store) and s.pointer is cells[var] for s in maker.body):
                maker.body.append(Store(cells[var], zero, var, var.type))
            loads.append(Assign(var, Load(var.type, cells[var], zero)))
        (draft.body if draft.item is None else draft.prologue)[:0] = loads
        if draft.item is None:
            makers |= dict.fromkeys(own, draft)
