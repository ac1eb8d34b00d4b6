"""First calls of the programs in processes of their own, with cold and warm caches."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time

import numpy as np

import hloom.benchmarks.numpy_programs.programs  # noqa: F401  (registers them)
from hloom.benchmarks.measure.processes import output_of
from hloom.benchmarks.numpy_programs.table import PROGRAMS

_CODE = """
import time, numpy
start = time.perf_counter()
import {library}
{library}.njit
seconds = time.perf_counter() - start
from hloom.benchmarks.numpy_programs.startup import measure
measure({name!r}, {library!r}, seconds)
"""


def measure(name: str, library: str, imported: float) -> None:
    """Inside of a timed process: prints the seconds of the library's import and of the first call of a program."""
    program = PROGRAMS[name]
    given = program.arguments("small")
    njit = importlib.import_module(library).njit
    if library == "numba":
        from hloom.benchmarks.numpy_programs.engines import engine

        made = engine("numba", program)
        assert made is not None
        function, given = made.function, made.prepare(given)
    start = time.perf_counter()
    if library == "hloom":
        function = njit(program.function)
    with np.errstate(all="ignore"):
        function(*given)
    print(json.dumps({"import": imported, "call": time.perf_counter() - start}))


def _facts(name: str, library: str, cache: str) -> dict:
    code = _CODE.format(name=name, library=library)
    return json.loads(output_of(code, HLOOM_CACHE_DIR=cache, NUMBA_CACHE_DIR=cache).splitlines()[-1])


def first_calls(name: str) -> dict[str, float | str]:
    """Seconds: of the first call of hloom with empty caches (`cold`) and of Numba (`numba`), both after the imports;
    and of hloom's import and first call with the caches of the process before, after NumPy's import (`warm`)."""
    record: dict[str, float | str] = {}
    with tempfile.TemporaryDirectory() as cache:
        try:
            record["cold"] = _facts(name, "hloom", cache)["call"]
            again = _facts(name, "hloom", cache)
            record["warm"] = again["import"] + again["call"]
            record["numba"] = _facts(name, "numba", cache)["call"]
        except RuntimeError as error:
            record["failed"] = str(error).splitlines()[-1][:200]
    return record


if __name__ == "__main__":
    print({name: first_calls(name) for name in sys.argv[1:]})
