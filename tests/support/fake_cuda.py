"""A CUDA driver without a GPU: the functions of `cuda.bindings.driver` that the runtime calls.

Device memory is memory of the host behind addresses of its own. Kernels are Python functions (`FakeKernel`) whose
"machine code" is their names. Every call is recorded in `calls`; `inject(n, code)` makes the n-th from now on fail.
What the real driver does not forgive raises Violation and is noted in `violations`: work that is not ordered by streams
and events, use after free, a double free, handles of destroyed things, a graph launched while it is changed, a kernel
whose accesses leave their memory. `leaks()` lists what was made and not destroyed.
"""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import dataclass

import numpy as np
from fake_cuda_graph import FakeGraphs
from fake_cuda_model import (
    ENUMS,
    RECORDS,
    Access,
    Block,
    CUcontext,
    CUdeviceptr,
    CUevent,
    CUfunction,
    CUgraphNodeParams,
    CUmemAccessDesc,
    CUmemoryPool,
    CUmemPoolProps,
    CUmodule,
    CUresult,
    CUstream,
    Event,
    FakeKernel,
    Fault,
    Memory,
    Refused,
    Stream,
    Violation,
    Work,
    call,
    check_order,
    cuuint64_t,
    merge,
    reads,
    writes,
)

LEGACY, PER_THREAD = 1, 2
BETWEEN = "a copy between GPUs"


@dataclass(frozen=True)
class FakeGpu:
    name: str = "Fake GPU"
    capability: tuple[int, int] = (9, 0)
    memory: int = 1 << 30


class FakeDriver(FakeGraphs):
    """The module. gpus: what it shows; version: 13000 for CUDA 13.0; kernels: what modules may hold. linked: whether
    GPUs can reach each other's memory. direct, staged: bytes that were copied between GPUs, and how."""

    def __init__(self, kernels=(), gpus=(FakeGpu(),), version: int = 13000, linked: bool = True):
        records = (*RECORDS, CUmemAccessDesc, CUmemPoolProps, CUgraphNodeParams)
        for thing in (*ENUMS, *records, CUdeviceptr, CUstream, cuuint64_t):
            setattr(self, thing.__name__, thing)
        self.gpus, self.version = list(gpus), version
        self.kernels = {kernel.name: kernel for kernel in kernels}
        self.mutex = threading.RLock()
        self.calls: list[tuple] = []
        self.violations: list[str] = []
        self.memory = Memory()
        self.things: dict[int, object] = {}  # what is behind a handle
        self.destroyed: set[int] = set()
        self.retained = 0
        self.started = False
        self.sticky = 0
        self.host: dict = {}  # what the host knows to be done
        self.used = [0 for _ in self.gpus]
        self.linked, self.direct, self.staged = linked, 0, 0
        self.peers: set[tuple[int, int]] = set()  # (GPU, another whose memory in no pool it reaches)
        self.opened: dict[int, set[int]] = {}  # pool -> other GPUs that reach its memory
        self.refusals: list[tuple[int, int, bool]] = []  # (number of a call, code, whether for good)
        self.slow_changes = False
        self.cost = lambda what: 0.0  # milliseconds of a node of a graph, beyond those of its launch
        self.spent = 0.0  # of all graphs that were launched
        self._next = 0x1000
        self._current = threading.local()
        for number in (LEGACY, PER_THREAD):
            self.things[number] = Stream(number)

    # --- how calls go ---

    def enter(self, function, outputs: int, arguments: tuple) -> tuple:
        number, name = len(self.calls), function.__name__
        self.calls.append((name, arguments))
        none = (None,) * outputs
        for refusal in self.refusals:
            if refusal[0] == number:
                if refusal[2]:
                    self.sticky = refusal[1]
                if name == "cuStreamEndCapture":  # one that fails ends the recording all the same
                    self.thing(arguments[0], Stream).recording = None
                return (CUresult(refusal[1]), *none)
        harmless = ("cuGetErrorString", "cuInit", "cuDriverGetVersion")
        if self.sticky and name not in harmless:
            return (CUresult(self.sticky), *none)
        try:
            if not self.started and name not in harmless:
                raise Refused(3)
            result = function(self, *arguments)
        except Refused as refused:
            return (CUresult(refused.code), *none)
        except Fault as fault:
            self.sticky = fault.code
            return (CUresult(fault.code), *none)
        except Violation as violation:
            self.violations.append(f"{name}: {violation}")
            raise
        return (CUresult(0), *(result if isinstance(result, tuple) else () if result is None else (result,)))

    def inject(self, number: int, code: int) -> None:
        """The call `number` from now on (0: the next) fails with a code."""
        self.refusals.append((len(self.calls) + number, code, False))

    def lose_at(self, number: int, code: int) -> None:
        """The same, and every later call fails with it too: the device is lost."""
        self.refusals.append((len(self.calls) + number, code, True))

    def counts(self, start: int = 0) -> dict[str, int]:
        """How often each function was called, from the call `start` on."""
        names = [name for name, _ in self.calls[start:]]
        return {name: names.count(name) for name in dict.fromkeys(names)}

    def leaks(self) -> list[str]:
        """What was made and not destroyed."""
        found = [f"{type(t).__name__} {h:#x}" for h, t in self.things.items() if h not in (LEGACY, PER_THREAD)]
        found += [f"{b.kind} memory of {b.nbytes} bytes" for b in self.memory.blocks if not b.freed]
        return found + (["a context"] if self.retained else [])

    def make(self, kind, thing):
        self._next += 16
        handle = kind(self._next)
        self.things[handle] = thing
        return handle

    def thing(self, handle, kind: type):
        if int(handle) in self.destroyed:
            raise Violation(f"{kind.__name__} {int(handle):#x} was destroyed before")
        found = self.things.get(int(handle))
        if not isinstance(found, kind):
            raise Violation(f"{handle!r} is no {kind.__name__}")
        return found

    def destroy(self, handle, kind: type):
        found = self.thing(handle, kind)
        del self.things[int(handle)]
        self.destroyed.add(int(handle))
        return found

    def need_context(self) -> int:
        gpu = getattr(self._current, "gpu", None)
        if gpu is None:
            raise Refused(201)
        return gpu

    # --- work ---

    def enqueue(self, handle, accesses: list[Access], run, what: str) -> Work:
        """Work behind everything on a stream and everything the host knows to be done."""
        stream = self.thing(handle, Stream)
        merge(stream.clock, self.host)
        stream.clock[stream.number] = stream.clock.get(stream.number, 0) + 1
        for access in accesses:
            if access.nbytes:
                block = self.memory.find(access.address, access.nbytes, what)
                self.check_reach(block, stream, what)
                check_order(block, access, stream.number, stream.clock, what)
        return stream.push(Work(stream, run))

    def check_reach(self, block: Block, stream: Stream, what: str) -> None:
        """Raises Violation for memory of a GPU that the stream's cannot use. The driver copies between any two."""
        if block.kind == "device" and block.gpu != stream.gpu and stream.number not in (LEGACY, PER_THREAD):
            if what != BETWEEN and not self.reaches(stream.gpu, block):
                raise Violation(f"{what} on GPU {stream.gpu} uses memory of GPU {block.gpu}")

    def reaches(self, gpu: int, block: Block) -> bool:
        """Whether a GPU reaches a block of another's: the pool's access decides, and that of contexts for the rest."""
        if block.pool is not None:
            return gpu in self.opened.get(block.pool, ())
        return (gpu, block.gpu) in self.peers

    def finish(self, stream: Stream, work: Work | None = None, clock: dict | None = None) -> None:
        """The host waits."""
        stream.run_to(work)
        merge(self.host, stream.clock if clock is None else clock)

    def view(self, address: int, nbytes: int, dtype=np.uint8) -> np.ndarray:
        """Memory as a kernel sees it."""
        return self.memory.view(address, nbytes).view(dtype)

    def arguments(self, kernel: FakeKernel, address: int) -> tuple[int, ...]:
        """The values behind an array of the addresses of arguments."""
        count = len(kernel.parameters)
        places = (ctypes.c_uint64 * count).from_address(address)
        kinds = {"p": ctypes.c_uint64, "i": ctypes.c_int64}
        return tuple(kinds[k].from_address(p).value for k, p in zip(kernel.parameters, places, strict=True))

    # --- driver and devices ---

    @call()
    def cuInit(self, flags):
        self.started = True
        if not self.gpus:
            raise Refused(100)

    @call(1)
    def cuDriverGetVersion(self):
        return self.version

    @call(1)
    def cuGetErrorString(self, code):
        return f"the fake driver's words for {int(code)}".encode()

    @call(1)
    def cuDeviceGetCount(self):
        return len(self.gpus)

    @call(1)
    def cuDeviceGet(self, ordinal):
        return ordinal

    @call(1)
    def cuDeviceGetName(self, length, device):
        return self.gpus[device].name.encode().ljust(length, b"\0")

    @call(1)
    def cuDeviceTotalMem(self, device):
        return self.gpus[device].memory

    @call(1)
    def cuDeviceGetAttribute(self, attribute, device):
        gpu = self.gpus[device]
        return {75: gpu.capability[0], 76: gpu.capability[1], 16: 132, 97: 232448, 33: 5 + device, 34: 0, 50: 0}[
            attribute
        ]

    @call(1)
    def cuDevicePrimaryCtxRetain(self, device):
        self.retained += 1
        return CUcontext(0x100 + device)

    @call()
    def cuDevicePrimaryCtxRelease(self, device):
        self.retained -= 1

    @call()
    def cuCtxSetCurrent(self, context):
        self._current.gpu = int(context) - 0x100

    @call()
    def cuCtxSynchronize(self):
        self.need_context()
        for stream in [t for t in self.things.values() if isinstance(t, Stream)]:
            self.finish(stream)

    @call(2)
    def cuMemGetInfo(self):
        gpu = self.need_context()
        return self.gpus[gpu].memory - self.used[gpu], self.gpus[gpu].memory

    # --- streams and events ---

    @call(1)
    def cuStreamCreate(self, flags):
        gpu = self.need_context()
        handle = self.make(CUstream, None)
        self.things[handle] = Stream(int(handle), gpu)
        return handle

    @call()
    def cuStreamDestroy(self, stream):
        self.destroy(stream, Stream)

    @call()
    def cuStreamSynchronize(self, stream):
        self.finish(self.thing(stream, Stream))

    @call()
    def cuStreamWaitEvent(self, stream, event, flags):
        event = self.thing(event, Event)
        if event.clock is not None:
            waiting = self.thing(stream, Stream)
            merge(waiting.clock, event.clock)
            waiting.push(Work(waiting, None, event.mark))

    @call(1)
    def cuEventCreate(self, flags):
        return self.make(CUevent, Event(self.need_context()))

    @call()
    def cuEventDestroy(self, event):
        self.destroy(event, Event)

    @call()
    def cuEventRecord(self, event, stream):
        event = self.thing(event, Event)
        if int(stream) not in (LEGACY, PER_THREAD) and self.thing(stream, Stream).gpu != event.gpu:
            raise Refused(400)
        event.mark = self.enqueue(stream, [], None, "an event")
        event.clock, event.spent = dict(event.mark.stream.clock), self.spent

    @call()
    def cuEventQuery(self, event):
        event = self.thing(event, Event)
        if event.mark is not None and not event.mark.done:
            event.mark.stream.run_to(event.mark, limit=2)
            if not event.mark.done:
                raise Refused(600)
        merge(self.host, event.clock or {})

    @call()
    def cuEventSynchronize(self, event):
        event = self.thing(event, Event)
        if event.mark is not None:
            self.finish(event.mark.stream, event.mark, event.clock)

    @call(1)
    def cuEventElapsedTime(self, first, last):
        """A millisecond for each piece of work on the stream, and the cost of the nodes of graphs."""
        first, last = self.thing(first, Event), self.thing(last, Event)
        stream = first.mark.stream.number
        return float(last.clock[stream] - first.clock[stream]) + last.spent - first.spent

    # --- memory ---

    @call(1)
    def cuMemPoolCreate(self, properties):
        return self.make(CUmemoryPool, properties)

    @call()
    def cuMemPoolDestroy(self, pool):
        self.destroy(pool, CUmemPoolProps)

    @call()
    def cuMemPoolSetAttribute(self, pool, attribute, value):
        self.thing(pool, CUmemPoolProps)

    @call(1)
    def cuMemPoolGetAttribute(self, pool, attribute):
        return cuuint64_t(self.used[self.thing(pool, CUmemPoolProps).location.id])

    @call()
    def cuMemPoolTrimTo(self, pool, keep):
        self.thing(pool, CUmemPoolProps)

    @call(1)
    def cuMemAllocFromPoolAsync(self, nbytes, pool, stream):
        gpu = self.thing(pool, CUmemPoolProps).location.id
        if self.thing(stream, Stream).gpu != gpu:
            raise Violation("memory of one GPU was asked for on a stream of another")
        if self.used[gpu] + nbytes > self.gpus[gpu].memory:
            raise Refused(2)
        self.used[gpu] += nbytes
        block = self.memory.allocate(nbytes, "device", gpu)
        block.pool = int(pool)
        self.enqueue(stream, [writes(block.address, nbytes)], None, "an allocation")
        return CUdeviceptr(block.address)

    @call()
    def cuMemFreeAsync(self, address, stream):
        block = self.memory.find(int(address), 0, "a free")
        if block.address != int(address) or block.kind != "device":
            raise Violation(f"{int(address):#x} was freed, which no allocation of device memory starts at")
        self.enqueue(stream, [writes(block.address, block.nbytes)], None, "a free")
        block.freed = True
        self.used[block.gpu] -= block.nbytes

    @call(1)
    def cuMemHostAlloc(self, nbytes, flags):
        self.need_context()
        return self.memory.allocate(nbytes, "pinned", -1).address

    @call()
    def cuMemFreeHost(self, address):
        block = self.memory.find(int(address), 0, "a free of pinned memory")
        check_order(block, writes(block.address, block.nbytes), 0, self.host, "a free of pinned memory")
        block.freed = True

    def copy(self, stream, target: int, source: int, nbytes: int, what: str = "a copy") -> None:
        def run():
            self.view(target, nbytes)[...] = self.view(source, nbytes)

        self.step(stream, [reads(source, nbytes), writes(target, nbytes)], run, what)

    def step(self, stream, accesses, run, what: str) -> None:
        """Work on a stream, or a node of the graph that the stream records to."""
        recording = self.thing(stream, Stream).recording
        if recording is not None:
            self.add_node(recording, recording.nodes[-1:], accesses, run, what)
        else:
            self.enqueue(stream, accesses, run, what)

    @call()
    def cuMemcpyAsync(self, target, source, nbytes, stream):
        self.copy(stream, int(target), int(source), nbytes)

    @call(1)
    def cuDeviceCanAccessPeer(self, device, other):
        if device == other:
            raise Violation("a GPU was asked about itself")
        return int(self.linked)

    @call()
    def cuCtxEnablePeerAccess(self, context, flags):
        pair = self.need_context(), int(context) - 0x100
        if not self.linked:
            raise Refused(217)
        if pair in self.peers:
            raise Refused(704)
        self.peers.add(pair)

    @call()
    def cuMemPoolSetAccess(self, pool, accesses, count):
        owner = self.thing(pool, CUmemPoolProps).location.id
        (access,) = accesses
        if count != 1 or access.flags != 3 or access.location.type != 1 or not self.linked:
            raise Refused(1)
        if access.location.id == owner:
            raise Violation("a pool was opened to its own GPU")
        self.opened.setdefault(int(pool), set()).add(access.location.id)

    @call()
    def cuMemcpyPeerAsync(self, target, target_context, source, source_context, nbytes, stream):
        blocks = []
        for address, context in ((target, target_context), (source, source_context)):
            blocks.append(self.memory.find(int(address), nbytes, BETWEEN))
            if blocks[-1].gpu != int(context) - 0x100:
                raise Violation(f"{int(address):#x} is not of the context {int(context):#x}")
        gpu = self.thing(stream, Stream).gpu
        if all(block.gpu == gpu or self.reaches(gpu, block) for block in blocks):
            self.direct += nbytes
        else:
            self.staged += nbytes
        self.copy(stream, int(target), int(source), nbytes, BETWEEN)

    @call()
    def cuMemsetD8Async(self, address, byte, nbytes, stream):
        def run():
            self.view(int(address), nbytes)[...] = byte

        self.step(stream, [writes(int(address), nbytes)], run, "a fill")

    # --- machine code ---

    @call(1)
    def cuModuleLoadData(self, image):
        self.need_context()
        kind, *names = image.split()
        if kind != b"cubin":
            raise Refused(200)
        return self.make(CUmodule, [name.decode() for name in names])

    @call()
    def cuModuleUnload(self, module):
        self.destroy(module, list)

    @call(1)
    def cuModuleGetFunction(self, module, name):
        if name.decode() not in self.thing(module, list):
            raise Refused(500)
        self._next += 16
        handle = CUfunction(self._next)
        self.functions[handle] = self.kernels.get(name.decode()) or self.builtin(name.decode())
        return handle

    @call(1)
    def cuFuncGetAttribute(self, attribute, function):
        return {4: self.functions[function].registers, 3: 0, 1: 0, 0: 1024}[attribute]

    @call()
    def cuFuncSetAttribute(self, function, attribute, value):
        if value > 232448:
            raise Refused(1)
        self.shared[function] = value

    def check_launch(self, function, grid, block, shared: int) -> FakeKernel:
        threads = block[0] * block[1] * block[2]
        if min(*grid, *block) < 1 or threads > 1024 or shared > self.shared.get(function, 49152):
            raise Refused(1)
        return self.functions[function]

    @call()
    def cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra):
        kernel = self.check_launch(function, (gx, gy, gz), (bx, by, bz), shared)
        values = self.arguments(kernel, arguments)
        self.step(stream, kernel.accesses(*values), kernel.work(self, (gx, gy, gz), values), kernel.name)

    def pause(self) -> None:
        """Gives other threads a turn in the middle of a call."""
        if self.slow_changes:
            self.mutex.release()
            time.sleep(0.0005)
            self.mutex.acquire()
