"""The driver: runs a compiled program, a list of steps, without Python between the kernels.

    install(addresses, threads=None) -> Driver                         once, from `backends.cpu.driver.driver()`
    Driver.activation(steps, relocations, args, slots, *, release_gil=True) -> Activation
    Driver.run(activation.address) -> bool               with the current slots
    Driver.call(activation.address, *inputs) -> bool     inputs: addresses (int) or ndarrays, put into slots 0, 1, ...
    Driver.set_num_threads(count), Driver.num_threads

A program is int64 arrays:

- `steps` (rows of 8 words, `step(...)` makes one): END; KERNEL with kernel address, args offset in words, items, grain,
  1 where any thread takes the next chunk, 0 where each has a share of them, and roughly the nanoseconds that this step
  and the following ones take on one thread, which decides whether sleeping workers are woken (0: they are); JUMP with
  step number; JUMP_IF_ZERO with step number and the args position that holds the address of a pred byte; COPY with the
  args positions that hold the target's and the source's address, and the number of bytes; SWITCH with the args position
  that holds the address of an s32, the number of targets and the args position of the first of them (step numbers; out
  of range the last); SWAP with two lists of args positions (position and length of each), whose words all hold one
  address, and another one: they are exchanged; SIGNAL with the args position that holds the address of a word, and the
  increment; AWAIT with the args positions that hold the addresses of two words and of a byte: waits until the first
  word is as large as the second, and ends the program where the byte is 0; LOOP with the number of a step before it and
  the args position of the address of a byte: a jump that ends the program where a signal handler raised (every 100 ms
  it lets Python run them; `run` and `call` then raise the handler's exception) or the byte is 0; LOOK, which does the
  same.
- `args`: the argument words of all kernels, prefilled with extents, strides and addresses of temporaries and constants.
- `slots`: the addresses of inputs and outputs of one call.
- `relocations` (rows of 3 words): (args position, slot, byte offset). At the start,
  args[position] = slots[slot] + offset.

A kernel is called as kernel(args + offset, lo, hi). A step with items > grain > 0 is split into chunks of `grain` items
shared by all threads; the split depends only on items and grain, so results are bitwise the same for any number of
threads.

`run` and `call` answer False, having done nothing, when another thread is inside the same activation.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.ir.process import forking
from hloom.ir.process.floats import default_floats
from hloom.runtime import driver_source as source
from hloom.runtime.driver_source import (
    AWAIT,
    COPY,
    END,
    JUMP,
    JUMP_IF_ZERO,
    KERNEL,
    LOOK,
    LOOP,
    POLL,
    SIGNAL,
    STEP_WORDS,
    SWAP,
    SWITCH,
)


def step(opcode: int, *operands: Any) -> list[Any]:
    """One row of `steps`: `step(KERNEL, address, args_offset, items, grain, side_by_side, nanoseconds)`."""
    if len(operands) >= STEP_WORDS:
        raise ValueError(f"a step has at most {STEP_WORDS - 1} operands, got {len(operands)}")
    return [opcode, *operands, *[0] * (STEP_WORDS - 1 - len(operands))]


class Activation:
    """The memory of one running program: its steps, argument words and slots, and the block read by native code.

    address: of the block; what `Driver.run` and `Driver.call` take. `args` and `slots` are the int64 arrays themselves.
    """

    __slots__ = ("address", "args", "block", "relocations", "slots", "steps")

    def __init__(self, steps, relocations, args, slots, flags: int):
        self.steps = _words(steps)
        self.relocations = _words(relocations)
        self.args = _words(args)
        self.slots = _words(slots)
        self.block = np.zeros(source.BLOCK_WORDS, np.int64)
        self.block[source.BLOCK_STEPS] = _address(self.steps)
        self.block[source.BLOCK_STEP_COUNT] = self.steps.size // STEP_WORDS
        self.block[source.BLOCK_RELOCATIONS] = _address(self.relocations)
        self.block[source.BLOCK_RELOCATION_COUNT] = self.relocations.size // 3
        self.block[source.BLOCK_ARGS] = _address(self.args)
        self.block[source.BLOCK_SLOTS] = _address(self.slots)
        self.block[source.BLOCK_SLOT_COUNT] = self.slots.size
        self.block[source.BLOCK_FLAGS] = flags
        self.address = _address(self.block)


def _words(values) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int64).reshape(-1)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


class _Pool:
    """The shared memory of one set of workers, and the workers. Replaced as a whole when their number changes."""

    def __init__(self, threads: int, spins: int):
        self.memory = np.zeros(source.POOL_WORDS + source.TICKET_WORDS * threads + 16, np.int64)
        keep_for_good(self.memory)
        unaligned = _address(self.memory)
        self.address = unaligned + (-unaligned) % 128
        self.words = self.memory[(self.address - unaligned) // 8 :]
        self.words[source.POOL_THREADS] = threads
        self.words[source.POOL_SPINS] = spins
        self.words[source.POOL_WAKING] = source.WAKING
        process = ctypes.CDLL(None)
        # Linux needs 40 and 48 bytes for these, macOS 64 and 48; 128 are kept for each.
        process.pthread_mutex_init(ctypes.c_void_p(self.address + 8 * source.POOL_MUTEX), None)
        process.pthread_cond_init(ctypes.c_void_p(self.address + 8 * source.POOL_CONDITION), None)
        self.workers: list[threading.Thread] = []


def keep_for_good(thing: object) -> None:
    """Never free `thing`: when the interpreter ends, a daemon thread may still be inside native code that uses it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class _MethodDefinition(ctypes.Structure):
    """PyMethodDef of the C API."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


_METH_O, _METH_FASTCALL = 0x0008, 0x0080


class Driver:
    """Native code that walks programs, and its threads. One per process (`backends.cpu.driver.driver()`)."""

    def __init__(self, addresses: Mapping[str, int], threads: int | None = None):
        self._addresses = dict(addresses)
        self._worker = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(addresses["hloom_worker"])
        self._stop = ctypes.CFUNCTYPE(None, ctypes.c_int64)(addresses["hloom_stop"])
        # Pools are kept alive forever: a program that runs in another thread may hold the address of an old one.
        self._pools: list[_Pool] = []
        self._lock = forking.lock()
        self._spins = self._calibrate()
        self._crowded = False
        self._start_callable = self.start_workers
        self._message = ctypes.create_string_buffer(
            b"call(block, *inputs) takes the address of an activation and at most one int or ndarray for each slot"
        )
        self._state = np.zeros(source.STATE_WORDS, np.int64)
        for kept in (self._state, self._message, self._start_callable):
            keep_for_good(kept)
        self._state[source.STATE_START] = id(self._start_callable)
        self._state[source.STATE_TRUE] = id(True)
        self._state[source.STATE_FALSE] = id(False)
        self._state[source.STATE_INT] = id(int)
        self._state[source.STATE_NDARRAY] = id(np.ndarray)
        self._state[source.STATE_TYPE_ERROR] = id(TypeError)
        self._state[source.STATE_MESSAGE] = ctypes.addressof(self._message)
        self._state[source.STATE_LOOK] = addresses["hloom_look"]
        self._state[source.STATE_MAIN_THREAD] = threading.main_thread().ident or 0
        self._new_pool(default_num_threads() if threads is None else threads)
        self.run = self._builtin(b"run", "hloom_entry_run", _METH_O)
        self.call = self._builtin(b"call", "hloom_entry_call", _METH_FASTCALL)
        forking.on_fork(child=self._after_fork)
        atexit.register(self._shut_down)

    def _builtin(self, name: bytes, symbol: str, flags: int):
        """A Python builtin whose C function is `symbol`: a call costs 40 ns, through ctypes it would cost 300."""
        definition = _MethodDefinition(name, self._addresses[symbol], flags, None)
        state = _address(self._state)
        keep_for_good(definition)
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
        return make(ctypes.addressof(definition), state, None)

    def activation(
        self,
        steps: Sequence[Sequence[int]] | np.ndarray,
        relocations: Iterable[Sequence[int]] | np.ndarray,
        args: Sequence[int] | np.ndarray,
        slots: int | Sequence[int] | np.ndarray,
        *,
        release_gil: bool = True,
        resumes: bool = False,
        parallel: bool = False,
    ) -> Activation:
        """The memory for one run at a time of a program; arrays of int64 are used in place, not copied.

        slots: their number, or their values. release_gil: False for programs so small (a few microseconds) that other
        Python threads can wait; this saves about 50 ns, and calls from several threads then never overlap. resumes: for
        a program of a team, which returns where it would have to wait. parallel: whether threads may share steps whose
        item counts are not known yet.
        """
        rows = _words(steps).reshape(-1, STEP_WORDS)
        flags = source.FLAG_RELEASE_GIL if release_gil else 0
        if parallel or any(opcode == KERNEL and items > grain > 0 for opcode, _, _, items, grain, *_ in rows.tolist()):
            flags |= source.FLAG_PARALLEL
        if np.isin(rows[:, 0], (LOOP, LOOK, POLL)).any():
            flags |= source.FLAG_LOOKS
        if resumes:
            flags |= source.FLAG_RESUMES
        values = np.zeros(slots, np.int64) if isinstance(slots, int) else slots
        return Activation(rows, list(relocations), args, values, flags)

    @property
    def state_address(self) -> int:
        """The address of the words of this driver's state (STATE_POOL, ...), which stay where they are."""
        return _address(self._state)

    @property
    def num_threads(self) -> int:
        """Threads that share a parallel step, the calling one included."""
        return int(self._pools[-1].words[source.POOL_THREADS])

    def set_num_threads(self, count: int) -> None:
        """Change the number of threads. Running programs keep their current threads."""
        if count < 1:
            raise ValueError(f"the number of threads must be at least 1, got {count}")
        if count != self.num_threads:
            self._new_pool(count)

    def share_cores(self, crowded: bool) -> None:
        """crowded: whether more devices than processors wait for each other, so that waiting threads yield their
        core."""
        self._crowded = crowded
        self._pools[-1].words[source.POOL_SPINS] = self._turns()

    def _turns(self) -> int:
        return 1 if self._crowded else self._spins

    def _new_pool(self, threads: int) -> None:
        with self._lock:
            old = self._pools[-1] if self._pools else None
            pool = _Pool(threads, self._turns())
            self._pools.append(pool)
            self._state[source.STATE_POOL] = pool.address
        if old is not None:
            self._end_workers(old)

    def _end_workers(self, pool: _Pool) -> None:
        with self._lock:
            pool.words[source.POOL_STARTED] = 0
            pool.words[source.POOL_THREADS] = 1
            workers, pool.workers = pool.workers, []
        if workers:
            self._stop(pool.address)
            for worker in workers:
                worker.join(1.0)

    @default_floats()
    def start_workers(self) -> None:
        """Called by native code, with the GIL, before the first program with a parallel step."""
        with self._lock:
            pool = self._pools[-1]
            if pool.words[source.POOL_STARTED] or pool.words[source.POOL_THREADS] < 2:
                return
            for number in range(1, int(pool.words[source.POOL_THREADS])):
                worker = threading.Thread(
                    target=self._worker, args=(pool.address, number), name=f"hloom-worker-{number}", daemon=True
                )
                try:
                    worker.start()
                except RuntimeError:  # the interpreter is ending, or the system has no more threads
                    break
                pool.workers.append(worker)
            if pool.workers:
                pool.words[source.POOL_STARTED] = 1
            else:
                pool.words[source.POOL_THREADS] = 1

    def _after_fork(self) -> None:
        """In a forked child: no worker came along, and the old pool's lock may be held by a thread that did not."""
        threads = self.num_threads
        self._state[source.STATE_MAIN_THREAD] = threading.main_thread().ident or 0
        self._pools[-1].workers = []
        self._pools.append(_Pool(threads, self._turns()))
        self._state[source.STATE_POOL] = self._pools[-1].address

    def _shut_down(self) -> None:
        self._end_workers(self._pools[-1])

    def _calibrate(self) -> int:
        """Iterations of the waiting loop in SPIN_NANOSECONDS (one `pause` is 10 to 150 cycles, by processor)."""
        spin = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(self._addresses["hloom_spin"])
        word = np.zeros(1, np.int64)
        address = _address(word)
        spin(address, 10)
        best = min(_timed(spin, address, 500) for _ in range(3))
        return max(20, min(100_000, int(source.SPIN_NANOSECONDS * 1e-9 / best * 500)))


def _timed(function, *arguments) -> float:
    start = time.perf_counter()
    function(*arguments)
    return max(1e-9, time.perf_counter() - start)


def default_num_threads() -> int:
    """HLOOM_NUM_THREADS, or the number of processors this process may use."""
    wanted = os.environ.get("HLOOM_NUM_THREADS", "").strip()
    if wanted:
        if not wanted.isdigit() or int(wanted) < 1:
            raise ValueError(f"HLOOM_NUM_THREADS must be a positive integer, found {wanted!r}")
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def install(addresses: Mapping[str, int], threads: int | None = None) -> Driver:
    """A Driver over the compiled functions of `driver_source.FUNCTIONS`. threads: None means `default_num_threads`."""
    return Driver(addresses, threads)


__all__ = [
    "AWAIT",
    "COPY",
    "END",
    "JUMP",
    "JUMP_IF_ZERO",
    "KERNEL",
    "LOOK",
    "LOOP",
    "SIGNAL",
    "SWAP",
    "SWITCH",
    "Activation",
    "Driver",
    "install",
    "keep_for_good",
    "step",
]
