"""Programs whose kernels check their accesses (`hl.config.check_bounds`): which accesses are checked, and the message
of a failed check.

    with_checks(plan, level) -> Plan

An access that is proved to be within its array for a launch's sizes is not checked, unless the level is 'all'; a launch
without any check has its usual kernel. One that is proved to be outside is an error while the program is compiled.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping

from hloom.compiler.compile_timings import count
from hloom.compiler.kernel_ir.bounds.chosen import Checks, of_identity
from hloom.compiler.kernel_ir.bounds.verifier import Access
from hloom.compiler.kernel_ir.printer import printed
from hloom.compiler.kernel_ir.reader import KernelSyntaxError
from hloom.compiler.kernels.codegen.source import CheckedSource, KernelSource
from hloom.compiler.schedule.scheduler import Plan
from hloom.compiler.schedule.steps import KernelStep, Place, Step
from hloom.compiler.targets.cpu.bounds import accesses_of
from hloom.errors import InternalError
from hloom.ir.records import replace
from hloom.runtime.host_steps import explained_by

__all__ = ["with_checks"]

_STATE = "checks_state"
_kernels: dict[int, tuple[KernelSource, list[Access]]] = {}  # by the number of a kernel in `Checks`
_launches: dict[int, KernelStep] = {}  # by the number of a launch
_numbers = itertools.count(1)
_known: dict[tuple[object, ...], dict[KernelSource, list[Access]]] = {}


def with_checks(plan: Plan, level: str) -> Plan:
    """The plan with checks in its kernels. level: '1' or 'all'. Raises InternalError."""
    return replace(
        plan, steps=[_step(step, level) for step in plan.steps], prepared=[_step(step, level) for step in plan.prepared]
    )


def _step(step: Step, level: str) -> Step:
    if not isinstance(step, KernelStep):
        return step
    launch = step.launch
    try:
        found = _accesses(step)
    except KernelSyntaxError:  # nor does the LLVM emitter know it
        count("kernels without checks")
        return step
    outside = next((a for accesses in found.values() for a in accesses if a.status == "out of range"), None)
    if outside is not None:
        source = next(one for one, accesses in found.items() if outside in accesses)
        raise _error(source, outside, outside.reason, step)
    if level == "1" and all([a.status == "proved" for accesses in found.values() for a in accesses]):
        return step
    arguments = [
        _checked(a, found, level, True) if isinstance(a, KernelSource) else a for a in launch.arguments
    ]  # fmt: skip
    pointers = dict(step.pointers)
    for argument in launch.arguments:
        if isinstance(argument, str):
            nbytes = step.extents[argument]
            if isinstance(nbytes, list):
                name = f"{argument} bytes"
                pointers[name] = Place("number", 0, offsets=tuple(nbytes))
                arguments.append(name)
            else:
                arguments.append(nbytes)
    pointers[_STATE] = Place("state", 0)
    number = next(_numbers)
    _launches[number] = step
    source = _checked(launch.source, found, level, False)
    checked = replace(launch, source=source, arguments=[*arguments, _STATE, number], fallbacks=None)
    return replace(step, launch=checked, pointers=pointers)


def _accesses(step: KernelStep) -> Mapping[KernelSource, list[Access]]:
    launch, known = step.launch, step.least_extents()
    if not all([isinstance(a, (str, int, KernelSource)) for a in (*launch.arguments, launch.items)]):
        return accesses_of(launch, known)
    extents = tuple([(name, repr(nbytes)) for name, nbytes in known.items()])
    key = launch.source, tuple(launch.arguments), launch.items, extents
    made = _known.get(key)
    if made is None:
        made = _known[key] = accesses_of(launch, known)
    return made


def _checked(
    source: KernelSource, found: Mapping[KernelSource, list[Access]], level: str, nested: bool
) -> KernelSource:
    """A kernel with checks of the accesses that are not proved, or of all."""
    accesses = found[source]
    text = f"{source.name} {','.join(source.params)} {source.text}"
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little")
    _kernels[number] = source, accesses
    chosen = tuple([a.number for a in accesses if level == "all" or a.status != "proved"])
    parts = tuple([(name, _checked(part, found, level, True)) for name, part in source.parts])
    return CheckedSource(source.name, source.text, source.params, parts, Checks(chosen, nested, number))


def _failed(access: int, index: int, size: int, launch: int) -> InternalError:
    """The error for an access that a check found outside of its array."""
    kernel, number = of_identity(access)
    source, accesses = _kernels[kernel]
    found = next(a for a in accesses if a.number == number)
    step = _launches[launch]
    proved = ", though it was proved to be within" if found.status == "proved" else ""
    return _error(source, found, f"index {index} of an array of the size {size}{proved}", step)


def _error(source: KernelSource, access: Access, found: str, step: KernelStep) -> InternalError:
    line = printed(source.nodes).splitlines()[access.line - 1].strip()
    return InternalError(
        f"the kernel {source.name}, which computes {step.instruction.opcode}, accesses memory outside of its arrays",
        f"{found}, in {access.text} in line {access.line}: {line}",
        "report the program: hloom has generated a wrong kernel",
        step.instruction.source or "",
    )


explained_by(_failed)
