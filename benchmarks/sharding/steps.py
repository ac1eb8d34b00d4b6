"""Time of a call on virtual devices: hloom against JAX on as many, in turn.

    python -m benchmarks.sharding.steps [--devices 2,4,8] [--seconds 1] [--jax PYTHON] [names ...]

Each library runs in a separate process, one of them at a time, so other load on the machine affects both. Arguments and
results are on their devices; each figure is the shortest time of a call.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from benchmarks.sharding.all_programs import PROGRAMS

ROUNDS = 4
DEVICES = (2, 4, 8)


def mesh_sizes(name: str, devices: int) -> dict[str, int]:
    """The axes of a program's mesh over so many devices: of two axes the second one gets most of them."""
    axes = list(PROGRAMS[name][0])
    return {axes[0]: devices} if len(axes) == 1 else {axes[0]: max(devices // 4, 1), axes[1]: min(devices, 4)}


# --- a process that calls -----------------------------------------------------------------------------------------


def _library(name: str):
    if name == "jax":
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax

        return jax
    os.environ["HLOOM_NUM_CPU_DEVICES"] = "8"
    import hloom

    return hloom


def _call(library, name: str, devices: int):
    """A call of a program without arguments."""
    from_sizes, make = mesh_sizes(name, devices), PROGRAMS[name][1]
    function, shapes, specs, results = make(library)
    sharding = library.sharding
    grid = np.array(library.devices()[:devices]).reshape(tuple(from_sizes.values()))
    mesh = sharding.Mesh(grid, tuple(from_sizes))
    places = [sharding.NamedSharding(mesh, sharding.PartitionSpec(*s)) for s in (*specs, *results)]
    given, outs = places[: len(specs)], tuple(places[len(specs) :])
    random = np.random.default_rng(0)
    values = [(random.random(s, np.float32) - 0.5) / 8 for s in shapes]
    library.set_mesh(mesh)
    arguments = [library.device_put(v, p) for v, p in zip(values, given, strict=True)]
    compiled = library.jit(function, out_shardings=outs if len(outs) > 1 else outs[0])
    return lambda: library.block_until_ready(compiled(*arguments))


def serve(library) -> None:
    """Answers requests on the standard input: {program, devices, seconds}, with the times of calls."""
    current = None
    call: Callable = print
    for line in sys.stdin:
        request = json.loads(line)
        program = request["program"], request["devices"]
        if program != current:
            current, call = program, _call(library, *program)
            for _ in range(3):
                call()
        times: list[float] = []
        end = time.perf_counter() + request["seconds"]
        while time.perf_counter() < end or len(times) < 3:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        print(json.dumps(times), flush=True)


class Worker:
    """A library in a separate process."""

    def __init__(self, library: str, python: str = sys.executable):
        self.library, self.python = library, python
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by `end`)
        self.process = self._started()

    def _started(self) -> subprocess.Popen:
        return subprocess.Popen(
            [self.python, "-m", "benchmarks.sharding.steps", "--serve", self.library], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )  # fmt: skip

    def times(self, program: str, devices: int, seconds: float) -> list[float]:
        """Of calls of a program. A process of JAX that ends is started again, once. Raises RuntimeError."""
        request = json.dumps({"program": program, "devices": devices, "seconds": seconds})
        answer = self._answer(request)
        if not answer and self.library == "jax":
            print(f"JAX's process ended ({self.process.wait()}) in {program}; it is started again", file=sys.stderr)
            self.process = self._started()
            answer = self._answer(request)
        if not answer:
            status = self.process.wait()
            self.errors.seek(0)
            said = "".join(self.errors.readlines()[-8:])
            raise RuntimeError(f"{self.library}'s process ended ({status}) in {program} on {devices} devices:\n{said}")
        return json.loads(answer)

    def _answer(self, request: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self.process.stdout.readline()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.errors.close()


def least(times: list[float]) -> float:
    return min(times)


def compared(names, devices, seconds: float, jax: str = sys.executable) -> list[tuple[str, int, float, float]]:
    """(program, devices, seconds of hloom's call, of JAX's) of each."""
    rows = []
    ours, theirs = Worker("hloom"), Worker("jax", jax)
    for name in names:
        for count in devices:
            found: tuple[list[float], list[float]] = ([], [])
            for _ in range(ROUNDS):
                for times, worker in zip(found, (ours, theirs), strict=True):
                    times += worker.times(name, count, seconds / ROUNDS)
            rows.append((name, count, least(found[0]), least(found[1])))
            print(f"{name:42} {count} {rows[-1][2] * 1e6:9.0f} us {rows[-1][3] * 1e6:9.0f} us "
                  f"{rows[-1][3] / rows[-1][2]:6.2f}", file=sys.stderr, flush=True)  # fmt: skip
    ours.end()
    theirs.end()
    return rows


def geometric_mean(ratios) -> float:
    ratios = list(ratios)
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default=",".join(map(str, DEVICES)))
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--jax", default=sys.executable)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.serve:
        serve(_library(options.serve))
        return
    rows = compared(
        options.names or list(PROGRAMS), [*map(int, options.devices.split(","))], options.seconds, options.jax
    )
    ratios = [theirs / ours for _, _, ours, theirs in rows]
    print(f"geometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
