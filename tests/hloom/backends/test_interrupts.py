"""Signals during native loops: Ctrl-C ends them, other handlers run, and everything is usable afterwards."""

import subprocess
import sys
import textwrap

PRELUDE = """
import os, signal, threading, time
import numpy as np
import hloom as hl, hloom.numpy as hnp

signal.signal(signal.SIGINT, signal.default_int_handler)  # processes in a shell's background ignore it

def later(number, seconds=0.5):
    threading.Timer(seconds, os.kill, (os.getpid(), number)).start()

def interrupted(function, *arguments):
    function = function.lower(*arguments).compile()  # the signal is to come while the loop runs
    later(signal.SIGINT)
    started = time.monotonic()
    try:
        function(*arguments)
    except KeyboardInterrupt:
        return time.monotonic() - started < 60
    return False
"""


def run(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_ctrl_c_ends_loops_of_short_and_long_iterations():
    out = run("""
    endless = hl.jit(lambda x: hl.lax.while_loop(lambda s: s[0] >= 0, lambda s: (s[0] * 0.5, s[1] + 1), (x, 0)))
    long = hl.jit(lambda x: hl.lax.fori_loop(0, 10**9, lambda i, x: hnp.sort(hnp.sin(x) + 1), x))
    print(interrupted(endless, 1.0), interrupted(long, np.ones(300_000)), interrupted(endless, 2.0))
    # The same functions and others work as before.
    short = hl.jit(lambda x: hl.lax.fori_loop(0, 1000, lambda i, x: x + 1, x))
    print(float(short(1.0)), endless(-1.0)[1])
    """)
    assert out == ["True", "True", "True", "1001.0", "0"]


def test_ctrl_c_ends_a_loop_within_a_loop():
    """All of it is one kernel, which leaves from the inner loop too."""
    out = run("""
    def endless(x):
        return hl.lax.while_loop(lambda s: s[0] >= 0, lambda s: (s[0] * 0.5, s[1] + 1), (x, 0))[1]

    rows = hl.jit(lambda x: hl.lax.fori_loop(0, 3, lambda k, n: n + endless(x + k), 0))
    branch = hl.jit(lambda x: hl.lax.while_loop(
        lambda n: n < 5, lambda n: hl.lax.cond(x > 0, lambda: endless(x), lambda: n + 1), 0))
    print(interrupted(rows, 1.0), interrupted(branch, 1.0), interrupted(rows, 1.0))
    print(int(rows(-9.0)), int(branch(-1.0)))
    """)
    assert out == ["True", "True", "True", "0", "5"]


def test_ctrl_c_ends_a_loop_on_several_devices():
    out = run("""
    hl.config.num_cpu_devices = 2

    @hl.jit
    def f(x):
        with hl.device("cpu:1"):
            y = hl.lax.while_loop(lambda s: hnp.all(s >= 0), lambda s: hnp.abs(hnp.sin(s)), x)
        return y.sum() + 1

    print(interrupted(f, np.ones(1000)), interrupted(f, np.ones(1000)))
    print(float(f(np.full(4, -1.0))))
    """)
    assert out == ["True", "True", "-3.0"]


def test_handlers_that_do_not_raise_run_and_the_loop_goes_on():
    out = run("""
    seen = []
    signal.signal(signal.SIGTERM, lambda *_: seen.append(time.monotonic()))
    count = hl.jit(lambda n: hl.lax.while_loop(lambda s: s[1] < n, lambda s: (hnp.sin(s[0]) + 1, s[1] + 1), (0.0, 0)))
    count(10)
    later(signal.SIGTERM, 0.2)
    steps = 10**6
    while not seen:  # however fast the machine is
        steps *= 2
        ended = count(steps)[1]
        finished = time.monotonic()
    print(len(seen), int(ended) == steps, seen[0] <= finished)
    """)
    assert out == ["1", "True", "True"]


def test_a_loop_in_another_thread_goes_on():
    out = run("""
    loop = hl.jit(lambda n: hl.lax.while_loop(lambda s: s[1] < n, lambda s: (hnp.sin(s[0]) + 1, s[1] + 1), (0.0, 0)))
    results = []
    thread = threading.Thread(target=lambda: results.append(int(loop(10**7)[1])))
    thread.start()
    later(signal.SIGINT, 0.1)
    try:
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        thread.join()
    print(results)
    """)
    assert out == ["[10000000]"]
