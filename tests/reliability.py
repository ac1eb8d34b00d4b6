"""Attacks hloom, and writes what happened to docs/reliability.md.

    python tests/reliability.py [--scale 0.1] [--only programs,calls] [--write]

Each attack returns a Row: how many attempts, how many were wrong, and what the wrong ones were. --scale multiplies the
numbers of attempts. Without --write the table goes to standard output. The whole table takes hours on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import hloom as hl  # noqa: E402  after the path to it
import hloom.numpy as hnp  # noqa: E402
from hloom.ir.records import field, record  # noqa: E402


@record
class Row:
    """One line of the table."""

    name: str
    attempts: int = 0
    wrong: list[str] = field(default_factory=list)
    note: str = ""

    def expect(self, right: bool, what: str = "") -> None:
        self.attempts += 1
        if not right:
            self.wrong.append(what)


ATTACKS: dict[str, Callable[[float], Row]] = {}


def attack(function: Callable[[float], Row]) -> Callable[[float], Row]:
    ATTACKS[function.__name__] = function
    return function


# --- results ----------------------------------------------------------------------------------------------------------


@attack
def programs(scale: float) -> Row:
    """Random programs, compiled against the reference interpreter, with 1 to 8 threads."""
    from random_programs import Programs, arguments, check_outputs

    from hloom.backends.cpu.compilation import compile_module

    row = Row("random programs, compiled against the reference, 1 to 8 threads")
    for seed in range(int(100_000 * scale)):
        rng = random.Random(seed)
        made = Programs(rng)
        module = made.module(rng.randrange(1, 20))
        arrays = arguments(module, seed)
        with hl.config(num_threads=1 + seed % 8):
            try:
                results = compile_module(module, fusion=seed % 5 != 0)([a.copy() for a in arrays])
                check_outputs(made, module, [np.array(r) for r in results], arrays)
                row.expect(True)
            except Exception as error:
                row.expect(False, f"seed {seed}: {_first_line(error)}")
    return row


DTYPES = ("bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64")
SHAPES = ((), (0,), (1,), (3,), (2, 3), (0, 3), (2, 1, 3), (17,))
# Not functions of arrays alone, of sizes (which edge values make too large), or with results that are no numbers.
# NumPy's bincount of 2**63 - 1 writes beyond its memory.
LEFT_OUT = frozenset(
    """save savez load frombuffer fromfile fromfunction fromstring vectorize piecewise printoptions set_printoptions
    get_printoptions array_str array_repr array2string empty empty_like issubdtype iscomplexobj isrealobj isscalar
    astype einsum_path copyto put place apply_along_axis apply_over_axes from_dlpack may_share_memory shares_memory
    bincount arange linspace logspace geomspace eye identity tri ones zeros full bartlett blackman hamming hanning
    kaiser indices repeat tile resize pad vander diag diagflat broadcast_to mask_indices tril_indices triu_indices
    diag_indices kron outer histogram histogram2d histogramdd histogram_bin_edges digitize unravel_index""".split()
)


def _edge_values(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        edges = np.array([0, 1, 2, 3, 5, info.max, info.max - 1, info.min], dtype)
        return edges[rng.integers(0, len(edges), shape)]
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.7, 100.0, np.inf, -np.inf, np.nan, float(np.finfo(dtype).tiny)]
    values = np.array(edges)[rng.integers(0, len(edges), shape)]
    return values.astype(dtype)


def _agrees(got: np.ndarray, want: np.ndarray) -> bool:
    if got.shape != want.shape:
        return False
    if want.dtype.kind not in "fc":
        return bool(np.array_equal(got, want))
    eps = float(np.finfo(want.dtype).eps)
    largest = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    return bool(np.allclose(got, want, rtol=64 * eps, atol=64 * eps * min(float(largest), 1e300), equal_nan=True))


@attack
def calls(scale: float) -> Row:
    """Calls of functions that NumPy has too, with edge values, dtypes and sizes, eagerly and jitted."""
    row = Row("calls of hloom.numpy's functions against NumPy's, eagerly and jitted")
    names = sorted(n for n in set(hnp.__all__) & set(dir(np)) - LEFT_OUT if callable(getattr(np, n)))
    names = [n for n in names if not isinstance(getattr(np, n), type)]
    rng = np.random.default_rng(0)
    refused = others = 0
    for _ in range(int(200_000 * scale)):
        name = names[rng.integers(len(names))]
        arguments = _random_arguments(rng)
        call_text = f"{name}{_described(arguments)}"
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                want = getattr(np, name)(*[a.copy() for a in arguments])
            except Exception:
                continue  # NumPy refuses it
            if not isinstance(want, (np.ndarray, np.generic)):
                continue
            function = getattr(hnp, name)
            call = hl.jit(function) if rng.random() < 0.1 else function
            try:
                got = np.asarray(call(*arguments))
            except Exception as error:
                refused += 1
                broken = not isinstance(error, (TypeError, ValueError, NotImplementedError, IndexError, OverflowError))
                row.expect(not broken, f"{call_text}: {_first_line(error)}")
                continue
        want = np.asarray(want)
        if got.dtype != want.dtype:  # hloom promotes as JAX does
            others += 1
            row.expect(got.shape == want.shape, f"{call_text}: {got.shape}, not {want.shape}")
            continue
        row.expect(_agrees(got, want), f"{call_text}: {got!r}, not {want!r}")
    row.note = f"{others} with another dtype, whose shapes were compared; {refused} refused with a clear error"
    return row


def _random_arguments(rng: np.random.Generator) -> list[np.ndarray]:
    shape = SHAPES[rng.integers(len(SHAPES))]
    same_shape, same_dtype = rng.random() < 0.7, rng.random() < 0.6
    dtype = DTYPES[rng.integers(len(DTYPES))]
    arguments = []
    for _ in range(rng.integers(1, 4)):
        kind = np.dtype(dtype if same_dtype else DTYPES[rng.integers(len(DTYPES))])
        arguments.append(_edge_values(rng, kind, shape if same_shape else SHAPES[rng.integers(len(SHAPES))]))
    return arguments


def _described(arguments: list[np.ndarray]) -> str:
    return "(" + ", ".join(f"{a.dtype}{a.tolist()}" for a in arguments) + ")"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]


# --- processes --------------------------------------------------------------------------------------------------------

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


@attack
def kills(scale: float) -> Row:
    """Processes killed while they compile into one cache folder; afterwards a program that uses it."""
    row, rng = Row("kill -9 during compilation"), random.Random(0)
    with _folder() as folder:
        for number in range(int(100 * scale)):
            environment = os.environ | {"HLOOM_CACHE_DIR": folder, "PYTHONPATH": str(ROOT)}
            running = subprocess.Popen(
                [sys.executable, "-c", CHECKED.replace("2, 2,", f"2, 2.{number},")],
                env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            time.sleep(0.2 + rng.random())
            running.send_signal(signal.SIGKILL)
            running.wait()
            out, fault = _run(CHECKED, folder)
            row.expect(out == "right\n" and not fault, f"after kill {number}: {fault}")
    return row


@attack
def entries(scale: float) -> Row:
    """Entries of the disk cache damaged, swapped with others, or given to another user."""
    row, rng = Row("damaged, swapped and foreign entries of the disk cache"), random.Random(1)
    with _folder() as folder:
        _run(CHECKED, folder)
        kept = {p.name: p.read_bytes() for p in Path(folder).glob("*.bin")}
        for _ in range(int(600 * scale)):
            for name, data in kept.items():
                path = Path(folder, name)
                path.unlink(missing_ok=True)
                path.write_bytes(data)
                path.chmod(0o600)
            damage = _damage(rng, Path(folder), kept)
            out, fault = _run(CHECKED, folder)
            row.expect(out == "right\n" and not fault, f"{damage}: {out.strip()} {fault}")
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


@attack
def forks(scale: float) -> Row:
    """Children forked while two threads compile; each compiles and compares a result."""
    row = Row("forks while threads compile")
    turns = max(1, int(200 * scale))
    with _folder() as folder:
        out, fault = _run(FORKS.replace("TURNS", str(turns)), folder, 60 + 5 * turns)
    for status in [*out.split(), *["missing"] * (turns - len(out.split()))]:
        row.expect(status == "0", f"a child ended with {status} {fault}")
    return row


INTERRUPTS = """
import os, random, signal, threading, time
import numpy as np
import hloom as hl, hloom.numpy as hnp
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


@attack
def interrupts(scale: float) -> Row:
    """Ctrl-C in three kinds of endless loops; another function is called after each."""
    row = Row("Ctrl-C in native loops")
    turns = max(1, int(100 * scale))
    with _folder() as folder:
        out, fault = _run(INTERRUPTS.replace("TURNS", str(turns)), folder, 60 + 10 * turns)
    for status in [*out.split(), *["missing"] * (turns - len(out.split()))]:
        row.expect(status == "interrupted", f"{status} {fault}")
    return row


# --- memory -----------------------------------------------------------------------------------------------------------


def _growth(kind: str, name: str, count: int) -> Row:
    """What `benchmarks/memory_growth.py` says, which ends with 1 beyond its bounds."""
    script = ROOT / "benchmarks" / "memory_growth.py"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script), kind, str(count)], capture_output=True, text=True, env=environment
    )
    lines = done.stdout.strip().splitlines()
    return Row(name, count, [done.stderr[-300:] or lines[-1]] if done.returncode else [], "; ".join(lines[-2:]))


@attack
def million_calls(scale: float) -> Row:
    return _growth("calls", "small calls: flat memory", int(1_000_000 * scale))


@attack
def shapes(scale: float) -> Row:
    return _growth("shapes", "shapes of one function: 300 MB", int(20_000 * scale))


@attack
def functions(scale: float) -> Row:
    return _growth("functions", "functions: 300 MB", int(3_000 * scale))


# --- the table --------------------------------------------------------------------------------------------------------


def table(rows: list[tuple[Row, float]], scale: float) -> str:
    with open("/proc/cpuinfo") as file:
        processor = re.search(r"model name\s*: (.*)", file.read())
    lines = [
        "# Reliability",
        "",
        f"Made by `python tests/reliability.py --scale {scale:g} --write` on {time.strftime('%Y-%m-%d')}: hloom "
        f"{hl.__version__}, Python {platform.python_version()}, {processor[1] if processor else platform.machine()}, "
        f"{os.cpu_count()} cores.",
        "",
        "| attack | attempts | wrong | s | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row, seconds in rows:
        lines.append(f"| {row.name} | {row.attempts:,} | {len(row.wrong)} | {seconds:.0f} | {row.note} |")
    faults = [f"- {row.name}: `{fault[:300]}`" for row, _ in rows for fault in row.wrong[:20]]
    if faults:
        lines += ["", "## What was wrong", "", *faults]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the numbers of attempts")
    parser.add_argument("--only", default="", help=f"some of {', '.join(ATTACKS)}")
    parser.add_argument("--write", action="store_true", help="write docs/reliability.md")
    options = parser.parse_args()
    rows = []
    for name in options.only.split(",") if options.only else ATTACKS:
        started = time.monotonic()
        rows.append((ATTACKS[name](options.scale), time.monotonic() - started))
        print(f"{name}: {rows[-1][0].attempts} attempts, {len(rows[-1][0].wrong)} wrong", file=sys.stderr, flush=True)
    text = table(rows, options.scale)
    if options.write:
        (ROOT / "docs" / "reliability.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
