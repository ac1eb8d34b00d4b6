"""The steps of a program as data: the work of a device, over references to memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hloom.ir.records import field, record
from hloom.ir.sizes.numbers import Nodes
from hloom.ir.types import Shape
from hloom.runtime.distributed.messages import Transport


@record(frozen=True)
class Ref:
    """A reference to memory: kind 'input', 'output', 'constant' (index), 'arena' or 'kept' (byte offset). In a program
    that runs on several devices (`hloom.runtime.multi_device`) also 'channel' and 'control': a buffer of a channel, a
    count. In a program that several devices run (`hloom.runtime.spmd`) also 'shared' (byte offset in memory shared by
    all) and 'device': the index of the partition (0) or replica (1), u32. In kernels that check accesses also 'state',
    the address of the frame's state, and 'number', an integer itself, with its offset by the index of the device.

    swap: index of a buffer that Swaps exchange with others. By the index of the device, where several run the program:
    peer, the device that owns the memory; offsets, bytes to add.
    """

    kind: str
    number: int
    swap: int | None = None
    peer: tuple[int, ...] | None = None
    offsets: tuple[int, ...] | None = None


@record(frozen=True)
class Call:
    """One kernel: its address, argument words (integers or references), work items and items in a chunk.

    side_by_side: whether any thread takes the next chunk, instead of a share of them for each. nanoseconds: its
    approximate duration on one thread; 0 if unknown. devices: those that call it, of several; None: all.
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
    """Copies bytes from one reference to another. devices: those that do so, of several; None: all."""

    target: Ref
    source: Ref
    bytes: int
    devices: frozenset[int] | None = None


@record(frozen=True)
class Native:
    """A C function that computes what a Python function does, an item of its results at a time.

    address: of a kernel (words, lo, hi). The words are those of the Python step, the address of the Python step, and
    the numbers. Where an item fails, it calls the Python step with its own words, which computes all items and raises.
    items, grain: as of a Call.
    """

    address: int
    numbers: tuple[int, ...]
    items: int
    grain: int


@record(frozen=True)
class Host:
    """A Python function between native steps: function(arrays, results) writes the results, which are the outputs.

    keeps: whether it may keep its arguments, which are then copies, since the memory is reused. A function that does
    not keep them must not modify them either. devices: those that call it; None for all.
    native: calls the driver makes in its place, without Python; None: there are none.
    """

    function: Callable
    inputs: tuple[tuple[Ref, Shape], ...]
    outputs: tuple[tuple[Ref, Shape], ...]
    keeps: bool = True
    devices: tuple[int, ...] | None = None
    native: Native | None = None


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
    """Jumps to the target selected by the s32; to the last one if it is out of range."""

    index: Ref
    targets: tuple[int, ...]


@record(frozen=True)
class Swap:
    """Swaps the two buffers, which have `swap` indices."""

    first: Ref
    second: Ref


@record(frozen=True)
class Count:
    """Adds one to each of some control words, then waits for each pair until its first is as large as its second."""

    added: tuple[Ref, ...] = ()
    waits: tuple[tuple[Ref, Ref], ...] = ()


@record(frozen=True)
class Arrive:
    """The device arrives at a barrier of its group, if it is in one. number: of the barrier."""

    number: int
    groups: tuple[tuple[int, ...], ...]


@record(frozen=True)
class Await:
    """Waits until all devices of its group have reached the barrier."""

    number: int
    groups: tuple[tuple[int, ...], ...]


@record(frozen=True)
class Exchange:
    """Messages to and from devices of other processes, all complete at its end. number: index of the step among its
    kind. messages: (whether it is received, its reference, bytes, peer), the last two by the index of the device, which
    neither sends nor receives where it is its own peer."""

    number: int
    messages: tuple[tuple[bool, Ref, tuple[int, ...], tuple[int, ...]], ...]


@record(frozen=True)
class Deliver:
    """The value of a channel to, or from, a device of another process. A send does not wait, except for the previous
    message to leave; a receive waits. channel: its index. place: the reference to the value, or to where it is
    received. tag: as in Message."""

    receives: bool
    channel: int
    place: Ref
    bytes: int
    peer: int
    tag: int


@record(frozen=True)
class Settle:
    """Waits until the channel values sent to other processes have left their buffers."""

    channels: tuple[int, ...]


Step = Call | Copy | Host | Jump | Branch | Switch | Swap | Count | Arrive | Await | Exchange | Deliver | Settle


@record
class Program:
    """The program of a device: steps over inputs, outputs, constants and one arena.

    donated: output index -> index of the input whose buffer it reuses. work: approximate element operations. code:
    keeps the kernels in memory whose addresses are in the steps; a running program is kept alive by its caller.
    transport: for the messages of `Deliver`. guards: offsets of inaccessible guard pages of the arena. prepared: steps
    that fill `kept_bytes` of memory from the `steady` inputs (indices), which the others read as long as these inputs
    are the same. nodes: which integers of the program may be nodes (`hloom.runtime.open_program`). checked: whether
    kernels check accesses.
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
