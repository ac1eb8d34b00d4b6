"""The ends of channels for lanes that are driven from Python: counts and places in the host's memory."""

from __future__ import annotations

import ctypes
import time

import numpy as np

from hloom.device_kinds import LaneRequest
from hloom.ir.types import Shape

LONG = 1000  # looks at a count after which a waiting lane sleeps between them


class Ended(Exception):
    """Another lane has failed, so that what this one waits for does not come."""


class HostChannels:
    """The channels of a lane in one call. `where` below: 'straight' (runs at most once), 'body' (of a loop), 'branch'
    (of a loop's step, or its condition)."""

    def __init__(self, request: LaneRequest, aliases, control: np.ndarray, state: np.ndarray, arguments):
        """aliases, control, state: as lanes get them. arguments: inputs, outputs and the channels' addresses."""
        self.request, self.aliases, self.control, self.state = request, aliases, control, state
        inputs, outputs = len(request.inputs), len(request.results)
        self.inputs, self.outputs = arguments[:inputs], arguments[inputs : inputs + outputs]
        self.addresses = arguments[inputs + outputs :]
        self.count: dict[int, int] = {}  # messages of a channel that is used in a loop's body

    def send(self, channel: int, value, where: str = "straight") -> tuple:
        """Copies a value to the place of the channel, as soon as that may be written."""
        place = self.to_send(channel, where)
        place[...] = value
        self.sent(channel, where)
        return ()

    def to_send(self, channel: int, where: str = "straight") -> np.ndarray:
        """The place of a channel, when it may be written. Raises Ended."""
        words = self.request.channels[channel].words
        if where != "straight":
            for freed in words.freed.values():
                self._wait(freed, words.allowance)
        return self._place(channel, where)

    def sent(self, channel: int, where: str = "straight") -> None:
        """The value is in its place."""
        words = self.request.channels[channel].words
        self._add(words.sent)
        if where != "straight":
            self._add(words.allowance)

    def receive(self, channel: int, where: str = "straight") -> np.ndarray:
        """The value that was sent, in its place. Raises Ended."""
        words = self.request.channels[channel].words
        wanted = words.wanted[self.request.device]
        self._add(wanted)
        self._wait(words.sent, wanted)
        return self._place(channel, where)

    def free(self, channel: int) -> None:
        """What was received last may be overwritten."""
        self._add(self.request.channels[channel].words.freed[self.request.device])

    def _add(self, word: int) -> None:
        self.control[word] += 1  # no other lane writes this word

    def _wait(self, first: int, second: int) -> None:
        turns = 0
        while self.control[first] < self.control[second]:
            if not self.state[0]:
                raise Ended
            turns += 1
            time.sleep(0 if turns < LONG else 50e-6)

    def _place(self, channel: int, where: str) -> np.ndarray:
        shape: Shape = self.request.channels[channel].shape
        number = 2 * channel
        if where == "body":
            number += self.count.get(channel, 0) % 2
            self.count[channel] = self.count.get(channel, 0) + 1
        found = self.aliases.get(number)
        while found is not None and found.kind == "channel":
            number = found.number
            found = self.aliases.get(number)
        if found is not None:
            return (self.outputs if found.kind == "output" else self.inputs)[found.number].reshape(shape.dims)
        if not shape.bytes:
            return np.zeros(shape.dims, shape.dtype)
        memory = np.frombuffer((ctypes.c_uint8 * shape.bytes).from_address(self.addresses[number]), np.uint8)
        return memory.view(shape.dtype).reshape(shape.dims)
