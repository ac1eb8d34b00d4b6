"""Messages between processes that native code sends and receives."""

import pytest
from test_launch import launched, lines

pytest.importorskip("mpi4py", reason="programs in several processes: pip install 'hloom[cluster]'")

SETUP = """
from hloom.backends.cpu.driver import driver, load_functions
from hloom.runtime.distributed.messages import FUNCTIONS, Batch, Message
from hloom.runtime.driver import step
from hloom.runtime.driver_source import KERNEL, POLL

hl.config.distributed_timeout = 1.0 if what else 60.0
other = 1 - me
transport = hl.distributed.group().transport(load_functions(FUNCTIONS))


def exchanged(messages, *buffers, times=1):
    state, batch = np.ones(1, np.uint8), Batch(transport, messages)
    words = np.array([batch.address, state.ctypes.data, *(b.ctypes.data for b in buffers)], np.int64)
    steps = [step(KERNEL, transport.start, 0, 1, 1), step(POLL, transport.poll, 0)]
    program = driver().activation(steps, [], words, np.zeros(1, np.int64))
    for _ in range(times):
        driver().run(program.address)
    return int(state[0]), batch.failure()
"""


def test_messages_of_all_sizes_arrive(tmp_path):
    body = (
        SETUP
        + """
for size in (1, 4096, 3_000_000):
    sent, received = np.full(size, me + 1, np.uint8), np.zeros(size, np.uint8)
    found = exchanged([Message(False, size, other, 5), Message(True, size, other, 5)], sent, received, times=3)
    print(found, (received == other + 1).all())
"""
    )
    done = launched(tmp_path, body, processes=2)
    assert lines(done.stdout, 0) == lines(done.stdout, 1) == ["(1, None) True"] * 3, done.stderr


def test_a_message_that_does_not_come_is_named(tmp_path):
    body = (
        SETUP
        + """
data = np.zeros(4, np.uint8)
print(exchanged([Message(me == 0, 4, other, tag) for tag in (1, 2)[: 2 - me]], data, data))
"""
    )
    done = launched(tmp_path, body, "limited", processes=2)
    assert lines(done.stdout, 0) == ["(0, Message(receives=True, bytes=4, peer=1, tag=2))"], done.stderr


def test_a_time_limit_that_is_set_later_holds_for_waits_that_have_begun(tmp_path):
    body = (
        SETUP
        + """
import threading
if me == 0:
    data = np.zeros(4, np.uint8)
    threading.Timer(0.5, setattr, (hl.config, "distributed_timeout", 0.2)).start()
    began = time.monotonic()
    print(exchanged([Message(True, 4, other, 1)], data)[0], 0.2 < time.monotonic() - began < 20)
"""
    )
    done = launched(tmp_path, "import time\n" + body, processes=2)
    assert lines(done.stdout, 0) == ["0 True"], done.stderr


def test_a_message_that_is_too_long_is_an_error(tmp_path):
    body = (
        SETUP
        + """
data = np.zeros(4096, np.uint8)
state, failure = exchanged([Message(me == 0, 16 if me == 0 else 4096, other, 1)], data)
print(state if me else (state, type(failure).__name__))
"""
    )
    done = launched(tmp_path, body, "limited", processes=2)
    assert lines(done.stdout, 0) == ["(0, 'int')"], done.stderr
