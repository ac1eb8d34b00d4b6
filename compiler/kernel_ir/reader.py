"""Kernel text, a small subset of Python, to nodes: each expression gets its type, and each name its variable.

A name is one variable in the block that assigns it and in those within. Where it is assigned again, or read outside of
that block, it is one variable of the whole function that varies. One that holds integers of several types is s64.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import NoReturn

from hloom.compiler.kernel_ir.functions import EFFECTS, Signature, UnknownFunction, returned
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
from hloom.compiler.kernel_ir.scopes import varying
from hloom.compiler.kernel_ir.types import (
    FLOATS,
    INTEGERS,
    PART,
    STORED,
    TypeMismatch,
    arithmetic,
    is_integer,
    is_pointer,
    joined,
    negated,
)

__all__ = ["KernelSyntaxError", "read"]

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&",
    ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.USub: "-", ast.Invert: "~", ast.Not: "not",
}  # fmt: skip
_CASTS = frozenset((*INTEGERS, *FLOATS, *PART))
_NARROW = ("pred", "f16", "bf16")
_LEAST = 1 << 63


class KernelSyntaxError(Exception):
    """Text that is not of the kernel language. line: counted from 1 in the kernel's text."""

    def __init__(self, found: str, line: int):
        super().__init__(f"line {line}: {found}")
        self.found, self.line = found, line


class _Widen(Exception):
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
            return _Reader(definitions[0], params, signature, frozenset(parts), wide).kernel()
        except _Widen as found:
            wide |= {found.name}


class _Reader:
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

    def refuse(self, found: str) -> NoReturn:
        raise KernelSyntaxError(found, self.line)

    # --- statements

    def block(self, statements: list[ast.stmt], bound: dict[str, Var] | None = None) -> list[Stmt]:
        self.scopes.append({} if bound is None else bound)
        made: list[Stmt] = []
        for statement in statements:
            self.line = statement.lineno
            method = getattr(self, f"_{type(statement).__name__.lower()}", None)
            if method is None:
                self.refuse(f"a statement {type(statement).__name__}")
            if (found := method(statement)) is not None:
                made.append(found)
        self.scopes.pop()
        return made

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
                raise _Widen(name)
        return var

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
        kind, _, dtype = name.partition("_")
        if name not in self.parts and kind in ("store", "stream") and len(arguments) == 3:
            pointer, index, value = arguments
            return Store(pointer, index, value, dtype, kind == "stream")
        return Do(name, arguments)

    def _for(self, node: ast.For) -> Stmt:
        match node:
            case ast.For(
                target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=args, keywords=[]), orelse=[]
            ) if 1 <= len(args) <= 3:
                bounds = [self.value(bound) for bound in args]
            case _:
                self.refuse("a loop over something else than a range")
        zero, one = Const("s64", 0), Const("s64", 1)
        start, stop, step = (zero, *bounds, one) if len(bounds) == 1 else (*bounds, one)[:3]
        varies = name in self.varying
        var = self.variable(name, "s64") if varies else Var("s64", name)
        return For(var, start, stop, step, self.block(node.body, None if varies else {name: var}))

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
        value = self.value(node)
        if value.type != "pred" and not is_integer(value.type):
            self.refuse(f"the truth of {value.type}")
        return value

    def _name(self, node: ast.Name) -> Expr:
        for scope in reversed(self.scopes):
            if (var := scope.get(node.id)) is not None:
                return var
        if node.id in ("inf", "nan"):
            return Const("f64", float(node.id))
        if node.id in self.varying:
            self.refuse(f"{node.id} is read before it has a type")
        self.refuse(f"the name {node.id}")

    def _constant(self, node: ast.Constant) -> Expr:
        value = node.value
        if isinstance(value, bool):
            return Const("pred", value)
        if isinstance(value, int) and -_LEAST <= value < 2 * _LEAST:
            return Const("s64" if value < _LEAST else "u64", value)
        if isinstance(value, float):
            return Const("f64", value)
        self.refuse(f"the constant {value!r}")

    def binary(self, op: ast.operator, left: Expr, right: Expr) -> Expr:
        name = _OPERATORS.get(type(op))
        if name is None:
            self.refuse(f"the operator {type(op).__name__}")
        try:
            return Binary(arithmetic(name, left.type, right.type), name, left, right)
        except TypeMismatch as error:
            self.refuse(str(error))

    def _binop(self, node: ast.BinOp) -> Expr:
        left = self.value(node.left)
        return self.binary(node.op, left, self.value(node.right))

    def _unaryop(self, node: ast.UnaryOp) -> Expr:
        operand, op = self.value(node.operand), _OPERATORS.get(type(node.op), "+")
        if op == "-" and operand == Const("u64", _LEAST):  # Python has no negative literals
            return Const("s64", -_LEAST)
        return Unary(negated(op, operand.type), op, operand)

    def _compare(self, node: ast.Compare) -> Expr:
        if len(node.ops) != 1 or type(node.ops[0]) not in _OPERATORS:
            self.refuse("a chain of comparisons")
        left, right = self.value(node.left), self.value(node.comparators[0])
        if left.type != right.type or not is_integer(left.type):
            joined(left.type, right.type)
        return Binary("pred", _OPERATORS[type(node.ops[0])], left, right)

    def _boolop(self, node: ast.BoolOp) -> Expr:
        operands = tuple([self.value(operand) for operand in node.values])
        if any(operand.type != "pred" for operand in operands):
            self.refuse("and, or of numbers")
        return Logic("and" if isinstance(node.op, ast.And) else "or", operands)

    def _ifexp(self, node: ast.IfExp) -> Expr:
        test, yes, no = self.truth(node.test), self.value(node.body), self.value(node.orelse)
        return Choice(yes.type if yes.type == no.type else joined(yes.type, no.type), test, yes, no)

    def _attribute(self, node: ast.Attribute) -> Expr:
        operand = self.value(node.value)
        if node.attr not in ("real", "imag") or operand.type not in PART:
            self.refuse(f".{node.attr} of {operand.type}")
        return Unary(PART[operand.type], f".{node.attr}", operand)

    def place(self, node: ast.Subscript) -> tuple[Expr, Expr]:
        pointer, index = self.value(node.value), self.value(node.slice)
        if not is_pointer(pointer.type) or not is_integer(index.type):
            self.refuse(f"an index of {index.type} of {pointer.type}")
        return pointer, index

    def _subscript(self, node: ast.Subscript) -> Expr:
        pointer, index = self.place(node)
        kind = pointer.type[1:]
        return Load(STORED.get(kind, kind), pointer, index)

    def called(self, node: ast.Call) -> tuple[str, tuple[Expr, ...]]:
        if not isinstance(node.func, ast.Name) or node.keywords:
            self.refuse("a call of something else than a name")
        return node.func.id, tuple([self.value(argument) for argument in node.args])

    def _call(self, node: ast.Call) -> Expr:
        name, arguments = self.called(node)
        if name in self.parts or name in EFFECTS:
            self.refuse(f"the result of {name}")
        if name in _CASTS and len(arguments) == 1:
            return Cast(name, arguments[0])
        kind, _, dtype = name.partition("_")
        if kind == "load" and dtype in _NARROW and len(arguments) == 2:
            return Load("pred" if dtype == "pred" else "f32", *arguments)
        return Call(returned(name, [argument.type for argument in arguments], self.signature), name, arguments)
