"""Blocks of memory shared by native code and Python: the meaning of each 8-byte word.

All are made with `malloc` and freed by native code, except those of a client, its devices and its executables, which
Python makes and keeps.
"""

from __future__ import annotations

from hloom.runtime import driver_source
from hloom.runtime.pjrt import interface

__all__ = ["CONSTANTS", "words"]


def words(prefix: str, names: str) -> dict[str, int]:
    """Numbers for names: {PREFIX_NAME: position}."""
    return {f"{prefix}_{name.upper()}": word for word, name in enumerate(names.split())}


# The text of an error follows its words.
ERROR = words("ERROR", "code size text")

# refs: -1 for an event that is always ready and never freed. callbacks: a list of nodes. error: 0 where all went well.
EVENT = words("EVENT", "refs state error callbacks mutex")
EVENT |= {"EVENT_CONDITION": EVENT["EVENT_MUTEX"] + 16, "EVENT_WORDS": EVENT["EVENT_MUTEX"] + 32}
NODE = words("NODE", "next callback argument words")

# Memory of values, shared by buffers. Its data follow where it owns them (OWNED); otherwise their owner waits for an
# event (LENT) or for a call `first(address, second)` (VIEWED). queued: references of calls that are in the queue.
STORAGE = words("STORAGE", "refs address capacity kind first second client next queued words")
KINDS = {"OWNED": 0, "LENT": 1, "VIEWED": 2}

# storage: 0 once the buffer is deleted. origin: the same, for good. dims and minor_to_major follow.
BUFFER = words(
    "BUFFER",
    "client device memory type ndims bytes storage origin address external lock event deleted call dims",
)

# bins: lists of idle storage by size. python: the address of the Python entry. garbage: executables to be forgotten.
# queues: whether calls may be queued. worker: whether a thread runs them. order: a lock, held while a call enters the
# queue. waiting: calls in the queue, the running one among them.
CLIENT = words(
    "CLIENT",
    "name name_size version version_size devices device_count memories memory_count topology ready python lock idle "
    "limit in_use peak allocations largest garbage type_sizes descriptions platform_bytes platform_bytes_size "
    "nothing queues worker order first last waiting mutex",
)
BINS = 8 * 50
CLIENT |= {"CLIENT_CONDITION": CLIENT["CLIENT_MUTEX"] + 16, "CLIENT_BINS": CLIENT["CLIENT_MUTEX"] + 32}
CLIENT |= {"CLIENT_WORDS": CLIENT["CLIENT_BINS"] + BINS}

DEVICE = words("DEVICE", "client description id memories memory_count memory words")
DESCRIPTION = words("DESCRIPTION", "id kind kind_size text text_size words")
MEMORY = words("MEMORY", "client device id kind kind_size text text_size devices device_count kind_id words")

# nanoseconds: the duration of a call, 0 before the first one. own_frame: that of the queue's thread.
# inputs: bytes of each on a device. outputs: rows of OUT_WORDS. donated: indices of inputs that a call consumes.
# frames: a list.
EXECUTABLE = words(
    "EXECUTABLE",
    "refs client deleted device input_count output_count inputs outputs donated donated_count frames parallel name "
    "name_size types dims dim_sizes kinds kind_sizes fingerprint fingerprint_size devices device_count replicas "
    "partitions number next code_bytes argument_bytes output_bytes alias_bytes temporary_bytes runs_python state "
    "nanoseconds own_frame words",
)
OUT = words("OUT", "type ndims dims bytes donor memory words")
# One running call: the driver's block, a success byte, for each device a byte that Python steps set and a zero, a word
# with the reason why devices that run together ended early (0: a program of one device), and room for the storages of
# inputs and outputs, device by device, as in the driver's slots.
FRAME = words("FRAME", "next block state done stop held begin begin_rest end end_rest words")

# Requests of native code to Python: (request, first, second) -> an error or 0, for a frame the negated error.
REQUESTS = words("ASK", "to_host from_host frame raised start mismatch no_memory worker twice")

# A call in the queue. held: the storages of inputs and outputs, device by device; for each input of each device its
# address and its event, or 0, follow.
JOB = words("JOB", "next executable event held")
QUEUED_NANOSECONDS = 200_000  # a program that takes so long is queued: waking a thread takes 20,000 to 50,000
MOST_WAITING = 32  # calls in the queue; each has memory for its results

EXECUTE = {
    f"EXECUTE_{field.upper()}": interface.HEADER_WORDS + word
    for word, field in enumerate(interface.FIELDS["LoadedExecutable_Execute"])
}

CONSTANTS: dict[str, int] = {
    **driver_source.CONSTANTS, **ERROR, **EVENT, **NODE, **STORAGE, **KINDS, **BUFFER, **CLIENT, **DEVICE,
    **DESCRIPTION, **MEMORY, **EXECUTABLE, **OUT, **FRAME, **JOB,
    "QUEUED_NANOSECONDS": QUEUED_NANOSECONDS, "MOST_WAITING": MOST_WAITING, **REQUESTS, **EXECUTE,
    **{f"LAYOUT_{name.upper()}": word for name, word in interface.LAYOUT_WORDS.items()},
    **{name: value for name, value in vars(interface).items() if name.isupper() and isinstance(value, int)},
}  # fmt: skip
