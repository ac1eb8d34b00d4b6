"""What the fake driver is made of: names and numbers of the real one, memory, and streams that know what happens before
what.

Work is not done when it is enqueued but as late as the driver may: when something waits for it. So pinned memory that
is written again too early, or read too early, gives wrong results. Whether two accesses of one memory are ordered is
told from vector clocks, whatever the order in which they happen to run.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np


class Violation(AssertionError):
    """The runtime did what the real driver does not forgive."""


@dataclass(frozen=True)
class FakeKernel:
    """run(fake, *arguments) computes; accesses(*arguments) says what it touches.

    parameters: 'p' for an address, 'i' for an integer. with_grid: run(fake, blocks, *arguments).
    """

    name: str
    parameters: str
    run: Callable
    accesses: Callable
    registers: int = 32
    with_grid: bool = False

    def work(self, fake, grid: tuple[int, int, int], values: tuple) -> Callable:
        """What a launch does."""
        blocks = (grid[0] * grid[1] * grid[2],) if self.with_grid else ()
        return lambda: self.run(fake, *blocks, *values)


def call(outputs: int = 0):
    """A function of the driver: recorded, made to fail on request, its violations noted."""

    def wrap(function):
        @functools.wraps(function)
        def entry(self, *arguments):
            with self.mutex:
                return self.enter(function, outputs, arguments)

        entry.outputs = outputs
        return entry

    return wrap


class Refused(Exception):
    """A call fails with a code."""

    def __init__(self, code: int):
        self.code = code


class Fault(Exception):
    """A kernel fails on the device. code: what the driver says from then on."""

    def __init__(self, code: int = 700):
        self.code = code


CUresult = IntEnum("CUresult", {
    "CUDA_SUCCESS": 0, "CUDA_ERROR_INVALID_VALUE": 1, "CUDA_ERROR_OUT_OF_MEMORY": 2, "CUDA_ERROR_NOT_INITIALIZED": 3,
    "CUDA_ERROR_DEINITIALIZED": 4, "CUDA_ERROR_NO_DEVICE": 100, "CUDA_ERROR_INVALID_DEVICE": 101,
    "CUDA_ERROR_INVALID_IMAGE": 200, "CUDA_ERROR_INVALID_CONTEXT": 201, "CUDA_ERROR_NO_BINARY_FOR_GPU": 209,
    "CUDA_ERROR_INVALID_HANDLE": 400, "CUDA_ERROR_NOT_FOUND": 500, "CUDA_ERROR_NOT_READY": 600,
    "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED": 217, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED": 704,
    "CUDA_ERROR_TOO_MANY_PEERS": 711, "CUDA_ERROR_ILLEGAL_ADDRESS": 700, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": 701,
    "CUDA_ERROR_LAUNCH_FAILED": 719,
    "CUDA_ERROR_NOT_SUPPORTED": 801, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": 803,
    "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE": 910, "CUDA_ERROR_UNKNOWN": 999,
})  # fmt: skip
CUdevice_attribute = IntEnum("CUdevice_attribute", {
    "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": 16, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 75,
    "CU_DEVICE_ATTRIBUTE_PCI_BUS_ID": 33, "CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID": 34,
    "CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID": 50,
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": 76, "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 97,
})  # fmt: skip
CUfunction_attribute = IntEnum("CUfunction_attribute", {
    "CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK": 0, "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES": 1,
    "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES": 3, "CU_FUNC_ATTRIBUTE_NUM_REGS": 4,
    "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": 8,
})  # fmt: skip
CUmemPool_attribute = IntEnum("CUmemPool_attribute", {
    "CU_MEMPOOL_ATTR_RELEASE_THRESHOLD": 4, "CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT": 5,
    "CU_MEMPOOL_ATTR_USED_MEM_CURRENT": 7,
})  # fmt: skip
CUstream_flags = IntEnum("CUstream_flags", {"CU_STREAM_DEFAULT": 0, "CU_STREAM_NON_BLOCKING": 1})
CUevent_flags = IntEnum("CUevent_flags", {"CU_EVENT_DEFAULT": 0, "CU_EVENT_DISABLE_TIMING": 2})
CUstreamCaptureMode = IntEnum("CUstreamCaptureMode", {"CU_STREAM_CAPTURE_MODE_THREAD_LOCAL": 1})
CUmemAllocationType = IntEnum("CUmemAllocationType", {"CU_MEM_ALLOCATION_TYPE_PINNED": 1})
CUmemAllocationHandleType = IntEnum("CUmemAllocationHandleType", {"CU_MEM_HANDLE_TYPE_NONE": 0})
CUmemLocationType = IntEnum("CUmemLocationType", {"CU_MEM_LOCATION_TYPE_DEVICE": 1})
CUmemAccess_flags = IntEnum("CUmemAccess_flags", {"CU_MEM_ACCESS_FLAGS_PROT_READWRITE": 3})
CUmemorytype = IntEnum("CUmemorytype", {"CU_MEMORYTYPE_HOST": 1, "CU_MEMORYTYPE_DEVICE": 2})
CUgraphNodeType = IntEnum("CUgraphNodeType", {"CU_GRAPH_NODE_TYPE_CONDITIONAL": 13})
CUgraphConditionalNodeType = IntEnum("CUgraphConditionalNodeType", {
    "CU_GRAPH_COND_TYPE_IF": 0, "CU_GRAPH_COND_TYPE_WHILE": 1, "CU_GRAPH_COND_TYPE_SWITCH": 2,
})  # fmt: skip
ENUMS = (
    CUresult, CUdevice_attribute, CUfunction_attribute, CUmemPool_attribute, CUstream_flags, CUevent_flags,
    CUstreamCaptureMode, CUmemAllocationType, CUmemAllocationHandleType, CUmemLocationType,
    CUmemAccess_flags, CUmemorytype,
    CUgraphNodeType, CUgraphConditionalNodeType,
)  # fmt: skip


class Handle(int):
    """A number of the driver's for a thing of its own."""


class CUstream(Handle):
    pass


class CUevent(Handle):
    pass


class CUgraph(Handle):
    pass


class CUgraphExec(Handle):
    pass


class CUgraphNode(Handle):
    pass


class CUmodule(Handle):
    pass


class CUfunction(Handle):
    pass


class CUmemoryPool(Handle):
    pass


class CUcontext(Handle):
    pass


class CUdeviceptr(Handle):
    pass


class cuuint64_t(Handle):
    pass


def record(name: str, *fields: str):
    """A class with these fields only, 0 at first: a misspelt one raises."""

    def __init__(self):
        for field_name in fields:
            setattr(self, field_name, 0)

    return type(name, (), {"__slots__": fields, "__init__": __init__})


CUDA_KERNEL_NODE_PARAMS = record(
    "CUDA_KERNEL_NODE_PARAMS", "func", "gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ",
    "sharedMemBytes", "kernelParams",
)  # fmt: skip
CUDA_MEMCPY3D = record(
    "CUDA_MEMCPY3D", "srcMemoryType", "srcDevice", "dstMemoryType", "dstDevice", "WidthInBytes", "Height", "Depth"
)
CUDA_MEMSET_NODE_PARAMS = record("CUDA_MEMSET_NODE_PARAMS", "dst", "value", "elementSize", "width", "height")
CUmemLocation = record("CUmemLocation", "type", "id")
_Conditional = record("CUDA_CONDITIONAL_NODE_PARAMS", "handle", "type", "size", "ctx", "phGraph_out")
RECORDS = (CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUmemLocation, _Conditional)


class CUmemAccessDesc:
    def __init__(self):
        self.location, self.flags = CUmemLocation(), 0


class CUmemPoolProps:
    def __init__(self):
        self.allocType = self.handleTypes = 0
        self.location = CUmemLocation()


class CUgraphNodeParams:
    def __init__(self):
        self.type = 0
        self.conditional = _Conditional()


# --- memory ---

DEVICE_MEMORY = 0x7000_0000_0000  # addresses that the host cannot follow, so that it does not by mistake


@dataclass(eq=False)
class Block:
    """An allocation. pool: its handle, of memory that is in one. accesses: (first byte, end, whether written, stream,
    its clock) as far as they still matter."""

    address: int
    nbytes: int
    kind: str  # 'device' or 'pinned'
    memory: np.ndarray
    gpu: int = 0
    pool: int | None = None
    freed: bool = False
    accesses: list = field(default_factory=list)


@dataclass(frozen=True)
class Access:
    """Of `nbytes` bytes from an address."""

    address: int
    nbytes: int
    write: bool


def reads(address: int, nbytes: int) -> Access:
    return Access(address, nbytes, False)


def writes(address: int, nbytes: int) -> Access:
    return Access(address, nbytes, True)


class Memory:
    """All allocations, freed ones too: their addresses are never given again."""

    def __init__(self):
        self.blocks: list[Block] = []
        self.next = DEVICE_MEMORY

    def allocate(self, nbytes: int, kind: str, gpu: int) -> Block:
        memory = np.zeros(nbytes, np.uint8)
        memory[: 1 << 16] = 0xA5  # not what anyone expects of fresh memory
        address = self.next if kind == "device" else memory.__array_interface__["data"][0]
        if kind == "device":
            self.next += -(-nbytes // 512) * 512 + 512
        self.blocks.append(Block(address, nbytes, kind, memory, gpu))
        return self.blocks[-1]

    def find(self, address: int, nbytes: int, what: str) -> Block:
        """The live block that holds these bytes."""
        for block in reversed(self.blocks):
            if block.address <= address < block.address + max(block.nbytes, 1):
                if block.freed:
                    raise Violation(f"{what}: use after free of {nbytes} bytes at {address:#x}")
                if address + nbytes > block.address + block.nbytes:
                    raise Violation(f"{what}: {nbytes} bytes at {address:#x} end outside of their block")
                return block
        raise Violation(f"{what}: {nbytes} bytes at {address:#x} were never allocated")

    def view(self, address: int, nbytes: int) -> np.ndarray:
        """The bytes there, while work runs: a block that was freed later on is still there for it."""
        for block in reversed(self.blocks):
            if block.address <= address and address + nbytes <= block.address + block.nbytes:
                start = address - block.address
                return block.memory[start : start + nbytes]
        raise Fault(700)


# --- streams ---

Clock = dict  # stream -> how much of its work has happened before


def merge(into: Clock, other: Clock) -> None:
    for stream, count in other.items():
        into[stream] = max(into.get(stream, 0), count)


@dataclass(eq=False)
class Work:
    """Something on a stream. after: work of other streams that has to be done first."""

    stream: Stream
    run: object = None
    after: Work | None = None
    done: bool = False


@dataclass(eq=False)
class Stream:
    number: int
    gpu: int = 0
    clock: Clock = field(default_factory=dict)
    queue: deque = field(default_factory=deque)
    recording: object = None  # the graph that it records to, instead of running

    def push(self, work: Work) -> Work:
        self.queue.append(work)
        return work

    def run_to(self, last: Work | None, limit: int | None = None) -> None:
        """Runs what is queued, up to `last` or to the end; `limit` pieces of it at most."""
        while self.queue and not (last is not None and last.done) and limit != 0:
            work = self.queue.popleft()
            if work.after is not None and not work.after.done:
                work.after.stream.run_to(work.after)
            work.done = True
            limit = None if limit is None else limit - 1
            if work.run is not None:
                work.run()


@dataclass(eq=False)
class Event:
    gpu: int = 0
    clock: Clock | None = None
    mark: Work | None = None  # on the stream that it was recorded on last
    spent: float = 0.0  # what graphs had cost then


def check_order(block: Block, access: Access, stream: int, clock: Clock, what: str) -> None:
    """Raises Violation where an earlier access of the same bytes need not be done before this one."""
    start = access.address - block.address
    end = start + access.nbytes
    kept = []
    for entry in block.accesses:
        first, last, write, other, count = entry
        if first < end and start < last and (write or access.write):
            if clock.get(other, 0) < count:
                raise Violation(
                    f"{what} on stream {stream}: {'writes' if access.write else 'reads'} {access.nbytes} bytes at "
                    f"{access.address:#x} that stream {other} may still be {'writing' if write else 'reading'}"
                )
            if access.write and start <= first and last <= end:
                continue  # whoever comes after this access comes after that one too
        kept.append(entry)
    entry = (start, end, access.write, stream, clock.get(stream, 0))
    if entry not in kept:
        kept.append(entry)
    block.accesses = kept
