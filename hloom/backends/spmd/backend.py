"""Programs that several devices run together: one plan, compiled once, that each device runs on its shards."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hloom.backends.compile import observer_of, optimized_plan, stage_timings
from hloom.backends.processes import others_of, placement_of
from hloom.backends.spmd.open_sizes import OpenSpmdExecutable
from hloom.backends.spmd.program import SpmdExecutable, program_of_each, runner_of, shardings_of
from hloom.compiler.communication import bytes_sent, table
from hloom.compiler.compile_timings import collecting
from hloom.compiler.passes.registry import Team
from hloom.compiler.passes.spmd.meshes import mesh_of
from hloom.config import config
from hloom.errors import DeviceError
from hloom.ir.module import Module
from hloom.platforms.backend import Backend, CompileOptions, DeviceBackend, Executable
from hloom.platforms.kinds import DeviceKind, device_kind
from hloom.platforms.names import parse_device_name


class SpmdBackend(Backend):
    """Compiles modules of several replicas or partitions for as many devices of one kind: the CPU's here, others by
    the backend of their kind."""

    def compile(self, module: Module, options: CompileOptions) -> Any:
        """Raises DeviceError."""
        devices = devices_of(module, options)
        kind = _kind_of(module, devices)
        started = time.perf_counter()
        given, where = mesh_of(module), placement_of(devices)
        several = kind.name == "cpu" and where.is_spread
        team, observer = Team(devices, where.processes if several else (), given), observer_of(module)
        divided = program_of_each(module, team, by_hand=options.partitioned, observer=observer)
        seconds = time.perf_counter() - started
        inputs, outputs = shardings_of(divided, given)
        if kind.name != "cpu":
            assert isinstance(kind.backend, DeviceBackend)  # `_kind_of` has looked
            return kind.backend.compile_spmd(
                divided, options, mesh=given, inputs=inputs, outputs=outputs, seconds=seconds
            )
        with collecting() as stages:
            others = others_of(where, divided)
            optimized, plan, times = optimized_plan(
                divided,
                fusion=options.fusion,
                donated=options.donated,
                processes=team.processes,
                observer=observer,
            )
            made = time.perf_counter()
            runner = runner_of(plan, divided.partitions, where, others)
        timings = {"partition": seconds} | stage_timings(stages, times, time.perf_counter() - made)
        compiled = stages.counts.get("kernels compiled", 0)
        executable = SpmdExecutable(optimized, plan, runner, devices, given, inputs, outputs, timings, compiled)
        if config.debug >= 1:
            _report(executable)
        return executable

    def compile_open(self, module: Module, options: CompileOptions) -> Executable:
        """Raises UnsupportedError for devices other than this process's CPU devices."""
        devices = devices_of(module, options)
        if _kind_of(module, devices).name != "cpu" or placement_of(devices).is_spread:
            return super().compile_open(module, options)
        return OpenSpmdExecutable(module, options, devices)


def devices_of(module: Module, options: CompileOptions) -> tuple[str, ...]:
    """The devices that run a module, by number."""
    return options.devices or tuple(f"cpu:{k}" for k in range(module.replicas * module.partitions))


def _report(executable: SpmdExecutable) -> None:
    uses = executable.collectives()
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(use.kind for use in uses).items()))
    print(
        f"hloom: compiled {executable.module.name} for {len(executable.devices)} devices: "
        f"{len(executable.plan.kernels())} kernels, {executable.kernels_compiled} of them new; each device sends "
        f"{bytes_sent(uses):,.0f} bytes{f' ({kinds})' if kinds else ''}",
        file=sys.stderr,
    )
    if config.debug >= 2 and uses:
        print(table(uses), file=sys.stderr)


def _kind_of(module: Module, devices: Sequence[str]) -> DeviceKind:
    """The kind of the devices. Raises DeviceError where they are not as many as the module wants, of one kind."""
    count = module.replicas * module.partitions
    kinds = {parse_device_name(device).kind for device in devices}
    kind = device_kind(next(iter(kinds))) if len(kinds) == 1 else None
    usable = kind is not None and (kind.name == "cpu" or isinstance(kind.backend, DeviceBackend))
    if kind is None or not usable or len(devices) != count or len(set(devices)) != count:
        raise DeviceError(
            f"'{module.name}' on {count} devices ({module.replicas} replicas of {module.partitions} partitions)",
            f"the devices {', '.join(devices)}",
            f"name {count} different devices of one kind, CPU devices or GPUs",
        )
    return kind
