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
from hloom.compiler.schedule.steps import FreeStep, Place, ReceiveStep, RenewStep, SendStep
from hloom.platforms.backend import ExecutorRequest, RemoteEnd
from hloom.runtime.multi_device import HostExecutor
from hloom.runtime.steps import Count, Deliver, Ref, Settle


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
                if self.request.channels[item.channel].remote is not None:
                    continue  # not read in this process
                found[2 * item.channel] = self.ref(item.place)
        return found

    def resolve(self, aliases: dict[int, Ref]) -> None:
        """Compiles the kernels. aliases: of all executors."""
        self._aliases, self._used = aliases, set()
        started = time.perf_counter()
        with collecting() as stages:
            program = program_of(self.plan, self)
        sent = [i.channel for i in self.plan.steps if isinstance(i, SendStep) and self._remote(i.channel) is not None]
        if self.request.transport is not None:
            program.transport = self.request.transport
            program.steps.append(Settle(tuple(sent)))
        for name, seconds in self._stages.seconds.items():
            stages.seconds[name] = stages.seconds.get(name, 0.0) + seconds
        self.timings = stage_timings(stages, self._times, time.perf_counter() - started)
        self.kernels_compiled = stages.counts.get("kernels compiled", 0)
        self._executor = HostExecutor(self.name, program, driver(self.request.index), self.request.failed)

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

    def _remote(self, channel: int) -> RemoteEnd | None:
        return self.request.channels[channel].remote

    def _message(
        self, item: SendStep | ReceiveStep | RenewStep | FreeStep, remote: RemoteEnd
    ) -> Count | Deliver | Settle:
        """The step for a channel whose other end is in another process. While a loop's step computes a value in one
        place of its channel, the one before may leave the other place."""
        if isinstance(item, (SendStep, ReceiveStep)):
            size = self.request.channels[item.channel].shape.bytes
            receives = isinstance(item, ReceiveStep)
            return Deliver(receives, item.channel, self.ref(item.place), size, remote.peer, remote.tag)
        return Settle((item.channel,)) if isinstance(item, RenewStep) and not item.held else Count()

    def count(self, item) -> Count | Deliver | Settle:
        words = self.request.channels[item.channel].words
        if (remote := self._remote(item.channel)) is not None:
            return self._message(item, remote)

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
        renewed = [i for i in self.plan.steps if isinstance(i, RenewStep) and self._remote(i.channel) is None]
        return {item.channel: item.held for item in renewed}
