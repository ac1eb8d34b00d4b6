"""The ends of channels for lanes that are driven from Python: counts and places in the host's memory."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable

import numpy as np

from hloom.ir.module import Module
from hloom.ir.types import Shape
from hloom.platforms.backend import ExecutorRequest

LONG = 1000  # looks at a count after which a waiting lane sleeps between them


class Ended(Exception):
    """Another lane has failed, so that what this one waits for does not come."""


STRAIGHT, BODY, BRANCH = "straight", "body", "branch"


class HostChannels:
    """The channels of a lane in one call. `where` below: STRAIGHT (runs at most once), BODY (of a loop), BRANCH (of a
    loop's step, or its condition)."""

    def __init__(self, request: ExecutorRequest, aliases, control: np.ndarray, state: np.ndarray, arguments):
        """aliases, control, state: as lanes get them. arguments: inputs, outputs and the channels' addresses."""
        self.request, self.aliases, self.control, self.state = request, aliases, control, state
        inputs, outputs = len(request.inputs), len(request.results)
        self.inputs, self.outputs = arguments[:inputs], arguments[inputs : inputs + outputs]
        self.addresses = arguments[inputs + outputs :]
        self.count: dict[int, int] = {}  # messages of a channel that is used in a loop's body

    def send(self, channel: int, value, where: str = STRAIGHT) -> None:
        """Copies a value to the place of the channel, as soon as that may be written. Raises Ended."""
        self.wait_to_send(channel, where)
        self.memory(channel, self.next_place(channel, where))[...] = value
        self.sent(channel, where)

    def receive(self, channel: int, where: str = STRAIGHT) -> np.ndarray:
        """The value that was sent, in its place. Raises Ended."""
        self.wait_to_receive(channel)
        return self.memory(channel, self.next_place(channel, where))

    # --- the same step by step ---

    def next_place(self, channel: int, where: str) -> int:
        """The number of the place of the next value of a channel; asked for once for each."""
        if where != BODY:
            return 2 * channel
        count = self.count[channel] = self.count.get(channel, -1) + 1
        return 2 * channel + count % 2

    def wait_to_send(self, channel: int, where: str) -> None:
        """Until the channel's place may be written. Raises Ended."""
        words = self.request.channels[channel].words
        if where != STRAIGHT:
            for freed in words.freed.values():
                self._wait(freed, words.allowance)

    def sent(self, channel: int, where: str) -> None:
        """The value is in its place."""
        words = self.request.channels[channel].words
        self._add(words.sent)
        if where != STRAIGHT:
            self._add(words.allowance)

    def wait_to_receive(self, channel: int) -> None:
        """Until the next value of a channel is there. Raises Ended."""
        words = self.request.channels[channel].words
        wanted = words.wanted[self.request.device]
        self._add(wanted)
        self._wait(words.sent, wanted)

    def free(self, channel: int) -> None:
        """What was received last may be overwritten."""
        self._add(self.request.channels[channel].words.freed[self.request.device])

    def memory(self, channel: int, place: int) -> np.ndarray:
        """A place of a channel in the host's memory."""
        shape: Shape = self.request.channels[channel].shape
        found = self.aliases.get(place)
        while found is not None and found.kind == "channel":
            place = found.number
            found = self.aliases.get(place)
        if found is not None:
            return (self.outputs if found.kind == "output" else self.inputs)[found.number].reshape(shape.dims)
        if not shape.bytes:
            return np.zeros(shape.dims, shape.dtype)
        memory = np.frombuffer((ctypes.c_uint8 * shape.bytes).from_address(self.addresses[place]), np.uint8)
        return memory.view(shape.dtype).reshape(shape.dims)

    def _add(self, word: int) -> None:
        self.control[word] += 1  # no other lane writes this word

    def _wait(self, first: int, second: int) -> None:
        turns = 0
        while self.control[first] < self.control[second]:
            if not self.state[0]:
                raise Ended
            turns += 1
            time.sleep(0 if turns < LONG else 50e-6)


def places_of(channels: Iterable[int]) -> set[int]:
    """The places of channels: two each, of which straight code uses the first."""
    return {2 * channel + k for channel in channels for k in (0, 1)}


def held_in_bodies(module: Module) -> dict[int, int]:
    """The channels that a program sends to in the bodies of loops, where a value may wait to be read while the next is
    written."""
    bodies = [i["body"] for i in module.instructions() if i.opcode == "while"]
    return {i["channel_id"]: 1 for body in bodies for i in body.instructions if i.opcode == "send"}
