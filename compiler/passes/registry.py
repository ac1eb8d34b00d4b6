"""The registry of passes: `@module_pass("name")` on a function from a valid Module to a valid Module."""

from __future__ import annotations

from collections.abc import Callable

from hloom.ir.module import Module
from hloom.ir.records import record


@record(frozen=True)
class Pass:
    """A named pass. `summary`: the first line of its docstring. `run(module) -> module` never changes its argument.
    `opcodes`: those without any of which it has nothing to do; empty where that depends on more than opcodes."""

    name: str
    summary: str
    run: Callable[[Module], Module]
    opcodes: frozenset[str] = frozenset()


PASSES: dict[str, Pass] = {}


def module_pass(name: str, *opcodes: str):
    """Registers a function Module -> Module as the pass of that name, for modules with one of the opcodes."""

    def register(function: Callable[[Module], Module]) -> Callable[[Module], Module]:
        if name in PASSES:
            raise ValueError(f"pass {name} is registered twice")
        summary = (function.__doc__ or "").strip().split("\n")[0]
        PASSES[name] = Pass(name, summary, function, frozenset(opcodes))
        return function

    return register
