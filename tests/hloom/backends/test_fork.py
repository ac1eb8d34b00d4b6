"""Programs that fork: right after the import, while other threads compile, and pools of processes."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")


def run(program: str, **environment: str) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_fork_right_after_the_import_prints_nothing():
    program = """
import os, hloom
child = os.fork()
if child:
    print(os.waitpid(child, 0)[1])
"""
    done = run(program)
    assert done.stdout == "0\n" and done.stderr == ""


COMPILING = """
import os, random, sys, threading, time
import numpy as np
import hloom as hl, hloom.numpy as hnp

compiled = 0

def compile_for_good():
    global compiled
    while True:
        factor = random.random()
        hl.jit(lambda x: hnp.sort(hnp.sin(x * factor) + hnp.cumsum(x)[::-1]).sum() + hnp.linalg.norm(x))(
            np.ones(100 + compiled, np.float32))
        compiled += 1

for _ in range(2):
    threading.Thread(target=compile_for_good, daemon=True).start()
for turn in range(10):
    time.sleep(random.random() * 0.3)
    child = os.fork()
    if child == 0:
        x = np.linspace(0, 1, 100_000 + turn)
        right = np.tanh(x) * turn + np.sort(x)
        same = np.allclose(hl.jit(lambda x: hnp.tanh(x) * turn + hnp.sort(x))(x), right)
        os._exit(0 if same else 7)
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, 9)
            print("hangs", turn)
            os._exit(1)
        time.sleep(0.01)
    print(ended[1])
sys.stdout.flush()
os._exit(0)
"""


def test_children_compile_while_threads_of_the_parent_do(tmp_path):
    done = run(COMPILING, HLOOM_CACHE_DIR=str(tmp_path / "kernels"))
    assert done.stdout.split() == ["0"] * 10
    assert "Traceback" not in done.stderr


def test_a_pool_of_processes():
    program = """
import multiprocessing
import numpy as np
import hloom as hl, hloom.numpy as hnp

def work(seed):
    x = np.random.default_rng(seed).normal(size=(200, 200))
    product = hl.jit(lambda x: hnp.sort(x @ x.T, axis=1).sum(axis=0))(x)
    return bool(np.allclose(product, np.sort(x @ x.T, axis=1).sum(axis=0))) and float(hnp.ones(3).sum()) == 3.0

assert work(0)  # the parent has threads by now
with multiprocessing.get_context("fork").Pool(3) as pool:
    print(all(pool.map(work, range(12))))
"""
    assert run(program).stdout == "True\n"
