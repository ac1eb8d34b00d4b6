"""The pipeline: the list of passes from the traced module to the optimized one, and their execution."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from time import perf_counter

from hloom.compiler.passes import PASSES, all_passes
from hloom.compiler.passes.registry import Team
from hloom.compiler.targets.base import Target
from hloom.compiler.targets.cpu.target import host_target
from hloom.ir.errors import AttributeValueError
from hloom.ir.module import Module
from hloom.ir.records import record
from hloom.ir.verify import VerifyError, verify

PIPELINE: tuple[str, ...] = (
    "inline-calls",
    "sum-after-scans",
    "lower-scans",
    "expand-random",
    "expand-normalizations",
    "expand-target-ops",
    "cse",
    "simplify",
    "simplify-loops",
    "fold-constants",
    "move-transposes",
    "canonicalize-convolutions",
    "move-image-transposes",
    "narrow-convolutions",
    "merge-dots",
    "join-dots",
    "canonicalize-dots",
    "move-reshapes",
    "simplify",
    "cse",
    "dce",
    "fuse",
    "fuse-attention",
    "flatten-call-graph",
)
# One kernel per operation, for comparison (`jit(fusion=False)`).
UNFUSED: tuple[str, ...] = tuple(name for name in PIPELINE if not name.startswith("fuse"))
# From a program with layouts over a mesh to the per-device program; `PIPELINE` follows.
SPMD_PIPELINE: tuple[str, ...] = (
    "apply-partition-rules",
    "expand-random",  # ops that are partitioned after their expansion
    "expand-normalizations",
    "propagate-shardings",
    "report-layouts",
    "partition",
    "combine-collectives",
    "split-by-process",
)
# For a program that is already per-device.
SPMD_BY_HAND: tuple[str, ...] = ("split-by-process",)
# For printing a program, by dialect: expands hloom-specific ops to ops of the dialect.
EXPORT: dict[str, tuple[str, ...]] = {
    "hlo": ("lower-scans", "expand-for-hlo"),
    "stablehlo": ("lower-scans", "expand-for-stablehlo"),
}


@record(frozen=True)
class PassRecord:
    """The record of one pass. `seconds`: its time. `before`, `after`: the modules; the same object if nothing
    changed."""

    name: str
    seconds: float
    before: Module
    after: Module

    @property
    def changed(self) -> bool:
        return self.before is not self.after


def pass_names(text: str) -> tuple[str, ...]:
    """The names in 'a,b,c'. Raises AttributeValueError for an unknown pass, with the nearest name."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    check_names(names)
    return names


def check_names(names: Sequence[str]) -> None:
    if not all(name in PASSES for name in names):
        all_passes()
    for name in names:
        if name not in PASSES:
            nearest = difflib.get_close_matches(name, PASSES, 1)
            raise AttributeValueError(
                f"pass '{name}' was asked for",
                f"the passes are {', '.join(sorted(PASSES))}",
                f"did you mean '{nearest[0]}'?" if nearest else "name one of them",
            )


def run_passes(
    module: Module,
    names: Sequence[str] = PIPELINE,
    *,
    target: Target | None = None,
    team: Team = Team(),  # noqa: B008  (it never changes)
    verify: bool = False,
    on_pass: Callable[[PassRecord], None] | None = None,
) -> Module:
    """The module after the passes, in order. The given module is unchanged.

    target: the compilation target; None: this machine. team: the devices that run it jointly.
    verify: check the module before the first pass and after each that changed it; raises VerifyError with the name of
        the pass that broke it. on_pass: called with a PassRecord after each pass, for timing and dumps.
    """
    check_names(names)
    target = target or host_target()
    if verify:
        verified(module, "the module given")
    fixed: dict[str, Module] = {}  # results of each pass, to which it need not be applied again
    opcodes: set[str] | None = None  # of the module, if known
    for name in names:
        start = perf_counter()
        wanted = PASSES[name].opcodes
        idle = fixed.get(name) is module
        if wanted and not idle:
            if opcodes is None:
                opcodes = {instruction.opcode for instruction in module.instructions()}
            idle = wanted.isdisjoint(opcodes)
        result = module if idle else PASSES[name].run(module, target, team)
        if not isinstance(result, Module):
            raise VerifyError(
                f"pass {name} is a function from a Module to a Module",
                "it returned None" if result is None else f"it returned {type(result).__name__} {result!r:.60}",
                "return the new module at its end, or the one given where nothing changes",
                PASSES[name].source,
            )
        opcodes = opcodes if result is module else None
        fixed[name] = result
        seconds = perf_counter() - start
        if verify and result is not module:
            verified(result, f"pass {name}")
        if on_pass is not None:
            on_pass(PassRecord(name, seconds, module, result))
        module = result
    return module


def verified(module: Module, made_by: str) -> None:
    """Verifies a module; a failure names the pass that created it."""
    try:
        verify(module)
    except Exception as error:
        error.add_note(f"  made by: {made_by}")
        raise
