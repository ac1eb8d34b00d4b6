"""The steps of a program as data: what a device runs, over places in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hloom.ir.records import field, record
from hloom.ir.sizes.numbers import Nodes
from hloom.ir.types import Shape
from hloom.runtime.distributed.messages import Transport


@record(frozen=True)
class Ref:
    """A place in memory: kind 'input', 'output', 'constant' (number), 'arena' or 'kept' (byte offset). In a program
    that runs on several devices (`hloom.runtime.multi_device`) also 'channel' and 'control': a buffer of a channel, a
    count. In a program that several devices run (`hloom.runtime.spmd`) also 'shared' (byte offset in memory that all
    share) and 'device': the number of the partition (0) or replica (1), u32. Of kernels that check accesses also
    'state': the address of that of the frame, and 'number': itself, and by the number of the device its offset.

    swap: number of a place that Swaps exchange with others. By the number of the device that runs the program, where it
    is one of several: peer, the device in whose memory the place is; offsets, bytes that are added.
    """

    kind: str
    number: int
    swap: int | None = None
    peer: tuple[int, ...] | None = None
    offsets: tuple[int, ...] | None = None


@record(frozen=True)
class Call:
    """One kernel: its address, argument words (integers or places), work items and items in a chunk.

    side_by_side: whether any thread takes the next chunk, instead of a share of them for each. nanoseconds: that it
    takes one thread, roughly; 0 where nobody knows. devices: those that call it, of several; None: all.
    """

    kernel: int
    words: tuple[int | Ref, ...]
    items: int
    grain: int
    side_by_side: bool = False
    nanoseconds: int = 0
    devices: frozenset[int] | None = None


@record(frozen=True)
class Copy:
    """Bytes from one place to another. devices: those that do so, of several; None: all."""

    target: Ref
    source: Ref
    bytes: int
    devices: frozenset[int] | None = None


@record(frozen=True)
class Host:
    """A Python function between native steps: function(arrays, results) writes the results, which are the outputs.

    keeps: whether it may keep what it is given, which then is a copy: the memory is written again. A function that does
    not keeps its hands off the arrays too. devices: that call it; None for all.
    """

    function: Callable
    inputs: tuple[tuple[Ref, Shape], ...]
    outputs: tuple[tuple[Ref, Shape], ...]
    keeps: bool = True
    devices: tuple[int, ...] | None = None


@record(frozen=True)
class Jump:
    """To the step of this number."""

    target: int


@record(frozen=True)
class Branch:
    """To the step of this number where the pred is false."""

    pred: Ref
    target: int


@record(frozen=True)
class Switch:
    """To the step whose number stands at the place that the s32 names; the last where it names none."""

    index: Ref
    targets: tuple[int, ...]


@record(frozen=True)
class Swap:
    """The two places, which have `swap` numbers, stand for each other from here on."""

    first: Ref
    second: Ref


@record(frozen=True)
class Count:
    """Adds one to each of some control words, then waits for each pair until its first is as large as its second."""

    added: tuple[Ref, ...] = ()
    waits: tuple[tuple[Ref, Ref], ...] = ()


@record(frozen=True)
class Arrive:
    """The device has come to a barrier of its group, if it is in one. number: of the barrier."""

    number: int
    groups: tuple[tuple[int, ...], ...]


@record(frozen=True)
class Await:
    """Waits until all devices of its group have come to the barrier."""

    number: int
    groups: tuple[tuple[int, ...], ...]


@record(frozen=True)
class Exchange:
    """Messages to and from devices of other processes, all complete at its end. number: of the step among its kind.
    messages: (whether it is received, its place, bytes, peer), the last two by the number of the device, which neither
    sends nor receives where it is its own peer."""

    number: int
    messages: tuple[tuple[bool, Ref, tuple[int, ...], tuple[int, ...]], ...]


@record(frozen=True)
class Deliver:
    """The value of a channel to, or from, a device of another process. A send goes on at once, after the message before
    it has left; a receive waits. channel: its number. place: where the value is, or is received. tag: as of Message."""

    receives: bool
    channel: int
    place: Ref
    bytes: int
    peer: int
    tag: int


@record(frozen=True)
class Settle:
    """Waits until the values of channels that were sent to other processes have left their places."""

    channels: tuple[int, ...]


Step = Call | Copy | Host | Jump | Branch | Switch | Swap | Count | Arrive | Await | Exchange | Deliver | Settle


@record
class Program:
    """What a device runs: steps over inputs, outputs, constants and one arena.

    donated: output number -> input number whose buffer the output is computed in. work: rough element operations.
    code: keeps the kernels in memory whose addresses are in the steps; a program that runs is kept by who called it.
    transport: for the messages of `Deliver`. guards: offsets of pages of the arena that nobody may touch.
    prepared: steps that fill `kept_bytes` of memory from the `steady` inputs (numbers), which the others read as long
    as these inputs are the same.
    nodes: of which integers of the program may be nodes (`hloom.runtime.open_program`). checked: whether kernels check
    accesses.
    """

    steps: list[Step]
    constants: Sequence[np.ndarray]
    arena_bytes: int
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]
    donated: dict[int, int] = field(default_factory=dict)
    work: float = 0.0
    channels: int = 0
    code: list[object] = field(default_factory=list)
    barriers: int = 0
    shared_bytes: int = 0
    transport: Transport | None = None
    guards: Sequence[int] = ()
    prepared: Sequence[Step] = ()
    kept_bytes: int = 0
    steady: tuple[int, ...] = ()
    nodes: Nodes | None = None
    checked: bool = False
