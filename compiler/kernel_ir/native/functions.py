"""Native functions, such as the driver's (`runtime.driver_source`), as nodes.

Their language is that of kernels without pointers: every value is an int64 or a truth value, memory is reached by calls
(`load(address, index)`), constants have names, and functions have results. What they call may have an effect in an
expression too.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping, Sequence
from typing import Protocol

from hloom.compiler.kernel_ir import rewrite
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Const,
    Do,
    Expr,
    For,
    If,
    Jump,
    Kernel,
    Logic,
    Stmt,
    Var,
)
from hloom.compiler.kernel_ir.reader import Reader
from hloom.ir.records import record, replace

__all__ = ["INTRINSICS", "Function", "Result", "Source", "read_function", "specialized"]

# The intrinsics of the language -> the types of their results; "" where they are called for their effect alone.
INTRINSICS = {
    "load": "s64", "relaxed_load": "s64", "atomic_load": "s64", "load_byte": "s64", "atomic_add": "s64",
    "compare_exchange": "pred", "store": "", "relaxed_store": "", "atomic_store": "", "store_byte": "",
    "call_kernel": "", "call_function": "s64", "call_function_of_7": "s64", "copy_bytes": "", "pause": "",
    "crc32c_word": "s64", "crc32c_byte": "s64",
}  # fmt: skip
_TESTS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


class Source(Protocol):
    """A native function as text: `runtime.driver_source.NativeFunction`."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def result(self) -> str: ...
    @property
    def calls(self) -> Mapping[str, tuple[tuple[str, ...], str]]: ...
    @property
    def constants(self) -> Mapping[str, int]: ...


@record
class Result(Stmt):
    """`return value`."""

    value: Expr

    PARTS = ("value",)


@record
class Function:
    """A native function. result: "s64", or "void". constants: those that it names; they are variables that nothing
    assigns."""

    name: str
    params: tuple[Var, ...]
    body: list[Stmt]
    result: str
    constants: Mapping[Var, int]


def read_function(source: Source) -> Function:
    """The nodes of a native function. Raises KernelSyntaxError, SyntaxError."""
    (definition,) = (node for node in ast.parse(source.text).body if isinstance(node, ast.FunctionDef))
    reader = _Reader(definition, source)
    kernel = reader.kernel()
    constants = {var: source.constants[name] for name, var in reader.constants.items()}
    return Function(kernel.name, kernel.params, kernel.body, source.result, constants)


class _Reader(Reader):
    def __init__(self, definition: ast.FunctionDef, source: Source):
        results = INTRINSICS | {"abs": "s64"} | {name: result for name, (_, result) in source.calls.items()}
        count = len(definition.args.args)
        super().__init__(definition, ["s64"] * count, lambda name: None, frozenset(), frozenset())
        self.results, self.values = results, source.constants
        self.constants: dict[str, Var] = {}

    def known(self, name: str) -> Var | None:
        if (var := super().known(name)) is not None or name not in self.values:
            return var
        return self.constants.setdefault(name, Var("s64", name))

    def _expr(self, node: ast.Expr) -> Stmt | None:
        if isinstance(node.value, ast.Call):
            name, arguments = self.called(node.value)
            if name not in self.results:
                self.refuse(f"the function {name}")
            return Do(name, arguments)
        return super()._expr(node)

    def _call(self, node: ast.Call) -> Expr:
        name, arguments = self.called(node)
        if (kind := self.results.get(name)) is None:
            return super()._call(node)
        if kind in ("", "void"):
            self.refuse(f"the result of {name}")
        # Results of 32 bits are compared with numbers, and nothing else.
        return Call("pred" if kind == "pred" else "s64", name, arguments)

    def _return(self, node: ast.stmt) -> Stmt:
        assert isinstance(node, ast.Return)
        return Jump("return") if node.value is None else Result(self.value(node.value))


def specialized(function: Function, values: Mapping[str, int], never: Sequence[str] = ()) -> Function:
    """A function of which some parameters are known: without them, and without what is never done then.

    never: names of constants that nothing is equal to.
    """
    known = {var: Const("s64", values[var.name]) for var in function.params if var.name in values}
    absent = {var for var in function.constants if var.name in never}

    def decided(expression: Expr) -> Expr:
        return _decided(rewrite.substituted(expression, known), absent)

    body = rewrite.mapped([rewrite.with_expressions(one, decided) for one in function.body], _reduced)
    body = _without_dead(body)
    read = {*rewrite.read(body)}
    constants = {var: value for var, value in function.constants.items() if var in read}
    params = tuple([var for var in function.params if var not in known])
    return replace(function, params=params, body=body, constants=constants)


def _decided(expression: Expr, absent: set[Var]) -> Expr:
    """An expression in which tests that are known are constants."""
    expression = expression.mapped(lambda part: _decided(part, absent))
    match expression:
        case Binary(op=op, left=Const(value=left), right=Const(value=right)) if op in _TESTS:
            return Const("pred", _TESTS[op](left, right))
        case Binary(op="==", right=Var() as right) if right in absent:
            return Const("pred", False)
        case Logic(op=op, operands=operands):
            decisive = op == "or"
            if any(one == Const("pred", decisive) for one in operands):
                return Const("pred", decisive)
            left = tuple([one for one in operands if not isinstance(one, Const)])
            return Logic(op, left) if len(left) > 1 else left[0] if left else Const("pred", not decisive)
    return expression


def _reduced(statement: Stmt) -> list[Stmt] | None:
    match statement:
        case If(test=Const(value=value)):
            return statement.then if value else statement.other
        case If(then=[], other=[]) if not any(isinstance(part, Call) for part in statement.test.walk()):
            return []
        case For(start=Const(value=start), stop=Const(value=stop), step=Const(value=step)) if (
            step > 0 and start >= stop
        ):
            return []
    return None


def _without_dead(body: list[Stmt]) -> list[Stmt]:
    """Statements without assignments of numbers to variables that nothing reads."""
    read = {*rewrite.read(Kernel("", (), body).walk())}

    def dropped(statement: Stmt) -> list[Stmt] | None:
        dead = isinstance(statement, Assign) and statement.var not in read and isinstance(statement.value, Const)
        return [] if dead else None

    return rewrite.mapped(body, dropped)
