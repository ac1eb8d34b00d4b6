"""A program for a GPU, as data. Loops and branches are structured, because graphs have them as nodes with bodies.

A step's `where` is the user's line that it comes from; errors name it. Memory is named by `Ref`s, as in programs for
the CPU: 'input', 'output', 'constant' (index) or 'arena' (byte offset).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hloom.ir.records import field, record
from hloom.ir.types import Shape
from hloom.runtime.steps import Ref

__all__ = [
    "Alternatives",
    "Conditional",
    "Copy",
    "CudaProgram",
    "Enqueue",
    "Exchange",
    "Fill",
    "Host",
    "Kernel",
    "Launch",
    "Ref",
    "Step",
    "While",
    "all_steps",
    "on_device",
    "places",
]


@record(frozen=True)
class Kernel:
    """Machine code and the name of the kernel in it."""

    cubin: bytes = field(repr=False)
    name: str


@record(frozen=True)
class Launch:
    """A kernel over a grid of blocks.

    words: its arguments in order: the address of a reference, an integer (64 bits), or the bytes of an argument passed
    by value.
    shared: bytes of dynamic shared memory of a block.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    words: tuple[int | Ref | bytes, ...]
    shared: int = 0
    where: str = ""


@record(frozen=True)
class Copy:
    """Copies bytes from one reference to another."""

    target: Ref
    source: Ref
    bytes: int
    where: str = ""


@record(frozen=True)
class Fill:
    """Bytes of one value (0 to 255)."""

    target: Ref
    byte: int
    bytes: int
    where: str = ""


@record(frozen=True)
class Exchange:
    """Swaps the contents of two references; `scratch` is a third of the same size."""

    first: Ref
    second: Ref
    scratch: Ref
    bytes: int
    where: str = ""


@record(frozen=True)
class Enqueue:
    """A library's work: function(stream, *addresses) puts it on the stream and does not wait.

    stream: the handle as an integer. The function is called during stream capture and must not allocate; the captured
    work is replayed, so the function is called once per set of addresses, not per run. prepare: called before the first
    capture, and again after the device was closed; it may allocate. recorded=False: it may wait for the stream, so it
    is kept out of graphs and called in each run.
    """

    function: Callable[..., None]
    places: tuple[Ref, ...]
    name: str
    where: str = ""
    prepare: Callable[[], None] | None = None
    recorded: bool = True


@record(frozen=True)
class Alternatives:
    """Work that can be done in several ways. Which one is decided when the program is loaded (`choice.py`).

    call: a description of the work for the code that decides. places: references to its arrays. own: steps that do it;
    other: alternative steps, if any. scratch: (reference, bytes) of memory that only these use; constants: (reference,
    array) of the program's constants that only they read, such as tables.
    """

    call: object
    places: tuple[Ref, ...]
    own: tuple[Step, ...]
    scratch: tuple[tuple[Ref, int], ...] = ()
    where: str = ""
    constants: tuple[tuple[Ref, np.ndarray], ...] = field(default=(), repr=False)
    other: tuple[Step, ...] = ()


@record(frozen=True)
class Host:
    """A Python function: function(arrays, results) writes the results; copies of the inputs, copied to the outputs."""

    function: Callable
    inputs: tuple[tuple[Ref, Shape], ...]
    outputs: tuple[tuple[Ref, Shape], ...]
    name: str = "a Python function"
    where: str = ""


@record(frozen=True)
class While:
    """`condition` writes `pred` (one byte); while it is not 0 the body runs, and the condition again."""

    condition: tuple[Step, ...]
    pred: Ref
    body: tuple[Step, ...]
    where: str = ""


@record(frozen=True)
class Conditional:
    """One of the branches runs. selector: a pred (one byte; two branches, the first where it is true), or with
    `by_index` an s32; the last branch where it names none."""

    selector: Ref
    branches: tuple[tuple[Step, ...], ...]
    by_index: bool = False
    where: str = ""


Step = Launch | Copy | Fill | Exchange | Enqueue | Alternatives | Host | While | Conditional


@record
class CudaProgram:
    """Steps over inputs, outputs, constants and one arena.

    donated: output number -> input number whose buffer the output is computed in. labels: the user's names of the
    outputs, for the list of buffers of an error about memory.
    """

    name: str
    steps: Sequence[Step]
    constants: Sequence[np.ndarray]
    arena_bytes: int
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]
    donated: dict[int, int] = field(default_factory=dict)
    labels: Sequence[str] = ()

    def label(self, output: int) -> str:
        return self.labels[output] if output < len(self.labels) else f"result {output} of {self.name}"


def all_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Those inside of loops and branches too."""
    for step in steps:
        yield step
        if isinstance(step, While):
            yield from all_steps(step.condition)
            yield from all_steps(step.body)
        elif isinstance(step, Conditional):
            for branch in step.branches:
                yield from all_steps(branch)


def on_device(steps: Sequence[Step], loops: bool, choices: bool) -> bool:
    """Whether a graph can hold these steps. loops, choices: whether the driver has such nodes."""
    return not any(
        isinstance(s, Host)
        or (isinstance(s, Enqueue) and not s.recorded)
        or (isinstance(s, While) and not loops)
        or (isinstance(s, Conditional) and not choices)
        for s in all_steps(steps)
    )


def places(step: Step) -> tuple[Ref, ...]:
    """The references that a step itself names (not those inside its body)."""
    match step:
        case Launch():
            return tuple(word for word in step.words if isinstance(word, Ref))
        case Copy():
            return (step.target, step.source)
        case Fill():
            return (step.target,)
        case Exchange():
            return (step.first, step.second, step.scratch)
        case Enqueue() | Alternatives():
            return step.places
        case Host():
            return tuple(ref for ref, _ in (*step.inputs, *step.outputs))
        case While():
            return (step.pred,)
        case Conditional():
            return (step.selector,)
