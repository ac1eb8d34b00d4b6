"""What is timed in processes of its own: from the start of a process to the first result, and the first compilation."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

_FIRST_RESULT = """
import hloom as hl, hloom.numpy as hnp
import numpy, time
f = hl.jit(lambda x: hnp.tanh(x) * 2 + 1)
float(f(numpy.ones(4, numpy.float32))[0])
print(time.time())
"""

_FIRST_GELU = """
import hloom as hl, numpy, time
if {driver}:
    from hloom.native_setup import driver
    driver()
x = numpy.ones(1 << 22, numpy.float32)
start = time.perf_counter()
hl.jit(hl.nn.gelu)(x).block_until_ready()
print(time.perf_counter() - start)
"""


def _run(code: str, cache: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"HLOOM_CACHE_DIR": cache}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"a timed process failed:\n{done.stderr}")
    return float(done.stdout.split()[-1])


def warm_start(repeats: int = 5) -> float:
    """Seconds from the start of a process to the first result of a small function, all kernels in the disk cache."""
    with tempfile.TemporaryDirectory() as cache:
        _run(_FIRST_RESULT, cache)
        times = []
        for _ in range(repeats):
            start = time.time()
            times.append(_run(_FIRST_RESULT, cache) - start)
    return statistics.median(times)


def cold_gelu(with_driver: bool, repeats: int = 3) -> float:
    """Seconds of the first call of gelu (4M float32) in a process that has imported hloom, with an empty disk cache.

    with_driver: the runtime's driver, which is compiled once for a machine and kept, is there already.
    """
    times = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            times.append(_run(_FIRST_GELU.format(driver=with_driver), cache))
    return statistics.median(times)
