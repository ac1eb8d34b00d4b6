"""Forks: locks that other threads hold, blocks that a fork waits for, and the functions around it."""

import os
import threading
import time

import pytest

from hloom.ir.process import forking

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")


def child_answers(function) -> bytes:
    """What `function` returns in a forked child; b"" where it has not within 20 s."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writable, function())
        finally:
            os._exit(0)
    os.close(writable)
    try:
        for _ in range(400):
            if os.waitpid(child, os.WNOHANG)[0]:
                return os.read(readable, 1000)
            time.sleep(0.05)
        os.kill(child, 9)
        os.waitpid(child, 0)
        return b""
    finally:
        os.close(readable)


class Holder(threading.Thread):
    """A thread that stays in a block until `leave` is set."""

    def __init__(self, block):
        super().__init__()
        self.block, self.entered, self.leave = block, threading.Event(), threading.Event()
        self.start()
        self.entered.wait()

    def run(self):
        with self.block:
            self.entered.set()
            self.leave.wait()


@pytest.mark.parametrize("make", [forking.lock, forking.rlock])
def test_a_child_finds_the_locks_of_other_threads_free(make):
    lock = make()
    holder = Holder(lock)
    try:
        assert child_answers(lambda: b"%d" % lock.acquire(timeout=5)) == b"1"
        assert not lock.acquire(timeout=0.01)  # in the parent it is held as before
    finally:
        holder.leave.set()


def test_a_child_keeps_what_its_thread_holds():
    lock = forking.rlock()
    with lock:
        assert child_answers(lambda: b"%d" % lock._is_owned()) == b"1"


def test_a_fork_waits_for_other_threads_in_a_block():
    holder = Holder(forking.no_fork())
    left = []
    threading.Timer(0.3, lambda: (left.append(True), holder.leave.set())).start()
    assert child_answers(lambda: b"%d" % len(left)) == b"1"


def test_a_fork_does_not_wait_for_its_own_thread():
    with forking.no_fork(), forking.no_fork():
        assert child_answers(lambda: b"here") == b"here"
    assert not forking._inside


def test_a_fork_does_not_wait_for_good(monkeypatch):
    monkeypatch.setattr(forking, "PATIENCE", 0.2)
    holder = Holder(forking.no_fork())
    try:

        def enter():
            with forking.no_fork():
                return b"entered"

        assert child_answers(enter) == b"entered"
    finally:
        holder.leave.set()


def test_functions_around_a_fork(monkeypatch):
    monkeypatch.setattr(forking, "_hooks", [])
    calls = []
    for name in "ab":
        forking.on_fork(
            before=lambda name=name: calls.append(f"before {name}"),
            parent=lambda name=name: calls.append(f"parent {name}"),
            child=lambda name=name: calls.append(f"child {name}"),
        )
    assert child_answers(lambda: ", ".join(calls).encode()) == b"before b, before a, child a, child b"
    assert calls == ["before b", "before a", "parent a", "parent b"]


def test_locks_that_are_gone_are_forgotten():
    before = len(forking._locks)
    lock = forking.lock()
    assert len(forking._locks) == before + 1
    del lock
    assert len(forking._locks) == before
