"""Collectives of devices in one process, against jax's on as many host devices: `python benchmarks/collectives.py`.

Options: --devices 2,4,8, --sizes 4,1K,1M (bytes of the whole array that a device has before or after it), --kinds,
--device-kind cpu or cuda (GPUs of this process, by NCCL, without jax), --seconds S of each, --jax PYTHON (an
interpreter with jax; default: this one; 'none': without), --markdown.

Both are measured in turn, so that other load on the machine affects both; a line shows the lower quartile of the times
of a call, arguments and results on their devices. jax runs in a separate process."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time

KINDS = ("all-reduce", "all-gather", "all-to-all")
SIZES = "4,1K,16K,256K,4M,32M,100M"
ROUNDS = 4

PEER = """
import json, os, sys, time
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import numpy as np
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def made(kind, count, elements):
    mesh = Mesh(np.array(jax.devices()[:count]), ("x",))
    def f(x):
        if kind == "all-reduce":
            return jax.lax.psum(x, "x")
        if kind == "all-gather":
            return jax.lax.all_gather(x, "x", tiled=True)
        return jax.lax.all_to_all(x, "x", 0, 0, tiled=True)
    out = P() if kind == "all-reduce" else P("x")
    call = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=out, check_vma=False))
    x = jax.device_put(np.ones(count * elements, np.float32), NamedSharding(mesh, P("x")))
    return lambda: jax.block_until_ready(call(x))

current = None
for line in sys.stdin:
    request = json.loads(line)
    if request["program"] != current:
        current = request["program"]
        call = made(*current)
        call()
    times, end = [], time.perf_counter() + request["seconds"]
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    print(json.dumps(times), flush=True)
"""


def module(kind: str, count: int, elements: int):
    """A collective of an array of f32 for each of `count` devices."""
    from hloom.ir.build import Builder, scalar_computation
    from hloom.ir.module import Module
    from hloom.ir.types import DTYPES, Shape

    b = Builder("main")
    x = b.parameter(Shape(DTYPES["f32"], (elements,)))
    among: dict = {"use_global_device_ids": True, "channel_id": 1, "replica_groups": (tuple(range(count)),)}
    if kind == "all-reduce":
        among["to_apply"] = scalar_computation("add", x.dtype)
    else:
        among["dimensions"] = (0,)
    return Module("collective", b.finish(b.emit(kind, x, **among)), None, 1, count)


def elements_of(kind: str, count: int, size: int) -> int:
    """Elements of a device's argument."""
    elements = max(size // 4, 1)
    if kind == "all-gather":
        return max(elements // count, 1)
    return math.ceil(elements / count) * count if kind == "all-to-all" else elements


def calls(kind: str, count: int, elements: int, device_kind: str = "cpu"):
    """A call without arguments."""
    import numpy as np

    from hloom.backends.spmd.backend import SpmdBackend
    from hloom.platforms.backend import CompileOptions
    from hloom.platforms.device import find_device

    options = CompileOptions(devices=tuple(f"{device_kind}:{k}" for k in range(count)))
    executable = SpmdBackend().compile(module(kind, count, elements), options)
    shards: list = [[np.ones(elements, np.float32) for _ in range(count)]]
    if device_kind == "cpu":
        return lambda: executable(shards)
    places = [find_device(f"{device_kind}:{k}") for k in range(count)]
    given = [[p.kind_object.put(s, p.index, "x") for s, p in zip(shards[0], places, strict=True)]]
    return lambda: [part.block_until_ready() for part in executable(given)[0]]


def timed(call, seconds: float) -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def quartile(times: list[float]) -> float:
    return sorted(times)[len(times) // 4]


class Peer:
    """jax in a separate process."""

    def __init__(self, python: str):
        self.process = subprocess.Popen(
            [python, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def times(self, program, seconds: float) -> list[float]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"program": program, "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def measured(
    kind: str, count: int, size: int, seconds: float, peer: Peer | None, device_kind: str = "cpu"
) -> tuple[float, float | None]:
    """Seconds of a call, of ours and of jax."""
    elements = elements_of(kind, count, size)
    call = calls(kind, count, elements, device_kind)
    call()
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(ROUNDS):
        ours += timed(call, seconds / ROUNDS)
        if peer is not None:
            theirs += peer.times([kind, count, elements], seconds / ROUNDS)
    return quartile(ours), quartile(theirs) if theirs else None


def parsed(text: str) -> int:
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper(), 1)
    return int(float(text.rstrip("kKmM")) * factor)


def duration(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="2,4,8")
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--device-kind", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--jax", default=sys.executable)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    peer = None if options.jax == "none" or options.device_kind != "cpu" else Peer(options.jax)
    print(f"{os.cpu_count()} cores")
    head = ("collective", "devices", "bytes", "hloom", "jax", "jax / hloom")
    mark = " | " if options.markdown else "  "
    widths = (11, 7, 6, 10, 10, 11)

    def line(*cells) -> None:
        text = mark.join([str(c).ljust(w) for c, w in zip(cells, widths, strict=True)])
        print(f"| {text} |" if options.markdown else text, flush=True)

    line(*head)
    if options.markdown:
        line(*("-" * w for w in widths))
    ratios: list[float] = []
    for kind in options.kinds.split(","):
        for count in map(int, options.devices.split(",")):
            for size in options.sizes.split(","):
                ours, theirs = measured(kind, count, parsed(size), options.seconds, peer, options.device_kind)
                ratio = theirs / ours if theirs else None
                ratios += [ratio] if ratio else []
                line(
                    kind,
                    count,
                    size,
                    duration(ours),
                    duration(theirs) if theirs else "",
                    f"{ratio:.2f}" if ratio else "",
                )
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean {mean:.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
