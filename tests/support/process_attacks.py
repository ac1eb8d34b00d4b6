"""Attacks of tests/reliability.py on processes: kills, damaged caches, forks, interrupts, and the growth of memory."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from attacks import Row, attack

ROOT = Path(__file__).resolve().parents[2]

CHECKED = """
import sys
import numpy as np
import hloom as hl, hloom.numpy as hnp
x = np.linspace(-2, 2, 500)
y = hl.jit(lambda x: hnp.tanh(x) @ hnp.sin(x) + hnp.cumsum(hnp.exp(-x * x)))(x)
z = hl.jit(lambda x: hnp.sort(x[::-1].reshape(20, 25), axis=0) * 2)(x)
right = np.allclose(y, np.tanh(x) @ np.sin(x) + np.cumsum(np.exp(-x * x)))
right = right and np.allclose(z, np.sort(x[::-1].reshape(20, 25), axis=0) * 2)
print("right" if right else "wrong")
"""


def _run(program: str, folder: str, timeout: float = 120) -> tuple[str, str]:
    """Output and what went wrong, '' where nothing did."""
    environment = os.environ | {"HLOOM_CACHE_DIR": folder, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=timeout, env=environment
        )
    except subprocess.TimeoutExpired:
        return "", "hangs"
    return done.stdout, "" if done.returncode == 0 else f"exit {done.returncode}: {done.stderr[-300:]}"


@contextlib.contextmanager
def _folder():
    path = tempfile.mkdtemp(prefix="hloom-reliability-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@attack("kill -9 during compilation", 100, 10)
def kills(start: int, count: int) -> Row:
    """Processes killed while they compile into an empty cache folder; afterwards the same program with that folder."""
    row, rng = Row(), random.Random(start)
    with _folder() as folder:
        begun = time.monotonic()
        _run(CHECKED, folder)
        whole = time.monotonic() - begun  # on this machine, as busy as it is now
    for number in range(start, start + count):
        with _folder() as folder:
            environment = os.environ | {"HLOOM_CACHE_DIR": folder, "PYTHONPATH": str(ROOT)}
            running = subprocess.Popen(
                [sys.executable, "-c", CHECKED], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(whole * (0.1 + 0.9 * rng.random()))
            row.counts["killed before the end"] += running.poll() is None
            running.send_signal(signal.SIGKILL)
            running.wait()
            row.counts["with entries written"] += any(Path(folder).iterdir())
            out, fault = _run(CHECKED, folder)
        row.expect(out == "right\n" and not fault, f"after kill {number}: {fault}")
    return row


@attack("damaged, swapped and foreign entries of the disk cache", 600, 40)
def entries(start: int, count: int) -> Row:
    """Entries of the disk cache damaged, swapped with others, or given to another user."""
    row, rng = Row(), random.Random(start)
    with _folder() as folder:
        _run(CHECKED, folder)
        kept = {p.name: p.read_bytes() for p in Path(folder).glob("*.bin")}
        for _ in range(count):
            for name, data in kept.items():
                path = Path(folder, name)
                path.unlink(missing_ok=True)
                path.write_bytes(data)
                path.chmod(0o600)
            damage = _damage(rng, Path(folder), kept)
            out, fault = _run(CHECKED, folder)
            row.expect(out == "right\n" and not fault, f"{damage}: {out.strip()} {fault}")
            row.counts[damage.split()[0]] += 1
    return row


def _damage(rng: random.Random, folder: Path, kept: dict[str, bytes]) -> str:
    name, other = rng.choice(list(kept)), rng.choice(list(kept))
    path, data = folder / name, bytearray(kept[name])
    kind = rng.choice(["flip", "cut", "empty", "swap", "junk", "mode", "owner"])
    if kind == "flip":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[rng.randrange(len(data)) :]
    elif kind == "empty":
        data.clear()
    elif kind == "swap":
        data = bytearray(kept[other])
    elif kind == "junk":
        data[48:] = rng.randbytes(len(data) - 48)
    path.write_bytes(data)
    if kind == "mode":
        path.chmod(0o666)
    elif kind == "owner" and os.geteuid() == 0:
        os.chown(path, 12345, -1)
    return f"{kind} {name[:20]}"


FORKS = """
import os, random, sys, threading, time
import numpy as np
import hloom as hl, hloom.numpy as hnp
compiled = 0
def compile_for_good():
    global compiled
    while True:
        factor = random.random()
        hl.jit(lambda x: hnp.sort(hnp.sin(x * factor)).sum() + hnp.linalg.norm(x))(np.ones(100 + compiled))
        compiled += 1
for _ in range(2):
    threading.Thread(target=compile_for_good, daemon=True).start()
for turn in range(TURNS):
    time.sleep(random.random() * 0.2)
    child = os.fork()
    if child == 0:
        x = np.linspace(0, 1, 1000 + turn)
        same = np.allclose(hl.jit(lambda x: hnp.tanh(x) * turn + hnp.sort(x))(x), np.tanh(x) * turn + np.sort(x))
        os._exit(0 if same else 7)
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, 9)
            ended = (child, -1)
            break
        time.sleep(0.005)
    print(ended[1], flush=True)
os._exit(0)
"""


@attack("forks while threads compile", 200, 40)
def forks(start: int, count: int) -> Row:
    """Children forked while two threads compile; each compiles and compares a result."""
    return _statuses(FORKS, count, 5, "0", "a child ended with")


INTERRUPTS = """
import os, random, signal, threading, time
import numpy as np
import hloom as hl, hloom.numpy as hnp
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let jobs in the background ignore it
endless = hl.jit(lambda x: hl.lax.while_loop(lambda s: s[0] >= 0, lambda s: (s[0] * 0.5, s[1] + 1), (x, 0)))
large = hl.jit(lambda x: hl.lax.fori_loop(0, 10**9, lambda i, x: hnp.sin(x) + 1, x))
library = hl.jit(lambda x: hl.lax.fori_loop(0, 10**9, lambda i, x: hnp.sort(hnp.sin(x)), x))
short = hl.jit(lambda x: hl.lax.fori_loop(0, 100, lambda i, x: x + i, x))
loops = [(f.lower(x).compile(), x) for f, x in ((endless, 1.0), (large, np.ones(10**5)), (library, np.ones(10**4)))]
short(1.0)
for turn in range(TURNS):
    function, argument = loops[turn % 3]
    threading.Timer(0.05 + random.random() * 0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        function(argument)
        print("ended")
    except KeyboardInterrupt:
        print("interrupted" if float(short(1.0)) == 4951 else "wrong", flush=True)
"""


@attack("Ctrl-C in native loops", 100, 20)
def interrupts(start: int, count: int) -> Row:
    """Ctrl-C in three kinds of endless loops; another function is called after each."""
    return _statuses(INTERRUPTS, count, 10, "interrupted", "a loop ended with")


def _statuses(program: str, turns: int, seconds: float, right: str, what: str) -> Row:
    """The words that a program of so many turns prints."""
    row = Row()
    with _folder() as folder:
        out, fault = _run(program.replace("TURNS", str(turns)), folder, 60 + seconds * turns)
    words = out.split()
    for word in [*words, *["missing"] * (turns - len(words))]:
        row.expect(word == right, f"{what} {word} {fault}")
    return row


# --- memory -----------------------------------------------------------------------------------------------------------


def _growth(kind: str, count: int) -> Row:
    """What `benchmarks/memory_growth.py` says, which ends with 1 beyond its bounds."""
    script = ROOT / "benchmarks" / "memory_growth.py"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script), kind, str(count)], capture_output=True, text=True, env=environment
    )
    lines = done.stdout.strip().splitlines()
    wrong = [done.stderr[-300:] or lines[-1]] if done.returncode else []
    return Row(count, wrong, note="; ".join(lines[-2:]))


@attack("small calls in one process: flat memory", 1_000_000, 1_000_000)
def million_calls(start: int, count: int) -> Row:
    return _growth("calls", count)


@attack("shapes of one function in one process: at most 300 MB", 20_000, 20_000)
def shapes(start: int, count: int) -> Row:
    return _growth("shapes", count)


@attack("functions in one process: at most 300 MB", 3_000, 3_000)
def functions(start: int, count: int) -> Row:
    return _growth("functions", count)
