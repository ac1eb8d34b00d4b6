"""Programs that several GPUs run together, each on its shards.

Each GPU runs the segments between collectives (graphs, `segments.py`) on its own stream; collectives are calls of NCCL
on these streams (`exchange.py`). One thread of the host enqueues the work of all GPUs of its process: a GPU's walk
continues up to a collective, and once all local members of a group have arrived, their calls are issued together. So no
call waits for another one of this process, and deadlocks between GPUs are detected.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence

from hloom import distributed
from hloom.backends.cuda.devices import cuda_device
from hloom.backends.cuda.spmd.communicators import World, nccl
from hloom.backends.cuda.spmd.exchange import Exchange, exchanges_of, number_of
from hloom.backends.cuda.spmd.watch import watch
from hloom.backends.cuda.walk import Walk, Walking, compile_segments, follow_memory
from hloom.backends.donation import copy_shared
from hloom.backends.processes import placement_of
from hloom.backends.segments import Level, Transfer, whole
from hloom.backends.text import program_text
from hloom.compiler.communication import CollectiveUse, bytes_sent, collective_uses
from hloom.compiler.passes.spmd.leading import along_first_dimension
from hloom.compiler.placement.placer import prepared
from hloom.config import config
from hloom.errors import ParticipantsError
from hloom.ir.module import Module
from hloom.ir.ops.programs.collective import COLLECTIVES, NUMBERS
from hloom.ir.process import forking
from hloom.ir.records import field, record
from hloom.ir.spmd.sharding import DeviceMesh
from hloom.ir.text import print_module
from hloom.ir.types import Shape
from hloom.platforms.backend import CompileOptions, Executable, added
from hloom.platforms.names import parse_device_name
from hloom.platforms.processes import processes
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.device import Device
from hloom.runtime.cuda.libraries.nccl import reduces

CUTS = COLLECTIVES | frozenset(NUMBERS)
# The calls of all GPUs of a group come in one order: that of the calls of programs, one of which runs at a time.
_order = forking.rlock()


@record
class CudaSpmdExecutable(Executable):
    """A module compiled for several GPUs, which run it together. Called, and returns, as `SpmdExecutable`, with data on
    the GPUs.

    level: its parts. devices: names, by number. runner: of this process's GPUs. mesh, input_shardings,
    output_shardings: as of SpmdExecutable.
    """

    module: Module
    level: Level
    runner: CudaTeam
    devices: tuple[str, ...]
    mesh: DeviceMesh | None
    input_shardings: list
    output_shardings: list
    output_shapes: list[Shape]
    donated: dict[int, int]
    may_overwrite: frozenset[int]
    timings: dict[str, float] = field(default_factory=dict)
    kernels_compiled: int = 0
    accepts_device_data = True

    def call_donating(self, arrays: list, release: Callable[[], None]) -> list:
        """arrays: a list of lists, as of a call."""
        release()
        for k in self.may_overwrite:
            copy_shared_arrays(arrays[k])
        return self.runner(arrays, donating=True)

    def collectives(self) -> list[CollectiveUse]:
        """As of SpmdExecutable."""
        return collective_uses(self.module, self.mesh)

    def as_text(self, dialect: str = "hlo", *, export: bool = False) -> str:
        return program_text(self.module, dialect, export=export)

    def source(self) -> str:
        """The kernels as Python text."""
        return "\n\n".join(part.compiled.source() for part in self.level.segments())

    def cost_analysis(self) -> Mapping[str, object]:
        """Of one device, with the 'bytes sent' by it."""
        found = added(part.compiled.cost_analysis() for part in self.level.segments())
        return found | {"bytes sent": bytes_sent(self.collectives())}

    def memory_analysis(self) -> dict[str, int]:
        """Bytes by kind of one device."""
        return added(part.compiled.memory_analysis() for part in self.level.segments())


def copy_shared_arrays(arrays: list) -> None:
    """Copies the arrays of a list to whose memory something else refers. Those of the host are copied to the GPU."""
    copy_shared(arrays, [k for k, array in enumerate(arrays) if isinstance(array, DeviceArray)])


def compile_spmd(
    module: Module, options: CompileOptions, mesh: DeviceMesh | None, inputs: list, outputs: list, seconds: float
) -> CudaSpmdExecutable:
    """A partitioned module for the GPUs of the options. Raises NoCudaKernelError, and CudaLibraryError where NCCL is
    missing."""
    devices = options.devices
    started = time.perf_counter()
    where = placement_of(devices)
    world = World.of(where, [parse_device_name(device).index for device in devices])
    if world.others:
        distributed.same_program(module.name, print_module(module), world.members)
    module = along_first_dimension(prepared(module), reduces)
    level = whole(module, options.donated, CUTS)
    arch = cuda_device(where.indices[0]).facts.arch
    count, times = compile_segments(list(level.segments()), arch, options.fusion)
    team = CudaTeam(module, level, world, options.donated)
    origin = {p: p["index"] for p in module.entry.parameters if p["index"] in options.donated}
    follow_memory(level, origin)
    donated = {k: origin[key] for k, key in enumerate(level.results) if key in origin}
    shapes = [o.shape for o in module.entry.outputs()]
    timings = added([{"partition": seconds}, *times])
    made = CudaSpmdExecutable(
        module, level, team, devices, mesh, inputs, outputs, shapes, donated, options.donated, timings, count
    )
    if config.debug >= 1:
        used = time.perf_counter() - started
        print(
            f"hloom: compiled {module.name} for {len(devices)} GPUs in {used:.2f} s: each sends "
            f"{bytes_sent(made.collectives()):,.0f} bytes",
            file=sys.stderr,
        )
    return made


class _Member(Walk):
    """One GPU's part of a call. number: of the device in the program."""

    def __init__(self, team: CudaTeam, number: int, device: Device, programs: Mapping):
        super().__init__(device, programs)
        self.team, self.number = team, number

    def transfer(self, part: Transfer, values: dict, where: str) -> Walking:
        instruction = part.instruction
        if instruction.opcode in NUMBERS:
            values[instruction] = self.device.put(number_of(instruction, self.number, self.team.module))
            return
        exchange = self.team.exchanges[instruction]
        made = yield exchange, self.taken(part, values)
        if len(exchange.results) == 1 and not hasattr(instruction.shape, "elements"):
            values[instruction] = made[0]
        else:
            values.update(((instruction, k), buffer) for k, buffer in enumerate(made))


class CudaTeam:
    """The GPUs of this process that run a program together."""

    def __init__(self, module: Module, level: Level, world: World, donated: frozenset[int]):
        self.module, self.level, self.world, self.donated = module, level, world, donated
        self.exchanges = exchanges_of(module, world)
        self.shapes = [o.shape for o in module.entry.outputs()]
        self._programs: dict[int, tuple[Device, dict]] = {}

    def _load(self) -> None:
        """Loads the segments onto the GPUs, and makes the groups; both are there already in later calls."""
        segments = list(self.level.segments())
        for number, device in self.world.own.items():
            known = self._programs.get(number)
            if known is None or known[0] is not device:
                device.open()
                self._programs[number] = device, {id(part): part.compiled.runner.load(device) for part in segments}
        for exchange in self.exchanges.values():
            exchange.load()

    def __call__(self, shards: Sequence[Sequence], donating: bool = False) -> list[list[DeviceArray]]:
        """shards: for each parameter a NumPy array or data on the GPU for each device of this process. Returns the same
        of the results, which may not be computed yet. Raises CudaError, and ParticipantsError for a deadlock between
        GPUs."""
        with _order:
            self._load()
            donated = self.donated if donating else frozenset()
            members, walks = {}, {}
            for position, (number, (device, programs)) in enumerate(self._programs.items()):
                device.open()
                members[number] = _Member(self, number, device, programs)
                given = [_on(device, parts[position]) for parts in shards]
                if donating:
                    for k in donated:
                        shards[k][position] = None  # type: ignore[index]
                values = members[number].arguments(self.level, given, donated)
                del given
                walks[number] = members[number].results(self.level, values)
            made = self._run(members, walks)
            self._watch()
        return [
            [DeviceArray(members[number].device, made[number][k], shape) for number in members]
            for k, shape in enumerate(self.shapes)
        ]

    def _run(self, members: dict[int, _Member], walks: dict[int, Walking]) -> dict[int, list]:
        """The results of each device."""
        finished: dict[int, list] = {}
        waiting: dict[int, tuple[Exchange, list]] = {}
        ready: dict[int, list | None] = dict.fromkeys(walks)
        while ready:
            for number, result in ready.items():
                members[number].device.open()
                try:
                    waiting[number] = walks[number].send(result)
                except StopIteration as end:
                    finished[number] = end.value
            ready.clear()
            together = [
                number for number, (exchange, _) in waiting.items()
                if all(waiting.get(k, (None,))[0] is exchange for k in exchange.waits_for(number, members))
            ]  # fmt: skip
            if waiting and not together:
                raise self._stuck(waiting)
            for exchange in dict.fromkeys(waiting[number][0] for number in together):
                mine = [number for number in together if waiting[number][0] is exchange]
                ready.update(self._exchange(exchange, mine, members, waiting))
        return finished

    def _exchange(self, exchange: Exchange, numbers: list[int], members, waiting) -> dict[int, list]:
        """The results of a collective on some devices, whose calls are one."""
        given = {number: waiting.pop(number)[1] for number in numbers}
        try:
            if not exchange.calls:
                return {n: exchange.enqueue(n, members[n].device, given[n]) for n in numbers}
            with nccl().group(exchange.asked):
                made = {n: exchange.enqueue(n, members[n].device, given[n]) for n in numbers}
            exchange.settle(numbers)
        except Exception as error:
            if hasattr(error, "locate") and exchange.instruction.source:
                error.locate(str(exchange.instruction.source))
            raise
        return made

    def _stuck(self, waiting: Mapping[int, tuple[Exchange, list]]) -> ParticipantsError:
        found = [
            f"device {number} at {exchange.instruction.opcode} of the devices {list(exchange.group_of[number])}"
            for number, (exchange, _) in waiting.items()
        ]
        return ParticipantsError(
            "collectives complete when all devices of their group have come to them",
            f"{'; '.join(found[:8])}{'; ...' if len(found) > 8 else ''}; all others have finished",
            "let all devices of a group run the same collectives in one order, with arrays of one shape",
            next(iter(waiting.values()))[0].instruction.source or "",
        )

    def _watch(self) -> None:
        crossing = [exchange for exchange in self.exchanges.values() if exchange.crosses()]
        if crossing and processes().count > 1:
            watch(self.world, f"{crossing[0].asked} in '{self.module.name}'", crossing[0].instruction.source)


def _on(device: Device, given):
    """An argument as it is passed to a GPU: data of another GPU are copied to it."""
    return given.to(device) if isinstance(given, DeviceArray) else given


__all__ = ["CudaSpmdExecutable", "CudaTeam", "compile_spmd"]
