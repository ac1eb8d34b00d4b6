"""Messages between processes as kernels of a program: MPI functions, called by address from the driver's threads.

A batch of messages is a table of words, which native code reads: `hloom_messages_start` posts all sends and receives,
`hloom_messages_poll` checks whether they are complete. The driver calls it until they are, or until the timeout; the
table then tells which message did not arrive. No Python runs in between.

Source: the MPI standard, version 4.1, chapter 3.7 (nonblocking communication).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.ir.records import record
from hloom.runtime.driver_source import BATCH_DONE, BATCH_TURNS, CLOCK, NativeFunction

# Words of a table; the messages follow.
TABLE_COUNT, TABLE_SEND, TABLE_RECEIVE, TABLE_TEST, TABLE_COMMUNICATOR, TABLE_BYTE = 0, 1, 2, 3, 4, 5
TABLE_REQUESTS, TABLE_REQUEST_BYTES, TABLE_STATUS = 6, 7, 8  # addresses of the requests and of an MPI_Status
TABLE_LIMIT = 9  # the address of the nanoseconds to wait
TABLE_FAILED = 10  # 0; 1 + the number of a message that did not come; or minus the code of an MPI error
TABLE_FLAG, TABLE_ZERO = 11, 12  # room for an int, a zero
TABLE_NEXT = 13  # the number of messages that are known to be complete
TABLE_DONE, TABLE_TURNS = BATCH_DONE, BATCH_TURNS
TABLE_BEGAN, TABLE_CLOCK = 16, 17  # the time of the first clock reading, or 0; room for a time: two words
TABLE_WORDS = 20
MESSAGE_RECEIVES, MESSAGE_BYTES, MESSAGE_PEER, MESSAGE_TAG = 0, 1, 2, 3
MESSAGE_WORDS = 4

# Words of an argument block of the kernels: the table, the address of the state byte, and each message's buffer.
WORD_TABLE, WORD_STATE, WORD_BUFFERS = 0, 1, 2

TAGS = 1 << 18  # of the messages of one program
STATUS_BYTES = 64  # at least; MPICH needs 20, Open MPI 24
SPINS, YIELDS = 200, 20_000  # looks without a pause, and those that only offer the core, before it sleeps
READ_CLOCK = 1024  # looks after which it reads the clock
INT = (1 << 32) - 1

_CONSTANTS = {name: value for name, value in globals().items() if name.isupper() and isinstance(value, int)}
_CONSTANTS["CLOCK"] = CLOCK

_START = """
def hloom_messages_start(words, low, high):
    table = load(words, WORD_TABLE)
    store(table, TABLE_NEXT, 0)
    store(table, TABLE_DONE, 0)
    store(table, TABLE_TURNS, 0)
    store(table, TABLE_BEGAN, 0)
    for k in range(load(table, TABLE_COUNT)):
        row = table + 8 * (TABLE_WORDS + MESSAGE_WORDS * k)
        function = load(table, TABLE_SEND)
        if load(row, MESSAGE_RECEIVES) != 0:
            function = load(table, TABLE_RECEIVE)
        error = call_function_of_7(
            function, load(words, WORD_BUFFERS + k), load(row, MESSAGE_BYTES), load(table, TABLE_BYTE),
            load(row, MESSAGE_PEER), load(row, MESSAGE_TAG), load(table, TABLE_COMMUNICATOR),
            load(table, TABLE_REQUESTS) + k * load(table, TABLE_REQUEST_BYTES)
        ) & INT
        if error != 0:
            store(table, TABLE_FAILED, -error)
            copy_bytes(load(words, WORD_STATE), table + 8 * TABLE_ZERO, 1)
            return
"""

# Long waits first yield the core, then sleep; a clock is read from time to time.
_POLL = """
def hloom_messages_poll(words, low, high):
    table = load(words, WORD_TABLE)
    state = load(words, WORD_STATE)
    k = load(table, TABLE_NEXT)
    count = load(table, TABLE_COUNT)
    while k < count:
        store(table, TABLE_FLAG, 0)
        request = load(table, TABLE_REQUESTS) + k * load(table, TABLE_REQUEST_BYTES)
        flag = table + 8 * TABLE_FLAG
        error = call_function(load(table, TABLE_TEST), request, flag, load(table, TABLE_STATUS)) & INT
        if error != 0:
            store(table, TABLE_FAILED, -error)
            copy_bytes(state, table + 8 * TABLE_ZERO, 1)
            return
        if load(table, TABLE_FLAG) & INT == 0:
            break
        k += 1
    store(table, TABLE_NEXT, k)
    if k == count:
        store(table, TABLE_DONE, 1)
        return
    turns = load(table, TABLE_TURNS) + 1
    store(table, TABLE_TURNS, turns)
    if turns <= SPINS:
        pause()
    elif turns <= YIELDS:
        sched_yield()
    else:
        usleep(50)
    if turns % READ_CLOCK == 0:
        clock = table + 8 * TABLE_CLOCK
        clock_gettime(CLOCK, clock)
        now = load(clock, 0) * 1000000000 + load(clock, 1)
        if load(table, TABLE_BEGAN) == 0:
            store(table, TABLE_BEGAN, now)
        elif now - load(table, TABLE_BEGAN) > load(load(table, TABLE_LIMIT), 0):
            store(table, TABLE_FAILED, k + 1)
            copy_bytes(state, table + 8 * TABLE_ZERO, 1)
"""

_THREE = ("s64",) * 3
FUNCTIONS = (
    NativeFunction("hloom_messages_start", _START, _THREE, exported=True, constants=_CONSTANTS),
    NativeFunction(
        "hloom_messages_poll", _POLL, _THREE, exported=True, constants=_CONSTANTS,
        calls={"sched_yield": ((), "s32"), "usleep": (("s64",), "s32"), "clock_gettime": (("s64", "s64"), "s32")},
    ),
)  # fmt: skip


class Limit:
    """The seconds that native code waits for messages, as of now: it may be set while they are waited for. address: of
    its nanoseconds."""

    __slots__ = ("_nanoseconds", "address")

    def __init__(self, seconds: float):
        self._nanoseconds = np.zeros(1, np.int64)
        self.address = self._nanoseconds.ctypes.data
        self.set(seconds)

    def set(self, seconds: float) -> None:
        self._nanoseconds[0] = int(seconds * 1e9)


@record(frozen=True)
class Transport:
    """MPI as native code needs it: addresses of functions, handles as words, the bytes of a request, and the null
    request. limit: how long to wait for a message; read repeatedly while waiting. start, poll: addresses of the
    kernels."""

    send: int
    receive: int
    test: int
    communicator: int
    byte: int
    request_bytes: int
    no_request: bytes
    limit: Limit
    start: int
    poll: int


@record(frozen=True)
class Message:
    """Bytes from or to another process. peer: its rank. tag: matches a send with its receive."""

    receives: bool
    bytes: int
    peer: int
    tag: int


@record(frozen=True)
class Others:
    """The transport to devices of other processes. processes: the process of each device. base: the first tag of the
    program's messages."""

    transport: Transport
    processes: Sequence[int]
    base: int = 0

    def message(self, receives: bool, size: int, number: int, device: int, peer: int) -> Message:
        """The message of a step between two devices; both ends have one tag."""
        source, target = (self._place(d) for d in ((peer, device) if receives else (device, peer)))
        count = max(self.processes.count(p) for p in set(self.processes))
        # Steps that share a tag are far apart, and belong to the same two devices, whose messages stay in order.
        tag = (number % (TAGS // count**2) * count + source) * count + target
        return Message(receives, size, self.processes[peer], self.base + tag)

    def _place(self, device: int) -> int:
        """The number of a device among those of its process."""
        return self.processes[:device].count(self.processes[device])


class Batch:
    """Messages that are started together, and the memory of one use of them at a time.

    address: of the table, the first word of the kernels' arguments; then come the address of a state byte, which is
    set to 0 where a message fails, and those of the buffers.
    """

    __slots__ = ("_limit", "_requests", "_status", "_table", "address", "messages")

    def __init__(self, transport: Transport, messages: Sequence[Message]):
        self.messages = list(messages)
        self._requests = np.frombuffer(transport.no_request * len(self.messages) + bytes(8), np.uint8).copy()
        self._status = np.zeros(STATUS_BYTES, np.uint8)
        self._table = table = np.zeros(TABLE_WORDS + MESSAGE_WORDS * len(self.messages), np.int64)
        table[TABLE_COUNT] = len(self.messages)
        table[TABLE_SEND], table[TABLE_RECEIVE], table[TABLE_TEST] = transport.send, transport.receive, transport.test
        table[TABLE_COMMUNICATOR], table[TABLE_BYTE] = transport.communicator, transport.byte
        table[TABLE_REQUESTS], table[TABLE_REQUEST_BYTES] = self._requests.ctypes.data, transport.request_bytes
        table[TABLE_STATUS], table[TABLE_LIMIT] = self._status.ctypes.data, transport.limit.address
        self._limit = transport.limit  # whose memory the table refers to
        for k, message in enumerate(self.messages):
            row = TABLE_WORDS + MESSAGE_WORDS * k
            table[row : row + MESSAGE_WORDS] = message.receives, message.bytes, message.peer, message.tag
        self.address = table.ctypes.data

    def failure(self) -> Message | int | None:
        """The message that timed out, the code of an MPI error, or None."""
        failed = int(self._table[TABLE_FAILED])
        if failed > 0:
            return self.messages[failed - 1]
        return -failed or None


__all__ = ["FUNCTIONS", "TAGS", "Batch", "Limit", "Message", "Others", "Transport"]
