"""Kinds of devices: what the front end asks of one, and the registry that other packages add to by an entry point.

A package adds a kind by an entry point of the group `hloom.devices`, which names a DeviceKind or a function that
returns one:

    [project.entry-points."hloom.devices"]
    counting = "my_package:CountingKind"

`hloom.backends.interpreted.InterpretedKind` is a base for kinds that compute op by op.
"""

from __future__ import annotations

import functools
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from hloom.compiler.placement.cost_model import DeviceModel, Link
from hloom.errors import DeviceError
from hloom.ir.module import Instruction, Module
from hloom.ir.records import record
from hloom.ir.types import Shape

if TYPE_CHECKING:
    from hloom.runtime.lanes import ChannelWords

GROUP = "hloom.devices"


@record(frozen=True)
class ChannelEnds:
    """What a lane knows of a channel: the shape of its values, and the numbers of its control words. Its places are
    2 n and 2 n + 1 among the channels' addresses, where n is its number."""

    shape: Shape
    words: ChannelWords


@record(frozen=True)
class LaneRequest:
    """A device's part of a program.

    module: its instructions, with all parameters of the whole. outputs: for each output of the module its number among
    those of the whole. inputs, results: shapes of the arguments and results of the whole. channels: by number.
    donated: parameters whose memory its outputs may take. fusion: None takes `hl.config.fusion`.
    """

    device: str
    index: int
    module: Module
    outputs: Sequence[int]
    inputs: Sequence[Shape]
    results: Sequence[Shape]
    channels: dict[int, ChannelEnds]
    donated: frozenset[int] = frozenset()
    fusion: bool | None = None


def added(parts: Iterable[dict]) -> dict:
    """Numbers by name of several parts, added up; what is no number is left out."""
    total: dict = {}
    for part in parts:
        for name, value in part.items():
            if isinstance(value, (int, float)):
                total[name] = total.get(name, 0) + value
    return total


class DeviceKind(ABC):
    """A kind of device. name: the first part of its devices' names. to_host, between: the links to the host's memory,
    and of two devices of the kind (None: through the host)."""

    name = ""
    model = DeviceModel()
    to_host = Link()
    between: Link | None = None
    host_memory = False  # whether its programs read and write the host's memory

    @abstractmethod
    def count(self) -> int:
        """How many of them this process has; 0 where there are none, and then `reason` says why."""

    def reason(self) -> str:
        return "there is none"

    def has_kernel(self, instruction: Instruction) -> bool:
        """Whether it can compute an instruction."""
        return True

    @abstractmethod
    def lane(self, request: LaneRequest):
        """What runs a part of a program (`hloom.backends.cpu.executor.NativeLane` is one)."""


# hloom's own kinds, named as entry points name those of other packages. A kind is imported when it is first used:
# nothing of CUDA is imported before.
_OWN = {"cpu": "hloom.backends.cpu.kind:CpuKind", "cuda": "hloom.backends.cuda.kind:CudaKind"}
_kinds: dict[str, DeviceKind] = {}


def _own_kind(name: str) -> DeviceKind:
    if name not in _kinds:
        module, _, attribute = _OWN[name].partition(":")
        _kinds[name] = getattr(importlib.import_module(module), attribute)()
    return _kinds[name]


def register_device_kind(kind: DeviceKind) -> None:
    """Adds a kind of device to this process. Raises DeviceError where the name is taken by another kind."""
    there = _own_kind(kind.name) if kind.name in _OWN else _kinds.get(kind.name)
    if there is not None and type(there) is not type(kind):
        raise DeviceError(
            f"a kind of device {kind.name!r} was registered",
            f"there is one: {type(there).__module__}.{type(there).__qualname__}",
            "give the new kind another name",
        )
    _kinds[kind.name] = kind


@functools.cache
def _load_entry_points() -> None:
    from importlib.metadata import entry_points  # 10 ms, which few programs need

    for point in entry_points(group=GROUP):
        try:
            made: DeviceKind | Callable[[], DeviceKind] = point.load()
            register_device_kind(made if isinstance(made, DeviceKind) else made())
        except DeviceError:
            raise
        except Exception as error:
            raise DeviceError(
                f"the kind of device {point.name!r} of package {point.dist.name if point.dist else '?'} was loaded",
                f"{type(error).__name__}: {error}",
                "repair or uninstall that package",
            ) from error


def device_kinds() -> dict[str, DeviceKind]:
    """The kinds by name, those of other packages among them."""
    for name in _OWN:
        _own_kind(name)
    _load_entry_points()
    return _kinds


def device_kind(name: str) -> DeviceKind | None:
    """The kind of this name; None where there is none."""
    if name in _kinds:
        return _kinds[name]
    return _own_kind(name) if name in _OWN else device_kinds().get(name)
