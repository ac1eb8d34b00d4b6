"""Send/recv channels for executors that are driven from Python: counts and buffers in the host's memory."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable

import numpy as np

from hloom.ir.module import Module
from hloom.ir.types import Shape
from hloom.platforms.backend import ExecutorRequest

SPINS = 1000  # reads of a count after which a waiting executor sleeps between them


class Ended(Exception):
    """Another executor has failed, so that the value that this one waits for does not arrive."""


STRAIGHT, BODY, BRANCH = "straight", "body", "branch"


class HostChannels:
    """The channels of an executor in one call.

    `where` below: STRAIGHT (runs at most once), BODY (of a loop), BRANCH (of a loop's step, or its condition).
    """

    def __init__(self, request: ExecutorRequest, aliases, control: np.ndarray, state: np.ndarray, arguments):
        """aliases: of all executors. control, state: as of `HostExecutor.prepare`. arguments: inputs, outputs and the
        channels' addresses."""
        self.request, self.aliases, self.control, self.state = request, aliases, control, state
        inputs, outputs = len(request.inputs), len(request.results)
        self.inputs, self.outputs = arguments[:inputs], arguments[inputs : inputs + outputs]
        self.addresses = arguments[inputs + outputs :]
        self.count: dict[int, int] = {}  # messages of a channel that is used in a loop's body

    def send(self, channel: int, value, where: str = STRAIGHT) -> None:
        """Copies a value to the buffer of the channel, as soon as that may be written. Raises Ended."""
        self.wait_to_send(channel, where)
        self.memory(channel, self.next_place(channel, where))[...] = value
        self.sent(channel, where)

    def receive(self, channel: int, where: str = STRAIGHT) -> np.ndarray:
        """The value that was sent, in its buffer. Raises Ended."""
        self.wait_to_receive(channel)
        return self.memory(channel, self.next_place(channel, where))

    # --- the same step by step ---

    def next_place(self, channel: int, where: str) -> int:
        """The id of the buffer of the next value of a channel. Called once per value."""
        if where != BODY:
            return 2 * channel
        count = self.count[channel] = self.count.get(channel, -1) + 1
        return 2 * channel + count % 2

    def wait_to_send(self, channel: int, where: str) -> None:
        """Waits until the channel's buffer may be written. Raises Ended."""
        words = self.request.channels[channel].words
        if where != STRAIGHT:
            for freed in words.freed.values():
                self._wait(freed, words.allowance)

    def sent(self, channel: int, where: str) -> None:
        """Notes that the value is in its buffer."""
        words = self.request.channels[channel].words
        self._add(words.sent)
        if where != STRAIGHT:
            self._add(words.allowance)

    def wait_to_receive(self, channel: int) -> None:
        """Waits for the next value of a channel. Raises Ended."""
        words = self.request.channels[channel].words
        wanted = words.wanted[self.request.device]
        self._add(wanted)
        self._wait(words.sent, wanted)

    def free(self, channel: int) -> None:
        """Notes that the value received last may be overwritten."""
        self._add(self.request.channels[channel].words.freed[self.request.device])

    def memory(self, channel: int, place: int) -> np.ndarray:
        """A buffer of a channel in the host's memory."""
        shape: Shape = self.request.channels[channel].shape
        found = self.aliases.get(place)
        while found is not None and found.kind == "channel":
            place = found.number
            found = self.aliases.get(place)
        if found is not None:
            return (self.outputs if found.kind == "output" else self.inputs)[found.number].reshape(shape.dims)
        if not shape.bytes:
            return np.zeros(shape.dims, shape.dtype)
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * shape.bytes).from_address(self.addresses[place]))
        return memory.view(shape.dtype).reshape(shape.dims)

    def _add(self, word: int) -> None:
        self.control[word] += 1  # no other executor writes this word

    def _wait(self, first: int, second: int) -> None:
        turns = 0
        while self.control[first] < self.control[second]:
            if not self.state[0]:
                raise Ended
            turns += 1
            time.sleep(0 if turns < SPINS else 50e-6)


def places_of(channels: Iterable[int]) -> set[int]:
    """The buffers of channels: two each, of which straight code uses the first."""
    return {2 * channel + k for channel in channels for k in (0, 1)}


def held_in_bodies(module: Module) -> dict[int, int]:
    """The channels that a program sends to in loop bodies, where one value may wait to be read while the next is
    written."""
    bodies = [i["body"] for i in module.instructions() if i.opcode == "while"]
    return {i["channel_id"]: 1 for body in bodies for i in body.instructions if i.opcode == "send"}
