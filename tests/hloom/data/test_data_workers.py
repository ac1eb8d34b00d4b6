"""Workers end with their consumer, with the program, and are named when they are killed."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from hloom import data
from hloom.errors import WorkerError


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("hloom-")]


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat") as file:
        return file.read().split()[2] == "Z"


def pids(iterator):
    return sorted({int(next(iterator)) for _ in range(64)})


def numbers():
    return data.arrays(np.arange(10)).repeat()


def pid_of(_):
    return os.getpid()


def test_threads_end_with_the_iterator():
    others = {*threads()}  # of what ran in this process before
    for how in ("dropped", "closed"):
        iterator = iter(numbers().map(abs, threads=2).batch(3).prefetch(4))
        next(iterator)
        assert {*threads()} - others
        if how == "closed":
            iterator.close()
        del iterator
        gc.collect()
        assert until(lambda: not {*threads()} - others)


def test_processes_end_with_the_iterator():
    for how in ("dropped", "closed"):
        iterator = iter(numbers().map(pid_of, processes=2).prefetch(4))
        found = pids(iterator)
        assert len(found) == 2 and os.getpid() not in found
        if how == "closed":
            iterator.close()
        del iterator
        gc.collect()
        assert until(lambda: all(map(is_gone, found)))  # noqa: B023


def test_a_killed_worker_is_named():
    with iter(numbers().map(pid_of, processes=2)) as iterator:
        found = pids(iterator)
        os.kill(found[0], signal.SIGKILL)
        with pytest.raises(WorkerError, match=rf"pid {found[0]}\) of record \d of the arrays.*\n.*SIGKILL"):
            for _ in range(1000):
                next(iterator)
        with pytest.raises(WorkerError, match="SIGKILL"):
            next(iterator)
    assert until(lambda: is_gone(found[1]))


def test_results_that_cannot_be_pickled():
    with iter(numbers().map(lambda x: threading.Lock(), processes=1)) as iterator:
        with pytest.raises(WorkerError, match="use threads"):
            next(iterator)


def test_an_iterator_used_after_a_fork_says_so():
    with iter(numbers().batch(2).prefetch()) as iterator:
        next(iterator)
        child = os.fork()
        if not child:
            try:
                for _ in range(10):
                    next(iterator)
            except WorkerError as error:
                os._exit(7 if "fork" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        next(iterator)


PROGRAM = """
import os, sys, time
import numpy as np
from hloom import data

def slow(x):
    os.write(1, b"worker %d\\n" % os.getpid())
    time.sleep(0.05)
    return x

batches = iter(data.arrays(np.arange(1000)).map(slow, processes=2).batch(10).prefetch())
next(batches)
print("begun", flush=True)
{end}
"""


@pytest.mark.parametrize("how", ["exit", "interrupt", "killed"])
def test_workers_end_with_the_program(how):
    end = "" if how == "exit" else "for batch in batches: pass\ntime.sleep(60)"
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(end=end)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    workers = set()
    for line in program.stdout:
        if line.startswith("begun"):
            break
        workers.add(int(line.split()[1]))
    assert workers
    if how == "interrupt":
        os.killpg(program.pid, signal.SIGINT)  # as Ctrl-C does: workers get it, too
    elif how == "killed":
        os.kill(program.pid, signal.SIGKILL)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == {"exit": 0, "interrupt": -signal.SIGINT, "killed": -signal.SIGKILL}[how], errors
    assert ("KeyboardInterrupt" in errors) == (how == "interrupt") and "BrokenPipe" not in errors
    assert until(lambda: all(map(is_gone, workers)))


def test_a_consumer_can_be_interrupted_while_it_waits():
    def stuck():
        yield 1
        time.sleep(3)
        yield 2

    iterator = iter(data.generator(stuck).prefetch())
    next(iterator)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    begun = time.monotonic()
    iterator.close()
    assert time.monotonic() - begun < 2.5
