"""The interface between dispatch and a backend: `Backend.compile(module, CompileOptions) -> Executable`.

A backend compiles for one kind of device (`DeviceKind.backend`) or for several devices
(`hloom.backends.multi_device`). The parts of a program on several devices are `DeviceExecutor`s, which kinds of devices
create for an `ExecutorRequest`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hloom.errors import AttributeValueError, DeviceError, UnsupportedError
from hloom.ir.module import Module
from hloom.ir.records import field, record
from hloom.ir.types import Shape

if TYPE_CHECKING:
    from hloom.ir.module import Instruction
    from hloom.ir.source import Source
    from hloom.runtime.distributed.messages import Message, Transport
    from hloom.runtime.multi_device import ChannelWords


@record(frozen=True)
class CompileOptions:
    """How a module is compiled.

    device: the device of the operations without a placement. argument_devices: argument number -> device, for arguments
    that the user put on a device. target: an architecture to compile for in place of a device, such as 'cuda:sm_90'.
    donated: the parameters whose memory results may reuse. fusion: None means `hl.config.fusion`.
    devices: for a module of several replicas or partitions, the devices that run it, by number; () stands for cpu:0,
    cpu:1 and so on. partitioned: whether the module is already the program of each device, although parameters have
    shardings.
    autotune: whether candidate programs are timed; arguments: returns the values to time them on, None where the
    arguments are known by their shapes only. steady: the parameters that receive the same arrays in most calls: a
    backend may reuse values that depend only on them. updates: result -> the parameter in whose memory a backend may
    compute it.
    """

    device: str = "cpu:0"
    argument_devices: Mapping[int, str] = field(default_factory=dict)
    target: str | None = None
    donated: frozenset[int] = frozenset()
    fusion: bool | None = None
    devices: tuple[str, ...] = ()
    partitioned: bool = False
    autotune: bool = False
    arguments: Callable[[], list[np.ndarray] | None] = lambda: None
    steady: frozenset[int] = frozenset()
    updates: Mapping[int, int] = field(default_factory=dict)


class Backend(ABC):
    """Compiles modules."""

    @abstractmethod
    def compile(self, module: Module, options: CompileOptions) -> Executable:
        """The module compiled for the device or target of the options."""

    def compile_open(self, module: Module, options: CompileOptions) -> Executable:
        """The module, whose parameters have open sizes, as one executable for arrays of all sizes within their bounds.
        Raises UnsupportedError where the backend has none."""
        raise UnsupportedError(
            f"'{module.name}' compiled for {', '.join(repr(p.shape) for p in module.entry.parameters)}",
            "programs of open sizes run on one CPU device",
            "pass arrays, so that it is compiled for their sizes",
        )

    def check_target(self, text: str) -> None:
        """Raises AttributeValueError for a target that this backend does not compile for."""
        raise AttributeValueError(
            f"jit(target={text!r})",
            "a target is a kind of device and one of its architectures",
            "pass 'cuda:sm_90', or leave it out to compile for the device that the arguments are on",
        )


class DeviceBackend(Backend):
    """A backend of one kind of device, which also compiles the parts of programs on several devices."""

    @abstractmethod
    def executor(self, request: ExecutorRequest) -> DeviceExecutor:
        """The executor of a part of a program."""

    def has_kernel(self, instruction: Instruction) -> bool:
        """Whether the kind of device computes an instruction."""
        return True

    def connect(self, ends: Sequence[RemoteEnd]) -> None:
        """Connects devices of the kind to those of other processes. Every process that has one of an end calls this,
        for its ends in the order of the program."""

    def compile_spmd(self, module: Module, options: CompileOptions, **facts) -> Executable:
        """A partitioned module for several devices of the kind, which run it together. facts: the mesh and the
        shardings of arguments and results, and the seconds that the partition took. Raises DeviceError."""
        raise DeviceError(
            f"'{module.name}' on the devices {', '.join(options.devices)}",
            "devices of this kind exchange no values in one program",
            "use a mesh of CPU devices or of GPUs",
        )


class Executable(ABC):
    """A compiled program, called with the arrays of its parameters in their order.

    module: after all passes. donated: output number -> number of the argument in whose memory it is computed.
    output_devices: by output; None where all are on the device that the program was compiled for.
    accepts_device_data: whether arguments are passed as device data; otherwise they are NumPy arrays.
    has_remote_parts: whether other processes run parts of it. warns_of_donations: whether it warns of unused donated
    arguments itself, because they depend on the sizes of a call.
    runner: the runtime's callable. rejects_none: whether it raises TypeError for None in place of an array before it
    runs anything. timings: seconds by stage. kernels_compiled: the number that was neither in the process nor in the
    disk cache. kernels_pending: the number being compiled in the background while fallback kernels run.
    """

    module: Module
    donated: Mapping[int, int]
    output_shapes: Sequence[Shape]
    output_devices: Sequence[str] | None = None
    accepts_device_data = False
    has_remote_parts = False
    warns_of_donations = False
    runner: Callable[[Sequence], list]
    rejects_none = False
    timings: dict[str, float]
    kernels_compiled = 0
    kernels_pending = 0

    def __call__(self, arrays: Sequence) -> list:
        """The results of the runner: NumPy arrays, or data on a device."""
        return self.runner(arrays)

    def serves(self, options: CompileOptions) -> bool:
        """Whether it can be called with arguments on the devices of other options, which are the same otherwise."""
        return False

    @abstractmethod
    def call_donating(self, arrays: list, release: Callable[[], None]) -> list:
        """As a call that may write over donated arguments. release: takes their data from the caller's arrays; once it
        was called the list alone holds them."""

    def ready_for(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Does what is left to do before it runs for arguments of these dimensions, and raises what a call would before
        it takes any argument. Returns whether what it compiles serves other dimensions, too, as a rule."""
        return False

    def for_one_output(self) -> Callable[[Sequence], np.ndarray] | None:
        """A shorter way to call a program of one new output; None where there is none."""
        return None

    @abstractmethod
    def as_text(self, dialect: str = "hlo", *, export: bool = False) -> str:
        """The optimized module as HLO text, or as StableHLO (dialect="stablehlo"); `program_text` explains export."""

    @abstractmethod
    def source(self) -> str:
        """The kernels as Python text."""

    def assembly(self, form: str) -> str:
        """The kernels as assembly: 'ptx' or 'sass'. Raises UnsupportedError for devices that have no such form."""
        raise UnsupportedError(
            f"the {form.upper()} of a compiled '{self.module.name}'",
            "it was compiled for another device than a GPU",
            "compile it with hl.jit(f, target='cuda:sm_90')",
        )

    @abstractmethod
    def cost_analysis(self) -> Mapping[str, object]:
        """'flops', 'transcendentals', 'bytes accessed', 'kernels', 'distinct kernels', and further backend-specific
        entries."""

    @abstractmethod
    def memory_analysis(self) -> dict[str, int]:
        """Bytes by kind."""


# --- programs on several devices ----------------------------------------------------------------------------------


class OpenSpmd(Executable):
    """A program of open sizes that several devices run together: `at` returns what runs for sizes."""

    @abstractmethod
    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The sizes of its dimensions, by name, for those of global arguments. Raises ShapeError for others."""

    @abstractmethod
    def at(self, sizes: Mapping[str, int]) -> Executable:
        """The program for sizes, by name."""


@record(frozen=True)
class RemoteEnd:
    """The other end of a channel, in another process: its number, and the identity of the channel's messages.

    gpus: for a channel between GPUs, its sender and its receiver as (process, number there). turn: the index of the
    channel among those between these two. asked, source: the sent value and its source line, for errors.
    """

    peer: int
    tag: int
    gpus: tuple[tuple[int, int], ...] = ()
    turn: int = 0
    asked: str = ""
    source: Source | None = None


@record(frozen=True)
class SendRecvChannel:
    """A channel as a device executor sees it: the shape of its values, the ids of its control words, and the other
    end where that is a device of another process.

    Channel n has the buffers 2 n and 2 n + 1 among the channels' addresses.
    """

    shape: Shape
    words: ChannelWords
    remote: RemoteEnd | None = None


@record(frozen=True)
class ExecutorRequest:
    """A device's part of a program on several.

    module: its instructions, with all parameters of the whole. outputs: for each output of the module its number among
    those of the whole. inputs, results: shapes of the arguments and results of the whole. channels: by number.
    donated: parameters whose memory its outputs may take. fusion: None means `hl.config.fusion`.
    transport: the connection to other processes, if channels lead there. failed(channel, failure): the error for a
    message that failed.
    """

    device: str
    index: int
    module: Module
    outputs: Sequence[int]
    inputs: Sequence[Shape]
    results: Sequence[Shape]
    channels: dict[int, SendRecvChannel]
    donated: frozenset[int] = frozenset()
    fusion: bool | None = None
    transport: Transport | None = None
    failed: Callable[[int, Message | int], Exception] | None = None


class DeviceExecutor(Protocol):
    """A device's part of a program on several devices.

    `resolve(aliases)` compiles it once the aliases of all parts are known, `prepare(...)` returns what runs it in one
    call. kept: the numbers of the results that stay in the device's own memory; None for a device in the host's.
    """

    name: str
    module: Module
    kept: frozenset[int] | None
    donated: dict[int, int]
    timings: dict[str, float]
    kernels_compiled: int

    def aliases(self) -> dict:
        """Buffers of channels whose values are elsewhere already: in an output, or in the buffer of another channel."""

    def resolve(self, aliases: dict) -> None:
        """Compiles the kernels. aliases: of all parts."""

    def places(self) -> set[int]:
        """The buffers of channels that it reads or writes."""

    def held(self) -> dict[int, int]:
        """For each channel that it sends in a loop, how many values may wait to be read while the next is written."""

    def prepare(self, control: np.ndarray, state: np.ndarray, handed: dict) -> Callable:
        """As `hloom.runtime.multi_device.HostExecutor.prepare`."""

    def source(self) -> str:
        """The kernels as Python text."""

    def cost_analysis(self) -> Mapping[str, object]: ...

    def memory_analysis(self) -> dict[str, int]: ...


def added(parts: Iterable[Mapping[str, object]]) -> dict:
    """The sums by name of several dictionaries of numbers; other values are left out."""
    total: dict = {}
    for part in parts:
        for name, value in part.items():
            if isinstance(value, (int, float)):
                total[name] = total.get(name, 0) + value
    return total
