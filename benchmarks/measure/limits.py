"""The limits of the machine, measured with hloom's own kernels: bandwidth by working-set size, and the FMA peak.

    measured(seconds) -> Limits      everything
    triad_call(), peak_call(dtype)   one of them as a function that can be interleaved with a workload

The triad is `o = a + s b` (McCalpin's STREAM): three arrays, 12 bytes per element in float32; the bytes that a store
fetches before it writes are not counted. The peak is a loop of independent multiply-adds in registers on all threads,
written in LLVM IR, so that the limit does not depend on how a loop is compiled.
"""

from __future__ import annotations

import functools
import statistics
import time
from dataclasses import asdict, dataclass, field

import numpy as np

import hloom as hl
from hloom.backends.cpu.driver import driver, load_kernels
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu import codegen
from hloom.compiler.targets.cpu.machine import Machine, host
from hloom.runtime import native
from hloom.runtime.driver import step
from hloom.runtime.driver_source import END, KERNEL

M = 1 << 20
TRIAD_BYTES = 3 * 4 * 16 * M
PEAK_DTYPES = {"f32": ("float", 4, np.float32), "f64": ("double", 8, np.float64)}
CHAINS = 12  # independent sums: two units with a latency of 4 or 5 need 10, and 16 registers hold them with the factors
ROUNDS = 100_000  # of the peak's loop in a work item: some 0.1 ms
SWEPT = 1 << 25  # bytes that one timed sweep of a cache passes at least


@dataclass
class Limits:
    """triad: bytes per second of the jitted triad, 16M float32. peaks: flops per second of all threads, by dtype.

    sweep: for each size that all threads together sweep again and again, [bytes, triad's bytes per second, a sum's].
    caches: the triad's bytes per second with half of each cache filled, by its name; 'DRAM' with eight times the last.
    """

    threads: int
    triad: float = 0.0
    peaks: dict[str, float] = field(default_factory=dict)
    sweep: list[list[float]] = field(default_factory=list)
    caches: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict:
        return asdict(self)


@functools.cache
def triad_call():
    """`a + 3 b` on 16M float32, jitted by hloom, all threads: TRIAD_BYTES are read and written."""
    random = np.random.default_rng(0)
    arrays = tuple(hl.device_put(random.random(16 * M, dtype=np.float32)) for _ in range(2))
    return hl.jit(lambda a, b: a + 3.0 * b), arrays


def peak_ir(dtype: str, machine: Machine) -> tuple[str, int]:
    """The loop of multiply-adds as LLVM IR, entry `fma_peak_DTYPE`, and its flops per round."""
    element, size, _ = PEAK_DTYPES[dtype]
    lanes = machine.vector_bytes // size
    vector, fma = f"<{lanes} x {element}>", f"@llvm.fma.v{lanes}{dtype}"
    phis = [f"  %v{k} = phi {vector} [%c, %entry], [%w{k}, %loop]" for k in range(CHAINS)]
    steps = [f"  %w{k} = call {vector} {fma}({vector} %v{k}, {vector} %c, {vector} %c)" for k in range(CHAINS)]
    sums = [
        f"  %s{k} = fadd {vector} {'%w0' if k == 1 else f'%s{k - 1}'}, %w{k}" for k in range(1, CHAINS)
    ]  # all are used: none can be left out
    last = f"%s{CHAINS - 1}"
    text = f"""declare {vector} {fma}({vector}, {vector}, {vector})
define void @fma_peak_{dtype}(ptr %args, i64 %lo, i64 %hi) {{
entry:
  %place = load i64, ptr %args
  %o = inttoptr i64 %place to ptr
  %second = getelementptr i64, ptr %args, i64 1
  %rounds = load i64, ptr %second
  %c = load {vector}, ptr %o, align {size}
  %items = sub i64 %hi, %lo
  %total = mul i64 %items, %rounds
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%next, %loop]
{chr(10).join(phis + steps)}
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %total
  br i1 %more, label %loop, label %done
done:
{chr(10).join(sums)}
  %first = extractelement {vector} {last}, i64 0
  %never = fcmp oeq {element} %first, 7.0
  br i1 %never, label %keep, label %end
keep:
  store {vector} {last}, ptr %o, align {size}
  br label %end
end:
  ret void
}}
"""
    return text, 2 * lanes * CHAINS


@functools.cache
def _peak_kernel(dtype: str) -> tuple[int, int]:
    """The address of the loop, and its flops per round."""
    text, flops = peak_ir(dtype, host())
    symbol = f"fma_peak_{dtype}"
    return native.load(codegen.compile_ir(text, [symbol]).data, [symbol])[symbol], flops


def _bound(address: int, words, items: int):
    """A call without arguments that runs a kernel on `items` work items, one per chunk. words: integers or arrays."""
    run = driver()
    values = [w.ctypes.data if isinstance(w, np.ndarray) else w for w in words]
    rows = [step(KERNEL, address, 0, items, 1), step(END)]
    activation = run.activation(rows, np.zeros((0, 3), np.int64), values, 0)
    return lambda kept=(activation, words): run.run(activation.address)


def peak_call(dtype: str, threads: int | None = None):
    """A call of multiply-adds on all threads, and its flops. dtype: 'f32' or 'f64'."""
    threads = threads or driver().num_threads
    address, flops = _peak_kernel(dtype)
    # x -> x / 2 + 1 / 2 stays at normal numbers
    values = np.full(64, 0.5, PEAK_DTYPES[dtype][2])
    items = 4 * threads
    return _bound(address, (values, ROUNDS), items), float(flops * ROUNDS * items)


TRIAD = KernelSource(
    "triad_sweeps",
    """def triad_sweeps(a, b, o, n, sweeps, lo, hi):
    for item in range(lo, hi):
        for sweep in range(sweeps):
            factor = f32(sweep)
            for i in range(n):
                o[item * n + i] = a[item * n + i] + factor * b[item * n + i]
""",
    ("f32*", "f32*", "f32*", "s64", "s64", "s64", "s64"),
)

SUM = KernelSource(
    "sum_sweeps",
    """def sum_sweeps(a, o, n, sweeps, lo, hi):
    for item in range(lo, hi):
        for sweep in range(sweeps):
            total = f32(0.0)
            for i in range(n):
                total = sum_f32(total, a[item * n + i])
            o[item * 16] = total
            a[item * n] = f32(sweep)
""",
    ("f32*", "f32*", "s64", "s64", "s64", "s64"),
)


def sweeps(sizes, seconds: float) -> list[list[float]]:
    """[bytes, triad's bytes per second, the sum's] for each size that all threads together sweep."""
    threads = driver().num_threads
    triad, total = load_kernels([TRIAD, SUM])
    largest = max(sizes)
    # Places apart by other than multiples of 4 KiB: a load that follows a store to such a place waits for it.
    memory = [_filled(largest // 4 + 64 * threads, shift) for shift in (0, 384)]
    space = _filled(largest // 4 + 64 * threads, 720)
    rows = []
    for size in sizes:
        third, whole = size // 12 // threads // 16 * 16, size // 4 // threads // 16 * 16
        again = max(1, SWEPT // size)
        calls = {
            "triad": (_bound(triad, (*memory, space, third, again), threads), 12 * third * threads * again),
            "sum": (_bound(total, (memory[0], space, whole, again), threads), 4 * whole * threads * again),
        }
        rows.append([float(size), *(count / _quickest(call, seconds) for call, count in calls.values())])
    return rows


def _filled(count: int, shift: int) -> np.ndarray:
    """Ones, `shift` elements after the beginning of a page."""
    memory = np.ones(count + shift + 1024, np.float32)
    return memory[(-memory.ctypes.data % 4096) // 4 + shift :][:count]


def _quickest(call, seconds: float) -> float:
    """Seconds of one call: the lower quartile over `seconds`, since other load on the machine only adds time."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 4]


def cache_sizes(machine: Machine, threads: int) -> dict[str, int]:
    """Bytes that `threads` sweep together to stay in one level: half of its capacity, and for DRAM far more than all
    caches."""
    levels = {"L1": machine.l1_bytes * threads // 2, "L2": machine.l2_bytes * threads // 2}
    if machine.l3_bytes > 2 * machine.l2_bytes * threads:
        levels["L3"] = machine.l3_bytes // 2
    levels["DRAM"] = max(8 * (machine.l3_bytes or machine.l2_bytes), 64 * M)
    return levels


def measured(seconds: float = 0.1) -> Limits:
    """Measures everything; `seconds` for each number, some thirty of them."""
    machine, threads = host(), driver().num_threads
    limits = Limits(threads)
    levels = cache_sizes(machine, threads)
    sizes = sorted({1 << k for k in range(14, levels["DRAM"].bit_length())} | set(levels.values()))
    limits.sweep = sweeps(sizes, seconds)
    limits.caches = {name: next(row[1] for row in limits.sweep if row[0] == size) for name, size in levels.items()}
    function, arrays = triad_call()
    limits.triad = TRIAD_BYTES / _quickest(lambda: function(*arrays), max(seconds, 0.3))
    for dtype in PEAK_DTYPES:
        call, flops = peak_call(dtype)
        limits.peaks[dtype] = statistics.median(flops / _quickest(call, seconds / 3) for _ in range(3))
    return limits
