"""Kernels with checks of their accesses, as nodes (`hl.config.check_bounds`).

A checked kernel has further parameters before `lo` and `hi`. One that launches call gets the bytes of each pointer's
array, the address of the state that its program's frame has, and the number of the launch; one that other kernels call
gets the address of their table. A table is int64 words in scratch memory: the address of the caller's table or 0, that
of the state, the number of the launch, how many arrays follow, and of each its address and its bytes.

An index of an array whose size is known is compared with it. Other addresses are looked up in the tables: all that is
accessed has to be in one array. The kernel returns where a check fails.

    within(index, size, table, access) -> index
    within_memory(index, address, bytes, table, access) -> index
    within_block(address, bytes, table, access)
    within_runs(address, bytes, runs, distances, table, access)
    leave_if_outside(table)
"""

from __future__ import annotations

from collections.abc import Iterator

from hloom.compiler.kernel_ir.bounds.accesses import Blocks, Site, Sites, element_bytes, hull, integer, plus, times
from hloom.compiler.kernel_ir.bounds.chosen import Checks, identity
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Do,
    Expr,
    For,
    If,
    Kernel,
    Load,
    Scratch,
    Stmt,
    Store,
    Together,
    Var,
    While,
)
from hloom.compiler.kernel_ir.types import is_pointer
from hloom.ir.records import replace

__all__ = ["ARRAYS", "checked"]

ARRAYS = 4  # the words of a table before its arrays
_ZERO = integer(0)


def checked(kernel: Kernel, checks: Checks, blocks: Blocks, parts: frozenset[str]) -> Kernel:
    """The kernel with checks. parts: names of kernels that it calls, which are checked too."""
    return _Writer(kernel, checks, blocks, parts).kernel()


class _Writer:
    def __init__(self, kernel: Kernel, checks: Checks, blocks: Blocks, parts: frozenset[str]):
        self.made, self.checks, self.parts = kernel, checks, parts
        self.sites = Sites(kernel, blocks, parts)
        self.pointers = [var for var in kernel.params if is_pointer(var.type)]
        self.scratch = [one for one in kernel.walk() if isinstance(one, Scratch)]
        self.fixed = {one.var: one.size for one in self.scratch if not one.var.varies}
        self.given = Var("s64", "checks_table")
        self.state, self.launch = Var("s64", "checks_state"), Var("s64", "checks_launch")
        self.bytes = {var: Var("s64", f"checks_{var.name}") for var in self.pointers}
        self.counts = {var: Var("s64", f"checks_count_{var.name}") for var in self.pointers}
        self.memory = Var("*s64", "checks_arrays")
        self.has_table = not checks.nested or bool(self.scratch)
        self.table: Expr = self.address(self.memory) if self.has_table else self.given
        self.statement: Stmt | None = None

    @staticmethod
    def address(pointer: Expr) -> Expr:
        return Call("s64", "address", (pointer,))

    def kernel(self) -> Kernel:
        *params, lo, hi = self.made.params
        more = [self.given] if self.checks.nested else [*self.bytes.values(), self.state, self.launch]
        body = [*self._start(), *self.block(self.made.body)]
        return replace(self.made, params=(*params, *more, lo, hi), body=body)

    def _start(self) -> Iterator[Stmt]:
        if self.has_table:
            arrays = [] if self.checks.nested else self.pointers
            count = len(arrays) + len(self.scratch)
            yield Scratch(self.memory, ARRAYS + 2 * count)
            table: list[Expr]
            if self.checks.nested:
                state, launch = (Call("s64", "word", (self.given, integer(k))) for k in (1, 2))
                table = [self.given, state, launch]
            else:
                table = [_ZERO, self.state, self.launch]
            table.append(integer(count))
            for pointer in arrays:
                table += [self.address(pointer), self.bytes[pointer]]
            table += [_ZERO] * (2 * len(self.scratch))
            for number, value in enumerate(table):
                yield Store(self.memory, integer(number), value, "s64")
        if not self.checks.nested:
            for pointer in self.pointers:
                size = integer(element_bytes(pointer.type))
                yield Assign(self.counts[pointer], Binary("s64", "//", self.bytes[pointer], size))
            yield self.leave()

    def leave(self) -> Stmt:
        return Do("leave_if_outside", (self.table,))

    # --- statements

    def block(self, statements: list[Stmt]) -> list[Stmt]:
        return [one for statement in statements for one in self.written(statement)]

    def written(self, node: Stmt) -> Iterator[Stmt]:
        self.statement = node
        match node:
            case Assign():
                yield replace(node, value=self.expression(node.value))
            case Store():
                yield self.store(node)
            case Together():
                parts: list[Assign | Store] = []
                for part in node.parts:
                    if isinstance(part, Store):
                        parts.append(self.store(part))
                    else:
                        parts.append(replace(part, value=self.expression(part.value)))
                yield replace(node, parts=parts)
            case Scratch():
                yield node
                number = ARRAYS + 2 * next(k for k, one in enumerate(self.scratch) if one is node)
                number += 0 if self.checks.nested else 2 * len(self.pointers)
                yield Store(self.memory, integer(number), self.address(node.var), "s64")
                nbytes = integer(node.size * element_bytes(node.var.type))
                yield Store(self.memory, integer(number + 1), nbytes, "s64")
            case Do():
                yield from self._do(node)
            case For():
                start, stop, step = (self.expression(one) for one in (node.start, node.stop, node.step))
                yield replace(node, start=start, stop=stop, step=step, body=self.block(node.body))
            case While():
                test = self.expression(node.test)
                yield replace(node, test=test, body=self.block(node.body))
            case If():
                test = self.expression(node.test)
                yield replace(node, test=test, then=self.block(node.then), other=self.block(node.other))
            case _:
                yield node

    def store(self, node: Store) -> Store:
        pointer, index = self.expression(node.pointer), self.expression(node.index)
        value = node.value
        if node.augmented:  # what it reads is where it writes
            assert isinstance(value, Binary)
            value = replace(value, right=self.expression(value.right))
        else:
            value = self.expression(value)
        return replace(node, pointer=pointer, index=self.index(node, pointer, index), value=value)

    def _do(self, node: Do) -> Iterator[Stmt]:
        arguments = tuple([self.expression(argument) for argument in node.arguments])
        for site in self.sites.of_call.get(id(node), ()):
            if site.number in self.checks.accesses and site.memory is not None:
                low, nbytes = hull(site.memory)
                number = integer(identity(self.checks.kernel, site.number))
                if site.memory.runs is None:
                    yield Do("within_block", (low, nbytes, self.table, number))
                else:
                    yield Do("within_runs", (low, nbytes, *site.memory.runs, self.table, number))
        if node.function in self.parts:
            *given, lo, hi = arguments
            yield Do(node.function, (*given, self.table, lo, hi))
            yield self.leave()
        elif node.function == "call_kernel":
            yield Do(node.function, (*arguments, self.table))
            yield self.leave()
        else:
            yield replace(node, arguments=arguments)

    # --- expressions

    def expression(self, node: Expr) -> Expr:
        if isinstance(node, Load):
            pointer, index = self.expression(node.pointer), self.expression(node.index)
            return replace(node, pointer=pointer, index=self.index(node, pointer, index))
        return node.mapped(self.expression)

    def index(self, node: Load | Store, pointer: Expr, index: Expr) -> Expr:
        """The index of an access, with its check."""
        site: Site = self.sites.of_access[id(self.statement), id(node)]
        if site.number not in self.checks.accesses:
            return index
        number = integer(identity(self.checks.kernel, site.number))
        size: Expr | None = None
        if isinstance(pointer, Var) and pointer in self.fixed:
            size = integer(self.fixed[pointer])
        elif isinstance(pointer, Var) and pointer in self.counts and not self.checks.nested and not pointer.varies:
            size = self.counts[pointer]
        if size is not None:
            return Call("s64", "within", (index, size, self.table, number))
        itemsize = integer(site.itemsize)
        word = plus(self.address(pointer), times(index, itemsize))
        return Call("s64", "within_memory", (index, word, itemsize, self.table, number))
