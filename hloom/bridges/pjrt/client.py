"""The client: devices, executables, and requests of native code to Python."""

from __future__ import annotations

import atexit
import ctypes
import itertools
import threading
from collections.abc import Callable

import numpy as np
from jax._src import xla_bridge

from hloom._version import __version__
from hloom.bridges.pjrt.memory import Arguments, Block, Text, array_of, error_block, words_at
from hloom.bridges.pjrt.programs import MEMORY_KINDS, Executable, Source, deserialized
from hloom.config import config
from hloom.errors import DTypeError, UnsupportedError
from hloom.ir.base_error import out_of_memory
from hloom.ir.process import forking, memory
from hloom.ir.process.floats import default_floats
from hloom.ir.types import DTYPES
from hloom.runtime.buffer import default_limit
from hloom.runtime.pjrt.blocks import BUFFER, CONSTANTS
from hloom.runtime.pjrt.interface import LAYOUT_WORDS, STRIDES, TYPES

__all__ = ["Client"]

_DTYPES = {number: DTYPES[name] for name, number in TYPES.items()}
_IDLE = 4  # a client keeps idle memory up to this part of the machine's


class Client:
    """The one client of a process."""

    def __init__(self, addresses: dict[str, int]):
        self._addresses = addresses
        self._numbers = itertools.count(1)
        self._executables: dict[int, Executable] = {}
        self._lock = forking.rlock()
        self._entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(self._asked)
        self._garbage = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(addresses["pjrt_take_garbage"])
        self.block = Block("CLIENT")
        self._descriptions: list[Block] = []
        self._memories: list[Block] = []
        self.devices = [self._device(k) for k in range(config.num_cpu_devices)]
        self._fill()
        self._work = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(addresses["pjrt_work"])
        self._drain = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(addresses["pjrt_drain"])
        atexit.register(self._end)
        forking.on_fork(before=self._before_fork, child=self._after_fork)
        purge = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(addresses["pjrt_purge"])
        memory.on_release(lambda everything: self._release(purge))

    def _fill(self) -> None:
        ready = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self._addresses["pjrt_event"])(-1)
        words_at(ready, CONSTANTS["EVENT_STATE"] + 1)[CONSTANTS["EVENT_STATE"]] = 1
        sizes = [0] * 32
        for number, dtype in _DTYPES.items():
            sizes[number] = dtype.itemsize
        block = self.block
        platform = Text(f"hloom {__version__}, {len(self.devices)} CPU devices")
        block.update(
            {
                "name": Text("hloom"),
                "version": Text(__version__),
                "topology": block.address,
                "ready": ready,
                "python": ctypes.cast(self._entry, ctypes.c_void_p).value or 0,
                "limit": memory_limit(),
                "type_sizes": array_of(sizes),
                "platform_bytes": platform,
                "nothing": self._addresses["pjrt_nothing"],
                "devices": array_of([device.address for device in self.devices]),
                "device_count": len(self.devices),
                "queues": int(xla_bridge._CPU_ENABLE_ASYNC_DISPATCH.value),  # jax_cpu_enable_async_dispatch
                "memories": array_of([place.address for place in self._memories]),
                "memory_count": len(self._memories),
                "descriptions": array_of([device["description"] for device in self.devices]),
            }
        )

    def _device(self, index: int) -> Block:
        device, description = Block("DEVICE"), Block("DESCRIPTION")
        description.update({"id": index, "kind": Text("hloom cpu"), "text": Text(f"hloom:{index}")})
        places = [self._memory(device, index, k, kind) for k, kind in enumerate(MEMORY_KINDS)]
        device.update(
            {
                "client": self.block.address,
                "description": description.memory,
                "id": index,
                "memories": array_of([place.address for place in places]),
                "memory_count": len(places),
                "memory": places[0].address,
            }
        )
        self._descriptions.append(description)
        self._memories += places
        return device

    def _memory(self, device: Block, index: int, number: int, kind: str) -> Block:
        """All kinds are host memory: names by which jax programs specify where values are placed."""
        place = Block("MEMORY")
        place.update(
            {
                "client": self.block.address,
                "device": device.address,
                "id": index * len(MEMORY_KINDS) + number,
                "kind": Text(kind),
                "text": Text(f"memory '{kind}' of hloom:{index}"),
                "devices": array_of([device.address]),
                "device_count": 1,
                "kind_id": number,
            }
        )
        return place

    def _release(self, purge: Callable[[int], int]) -> None:
        self.collect()
        purge(self.block.address)

    # --- executables ---

    def compile(self, source: Source) -> Executable:
        """Raises HloomError."""
        self.collect()
        made = Executable(source, self.block, self.devices, next(self._numbers))
        with self._lock:
            self._executables[made.number] = made
        return made

    def load(self, data: bytes, options: bytes) -> Executable:
        """A serialized executable. options: replace its own, unless empty."""
        source = deserialized(data)
        return self.compile(Source(source.code, options or source.options))

    def executable(self, where: int) -> Executable:
        """The executable of a block."""
        number = words_at(where, CONSTANTS["EXECUTABLE_NUMBER"] + 1)[CONSTANTS["EXECUTABLE_NUMBER"]]
        return self._executables[number]

    def compiled(self, fingerprint: str) -> Executable:
        """An executable of the program that jax knows by this fingerprint."""
        with self._lock:
            return next(found for found in self._executables.values() if found.source.fingerprint() == fingerprint)

    def collect(self) -> None:
        """Forgets the executables that jax has given back."""
        where = self._garbage(self.block.address)
        with self._lock:
            while where:
                words = words_at(where, CONSTANTS["EXECUTABLE_WORDS"])
                number, where = words[CONSTANTS["EXECUTABLE_NUMBER"]], words[CONSTANTS["EXECUTABLE_NEXT"]]
                self._executables.pop(number, None)

    # --- requests of native code ---

    def _asked(self, request: int, first: int, second: int) -> int:
        try:
            with default_floats():
                return _ANSWERS[request](self, first, second) or 0
        except BaseException as error:
            made = error_block(error)
            return -made if request == CONSTANTS["ASK_FRAME"] else made

    def _to_host(self, where: int, _: int) -> int:
        """Buffer_ToHostBuffer into another layout."""
        arguments = Arguments("Buffer_ToHostBuffer", where)
        source = _array(arguments["buffer"])
        target = _view(arguments["target"], source, arguments["host_layout"])
        target[...] = source
        return 0

    def _from_host(self, where: int, target: int) -> int:
        """Client_BufferFromHostBuffer of an array with strides, into memory at `target`; the errors for others."""
        if not where:
            raise _no_dtype(target)
        arguments = Arguments("Client_BufferFromHostBuffer", where)
        dtype = _DTYPES.get(arguments["type"] & 0xFFFFFFFF)
        if dtype is None:
            raise _no_dtype(arguments["type"] & 0xFFFFFFFF)
        count = arguments["num_dims"]
        dims, strides = tuple(words_at(arguments["dims"], count)), tuple(words_at(arguments["byte_strides"], count))
        size = int(np.prod(dims)) * dtype.itemsize
        if size:
            _memory(target, size).view(dtype).reshape(dims)[...] = _strided(arguments["data"], dtype, dims, strides)
        return 0

    def _frame(self, where: int, _: int) -> int:
        executable = self.executable(where)
        with self._lock:
            return executable.new_frame().address

    def _raised(self, where: int, frame: int) -> int:
        raise self.executable(where).raised(frame)

    def _start(self, where: int, _: int) -> int:
        self.executable(where).driver.start_workers()
        return 0

    def _worker(self, _: int, __: int) -> int:
        """Starts the thread that runs the calls of the queue."""
        with self._lock:
            if not self.block["worker"]:
                threading.Thread(target=self._work, args=(self.block.address,), name="hloom-calls", daemon=True).start()
                self.block["worker"] = 1
        return 0

    def _end(self) -> None:
        """Calls in the queue end before the interpreter does; later ones are not queued."""
        self.block["queues"] = 0
        if self.block["worker"]:
            self._drain(self.block.address)

    def _before_fork(self) -> None:
        if self.block["worker"]:
            self._drain(self.block.address)

    def _after_fork(self) -> None:
        """A forked child has no thread, and no calls."""
        first, last = CONSTANTS["CLIENT_WORKER"], CONSTANTS["CLIENT_BINS"]
        self.block.memory[first:last] = 0

    def _mismatch(self, where: int, found: int) -> int:
        raise self.executable(where).mismatch(found)

    def _twice(self, where: int, number: int) -> int:
        raise self.executable(where).donated_twice(number)

    def _no_memory(self, _: int, size: int) -> int:
        raise out_of_memory("memory for a buffer", f"{size} bytes, which the system refuses")


_ANSWERS = {
    CONSTANTS["ASK_TO_HOST"]: Client._to_host,
    CONSTANTS["ASK_FROM_HOST"]: Client._from_host,
    CONSTANTS["ASK_FRAME"]: Client._frame,
    CONSTANTS["ASK_RAISED"]: Client._raised,
    CONSTANTS["ASK_START"]: Client._start,
    CONSTANTS["ASK_MISMATCH"]: Client._mismatch,
    CONSTANTS["ASK_TWICE"]: Client._twice,
    CONSTANTS["ASK_NO_MEMORY"]: Client._no_memory,
    CONSTANTS["ASK_WORKER"]: Client._worker,
}


def memory_limit() -> int:
    """Bytes of idle memory that a client keeps."""
    return default_limit() // _IDLE


def _no_dtype(number: int) -> DTypeError:
    return DTypeError(
        "a buffer on a device of hloom", f"elements of PJRT's type {number}, or tiles",
        f"hloom has {', '.join(TYPES)}, dense", "",
    )  # fmt: skip


def _memory(where: int, size: int) -> np.ndarray:
    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(where)), np.uint8)


def _array(buffer: int) -> np.ndarray:
    """The values of a buffer."""
    words = words_at(buffer, CONSTANTS["BUFFER_DIMS"])
    count, size = words[BUFFER["BUFFER_NDIMS"]], words[BUFFER["BUFFER_BYTES"]]
    dims = tuple(words_at(buffer + 8 * BUFFER["BUFFER_DIMS"], count))
    dtype = _DTYPES[words[BUFFER["BUFFER_TYPE"]]]
    return _memory(words[BUFFER["BUFFER_ADDRESS"]], size).view(dtype).reshape(dims) if size else np.zeros(dims, dtype)


def _strided(where: int, dtype: np.dtype, dims: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """An array that is not empty over memory at the address of its first element; strides may be negative."""
    low = sum((d - 1) * s for d, s in zip(dims, strides, strict=True) if s < 0)
    high = sum((d - 1) * s for d, s in zip(dims, strides, strict=True) if s > 0) + dtype.itemsize
    raw = _memory(where + low, high - low)
    return np.ndarray(dims, dtype, raw.data, -low, strides)


def _view(where: int, like: np.ndarray, layout: int) -> np.ndarray:
    """Memory at an address as an array of the shape of another, in a layout of the C interface."""
    words = words_at(layout, len(LAYOUT_WORDS))
    if words[LAYOUT_WORDS["layout_type"]] & 0xFFFFFFFF == STRIDES:
        strides = tuple(words_at(words[LAYOUT_WORDS["minor_to_major"]], like.ndim))  # where a union has them
    else:
        if words[LAYOUT_WORDS["num_tiles"]]:
            raise UnsupportedError("a transfer to the host", "a tiled layout", "ask for a dense one", "")
        order, step, found = words_at(words[LAYOUT_WORDS["minor_to_major"]], like.ndim), like.itemsize, [0] * like.ndim
        for axis in order:
            found[axis] = step
            step *= like.shape[axis]
        strides = tuple(found)
    return _strided(where, like.dtype, like.shape, strides) if like.size else like.copy()
