"""Resolves the `Alternatives` steps of a program for a device: a library call, or one of our implementations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.ir.records import record, replace
from hloom.runtime.cuda.programs.program import Alternatives, Conditional, CudaProgram, Enqueue, Ref, Step, While

ALIGNMENT = 256  # of scratch memory
OWN_KERNELS = "use our own kernels: hl.config.cuda_libraries = 'never'"  # the repair where a library fails


@record(frozen=True)
class LibraryCall:
    """How a library does a step on a device.

    enqueue(stream, *addresses, scratch): as `Enqueue.function`; scratch: the address of `scratch_bytes` bytes.
    prepare, recorded: as of `Enqueue`.
    """

    name: str
    enqueue: Callable[..., None]
    scratch_bytes: int = 0
    prepare: Callable[[], None] | None = None
    recorded: bool = True


Choose = Callable[[Alternatives], LibraryCall | tuple[Step, ...]]


def own_kernels(step: Alternatives) -> tuple[Step, ...]:
    """Chooses the first of our ways."""
    return step.own


def decided(program: CudaProgram, choose: Choose) -> CudaProgram:
    """The program with each `Alternatives` step replaced by the result of `choose`, steps or a library call.

    All calls share one piece of scratch memory after the temporaries, since a program runs its steps sequentially.
    """
    base = -(-program.arena_bytes // ALIGNMENT) * ALIGNMENT
    most = 0

    def steps_of(steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple(made for step in steps for made in made_of(step))

    def made_of(step: Step) -> tuple[Step, ...]:
        nonlocal most
        if isinstance(step, While):
            return (replace(step, condition=steps_of(step.condition), body=steps_of(step.body)),)
        if isinstance(step, Conditional):
            return (replace(step, branches=tuple(steps_of(branch) for branch in step.branches)),)
        if not isinstance(step, Alternatives):
            return (step,)
        call = choose(step)
        if isinstance(call, tuple):
            return call
        most = max(most, call.scratch_bytes)
        places = (*step.places, Ref("arena", base))
        return (Enqueue(call.enqueue, places, call.name, step.where, call.prepare, call.recorded),)

    steps = steps_of(program.steps)
    return replace(program, steps=steps, arena_bytes=base + most if most else program.arena_bytes)
