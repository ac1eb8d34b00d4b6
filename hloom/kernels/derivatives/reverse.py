"""Reverse mode: the loops run again and record the values they overwrite, then run backwards, statement by statement.

A statement that overwrites a variable or an element pushes the old value on the tape if the backward pass needs it: in
a partial derivative, an index, a test. Sums need no old values. Values still available when a block is run backwards
are recomputed. Source: A. Griewank, A. Walther, Evaluating Derivatives (2008), chapters 3 and 4; the choice of recorded
values follows L. Hascoet, U. Naumann, V. Pascual (2005).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from hloom.compiler.kernel_ir.builder import number
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Const,
    Expr,
    For,
    If,
    Load,
    Scratch,
    Stmt,
    Store,
    Var,
    While,
)  # fmt: skip
from hloom.compiler.kernel_ir.rewrite import assigned, read, with_arrays
from hloom.compiler.kernel_ir.types import REGISTER
from hloom.config import config
from hloom.ir.records import replace
from hloom.ir.types import DTYPES
from hloom.kernels.derivatives.activity import FLOATS, active, floats, statements_of, unsupported
from hloom.kernels.derivatives.cotangents import Cotangents
from hloom.kernels.derivatives.disjoint import is_disjoint, loops_of
from hloom.kernels.derivatives.executions import executions
from hloom.kernels.derivatives.jumps import has_break, structured
from hloom.kernels.derivatives.segments import Segments, segments_of
from hloom.kernels.derivatives.tape import Place, Tape
from hloom.kernels.frontend.races import index_of
from hloom.kernels.programs import Array, Body, Draft, fault_array

__all__ = ["cotangents_of"]


def cotangents_of(body: Body, operands: Sequence[int], results: Sequence[int], fault: Var, calls: int = 1) -> Body:
    """The loops that compute the cotangents of operands.

    operands: their cotangents are the results, in this order. results: those with cotangents, which follow the
    operands. calls: how many share the memory of the tape. Raises DifferentiationError for operations without a
    derivative, or if the tape is larger than `hl.config.tape_bytes`. The tape of loops without a bound may turn out to
    be too small: the kernel then has one more result, `fault`, which is FULL.
    """
    return _Reverse(body, operands, results, fault, calls).made()


class _Reverse:
    def __init__(self, body: Body, operands: Sequence[int], results: Sequence[int], fault: Var, calls: int):
        drafts = [structured(draft) for draft in body.drafts]
        self.body = _with_arrays_of(replace(body, drafts=drafts), drafts[:-1])
        self.operands, self.results, self.fault, self.calls = list(operands), list(results), fault, calls
        self.is_open = body.is_open  # whether a tape may be full
        self.active = active(self.body, operands)
        self.shadows: dict[Var, Var] = {}
        self.cotangents = Cotangents(body.name, self.active, self.shadow, body.names)
        self.arrays: dict[Var, Array] = {}

    def shadow(self, var: Var) -> Var:
        """The variable, or the pointer, of cotangents."""
        found = self.shadows.get(var)
        if found is None:
            name = self.body.names.fresh(f"{var.name}_bar")
            found = self.shadows[var] = Var(var.type, name, var.type[0] != "*")
        return found

    def made(self) -> Body:
        drafts = self.body.drafts
        needed = [_needed(self, draft) for draft in drafts]
        forward, backward = list[Draft](), list[Draft]()
        for k, draft in enumerate(drafts):
            earlier = set().union(*map(_loads, needed[:k]))
            last = k == len(drafts) - 1
            loop = _Loop(self, draft, needed[k] | earlier, separate=not last)
            if (segments := loop.segments()) is not None:
                needed[k] |= _definitions_of(self, draft, set(read(segments.loop.body)) - set(segments.state))
                loop = _Loop(self, draft, needed[k] | earlier, separate=not last, segments=segments)
            there, back = loop.made()
            forward += there
            backward[:0] = back
        before = self._arrays()
        drafts = [*before, *forward, *backward]
        name = f"{self.body.name}_vjp"
        return replace(self.body, name=name, drafts=drafts, arrays=self.arrays, is_open=self.is_open)

    def _arrays(self) -> list[Draft]:
        """The memory of all, and the loops that initialize cotangents."""
        count = sum(array.role == "in" for array in self.body.arrays.values())
        drafts = []
        for pointer, array in self.body.arrays.items():
            kept = array if array.role in ("in", "table") else replace(array, role="temporary", number=0)
            self.arrays[pointer] = fault_array("temporary") if pointer is self.fault else kept
            if array.role == "in" and array.number in self.operands and floats(pointer):
                bar = self.shadow(pointer)
                self.arrays[bar] = replace(array, role="out", number=self.operands.index(array.number))
                drafts.append(self._filled(bar, array.count, None))
            elif pointer in self.active:
                bar = self.shadow(pointer)
                self.arrays[bar] = replace(array, role="temporary", number=0)
                given = None
                if array.role == "out" and array.number in self.results:
                    given = Var(pointer.type, self.body.names.fresh(f"{pointer.name}_cotangent"))
                    number_ = count + self.results.index(array.number)
                    self.arrays[given] = replace(array, role="in", number=number_)
                drafts.append(self._filled(bar, array.count, given))
            elif array.role == "out" and array.number in self.results:  # an operand that nothing depends on
                given = Var(pointer.type, self.body.names.fresh(f"{pointer.name}_cotangent"))
                self.arrays[given] = replace(array, role="in", number=count + self.results.index(array.number))
        if self.is_open:
            self.arrays[self.fault] = fault_array("out", len(self.operands))
            zero = Const("s64", 0)
            drafts.append(Draft([Store(self.fault, zero, zero, "s64")], None, 1))
        return drafts

    def _filled(self, pointer: Var, count: int, given: Var | None) -> Draft:
        item = Var("s64", self.body.names.fresh("i"))
        stored = pointer.type[1:]
        kind = stored if stored in FLOATS else "f32"
        value = number(0.0, kind) if given is None else Load(kind, given, item)
        return Draft([Store(pointer, item, value, stored)], item, count)


def _with_arrays_of(body: Body, drafts: Sequence[Draft]) -> Body:
    """The same loops with memory that lasts until the backward pass in the place of the scratch memory of some."""
    arrays, made = dict(body.arrays), list[Draft]()
    for draft in body.drafts:
        if draft not in drafts or not draft.scratches:
            made.append(draft)
            continue
        starts: dict[Var, tuple[Var, Expr]] = {}
        for scratch in draft.scratches:
            pointer, size = scratch.var, Const("s64", scratch.size)
            arrays[pointer] = Array(DTYPES[pointer.type[1:]], (max(1, draft.items) * scratch.size,), "temporary")
            if draft.item is not None:
                starts[pointer] = pointer, Binary("s64", "*", draft.item, size)
        made.append(replace(draft, body=with_arrays(draft.body, starts), scratches=[]))
    return replace(body, drafts=made, arrays=arrays)


def _is_check(statement: Stmt, fault: Var) -> bool:
    """Whether a statement ends the kernel where an index is out of range."""
    return isinstance(statement, If) and any(isinstance(s, Store) and s.pointer is fault for s in statement.then)


def _walk(statements: Iterable[Stmt], fault: Var) -> Iterator[Stmt]:
    for statement in statements:
        if _is_check(statement, fault):
            continue
        yield statement
        for block in statement.blocks():
            yield from _walk(block, fault)


def _reads(expressions: Iterable[Expr]) -> set[Var]:
    return {one for e in expressions for one in e.walk() if isinstance(one, Var)}


def _loads(needed: set[Var]) -> set[Var]:
    return {var for var in needed if var.type[0] == "*"}


def _needed(of: _Reverse, draft: Draft) -> set[Var]:
    """The variables whose values going back through a loop reads, and the pointers whose elements it loads."""
    found: set[Var] = set()
    statements = statements_of(draft)
    for s in _walk(statements, of.fault):
        match s:
            case Assign(var=var, value=value) if var in of.active:
                bar = Var(var.type, "bar")
                found |= _values(of.cotangents.of(value, bar), of)
            case Store(pointer=Var() as pointer, index=index, value=value) if pointer in of.active:
                found |= _reads([index])
                found |= _values(of.cotangents.of(value, Var(value.type, "bar")), of)
            case If(test=test):
                found |= _reads([test])
            case For(start=start, stop=stop):
                found |= _reads([start, stop])
    return _definitions_of(of, draft, found)


def _definitions_of(of: _Reverse, draft: Draft, found: set[Var]) -> set[Var]:
    """Variables and pointers, and those that define them."""
    statements = _walk(statements_of(draft), of.fault)
    definitions = {s.var: s.value for s in statements if isinstance(s, Assign) and not s.var.varies}
    while True:
        more = {v for var in found if var in definitions for v in _reads([definitions[var]])} - found
        if not more:
            return found
        found |= more


def _values(statements: Iterable[Stmt], of: _Reverse) -> set[Var]:
    """The values read by statements of cotangents, except the cotangents themselves."""
    shadows = set(of.shadows.values())
    own = set(assigned(statements := list(statements)))
    return {var for var in read(statements) if var not in shadows and var not in own and var.name != "bar"}


class _Loop:
    """One loop of the kernel, forwards and backwards.

    needed: the values that the backward pass reads in this loop, and pointers whose elements it loads in earlier ones.
    segments: of one of its statements, which is a loop whose tape would be too large.
    """

    def __init__(
        self, of: _Reverse, draft: Draft, needed: set[Var], separate: bool, segments: Segments | None = None
    ):  # fmt: skip
        self.of, self.draft = of, draft
        self.statements = statements_of(draft)
        self.needed = needed
        trips = of.body.trips
        self.in_segments = segments
        if segments is not None:
            trips = trips | {segments.loop.var: segments.length}
            self.statements = [
                segments.loop if isinstance(s, For) and s.var is segments.loop.var else s for s in self.statements
            ]
            of.arrays |= segments.arrays()
        self.tape = Tape(of.body.name, draft, trips, of.body.names, separate, of.calls)
        self.separate = separate
        self.stored = {s.pointer for s in _walk(self.statements, of.fault) if isinstance(s, Store)}
        every = [one for s in self.statements for one in s.walk()]
        digits = draft.digits or (() if draft.item is None else (draft.item,))
        self.loops = loops_of(every, digits, of.body)
        self.places: dict[int, Place] = {}  # by the statement whose old value is kept
        self.tests: dict[int, Place] = {}  # of branches
        self.ends: dict[int, tuple[Var, Place]] = {}  # of loops with `break`: what their index reached
        self.kept: dict[int, Place] = {}  # by the statement whose value is not computed again
        self.finals: dict[Var, Place] = {}  # of variables that change, after the last statement

    def made(self) -> tuple[list[Draft], list[Draft]]:
        draft = self.draft
        self._plan(self.statements, [])
        changing = [v for v in dict.fromkeys(assigned(self.statements)) if v.varies and v in self.needed]
        self.of.is_open |= bool(self.tape.open)
        totals = [counted.total for counted in self.tape.counted.values()]
        if self.separate:
            self.finals = {var: self.tape.place(var.type, []) for var in (*changing, *totals)}
        there = self._there(self.statements)
        there += [place.push(var) for var, place in self.finals.items()]
        back: list[Stmt] = [Assign(var, place.load(var.type)) for var, place in self.finals.items()]
        back += self._back(self.statements)
        scratches, arrays = self.tape.finish(0 if self.in_segments is None else self.in_segments.bytes)
        self.of.arrays |= arrays
        held = () if self.in_segments is None else [v for v in self.in_segments.state if v.type[0] != "*"]
        zeros: list[Stmt] = [Assign(v, number(0, v.type)) for v in dict.fromkeys([*changing, *totals, *held])]
        shadows = [Scratch(self.of.shadow(s.var), s.size) for s in draft.scratches if s.var in self.of.active]
        cleared = self._cleared(shadows)
        own = {v for v in self.needed | self.of.active if v.type[0] == "*"}
        whole = draft.whole or not all(
            is_disjoint(draft, pointer, self.of.body) for pointer in own if pointer in self.of.active
        )
        if self.separate:
            first = replace(draft, body=[*zeros, *there], prologue=[])
            second = replace(draft, body=[*zeros, *cleared, *back], prologue=[], whole=whole)
            return [first], [second]
        both = [*zeros, *cleared, *there, *back]
        all_scratches = [*draft.scratches, *shadows, *scratches]
        return [replace(draft, body=both, prologue=[], scratches=all_scratches, whole=whole)], []

    def _cleared(self, shadows: Sequence[Scratch]) -> list[Stmt]:
        """Statements that begin with cotangents of zero. shadows: of scratch memory."""
        bars = [self.of.shadow(v) for v in assigned(self.statements) if v in self.of.active and v.type in FLOATS]
        cleared: list[Stmt] = [Assign(bar, number(0.0, bar.type)) for bar in dict.fromkeys(bars)]
        for scratch in shadows:
            var = Var("s64", self.of.body.names.fresh("i"))
            kind = scratch.var.type[1:]
            store = Store(scratch.var, var, number(0.0, kind if kind in FLOATS else "f32"), kind)
            cleared.append(For(var, Const("s64", 0), Const("s64", scratch.size), Const("s64", 1), [store]))
        return cleared

    def segments(self) -> Segments | None:
        """The segments of the loop with the largest tape, if the tape of all is too large, and serial."""
        of, draft = self.of, self.draft
        if draft.item is not None or draft.scratches:
            return None
        tapes: dict[int, int] = {}
        for number_, s in enumerate(self.statements):
            alone = _Loop(of, replace(draft, body=[s], prologue=[]), self.needed, self.separate)
            alone._plan([s], [])
            tapes[number_] = alone.tape.total
            if alone.tape.open:
                return None
        largest = max(tapes, key=tapes.__getitem__, default=0)
        if sum(tapes.values()) * of.calls <= config.tape_bytes:
            return None
        loop = self.statements[largest]
        trips = of.body.trips.get(loop.var, 0) if isinstance(loop, For) else 0
        if not isinstance(loop, For) or trips < 4 or has_break(loop):
            return None
        stored = dict.fromkeys(s.pointer for s in _walk([loop], of.fault) if isinstance(s, Store))
        sizes = {pointer: array.count for pointer, array in of.body.arrays.items()}
        pointers = [p for p in stored if isinstance(p, Var)]
        made = segments_of(loop, trips, tapes[largest], sizes, of.body.names, pointers)
        return made if made.bytes + tapes[largest] * made.length // trips < tapes[largest] else None

    # --- what is kept

    def _plan(self, block: Sequence[Stmt], loops: list[For | While]) -> None:
        for position, s in enumerate(block):
            if _is_check(s, self.of.fault):
                continue
            match s:
                case Assign(var=var, value=value) if not var.varies:
                    if var in self.needed and not self._again(value, block, position):
                        self.kept[id(s)] = self.tape.place(var.type, loops)
                case Assign(var=var) if var in self.needed:
                    if _inverse(s) is None:
                        self.places[id(s)] = self.tape.place(var.type, loops)
                case Store(pointer=Var() as pointer) if pointer in self.needed:
                    self.places[id(s)] = self.tape.place(pointer.type[1:], loops)
                case For(start=start, stop=stop, body=inner):
                    if not _reads([start, stop]).isdisjoint(assigned(inner)):
                        raise unsupported(self.of.body.name, f"the bounds of the loop of '{s.var.name}' change in it")
                    if has_break(s):
                        end = Var("s64", self.of.body.names.fresh(f"{s.var.name}_end"), True)
                        self.ends[id(s)] = end, self.tape.place("s64", loops)
                    self._count(s, loops)
                    self._plan(inner, [*loops, s])
                case While(body=inner):
                    before = Var("s64", self.of.body.names.fresh("steps_before"))
                    self.ends[id(s)] = before, self.tape.place("s64", loops)
                    self.tape.count(s, None)
                    self._plan(inner, [*loops, s])
                case If(test=test, then=then, other=other):
                    changed = set(assigned([*then, *other])) | {
                        one.pointer for one in _walk([*then, *other], self.of.fault) if isinstance(one, Store)
                    }
                    if not _reads([test]).isdisjoint(changed):
                        self.tests[id(s)] = self.tape.place("pred", loops)
                    self._plan(then, loops)
                    self._plan(other, loops)

    def _count(self, loop: For, around: Sequence[For | While]) -> None:
        """Counts the iterations of a loop, if their number has no bound, or is well below that of a box."""
        tape = self.tape
        if loop.var not in tape.trips:
            tape.count(loop, None)
            return
        box: list[For] = []  # the loops around it, within the last one without a bound
        for one in reversed(around):
            counted = tape.counted.get(id(one))
            if isinstance(one, While) or (counted is not None and counted.most is None):
                break
            box.insert(0, one)
        is_open = len(box) < len(around)
        if not box and not is_open:
            return
        most = executions([*box, loop], self.of.body.sizes, self.loops.definitions)
        whole = math.prod(tape.trips[one.var] for one in (*box, loop))
        if is_open and (most is None or 4 * most < 3 * whole):
            tape.count(loop, None)
        elif most is not None and 4 * most < 3 * whole:
            tape.count(loop, most)

    def _again(self, value: Expr, block: Sequence[Stmt], position: int) -> bool:
        """Whether a value can be computed again at the end of its block: nothing that it is made of has changed.

        There, going back, arrays have the elements that they had after the block's last statement.
        """
        changed = {v for v in assigned(block) if v.varies}
        for part in value.walk():
            if isinstance(part, Load) and part.pointer in self.stored and not self._stays(part, block[position + 1 :]):
                return False
            if isinstance(part, Var) and part in changed:
                return False
        return True

    def _stays(self, load: Load, after: Sequence[Stmt]) -> bool:
        """Whether the statements that follow store to other elements, as far as can be proved."""
        stores = [s for s in _walk(after, self.of.fault) if isinstance(s, Store) and s.pointer is load.pointer]
        if not stores:
            return True
        place = index_of(load.index, self.loops)
        for store in stores:
            other = index_of(store.index, self.loops)
            if place is None or other is None or not (place - other).number:
                return False
        return True

    # --- forwards

    def _there(self, block: Sequence[Stmt]) -> list[Stmt]:
        made: list[Stmt] = []
        for s in block:
            place = self.places.get(id(s))
            match s:
                case Assign(var=var):
                    if place is not None:
                        made.append(place.push(var))
                    made.append(s)
                    if id(s) in self.kept:
                        made.append(self.kept[id(s)].push(var))
                case Store(pointer=Var() as pointer, index=index):
                    if place is not None:
                        stored = pointer.type[1:]
                        kind = REGISTER.get(stored, stored)
                        made.append(place.push(Load(kind, pointer, index)))
                    made.append(s)
                case For() | While():
                    made += self._loop_there(s)
                case If() if not _is_check(s, self.of.fault):
                    made.append(self._branch_there(s))
                case _:
                    made.append(s)
        return made

    def _loop_there(self, s: For | While) -> list[Stmt]:
        if self.in_segments is not None and s is self.in_segments.loop:
            return [self.in_segments.forward(s.body)]
        body = [*self._begin(s), *self._there(s.body)]
        if id(s) not in self.ends:
            return [replace(s, body=body)]
        var, place = self.ends[id(s)]
        if isinstance(s, For):
            reached = Assign(var, Binary("s64", "+", s.var, s.step))
            return [Assign(var, s.start), replace(s, body=[reached, *body]), place.push(var)]
        total = self.tape.counted[id(s)].total
        return [Assign(var, total), replace(s, body=body), place.push(Binary("s64", "-", total, var))]

    def _begin(self, s: For | While) -> list[Stmt]:
        counted = self.tape.counted.get(id(s))
        return [] if counted is None else self.tape.begin(counted, self.of.fault)

    def _branch_there(self, s: If) -> Stmt:
        then, other = self._there(s.then), self._there(s.other)
        if (place := self.tests.get(id(s))) is not None:
            then, other = [place.push(Const("pred", True)), *then], [place.push(Const("pred", False)), *other]
        return replace(s, then=then, other=other)

    # --- backwards

    def _back(self, block: Sequence[Stmt]) -> list[Stmt]:
        made: list[Stmt] = []
        for s in block:  # what the block's variables held
            if isinstance(s, Assign) and not s.var.varies and s.var in self.needed:
                place = self.kept.get(id(s))
                made.append(Assign(s.var, s.value if place is None else place.load(s.var.type)))
        for s in reversed(block):
            if not _is_check(s, self.of.fault):
                made += self._undone(s)
        return made

    def _undone(self, s: Stmt) -> list[Stmt]:
        of, made = self.of, list[Stmt]()
        place = self.places.get(id(s))
        match s:
            case Assign(var=var, value=value):
                if place is not None:
                    made.append(Assign(var, place.load(var.type)))
                elif var.varies and var in self.needed and (inverse := _inverse(s)) is not None:
                    made.append(Assign(var, inverse))
                if var in of.active:
                    bar = of.shadow(var)
                    held = Var(var.type, of.body.names.fresh("bar"))
                    made += [Assign(held, bar), Assign(bar, number(0.0, bar.type))]
                    made += of.cotangents.of(value, held)
            case Store(pointer=Var() as pointer, index=index, value=value):
                stored = pointer.type[1:]
                kind = REGISTER.get(stored, stored)
                if place is not None:
                    made.append(Store(pointer, index, place.load(kind), stored))
                if pointer in of.active:
                    bar = of.shadow(pointer)
                    held = Var(kind, of.body.names.fresh("bar"))
                    made += [Assign(held, Load(kind, bar, index)), Store(bar, index, number(0.0, kind), stored)]
                    made += of.cotangents.of(value, held)
            case For() | While():
                made += self._loop_undone(s)
            case If(test=test):
                then, other = self._back(s.then), self._back(s.other)
                taken = self.tests.get(id(s))
                if then or other:
                    made.append(If(test if taken is None else taken.load("pred"), then, other))
        return made

    def _loop_undone(self, s: For | While) -> list[Stmt]:
        body = self._back(s.body)
        if not body:
            return []
        if (counted := self.tape.counted.get(id(s))) is not None:
            body = [*counted.undo(), *body]
        if self.in_segments is not None and s is self.in_segments.loop:
            return [self.in_segments.backward(self._there(s.body), _reversed(self.in_segments.loop, body))]
        if isinstance(s, For) and id(s) not in self.ends:
            return [_reversed(s, body)]
        var, place = self.ends[id(s)]
        if isinstance(s, For):
            return [Assign(var, place.load("s64")), _reversed(replace(s, stop=var), body)]
        step = Var("s64", self.of.body.names.fresh("back"))
        return [For(step, Const("s64", 0), place.load("s64"), Const("s64", 1), body)]


def _inverse(s: Assign) -> Expr | None:
    """What a counter was before a statement that adds a constant to it."""
    match s:
        case Assign(var=Var(type=kind) as var, value=Binary(op="+" | "-" as op, left=left, right=Const() as right)):
            if left is var and kind[0] in "su":
                return Binary(kind, "-" if op == "+" else "+", var, right)
    return None


def _reversed(loop: For, body: list[Stmt]) -> For:
    """The loop from its last iteration to its first."""
    match loop.step:
        case Const(value=int(step)):
            one = Const("s64", 1)
            if step == 1:
                last: Expr = Binary("s64", "-", loop.stop, one)
                return For(loop.var, last, Binary("s64", "-", loop.start, one), Const("s64", -1), body)
            sign = Const("s64", 1 if step > 0 else -1)
            distance = Binary("s64", "-", Binary("s64", "-", loop.stop, sign), loop.start)
            count = Binary("s64", "//", distance, loop.step)
            last = Binary("s64", "+", loop.start, Binary("s64", "*", count, loop.step))
            return For(loop.var, last, Binary("s64", "-", loop.start, sign), Const("s64", -step), body)
    raise AssertionError("steps of loops are known")
