"""Nodes as kernel text: what `compiled.source()` shows, and what the front ends compile."""

from __future__ import annotations

from collections.abc import Iterator

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
from hloom.compiler.kernel_ir.types import STORED

__all__ = ["printed", "written"]

_CHOICE, _OR, _AND, _NOT, _COMPARISON = range(5)
_PRECEDENCE = {
    "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10,
} | dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), _COMPARISON)  # fmt: skip
_UNARY, _ATOM = 11, 12


def printed(kernel: Kernel) -> str:
    """The text of a kernel: one function."""
    head = f"def {kernel.name}({', '.join([param.name for param in kernel.params])}):"
    return "\n".join([head, *_block(kernel.body, "    ")]) + "\n"


def written(expression: Expr, above: int = _CHOICE) -> str:
    """The text of an expression, in parentheses where it binds less than `above`."""
    text, binds = _expression(expression)
    return f"({text})" if binds < above else text


def _expression(e: Expr) -> tuple[str, int]:
    """(text, how strongly it binds)."""
    match e:
        case Var():
            return e.name, _ATOM
        case Const():
            return _number(e)
        case Load():
            narrow = e.pointer.type[1:]
            if narrow in STORED and e.type != STORED[narrow]:
                return f"load_{narrow}({written(e.pointer)}, {written(e.index)})", _ATOM
            return f"{written(e.pointer, _ATOM)}[{written(e.index)}]", _ATOM
        case Binary():
            binds = _PRECEDENCE[e.op]
            left = binds + 1 if binds == _COMPARISON else binds
            return f"{written(e.left, left)} {e.op} {written(e.right, binds + 1)}", binds
        case Unary(op="not"):
            return f"not {written(e.operand, _NOT)}", _NOT
        case Unary(op="-" | "~"):
            return f"{e.op}{written(e.operand, _UNARY)}", _UNARY
        case Unary():
            return f"{written(e.operand, _ATOM)}{e.op}", _ATOM
        case Logic():
            return f" {e.op} ".join([written(one, _NOT) for one in e.operands]), _AND if e.op == "and" else _OR
        case Cast():
            return f"{e.type}({written(e.operand)})", _ATOM
        case Choice():
            return f"{written(e.yes, _OR)} if {written(e.test, _OR)} else {written(e.no)}", _CHOICE
        case Call():
            return f"{e.function}({', '.join(map(written, e.arguments))})", _ATOM
    raise TypeError(f"{type(e).__name__} is no expression of the kernel language")


def _number(e: Const) -> tuple[str, int]:
    if e.type == "f64" and e.value in (float("inf"), float("-inf")):
        return ("inf", _ATOM) if e.value > 0 else ("-inf", _UNARY)
    text = "nan" if e.value != e.value else repr(e.value)
    return text, _UNARY if text.startswith("-") else _ATOM


def _block(statements: list[Stmt], indent: str) -> Iterator[str]:
    if not statements:
        yield f"{indent}pass"
    for statement in statements:
        yield from _lines(statement, indent)


def _lines(s: Stmt, indent: str) -> Iterator[str]:
    inner = f"{indent}    "
    match s:
        case Assign() | Store() | Together():
            yield f"{indent}{_simple(s)}"
        case Scratch():
            yield f"{indent}{s.var.name} = scratch_{s.var.type[1:]}({s.size})"
        case Do():
            yield f"{indent}{s.function}({', '.join(map(written, s.arguments))})"
        case For():
            bounds = [s.start, s.stop, s.step]
            if s.step == Const("s64", 1):
                bounds = [s.stop] if s.start == Const("s64", 0) else bounds[:2]
            yield f"{indent}for {s.var.name} in range({', '.join(map(written, bounds))}):"
            yield from _block(s.body, inner)
        case While():
            yield f"{indent}while {written(s.test)}:"
            yield from _block(s.body, inner)
        case If():
            yield from _branches(s, "if", indent)
        case Jump():
            yield f"{indent}{s.how}"
        case _:
            raise TypeError(f"{type(s).__name__} is no statement of the kernel language")


def _branches(s: If, word: str, indent: str) -> Iterator[str]:
    yield f"{indent}{word} {written(s.test)}:"
    yield from _block(s.then, f"{indent}    ")
    match s.other:
        case [If() as other]:
            yield from _branches(other, "elif", indent)
        case [_, *_]:
            yield f"{indent}else:"
            yield from _block(s.other, f"{indent}    ")


def _simple(s: Assign | Store | Together) -> str:
    if isinstance(s, Together):
        pairs = [(_target(part), written(part.value)) for part in s.parts]
        return f"{', '.join([target for target, _ in pairs])} = {', '.join([value for _, value in pairs])}"
    if isinstance(s, Store) and (s.streamed or s.stored in STORED):
        how = "stream" if s.streamed else "store"
        return f"{how}_{s.stored}({written(s.pointer)}, {written(s.index)}, {written(s.value)})"
    if s.augmented:
        assert isinstance(s.value, Binary)
        return f"{_target(s)} {s.value.op}= {written(s.value.right)}"
    return f"{_target(s)} = {written(s.value)}"


def _target(s: Assign | Store) -> str:
    return s.var.name if isinstance(s, Assign) else f"{written(s.pointer, _ATOM)}[{written(s.index)}]"
