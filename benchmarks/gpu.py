"""Measures a GPU: `python benchmarks/gpu.py` writes RESULTS-cuda.md where a GPU and its driver are found.

The workloads of `python -m hloom bench` and jax.jit on the same GPU, interleaved, after checking the results; a copy on
the device as the limit of memory-bound kernels; a bf16 product of 8192 x 8192; the call of a captured program of 100
kernels, and the bare launch of its graph; first calls. Calls are enqueued and awaited once per block, so times are the
GPU's wherever the GPU is the slower side.

jax multiplies float32 in full precision, as hloom does (its default on a GPU is TF32).

--only a,b    workloads        --seconds s    for each workload and library        --limit s    starts no workload later
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

os.environ.setdefault("JAX_PLATFORMS", "cuda,cpu")  # before `hloom.benchmarks.libraries` chooses the CPU

import hloom as hl
import hloom.numpy as hnp
from hloom.backends.cuda.devices import cuda_device
from hloom.benchmarks.libraries import Hloom, Jax, Numpy, installed
from hloom.benchmarks.measure.timing import check, in_turns
from hloom.benchmarks.workloads import WORKLOADS
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.discovery import available, version_text

DEVICE = "cuda:0"
COPIED = 1 << 30  # bytes of the reference copy
LAUNCHES = 100  # kernels of the captured program, and calls in a block


class OnGpu(Hloom):
    """hloom on the GPU."""

    def __init__(self):
        super().__init__(fusion=True)
        self.prepare = lambda array: hl.device_put(array, DEVICE)

    def compiled(self, workload):
        return hl.jit(workload.bound(self), device=DEVICE)


def wait(result):
    for leaf in hl.tree.leaves(result):
        leaf.block_until_ready()
    return result


def blocks(function, last, count: int):
    """`count` calls that are awaited together."""

    def call(*arguments):
        for _ in range(count):
            result = function(*arguments)
        last(result)

    return call


def gpu_of_jax():
    """jax on its GPU; None where it is not installed or has none."""
    if not installed("jax"):
        return None
    lib = Jax()
    lib.jax.config.update("jax_default_matmul_precision", "highest")
    try:
        lib.jax.devices("gpu")
    except RuntimeError:
        return None
    return lib


def row(workload, ours: OnGpu, jax, seconds: float) -> dict:
    """Times of a workload. Raises CheckError for wrong results."""
    arrays = workload.inputs(np.random.default_rng(0))
    expected = workload.reference(arrays, Numpy())
    functions, firsts, calls = {}, {}, {}
    for lib in filter(None, (ours, jax)):
        if not workload.runs_on(lib):
            continue
        prepared = [lib.prepare(a) for a in arrays]
        function = lib.jax.jit(workload.bound(lib)) if lib is jax else lib.compiled(workload)
        last = jax.jax.block_until_ready if lib is jax else wait
        start = time.perf_counter()
        result = last(function(*prepared))
        firsts[lib.name] = time.perf_counter() - start
        check(workload, lib.title, lib.arrays(result), expected)
        start = time.perf_counter()
        last(function(*prepared))
        count = max(1, min(200, int(2e-3 / max(time.perf_counter() - start, 1e-6))))
        functions[lib.name] = count
        calls[lib.name] = (blocks(function, last, count), prepared)
    times = {name: taken / functions[name] for name, taken in in_turns(calls, seconds).items()}
    moved = sum(a.nbytes for a in arrays) + sum(e.size for e in expected) * arrays[0].dtype.itemsize
    return {"name": workload.name, "bound by": workload.bound_by, "seconds": times, "first": firsts, "bytes": moved}


def copy_bandwidth(device) -> float:
    """Bytes a second, read and written, of a copy from one half of a large array to the other."""
    source, target = (DeviceArray.put(device, np.zeros(COPIED, np.uint8), "a copied array") for _ in range(2))
    places = [array.buffer.address for array in (target, source)]
    device.synchronize()  # they were uploaded on another stream
    best = min(
        device.milliseconds(lambda: device.api.copy(*places, COPIED, device.main, "a copy was timed")) for _ in range(5)
    )
    return 2 * COPIED / (best * 1e-3)


def product() -> tuple[float, float]:
    """(flops a second of a bf16 product of 8192 x 8192, those of cublasLt's measurement, or 0)."""
    import ml_dtypes

    n = 8192
    a, b = (hl.device_put(np.random.default_rng(k).random((n, n)).astype(ml_dtypes.bfloat16), DEVICE) for k in (0, 1))
    function = hl.jit(lambda a, b: a @ b, device=DEVICE)
    wait(function(a, b))
    seconds = in_turns({"product": (blocks(function, wait, 10), (a, b))}, 1.0)["product"] / 10
    choices = function.lower(a, b).compile().cost_analysis().get("choices", [])
    library = [c["other_ms"] for c in choices if c.get("other_ms")]
    flops = 2.0 * n**3
    return flops / seconds, flops / (library[0] * 1e-3) if library else 0.0


def launches(device) -> tuple[float, float]:
    """Seconds of a call of a program of LAUNCHES kernels, and of the bare launch of its graph."""
    x = hl.device_put(np.zeros(256, np.float32), DEVICE)

    def chain(x):
        for _ in range(LAUNCHES):
            x = hnp.sin(x)
        return x

    function = hl.jit(chain, device=DEVICE, fusion=False)
    seen, launch = [], device.api.launch_graph

    def noted(*arguments):
        seen.append(arguments)
        return launch(*arguments)

    device.api.launch_graph = noted
    try:
        wait(function(x))
    finally:
        del device.api.launch_graph
    graph = seen[-1]

    def bare():
        with device.guard() as api:
            for _ in range(LAUNCHES):
                api.launch_graph(*graph)
        device.synchronize()

    times = in_turns({"call": (blocks(function, wait, LAUNCHES), (x,)), "bare": (bare, ())}, 1.0)
    return times["call"] / LAUNCHES, times["bare"] / LAUNCHES


def mean(values) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))


def page(device, jax, rows: list[dict], left_out: list[str], copy: float, bf16, launched) -> str:
    """RESULTS-cuda.md."""
    facts = device.facts
    versions = [f"hloom {hl.__version__}", jax.title if jax else "no jax with a GPU"]
    lines = [
        "# Results on a GPU", "", "Written by `python benchmarks/gpu.py`; ratios are within one run.", "",
        f"- GPU: {facts.name}, {facts.arch}; driver for CUDA {version_text(facts.driver)}; {', '.join(versions)}",
        f"- A copy on the device: {copy / 1e9:.0f} GB/s read and written", "",
    ]  # fmt: skip
    both = [r for r in rows if len(r["seconds"]) == 2]
    ratios = {r["name"]: r["seconds"]["jax"] / r["seconds"]["hloom"] for r in both}
    memory = {r["name"]: r["bytes"] / r["seconds"]["hloom"] / copy for r in rows if r["bound by"] == "memory"}
    lines += ["| quantity | target | measured |", "| --- | --- | --- |"]
    if ratios:
        worst = min(ratios, key=ratios.__getitem__)
        first = mean(r["first"]["jax"] / r["first"]["hloom"] for r in both)
        lines += [
            f"| speedup over jax, geometric mean of {len(ratios)} | 1.3 | {mean(ratios.values()):.2f} |",
            f"| the lowest of them | 0.9 | {ratios[worst]:.2f} {worst} |",
            f"| first call: speedup over jax, geometric mean | 1 | {first:.2f} |",
        ]
    if memory:
        least = min(memory, key=memory.__getitem__)
        lines.append(f"| memory-bound: lowest share of a copy's bandwidth | 0.92 | {memory[least]:.2f} {least} |")
    own, library = bf16
    beside = f"{own / library:.2f}" if library else "cublasLt was not measured"
    lines.append(f"| bf16 product of 8192 x 8192, share of cublasLt | 0.95 | {beside} ({own / 1e12:.0f} Tflop/s) |")
    call, bare = launched
    lines.append(f"| call of {LAUNCHES} captured kernels over the bare launch | 1.2 | {call / bare:.2f} |")
    lines += ["", "| workload | hloom ms | jax | share of a copy | first call ms |", "| --- | --- | --- | --- | --- |"]
    for r in rows:
        name = r["name"]
        ratio = f"{ratios[name]:.2f}" if name in ratios else ""
        share = f"{memory[name]:.0%}" if name in memory else ""
        ms = r["seconds"]["hloom"] * 1e3
        lines.append(f"| {name} | {ms:.4f} | {ratio} | {share} | {r['first']['hloom'] * 1e3:.0f} |")
    lines += ["", "## Left out", "", *[f"- {line}" for line in left_out]] if left_out else []
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="workloads, by name")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds, after which no workload is started")
    options = parser.parse_args()
    if (why := available()) is not None:
        print(f"nothing was measured: {why}", file=sys.stderr)
        return 2
    device, ours, jax = cuda_device(0).open(), OnGpu(), gpu_of_jax()
    rows, left_out, start = [], [], time.monotonic()
    for name in options.only.split(",") if options.only else WORKLOADS:
        if time.monotonic() - start > options.limit:
            left_out.append(f"{name}: not reached within {options.limit:g} s")
            continue
        try:
            rows.append(row(WORKLOADS[name], ours, jax, options.seconds))
        except Exception as error:  # reported in the page; the other rows are still useful
            left_out.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
        print(f"{name}: {rows[-1]['seconds'] if rows and rows[-1]['name'] == name else left_out[-1]}", flush=True)
    text = page(device, jax, rows, left_out, copy_bandwidth(device), product(), launches(device))
    Path(__file__).with_name("RESULTS-cuda.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
