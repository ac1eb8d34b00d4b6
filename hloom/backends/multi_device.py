"""Programs of several devices: placement, partition, a plan with kernels for each device, lanes that run together."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import numpy as np

from hloom.backends.dump import program_text
from hloom.compiler.placement.cost_model import Costs, Link
from hloom.compiler.placement.partition import Channel, Partition, partition
from hloom.compiler.placement.placer import describe, placed, prepared
from hloom.config import config
from hloom.errors import DeviceError
from hloom.ir.module import Instruction, Module
from hloom.ir.records import field, record
from hloom.ir.types import Shape
from hloom.platforms.kinds import ChannelEnds, DeviceKind, LaneRequest, added, device_kind
from hloom.platforms.names import parse_device_name
from hloom.runtime.lanes import Control, LanesExecutable


@record
class PlacedModule:
    """A program compiled for several devices; called like a `CompiledModule`.

    lanes: by device its module after all passes. channels: the values that go from one device to another.
    placements: a line for each operation with its device.
    """

    module: Module
    lanes: dict[str, Module]
    channels: list[Channel]
    executable: LanesExecutable
    output_shapes: list[Shape]
    output_devices: list[str]
    donated: dict[int, int]
    placements: list[str]
    timings: dict[str, float] = field(default_factory=dict)
    kernels_compiled: int = 0
    sources: dict[str, str] = field(default_factory=dict)
    costs: dict[str, dict[str, float]] = field(default_factory=dict)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self.executable(arrays)

    @property
    def plan(self):
        """There is one for each device. Raises DeviceError."""
        raise DeviceError(
            "the plan of a compiled function was asked for",
            f"it runs on several devices, with a plan for each: {', '.join(self.lanes)}",
            "look at as_text(), source() or cost_analysis(), which show all of them",
        )

    def as_text(self, dialect: str = "hlo") -> str:
        """The program of each device as text, one after the other."""
        return "\n".join(f"// {device}\n{program_text(module, dialect)}" for device, module in self.lanes.items())

    def source(self) -> str:
        """The kernels of each device as Python text."""
        return "\n\n".join(f"# --- {device} ---\n\n{text}" for device, text in self.sources.items())

    def cost_analysis(self) -> dict[str, float]:
        """'flops', 'bytes accessed', 'kernels', ... of all devices together; 'bytes sent' between them."""
        return added(self.costs.values()) | {
            "bytes sent": float(sum(c.shape.bytes * len(c.receivers) for c in self.channels))
        }

    def memory_analysis(self) -> dict[str, int]:
        """Bytes by kind, of all devices together."""
        return added(self.memory.values()) | {"channel bytes": sum(self.executable.channel_bytes)}


def kind_of(device: str) -> tuple[DeviceKind, int]:
    name = parse_device_name(device)
    return device_kind(name.kind), name.index


def shared_memory(a: str, b: str) -> bool:
    """Whether a device reads the arguments of another where they lie."""
    return kind_of(a)[0].host_memory and kind_of(b)[0].host_memory


def _costs() -> Costs:
    def link(a: str, b: str) -> Link:
        if shared_memory(a, b):
            return Link()
        first, second = (kind_of(d)[0] for d in (a, b))
        if first is second and first.between is not None:
            return first.between
        ends = (first.to_host, second.to_host)
        return Link(sum(e.seconds for e in ends), min(e.bytes for e in ends))

    return Costs(lambda device: kind_of(device)[0].model, link)


def _settle(instruction: Instruction, device: str) -> str:
    kind, _ = kind_of(device)
    if kind.has_kernel(instruction):
        return device
    if config.soft_placement:
        return "cpu:0"
    raise DeviceError(
        f"{instruction.opcode} was placed on {device}",
        f"devices of kind {kind.name!r} have no kernel for it",
        "choose another device for it, or set hl.config.soft_placement",
        instruction.source,
    )


def compile_placed(
    module: Module,
    arguments: dict[int, str],
    default: str,
    donated: frozenset[int] = frozenset(),
    fusion: bool | None = None,
) -> PlacedModule:
    """Compiles a program for the devices that its operations and arguments name.

    arguments: the devices of those arguments that have one. default: the device of the rest. fusion: None takes
    `hl.config.fusion`. Raises DeviceError.
    """
    started = time.perf_counter()
    whole = prepared(module)
    device_of = placed(whole, arguments, default, _costs(), _settle)
    placements = list(describe(whole, device_of))
    if config.log_device_placement:
        for line in placements:
            print(f"hloom: {line}", file=sys.stderr)
    parts = partition(whole, device_of, default, shared_memory)
    divided = time.perf_counter()
    if config.debug >= 1:
        count, nbytes = len(parts.channels), sum(c.shape.bytes for c in parts.channels)
        print(
            f"hloom: {module.name} runs on {', '.join(parts.lanes)}, with {count} values ({nbytes} bytes) sent",
            file=sys.stderr,
        )
    homes = {k: arguments.get(k, default) for k in donated}
    return _Assembly(whole, parts, homes, fusion, placements, divided - started).made()


class _Assembly:
    """The lanes of a partition put together. donated: the devices of the donated arguments, by number."""

    def __init__(self, whole: Module, parts: Partition, donated: dict[int, str], fusion, placements, seconds: float):
        self.whole, self.parts, self.fusion, self.placements = whole, parts, fusion, placements
        self.inputs = [p.shape for p in whole.entry.parameters]
        self.seconds = seconds
        self.numbers: dict[str, list[int]] = {d: [] for d in parts.lanes}
        for number, (device, _) in enumerate(parts.outputs):
            self.numbers[device].append(number)
        readers: dict[int, set[str]] = {}
        for device, lane in parts.lanes.items():
            used = {o for i in lane.entry.instructions for o in i.operands}
            for parameter in lane.entry.parameters:
                if parameter in used:
                    readers.setdefault(parameter["index"], set()).add(device)
        # The memory of an argument may be overwritten by its only reader; where nobody reads it, on its own device.
        self.donated = {
            d: frozenset(k for k, home in donated.items() if readers.get(k, {home}) == {d}) for d in parts.lanes
        }  # fmt: skip

    def made(self) -> PlacedModule:
        parts = self.parts
        results = [parts.lanes[device].entry.outputs()[number].shape for device, number in parts.outputs]
        control = Control()
        channels = {c.number: ChannelEnds(c.shape, control.channel(c.receivers)) for c in parts.channels}
        found = {}
        for device, module in parts.lanes.items():
            kind, index = kind_of(device)
            request = LaneRequest(
                device,
                index,
                module,
                self.numbers[device],
                self.inputs,
                results,
                channels,
                self.donated[device],
                self.fusion,
            )
            found[device] = kind.lane(request)
        lanes = list(found.values())
        for lane in lanes:
            for number, held in lane.held().items():
                control.initial[channels[number].words.allowance] = -held
        aliases = {k: v for lane in lanes for k, v in lane.aliases().items()}
        for lane in lanes:
            lane.resolve(aliases)
        sizes = [0] * (2 * len(parts.channels))
        for lane in lanes:
            for place in lane.places():
                sizes[place] = parts.channels[place // 2].shape.bytes
        donated = {k: v for lane in lanes for k, v in lane.donated.items()}
        executable = LanesExecutable(lanes, results, control.initial, sizes, donated)
        timings = added([{"partition": self.seconds}, *(lane.timings for lane in lanes)])
        return PlacedModule(
            self.whole,
            {device: lane.module for device, lane in found.items()},
            parts.channels,
            executable,
            results,
            [device for device, _ in parts.outputs],
            donated,
            self.placements,
            timings,
            sum(lane.kernels_compiled for lane in lanes),
            {device: lane.source() for device, lane in found.items()},
            {device: lane.cost_analysis() for device, lane in found.items()},
            {device: lane.memory_analysis() for device, lane in found.items()},
        )
