"""Measures one program in a process of its own: prints a line of JSON for each size.

Each engine's result, and the arguments that it changed, are compared with NumPy's. Then the engines that agree are
timed in turns; an engine's time is the least of its calls. Arguments that a program changes are restored between calls,
which is not timed.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import hloom.benchmarks.numpy_programs.programs  # noqa: F401  (registers them)
from hloom.benchmarks.measure.timing import no_longer_than, pause
from hloom.benchmarks.numpy_programs import gradients
from hloom.benchmarks.numpy_programs.engines import Engine, engine
from hloom.benchmarks.numpy_programs.table import PROGRAMS, Program, error_of

BLOCK = 0.01  # seconds of calls in a turn
LONG = 3.0  # seconds of a call that is not repeated


class Call:
    """Calls of an engine with a program's arguments, which are as before at the beginning of each."""

    def __init__(self, made: Engine, given: tuple, changed: list[int] | None):
        self.function = made.function
        own = copy.deepcopy(given)
        self.arguments = made.prepare(own)
        arrays = [k for k, a in enumerate(given) if isinstance(a, np.ndarray)]
        kept = arrays if changed is None else changed
        self.restored = [(own[k], given[k]) for k in kept] if made.in_place else []

    def __call__(self) -> float:
        """Seconds of one call."""
        for own, given in self.restored:
            np.copyto(own, given)
        start = time.perf_counter()
        self.function(*self.arguments)
        return time.perf_counter() - start


def short(error: BaseException) -> str:
    """The first lines of a message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:200]}"


def leaves(value: Any) -> list:
    return [leaf for v in value for leaf in leaves(v)] if isinstance(value, (tuple, list)) else [value]


def compared(made: Engine, given: tuple, reference: tuple | None, changed: list[int] | None) -> tuple:
    """(the first call's seconds, the error, (its result, its arguments)). reference: as the last."""
    own = copy.deepcopy(given)
    arguments = made.prepare(own)
    start = time.perf_counter()
    result = made.function(*arguments)
    seconds = time.perf_counter() - start
    if reference is None:
        return seconds, 0.0, (result, own)
    if made.in_place:
        error = max(error_of(result, reference[0]), error_of(own, reference[1]))
    else:
        wanted = [v for v in leaves(reference[0]) if v is not None] + [reference[1][k] for k in changed or ()]
        error = error_of([np.asarray(v) for v in leaves(result)], wanted)
    return seconds, error, (result, own)


def measured(program: Program, size: str, engines: list[str], patience: float, rounds: int) -> dict:
    """The record of a program at a size: `status` and `seconds` by engine, and who was the reference."""
    given = program.arguments(size)
    record: dict = {"n": program.sizes[size], "reference": "", "status": {}, "seconds": {}, "compile": {}}
    reference, changed, calls = None, None, {}
    for name in engines:
        made = gradients.engine(program, given) if name == "gradient" else engine(name, program)
        if made is None:
            continue
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings(), no_longer_than(patience):
                warnings.simplefilter("ignore")
                if name == "gradient":
                    made.function(*made.prepare(given))
                    error = gradients.error(program)
                else:
                    seconds, error, found = compared(made, given, reference, changed)
        except TimeoutError:
            record["status"][name] = f"slow: no result after {patience:g} s"
            continue
        except Exception as failure:
            record["status"][name] = f"refused: {short(failure)}"
            continue
        limit = gradients.TOLERANCE if name == "gradient" else program.rtol
        alone = name != "numpy" and reference is None and name != "gradient"  # nothing to compare with yet
        record["status"][name] = "unchecked" if alone else "agrees" if error <= limit else f"different: {error:.1e}"
        if record["status"][name] == "agrees" and record["status"].get(record["reference"]) == "unchecked":
            record["status"][record["reference"]] = "agrees"
        if name != "gradient":
            if reference is None and error <= limit:
                reference, record["reference"] = found, name
                own = found[1]
                arrays = [k for k, a in enumerate(given) if isinstance(a, np.ndarray)]
                changed = [
                    k for k in arrays if not np.array_equal(own[k], given[k], equal_nan=given[k].dtype.kind in "fc")
                ]
            record["compile" if name != "numpy" else "seconds"][name] = seconds
        if error <= limit:
            calls[name] = Call(made, given, changed)
    slow = record["seconds"].get("numpy", 0.0) > LONG
    if slow:
        del calls["numpy"]
    record["seconds"] |= in_turns(calls, rounds)
    return record


def in_turns(calls: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The least seconds of each."""
    least: dict[str, float] = {}
    orders = np.random.default_rng(0)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for turn in range(rounds):
            for name in orders.permutation(list(calls)):
                if least.get(name, 0.0) > LONG / 10 and turn > 2:
                    continue
                pause()
                end = time.perf_counter() + BLOCK
                while True:
                    least[name] = min(calls[name](), least.get(name, np.inf))
                    if time.perf_counter() > end:
                        break
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--sizes", nargs="+")
    parser.add_argument("--engines", nargs="+")
    parser.add_argument("--patience", type=float)
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    program = PROGRAMS[options.program]
    for size in options.sizes:
        record = measured(program, size, options.engines, options.patience, options.rounds)
        print(json.dumps({size: record}), flush=True)


if __name__ == "__main__":
    main()
