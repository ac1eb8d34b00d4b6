"""Native functions as C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hloom.compiler.kernel_ir.native.functions import Function, Result
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Choice,
    Const,
    Do,
    Expr,
    For,
    If,
    Jump,
    Logic,
    Stmt,
    Unary,
    Var,
    While,
)

__all__ = ["constant", "constants", "declared", "printed"]

_TYPES = {"s64": "int64_t", "pred": "int", "void": "void"}
_ARITHMETIC = ("+", "-", "*")
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
# Quotients and remainders are rounded down.
_FUNCTIONS = {"//": "floor_quotient", "%": "floor_rest", "min": "least", "max": "greatest", "abs": "magnitude"}
_LOGIC = {"and": "&&", "or": "||"}
_SMALL = 1 << 31


def declared(function: Function) -> str:
    """The declaration of a function, without a semicolon."""
    parameters = ", ".join([f"int64_t {var.name}" for var in function.params]) or "void"
    return f"static {_TYPES[function.result]} {function.name}({parameters})"


def constants(functions: Iterable[Function], prefix: str) -> list[str]:
    """Definitions of the constants that functions name, with a prefix."""
    values = {var.name: value for function in functions for var, value in function.constants.items()}
    return [f"#define {prefix}{name} {constant(value)}" for name, value in sorted(values.items())]


def printed(function: Function, names: Mapping[str, str], prefix: str) -> str:
    """The definition of a function. names: what functions that it calls are named in C, where the name is another one.
    prefix: of constants."""
    printer = _Printer(function, names, prefix)
    printer.block(function.body, "  ")
    first = [f"  {_TYPES[var.type]} {var.name} = 0;" for var in printer.outer]
    return "\n".join([f"{declared(function)} {{", *first, *printer.lines, "}"])


def constant(value: int) -> str:
    """A number of 64 bits."""
    return "INT64_MIN" if value == -(1 << 63) else f"INT64_C({value})"


def _number(value: int) -> str:
    return str(value) if -_SMALL < value < _SMALL else constant(value)


class _Printer:
    """outer: variables that are assigned in a block first and used after it."""

    def __init__(self, function: Function, names: Mapping[str, str], prefix: str):
        self.function, self.names, self.prefix = function, names, prefix
        self.lines: list[str] = []
        self.outer: list[Var] = []
        self.known: set[Var] = {*function.params}

    # --- statements

    def block(self, statements: list[Stmt], indent: str) -> None:
        for statement in statements:
            self.statement(statement, indent)

    def statement(self, s: Stmt, indent: str) -> None:
        match s:
            case Assign():
                self.lines.append(f"{indent}{self.assignment(s, indent)};")
            case Do():
                self.lines.append(f"{indent}{self.call(s.function, s.arguments)};")
            case If():
                self.branches(s, indent)
            case While():
                head = "for (;;)" if s.test == Const("pred", True) else f"while ({self.value(s.test)})"
                self.braces(head, s.body, indent)
            case For():
                self.braces(self.loop(s), s.body, indent)
            case Jump():
                self.lines.append(f"{indent}{s.how};")
            case Result():
                self.lines.append(f"{indent}return {self.value(s.value)};")
            case _:
                raise TypeError(f"{self.function.name}: {type(s).__name__} is no statement of a native function")

    def assignment(self, s: Assign, indent: str) -> str:
        if s.augmented:
            assert isinstance(s.value, Binary)
            if s.value.op in _ARITHMETIC:
                return f"{s.var.name} {s.value.op}= {self.value(s.value.right)}"
        head, kind = s.var.name, _TYPES[s.var.type]
        if not s.var.varies:
            head = f"const {kind} {head}"
        elif s.var not in self.known:
            self.known.add(s.var)
            if indent == "  ":
                head = f"{kind} {head}"
            else:
                self.outer.append(s.var)
        return f"{head} = {self.value(s.value)}"

    def braces(self, head: str, body: list[Stmt], indent: str) -> None:
        self.lines.append(f"{indent}{head} {{")
        self.block(body, f"{indent}  ")
        self.lines.append(f"{indent}}}")

    def branches(self, s: If, indent: str) -> None:
        self.lines.append(f"{indent}if ({self.value(s.test)}) {{")
        self.block(s.then, f"{indent}  ")
        while len(s.other) == 1 and isinstance(s.other[0], If):
            s = s.other[0]
            self.lines.append(f"{indent}}} else if ({self.value(s.test)}) {{")
            self.block(s.then, f"{indent}  ")
        if s.other:
            self.lines.append(f"{indent}}} else {{")
            self.block(s.other, f"{indent}  ")
        self.lines.append(f"{indent}}}")

    def loop(self, s: For) -> str:
        name = s.var.name
        if s.var.varies or not (isinstance(s.step, Const) and s.step.value > 0):
            raise TypeError(f"{self.function.name}: the loop over {name} is none of a native function")
        stop, first = self.value(s.stop), f"int64_t {name} = {self.value(s.start)}"
        if not isinstance(s.stop, Const) and not (isinstance(s.stop, Var) and not s.stop.varies):
            first, stop = f"{first}, {name}_end = {stop}", f"{name}_end"
        following = f"{name}++" if s.step.value == 1 else f"{name} += {self.value(s.step)}"
        return f"for ({first}; {name} < {stop}; {following})"

    # --- expressions

    def value(self, e: Expr) -> str:
        match e:
            case Const(type="pred", value=value):
                return str(int(value))
            case Const(type="s64", value=value):
                return _number(value)
            case Var():
                return f"{self.prefix}{e.name}" if e in self.function.constants else e.name
            case Binary(op=op, left=left, right=right) if op in _FUNCTIONS:
                return f"{_FUNCTIONS[op]}({self.value(left)}, {self.value(right)})"
            case Binary(op="<<", left=Const(value=value)):
                return f"{constant(value)} << {self.operand(e.right, e.op, True)}"
            case Binary():
                return f"{self.operand(e.left, e.op)} {e.op} {self.operand(e.right, e.op, True)}"
            case Logic():
                return f" {_LOGIC[e.op]} ".join([self.operand(one, e.op) for one in e.operands])
            case Unary(op="not"):
                return f"!{self.operand(e.operand, 'not')}"
            case Unary(op="-" | "~"):
                return f"{e.op}{self.operand(e.operand, e.op)}"
            case Choice():
                return " ".join(
                    [self.operand(e.test, "?"), "?", self.operand(e.yes, "?"), ":", self.operand(e.no, "?")]
                )
            case Call():
                return self.call(e.function, e.arguments)
        raise TypeError(f"{self.function.name}: {type(e).__name__} is no expression of a native function")

    def operand(self, e: Expr, op: str, right: bool = False) -> str:
        """An operand of an operation, in parentheses unless every reader knows which binds more."""
        text = self.value(e)
        match e:
            case Binary(op=inner) if inner not in _FUNCTIONS:
                plain = (
                    (op in ("+", "-") and (inner == "*" or (inner in ("+", "-") and not right)))
                    or (op in _COMPARISONS and inner in _ARITHMETIC)
                    or (op in _LOGIC and inner in _COMPARISONS + _ARITHMETIC)
                )
                return text if plain else f"({text})"
            case Logic() | Choice():
                return f"({text})"
            case Const(value=value) if type(value) is int and value < 0:
                return f"({text})"
        return text

    def call(self, function: str, arguments: tuple[Expr, ...]) -> str:
        if function in ("min", "max"):
            first, *others = [self.value(argument) for argument in arguments]
            for other in others:
                first = f"{_FUNCTIONS[function]}({first}, {other})"
            return first
        name = self.names.get(function) or _FUNCTIONS.get(function, function)
        return f"{name}({', '.join([self.value(argument) for argument in arguments])})"
