"""`hl.jit(f, autotune=True)`: candidate programs for modified machine descriptions.

The description (`compiler/targets/cpu/machine.py`) contains the sizes of the caches and the number of cores. It
determines the blocks of contractions, the operands to pack, and the size from which results are stored non-temporally.
The share of a cache that a program really gets differs between processors, so each candidate is a description with one
changed size: a program is compiled for it and timed on copies of the arguments.

- Only launches differ, never the order of a sum: a candidate whose results have other bits is rejected.
- Measuring ends after `hl.config.autotune_seconds` per program, even with candidates left.
- The choice is kept by program, machine and threads.
- Programs that call the user's Python functions are not tuned: a call may have effects.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from hloom.backends.autotuner import compare, keep_choice, load_choice
from hloom.backends.cpu.compilation import CpuExecutable, compile_module
from hloom.backends.cpu.driver import driver
from hloom.compiler.schedule.steps import HostStep
from hloom.compiler.targets.cpu import interface
from hloom.compiler.targets.cpu.machine import Machine, host
from hloom.compiler.targets.cpu.target import CpuTarget
from hloom.config import config
from hloom.ir.module import Module
from hloom.ir.records import asdict, record, replace
from hloom.ir.text import print_module

ROUNDS = (5, 40)  # measurements of each candidate at least and at most
# Fields of the description and the factors that they are multiplied with, one at a time.
FACTORS = (
    ("cores", (2, 4)),
    ("l2_bytes", (0.5, 0.25, 2)),
    ("l3_bytes", (0.25, 1 / 16, 16)),
    ("l1_bytes", (0.5, 2)),
)


def changed_sizes(machine: Machine) -> list[dict[str, int]]:
    """The sizes in which candidates differ from the machine: one each."""
    return [
        {name: int(getattr(machine, name) * factor)}
        for name, factors in FACTORS
        for factor in factors
        if getattr(machine, name)
    ]


@record(eq=False)
class ProgramCandidate:
    """A program for a machine description with other sizes, timed on its arguments."""

    sizes: dict[str, int]
    compiled: CpuExecutable
    arguments: list[np.ndarray]
    donated: frozenset[int]

    def results(self) -> list[bytes]:
        return [output.tobytes() for output in self.compiled.runner(self._inputs())]

    def seconds(self) -> float:
        inputs = self._inputs()
        started = time.perf_counter()
        self.compiled.runner(inputs)
        return time.perf_counter() - started

    def _inputs(self) -> list[np.ndarray]:
        # The buffers of donated arguments are overwritten.
        return [a.copy() if k in self.donated else a for k, a in enumerate(self.arguments)]


def autotuned(module: Module, arrays: Sequence[np.ndarray] | None, **options) -> CpuExecutable:
    """The module compiled for the description that is the fastest. arrays: its arguments, None where only their shapes
    are known: then a stored choice counts, and nothing is timed. options: of `compile_module`."""
    key = _key(module, options)
    stored = load_choice(key)
    if stored is not None:
        return compile_module(module, target=_target(stored["sizes"]), **options)
    default = compile_module(module, fallbacks=False, **options)
    if arrays is None or _calls_python(default):
        return default
    started = time.perf_counter()
    arguments, donated = [np.ascontiguousarray(a) for a in arrays], options.get("donated") or frozenset()
    found = compare(
        ProgramCandidate({}, default, arguments, donated),
        _factories(module, default, arguments, donated, options),
        lambda expected, results: expected == results,
        limit=config.autotune_seconds,
        rounds=ROUNDS,
    )
    best: ProgramCandidate = found.candidates[found.best]
    seconds = {json.dumps(c.sizes): found.seconds(k) for k, c in enumerate(found.candidates) if found.samples[k]}
    keep_choice(key, {"sizes": best.sizes, "seconds": seconds})
    if config.debug >= 1:
        sizes = ", ".join(f"{name} {value}" for name, value in best.sizes.items()) or "the description as it is"
        passed = time.perf_counter() - started
        print(f"hloom: autotuned {module.name}: {sizes}; {len(seconds)} programs in {passed:.1f} s", file=sys.stderr)
    return best.compiled


def _factories(module, default, arguments, donated, options) -> list[Callable[[], ProgramCandidate | None]]:
    seen = {_steps(default)}

    def create(sizes: dict[str, int]) -> ProgramCandidate | None:
        with config(debug=0):  # one report per program is enough
            compiled = compile_module(module, target=_target(sizes), fallbacks=False, **options)
        steps = _steps(compiled)
        if steps in seen:
            return None
        seen.add(steps)
        return ProgramCandidate(sizes, compiled, arguments, donated)

    return [functools.partial(create, sizes) for sizes in changed_sizes(host())]


def _target(sizes: dict[str, int]) -> CpuTarget:
    return CpuTarget(replace(host(), **sizes))


def _key(module: Module, options: dict) -> str:
    """By the program and all that the choice depends on."""
    digest = hashlib.sha256(print_module(module, metadata=False).encode())
    rest = (sorted(options.items(), key=str), config.fusion, asdict(host()), driver().num_threads, FACTORS)
    digest.update(repr(rest).encode() + interface.fingerprint().encode())
    return "tuned-" + digest.hexdigest()


def _calls_python(compiled: CpuExecutable) -> bool:
    return any(isinstance(step, HostStep) and step.instruction.opcode == "custom-call" for step in compiled.plan.steps)


def _steps(compiled: CpuExecutable) -> str:
    """A description of a program's steps: of two equal ones only one is timed."""
    return repr([step for step in compiled.runner.program.steps if not hasattr(step, "function")])
