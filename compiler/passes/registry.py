"""The registry of passes: `@module_pass("name")` on a function from a valid Module to a valid Module.

A pass with a second parameter gets the target that the module is compiled for; one with the keyword `team` the devices
that run it jointly.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.compiler.targets.base import Target
from hloom.ir.module import Module
from hloom.ir.records import record
from hloom.ir.source import Source
from hloom.ir.spmd.sharding import DeviceMesh


@record(frozen=True)
class Team:
    """The devices that run a program jointly. devices: their names, by number. processes: the process of each, if there
    are several; else empty. mesh: the user's mesh; passes divide its axes into axes of prime size."""

    devices: tuple[str, ...] = ()
    processes: tuple[int, ...] = ()
    mesh: DeviceMesh | None = None


@record(frozen=True)
class Pass:
    """A named pass. `summary`: the first line of its docstring. `run(module, target, team) -> module` never changes its
    argument. `opcodes`: it applies only to modules with one of them; empty if that depends on more than opcodes."""

    name: str
    summary: str
    run: Callable[[Module, Target, Team], Module]
    opcodes: frozenset[str] = frozenset()
    source: Source | None = None  # where the function is defined


PASSES: dict[str, Pass] = {}


def module_pass(name: str, *opcodes: str):
    """Registers a function of (module), (module, target) or (module, *, team) as a pass for modules with one of the
    opcodes. Raises ValueError for a name that is already registered."""

    def register(function: Callable[..., Module]) -> Callable[..., Module]:
        if name in PASSES:
            raise ValueError(f"pass {name} is registered twice")
        summary = (function.__doc__ or "").strip().split("\n")[0]
        code = function.__code__
        positional, takes_team = code.co_argcount, code.co_kwonlyargcount > 0

        def run(module: Module, target: Target, team: Team) -> Module:
            given = (module, target) if positional > 1 else (module,)
            return function(*given, team=team) if takes_team else function(*given)

        source = Source(code.co_filename, code.co_firstlineno, code.co_name)
        PASSES[name] = Pass(name, summary, run, frozenset(opcodes), source)
        return function

    return register
