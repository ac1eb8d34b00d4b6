"""Matrix products relative to the FMA peak, NumPy's BLAS and jax: `python benchmarks/contraction_peak.py`.

Options: --threads N (default: 1 and all cores, each in a separate process), --dtype f32|f64, --small, --large,
--operands NN,TN,NT (T: that operand is the transpose of a contiguous array), --seconds S of each candidate.

The peak is the benchmark's loop of multiply-adds in registers, on every core. The candidates of a line are interleaved,
so that other load on the machine affects all of them; a line shows the lower quartile of the times.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time

LARGE = [(128, 128, 128), (256, 256, 256), (512, 512, 512), (1000, 777, 500), (1024, 1024, 1024)]
SMALL = [(8, 8, 8), (16, 16, 16), (32, 32, 32), (64, 64, 64), (32, 32, 64), (100, 128, 64), (100, 10, 128),
         (128, 10, 100), (1797, 10, 64)]  # fmt: skip


def quartile(times: list[float]) -> float:
    return sorted(times)[len(times) // 4]


def timed_in_turn(calls: dict, seconds: float) -> dict:
    """Seconds per call of each, the lower quartile of many short interleaved rounds."""
    repeats = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(3e-4 / max(time.perf_counter() - start, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or len(times[next(iter(times))]) < 8:
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter() - start) / repeats[name])
    return {name: quartile(values) for name, values in times.items()}


def bound(driver, addresses, parameters, steps, arrays):
    """A call without arguments that runs a contraction through the driver, and the objects that must stay alive."""
    import numpy as np

    from hloom.compiler.kernels.contractions.spec import KernelAddress
    from hloom.runtime.driver import step as row
    from hloom.runtime.driver_source import END, KERNEL

    buffers: dict[str, np.ndarray] = {}
    words: list[int] = []
    rows = []
    for step in steps:
        values = {name: array.ctypes.data for name, array in arrays.items()} | step.arguments
        for name, size in step.temporaries.items():
            buffer = buffers.setdefault(name, np.zeros(size + 64, np.uint8))
            values[name] = -(-buffer.ctypes.data // 64) * 64
        values |= {name: values[pointer] for name, pointer in step.pointers.items()}
        rows.append(row(KERNEL, addresses[step.kernel], len(words), step.items, step.grain))
        mine = [values[name] for name in parameters[step.kernel][:-2]]
        words += [addresses[value.kernel] if isinstance(value, KernelAddress) else value for value in mine]
    activation = driver.activation([*rows, row(END)], np.zeros((0, 3), np.int64), words, 0)
    return lambda kept=(activation, buffers, arrays): driver.run(activation.address)


def measure(dtype: str, shapes, layouts, threads: int, seconds: float) -> None:
    """Prints a line per shape (m, n, k) and layout. Raises AssertionError where a product differs from NumPy's."""
    import numpy as np

    from hloom.backends.cpu.driver import driver, load_kernels
    from hloom.benchmarks.measure.limits import peak_call
    from hloom.compiler.kernels.contractions.blocking import step_plan
    from hloom.compiler.kernels.contractions.render import render
    from hloom.compiler.kernels.contractions.spec import ContractionSpec, PlainOperand, PlainStore
    from hloom.compiler.targets.cpu.machine import host

    jax = importlib.import_module("jax") if importlib.util.find_spec("jax") else None
    if jax is not None:
        jax.config.update("jax_enable_x64", True)
    run = driver()
    kernels = render(ContractionSpec("dot", dtype, PlainOperand("x", dtype), PlainOperand("w", dtype),
                                     PlainStore("o")), host())  # fmt: skip
    addresses = load_kernels(kernels.kernels)
    kind = {"f32": np.float32, "f64": np.float64}[dtype]
    rng = np.random.default_rng(0)
    busy, operations = peak_call(dtype, threads)
    print(f"{threads} thread(s), {dtype}, GF/s (microseconds); numpy and jax: their time over ours")
    print(f"{'m x n x k':>16}     {'peak':>7} {'hloom':>18} {'of peak':>8} {'numpy':>7} {'jax':>7}")
    for m, n, k in shapes:
        for layout in layouts:
            x = rng.standard_normal((k, m) if layout[0] == "T" else (m, k)).astype(kind)
            w = rng.standard_normal((n, k) if layout[1] == "T" else (k, n)).astype(kind)
            x, w = (array.T if turn == "T" else array for array, turn in zip((x, w), layout, strict=True))
            out, other = np.empty((m, n), kind), np.empty((m, n), kind)
            strides = [tuple(s // array.itemsize for s in array.strides) for array in (x, w)]
            steps = step_plan(kernels, 1, m, n, k, (0, *strides[0]), (0, *strides[1]))
            calls = {
                "peak": busy,
                "hloom": bound(run, addresses, kernels.parameters, steps, {"x": x, "w": w, "o": out}),
                "numpy": lambda x=x, w=w, other=other: np.matmul(x, w, out=other),
            }
            if jax is not None:
                left = jax.device_put(x.T if layout[0] == "T" else x)
                right = jax.device_put(w.T if layout[1] == "T" else w)
                product = jax.jit(
                    lambda a, b, layout=layout: (a.T if layout[0] == "T" else a) @ (b.T if layout[1] == "T" else b)
                )
                calls["jax"] = lambda f=product, a=left, b=right: f(a, b).block_until_ready()
            times = timed_in_turn(calls, seconds)
            np.testing.assert_allclose(out, other, rtol=1e-3, atol=1e-3 * k**0.5)
            top, ours = operations / times["peak"] / 1e9, 2 * m * n * k / times["hloom"] / 1e9
            others = "".join(f" {times[name] / times['hloom']:7.2f}" for name in ("numpy", "jax") if name in times)
            place = f"{m}x{n}x{k}"
            cost = f"{ours:.1f} ({times['hloom'] * 1e6:.1f})"
            print(f"{place:>16} {layout}  {top:7.1f} {cost:>18} {ours / top:8.0%}{others}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--dtype", default="f32,f64")
    parser.add_argument("--operands", default="NN")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.4)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if options.threads is None:
        for threads in sorted({1, len(cores)}):
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--threads", str(threads)], check=True)
        return
    # Every library uses as many threads as the process has cores.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores[: options.threads])
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["HLOOM_NUM_THREADS"] = str(options.threads)
    shapes = LARGE * (options.large or not options.small) + SMALL * (options.small or not options.large)
    for dtype in options.dtype.split(","):
        measure(dtype, shapes, options.operands.split(","), options.threads, options.seconds)


if __name__ == "__main__":
    main()
