"""Loops of small bodies as one kernel.

The driver's overhead per kernel is about 30 ns, more than the run time of a kernel of a few elements. A loop with only
such small kernels, including nested branches and loops, becomes one function that calls them with literal sizes and
strides (up to UNROLLED); LLVM inlines them, unrolls short loops and uses registers. Small values live on the stack; the
state of the loop is read before it and written after it.

A kernel cannot be interrupted by signals. So a loop with an unknown or large trip count leaves its kernel after
BATCH_WORK element operations, with its state in memory; the driver checks for signals, and calls it again. Inner loops
do the same. Such loops are numbered: `cut` is the number of the loop that the kernel left, 0 if it finished, and `at`
that of the loop in which it resumes, skipping the code before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from hloom.compiler.kernel_ir.affine.dependences import Range
from hloom.compiler.kernel_ir.builder import (
    ONE,
    ZERO,
    assign,
    both,
    compared,
    constant,
    element,
    minus,
    unary,
)
from hloom.compiler.kernel_ir.builder import (
    number as literal,
)
from hloom.compiler.kernel_ir.nodes import (
    Const,
    Do,
    Expr,
    For,
    If,
    Jump,
    Kernel,
    Scratch,
    Stmt,
    Store,
    Var,
    While,
)
from hloom.compiler.kernel_ir.reader import KernelSyntaxError
from hloom.compiler.kernel_ir.transforms.optimize import transformed
from hloom.compiler.kernel_ir.transforms.raising import CannotBeRaisedError, raised
from hloom.compiler.kernel_ir.types import STORED
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.launch import Launch
from hloom.compiler.schedule.buffer_assignment import Buffer
from hloom.compiler.schedule.control_flow import ChoiceItem, Control, LoopItem, Swap
from hloom.ir.loops import counted_trips
from hloom.ir.records import field, record
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.sizes.guards import typical
from hloom.ir.types import DTYPES, HLO_NAME

KERNELS = 24  # maximum number of kernels: more cost more compile time than the driver's overhead
WORK = 8192  # average element operations per kernel up to which the driver's overhead is noticeable
LOCAL_BYTES = 256  # maximum size of a state on the stack; larger ones stay in memory
INNER_BYTES = 4096  # maximum size of a value on the stack that is not used before or after the loop
UNROLLED = 4096  # maximum number worth a literal, such as a stride; larger ones are arguments
BATCH_WORK = 2e7  # element operations, about 10 ms, after which a loop returns to the driver
LEAST_WORK = 5.0  # assumed at least for an iteration
COPIED = 64  # elements up to which a copy is a loop inside of the kernel
COPIES = 64  # maximum number of such copies: LLVM compares the addresses of each with all others


class Planner(Protocol):
    """The interface between a loop's kernel and the plan.

    all: the buffers that get memory. reused: output indices -> indices of the inputs whose memory they reuse.
    constants: the values of the plan's constants.
    """

    all: dict[Buffer, None]
    reused: dict[int, int]
    control: Control
    constants: list[np.ndarray]


class _NotWholeError(Exception):
    """The loop is executed by the driver instead."""


def whole_loops(planner: Planner, planned: list) -> list:
    """The list with each fusible loop replaced by the launch of its kernel, outermost first."""
    result = []
    for item in planned:
        if isinstance(item, LoopItem):
            try:
                result += _Whole(planner, item).planned()
                continue
            except _NotWholeError:
                item.body = whole_loops(planner, item.body)
        elif isinstance(item, ChoiceItem):
            item.branches = [whole_loops(planner, branch) for branch in item.branches]
        result.append(item)
    return result


@record
class _Whole:
    """Writes one kernel."""

    planner: Planner
    loop: LoopItem
    dtypes: dict[Buffer, str] = field(default_factory=dict)  # of the elements, as in a kernel's parameters
    memory: dict[Buffer, Var] = field(default_factory=dict)  # where the kernel has a value: on the stack, or not
    functions: dict[KernelSource, str] = field(default_factory=dict)
    order: dict[Buffer, None] = field(default_factory=dict)  # in the order of their first use
    temporaries: dict[tuple[int, str], Buffer] = field(default_factory=dict)  # by id of the instruction and name
    integers: dict[int, Var] = field(default_factory=dict)  # numeric arguments of the kernel
    count: int = 0
    work: float = 0.0
    numbers: dict[int, int] = field(default_factory=dict)  # of the loops that may leave the kernel, by id; from 1
    ranges: dict[int, range] = field(default_factory=dict)  # the numbers within a loop or choice, by id
    turns: int = 0  # loops of a known number of iterations
    filled: set[Buffer] = field(default_factory=set)  # written by copies before the kernel: they stay in memory

    def __post_init__(self):
        # The loop in which the kernel resumes, the one that it leaves, the work until then, whether it resumes, and the
        # variable of its loops; the memory that tells which loop it left.
        words = ("at", "cut", "left", "resumes", "i")
        self.at, self.cut, self.left, self.resumes, self.i = (Var("s64", word) for word in words)
        self.more = Var("*s64", "more")

    def planned(self) -> list:
        """The launch of the kernel, with a loop for further launches if one may not suffice; before them copies of
        large arrays into the state."""
        copies = self._taken_out()
        self.filled = {target for target, *_ in copies}
        try:
            return [*copies, *self._whole()]
        except _NotWholeError:
            self.loop.before[:0] = copies
            raise

    def _taken_out(self) -> list:
        """Extracts copies of large arrays from the code before the loop, if nothing else there uses them."""
        before = self.loop.before
        taken = []
        for item in list(before):
            if not (isinstance(item, tuple) and len(item) == 4 and item[2] > COPIED * 8):
                continue
            target, source = item[:2]
            others = [other for other in before if other is not item]
            if any(target in _touched(other) or source in _written(other) for other in others):
                continue
            before.remove(item)
            taken.append(item)
        return taken

    def _whole(self) -> list:
        self._look([self.loop])
        if self.count == 0 or self.count > KERNELS or self.work > WORK * self.count:
            raise _NotWholeError
        self._check_aliases()
        kept, local, outside = self._divide()
        start, end = self.loop.span
        self._number([self.loop])
        carried = [] if not self.numbers else self._carried(kept, local) if self._only_outermost() else local
        more = Buffer(8, None, start, end) if self.numbers else None
        pointers: dict[str, Buffer] = {f"p{k}": b for k, b in enumerate(dict.fromkeys(outside + kept + carried))}
        places = {buffer: self._pointer(buffer, name) for name, buffer in pointers.items()}
        self.memory |= {buffer: places[buffer] for buffer in outside}
        first = [s for b in kept if b.first < start or b.place is not None for s in self._loaded(b, places)]
        first += self._statements(self.loop.before)
        made: list[Stmt] = [Scratch(self.memory[b], self._extent(b)) for b in local]
        made += first if more is None else self._resumed(first, carried, places)
        made += self._loop(self.loop)
        made += [s for b in kept if b.last > end for s in self._stored(b, places)]
        params = [*places.values()]
        if more is not None:
            made += self._left([b for b in carried if b not in kept or b.last <= end], places)
            pointers["more"] = more
            self.dtypes[more] = "s64"
            params.append(self.more)
            # Values that survive between calls are in memory, including temporaries of its launches.
            self.planner.all |= dict.fromkeys([more, *(b for b in carried if b in self.temporaries.values())])
        self._settle(local, dict.fromkeys(kept + carried), outside)
        return self._launches(self._source(made, params), pointers, more)

    def _pointer(self, buffer: Buffer, name: str) -> Var:
        return Var(f"*{self.dtypes[buffer]}", name)

    def _resumed(self, first: list[Stmt], carried: list[Buffer], places: dict[Buffer, Var]) -> list[Stmt]:
        """The prologue of a resumable kernel: `first`, or loads of the state that the last call left in memory."""
        again = [s for b in carried for s in self._loaded(b, places)]
        begins = If(_is(self.resumes, 0), first, [*again, assign(self.at, element(self.more, ZERO))])
        left = assign(self.left, constant(max(1, int(BATCH_WORK))))
        return [assign(self.at, ZERO), begins, assign(self.cut, ZERO), left]

    def _left(self, buffers: list[Buffer], places: dict[Buffer, Var]) -> list[Stmt]:
        """The epilogue of such a kernel: it stores where it was cut, and the state for the next call."""
        rest = [s for b in buffers for s in self._stored(b, places)]
        return [_copy(self.more, ZERO, self.cut), *([If(compared("!=", self.cut, ZERO), rest)] if rest else [])]

    def _source(self, statements: list[Stmt], pointers: list[Var]) -> KernelSource:
        """The kernel of these statements."""
        resumes = [self.resumes] if self.numbers else []
        params = (*pointers, *self.integers.values(), *resumes, Var("s64", "lo"), Var("s64", "hi"))
        name = "whole_" + re.sub(r"\W", "_", self.loop.instruction.hint or "loop")
        parts = tuple((called, part) for part, called in self.functions.items())
        source = KernelSource.of(Kernel(name, params, statements), parts)
        return _as_loops(source, {var.name: n for n, var in self.integers.items() if isinstance(n, int)})

    def _launches(self, source: KernelSource, pointers: dict[str, Buffer], more: Buffer | None) -> list:
        instruction = self.loop.instruction
        arguments: list[str | int | KernelSource] = [*pointers, *self.integers]
        if more is None:
            return [(Launch(source, arguments, 1, 1), pointers, instruction)]
        begins, resumes = ((Launch(source, [*arguments, k], 1, 1), pointers, instruction) for k in (0, 1))
        return [begins, LoopItem(instruction, self.loop.span, [], [], more, [resumes])]

    def _divide(self) -> tuple[list[Buffer], list[Buffer], list[Buffer]]:
        """(values on the stack that live before or after the loop, with their memory; all on the stack; those that stay
        in memory). Makes the pointers of those on the stack."""
        kept, local, outside = [], [], []
        start, end = self.loop.span
        for number, buffer in enumerate(self.order):
            inner = start <= buffer.first and buffer.last <= end and buffer.place is None
            if buffer in self.filled:
                outside.append(buffer)
                continue
            fixed = not isinstance(buffer.bytes, SizeExpression)  # stack arrays have a static size
            if fixed and self._is_ours(buffer) and buffer.bytes <= (INNER_BYTES if inner else LOCAL_BYTES):
                local.append(buffer)
                self.memory[buffer] = self._pointer(buffer, f"v{number}")
                if not inner:
                    kept.append(buffer)
            elif buffer in self.temporaries.values():
                raise _NotWholeError
            else:
                outside.append(buffer)
        return kept, local, outside

    # --- exits from the kernel ---

    def _number(self, items: list) -> None:
        """Numbers the loops that may exceed BATCH_WORK, outer before inner, and records nesting."""
        for item in items:
            first = len(self.numbers) + 1
            if isinstance(item, LoopItem):
                if any(_work([inner]) > BATCH_WORK for inner in _loops(item.before)):
                    raise _NotWholeError
                if _work([item]) > BATCH_WORK:
                    self.numbers[id(item)] = first
                self._number([*item.condition, *item.body])
            elif isinstance(item, ChoiceItem):
                self._number([inner for branch in item.branches for inner in branch])
            self.ranges[id(item)] = range(first, len(self.numbers) + 1)

    def _only_outermost(self) -> bool:
        return len(self.numbers) == 1

    def _carried(self, kept: list[Buffer], local: list[Buffer]) -> list[Buffer]:
        """Stack values that are live across iterations: those written before the first."""
        written = set()
        for item in _leaves(self.loop.before):
            if isinstance(item, tuple) and isinstance(item[0], Launch):
                launch, pointers, instruction = item
                written |= {self._buffer(a, pointers, instruction) for a in launch.arguments if isinstance(a, str)}
            elif isinstance(item, tuple):
                written.add(item[0])
        return [b for b in local if b in kept or b in written]

    # --- analysis of the loop ---

    def _look(self, items: list) -> None:
        """Counts the kernels and finds the element types of all buffers. Raises _NotWholeError for other work."""
        copies: list[tuple[Buffer, Buffer, int]] = []
        for item in _leaves(items):
            if isinstance(item, Buffer):
                self._typed(item, "pred" if item.bytes == 1 else "s32")
            elif isinstance(item, Swap) or not isinstance(item, tuple):
                raise _NotWholeError
            elif isinstance(item[0], Launch):
                self._look_at_launch(*item)
            elif len(item) == 4 and isinstance(item[0], Buffer):
                if (first := self._first_value(item[1])) is not None:
                    self._typed(item[0], first.type)
                    continue
                copies.append(item[:3])
                for buffer in item[:2]:
                    self._note(buffer)
            else:
                raise _NotWholeError  # Python
        self._type_copies(copies)
        extents = [size // DTYPES[self.dtypes[target]].itemsize for target, _, size in copies]
        if any(extent > COPIED for extent in extents) or sum(extent > 1 for extent in extents) > COPIES:
            raise _NotWholeError

    def _type_copies(self, copies: list[tuple[Buffer, Buffer, int]]) -> None:
        """The element types of what is only copied."""
        waiting = copies
        while waiting:
            rest = []
            for target, source, size in waiting:
                dtype = self.dtypes.get(target) or self.dtypes.get(source)
                if dtype is None:
                    rest.append((target, source, size))
                    continue
                self._typed(target, dtype)
                self._typed(source, dtype)
            if len(rest) == len(waiting):
                for target, source, _ in rest:  # not used in computations: plain bytes
                    self._typed(target, "u8")
                    self._typed(source, "u8")
                break
            waiting = rest

    def _look_at_launch(self, launch: Launch, pointers: dict, instruction) -> None:
        if typical(launch.items) > launch.grain:
            raise _NotWholeError
        for name, size in launch.temporaries.items():
            kept = self.planner.control.prepared.get((id(instruction), name))
            if kept is not None and kept[0] < self.loop.span[0]:
                raise _NotWholeError  # produced by a launch before an enclosing loop
            made = self.temporaries.setdefault((id(instruction), name), Buffer(size, None, *self.loop.span))
            made.bytes = max(size, made.bytes)
        self.count += 1
        self.work += launch.work
        for argument, kind in zip(launch.arguments, launch.source.params, strict=False):
            if isinstance(argument, KernelSource):
                raise _NotWholeError
            if isinstance(argument, str):
                self._typed(self._buffer(argument, pointers, instruction), kind[:-1])
        if launch.source not in self.functions:
            self.functions[launch.source] = f"{launch.source.name}_{len(self.functions) + 1}"

    def _buffer(self, name: str, pointers: dict, instruction) -> Buffer:
        return pointers.get(name) or self.temporaries[id(instruction), name]

    def _note(self, buffer: Buffer) -> None:
        self.order.setdefault(buffer)

    def _typed(self, buffer: Buffer, dtype: str) -> None:
        self._note(buffer)
        if self.dtypes.setdefault(buffer, dtype) != dtype or buffer.swap is not None:
            raise _NotWholeError

    def _check_aliases(self) -> None:
        """Pointers of a kernel must not overlap; a donated argument and the result in its memory would."""
        places = [b.place for b in self.order if b.place is not None]
        inputs = {p.number for p in places if p.kind == "input"}
        outputs = {p.number for p in places if p.kind == "output"}
        if any(output in outputs and given in inputs for output, given in self.planner.reused.items()):
            raise _NotWholeError

    def _is_ours(self, buffer: Buffer) -> bool:
        """Whether the program determines the value's location, in which case it may temporarily be on the stack."""
        return buffer.place is None or buffer.place.kind == "output"

    def _settle(self, local, kept, outside) -> None:
        """Values in memory live as long as the whole loop, and must not share memory."""
        start, end = self.loop.span
        for buffer in (*kept, *outside):
            if buffer.place is None:
                buffer.first, buffer.last = min(buffer.first, start), max(buffer.last, end)
        for buffer in local:
            if buffer not in kept:
                self.planner.all.pop(buffer, None)

    # --- statements ---

    def _loop(self, loop: LoopItem) -> list[Stmt]:
        """The loop itself, without what runs before it."""
        number = self.numbers.get(id(loop), 0)
        test: list[Stmt] = [If(_is(element(self.memory[loop.pred], ZERO), 0), [Jump("break")])]
        if number:
            work = sum(_work([item]) for item in (*loop.condition, *loop.body) if not self.ranges[id(item)])
            test.append(If(compared("<=", self.left, ZERO), [assign(self.cut, constant(number)), Jump("break")]))
            test.append(assign(self.left, minus(self.left, constant(int(max(LEAST_WORK, work))))))
        trips = counted_trips(loop.instruction)
        if not number and isinstance(trips, int):
            self.turns += 1
            turn = Var("s64", f"turn_{self.turns}")
            return [For(turn, ZERO, self._integer(trips), ONE, self._statements(loop.body))]
        inside = self._statements([*loop.condition, test, *loop.body])
        # Before the first iteration, as the loop's condition is skipped there too.
        several = number and len(self.numbers) > 1
        enters = [If(_is(self.at, number), [assign(self.at, ZERO)])] if several else []
        return [*enters, While(Const("pred", True), inside)]

    def _loaded(self, buffer: Buffer, places: dict[Buffer, Var]) -> list[Stmt]:
        return self._copied(self.memory[buffer], places[buffer], buffer)

    def _stored(self, buffer: Buffer, places: dict[Buffer, Var]) -> list[Stmt]:
        return self._copied(places[buffer], self.memory[buffer], buffer)

    def _extent(self, buffer: Buffer) -> int:
        return max(1, buffer.bytes // DTYPES[self.dtypes[buffer]].itemsize)

    def _statements(self, items: list) -> list[Stmt]:
        """The statements of items that run in sequence; a list among them is statements already."""
        made: list[Stmt] = []
        passed: list[Stmt] = []  # skipped if the kernel resumes after it
        last = max((k for k, item in enumerate(items) if self.ranges.get(id(item))), default=-1)
        for k, item in enumerate(items):
            numbers = self.ranges.get(id(item))
            if not numbers:
                passed += self._written(item)
                continue
            if isinstance(item, LoopItem):
                passed += self._statements(item.before)
            if passed:
                made.append(If(_is(self.at, 0), passed))
            written = self._loop(item) if isinstance(item, LoopItem) else self._written(item)
            if k < last:
                written = [If(both("or", [_is(self.at, 0), _within(self.at, numbers)]), written)]
            made += [*written, If(compared("!=", self.cut, ZERO), [Jump("break")])]
            passed = []
        return made + passed

    def _written(self, item) -> list[Stmt]:
        if isinstance(item, list):
            return item
        if isinstance(item, LoopItem):
            return [*self._statements(item.before), *self._loop(item)]
        if isinstance(item, ChoiceItem):
            return self._choice(item)
        if isinstance(item[0], Launch):
            return [self._call(*item)]
        if (first := self._first_value(item[1])) is not None:
            return [_copy(self.memory[item[0]], ZERO, first)]
        return self._copied(self.memory[item[0]], self.memory[item[1]], item[0])

    def _call(self, launch, pointers: dict, instruction) -> Stmt:
        given = [
            self.memory[self._buffer(a, pointers, instruction)] if isinstance(a, str) else self._integer(a)
            for a in launch.arguments
        ]
        return Do(self.functions[launch.source], (*given, ZERO, self._integer(launch.items)))

    def _integer(self, number: int) -> Expr:
        if not isinstance(number, SizeExpression) and abs(number) <= UNROLLED:
            return constant(number) if number >= 0 else unary("-", constant(-number))
        return self.integers.setdefault(number, Var("s64", f"n{len(self.integers)}"))

    def _choice(self, item: ChoiceItem) -> list[Stmt]:
        if len(item.branches) == 1:
            return self._statements(item.branches[0])
        selector, count = element(self.memory[item.selector], ZERO), len(item.branches)
        tests: list[Expr] = [_is(selector, k) for k in range(count - 1)]
        if item.selector.bytes == 1:
            tests = [compared("!=", selector, ZERO)]
        if self.ranges.get(id(item)):  # if the kernel resumes in one of them, the selector may have changed
            numbers = [[n for i in branch for n in self.ranges[id(i)]] for branch in item.branches]
            for k, test in enumerate(tests):
                tests[k] = both("and", [_is(self.at, 0), test])
                if numbers[k]:
                    tests[k] = both("or", [tests[k], _within(self.at, numbers[k])])
        *branches, made = [self._statements(branch) for branch in item.branches]
        for test, branch in zip(reversed(tests), reversed(branches), strict=True):
            made = [If(test, branch, made)]
        return made

    def _first_value(self, source: Buffer) -> Expr | None:
        """The integer that a buffer always holds, where it is small: where a loop starts is worth knowing while
        compiling."""
        if source.place is None or source.place.kind != "constant":
            return None
        value = self.planner.constants[source.place.number]
        if value.size != 1 or value.dtype.kind not in "iu" or value.itemsize < 4 or abs(value.item()) > UNROLLED:
            return None
        return literal(value.item(), HLO_NAME[value.dtype])

    def _copied(self, target: Var, source: Var, buffer: Buffer) -> list[Stmt]:
        extent = self._extent(buffer)
        if extent == 1:
            return [_copy(target, ZERO, element(source, ZERO))]
        return [For(self.i, ZERO, constant(extent), ONE, [_copy(target, self.i, element(source, self.i))])]


def _as_loops(source: KernelSource, ranges: Mapping[str, Range]) -> KernelSource:
    """The kernel with loops over indices that are known, which are transformed; itself where it has others."""
    if any(part.parts for _, part in source.parts):
        return source
    try:
        made = raised(source.nodes, {name: part.nodes for name, part in source.parts}, ranges)
    except (CannotBeRaisedError, KernelSyntaxError):
        return source
    return KernelSource.of(transformed(made, ranges))


def _copy(target: Var, index: Expr, value: Expr) -> Store:
    """An element as it is in memory."""
    kind = target.type[1:]
    return Store(target, index, value, STORED.get(kind, kind))


def _is(value: Expr, number: int) -> Expr:
    return compared("==", value, constant(number))


def _touched(item) -> set[Buffer]:
    """The buffers that a copy or launch reads or writes."""
    return set(item[1].values()) if isinstance(item[0], Launch) else set(item[:2])


def _written(item) -> set[Buffer]:
    """The buffers that a copy or launch may write."""
    return _touched(item) if isinstance(item[0], Launch) else {item[0]}


def _within(at: Var, numbers: Sequence[int]) -> Expr:
    """Whether it is one of these numbers."""
    return both("and", [compared("<=", constant(numbers[0]), at), compared("<=", at, constant(numbers[-1]))])


def _loops(items: list):
    """All loops, including nested ones."""
    for item in items:
        if isinstance(item, LoopItem):
            yield item
            yield from _loops([*item.before, *item.condition, *item.body])
        elif isinstance(item, ChoiceItem):
            for branch in item.branches:
                yield from _loops(branch)


def _work(items: list) -> float:
    """The element operations of one run, for the longest branches; infinite if a trip count is unknown."""
    total = 0.0
    for item in items:
        if isinstance(item, LoopItem):
            trips = counted_trips(item.instruction)
            turn = _work([*item.condition, *item.body])
            total += _work(item.before) + (math.inf if trips is None else trips * turn if trips else 0.0)
        elif isinstance(item, ChoiceItem):
            total += max(_work(branch) for branch in item.branches)
        elif isinstance(item, tuple) and isinstance(item[0], Launch):
            total += item[0].work
    return total


def _leaves(items: list):
    """All work of loops and branches, and the buffers of conditions."""
    for item in items:
        if isinstance(item, LoopItem):
            yield from _leaves(item.before)
            yield from _leaves(item.condition)
            yield item.pred
            yield from _leaves(item.body)
        elif isinstance(item, ChoiceItem):
            yield item.selector
            for branch in item.branches:
                yield from _leaves(branch)
        else:
            yield item
