"""A stretch of a program whose loops and branches use no memory of the caller's.

The addresses of nodes inside a body cannot be changed. If they use inputs or outputs, whose addresses differ from call
to call, the graph would be rebuilt in every call. So such a stretch is rewritten: the memory its bodies use is first
copied to a private area, and copied back at the end. Those copies are outside the bodies, so their addresses can be
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.ir.records import replace
from hloom.runtime.cuda.programs.program import (
    Alternatives,
    Conditional,
    Copy,
    CudaProgram,
    Enqueue,
    Exchange,
    Fill,
    Host,
    Launch,
    Ref,
    Step,
    While,
    all_steps,
    places,
)

_ALIGNMENT = 256


def inside_of_bodies(steps: Sequence[Step]) -> list[Ref]:
    """The inputs and outputs that steps in loops and branches use."""
    used: dict[Ref, None] = {}
    for step in steps:
        if isinstance(step, While | Conditional):
            for inner in all_steps((step,)):
                used.update(dict.fromkeys(ref for ref in places(inner) if ref.kind in ("input", "output")))
    return list(used)


def detached(steps: Sequence[Step], program: CudaProgram, alone: bool) -> tuple[tuple[Step, ...], int]:
    """(the steps over references of kind 'private', their size in bytes). alone: whether nothing else in the program
    writes its outputs, so that their previous contents need not be copied."""
    moved: dict[Ref, Ref] = {}
    before: list[Step] = []
    after: list[Step] = []
    end = 0
    for ref in inside_of_bodies(steps):
        if ref in moved:
            continue
        number = program.donated.get(ref.number, -1) if ref.kind == "output" else ref.number
        names = [ref]  # of one buffer
        if ref.kind == "input" or number >= 0:
            outputs = [Ref("output", output) for output, given in program.donated.items() if given == number]
            names = [Ref("input", number), *outputs]
        shape = (program.inputs if ref.kind == "input" else program.outputs)[ref.number]
        private = Ref("private", end)
        end += -(-shape.bytes // _ALIGNMENT) * _ALIGNMENT
        moved.update(dict.fromkeys(names, private))
        if names[0].kind == "input" or not alone:
            before.append(Copy(private, names[0], shape.bytes))
        if names[-1].kind == "output":
            after.append(Copy(names[-1], private, shape.bytes))
    changed = tuple(with_places(step, lambda ref: moved.get(ref, ref)) for step in steps)
    return (*before, *changed, *after), end


def with_places(step: Step, change: Callable[[Ref], Ref]) -> Step:
    """A step with its references replaced."""
    return _OVER_PLACES[type(step)](step, change)


def _launch(step: Launch, change: Callable[[Ref], Ref]) -> Launch:
    return replace(step, words=tuple(change(w) if isinstance(w, Ref) else w for w in step.words))


def _exchange(step: Exchange, change: Callable[[Ref], Ref]) -> Exchange:
    first, second, scratch = (change(ref) for ref in places(step))
    return replace(step, first=first, second=second, scratch=scratch)


def _alternatives(step: Alternatives, change: Callable[[Ref], Ref]) -> Alternatives:
    where = tuple(change(ref) for ref in step.places)
    own, other = (tuple(with_places(s, change) for s in way) for way in (step.own, step.other))
    parts = tuple((change(place), nbytes) for place, nbytes in step.scratch)
    arrays = tuple((change(place), array) for place, array in step.constants)
    return replace(step, places=where, own=own, other=other, scratch=parts, constants=arrays)


def _host(step: Host, change: Callable[[Ref], Ref]) -> Host:
    inputs, outputs = (tuple((change(ref), s) for ref, s in part) for part in (step.inputs, step.outputs))
    return replace(step, inputs=inputs, outputs=outputs)


def _while(step: While, change: Callable[[Ref], Ref]) -> While:
    condition, body = (tuple(with_places(s, change) for s in part) for part in (step.condition, step.body))
    return replace(step, condition=condition, pred=change(step.pred), body=body)


def _conditional(step: Conditional, change: Callable[[Ref], Ref]) -> Conditional:
    branches = tuple(tuple(with_places(s, change) for s in branch) for branch in step.branches)
    return replace(step, selector=change(step.selector), branches=branches)


_OVER_PLACES: dict[type, Callable] = {
    Launch: _launch,
    Copy: lambda step, change: replace(step, target=change(step.target), source=change(step.source)),
    Fill: lambda step, change: replace(step, target=change(step.target)),
    Exchange: _exchange,
    Enqueue: lambda step, change: replace(step, places=tuple(change(ref) for ref in step.places)),
    Alternatives: _alternatives,
    Host: _host,
    While: _while,
    Conditional: _conditional,
}
