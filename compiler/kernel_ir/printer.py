"""Nodes as kernel text: what `compiled.source()` shows, and what the front ends compile."""

from __future__ import annotations

from collections.abc import Iterable

from hloom.compiler.kernel_ir.nodes import (
    ATOM,
    Assign,
    Binary,
    Const,
    Do,
    For,
    If,
    Jump,
    Kernel,
    Scratch,
    Stmt,
    Store,
    Together,
    While,
)
from hloom.compiler.kernel_ir.types import STORED

__all__ = ["lines", "printed"]

_WIDTH = 121
_ZERO, _ONE = Const("s64", 0), Const("s64", 1)


def printed(kernel: Kernel) -> str:
    """The text of a kernel: one function."""
    made = [f"def {kernel.name}({', '.join([param.name for param in kernel.params])}):"]
    _block(kernel.body, "    ", made)
    return "\n".join(made) + "\n"


def lines(statements: Iterable[Stmt], indent: str = "") -> list[str]:
    """The lines of statements."""
    made: list[str] = []
    for statement in statements:
        _write(statement, indent, made)
    return made


def _block(statements: list[Stmt], indent: str, made: list[str]) -> None:
    if not statements:
        made.append(f"{indent}pass")
    for statement in statements:
        _write(statement, indent, made)


def _write(s: Stmt, indent: str, made: list[str]) -> None:
    match s:
        case Assign() | Store() | Together():
            made.append(f"{indent}{_simple(s)}")
        case For():
            bounds = [s.start, s.stop, s.step]
            if s.step == _ONE:
                bounds = [s.stop] if s.start == _ZERO else bounds[:2]
            made.append(f"{indent}for {s.var.name} in range({', '.join(map(str, bounds))}):")
            _block(s.body, f"{indent}    ", made)
        case Do():
            made += _call(f"{indent}{s.function}(", [str(argument) for argument in s.arguments])
        case If():
            _branches(s, "if", indent, made)
        case Scratch():
            kind = s.var.type[1:]
            memory = f"cuda.shared.array({s.size}, {kind})" if s.shared else f"scratch_{kind}({s.size})"
            made.append(f"{indent}{s.var.name} = {memory}")
        case While():
            made.append(f"{indent}while {s.test}:")
            _block(s.body, f"{indent}    ", made)
        case Jump():
            made.append(f"{indent}{s.how}")
        case _:
            raise TypeError(f"{type(s).__name__} is no statement of the kernel language")


def _call(head: str, arguments: list[str]) -> list[str]:
    """A call, whose arguments have further lines where one would be too long."""
    made, line, indent = [], head, " " * len(head)
    for k, argument in enumerate(arguments):
        more = f"{argument}{', ' if k < len(arguments) - 1 else ')'}"
        if len(line) + len(more) > _WIDTH and k:
            made.append(line.rstrip())
            line = indent
        line += more
    return [*made, line if arguments else f"{head})"]


def _branches(s: If, word: str, indent: str, made: list[str]) -> None:
    made.append(f"{indent}{word} {s.test}:")
    _block(s.then, f"{indent}    ", made)
    match s.other:
        case [If() as other]:
            _branches(other, "elif", indent, made)
        case [_, *_]:
            made.append(f"{indent}else:")
            _block(s.other, f"{indent}    ", made)


def _simple(s: Assign | Store | Together) -> str:
    if isinstance(s, Assign) and not s.augmented:
        return f"{s.var.name} = {s.value}"
    if isinstance(s, Together):
        pairs = [(_target(part), str(part.value)) for part in s.parts]
        return f"{', '.join([target for target, _ in pairs])} = {', '.join([value for _, value in pairs])}"
    if isinstance(s, Store) and (s.streamed or s.stored in STORED):
        how = "stream" if s.streamed else "store"
        return f"{how}_{s.stored}({s.pointer}, {s.index}, {s.value})"
    if s.augmented:
        assert isinstance(s.value, Binary)
        return f"{_target(s)} {s.value.op}= {s.value.right}"
    return f"{_target(s)} = {s.value}"


def _target(s: Assign | Store) -> str:
    return s.var.name if isinstance(s, Assign) else f"{s.pointer.within(ATOM)}[{s.index}]"
