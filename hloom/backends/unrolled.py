"""A warning for programs that compile slowly because a Python loop was unrolled: the loop, and the size of its
expansion."""

from __future__ import annotations

import ast
import linecache
from collections import Counter
from functools import lru_cache

from hloom.errors import CompileTimeWarning
from hloom.ir.module import Module
from hloom.ir.source import Source, warn_while_compiling

SLOW = 3.0  # seconds of compilation that are worth a warning
LARGE = 1000  # instructions of one loop, or of one line

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def warn_of_unrolled_loop(module: Module, seconds: float) -> None:
    """Warns of the loop that most instructions of a traced module come from, if they are many and compiling them took
    long. Tracing runs a Python loop, so the program contains its body once per step."""
    if seconds < SLOW:
        return
    lines = Counter(Source(*i.source[:3]) for i in module.instructions() if i.source is not None)
    places = Counter[tuple[str, Source]]()
    for source, count in lines.items():
        loop = _loop_around(source)
        places["a Python loop" if loop else "one line", loop or source] += count
    if not places:
        return
    (what, source), count = places.most_common(1)[0]
    if count < LARGE:
        return
    text = (
        f"'{module.name}' took {seconds:.1f} s to compile\n"
        f"  found:  {what} was traced into {count:,} instructions, once for each time that it ran\n"
        f"  where:  {source}\n"
        "  repair: lax.scan or lax.fori_loop compile the body of a loop once"
    )
    warn_while_compiling(text, CompileTimeWarning, source)


def _loop_around(source: Source) -> Source | None:
    """The innermost Python loop around a line in its function, if the file can be read."""
    loops = _loops(source.file, source.line)
    return Source(source.file, max(loops), source.function) if loops else None


@lru_cache(maxsize=1024)
def _loops(file: str, line: int) -> list[int]:
    """The first lines of the loops around a line of a file, in the function that it belongs to."""
    found: list[int] = []
    stack: list[ast.AST] = [_parsed(file)]
    while stack:
        for child in ast.iter_child_nodes(stack.pop()):
            first, last = getattr(child, "lineno", line), getattr(child, "end_lineno", line)
            if not first <= line <= last:
                continue
            if isinstance(child, _FUNCTIONS):
                found.clear()  # a function inside of a loop is not unrolled by it
            elif isinstance(child, _LOOPS):
                found.append(first)
            stack.append(child)
    return found


@lru_cache(maxsize=8)
def _parsed(file: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])
