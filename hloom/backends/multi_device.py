"""Programs on several devices: placement, partition, and an executor for each device; they run together."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping

from hloom.backends.donation import copy_shared
from hloom.backends.processes import Links, SpreadProgram, apart, global_name, global_names, is_spread, links_of
from hloom.backends.text import program_text
from hloom.compiler.communication import CollectiveUse, bytes_sent, sends, table
from hloom.compiler.placement.cost_model import Costs, Link
from hloom.compiler.placement.partition import Channel, Partition, partition
from hloom.compiler.placement.placer import describe, placed, prepared
from hloom.compiler.placement.user_devices import chosen_devices
from hloom.config import config
from hloom.errors import DeviceError
from hloom.ir.module import Instruction, Module
from hloom.ir.records import field, record, replace
from hloom.ir.types import Shape
from hloom.platforms.backend import (
    Backend,
    CompileOptions,
    DeviceBackend,
    DeviceExecutor,
    Executable,
    ExecutorRequest,
    SendRecvChannel,
    added,
)
from hloom.platforms.device import find_device, logged_name, note_devices
from hloom.platforms.kinds import DeviceKind, device_kind
from hloom.platforms.names import parse_device_name
from hloom.runtime.multi_device import Control, MultiDeviceProgram

BETWEEN_PROCESSES = Link(5e-6, 4e9)


@record
class MultiDeviceExecutable(Executable):
    """A program compiled for several devices.

    parts: by device, the executor of its part. may_overwrite: the parameters whose memory a part may take. channels:
    the values sent between devices. placements: a line for each operation with its device. default: the device of
    operations without a placement. argument_devices: by number, the devices of the arguments during compilation.
    remote_devices: those of other processes, which run their parts there; all processes then use the same names.
    """

    module: Module
    parts: dict[str, DeviceExecutor]
    channels: list[Channel]
    runner: MultiDeviceProgram | SpreadProgram
    output_shapes: list[Shape]
    output_devices: list[str]
    donated: dict[int, int]
    may_overwrite: frozenset[int]
    placements: list[str]
    timings: dict[str, float] = field(default_factory=dict)
    kernels_compiled: int = 0
    default: str = "cpu:0"
    argument_devices: Mapping[int, str] = field(default_factory=dict)
    remote_devices: tuple[str, ...] = ()

    def __post_init__(self):
        self.has_remote_parts = bool(self.remote_devices)
        self.accepts_device_data = self.has_remote_parts or any(
            kind_of(device)[0].keeps_arrays for device in self.parts
        )

    def serves(self, options: CompileOptions) -> bool:
        """Arguments in memory that devices share are read where they are. Those on a device without a part may want
        one."""
        before, now = self.argument_devices, options.argument_devices
        if self.has_remote_parts:
            return self.default == global_name(options.device) and before == global_names(now)
        places = [(before.get(k, self.default), now.get(k, options.device)) for k in {**before, **now}]
        return all(device in self.parts for device in (options.device, *now.values())) and all(
            shared_memory(a, b) for a, b in [(self.default, options.device), *places]
        )

    def call_donating(self, arrays: list, release: Callable[[], None]) -> list:
        release()
        copy_shared(arrays, self.may_overwrite)
        return self.runner(arrays)

    @property
    def plan(self):
        """There is one for each device. Raises DeviceError."""
        raise DeviceError(
            "the plan of a compiled function",
            f"it runs on several devices, with a plan for each: {', '.join(self.parts)}",
            "use as_text(), source() or cost_analysis(), which show all of them",
        )

    def collectives(self) -> list[CollectiveUse]:
        """The values that go from device to device: between which, their bytes, how often, for which line."""
        return sends([part.module for part in self.parts.values()], self.channels)

    def as_text(self, dialect: str = "hlo", *, export: bool = False) -> str:
        """The program of each device as text, one after the other."""
        texts = {device: program_text(part.module, dialect, export=export) for device, part in self.parts.items()}
        return "\n".join(f"// {device}\n{text}" for device, text in texts.items())

    def source(self) -> str:
        """The kernels of each device as Python text."""
        return "\n\n".join(f"# --- {device} ---\n\n{part.source()}" for device, part in self.parts.items())

    def cost_analysis(self) -> dict[str, float]:
        """'flops', 'bytes accessed', 'kernels', ... of all devices together; 'bytes sent' between them."""
        return added(part.cost_analysis() for part in self.parts.values()) | {
            "bytes sent": float(sum(c.shape.bytes * len(c.receivers) for c in self.channels))
        }

    def memory_analysis(self) -> dict[str, int]:
        """Bytes by kind, of all devices together."""
        parts = added(part.memory_analysis() for part in self.parts.values())
        return parts | {"channel bytes": sum(self.runner.channel_bytes)}


def kind_of(device: str) -> tuple[DeviceKind, int]:
    name = parse_device_name(device)
    kind = device_kind(name.kind)
    assert kind is not None  # `parse_device_name` refuses others
    return kind, name.index


def shared_memory(a: str, b: str) -> bool:
    """Whether both devices use the memory of one host process."""
    return kind_of(a)[0].host_memory and kind_of(b)[0].host_memory and not apart(a, b)


def _costs() -> Costs:
    def link(a: str, b: str) -> Link:
        if shared_memory(a, b):
            return Link()
        if apart(a, b):
            return BETWEEN_PROCESSES
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
        return str(replace(parse_device_name(device), kind="cpu", index=0))
    raise DeviceError(
        f"{instruction.opcode} on {device}",
        f"devices of kind {kind.name!r} have no kernel for it",
        "choose another device, or set hl.config.soft_placement",
        instruction.source,
    )


class MultiDeviceBackend(Backend):
    """Compiles programs for the devices that their operations and arguments name."""

    def compile(self, module: Module, options: CompileOptions) -> MultiDeviceExecutable:
        """Raises DeviceError."""
        started = time.perf_counter()
        whole, default, arguments = prepared(module), options.device, options.argument_devices
        spread = is_spread([default, *arguments.values(), *chosen_devices(whole.entry)])
        device_of = placed(whole, arguments, default, _costs(), _settle)
        if spread:
            default, arguments = global_name(default), global_names(arguments)
            device_of = global_names(device_of)
        placements = list(describe(whole, device_of))
        if config.log_device_placement:
            note_devices(dict.fromkeys(device_of.values()))
            names = {name: logged_name(find_device(name)) for name in set(device_of.values())}
            for line in describe(whole, {i: names[name] for i, name in device_of.items()}):
                print(f"hloom: {line}", file=sys.stderr)
        given = frozenset(range(len(whole.entry.parameters))) - set(arguments) if spread else frozenset()
        parts = partition(whole, device_of, default, shared_memory, apart, given)
        links = links_of(parts, whole, device_of) if spread else None
        divided = time.perf_counter()
        if config.debug >= 1:
            count, nbytes = len(parts.channels), sum(c.shape.bytes for c in parts.channels)
            print(
                f"hloom: {module.name} runs on {', '.join(parts.modules)}, with {count} values ({nbytes} bytes) sent",
                file=sys.stderr,
            )
        homes = {k: arguments.get(k, default) for k in options.donated}
        made = _Assembly(whole, parts, homes, options.fusion, placements, divided - started, links).made()
        made.default, made.argument_devices = default, arguments
        return made


class _Assembly:
    """The parts of a program put together. donated: the devices of the donated arguments, by number."""

    def __init__(
        self, whole: Module, parts: Partition, donated: dict[int, str], fusion, placements, seconds: float,
        links: Links | None,
    ):  # fmt: skip
        self.whole, self.parts, self.fusion, self.placements, self.links = whole, parts, fusion, placements, links
        self.inputs = [p.shape for p in whole.entry.parameters]
        self.seconds = seconds
        self.numbers: dict[str, list[int]] = {d: [] for d in parts.modules}
        for number, (device, _) in enumerate(parts.outputs):
            self.numbers[device].append(number)
        readers: dict[int, set[str]] = {}
        for device, module in parts.modules.items():
            used = {o for i in module.entry.instructions for o in i.operands}
            sent = {o for i in module.entry.instructions if i.opcode == "send" for o in i.operands}
            for parameter in module.entry.parameters:
                if parameter in used:
                    readers.setdefault(parameter["index"], set()).add(device)
                if parameter in sent:  # and may be sent later than the following values
                    readers.setdefault(parameter["index"], set()).add("")
        # The memory of an argument may be overwritten by its only reader; if unread, on its device.
        self.donated = {
            d: frozenset(k for k, home in donated.items() if readers.get(k, {home}) == {d}) for d in parts.modules
        }  # fmt: skip

    def made(self) -> MultiDeviceExecutable:
        parts, links = self.parts, self.links
        results = [parts.modules[device].entry.outputs()[number].shape for device, number in parts.outputs]
        control = Control()
        channels = {
            c.number: SendRecvChannel(c.shape, control.channel(c.receivers), links.remote(c) if links else None)
            for c in parts.channels
        }
        self._connect(channels.values())
        executors = self._executors(results, channels)
        found = list(executors.values())
        for executor in found:
            for number, held in executor.held().items():
                control.initial[channels[number].words.allowance] = -held
        aliases = {k: v for executor in found for k, v in executor.aliases().items()}
        for executor in found:
            executor.resolve(aliases)
        donated = {k: v for executor in found for k, v in executor.donated.items()}
        remote = tuple(device for device in parts.modules if device not in executors)
        away = {k: find_device(device) for k, (device, _) in enumerate(parts.outputs) if device in remote}
        elsewhere = frozenset(away) if links else None
        sizes = self._bytes_of_places(found)
        program = MultiDeviceProgram(found, results, control.initial, sizes, donated, elsewhere)
        executable = MultiDeviceExecutable(
            self.whole,
            executors,
            parts.channels,
            SpreadProgram(program, away) if links else program,
            results,
            [device for device, _ in parts.outputs],
            donated,
            frozenset().union(*(self.donated[device] for device in executors)),
            self.placements,
            added([{"partition": self.seconds}, *(executor.timings for executor in found)]),
            sum(executor.kernels_compiled for executor in found),
            remote_devices=remote if links else (),
        )
        if config.debug >= 1:
            _report(executable)
        return executable

    def _connect(self, channels: Iterable[SendRecvChannel]) -> None:
        """Connects the GPUs of this process to those of others with which they have channels."""
        ends = [c.remote for c in channels if c.remote is not None and c.remote.gpus]
        if ends:
            backend = kind_of(next(d for d in self.parts.modules if kind_of(d)[0].name != "cpu"))[0].backend
            assert isinstance(backend, DeviceBackend)  # only such devices have ends other than CPUs
            backend.connect(ends)

    def _executors(self, results: list[Shape], channels: dict[int, SendRecvChannel]) -> dict[str, DeviceExecutor]:
        """The executors of the devices of this process."""
        links = self.links
        executors: dict[str, DeviceExecutor] = {}
        for device, module in self.parts.modules.items():
            if is_spread([device]):
                continue
            kind, index = kind_of(device)
            if links and kind.name != "cpu":
                links.require_pairs(device)
            numbers, given = self.numbers[device], self.donated[device]
            executors[device] = kind.executor(
                ExecutorRequest(
                    device, index, module, numbers, self.inputs, results, channels, given, self.fusion,
                    links.transport if links else None, links.failed if links else None,
                )
            )  # fmt: skip
        return executors

    def _bytes_of_places(self, executors: list[DeviceExecutor]) -> list[int]:
        """The bytes of the buffers of channels, 0 for those that no executor uses."""
        sizes = [0] * (2 * len(self.parts.channels))
        for executor in executors:
            for place in executor.places():
                sizes[place] = self.parts.channels[place // 2].shape.bytes
        return sizes


def _report(executable: MultiDeviceExecutable) -> None:
    uses = executable.collectives()
    print(
        f"hloom: compiled {executable.module.name} for parts on {len(executable.parts)} devices, which send "
        f"{bytes_sent(uses):,.0f} bytes to each other ({len(uses)} values)",
        file=sys.stderr,
    )
    if config.debug >= 2 and uses:
        print(table(uses), file=sys.stderr)
