"""The cost of several CPU devices: `python benchmarks/devices.py` writes DEVICES.md.

A data-parallel training step on two devices with one thread each, and on one device with two threads, interleaved; the
time from a send to its receive; the partition of a module of 10,000 instructions.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from pathlib import Path

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom.compiler.placement.partition import partition
from hloom.compiler.placement.placer import placed, prepared
from hloom.ir.build import Builder, Value
from hloom.ir.module import Module
from hloom.ir.source import on_device
from hloom.ir.types import DTYPES, Shape

BATCH, WIDTHS = 512, (784, 512, 512, 10)
ROUNDS, CALLS = 15, 10


def loss(parameters, x, y):
    for w in parameters[:-1]:
        x = hl.nn.relu(x @ w)
    return -hnp.mean(hnp.sum(hl.nn.log_softmax(x @ parameters[-1]) * y, axis=1))


def single(parameters, x, y):
    return hl.tree.map(lambda p, g: p - 0.1 * g, parameters, hl.grad(loss)(parameters, x, y))


def towers(device_of_the_mean):
    def step(parameters, x, y):
        gradients = []
        for k, (xs, ys) in enumerate(zip(hnp.split(x, 2), hnp.split(y, 2), strict=True)):
            with hl.device(f"cpu:{k}"):
                gradients.append(hl.grad(loss)(parameters, xs, ys))
        with hl.device(device_of_the_mean):
            return hl.tree.map(lambda p, a, b: p - 0.05 * (a + b), parameters, *gradients)

    return step


def in_turns(calls: dict) -> dict[str, float]:
    """Median seconds of a call; `calls`: name -> (number of devices, function, arguments)."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, (count, function, arguments) in calls.items():
            hl.config.num_cpu_devices = count
            function(*arguments)
            start = time.perf_counter()
            for _ in range(CALLS):
                function(*arguments)
            times[name].append((time.perf_counter() - start) / CALLS)
    return {name: statistics.median(found) for name, found in times.items()}


def training() -> dict[str, float]:
    generator = np.random.default_rng(0)
    parameters = [
        hl.device_put(generator.standard_normal((a, b), dtype=np.float32) * 0.05) for a, b in itertools.pairwise(WIDTHS)
    ]
    x = hl.device_put(generator.standard_normal((BATCH, WIDTHS[0]), dtype=np.float32))
    y = hl.device_put(np.eye(10, dtype=np.float32)[generator.integers(0, 10, BATCH)])
    hl.config.num_cpu_devices = 2
    calls = {
        "one device, two threads": (1, hl.jit(single), (parameters, x, y)),
        "two devices, the mean on the device chosen by the cost model": (2, hl.jit(towers(None)), (parameters, x, y)),
        "two devices, the mean on cpu:0": (2, hl.jit(towers("cpu:0")), (parameters, x, y)),
    }
    return in_turns(calls)


def handing_over(hops: int = 200) -> float:
    """Seconds per transfer between two devices, with a small kernel after each."""

    def chain(x):
        for k in range(hops):
            with hl.device(f"cpu:{k % 2}"):
                x = x * 1.0001 + 1.0
        return x

    def straight(x):
        with hl.device("cpu:0"):
            for _ in range(hops):
                x = hl.lax.optimization_barrier(x * 1.0001 + 1.0)
        return x

    x = hl.device_put(np.ones(64, np.float32))
    times = in_turns({"there": (2, hl.jit(chain), (x,)), "here": (2, hl.jit(straight), (x,))})
    return (times["there"] - times["here"]) / hops


def partitioning(count: int = 10_000) -> float:
    """Seconds to place and partition a module with that many instructions."""
    shape = Shape(DTYPES["f32"], (8,))
    b = Builder("main")
    values, generator = [Value(b, b.parameter(shape))], random.Random(0)
    for k in range(count):
        made = generator.choice(values[-20:]) * generator.choice(values[-20:])
        if k % 3 == 0:
            made.instruction.source = on_device(None, f"cpu:{k // 500 % 2}")
        values.append(made)
    module = Module("m", b.finish(b.tuple([v.instruction for v in values[-20:]])))
    start = time.process_time()
    whole = prepared(module)
    partition(whole, placed(whole, {}, "cpu:0"), "cpu:0")
    return time.process_time() - start


def main() -> None:
    times = training()
    one = times["one device, two threads"]
    lines = [
        "# Several CPU devices on one host",
        "",
        "Written by `python benchmarks/devices.py`; ratios are within one run.",
        "",
        f"A training step of a network of widths {WIDTHS}, batch {BATCH}:",
        "",
        "| configuration | ms | relative speed |",
        "| --- | --- | --- |",
        *(f"| {name} | {seconds * 1e3:.2f} | {one / seconds:.2f} |" for name, seconds in times.items()),
        "",
        f"Transfer of a value between devices, including the kernel that follows: {handing_over() * 1e6:.1f} µs; no "
        "bytes are copied.",
        "",
        f"Placement and partition of 10,000 instructions: {partitioning():.2f} s of processor time.",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    (Path(__file__).parent / "DEVICES.md").write_text(text)


if __name__ == "__main__":
    main()
