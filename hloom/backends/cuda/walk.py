"""A GPU's way through the parts of a program (`segments.py`), which the host drives.

Walks are generators: a part that has to wait for other devices yields a request, and is resumed with its result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from hloom.backends.cuda.compilation import compile_for_cuda
from hloom.backends.host_channels import BODY, BRANCH, STRAIGHT
from hloom.backends.segments import Choice, Count, Level, Loop, Segment, Transfer, counted
from hloom.ir.module import Instruction
from hloom.runtime.buffer import references
from hloom.runtime.cuda.array import DeviceArray

Walking = Generator[Any, Any, Any]


class Walk(ABC):
    """One call of a program on one GPU.

    A value is the buffer of its key. Dying values are removed from the `values` of their level first, so that nothing
    else refers to a buffer that a segment may overwrite. device: of the runtime. programs: the loaded segments by their
    ids.
    """

    def __init__(self, device, programs: Mapping[int, Any]):
        self.device, self.programs = device, programs

    def arguments(self, level: Level, inputs: Sequence, donated: Set[int]) -> dict:
        """The arguments that a program uses, on the GPU. donated: those whose memory it may overwrite."""
        values: dict = {}
        waiting: list[Instruction] = []
        used = {key for part in level.parts for key in part.given} | set(level.results)
        for parameter in level.parameters:
            assert isinstance(parameter, Instruction)  # those of a program are arrays
            given = inputs[parameter["index"]]
            if parameter not in used:
                continue
            if isinstance(given, DeviceArray):
                values[parameter] = given.donate_buffer() if parameter["index"] in donated else given.buffer
            else:
                waiting.append(parameter)
        labels = [p.hint or "an argument" for p in waiting]
        return values | dict(
            zip(waiting, self.device.put_all([inputs[p["index"]] for p in waiting], labels), strict=True)
        )

    @abstractmethod
    def transfer(self, part: Transfer, values: dict, where: str) -> Walking:
        """Runs an operation between segments: reads its operands from `values`, and adds its results. where: as for
        HostChannels."""

    def results(self, level: Level, values: dict) -> Walking:
        """The results of a program, each in separate memory."""
        made = yield from self.level(level, values, STRAIGHT)
        values.clear()
        for position in range(len(made)):
            if references(made, position) > 1:  # an argument as it is, or one result twice
                made[position] = self.device.copy(made[position])
        return made

    def level(self, level: Level, values: dict, where: str) -> Walking:
        """The results of a computation. values: its parameters' buffers."""
        for part in level.parts:
            if isinstance(part, Segment):
                self._segment(part, values)
            elif isinstance(part, Loop):
                yield from self._loop(part, values)
            elif isinstance(part, Choice):
                yield from self._choice(part, values, where)
            else:
                yield from self.transfer(part, values, where)
        return [values[key] for key in level.results]

    def _segment(self, part: Segment, values: dict) -> None:
        given = [values[key] for key in part.given]
        for position in part.dying:
            del values[part.given[position]]
        for position in part.compiled.donated.values():
            if references(given, position) > 1 or not given[position].owned:
                given[position] = self.device.copy(given[position])
        values.update(zip(part.made, self.programs[id(part)](given), strict=True))

    def _loop(self, part: Loop, values: dict) -> Walking:
        condition = part.condition
        if isinstance(condition, Count):
            steps = counted(condition, [self._first(part.given[k], values) for k in condition.numbers])
        state = self.taken(part, values)
        while next(steps) if isinstance(condition, Count) else (yield from self._holds(condition, state)):
            inner = dict(zip(part.body.parameters, state, strict=True))
            state.clear()
            state = yield from self.level(part.body, inner, BODY)
            inner.clear()
        values.update(((part.instruction, k), buffer) for k, buffer in enumerate(state))

    def _holds(self, condition: Level, state: list) -> Walking:
        (pred,) = yield from self.level(condition, dict(zip(condition.parameters, state, strict=True)), BRANCH)
        return bool(self.on_host(pred, np.empty((), np.bool_)))

    def _first(self, key, values: dict) -> np.ndarray:
        """The initial value of an integer of a loop's state, on the host."""
        if isinstance(key, Instruction) and key.opcode == "constant":
            return key["value"]
        shape = key[0].shape.elements[key[1]] if isinstance(key, tuple) else key.shape
        return self.on_host(values[key], np.empty((), shape.dtype))

    def _choice(self, part: Choice, values: dict, where: str) -> Walking:
        selector, *given = self.taken(part, values)
        number = self._chosen(selector, part)
        branch = part.branches[number]
        before = sum(len(other.parameters) for other in part.branches[:number])
        inner = dict(zip(branch.parameters, given[before:], strict=False))
        made = yield from self.level(branch, inner, STRAIGHT if where == STRAIGHT else BRANCH)
        values.update(((part.instruction, k), buffer) for k, buffer in enumerate(made))

    def _chosen(self, selector, part: Choice) -> int:
        """The index of the branch that a selector names."""
        last = len(part.branches) - 1
        if not last:
            return 0
        chosen = self.on_host(selector, np.empty((), part.instruction.operands[0].shape.dtype))
        if chosen.dtype == np.bool_:
            return 0 if chosen else 1
        return int(chosen) if 0 <= chosen <= last else last

    def taken(self, part: Loop | Choice | Transfer, values: dict) -> list:
        taken = [values[key] for key in part.given]
        for key in part.last:
            del values[key]
        return taken

    def on_host(self, buffer, array: np.ndarray) -> np.ndarray:
        return self.device.get(buffer, array).result()


def compile_segments(segments: list[Segment], arch: str, fusion: bool | None) -> tuple[int, list[dict[str, float]]]:
    """Compiles segments. Returns how many kernels were new, and the seconds of each by stage."""
    count, timings = 0, []
    for part in segments:
        part.compiled = compile_for_cuda(part.module, arch, fusion=fusion, donated=part.dying)
        count += part.compiled.kernels_compiled
        timings.append(part.compiled.timings)
    return count, timings


def finished(walking: Walking) -> Any:
    """The result of a walk that never waits."""
    try:
        next(walking)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a part of a program waits for other devices, where nobody drives them")


def follow_memory(level: Level, origin: dict) -> None:
    """Adds the values of a level that reuse the memory of others. origin: whose memory a value has."""
    for part in level.parts:
        if isinstance(part, Segment):
            for number, argument in part.compiled.donated.items():
                if part.given[argument] in origin:
                    origin[part.made[number]] = origin[part.given[argument]]
        elif isinstance(part, Loop):
            inner = {key: k for k, key in enumerate(part.body.parameters)}
            follow_memory(part.body, inner)
            for k, (given, result) in enumerate(zip(part.given, part.body.results, strict=True)):
                if inner.get(result) == k and given in part.last and given in origin:
                    origin[part.instruction, k] = origin[given]
