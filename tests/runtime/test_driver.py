"""The driver: steps, chunks, threads, forks, several callers, and the end of the process."""

import ctypes
import itertools
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from hloom.backends.cpu.driver import driver, load_kernels
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.runtime.buffer import address
from hloom.runtime.driver import (
    COPY,
    END,
    JUMP,
    JUMP_IF_ZERO,
    KERNEL,
    SWAP,
    SWITCH,
    default_num_threads,
    step,
)
from hloom.runtime.driver_source import BLOCK_BUSY, MOST_WAKING, POOL_SLEEPERS, POOL_STARTED

ADD_ONE = KernelSource(
    "add_one",
    """def add_one(x, o, lo, hi):
    for i in range(lo, hi):
        o[i] = x[i] + f32(1)
""",
    ("f32*", "f32*", "s64", "s64"),
)
# Sums each chunk into its own place, so that the result shows where the chunks were cut.
CHUNK_SUM = KernelSource(
    "chunk_sum",
    """def chunk_sum(x, o, grain, lo, hi):
    total = f32(0)
    for i in range(lo, hi):
        total = total + x[i]
    o[lo // grain] = total
""",
    ("f32*", "f32*", "s64", "s64", "s64"),
)
COUNT_VISITS = KernelSource(
    "count_visits",
    """def count_visits(o, n, lo, hi):
    for i in range(lo, hi):
        for j in range(n):
            o[i] = o[i] + 1
""",
    ("s64*", "s64", "s64", "s64"),
)
# A chain of dependent float operations, which no optimizer shortens: some nanoseconds for each turn.
SLOW = KernelSource(
    "slow",
    """def slow(o, n, lo, hi):
    for i in range(lo, hi):
        value = f64(0)
        for j in range(n):
            value = value * f64(0.5) + f64(1)
        o[i] = o[i] + value
""",
    ("f64*", "s64", "s64", "s64"),
)
LESS = KernelSource(
    "less",
    """def less(counter, p, bound, lo, hi):
    counter[0] = counter[0] + 1
    store_pred(p, 0, counter[0] < bound)
""",
    ("s64*", "pred*", "s64", "s64", "s64"),
)


@pytest.fixture
def machine():
    made = driver()
    before = made.num_threads
    yield made
    made.set_num_threads(before)


def kernel(source):
    return load_kernels([source])[0]


def test_one_kernel_with_inputs_as_arrays_and_as_addresses(machine):
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    act = machine.activation([step(KERNEL, kernel(ADD_ONE), 0, 100, 0)], [(0, 0, 0), (1, 1, 0)], [0, 0], 2)
    assert machine.call(act.address, x, out) is True
    np.testing.assert_array_equal(out, x + 1)
    other = np.zeros(100, np.float32)
    assert machine.call(act.address, out.ctypes.data, other.ctypes.data) is True
    np.testing.assert_array_equal(other, x + 2)
    other[:] = 0
    assert machine.run(act.address) is True  # the slots are as the last call left them
    np.testing.assert_array_equal(other, x + 2)


def test_relocations_add_byte_offsets_and_args_offsets_select_words(machine):
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    address = kernel(ADD_ONE)
    act = machine.activation(
        [step(KERNEL, address, 3, 10, 0), step(KERNEL, address, 1, 5, 0)],
        [(3, 0, 40), (4, 1, 0), (1, 0, 0), (2, 1, 80)],
        [-1] * 5,
        2,
    )
    machine.call(act.address, x, out)
    expected = np.zeros(100, np.float32)
    expected[:10] = x[10:20] + 1
    expected[20:25] = x[:5] + 1
    np.testing.assert_array_equal(out, expected)


def test_jump_condition_copy_and_end(machine):
    """A loop of 5 turns, a jump over a step, a copy, and a step after the end that must not run."""
    counter, flag = np.zeros(1, np.int64), np.zeros(1, np.bool_)
    visits, copied = np.zeros(4, np.int64), np.zeros(4, np.int64)
    args = [counter.ctypes.data, flag.ctypes.data, 5, visits.ctypes.data, 1, copied.ctypes.data]
    steps = [
        step(KERNEL, kernel(COUNT_VISITS), 3, 2, 0),
        step(KERNEL, kernel(LESS), 0, 1, 0),
        step(JUMP_IF_ZERO, 4, 1),
        step(JUMP, 0),
        step(JUMP, 6),
        step(KERNEL, kernel(COUNT_VISITS), 3, 4, 0),
        step(COPY, 5, 3, 24),
        step(END),
        step(KERNEL, kernel(COUNT_VISITS), 3, 4, 0),
    ]
    act = machine.activation(steps, [], args, 0)
    assert machine.run(act.address)
    assert counter[0] == 5 and visits.tolist() == [5, 5, 0, 0] and copied.tolist() == [5, 5, 0, 0]
    visits[3] = 9
    counter[:] = 10
    machine.run(act.address)
    assert copied.tolist() == [6, 6, 0, 0]


@pytest.mark.parametrize(
    "index, chosen", [(0, 0), (1, 1), (2, 2), (3, 2), (300, 2), (2**31 - 1, 2), (-1, 2), (-(2**31), 2)]
)
def test_switch(machine, index, chosen):
    """The s32 chooses one of three copies; out of range it is the last."""
    number, sources, target = np.array([index], np.int32), np.array([10, 20, 30], np.int64), np.zeros(1, np.int64)
    args = np.array(
        [address(number), address(target), *(address(sources) + 8 * k for k in range(3)), 1, 3, 5], np.int64
    )
    steps = [
        step(SWITCH, 0, 3, 5),
        step(COPY, 1, 2, 8),
        step(JUMP, 6),
        step(COPY, 1, 3, 8),
        step(JUMP, 6),
        step(COPY, 1, 4, 8),
        step(END),
    ]
    assert machine.run(machine.activation(steps, [], args, 0).address) is True
    assert target[0] == sources[chosen]


def test_swap_exchanges_the_addresses_in_all_words(machine):
    """x = x + 1 from one buffer into the other, three times: the third result is in the second buffer."""
    both = np.zeros((2, 16), np.float32)
    first, second = address(both[0]), address(both[1])
    (add,) = load_kernels([ADD_ONE])
    args = np.array([first, second, first, 0, 2, 1], np.int64)
    steps = [step(KERNEL, add, 0, 16, 16), step(SWAP, 3, 2, 5, 1)]
    activation = machine.activation(steps, [], args, 0)
    for turn in range(3):
        assert machine.run(activation.address)
        assert list(args[:3]) == ([second, first, second] if turn % 2 == 0 else [first, second, first])
    assert both[1][0] == 3 and both[0][0] == 2


@pytest.mark.parametrize("items, grain", [(1000, 7), (1000, 1), (1000, 999), (1000, 1000), (1000, 1001), (64, 16)])
def test_results_are_bitwise_equal_for_every_number_of_threads(machine, items, grain):
    x = np.random.default_rng(1).standard_normal(items).astype(np.float32)
    chunks = -(-items // grain)
    expected = None
    for threads in (1, 2, 3, 4):
        machine.set_num_threads(threads)
        assert machine.num_threads == threads
        for _ in range(20):
            out = np.zeros(chunks, np.float32)
            act = machine.activation(
                [step(KERNEL, kernel(CHUNK_SUM), 0, items, grain)], [(0, 0, 0), (1, 1, 0)], [0, 0, grain], 2
            )
            machine.call(act.address, x, out)
            expected = out.tobytes() if expected is None else expected
            assert out.tobytes() == expected


def test_every_item_is_done_once_over_many_parallel_steps(machine):
    """Short steps in quick succession: workers arrive late, and must not take chunks of a later step."""
    machine.set_num_threads(4)
    visits = np.zeros(50, np.int64)
    steps = [step(KERNEL, kernel(COUNT_VISITS), 0, items, 1) for items in (50, 3, 17, 2, 50, 9)] * 50
    act = machine.activation(steps, [], [visits.ctypes.data, 1], 0)
    for _ in range(20):
        machine.run(act.address)
    expected = sum((np.arange(50) < items) * 1000 for items in (50, 3, 17, 2, 50, 9))
    np.testing.assert_array_equal(visits, expected)


@pytest.mark.parametrize("chunks, threads", [(2, 2), (3, 2), (8, 2), (8, 3), (3, 8)])
@pytest.mark.parametrize("side_by_side", [0, 1])
def test_each_thread_has_a_share_and_helps_from_the_far_end(machine, chunks, threads, side_by_side):
    """What a thread wrote in one kernel it finds in its core's cache in the next; side by side all take the next."""
    machine.set_num_threads(threads)
    taken = []  # (thread, chunk), in the order in which the chunks began

    def note(arguments, lo, hi):
        taken.append((threading.get_ident(), lo))
        time.sleep(0.002)

    callback = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(note)
    where = ctypes.cast(callback, ctypes.c_void_p).value
    act = machine.activation([step(KERNEL, where, 0, chunks, 1, side_by_side)], [], [0], 0)
    for _ in range(5):
        taken.clear()
        machine.run(act.address)
        assert sorted(chunk for _, chunk in taken) == list(range(chunks))
        shares = 1 if side_by_side else min(threads, chunks)
        ends = [chunks * k // shares for k in range(shares + 1)]
        for thread in {thread for thread, _ in taken}:
            mine = [chunk for owner, chunk in taken if owner == thread]
            pieces = [[c for c in mine if lo <= c < hi] for lo, hi in itertools.pairwise(ends)]
            # One share from its begin, others, if at all, from their ends.
            assert sum(len(piece) > 1 and piece == sorted(piece) for piece in pieces) <= 1
            if side_by_side:
                assert mine == sorted(mine)
            elif thread == threading.get_ident():
                assert pieces[0] == list(range(len(pieces[0])))


def test_workers_wake_up_after_a_pause(machine):
    machine.set_num_threads(3)
    visits = np.zeros(64)
    act = machine.activation([step(KERNEL, kernel(SLOW), 0, 64, 1)], [], [visits.ctypes.data, 20_000], 0)
    for turn in range(1, 6):
        time.sleep(0.02)  # long enough that every worker sleeps
        machine.run(act.address)
        assert (visits == turn * 2.0).all()


def test_sleepers_are_woken_for_what_takes_longer_than_waking(machine):
    """A long step wakes them, a short one does not, many short ones without a pause do in the end."""
    machine.set_num_threads(2)
    threads, both = [], threading.Event()

    def note(arguments, lo, hi):
        threads.append(threading.get_ident())
        if len(set(threads)) == 2:
            both.set()
        both.wait(patience)

    callback = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(note)
    where = ctypes.cast(callback, ctypes.c_void_p).value

    def takers(steps, nanoseconds, seconds):
        nonlocal patience
        patience = seconds
        act = machine.activation([step(KERNEL, where, 0, 4, 1, 0, nanoseconds)] * steps, [], [0], 0)
        pool = machine._pools[-1]
        while pool.words[POOL_STARTED] and not pool.words[POOL_SLEEPERS]:
            time.sleep(0.001)
        threads.clear()
        both.clear()
        machine.run(act.address)
        assert len(threads) == 4 * steps
        return set(threads)

    patience = 0.0  # seconds for which a thread that is alone so far leaves chunks to another
    assert len(takers(1, 0, 30)) == 2  # how long is not known: it may be long
    assert len(takers(1, MOST_WAKING, 30)) == 2
    for _ in range(3):
        time.sleep(0.001)  # a pause between them
        assert takers(1, 1000, 0.01) == {threading.get_ident()}
    assert len(takers(MOST_WAKING // 1000 + 5, 1000, 0.001)) == 2


def test_one_thread_starts_no_worker():
    program = """
import threading, numpy as np
from hloom.backends.cpu.driver import driver
from tests.runtime.test_driver import *
d = driver()
assert d.num_threads == 1, d.num_threads
visits = np.zeros(8, np.int64)
act = d.activation([step(KERNEL, kernel(COUNT_VISITS), 0, 8, 1)], [], [visits.ctypes.data, 1], 0)
d.run(act.address)
assert (visits == 1).all()
workers = lambda: [t.name for t in threading.enumerate() if t.name.startswith("hloom-worker")]
assert workers() == []
d.set_num_threads(3)
assert workers() == []   # workers start with the first parallel step
d.run(act.address)
assert len(workers()) == 2
"""
    in_a_process(program, HLOOM_NUM_THREADS="1")


def test_a_wrong_number_of_threads_is_refused(machine, monkeypatch):
    with pytest.raises(ValueError, match="at least 1"):
        machine.set_num_threads(0)
    for wrong in ("two", "0", "-1", "1.5"):
        monkeypatch.setenv("HLOOM_NUM_THREADS", wrong)
        with pytest.raises(ValueError, match=f"HLOOM_NUM_THREADS.*'{wrong}'"):
            default_num_threads()
    monkeypatch.setenv("HLOOM_NUM_THREADS", "7")
    assert default_num_threads() == 7


def test_several_python_threads_at_once(machine):
    """Each caller has its own activation; whoever finds the pool busy does its chunks alone."""
    machine.set_num_threads(3)
    failures = []

    def work(seed):
        x = np.random.default_rng(seed).standard_normal(4000).astype(np.float32)
        act = machine.activation(
            [step(KERNEL, kernel(ADD_ONE), 0, 4000, 100), step(KERNEL, kernel(ADD_ONE), 2, 4000, 100)],
            [(0, 0, 0), (1, 1, 0), (2, 1, 0), (3, 2, 0)],
            [0] * 4,
            3,
        )
        for _ in range(300):
            middle, out = np.zeros_like(x), np.zeros_like(x)
            if not machine.call(act.address, x, middle, out) or not np.array_equal(out, (x + 1) + 1):
                failures.append(seed)
                return

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_busy_activation_is_refused_and_left_alone(machine):
    machine.set_num_threads(1)
    first, other = np.zeros(1), np.zeros(1)
    act = machine.activation([step(KERNEL, kernel(SLOW), 0, 1, 0)], [(0, 0, 0)], [0, 50_000_000], 1)
    thread = threading.Thread(target=lambda: machine.call(act.address, first))
    thread.start()
    while not act.block[BLOCK_BUSY]:
        time.sleep(0.0005)
    assert machine.call(act.address, other) is False
    assert machine.run(act.address) is False
    thread.join()
    assert first[0] == 2.0 and other[0] == 0.0
    assert machine.call(act.address, other) is True
    assert other[0] == 2.0


def test_the_gil_is_released_while_kernels_run(machine):
    machine.set_num_threads(1)
    visits = np.zeros(1)
    seen = []
    for release in (True, False):
        act = machine.activation(
            [step(KERNEL, kernel(SLOW), 0, 1, 0)], [], [visits.ctypes.data, 50_000_000], 0, release_gil=release
        )
        ticks, ready, stop = [], threading.Event(), threading.Event()

        def tick(ticks=ticks, ready=ready, stop=stop):
            while not stop.is_set():
                ticks.append(time.perf_counter())
                ready.set()
                time.sleep(0.001)

        thread = threading.Thread(target=tick)
        thread.start()
        ready.wait()
        start = time.perf_counter()
        machine.run(act.address)
        end = time.perf_counter()
        stop.set()
        thread.join()
        middle = [at for at in ticks if start + 0.1 * (end - start) < at < end - 0.1 * (end - start)]
        seen.append(len(middle))
    assert seen[0] > 3 and seen[1] == 0


@pytest.mark.parametrize("arguments", [("text",), (1.5,), (None,), (1, 2, 3), ([1],)])
def test_wrong_inputs_are_type_errors(machine, arguments):
    act = machine.activation([], [], [], 2)
    with pytest.raises(TypeError):
        machine.call(act.address, *arguments)
    assert machine.call(act.address, 1, 2) is True


def test_wrong_blocks_are_type_errors(machine):
    for arguments in ((), ("text",), (0,)):
        with pytest.raises(TypeError):
            machine.call(*arguments)
    with pytest.raises(TypeError):
        machine.run("text")


def test_references_are_balanced(machine):
    x, out = np.zeros(4, np.float32), np.zeros(4, np.float32)
    act = machine.activation([step(KERNEL, kernel(ADD_ONE), 0, 4, 0)], [(0, 0, 0), (1, 1, 0)], [0, 0], 2)
    counts = [sys.getrefcount(thing) for thing in (x, out, True, False, TypeError)]
    for _ in range(1000):
        machine.call(act.address, x, out)
        machine.run(act.address)
    after = [sys.getrefcount(thing) for thing in (x, out, True, False, TypeError)]
    assert all(abs(new - old) < 50 for old, new in zip(counts, after, strict=True))


def test_a_step_has_room_for_seven_operands():
    assert step(KERNEL, 1, 2) == [KERNEL, 1, 2, 0, 0, 0, 0, 0]
    with pytest.raises(ValueError, match="7 operands"):
        step(KERNEL, *range(8))


def in_a_process(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
        env={**os.environ, **environment}, cwd=os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Fatal" not in done.stderr and "Traceback" not in done.stderr, done.stderr[-3000:]


PARALLEL_PROGRAM = """
import os, sys, threading, time
import numpy as np
from tests.runtime.test_driver import *
d = driver()
visits = np.zeros(64, np.int64)
act = d.activation([step(KERNEL, kernel(COUNT_VISITS), 0, 64, 1)] * 20, [], [visits.ctypes.data, 1], 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_starts_its_own_workers():
    in_a_process(
        PARALLEL_PROGRAM
        + """
d.run(act.address)
child = os.fork()
if child == 0:
    visits[:] = 0
    d.run(act.address)
    named = [t.name for t in threading.enumerate() if t.name.startswith("hloom")]
    d.set_num_threads(2)
    d.run(act.address)
    os._exit(0 if (visits == 40).all() and len(named) == 2 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
d.run(act.address)
assert (visits == 40).all()
""",
        HLOOM_NUM_THREADS="3",
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_while_another_thread_runs_a_program():
    in_a_process(
        PARALLEL_PROGRAM
        + """
stop = threading.Event()
def busy():
    mine = np.zeros(64)
    other = d.activation([step(KERNEL, kernel(SLOW), 0, 64, 1)] * 20, [], [mine.ctypes.data, 1000], 0)
    while not stop.is_set():
        d.run(other.address)
thread = threading.Thread(target=busy)
thread.start()
for turn in range(10):
    child = os.fork()
    if child == 0:
        visits[:] = 0
        d.run(act.address)
        os._exit(0 if (visits == 20).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stop.set()
thread.join()
""",
        HLOOM_NUM_THREADS="3",
    )


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "sys.exit(0)",
        "os._exit(0)",
        "import atexit; atexit.register(lambda: d.run(act.address))",
        "threading.Thread(target=lambda: [d.run(act.address) for _ in range(10**6)], daemon=True).start()",
        "time.sleep(0.05)",
    ],
    ids=["falls off the end", "sys.exit", "os._exit", "runs in atexit", "daemon thread runs on", "workers asleep"],
)
def test_the_process_ends_quickly_and_cleanly(ending):
    start = time.perf_counter()
    in_a_process(PARALLEL_PROGRAM + "d.run(act.address)\n" + ending, HLOOM_NUM_THREADS="4")
    assert time.perf_counter() - start < 30


def test_changing_the_number_of_threads_while_programs_run(machine):
    machine.set_num_threads(2)
    stop, failures = threading.Event(), []

    def work():
        visits = np.zeros(100, np.int64)
        act = machine.activation([step(KERNEL, kernel(COUNT_VISITS), 0, 100, 3)] * 10, [], [visits.ctypes.data, 1], 0)
        turns = 0
        while not stop.is_set():
            machine.run(act.address)
            turns += 10
            if not (visits == turns).all():
                failures.append(turns)
                return

    thread = threading.Thread(target=work)
    thread.start()
    for count in (1, 3, 2, 4, 1, 2) * 3:
        machine.set_num_threads(count)
        time.sleep(0.003)
    stop.set()
    thread.join()
    assert failures == []


def test_native_run_has_a_plain_c_signature(machine):
    """hloom_run(pool, steps, count, relocations, count, args, slots, block), for callers that are not Python."""
    x, out = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    act = machine.activation([step(KERNEL, kernel(ADD_ONE), 0, 10, 0)], [(0, 0, 0), (1, 1, 0)], [0, 0], 2)
    act.slots[:] = x.ctypes.data, out.ctypes.data
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 8)(machine._addresses["hloom_run"])
    arrays = [array.ctypes.data for array in (act.steps, act.relocations, act.args, act.slots)]
    run(machine._pools[-1].address, arrays[0], 1, arrays[1], 2, *arrays[2:], 0)
    np.testing.assert_array_equal(out, x + 1)
