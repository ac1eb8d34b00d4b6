"""Kernel functions to kernels: read for given types, with the functions that they call inlined.

A parameter is given a variable of the kernel, an expression, or what is known now: a number, a truth value, None, the
name of a function, or one that makes an expression of expressions (`Formula`). What is known decides: branches, choices
and arithmetic of known values leave no trace. So do numbers among the globals of the function's module.

A function that is called becomes part of its caller. It may return a tuple of values in its last statement, and nothing
before. What it returns becomes the variable to which its caller assigns it; its other variables stay its own.
"""

from __future__ import annotations

import ast
import builtins
import functools
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from hloom.compiler.kernel_ir import builder
from hloom.compiler.kernel_ir.functions import returned
from hloom.compiler.kernel_ir.generic.complex_numbers import without_complex_operations
from hloom.compiler.kernel_ir.generic.distinct import with_distinct_names
from hloom.compiler.kernel_ir.generic.language import KERNEL_FUNCTIONS, Function, KernelFunction, Type
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Kernel,
    Stmt,
    Store,
    Unary,
    Var,
)
from hloom.compiler.kernel_ir.reader import KernelSyntaxError, Reader, Widen
from hloom.compiler.kernel_ir.rewrite import assigned, with_variables
from hloom.compiler.kernel_ir.scopes import names_in, settle, varying
from hloom.compiler.kernel_ir.types import PART, REGISTER, is_integer, is_pointer
from hloom.ir.records import replace

__all__ = ["Known", "completed", "specialized", "statements_of"]

Known = bool | int | float | str | Callable[..., Expr] | None
_FOLDED: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.Pow: operator.pow,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


class Static(Const):
    """A number that was known before the kernel was made: arithmetic with it is done at once."""


def specialized(
    function: KernelFunction, name: str, params: Sequence[Var], given: Mapping[str, Expr | Known],
    types: Mapping[str, str],
) -> Kernel:  # fmt: skip
    """The kernel of a kernel function.

    params: those of the kernel. given: what the parameters of the function are. types: dtypes by the names 'T', 'R',
    'Int'. Raises KernelSyntaxError.
    """
    reader = _inlined(function, _all_known(given), types)
    if reader.results:
        reader.refuse("a kernel with a result")
    return completed(Kernel(name, tuple(params), reader.lowered(reader.body)))


def statements_of(
    function: KernelFunction, given: Mapping[str, Expr | Known], types: Mapping[str, str], into: Sequence[Var] = ()
) -> list[Stmt]:
    """The statements of a kernel function in a kernel that has others, which is `completed`. into: variables of the
    kernel that become what the function returns. Raises KernelSyntaxError."""
    part = _inlined(function, _all_known(given), types)
    renamed, others = part.results_in(into)
    made = [*part.body, *(Assign(into[k], part.results[k]) for k in others)]
    return part.lowered(part.with_results(made, renamed))


def completed(kernel: Kernel) -> Kernel:
    """The kernel of statements of kernel functions, with names that tell its variables apart."""
    for var in (*kernel.params, *assigned(kernel.body)):  # parts that became one differ from what they were alone
        var.varies = False
    settle(kernel)
    named = with_distinct_names(kernel)
    if named is not kernel:
        settle(named)
    return named


def _all_known(given: Mapping[str, Expr | Known]) -> dict[str, Any]:
    return {key: _known(value) for key, value in given.items()}


def _known(value: Any) -> Any:
    """A number as a node; all else as it is."""
    if isinstance(value, bool):
        return Static("pred", value)
    if isinstance(value, int):
        return Static("s64", value)
    return Static("f64", value) if isinstance(value, float) else value


@functools.cache
def _lines(load: Callable[[str], bytes], file: str) -> list[str]:
    return load(file).decode().splitlines()


class _Source:
    """A function as it is written, for all that is made of it.

    results: what it returns in its last statement. formula: whether it does nothing else. own: names that it assigns.
    """

    def __init__(self, definition: ast.FunctionDef):
        self.definition = definition
        self.params = tuple([argument.arg for argument in definition.args.args])
        *statements, last = definition.body
        self.results: list[ast.expr] = []
        if isinstance(last, ast.Return) and last.value is not None:
            self.results = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
        else:
            statements = definition.body
        self.statements = statements
        self.formula = all(isinstance(node, ast.Expr) for node in statements)  # a docstring at most
        names = names_in(definition)
        self.uses = Counter([node.id for node in names])
        self.own = frozenset([node.id for node in names if isinstance(node.ctx, ast.Store)])
        self._varying: dict[Any, frozenset[str]] = {}

    def varying(self, known: Any, decided: Callable[[ast.expr], bool | None]) -> frozenset[str]:
        """The names that vary (`scopes`). known: what the decisions depend on."""
        if known not in self._varying:
            self._varying[known] = varying(self.definition, decided)
        return self._varying[known]


@functools.cache
def _source(function: KernelFunction) -> _Source:
    """A function that stands at the left edge of its module. Lines are those of the module."""
    code = function.__code__
    lines = _lines(function.__globals__["__loader__"].get_data, code.co_filename)
    first = code.co_firstlineno - 1
    stop = next(k for k in range(first, len(lines)) if lines[k].startswith("def ")) + 1
    while stop < len(lines) and lines[stop][:1] in ("", " ", ")", "#"):
        stop += 1
    text = "\n".join(lines[first:stop])
    match ast.parse("\n" * first + text).body:
        case [ast.FunctionDef() as definition] if definition.name == code.co_name:
            made = _Source(definition)
            if made.params == code.co_varnames[: code.co_argcount]:
                return made
    raise KernelSyntaxError(f"{code.co_filename} is no longer what was imported: {code.co_name}", first + 1)


def _inlined(function: KernelFunction, given: Mapping[str, Any], types: Mapping[str, str]) -> _Specializer:
    """A reader that has read a function."""
    wide: frozenset[str] = frozenset()
    while True:
        try:
            reader = _Specializer(function, given, types, wide)
            reader.read()
            return reader
        except Widen as found:
            wide |= {found.name}


class _Specializer(Reader):
    """Reads one function. body: its statements. results: what it returns. lowers: whether there are operations that
    kernel text has not (`complex_numbers`)."""

    def __init__(
        self, function: KernelFunction, given: Mapping[str, Any], types: Mapping[str, str], wide: frozenset[str]
    ):
        self.function, self.types, self.wide, self.parts = function, types, wide, frozenset()
        self.source, self.globals = _source(function), function.__globals__
        self.line = self.source.definition.lineno
        self.given = dict(given)
        self.varying: frozenset[str] = frozenset()
        self.scopes: list[dict[str, Var]] = [{}]
        self.body: list[Stmt] = []
        self.results: list[Expr] = []
        self.lowers = False
        self.copied: dict[Var, Expr] = {}  # variables of parameters that the function assigns to, and what was given

    def refuse(self, found: str) -> NoReturn:
        raise KernelSyntaxError(f"{self.function.__module__}.{self.function.__name__}: {found}", self.line)

    def read(self) -> None:
        source = self.source
        if {*source.params} != {*self.given}:
            self.refuse(f"parameters {', '.join(source.params)}, given {', '.join(self.given)}")
        known = tuple([value if isinstance(value, Static) or value is None else 0 for value in self.given.values()])
        self.varying = source.varying(known, self.decided)
        for argument in source.definition.args.args:
            name, value = argument.arg, self.given[argument.arg]
            self.expect(argument, value)
            if not isinstance(value, Expr):
                continue
            once = source.formula or source.uses[name] == 1
            if name in source.own or not (isinstance(value, Var | Const) or (once and _is_plain(value))):
                var = self.variable(name, value.type)
                self.copied[var] = value
                self.body.append(Assign(var, value))
        self.body += self.block(source.statements, self.scopes[0])
        self.results = [self.value(result) for result in source.results]

    def lowered(self, statements: list[Stmt]) -> list[Stmt]:
        return without_complex_operations(statements) if self.lowers else statements

    def expect(self, argument: ast.arg, value: Any) -> None:
        """Refuses what is not of the type that a parameter says."""
        said = argument.annotation
        if isinstance(said, ast.BinOp) and isinstance(said.op, ast.BitOr):  # Pointer[T] | None
            if value is None:
                return
            said = said.left
        match said:
            case ast.Subscript(value=ast.Name(id="Pointer"), slice=ast.Name(id=of)):
                wanted = f"*{self.dtype(of)}"
            case ast.Name(id=name) if name in _KNOWN:
                wanted = _KNOWN[name]
                if not isinstance(value, Static):
                    self.refuse(f"{argument.arg}, which has to be known, is given {value}")
            case ast.Name(id="Formula"):
                if not callable(value):
                    self.refuse(f"{argument.arg}, which makes an expression, is given {value}")
                return
            case ast.Name(id="Block"):
                if not isinstance(value, str):
                    self.refuse(f"{argument.arg}, the name of a function, is given {value}")
                return
            case ast.Name(id=name):
                wanted = self.register(name)
            case _:
                self.refuse(f"the type of {argument.arg}")
        found = value.type if isinstance(value, Expr) else value
        if found != wanted:
            self.refuse(f"{argument.arg} is {found} where {wanted} is expected")

    def dtype(self, name: str) -> str:
        found = self.globals.get(name)
        if not isinstance(found, Type):
            self.refuse(f"{name} is no type")
        return self.types.get(found.name, found.name)

    def register(self, name: str) -> str:
        """The type of a value of a type."""
        kind = self.dtype(name)
        return REGISTER.get(kind, kind)

    def found(self, name: str) -> Any:
        """What a name stands for: an expression, what is known, a type or a function."""
        for scope in reversed(self.scopes):
            if (var := scope.get(name)) is not None:
                return var
        if name in self.given:
            return self.given[name]
        if name in self.globals:
            value = self.globals[name]
            return Const("f64", value) if isinstance(value, float) and name in ("inf", "nan") else _known(value)
        if hasattr(builtins, name):
            return getattr(builtins, name)
        if name in self.varying:
            self.refuse(f"{name} is read before it has a type")
        self.refuse(f"the name {name}")

    # --- what is known

    def decided(self, test: ast.expr) -> bool | None:
        """The value of a test of what is known; None of others."""
        match test:
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
                return self.found(name) is None
        if not self.is_known(test) or not _has_name(test):
            return None
        match test:
            case ast.Compare(left=left, ops=[how], comparators=[right]):
                value: Expr | None = self.folded(how, self.value(left), self.value(right))
            case _:
                value = self.value(test)
        return bool(value.value) if isinstance(value, Const) else None

    def is_known(self, node: ast.expr) -> bool:
        """Whether an expression is one of numbers that are known."""
        match node:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                value = self.given.get(name, self.globals.get(name))
                return isinstance(value, int | float | Static) and name not in self.source.own
            case ast.Compare(left=left, comparators=others):
                return self.is_known(left) and all(map(self.is_known, others))
            case ast.BinOp(left=left, right=right):
                return self.is_known(left) and self.is_known(right)
            case ast.BoolOp(values=values):
                return all(map(self.is_known, values))
            case ast.UnaryOp(operand=operand):
                return self.is_known(operand)
        return False

    def folded(self, op: ast.AST, left: Expr, right: Expr) -> Static | None:
        if not isinstance(left, Const) or not isinstance(right, Const) or type(op) not in _FOLDED:
            return None
        if not isinstance(left, Static) and not isinstance(right, Static):
            return None
        made: Static = _known(_FOLDED[type(op)](left.value, right.value))
        return made

    # --- statements

    def statement(self, node: ast.stmt) -> list[Stmt]:
        self.line = node.lineno
        match node:
            case ast.If() if (known := self.decided(node.test)) is not None:
                return [s for inner in (node.body if known else node.orelse) for s in self.statement(inner)]
            case ast.Expr(value=ast.Call() as call) if self.callee(call) is not None:
                return self.inline(call).body
            case ast.Assign(targets=[target], value=ast.Call() as call) if self.callee(call) is not None:
                targets = target.elts if isinstance(target, ast.Tuple) else [target]
                return self.results_of(self.inline(call), targets)
        return super().statement(node)

    def callee(self, call: ast.Call) -> KernelFunction | None:
        """The kernel function that a call calls."""
        if not isinstance(call.func, ast.Name):
            return None
        found = self.found(call.func.id)
        return found if not isinstance(found, Expr | str) and callable(found) and found in KERNEL_FUNCTIONS else None

    def inline(self, call: ast.Call) -> _Specializer:
        callee = self.callee(call)
        assert callee is not None
        params = _source(callee).params
        given = {name: self.argument(value) for name, value in zip(params, call.args, strict=False)}
        given |= {keyword.arg: self.argument(keyword.value) for keyword in call.keywords if keyword.arg}
        part = _inlined(callee, given, self.types)
        self.lowers |= part.lowers
        return part

    def argument(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return self.found(node.id)
        if isinstance(node, ast.Constant):  # is known where it is used
            return _known(node.value)
        return self.value(node)

    def results_of(self, part: _Specializer, targets: list[ast.expr]) -> list[Stmt]:
        """The statements of a part, which assign its results."""
        if len(part.results) != len(targets):
            self.refuse(f"{len(part.results)} results for {len(targets)} variables")
        pairs = list(zip(targets, part.results, strict=True))
        into = [self.variable(t.id, result.type) if isinstance(t, ast.Name) else None for t, result in pairs]
        renamed, others = part.results_in(into)
        if len(others) > 1:  # one must not change what another one reads
            self.refuse("results that are no variables")
        return part.with_results([*part.body, *(self.stored(*pairs[k]) for k in others)], renamed)

    def results_in(self, into: Sequence[Var | None]) -> tuple[dict[Var, Var], list[int]]:
        """(variables that become those of the caller, the numbers of the other results): a variable of a result becomes
        the one of the caller, but where this part still reads that one under another name."""
        own = assigned(self.body)
        renamed: dict[Var, Var] = {}
        others: list[int] = []
        for number, (var, result) in enumerate(zip(into, self.results, strict=True)):
            if var is not None and isinstance(result, Var) and result in own and result not in renamed:
                read = [e for key, e in self.given.items() if isinstance(e, Expr) and self.copied.get(result) is not e]
                if var not in renamed.values() and not any(var in e.walk() for e in read):
                    var.varies |= result.varies
                    renamed[result] = var
                    continue
            others.append(number)
        return renamed, others

    def with_results(self, statements: list[Stmt], renamed: Mapping[Var, Var]) -> list[Stmt]:
        made = [with_variables(s, renamed) for s in statements]
        return [s for s in made if not (isinstance(s, Assign) and s.var is s.value)]

    def scratch(self, node: ast.expr) -> tuple[str, int] | None:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.Name(id=kind), count]) if self.found(name) == _SCRATCH:
                size = self.value(count)
                if not isinstance(size, Const):
                    self.refuse("scratch memory of a computed size")
                return self.dtype(kind), size.value
        return None

    # --- expressions

    def _name(self, node: ast.Name) -> Expr:
        found = self.found(node.id)
        if not isinstance(found, Expr):
            self.refuse(f"{node.id}, which is no number")
        return found

    def binary(self, op: ast.operator, left: Expr, right: Expr) -> Expr:
        if (made := self.folded(op, left, right)) is not None:
            return made
        kinds = {left.type, right.type}
        if (whole := kinds & {*PART}) and type(op) in _COMPLEX and kinds <= {*whole, *[PART[kind] for kind in whole]}:
            if len(whole) == 1:
                self.lowers = True
                return Binary(whole.pop(), _COMPLEX[type(op)], left, right)
        return super().binary(op, left, right)

    def _unaryop(self, node: ast.UnaryOp) -> Expr:
        if isinstance(node.op, ast.USub | ast.Not) and isinstance(node.operand, ast.Name):
            operand = self.value(node.operand)
            if isinstance(operand, Static):
                made: Expr = _known(not operand.value if isinstance(node.op, ast.Not) else -operand.value)
                return made
        return super()._unaryop(node)

    def _compare(self, node: ast.Compare) -> Expr:
        known = self.decided(node)
        return super()._compare(node) if known is None else Static("pred", known)

    def _boolop(self, node: ast.BoolOp) -> Expr:
        deciding = isinstance(node.op, ast.Or)
        values = []
        for operand in node.values:
            known = self.decided(operand)
            if known is deciding:
                return Static("pred", deciding)
            values += [operand] if known is None else []
        if len(values) < 2:
            return self.value(values[0]) if values else Static("pred", not deciding)
        return super()._boolop(ast.copy_location(ast.BoolOp(node.op, values), node))

    def _ifexp(self, node: ast.IfExp) -> Expr:
        known = self.decided(node.test)
        if known is not None:
            return self.value(node.body if known else node.orelse)
        return super()._ifexp(node)

    def _subscript(self, node: ast.Subscript) -> Expr:
        made: Expr = self.made(builder.load, *self.place(node))
        return made

    def stored(self, target: ast.expr, value: Expr, augmented: bool = False) -> Assign | Store:
        made = super().stored(target, value, augmented)
        return replace(made, stored=made.pointer.type[1:]) if isinstance(made, Store) else made

    def _attribute(self, node: ast.Attribute) -> Expr:
        operand = self.value(node.value)
        self.lowers = True
        if node.attr in ("real", "imag") and operand.type in PART.values():  # of real elements
            return Unary(operand.type, f".{node.attr}", operand)
        return super()._attribute(node)

    def called(self, node: ast.Call) -> tuple[str, tuple[Expr, ...]]:
        """The name in kernel text, with the type where a function has one for each."""
        if not isinstance(node.func, ast.Name) or node.keywords:
            self.refuse("a call of something else than a name")
        function = self.found(node.func.id)
        arguments = tuple([self.value(argument) for argument in node.args])
        if isinstance(function, str):
            return function, arguments
        if function is abs:
            return f"abs_{self.common(arguments)}", arguments
        if function in (min, max):
            return node.func.id, arguments
        if not isinstance(function, Function):
            self.refuse(f"the function {node.func.id}")
        return (f"{function.name}_{self.common(arguments)}" if function.generic else function.name), arguments

    def common(self, arguments: Sequence[Expr]) -> str:
        """The type of a function's arguments: a complex one where real numbers stand with complex ones."""
        kinds = {argument.type for argument in arguments}
        if len(kinds) == 2 and len(whole := kinds & {*PART}) == 1:
            kinds -= {PART[kind] for kind in whole}
        if len(kinds) != 1:
            self.refuse(f"a function of {', '.join(sorted(kinds))}")
        return kinds.pop()

    def _call(self, node: ast.Call) -> Expr:
        if self.callee(node) is not None:
            part = self.inline(node)
            if part.body or len(part.results) != 1:
                self.refuse("statements within an expression")
            return part.results[0]
        function = self.found(node.func.id) if isinstance(node.func, ast.Name) else None
        if isinstance(function, Type) and len(node.args) == 1:
            assert isinstance(node.func, ast.Name)
            kind = self.register(node.func.id)
            self.lowers |= kind in PART
            return Cast(kind, self.value(node.args[0]))
        if isinstance(node.func, ast.Name) and callable(formula := self.given.get(node.func.id)):
            made: Expr = self.made(formula, *[self.value(argument) for argument in node.args])
            return made
        name, arguments = self.called(node)
        self.lowers |= function is abs or (isinstance(function, Function) and function.generic)
        if isinstance(function, Function) and function.generic:
            kind = self.common(arguments)
            results = {"": kind, "part": PART.get(kind, kind), "whole": _WHOLE.get(kind, kind)}
            return Call(results.get(function.result, function.result), name, arguments)
        return Call(returned(name, [argument.type for argument in arguments], _no_library), name, arguments)


_KNOWN = {"bool": "pred", "int": "s64", "float": "f64"}
_SCRATCH = Function("scratch")
_COMPLEX: dict[type[ast.AST], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_WHOLE = {part: kind for kind, part in PART.items()}


def _no_library(name: str) -> None:
    """`language` says what the functions return that kernel functions call."""
    return


def _has_name(node: ast.expr) -> bool:
    return any(isinstance(one, ast.Name) for one in ast.walk(node))


def _is_plain(e: Expr) -> bool:
    """Whether an expression may stand where a parameter is read once: arithmetic of integers that are variables."""
    return is_integer(e.type) and all(
        isinstance(one, Var | Const | Binary) and not is_pointer(one.type) for one in e.walk()
    )
