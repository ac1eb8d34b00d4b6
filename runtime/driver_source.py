"""The driver's native functions, as Python source that the compiler's Numba front end compiles.

The names `load`, `store`, `atomic_*`, `compare_exchange`, `call_kernel`, `copy_bytes`, `pause` are intrinsics of the
compiler (8-byte words at an address); the others are the functions below, the C library and the C API of Python. Every
value is an int64: a number, an address or a Python object.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from hloom.ir.records import field, record
from hloom.ir.sizes.numbers import Number, chosen, lower_of

# A step is STEP_WORDS words: an opcode, then operands.
STEP_WORDS = 8
END = 0  # back to the host
# Kernel address, args offset (words), items, grain, 1 where all threads work on a single share, approximate nanoseconds
# that it and the following steps take on one thread (0: unknown).
KERNEL = 1
JUMP = 2  # step number
JUMP_IF_ZERO = 3  # step number, args position that holds the address of a pred byte
COPY = 4  # args positions that hold the target's and the source's address, bytes
SWITCH = 5  # args position that holds the address of an s32, number of targets, args position of the first target
SWAP = 6  # args positions of the first of one list of args positions, its length, likewise of another list
SIGNAL = 7  # args position of the address of a word, increment
AWAIT = 8  # args positions of the addresses of two words and of a status byte: until the first is as large, or status 0
# Step number before this one, args position of the address of a status byte. Looks for signals and at the byte from
# time to time, and ends the program where a signal handler raised or the byte is 0.
LOOP = 9
LOOK = 10  # checks for signals, before a Python step
# Kernel address, args offset: called repeatedly until the batch of messages at the first argument word is done or the
# status byte at the second is 0.
POLL = 11

# Words of an activation block, the only thing that a call passes to native code.
BLOCK_STEPS, BLOCK_STEP_COUNT, BLOCK_RELOCATIONS, BLOCK_RELOCATION_COUNT = 0, 1, 2, 3
BLOCK_ARGS, BLOCK_SLOTS, BLOCK_FLAGS, BLOCK_BUSY, BLOCK_SLOT_COUNT = 4, 5, 6, 7, 8
BLOCK_INTERRUPTED, BLOCK_LOOK, BLOCK_THREAD = 9, 10, 11  # 1: a signal handler raised; `hloom_look` or 0; of Python
BLOCK_TURNS, BLOCK_SEEN, BLOCK_LOOKED, BLOCK_CLOCK = 12, 13, 14, 16  # of `hloom_turns`; the last has two words
# The step to run next, -1 where the program has ended or runs; the addresses of the words that it waits for, or 0.
BLOCK_AT, BLOCK_FIRST, BLOCK_SECOND = 18, 19, 20
BLOCK_WORDS = 24
FLAG_RELEASE_GIL = 1
FLAG_PARALLEL = 2
FLAG_LOOKS = 4
FLAG_RESUMES = 8  # the program returns where it would have to wait, and is called again

# Words of a batch of messages (`hloom.runtime.distributed.messages`) that the driver reads: 1 when all have arrived;
# how often it was looked at.
BATCH_DONE, BATCH_TURNS = 14, 15
BATCH_LOOK = 4096  # turns after which the driver checks for signals

# Words of the thread pool. Words written by one thread while others spin on different words are 128 bytes apart,
# because processors fetch cache lines in pairs.
POOL_JOB = 0  # number of the current or last job; its description is in the same cache line
POOL_KERNEL, POOL_ARGS, POOL_ITEMS, POOL_GRAIN, POOL_CHUNKS, POOL_SHARES, POOL_PATIENCE = 1, 2, 3, 4, 5, 6, 7
POOL_LOCK = 16  # 1 while a caller has its job in the pool
POOL_FINISHED = 32  # chunks of the job that are done
POOL_WAKING = 48  # nanoseconds of one thread's work for which sleepers are worth waking
POOL_ALONE, POOL_UNTIL, POOL_CLOCK = 49, 50, 51  # how long a caller worked alone, until when; a time, of two words
POOL_SLEEPERS = 64
POOL_STOP, POOL_SPINS, POOL_THREADS, POOL_STARTED = 80, 81, 82, 83
POOL_MUTEX = 96
POOL_CONDITION = 112
POOL_TICKETS, TICKET_WORDS = 128, 16  # one for each thread: its share of the job's chunks
POOL_WORDS = 128  # without the tickets

# Words of the state that the entries get as `self`.
STATE_POOL, STATE_START, STATE_TRUE, STATE_FALSE = 0, 1, 2, 3
STATE_INT, STATE_NDARRAY, STATE_TYPE_ERROR, STATE_MESSAGE = 4, 5, 6, 7
STATE_LOOK, STATE_MAIN_THREAD = 8, 9
STATE_WORDS = 16

# A ticket is (job number << JOB_SHIFT) | (first chunk << CHUNK_BITS) | end, for the range of chunks not yet taken.
CHUNK_BITS = 18
JOB_SHIFT = 2 * CHUNK_BITS
MAX_CHUNKS = (1 << CHUNK_BITS) - 1
# How long an idle worker spins for the next job before it sleeps; kernels of one program follow each other faster than
# this.
SPIN_NANOSECONDS = 40_000
# The cost of waking threads in nanoseconds: initial estimate, minimum and maximum. A virtual machine needs 10,000 for
# the system call, and as long again until the sleeper runs.
WAKING, LEAST_WAKING, MOST_WAKING = 20_000, 2_000, 200_000
BEGINS = 64  # POOL_SPINS divided by this: iterations that a thread has to begin its share before others take it: 0.6 us
MAX_JOB = (1 << (63 - JOB_SHIFT)) - 1
LONG_WAIT = 20000  # iterations in which a program waiting for another device yields its core before it sleeps: a few ms

# How often loops check for signals. Looking needs the GIL, for which a thread may wait 5 ms.
LOOK_NANOSECONDS = 100_000_000
MOST_TURNS = 1 << 40

CLOCK = time.CLOCK_MONOTONIC
CONSTANTS = {name: value for name, value in globals().items() if name.isupper() and isinstance(value, int)}


@record(frozen=True)
class NativeFunction:
    """One C function `result NAME(params...)`; `calls` maps each function it calls to (params, result)."""

    name: str
    text: str
    params: tuple[str, ...]
    result: str = "void"
    calls: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    exported: bool = False
    constants: Mapping[str, int] = field(default_factory=lambda: CONSTANTS)


Work = tuple[Number, Number, Number]  # of a kernel: items, grain, and nanoseconds on one thread (0: unknown)


def work_ahead(steps: Sequence[Work | bool]) -> list[Number]:
    """For each step the approximate single-thread nanoseconds of the parallel work in it and the following steps, which
    decide whether sleeping threads are woken. At most MOST_WAKING, the value used for loops and for kernels of unknown
    duration. steps: the work of each kernel; True for a jump back, False for other steps."""
    total: Number = 0
    found: list[Number] = []
    for step in reversed(steps):
        if step is True:
            total = MOST_WAKING
        elif step is not False:
            items, grain, time = step
            known = MOST_WAKING if isinstance(time, int) and time == 0 else time
            total = lower_of(total + chosen(items > grain, known, 0), MOST_WAKING)
        found.append(total)
    return found[::-1]


def words(count: int) -> tuple[str, ...]:
    return ("s64",) * count


C_LIBRARY = {
    "pthread_mutex_lock": (words(1), "s32"),
    "pthread_mutex_unlock": (words(1), "s32"),
    "pthread_cond_wait": (words(2), "s32"),
    "pthread_cond_broadcast": (words(1), "s32"),
    "sched_yield": ((), "s32"),
    "usleep": (words(1), "s32"),
    "clock_gettime": (words(2), "s32"),
}
_PYTHON = {
    "PyLong_AsLongLong": (words(1), "s64"),
    "PyErr_Occurred": ((), "s64"),
    "PyErr_CheckSignals": ((), "s32"),
    "PyErr_SetString": (words(2), "void"),
    "PyObject_CallNoArgs": (words(1), "s64"),
    "PyEval_SaveThread": ((), "s64"),
    "PyEval_RestoreThread": (words(1), "void"),
    "Py_IncRef": (words(1), "void"),
    "Py_DecRef": (words(1), "void"),
}

# Each thread has a share of the chunks, the same share of every kernel, so that it finds its earlier writes in its
# core's cache: a loop over 256 KB was three times as slow when any thread took any chunk. A thread that finishes early
# helps the others, from the far end of their shares; it first gives an awake owner time to begin, because stealing a
# short share costs more than that when its memory is in another core's cache.
#
# A ticket carries the job's number and the remaining chunks of a share. A successful exchange took a chunk of a job
# that was not over, so the caller had not begun to describe the next job, and the description read just before belongs
# to this one. A worker that slept through the end of its job finds a different number, or no chunk left. For the same
# reason there is no waiting for workers to leave: a job is over when all of its chunks are counted, and workers that
# never woke up cost nothing.
WORK = """
def hloom_work(pool, job, own):
    done = 0
    chunks = relaxed_load(pool, POOL_CHUNKS)
    shares = relaxed_load(pool, POOL_SHARES)
    for turn in range(shares):
        share = (own + turn) % shares
        place = POOL_TICKETS + TICKET_WORDS * share
        begin = chunks * share // shares
        helps = share != own and shares != 1
        patience = 0
        if helps:
            patience = relaxed_load(pool, POOL_PATIENCE)
        while True:
            ticket = atomic_load(pool, place)
            first = (ticket >> CHUNK_BITS) & MAX_CHUNKS
            end = ticket & MAX_CHUNKS
            if ticket >> JOB_SHIFT != job or first == end:
                break
            if patience > 0 and first == begin:
                patience -= 1
                pause()
                continue
            kernel = relaxed_load(pool, POOL_KERNEL)
            args = relaxed_load(pool, POOL_ARGS)
            items = relaxed_load(pool, POOL_ITEMS)
            grain = relaxed_load(pool, POOL_GRAIN)
            chunk = first
            left = ticket + (1 << CHUNK_BITS)
            if helps:
                chunk = end - 1
                left = ticket - 1
            if compare_exchange(pool, place, ticket, left):
                call_kernel(kernel, args, chunk * grain, min(items, (chunk + 1) * grain))
                done += 1
        if turn == 0 and done != 0:
            if atomic_add(pool, POOL_FINISHED, done) + done == chunks:
                return
            done = 0
    if done != 0:
        atomic_add(pool, POOL_FINISHED, done)
"""

NOW = """
def hloom_now(pool):
    clock_gettime(CLOCK, pool + 8 * POOL_CLOCK)
    return load(pool, POOL_CLOCK) * 1000000000 + load(pool, POOL_CLOCK + 1)
"""

# Whether sleeping workers are woken for a kernel: if it is long, or if callers have done as much work alone, without a
# pause in which workers would have gone back to sleep. An occasional call of 5 us took 25 us when it woke workers each
# time.
WAKES = """
def hloom_wakes(pool, nanoseconds, asleep):
    waking = relaxed_load(pool, POOL_WAKING)
    if nanoseconds == 0 or nanoseconds >= waking:
        return 1
    if asleep == 0:
        return 0
    alone = nanoseconds
    if hloom_now(pool) - relaxed_load(pool, POOL_UNTIL) < SPIN_NANOSECONDS:
        alone += relaxed_load(pool, POOL_ALONE)
    if alone < waking:
        relaxed_store(pool, POOL_ALONE, alone)
        return 0
    relaxed_store(pool, POOL_ALONE, 0)
    return 1
"""

PARALLEL = """
def hloom_parallel(pool, kernel, args, items, grain, side_by_side, nanoseconds):
    chunks = (items - 1) // grain + 1
    asleep = atomic_load(pool, POOL_SLEEPERS)
    wakes = hloom_wakes(pool, nanoseconds, asleep)
    helped = load(pool, POOL_STARTED) != 0 and (wakes != 0 or asleep + 1 < load(pool, POOL_THREADS))
    if not helped or chunks > MAX_CHUNKS or not compare_exchange(pool, POOL_LOCK, 0, 1):
        # Alone, or the pool has another caller's job: do all chunks here, the same ones.
        for chunk in range(chunks):
            call_kernel(kernel, args, chunk * grain, min(items, (chunk + 1) * grain))
        if asleep != 0:
            relaxed_store(pool, POOL_UNTIL, hloom_now(pool))
        return
    job = (atomic_load(pool, POOL_JOB) + 1) & MAX_JOB
    shares = 1
    if side_by_side == 0:
        shares = min(load(pool, POOL_THREADS), chunks)
    patience = 0
    if asleep == 0:
        patience = load(pool, POOL_SPINS) // BEGINS
    relaxed_store(pool, POOL_KERNEL, kernel)
    relaxed_store(pool, POOL_ARGS, args)
    relaxed_store(pool, POOL_ITEMS, items)
    relaxed_store(pool, POOL_GRAIN, grain)
    relaxed_store(pool, POOL_CHUNKS, chunks)
    relaxed_store(pool, POOL_SHARES, shares)
    relaxed_store(pool, POOL_PATIENCE, patience)
    relaxed_store(pool, POOL_FINISHED, 0)
    first = 0
    for share in range(shares):
        end = chunks * (share + 1) // shares
        relaxed_store(pool, POOL_TICKETS + TICKET_WORDS * share, (job << JOB_SHIFT) | (first << CHUNK_BITS) | end)
        first = end
    atomic_store(pool, POOL_JOB, job)
    # A worker counts itself as a sleeper before it looks for a job for the last time, so either it sees the new one or
    # it is seen here.
    if atomic_load(pool, POOL_SLEEPERS) != 0 and wakes != 0:
        begin = hloom_now(pool)
        pthread_mutex_lock(pool + 8 * POOL_MUTEX)
        pthread_cond_broadcast(pool + 8 * POOL_CONDITION)
        pthread_mutex_unlock(pool + 8 * POOL_MUTEX)
        # Who has only just gone to sleep is woken quickly; that says little of one who slept for long.
        waking = relaxed_load(pool, POOL_WAKING)
        change = max(LEAST_WAKING, min(MOST_WAKING, 2 * (hloom_now(pool) - begin))) - waking
        if change > 0:
            relaxed_store(pool, POOL_WAKING, waking + change // 4)
        else:
            relaxed_store(pool, POOL_WAKING, waking + change // 64)
    hloom_work(pool, job, 0)
    spins = 0
    limit = load(pool, POOL_SPINS)
    while atomic_load(pool, POOL_FINISHED) != chunks:
        spins += 1
        if spins > limit:
            sched_yield()  # more threads than processors: let the worker that holds the last chunk run
        else:
            pause()
    atomic_store(pool, POOL_LOCK, 0)
"""

WORKER = """
def hloom_worker(pool, number):
    seen = -1
    limit = load(pool, POOL_SPINS)
    while True:
        spins = 0
        job = atomic_load(pool, POOL_JOB)
        while job == seen:
            if atomic_load(pool, POOL_STOP) != 0:
                return
            spins += 1
            if spins > limit:
                pthread_mutex_lock(pool + 8 * POOL_MUTEX)
                atomic_add(pool, POOL_SLEEPERS, 1)
                while atomic_load(pool, POOL_JOB) == seen and atomic_load(pool, POOL_STOP) == 0:
                    pthread_cond_wait(pool + 8 * POOL_CONDITION, pool + 8 * POOL_MUTEX)
                atomic_add(pool, POOL_SLEEPERS, -1)
                pthread_mutex_unlock(pool + 8 * POOL_MUTEX)
                spins = 0
            pause()
            job = atomic_load(pool, POOL_JOB)
        seen = job
        hloom_work(pool, job, number)
"""

STOP = """
def hloom_stop(pool):
    atomic_store(pool, POOL_STOP, 1)
    pthread_mutex_lock(pool + 8 * POOL_MUTEX)
    pthread_cond_broadcast(pool + 8 * POOL_CONDITION)
    pthread_mutex_unlock(pool + 8 * POOL_MUTEX)
"""

SPIN = """
def hloom_spin(pool, turns):
    for _ in range(turns):
        if atomic_load(pool, POOL_JOB) != 0:
            return
        pause()
"""

# The number of jumps back after which a loop asks again, so that it looks at the clock some times in LOOK_NANOSECONDS
# however long one iteration takes; 0 where a signal handler raised.
TURNS = """
def hloom_turns(block):
    clock_gettime(CLOCK, block + 8 * BLOCK_CLOCK)
    now = load(block, BLOCK_CLOCK) * 1000000000 + load(block, BLOCK_CLOCK + 1)
    seen = load(block, BLOCK_SEEN)
    turns = load(block, BLOCK_TURNS)
    store(block, BLOCK_SEEN, now)
    if seen == 0:
        store(block, BLOCK_LOOKED, now)
        return turns
    if now - load(block, BLOCK_LOOKED) >= LOOK_NANOSECONDS:
        if load(block, BLOCK_LOOK) != 0:
            call_kernel(load(block, BLOCK_LOOK), block, 0, 0)
            if load(block, BLOCK_INTERRUPTED) != 0:
                return 0
        store(block, BLOCK_LOOKED, now)
    if (now - seen) * 8 < LOOK_NANOSECONDS:
        turns = min(turns * 2, MOST_TURNS)
    elif (now - seen) * 2 > LOOK_NANOSECONDS:
        turns = max(1, turns // 4)
    store(block, BLOCK_TURNS, turns)
    return turns
"""

# Runs the handlers of pending signals. CPython does so in its main thread only.
LOOK_FOR_SIGNALS = """
def hloom_look(block, low, high):
    thread = load(block, BLOCK_THREAD)
    if thread != 0:
        PyEval_RestoreThread(thread)
    if PyErr_CheckSignals() != 0:
        store(block, BLOCK_INTERRUPTED, 1)
    if thread != 0:
        store(block, BLOCK_THREAD, PyEval_SaveThread())
"""

# block: the activation's, or 0 where no Python is around.
RUN = """
def hloom_run(pool, steps, step_count, relocations, relocation_count, args, slots, block):
    step = 0
    if block != 0:
        step = load(block, BLOCK_AT)
        store(block, BLOCK_AT, -1)
    if step == 0:
        for relocation in range(relocation_count):
            entry = relocations + 24 * relocation
            store(args, load(entry, 0), load(slots, load(entry, 1)) + load(entry, 2))
    turns = 1
    while step < step_count:
        row = steps + 8 * STEP_WORDS * step
        opcode = load(row, 0)
        step += 1
        if opcode == KERNEL:
            kernel = load(row, 1)
            words = args + 8 * load(row, 2)
            items = load(row, 3)
            grain = load(row, 4)
            if grain <= 0 or items <= grain:
                call_kernel(kernel, words, 0, items)
            else:
                hloom_parallel(pool, kernel, words, items, grain, load(row, 5), load(row, 6))
        elif opcode == JUMP:
            step = load(row, 1)
        elif opcode == LOOP:
            step = load(row, 1)
            turns -= 1
            if turns == 0:
                turns = MOST_TURNS
                if block != 0:
                    turns = hloom_turns(block)
                if turns == 0 or load_byte(load(args, load(row, 2))) == 0:
                    return
        elif opcode == LOOK:
            if block != 0 and load(block, BLOCK_LOOK) != 0:
                call_kernel(load(block, BLOCK_LOOK), block, 0, 0)
                if load(block, BLOCK_INTERRUPTED) != 0:
                    return
        elif opcode == JUMP_IF_ZERO:
            if load_byte(load(args, load(row, 2))) == 0:
                step = load(row, 1)
        elif opcode == COPY:
            copy_bytes(load(args, load(row, 1)), load(args, load(row, 2)), load(row, 3))
        elif opcode == SWITCH:
            # Read as unsigned, so that a negative number is out of range too, where the last target counts.
            chosen = load(args, load(row, 1))
            low = load_byte(chosen) | load_byte(chosen + 1) << 8
            chosen = low | load_byte(chosen + 2) << 16 | load_byte(chosen + 3) << 24
            step = load(args, load(row, 3) + min(chosen, load(row, 2) - 1))
        elif opcode == SWAP:
            first = load(row, 1)
            second = load(row, 3)
            address = load(args, load(args, first))
            other = load(args, load(args, second))
            for place in range(first, first + load(row, 2)):
                store(args, load(args, place), other)
            for place in range(second, second + load(row, 4)):
                store(args, load(args, place), address)
        elif opcode == SIGNAL:
            atomic_add(load(args, load(row, 1)), 0, load(row, 2))
        elif opcode == AWAIT:
            first = load(args, load(row, 1))
            second = load(args, load(row, 2))
            status = load(args, load(row, 3))
            spins = 0
            limit = load(pool, POOL_SPINS)
            while atomic_load(first, 0) < atomic_load(second, 0):
                if load_byte(status) == 0:
                    return
                if block != 0 and load(block, BLOCK_FLAGS) & FLAG_RESUMES != 0:
                    store(block, BLOCK_FIRST, first)
                    store(block, BLOCK_SECOND, second)
                    store(block, BLOCK_AT, step - 1)
                    return
                spins += 1
                if spins <= limit:
                    pause()
                elif spins <= limit + LONG_WAIT:
                    sched_yield()
                else:
                    usleep(50)
        elif opcode == POLL:
            words = args + 8 * load(row, 2)
            call_kernel(load(row, 1), words, 0, 0)
            batch = load(words, 0)
            if load(batch, BATCH_DONE) == 0:
                if load_byte(load(words, 1)) == 0:
                    return
                if load(batch, BATCH_TURNS) % BATCH_LOOK == 0 and block != 0 and load(block, BLOCK_LOOK) != 0:
                    call_kernel(load(block, BLOCK_LOOK), block, 0, 0)
                    if load(block, BLOCK_INTERRUPTED) != 0:
                        return
                step -= 1
                if block != 0 and load(block, BLOCK_FLAGS) & FLAG_RESUMES != 0:
                    store(block, BLOCK_FIRST, 0)
                    store(block, BLOCK_AT, step)
                    return
        else:
            return
"""

# The entries below are called by Python itself with the GIL held, and answer a new reference or 0 after an error.
ENTER = """
def hloom_enter(state, block):
    if not compare_exchange(block, BLOCK_BUSY, 0, 1):
        answer = load(state, STATE_FALSE)
        Py_IncRef(answer)
        return answer
    pool = load(state, STATE_POOL)
    flags = load(block, BLOCK_FLAGS)
    if flags & FLAG_PARALLEL != 0 and load(pool, POOL_STARTED) == 0 and load(pool, POOL_THREADS) > 1:
        started = PyObject_CallNoArgs(load(state, STATE_START))
        if started == 0:
            atomic_store(block, BLOCK_BUSY, 0)
            return 0
        Py_DecRef(started)
        pool = load(state, STATE_POOL)
    thread = 0
    if flags & FLAG_RELEASE_GIL != 0:
        thread = PyEval_SaveThread()
    if flags & FLAG_LOOKS != 0:
        store(block, BLOCK_INTERRUPTED, 0)
        store(block, BLOCK_THREAD, thread)
        store(block, BLOCK_TURNS, 1)
        store(block, BLOCK_SEEN, 0)
        look = 0
        if pthread_self() == load(state, STATE_MAIN_THREAD):
            look = load(state, STATE_LOOK)
        store(block, BLOCK_LOOK, look)
    store(block, BLOCK_AT, 0)
    hloom_run(
        pool, load(block, BLOCK_STEPS), load(block, BLOCK_STEP_COUNT), load(block, BLOCK_RELOCATIONS),
        load(block, BLOCK_RELOCATION_COUNT), load(block, BLOCK_ARGS), load(block, BLOCK_SLOTS), block,
    )
    if flags & FLAG_RELEASE_GIL != 0:
        if flags & FLAG_LOOKS != 0:
            thread = load(block, BLOCK_THREAD)
        PyEval_RestoreThread(thread)
    interrupted = flags & FLAG_LOOKS != 0 and load(block, BLOCK_INTERRUPTED) != 0
    atomic_store(block, BLOCK_BUSY, 0)
    if interrupted:
        return 0
    answer = load(state, STATE_TRUE)
    Py_IncRef(answer)
    return answer
"""

ENTRY_RUN = """
def hloom_entry_run(self, argument):
    block = PyLong_AsLongLong(argument)
    if block == -1 and PyErr_Occurred() != 0:
        return 0
    return hloom_enter(PyLong_AsLongLong(self), block)
"""

ENTRY_CALL = """
def hloom_entry_call(self, arguments, count):
    state = PyLong_AsLongLong(self)
    block = 0
    if count > 0:
        block = PyLong_AsLongLong(load(arguments, 0))
        if block == -1 and PyErr_Occurred() != 0:
            return 0
    if block == 0 or count - 1 > load(block, BLOCK_SLOT_COUNT):
        PyErr_SetString(load(state, STATE_TYPE_ERROR), load(state, STATE_MESSAGE))
        return 0
    if not compare_exchange(block, BLOCK_BUSY, 0, 1):
        answer = load(state, STATE_FALSE)
        Py_IncRef(answer)
        return answer
    slots = load(block, BLOCK_SLOTS)
    for position in range(1, count):
        value = load(arguments, position)
        kind = load(value, OBJECT_TYPE)
        if kind == load(state, STATE_INT):
            address = PyLong_AsLongLong(value)
        elif kind == load(state, STATE_NDARRAY):
            address = load(value, OBJECT_DATA)
        else:
            atomic_store(block, BLOCK_BUSY, 0)
            PyErr_SetString(load(state, STATE_TYPE_ERROR), load(state, STATE_MESSAGE))
            return 0
        store(slots, position - 1, address)
    atomic_store(block, BLOCK_BUSY, 0)
    return hloom_enter(state, block)
"""

# Where CPython keeps an object's type, and NumPy an array's data address, in words; `driver` checks both.
OBJECT_DATA = object.__basicsize__ // 8
OBJECT_TYPE = OBJECT_DATA - 1

_CLOCK = {"hloom_now": (words(1), "s64")}
RUN_SIGNATURE = {"hloom_run": (words(8), "void"), "pthread_self": ((), "s64")}
_ENTRY = CONSTANTS | {"OBJECT_TYPE": OBJECT_TYPE, "OBJECT_DATA": OBJECT_DATA}

FUNCTIONS = (
    NativeFunction("hloom_work", WORK, words(3)),
    NativeFunction(
        "hloom_parallel", PARALLEL, words(7),
        calls=C_LIBRARY | _CLOCK | {"hloom_work": (words(3), "void"), "hloom_wakes": (words(3), "s64")},
    ),
    NativeFunction("hloom_now", NOW, words(1), "s64", calls=C_LIBRARY),
    NativeFunction("hloom_wakes", WAKES, words(3), "s64", calls=_CLOCK),
    NativeFunction(
        "hloom_worker", WORKER, words(2), calls=C_LIBRARY | {"hloom_work": (words(3), "void")}, exported=True
    ),
    NativeFunction("hloom_stop", STOP, words(1), calls=C_LIBRARY, exported=True),
    NativeFunction("hloom_spin", SPIN, words(2), exported=True),
    NativeFunction(
        "hloom_run", RUN, words(8),
        calls=C_LIBRARY | {"hloom_parallel": (words(7), "void"), "hloom_turns": (words(1), "s64")}, exported=True,
    ),
    NativeFunction("hloom_turns", TURNS, words(1), "s64", calls=C_LIBRARY),
    NativeFunction("hloom_look", LOOK_FOR_SIGNALS, words(3), calls=_PYTHON, exported=True),
    NativeFunction("hloom_enter", ENTER, words(2), "s64", calls=_PYTHON | RUN_SIGNATURE),
    NativeFunction(
        "hloom_entry_run", ENTRY_RUN, words(2), "s64",
        calls=_PYTHON | {"hloom_enter": (words(2), "s64")}, exported=True,
    ),
    NativeFunction(
        "hloom_entry_call", ENTRY_CALL, words(3), "s64",
        calls=_PYTHON | {"hloom_enter": (words(2), "s64")}, exported=True, constants=_ENTRY,
    ),
)  # fmt: skip
