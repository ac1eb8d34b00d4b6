"""Kernel text, a small subset of Python, to nodes: each expression gets its type, and each name its variable.

A name is one variable in the block that assigns it and in those within. Where it is assigned again, or read outside of
that block, it is one variable of the whole function that varies. One that holds integers of several types is s64.
"""

from __future__ import annotations

import abc
import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from hloom.compiler.kernel_ir import builder
from hloom.compiler.kernel_ir.functions import EFFECTS, Signature, UnknownFunction
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import (
    Assign,
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
    Together,
    Var,
    While,
)
from hloom.compiler.kernel_ir.scopes import varying
from hloom.compiler.kernel_ir.types import STORED, TypeMismatch, is_integer, is_pointer

__all__ = ["KernelSyntaxError", "Reader", "Widen", "expression", "read", "statements"]

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&",
    ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.USub: "-", ast.Invert: "~", ast.Not: "not",
}  # fmt: skip


class KernelSyntaxError(Exception):
    """Text that is not of the kernel language. line: counted from 1 in the kernel's text."""

    def __init__(self, found: str, line: int):
        super().__init__(f"line {line}: {found}")
        self.found, self.line = found, line


class Widen(Exception):
    """A variable holds integers of several types: it has to be s64 from its first assignment on."""

    def __init__(self, name: str):
        self.name = name


def read(text: str, params: Sequence[str], signature: Signature, parts: Iterable[str] = ()) -> Kernel:
    """The kernel of a text that defines one function.

    params: a type for each parameter as in a `KernelSource`, "f32*" or "s64". parts: names of kernels that it calls.
    Raises KernelSyntaxError, SyntaxError.
    """
    definitions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    if len(definitions) != 1:
        raise KernelSyntaxError(f"{len(definitions)} functions where one is expected", 1)
    wide: frozenset[str] = frozenset()
    while True:
        try:
            return Reader(definitions[0], params, signature, frozenset(parts), wide).kernel()
        except Widen as found:
            wide |= {found.name}


def expression(text: str, names: Names) -> Expr:
    """An expression over variables that have names. Raises KernelSyntaxError, SyntaxError."""
    return _Lines(names).value(ast.parse(text, mode="eval").body)


def statements(text: str, names: Names) -> list[Stmt]:
    """Statements over variables that have names, which those that they assign get too. Raises KernelSyntaxError,
    SyntaxError."""
    return _Lines(names).block(ast.parse(text).body)


class _Statements(abc.ABC):
    """Nodes of the syntax tree, by the names of their classes. Where variables come from is for those who inherit."""

    signature: Signature
    parts: frozenset[str]
    line = 1

    @abc.abstractmethod
    def variable(self, name: str, kind: str) -> Var:
        """What an assignment of a value of this type assigns."""

    @abc.abstractmethod
    def known(self, name: str) -> Var | None:
        """The variable that is read by a name."""

    def block(self, statements: list[ast.stmt]) -> list[Stmt]:
        made: list[Stmt] = []
        for statement in statements:
            made += self.statement(statement)
        return made

    def statement(self, node: ast.stmt) -> list[Stmt]:
        """What a statement becomes."""
        self.line = node.lineno
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            self.refuse(f"a statement {type(node).__name__}")
        found = method(node)
        return [] if found is None else [found]

    def loop(self, name: str, body: list[ast.stmt]) -> tuple[Var, list[Stmt]]:
        """The variable of a loop, and its statements."""
        var = self.variable(name, "s64")
        return var, self.block(body)

    def refuse(self, found: str) -> NoReturn:
        raise KernelSyntaxError(found, self.line)

    # --- statements

    def _assign(self, node: ast.Assign) -> Stmt:
        if len(node.targets) > 1:
            self.refuse("several targets of one value")
        target = node.targets[0]
        if not isinstance(target, ast.Tuple):
            if isinstance(target, ast.Name) and (size := self.scratch(node.value)) is not None:
                return Scratch(self.variable(target.id, f"*{size[0]}"), size[1])
            return self.stored(target, self.value(node.value))
        if not isinstance(node.value, ast.Tuple) or len(node.value.elts) != len(target.elts):
            self.refuse("a tuple")
        values = [self.value(part) for part in node.value.elts]
        return Together([self.stored(part, value) for part, value in zip(target.elts, values, strict=True)])

    def scratch(self, node: ast.expr) -> tuple[str, int] | None:
        """The dtype and the number of elements of `scratch_f32(64)`; None for other expressions."""
        match node:
            case ast.Call(func=ast.Name(id=name), args=[count]) if name.startswith("scratch_"):
                if not isinstance(count, ast.Constant) or type(count.value) is not int:
                    self.refuse("scratch memory of a computed size")
                return name.removeprefix("scratch_"), count.value
        return None

    def stored(self, target: ast.expr, value: Expr, augmented: bool = False) -> Assign | Store:
        if isinstance(target, ast.Name):
            return Assign(self.variable(target.id, value.type), value, augmented)
        if not isinstance(target, ast.Subscript):
            self.refuse(f"an assignment to {type(target).__name__}")
        pointer, index = self.place(target)
        kind = pointer.type[1:]
        return Store(pointer, index, value, STORED.get(kind, kind), augmented=augmented)

    def _augassign(self, node: ast.AugAssign) -> Stmt:
        old = self.value(node.target)
        return self.stored(node.target, self.binary(node.op, old, self.value(node.value)), augmented=True)

    def _expr(self, node: ast.Expr) -> Stmt | None:
        if isinstance(node.value, ast.Constant):
            return None  # a docstring
        if not isinstance(node.value, ast.Call):
            self.refuse("a statement without effect")
        name, arguments = self.called(node.value)
        return Do(name, arguments) if name in self.parts else builder.do(name, arguments)

    def _for(self, node: ast.For) -> Stmt:
        match node:
            case ast.For(
                target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=args, keywords=[]), orelse=[]
            ) if 1 <= len(args) <= 3:
                bounds = [self.value(bound) for bound in args]
            case _:
                self.refuse("a loop over something else than a range")
        one = builder.ONE
        start, stop, step = (builder.ZERO, *bounds, one) if len(bounds) == 1 else (*bounds, one)[:3]
        var, body = self.loop(name, node.body)
        return For(var, start, stop, step, body)

    def _while(self, node: ast.While) -> Stmt:
        if node.orelse:
            self.refuse("while ... else")
        return While(self.truth(node.test), self.block(node.body))

    def _if(self, node: ast.If) -> Stmt:
        return If(self.truth(node.test), self.block(node.body), self.block(node.orelse))

    def _jump(self, node: ast.stmt) -> Stmt:
        if isinstance(node, ast.Return) and node.value is not None:
            self.refuse("a result")
        return Jump(type(node).__name__.lower())

    _break = _continue = _return = _jump

    def _pass(self, node: ast.Pass) -> None:
        return None

    # --- expressions

    def value(self, node: ast.expr) -> Expr:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            self.refuse(f"an expression {type(node).__name__}")
        try:
            made: Expr = method(node)
            return made
        except TypeMismatch as error:
            self.refuse(str(error))
        except UnknownFunction as error:
            self.refuse(f"the function {error}")

    def truth(self, node: ast.expr) -> Expr:
        return self.made(builder.truth, self.value(node))

    def made(self, build: Callable[..., Any], *parts: Any) -> Any:
        """What the builder makes, or why it does not."""
        try:
            return build(*parts)
        except TypeMismatch as error:
            self.refuse(str(error))

    def _name(self, node: ast.Name) -> Expr:
        if (var := self.known(node.id)) is not None:
            return var
        if node.id in ("inf", "nan"):
            return Const("f64", float(node.id))
        self.refuse(f"the name {node.id}")

    def _constant(self, node: ast.Constant) -> Expr:
        if not isinstance(node.value, (bool, int, float)):
            self.refuse(f"the constant {node.value!r}")
        return builder.constant(node.value)

    def binary(self, op: ast.operator, left: Expr, right: Expr) -> Expr:
        if type(op) not in _OPERATORS:
            self.refuse(f"the operator {type(op).__name__}")
        made: Expr = self.made(builder.operation, _OPERATORS[type(op)], left, right)
        return made

    def _binop(self, node: ast.BinOp) -> Expr:
        left = self.value(node.left)
        return self.binary(node.op, left, self.value(node.right))

    def _unaryop(self, node: ast.UnaryOp) -> Expr:
        return builder.unary(_OPERATORS.get(type(node.op), "+"), self.value(node.operand))

    def _compare(self, node: ast.Compare) -> Expr:
        if len(node.ops) != 1 or type(node.ops[0]) not in _OPERATORS:
            self.refuse("a chain of comparisons")
        left, right = self.value(node.left), self.value(node.comparators[0])
        return builder.compared(_OPERATORS[type(node.ops[0])], left, right)

    def _boolop(self, node: ast.BoolOp) -> Expr:
        operands = [self.value(operand) for operand in node.values]
        return builder.both("and" if isinstance(node.op, ast.And) else "or", operands)

    def _ifexp(self, node: ast.IfExp) -> Expr:
        return builder.chosen(self.value(node.test), self.value(node.body), self.value(node.orelse))

    def _attribute(self, node: ast.Attribute) -> Expr:
        return builder.part(self.value(node.value), node.attr)

    def place(self, node: ast.Subscript) -> tuple[Expr, Expr]:
        pointer, index = self.value(node.value), self.value(node.slice)
        self.made(builder.element, pointer, index)
        return pointer, index

    def _subscript(self, node: ast.Subscript) -> Expr:
        return builder.element(self.value(node.value), self.value(node.slice))

    def called(self, node: ast.Call) -> tuple[str, tuple[Expr, ...]]:
        if not isinstance(node.func, ast.Name) or node.keywords:
            self.refuse("a call of something else than a name")
        return node.func.id, tuple([self.value(argument) for argument in node.args])

    def _call(self, node: ast.Call) -> Expr:
        name, arguments = self.called(node)
        if name in self.parts or name in EFFECTS:
            self.refuse(f"the result of {name}")
        return builder.call(name, arguments, self.signature)


class _Lines(_Statements):
    """Statements among others: a name is one variable of the whole function."""

    def __init__(self, names: Names):
        self.names, self.signature, self.parts = names, names.signature, names.parts

    def variable(self, name: str, kind: str) -> Var:
        try:
            return self.names.declare(name, kind)
        except TypeMismatch as error:
            self.refuse(str(error))

    def known(self, name: str) -> Var | None:
        return self.names.get(name)


class Reader(_Statements):
    """Reads one function."""

    def __init__(
        self, definition: ast.FunctionDef, params: Sequence[str], signature: Signature, parts: frozenset[str],
        wide: frozenset[str],
    ):  # fmt: skip
        self.definition, self.signature, self.parts, self.wide = definition, signature, parts, wide
        self.varying = varying(definition)
        names = [argument.arg for argument in definition.args.args]
        if len(names) != len(params):
            raise KernelSyntaxError(f"{len(names)} parameters of {len(params)} types", definition.lineno)
        kinds = [f"*{p[:-1]}" if p.endswith("*") else p for p in params]
        pairs = zip(names, kinds, strict=True)
        self.params = tuple([Var(kind, name, name in self.varying) for name, kind in pairs])
        self.scopes: list[dict[str, Var]] = [{var.name: var for var in self.params}]
        self.line = definition.lineno

    def kernel(self) -> Kernel:
        return Kernel(self.definition.name, self.params, self.block(self.definition.body, self.scopes[0]))

    def block(self, statements: list[ast.stmt], bound: dict[str, Var] | None = None) -> list[Stmt]:
        self.scopes.append({} if bound is None else bound)
        made = super().block(statements)
        self.scopes.pop()
        return made

    def loop(self, name: str, body: list[ast.stmt]) -> tuple[Var, list[Stmt]]:
        if name in self.varying:
            return super().loop(name, body)
        var = Var("s64", name)
        return var, self.block(body, {name: var})

    def known(self, name: str) -> Var | None:
        for scope in reversed(self.scopes):
            if (var := scope.get(name)) is not None:
                return var
        if name in self.varying and name not in ("inf", "nan"):
            self.refuse(f"{name} is read before it has a type")
        return None

    def variable(self, name: str, kind: str) -> Var:
        """What an assignment of a value of this type assigns."""
        varies = name in self.varying
        scope = self.scopes[0] if varies else self.scopes[-1]
        var = scope.get(name)
        if var is None or not varies:
            wide = "s64" if name in self.wide else kind
            var = scope[name] = Var(wide, name, varies)
        if var.type != kind and not (is_pointer(var.type) and is_pointer(kind)):
            if not (is_integer(var.type) and is_integer(kind)) or "u64" in (var.type, kind):
                self.refuse(f"{name} holds {var.type} and {kind}")
            if var.type != "s64":
                raise Widen(name)
        return var
