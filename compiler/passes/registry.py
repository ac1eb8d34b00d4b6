"""The registry of passes: `@module_pass("name")` on a function from a valid Module to a valid Module.

A pass with a second parameter gets the target that the module is compiled for.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.compiler.targets.base import Target
from hloom.ir.module import Module
from hloom.ir.records import record
from hloom.ir.source import Source


@record(frozen=True)
class Pass:
    """A named pass. `summary`: the first line of its docstring. `run(module, target) -> module` never changes its
    argument. `opcodes`: without any of them it has nothing to do; empty where that depends on more than opcodes."""

    name: str
    summary: str
    run: Callable[[Module, Target], Module]
    opcodes: frozenset[str] = frozenset()
    source: Source | None = None  # where the function is defined


PASSES: dict[str, Pass] = {}


def module_pass(name: str, *opcodes: str):
    """Registers a function (module) -> module, or (module, target) -> module, as a pass for modules with one of the
    opcodes. Raises ValueError for a name that is registered already."""

    def register(function: Callable[..., Module]) -> Callable[..., Module]:
        if name in PASSES:
            raise ValueError(f"pass {name} is registered twice")
        summary = (function.__doc__ or "").strip().split("\n")[0]
        run = function if function.__code__.co_argcount > 1 else lambda module, target: function(module)
        code = function.__code__
        source = Source(code.co_filename, code.co_firstlineno, code.co_name)
        PASSES[name] = Pass(name, summary, run, frozenset(opcodes), source)
        return function

    return register
