"""A CPU device's part of a program on several devices: its plan, with kernels as steps between sends and receives."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from hloom.backends.compile import Planned, optimized_plan, stage_timings
from hloom.backends.cpu.driver import driver
from hloom.backends.cpu.memory_limit import check_memory
from hloom.backends.cpu.program import Layout, program_of
from hloom.compiler.compile_timings import collecting
from hloom.compiler.schedule.steps import Place, ReceiveStep, RenewStep, SendStep
from hloom.platforms.backend import ExecutorRequest
from hloom.runtime.multi_device import HostExecutor
from hloom.runtime.program import Count, Ref


class CpuExecutor(Layout, Planned):
    """A part of a program, with its values numbered as in the whole."""

    kept: frozenset[int] | None = None

    def __init__(self, request: ExecutorRequest):
        self.request, self.name = request, request.device
        self.whole = request.inputs, request.results
        self.channels = 2 * len(request.channels)
        with collecting() as self._stages:
            self.module, self.plan, self._times = optimized_plan(
                request.module, fusion=request.fusion, donated=request.donated
            )
        check_memory(self.plan, request.device)
        self.donated = {request.outputs[k]: given for k, given in self.plan.donated.items()}
        self._aliases: dict[int, Ref] = {}
        self._used: set[int] = set()

    def aliases(self) -> dict[int, Ref]:
        """Buffers of channels whose values are elsewhere already: in an output, or in the buffer of another channel."""
        found = {}
        for item in self.plan.steps:
            if isinstance(item, SendStep) and item.once and item.place != Place("channel", 2 * item.channel):
                found[2 * item.channel] = self.ref(item.place)
        return found

    def resolve(self, aliases: dict[int, Ref]) -> None:
        """Compiles the kernels. aliases: of all executors."""
        self._aliases, self._used = aliases, set()
        started = time.perf_counter()
        with collecting() as stages:
            program = program_of(self.plan, self)
        for name, seconds in self._stages.seconds.items():
            stages.seconds[name] = stages.seconds.get(name, 0.0) + seconds
        self.timings = stage_timings(stages, self._times, time.perf_counter() - started)
        self.kernels_compiled = stages.counts.get("kernels compiled", 0)
        self._executor = HostExecutor(self.name, program, driver(self.request.index))

    def places(self) -> set[int]:
        """The buffers of channels that it reads or writes."""
        return self._used

    def prepare(self, control: np.ndarray, state: np.ndarray, handed: dict) -> Callable:
        """As `HostExecutor.prepare`."""
        return self._executor.prepare(control, state, handed)

    # --- references and counts ---

    def ref(self, place: Place) -> Ref:
        if place.kind == "output":
            return Ref("output", self.request.outputs[place.number], place.swap)
        if place.kind == "channel":
            number, seen = place.number, set()
            while number in self._aliases and number not in seen:
                seen.add(number)
                found = self._aliases[number]
                if found.kind != "channel":
                    return found
                number = found.number
            self._used.add(number)
            return Ref("channel", number, place.swap)
        return Ref(place.kind, place.number, place.swap)

    def count(self, item) -> Count:
        words = self.request.channels[item.channel].words

        def word(number: int) -> Ref:
            return Ref("control", number)

        if isinstance(item, SendStep):
            return Count((word(words.sent),) if item.once else (word(words.sent), word(words.allowance)))
        if isinstance(item, ReceiveStep):
            wanted = word(words.wanted[self.name])
            return Count((wanted,), ((word(words.sent), wanted),))
        if isinstance(item, RenewStep):
            return Count((), tuple((word(freed), word(words.allowance)) for freed in words.freed.values()))
        return Count((word(words.freed[self.name]),))

    def held(self) -> dict[int, int]:
        """As of `DeviceExecutor`."""
        return {item.channel: item.held for item in self.plan.steps if isinstance(item, RenewStep)}
