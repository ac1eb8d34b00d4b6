"""NumPy programs, source unchanged: `hl.njit` beside NumPy, Numba and jax.

    python -m benchmarks.numpy_programs [--only stencils lu] [--size small] [--columns numpy numba hloom] [--rounds 7]
    python -m benchmarks.numpy_programs --page

Each program runs in a process of its own. Its record is written to the file of results when it is ready; a run leaves
out what the file has, so that an interrupted one can go on. --page writes benchmarks/NUMPY.md from the file. With
--rounds 0 results are compared and nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import hloom.benchmarks.numpy_programs.programs  # noqa: F401  (registers them)
from hloom.benchmarks.numpy_programs import page, startup
from hloom.benchmarks.numpy_programs.engines import ENGINES
from hloom.benchmarks.numpy_programs.table import PROGRAMS, SIZES
from hloom.compiler.targets.cpu.prebuilt import archive

FOLDER = Path(__file__).parents[1]
COLUMNS = (*ENGINES, "gradient", "first")


def chosen(only: list[str] | None) -> list[str]:
    """Names of programs, of those named and of the kinds named."""
    wanted = set(only or ())
    found = [p.name for p in PROGRAMS.values() if not wanted or {p.name, p.kind.replace(" ", "_")} & wanted]
    unknown = wanted - set(PROGRAMS) - {p.kind.replace(" ", "_") for p in PROGRAMS.values()}
    if unknown:
        raise SystemExit(f"no programs, and no kinds of them: {', '.join(sorted(unknown))}")
    return found


def measured(name: str, sizes: list[str], columns: list[str], options: argparse.Namespace) -> dict:
    """The records of a program by size, from a process of its own."""
    command = [sys.executable, "-m", "hloom.benchmarks.numpy_programs.worker", name, "--sizes", *sizes]
    command += ["--engines", *columns, "--patience", str(options.patience), "--rounds", str(options.rounds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit)
        text, failure = done.stdout, f"the process ended with {done.returncode}" if done.returncode else ""
        if failure:
            print(done.stderr[-2000:], file=sys.stderr)
    except subprocess.TimeoutExpired as error:
        text, failure = (error.stdout or b"").decode(), f"no result after {options.limit:g} s"
    records: dict = {}
    for line in text.splitlines():
        if line.startswith("{"):
            records |= json.loads(line)
    for size in sizes:
        if size not in records:
            records[size] = {"n": PROGRAMS[name].sizes[size], "status": {}, "seconds": {}, "failed": failure}
        records[size] |= {"columns": columns, "rounds": options.rounds}
    return records


def run(options: argparse.Namespace) -> None:
    results = json.loads(options.results.read_text()) if options.results.exists() else {"machine": {}, "programs": {}}
    machine = page.machine()
    if results["machine"] not in ({}, machine) and not options.again:
        raise SystemExit(f"{options.results} is of another machine or version; --results names another file")
    results["machine"] = machine
    engines = [c for c in COLUMNS if c in options.columns and c != "first"]
    if "first" in options.columns and not archive.is_current():
        raise SystemExit("first calls need prebuilt code, as an installed package has: "
                         "python -m hloom.backends.cpu.prebuild")  # fmt: skip
    for name in chosen(options.only):
        record = results["programs"].setdefault(name, {"sizes": {}})
        wanted = []
        for size in options.size if engines else ():
            old = record["sizes"].get(size, {})
            missing = set(engines) - set(old.get("columns", ()))
            if options.again or missing or old["rounds"] < options.rounds or old.get("failed"):
                wanted.append(size)
        if wanted:
            record["sizes"] |= measured(name, wanted, engines, options)
        if "first" in options.columns and ("first" not in record or options.again):
            record["first"] = startup.first_calls(name)
        options.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        for size in wanted:
            print(f"{name:22} {size:7} {page.line_of(record['sizes'][size])}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="programs, and kinds of programs")
    parser.add_argument("--size", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=COLUMNS)
    parser.add_argument("--rounds", type=int, default=7, help="of timings; 0: only compare results")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds for an engine's first call")
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds for the process of a program")
    parser.add_argument("--again", action="store_true", help="measure what the file of results has already")
    parser.add_argument("--results", type=Path, default=FOLDER / "numpy_programs.json")
    parser.add_argument("--page", action="store_true", help="write NUMPY.md from the file of results")
    options = parser.parse_args()
    if options.page:
        text = page.text_of(json.loads(options.results.read_text()))
        (FOLDER / "NUMPY.md").write_text(text, encoding="utf-8")
    else:
        run(options)


if __name__ == "__main__":
    main()
