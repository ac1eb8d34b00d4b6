"""`hl.jit(f, autotune=True)`: sizes that the machine description chooses are tried on the actual arguments.

The description (`compiler/targets/cpu/machine.py`) says how large the caches are and how many cores share the work, and
from that follow the blocks of contractions, what is packed, and from which size on results are stored past the caches.
Processors differ in how much of a cache a program really gets, so each candidate is a description with other sizes:
a program is planned for it, run on copies of the arguments in turns with the others, and the quickest is kept.

- Only launches differ, never the order of a sum: a candidate whose results have other bits is not taken.
- It ends after `hl.config.autotune_seconds` for a program, whatever has been tried until then.
- The choice is kept in the cache folder by program, machine and threads; later processes time nothing.
- Programs that call Python functions of the user's are not tried: a call may have effects.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Sequence

import numpy as np

from hloom.backends.cpu.compilation import CpuExecutable, compile_module
from hloom.backends.cpu.driver import driver
from hloom.compiler.cache import default_cache
from hloom.compiler.schedule.steps import HostStep
from hloom.compiler.targets.cpu.interface import fingerprint
from hloom.compiler.targets.cpu.machine import Machine, host
from hloom.compiler.targets.cpu.target import CpuTarget
from hloom.config import config
from hloom.ir.module import Module
from hloom.ir.records import asdict, replace
from hloom.ir.text import print_module

GAIN = 0.97  # of the usual time: a candidate has to be this quick, or the difference may be chance
ROUNDS = (5, 40)  # turns of each candidate at least and at most
# Fields of the description and by what they are multiplied; one at a time.
FACTORS = (
    ("cores", (2, 4)),
    ("l2_bytes", (0.5, 0.25, 2)),
    ("l3_bytes", (0.25, 1 / 16, 16)),
    ("l1_bytes", (0.5, 2)),
)


def candidates(machine: Machine) -> list[Machine]:
    """The machine as it is, then with one size changed."""
    changed = [replace(machine, **{name: int(getattr(machine, name) * factor)})
               for name, factors in FACTORS for factor in factors if getattr(machine, name)]  # fmt: skip
    return [machine, *changed]


def autotuned(module: Module, arrays: Sequence[np.ndarray] | None, **options) -> CpuExecutable:
    """The module compiled for the description that was quickest. arrays: its arguments, None where only their shapes
    are known: then a choice that was stored counts, and nothing is timed. options: of `compile_module`."""
    cache, key = default_cache(), _key(module, options)
    stored = cache.get(key)
    if stored is not None:
        return compile_module(module, target=_target(json.loads(stored)["sizes"]), **options)
    usual = compile_module(module, fallbacks=False, **options)
    if arrays is None or not _can_be_tried(usual):
        return usual
    started = time.perf_counter()
    best, sizes, times = _quickest(module, usual, arrays, started + config.autotune_seconds, options)
    cache.put(key, json.dumps({"sizes": sizes, "seconds": times}).encode())
    if config.debug >= 1:
        found = ", ".join(f"{name} {value}" for name, value in sizes.items()) or "the description as it is"
        print(
            f"hloom: autotuned {module.name}: {found}; {len(times)} programs in {time.perf_counter() - started:.1f} s",
            file=sys.stderr,
        )
    return best


def _target(sizes: dict[str, int]) -> CpuTarget:
    return CpuTarget(replace(host(), **sizes))


def _key(module: Module, options: dict) -> str:
    """By the program and all that the choice depends on."""
    digest = hashlib.sha256(print_module(module, metadata=False).encode())
    rest = (sorted(options.items(), key=str), config.fusion, asdict(host()), driver().num_threads, FACTORS)
    digest.update(repr(rest).encode() + fingerprint().encode())
    return "tuned-" + digest.hexdigest()


def _can_be_tried(compiled: CpuExecutable) -> bool:
    hosts = [step.instruction.opcode for step in compiled.plan.steps if isinstance(step, HostStep)]
    return "custom-call" not in hosts


def _steps(compiled: CpuExecutable) -> str:
    """What the program does: two descriptions that make the same of it need not both be timed."""
    return repr([step for step in compiled.runner.program.steps if not hasattr(step, "function")])


def _low(values: list[float]) -> float:
    """The lower quartile: what else the machine does only adds."""
    return sorted(values)[len(values) // 4]


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _quickest(module, usual, arrays, end: float, options):
    """(program, changed sizes, seconds by candidate) of the quickest of those that there was time for."""
    machine = host()
    given = [np.ascontiguousarray(a) for a in arrays]
    donated = options.get("donated") or ()

    def run(compiled):
        # The buffers of donated arguments are overwritten.
        inputs = [a.copy() if k in donated else a for k, a in enumerate(given)]
        started = time.perf_counter()
        outputs = compiled.runner(inputs)
        return time.perf_counter() - started, outputs

    _, outputs = run(usual)
    expected = [o.tobytes() for o in outputs]
    programs, seen = {0: (usual, {})}, {_steps(usual)}
    limit = time.perf_counter() + max(0.0, end - time.perf_counter()) / 2
    for number, candidate in enumerate(candidates(machine)[1:], 1):
        if time.perf_counter() > limit:
            break
        with config(debug=0):  # one report for the program is enough
            compiled = compile_module(module, target=CpuTarget(candidate), fallbacks=False, **options)
        steps = _steps(compiled)
        if steps in seen:
            continue
        seen.add(steps)
        if [o.tobytes() for o in run(compiled)[1]] != expected:
            continue
        sizes = {name: getattr(candidate, name) for name, _ in FACTORS}
        programs[number] = compiled, {n: v for n, v in sizes.items() if v != getattr(machine, n)}
    times: dict[int, list[float]] = {number: [] for number in programs}
    rounds = 0
    while len(programs) > 1 and rounds < ROUNDS[1] and (rounds < ROUNDS[0] or time.perf_counter() < end):
        if rounds and time.perf_counter() > end + config.autotune_seconds:
            break
        order = list(programs)
        for number in order[rounds % len(order) :] + order[: rounds % len(order)]:
            times[number].append(run(programs[number][0])[0])
        rounds += 1
    quickest = {number: _low(values) for number, values in times.items() if values}
    best = min(quickest, key=quickest.get, default=0)
    if best and not all(low(times[best]) <= GAIN * low(times[0]) for low in (_low, min, _median)):
        best = 0  # other work on the machine may have been the difference
    seconds = {json.dumps(programs[number][1]): value for number, value in quickest.items()}
    return *programs[best], seconds
