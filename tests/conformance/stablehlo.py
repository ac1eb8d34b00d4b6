"""Runs a folder of StableHLO test programs through hloom's compiler and applies the checks that stand in them.

    python tests/conformance/stablehlo.py DIR [-j 2] [-v] [--only NAME]

A line for each file: pass (with the worst distance in ulp), fail (with what is wrong), unsupported (with the op, from
a typed error) or parsed (a file without checks: parsed, printed, parsed again, same text; run at several sizes). Then
the totals. The exit status is 0 when no file failed and none was unsupported.

A file may hold several modules, separated by lines `// -----`. Constants that the check's program takes its inputs from
are arguments of the compiled program, so that it computes everything it is asked for when it runs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_SPLIT = re.compile(r"^// -----.*$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """status: 'pass', 'fail', 'unsupported' or 'parsed'. detail: why. ulp: the worst distance that a check saw."""

    file: str
    status: str
    detail: str = ""
    ulp: float = 0.0
    seconds: float = 0.0

    def line(self) -> str:
        note = f"{self.ulp:g} ulp" if self.status == "pass" else self.detail
        return f"{self.status:11} {self.file}" + (f"  {note}" if note else "")


def check_file(path: Path, root: Path | None = None) -> Outcome:
    """The outcome of one file."""
    from hloom.errors import HloomError, UnsupportedError

    name = str(path.relative_to(root)) if root else path.name
    started = time.perf_counter()
    worst, checks, notes = 0.0, 0, []
    try:
        for text in _SPLIT.split(path.read_text(encoding="utf-8")):
            if not text.strip():
                continue
            program = round_trip(text, str(path))
            for function in entries(program):
                distances = run_checks(program, function)
                checks += len(distances)
                worst = max([worst, *distances])
            if not entries(program):
                notes += [run_static(program), run_open(text)]
        status, detail = ("pass", "") if checks else ("parsed", "; ".join(dict.fromkeys(notes)))
    except CheckFailed as error:
        status, detail, worst = "fail", str(error), error.ulp
    except UnsupportedError as error:
        status, detail = "unsupported", f"{error.asked}; {error.found}".rstrip("; ")
    except HloomError as error:
        status, detail = "fail", f"{type(error).__name__}: {str(error)[:300]}".replace("\n", " ")
    except Exception as error:  # what a run of thousands of files must name and survive
        where = traceback.extract_tb(error.__traceback__)[-1]
        status, detail = "fail", f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"[:300]
    return Outcome(name, status, detail, worst, time.perf_counter() - started)


class CheckFailed(Exception):
    """A check does not hold. ulp: how far away the worst element is."""

    def __init__(self, message: str, ulp: float = 0.0):
        super().__init__(message)
        self.ulp = ulp


def round_trip(text: str, file: str):
    """Parses, prints, parses again: both prints are the same text. The syntax tree."""
    from hloom.ir.stablehlo import parse_program, print_program

    program = parse_program(text, file)
    printed = print_program(program)
    again = print_program(parse_program(printed, file))
    if printed != again:
        raise CheckFailed("printed, parsed and printed again it is another text")
    return program


def entries(program) -> list[str]:
    """The functions to run: `main`, or all without arguments that hold a check."""
    functions = program.functions()

    def holds_check(operation) -> bool:
        target = str(operation.attributes.get("call_target_name", operation.name))
        return target.startswith("check.") or any(holds_check(o) for r in operation.regions for o in r.operations)

    return [name for name, f in functions.items() if holds_check(f) and not f.attributes["function_type"].inputs]


def run_checks(program, function: str) -> list[float]:
    """Compiles and runs a function; the distance that each of its checks saw. Raises CheckFailed."""
    from hloom.backends.cpu.compilation import compile_module
    from hloom.ir.stablehlo import convert_program

    module, checks, inputs = convert_program(program, function)
    results = compile_module(module)(inputs)
    pairs = results[len(results) - 2 * len(checks) :]
    return [
        compare(check.name, np.asarray(pairs[2 * k]), np.asarray(pairs[2 * k + 1]), check.attributes)
        for k, check in enumerate(checks)
    ]


EXTENT = 3  # what extents that a program leaves open become


def run_static(program) -> str:
    """Makes a program without checks static and runs it: 'static, ran', or why it cannot be made static.

    Open extents become EXTENT, and so do integer scalars among the arguments, which JAX's exporter passes extents by.
    The compiled program gives what the reference interpreter gives. Where the program treats its first extent as a
    batch (JAX's vmap), running on parts of the arguments gives the parts of the result. Raises CheckFailed.
    """
    from hloom.errors import UnsupportedError

    if "main" not in program.functions():
        return "no function @main"
    inputs = program.functions()["main"].attributes["function_type"].inputs
    try:
        whole = _run_with_extent(program, inputs, EXTENT)
    except UnsupportedError as error:
        return f"not static: {error.asked}; {error.found}".rstrip("; ")
    if not _is_batched(program):
        return "static, ran"
    part = _run_with_extent(program, inputs, 1)
    for k, (a, b) in enumerate(zip(part, whole, strict=True)):
        if a.shape[1:] != b.shape[1:] or not np.all(almost_equal(a, b[:1])):
            raise CheckFailed(f"result {k} of a batch of 1 is not that of the first of a batch of {EXTENT}")
    return "static, ran, batched"


def _is_batched(program) -> bool:
    """Whether every result has an open first extent, in a program of JAX's vmap tests."""
    function = program.functions()["main"].attributes["function_type"]
    name = Path(program.file).name
    return name.startswith("vmap_") and all(t.dims and t.dims[0] is None for t in function.results)


SIZES = (5, 3, 8, 2, 1, 0, 13)  # what open extents become in turn
SMALL = 2  # sizes below it have modules of their own


def run_open(text: str) -> str:
    """Runs a program at several sizes: 'open, modules 1 of 7 extents' where one module served all that are not small.

    Each result is that of the program read for the one size, and what that refuses is refused. Raises CheckFailed.
    """
    import hloom as hl
    from hloom.ir.types import Shape

    function = hl.from_stablehlo(text)
    if not function._reader.open:
        return "no open extents"
    modules = set()
    for extent in SIZES:
        arrays = []
        for k, type_ in enumerate(function._reader.parameters()):
            dtype = function._reader.shape(type_).dtype
            shape = Shape(dtype, tuple(extent if d is None else d for d in type_.dims))
            sized = type_.dims == () and type_.element in ("i32", "i64")
            arrays.append(np.asarray(extent, dtype) if sized else _numbers(shape, k))
        expected = _outcome(lambda a=arrays: function.lower(*a).compile()(*a))
        found = _outcome(lambda a=arrays: function(*a))
        if isinstance(found, str) or isinstance(expected, str):
            if found != expected:
                raise CheckFailed(f"with extents of {extent}: {found}, and read for them {expected}")
            continue
        for k, (a, b) in enumerate(zip(found, expected, strict=True)):
            if a.shape != b.shape or a.dtype != b.dtype or not np.all(_close(a, b, 1e-6)):
                raise CheckFailed(f"result {k} with extents of {extent} is not that of the program read for them")
        if extent >= SMALL:
            modules.add(
                id(function._open.serving(function._leaves(arrays))[0]) if not function._open._closed else extent
            )
    return f"open, modules {len(modules)} of {len(SIZES)} extents"


def _outcome(call) -> list[np.ndarray] | str:
    """The results of a call, or the kind of error that refuses it."""
    from hloom.errors import HloomError

    try:
        results = call()
    except HloomError as error:
        return type(error).__name__
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def _close(a: np.ndarray, b: np.ndarray, tolerance: float) -> np.ndarray:
    """Equal numbers, or such that are apart by a part of the greatest one: sums in another order."""
    greatest = np.max(np.abs(b.astype(np.complex128)), where=np.isfinite(b.astype(np.complex128)), initial=1.0)
    scale = np.asarray(tolerance * float(greatest))
    wide = np.complex128 if b.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore"):
        close = np.abs(a.astype(wide) - b.astype(wide)) <= scale * (100 if b.dtype.itemsize <= 2 else 1)
    return close | identical(a, b)


def _run_with_extent(program, inputs, extent: int) -> list[np.ndarray]:
    from hloom.backends.cpu.compilation import compile_module
    from hloom.ir.interpret import run
    from hloom.ir.stablehlo import to_module

    sized = [t.dims == () and t.element in ("i32", "i64") for t in inputs]
    known = [np.asarray(extent) if s else None for s in sized]
    shapes = [tuple(extent if d is None else d for d in t.dims) for t in inputs]
    module = to_module(program, "main", shapes, known)
    arrays = [
        np.asarray(extent, p.dtype) if s else _numbers(p.shape, k)
        for k, (p, s) in enumerate(zip(module.entry.parameters, sized, strict=True))
    ]
    results = compile_module(module)(arrays)
    expected = run(module, arrays)
    expected = list(expected) if isinstance(expected, tuple) else [expected]
    for k, (a, b) in enumerate(zip(results, expected, strict=True)):
        if not np.all(_close(np.asarray(a), np.asarray(b), 1e-4)):
            raise CheckFailed(f"result {k} of the static program is not the interpreter's")
    return results


def _numbers(shape, seed: int) -> np.ndarray:
    """Numbers of a shape, the same in the first places of its first dimension for every extent of it."""
    rng = np.random.default_rng(seed)
    inner = shape.dims[1:]
    rows = [rng.standard_normal(inner) * 2 for _ in range(shape.dims[0])] if shape.dims else rng.standard_normal()
    values = np.asarray(rows).reshape(shape.dims)
    kind = shape.dtype.kind
    if kind == "b":
        return values > 0
    return (np.abs(values) if kind == "u" else values).astype(shape.dtype)


# --- the checks ---------------------------------------------------------------------------------------------------


def compare(name: str, actual: np.ndarray, expected: np.ndarray, attributes) -> float:
    """The distance in ulp, if the check holds; otherwise raises CheckFailed."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise CheckFailed(f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}")
    distance = ulp_distance(actual, expected)
    worst = float(distance.max()) if distance.size else 0.0
    if name == "check.expect_close":
        largest = _attribute(attributes, "max_ulp_difference", 1)
        _require(distance <= largest, name, actual, expected, worst)
    elif name in ("check.expect_eq", "check.eq"):
        _require(identical(actual, expected), name, actual, expected, worst)
    elif name == "check.expect_almost_eq":
        _require(almost_equal(actual, expected), name, actual, expected, worst)
    else:
        raise CheckFailed(f"{name} is not a check that is known")
    return worst


def _attribute(attributes, name: str, default: int) -> int:
    value = attributes.get(name)
    return default if value is None else int(value.value)


def _require(holds, name, actual, expected, worst) -> None:
    if np.all(holds):
        return
    wrong = np.flatnonzero(~np.asarray(holds).reshape(-1))
    k = int(wrong[0])
    a, b = (np.asarray(x).reshape(-1)[k] for x in (actual, expected))
    raise CheckFailed(
        f"{name}: {wrong.size} of {actual.size} elements, {worst:g} ulp; [{k}] {a!r}, expected {b!r}", worst
    )


def _parts(x: np.ndarray) -> np.ndarray:
    """Complex numbers as pairs along a last dimension of 2; others as they are."""
    return x.view(x.real.dtype).reshape(*x.shape, 2) if x.dtype.kind == "c" else x


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or "float" in dtype.name


def ulp_distance(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How many floats lie between: 0 for equal infinities and for NaNs, inf for other pairs with one of them. Integers:
    the difference."""
    if actual.dtype.kind == "c":
        return ulp_distance(_parts(np.ascontiguousarray(actual)), _parts(np.ascontiguousarray(expected))).max(axis=-1)
    if not _is_float(actual.dtype):
        if actual.dtype == bool:
            return (actual != expected).astype(np.float64)
        return np.abs(actual.astype(object) - expected.astype(object)).astype(np.float64)
    width = actual.dtype.itemsize

    def ordered(x):
        bits = np.ascontiguousarray(x).view(f"i{width}").reshape(x.shape).astype(object if width == 8 else np.int64)
        return np.where(bits < 0, -(bits & ((1 << (8 * width - 1)) - 1)), bits)

    distance = np.abs(ordered(actual) - ordered(expected)).astype(np.float64)
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        special = ~np.isfinite(a) | ~np.isfinite(b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(special, np.where(same, 0.0, np.inf), distance)


def identical(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Equal numbers, NaN and NaN too."""
    if actual.dtype.kind == "c":
        parts = identical(_parts(np.ascontiguousarray(actual)), _parts(np.ascontiguousarray(expected)))
        return parts.all(axis=-1)
    if _is_float(actual.dtype):
        a, b = actual.astype(np.float64), expected.astype(np.float64)
        return (a == b) | (np.isnan(a) & np.isnan(b))
    return actual == expected


def almost_equal(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """|a - b| <= 1e-4, equal infinities, NaN and NaN."""
    if actual.dtype.kind == "c":
        return almost_equal(_parts(np.ascontiguousarray(actual)), _parts(np.ascontiguousarray(expected))).all(axis=-1)
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return (np.abs(a - b) <= 1e-4) | (a == b) | (np.isnan(a) & np.isnan(b))


# --- folders ------------------------------------------------------------------------------------------------------


def check_folder(root: Path, jobs: int, only: str = "", report=None) -> list[Outcome]:
    """The outcomes of all .mlir files below a folder, in the order of their names."""
    files = sorted(p for p in root.rglob("*.mlir") if only in str(p))
    if jobs <= 1:
        found = []
        for path in files:
            found.append(check_file(path, root))
            if report:
                report(found[-1])
        return found
    outcomes: dict[int, Outcome] = {}
    # A fresh interpreter for each worker: forks of a process with threads can hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=None) as pool:
        waiting = {pool.submit(check_file, path, root): k for k, path in enumerate(files)}
        for future in as_completed(waiting):
            outcome = future.result()
            outcomes[waiting[future]] = outcome
            if report:
                report(outcome)
    return [outcomes[k] for k in sorted(outcomes)]


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="files with this in their path")
    parser.add_argument("-q", "--quiet", action="store_true", help="no lines for files that pass")
    options = parser.parse_args(arguments)
    started = time.perf_counter()

    def report(outcome: Outcome) -> None:
        if not options.quiet or outcome.status in ("fail", "unsupported"):
            print(outcome.line(), flush=True)

    outcomes = check_folder(options.folder, options.jobs, options.only, report)
    counts = {status: sum(o.status == status for o in outcomes) for status in ("pass", "fail", "unsupported", "parsed")}
    totals = ", ".join(f"{count} {status}" for status, count in counts.items())
    print(f"{len(outcomes)} files: {totals}; {time.perf_counter() - started:.0f} s with {options.jobs} processes")
    return 0 if counts["fail"] == counts["unsupported"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
