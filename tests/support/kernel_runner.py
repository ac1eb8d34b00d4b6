"""Kernels run from their nodes, integer by integer: what the verifier of accesses is held to.

Floats are not computed. A load of an integer answers what the test says; an access that is outside of its array is
noted, and answers as another would.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from hloom.compiler.kernel_ir.affine.arithmetic import limits
from hloom.compiler.kernel_ir.bounds.accesses import Sites
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Choice,
    Const,
    Do,
    Expr,
    For,
    If,
    Jump,
    Kernel,
    Load,
    Logic,
    Scratch,
    Stmt,
    Store,
    Together,
    Unary,
    Var,
    While,
)
from hloom.compiler.kernel_ir.types import is_integer


class TooLong(Exception):
    """More statements than a test has time for."""


class _Jump(Exception):
    def __init__(self, how: str):
        self.how = how


def wrapped(value: int, kind: str) -> int:
    least, most = limits(kind)
    return (value - least) % (most - least + 1) + least


class Runner:
    """One kernel with its arrays. outside: the numbers of accesses that were outside of their arrays."""

    def __init__(self, kernel: Kernel, extents: Mapping[str, int], element: Callable[[], int], most: int = 3000):
        self.kernel, self.element, self.left = kernel, element, most
        self.sites = Sites(kernel, None)
        self.sizes = dict(extents)
        self.values: dict[Var, object] = {}
        self.outside: set[int] = set()
        self.reached: set[int] = set()
        self.statement: Stmt | None = None

    def run(self, **given: int) -> None:
        self.values = {v: v.name if v.type[0] == "*" else given[v.name] for v in self.kernel.params}
        with contextlib.suppress(_Jump):
            self.block(self.kernel.body)

    def block(self, statements: list[Stmt]) -> None:
        for statement in statements:
            self.left -= 1
            if self.left < 0:
                raise TooLong
            self.statement = statement
            self.run_one(statement)

    def body(self, statements: list[Stmt]) -> bool:
        """Whether the loop goes on."""
        try:
            self.block(statements)
        except _Jump as jump:
            if jump.how == "return":
                raise
            return jump.how == "continue"
        return True

    def run_one(self, node: Stmt) -> None:
        match node:
            case Assign():
                self.assign(node.var, self.value(node.value))
            case Store():
                pointer, index = self.value(node.pointer), self.value(node.index)
                self.value(node.value.right if node.augmented else node.value)
                self.access(node, pointer, index)
            case Together():
                made = []
                for part in node.parts:
                    value = self.value(part.value)
                    if isinstance(part, Store):
                        self.access(part, self.value(part.pointer), self.value(part.index))
                    else:
                        made.append((part.var, value))
                for var, value in made:
                    self.assign(var, value)
            case Scratch():
                self.values[node.var] = node.var.name
                self.sizes[node.var.name] = node.size
            case Do():
                raise NotImplementedError
            case If():
                self.block(node.then if self.value(node.test) else node.other)
            case For():
                start, stop, step = (self.value(one) for one in (node.start, node.stop, node.step))
                for number in range(start, stop, step):
                    self.left -= 1
                    if self.left < 0:
                        raise TooLong
                    self.values[node.var] = number
                    if not self.body(node.body):
                        break
            case While():
                while True:
                    self.left -= 1
                    if self.left < 0:
                        raise TooLong
                    self.statement = node
                    if not self.value(node.test) or not self.body(node.body):
                        break
            case Jump():
                raise _Jump(node.how)

    def assign(self, var: Var, value: object) -> None:
        self.values[var] = int(value) if is_integer(var.type) else value

    def access(self, node: Load | Store, pointer: str, index: int) -> None:
        site = self.sites.of_access[id(self.statement), id(node)]
        self.reached.add(site.number)
        if not 0 <= index < self.sizes[pointer]:
            self.outside.add(site.number)

    def value(self, node: Expr):
        match node:
            case Var():
                return self.values.get(node, 0)
            case Const():
                return node.value
            case Load():
                self.access(node, self.value(node.pointer), self.value(node.index))
                return wrapped(self.element(), node.type) if is_integer(node.type) else 0.0
            case Binary():
                return self.binary(node, self.value(node.left), self.value(node.right))
            case Unary(op="not"):
                return not self.value(node.operand)
            case Unary():
                value = self.value(node.operand)
                made = -value if node.op == "-" else ~value
                return wrapped(made, node.type) if is_integer(node.type) else made
            case Cast():
                value = self.value(node.operand)
                return wrapped(int(value), node.type) if is_integer(node.type) else 0.0
            case Logic(op="and"):
                return all(self.value(one) for one in node.operands)
            case Logic():
                return any(self.value(one) for one in node.operands)
            case Choice():
                return self.value(node.yes) if self.value(node.test) else self.value(node.no)
            case Call():
                return self.call(node, [self.value(one) for one in node.arguments])
        raise NotImplementedError

    def binary(self, node: Binary, left, right):
        match node.op:
            case "<" | "<=" | ">" | ">=" | "==" | "!=" as op:
                return {
                    "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right,
                    "==": left == right, "!=": left != right,
                }[op]  # fmt: skip
        if not is_integer(node.type):
            return (
                {"&": left and right, "|": left or right, "^": left != right}[node.op] if node.type == "pred" else 0.0
            )
        made = {
            "+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
            "//": lambda: left // right, "%": lambda: left % right, "&": lambda: left & right,
            "|": lambda: left | right, "^": lambda: left ^ right, "<<": lambda: left << right,
            ">>": lambda: left >> right,
        }[node.op]()  # fmt: skip
        return wrapped(made, node.type)

    def call(self, node: Call, values: list):
        match node.function:
            case "min":
                return min(values)
            case "max":
                return max(values)
            case "quotient":
                return wrapped((values[0] % 2**64) // (values[1] % 2**64), "s64")
            case "select":
                return values[1] if values[0] else values[2]
            case "min_s32":
                return min(values)
        raise NotImplementedError(node.function)
