"""What a device does with the `Library` steps of a program: a library's work, or kernels of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.ir.records import record, replace
from hloom.runtime.cuda.program import Conditional, CudaProgram, Enqueue, Library, Ref, Step, While

ALIGNMENT = 256  # of scratch memory


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


Choose = Callable[[Library], LibraryCall | None]


def own_kernels(step: Library) -> None:
    """Chooses no library."""
    return None


def decided(program: CudaProgram, choose: Choose) -> CudaProgram:
    """The program without `Library` steps: where `choose` returns None their own steps take their place.

    All calls share one piece of scratch memory behind the temporaries, since a program does one step after the other.
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
        if not isinstance(step, Library):
            return (step,)
        call = choose(step)
        if call is None:
            return step.own
        most = max(most, call.scratch_bytes)
        places = (*step.places, Ref("arena", base))
        return (Enqueue(call.enqueue, places, call.name, step.where, call.prepare, call.recorded),)

    steps = steps_of(program.steps)
    return replace(program, steps=steps, arena_bytes=base + most if most else program.arena_bytes)
