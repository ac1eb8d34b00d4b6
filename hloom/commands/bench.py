"""Times the workloads with hloom and the installed peers, interleaved in one process, against the machine's limits.

Examples:
    hloom bench
    hloom bench --suite full --peers jax,torch,numpy
    hloom bench --only gelu_4m,softmax --peers jax --no-startup --no-conditions
    hloom bench --suite full --keep results.json --only softmax

The first prints tables of the core suite; the second also writes RESULTS.md, results.json and results.png; the last
measures softmax again and takes all other rows from the file.

Each result is compared with NumPy in double precision before it is timed. Rows that miss their target are listed first,
with a profile summary. 'torch' means torch and torch.compile, 'numpy' means NumPy and numexpr, and 'unfused' means
hloom with one kernel per operation.

"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import json
import os
import platform
import statistics
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

import hloom
from hloom.backends.cpu.driver import driver
from hloom.benchmarks.libraries import GROUPS, PEERS, load
from hloom.benchmarks.measure import conditions, limits, startup, timing
from hloom.benchmarks.report import report
from hloom.benchmarks.report.goals import geometric_mean, geometric_means, goals
from hloom.benchmarks.report.plot import bar_chart
from hloom.benchmarks.workloads import FAMILIES, WORKLOADS
from hloom.commands import CommandError
from hloom.compiler.targets.cpu.machine import host

FILES = {"json": "results.json", "png": "results.png", "markdown": "RESULTS.md"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", choices=("core", "full"), default="core", help="which workloads to time")
    parser.add_argument("--peers", default="jax,torch,numpy", help="comma-separated libraries to compare with")
    parser.add_argument("--only", default="", metavar="NAMES", help="comma-separated workloads or families")
    parser.add_argument("--seconds", type=float, default=0.25, help="time per workload and library")
    parser.add_argument("--folder", help="folder for the files of the full suite (default: benchmarks, if it exists)")
    parser.add_argument("--json", metavar="FILE", help="write all measurements to this file")
    parser.add_argument("--png", metavar="FILE", help="draw charts (requires matplotlib: pip install 'hloom[bench]')")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables to this file")
    parser.add_argument("--keep", metavar="FILE", help="take everything that is not measured now from this JSON file")
    parser.add_argument("--note", default="", help="a remark to store with the results")
    parser.add_argument(
        "--no-rows", action="store_true", help="skip the workloads (with --keep: measure the other parts only)"
    )
    parser.add_argument("--no-startup", action="store_true", help="skip first-call latency and new shapes")
    parser.add_argument(
        "--no-conditions", action="store_true", help="skip import time, threads, concurrent callers and memory"
    )
    parser.add_argument("--list", action="store_true", help="list the workloads and exit")


def run(options: argparse.Namespace) -> int:
    console = Console() if sys.stdout.isatty() else Console(width=160)  # a file has no width of its own
    if options.list:
        _list_workloads(console)
        return 0
    peers = [p for name in _names(options.peers, PEERS, "peer") for p in GROUPS.get(name, (name,))]
    chosen = chosen_workloads(options)
    files = _writable_files(options)
    kept = kept_result(options.keep)

    threads = driver().num_threads
    libraries = load(peers, threads)
    absent = [p for p in peers if p not in {library.name for library in libraries}]
    if absent:
        console.print(f"not installed, skipped: {', '.join(absent)}")
    console.print(f"{threads} threads each; {len(chosen)} workloads", highlight=False)
    rows, limits = _measured_rows(chosen, libraries, options, console, kept)
    rows = [report.judged(row, limits) for row in rows]
    triads = [row["triad"] for row in rows if row["triad"]]
    extras = dict(kept.get("extras", {}))
    names = [item.name for item in chosen]
    if not options.no_conditions:
        extras |= _conditions(console, peers)
    if not options.no_startup:
        with console.status("first-call latency and new shapes, each in its own process"):
            extras["startup"] = _startup(names, [p for p in peers if p == "jax"], extras.get("startup") or {})
    result = {
        "machine": machine_facts(),
        "threads": threads,
        "note": options.note or kept.get("note", ""),
        "triad": statistics.median(triads) if triads else limits["triad"],
        "limits": limits,
        "libraries": kept.get("libraries", {}) | {library.name: library.title for library in libraries},
        "rows": rows,
        "geometric_means": geometric_means(rows),
        "extras": extras,
        "goals": goals(rows, extras),
    }
    report.print_tables(result, console)
    written = _written(result, files)
    if written:
        console.print(f"written: {', '.join(written)}", highlight=False)
    return 0


def _list_workloads(console: Console) -> None:
    for family in FAMILIES:
        console.print(family.name, style="bold", highlight=False)
        for item in family.members.values():
            console.print(f"  {item.name:20} {item.suite:5} {item.what}", highlight=False)


def _writable_files(options: argparse.Namespace) -> dict[str, str | None]:
    """The file of each kind, or None. Raises CommandError, before anything is measured, where one cannot be written."""
    files = {kind: getattr(options, kind) or _default_file(options, kind) for kind in FILES}
    if options.png and importlib.util.find_spec("matplotlib") is None:
        raise CommandError("--png requires matplotlib", "it is not installed", "pip install 'hloom[bench]'")
    for file in files.values():
        if file and not Path(file).absolute().parent.is_dir():
            raise CommandError(f"{file} cannot be written", "its folder does not exist", "create the folder first")
    return files


def _written(result: dict, files: dict[str, str | None]) -> list[str]:
    """Writes the results to the files, charts where matplotlib is installed; the files that are there then."""
    if files["json"]:
        write(files["json"], json.dumps(result, indent=1) + "\n")
    if files["markdown"]:
        write(files["markdown"], report.markdown(result))
    if files["png"] and importlib.util.find_spec("matplotlib") is not None:
        bar_chart(result, files["png"])
    return [file for file in files.values() if file and Path(file).exists()]


def chosen_workloads(options: argparse.Namespace) -> list:
    """The workloads named by --only (workloads or families), or those of the suite."""
    families = {family.name: list(family.members) for family in FAMILIES}
    only = [w for name in _names(options.only, [*WORKLOADS, *families], "workload") for w in families.get(name, [name])]
    return [w for w in WORKLOADS.values() if (w.name in only if only else w.suite in ("core", options.suite))]


def _default_file(options: argparse.Namespace, kind: str) -> str | None:
    """A complete run of the full suite writes to the folder `benchmarks`, where it exists."""
    if options.folder:
        return str(Path(options.folder) / FILES[kind])
    whole = options.suite == "full" and not options.only and not options.no_rows
    return str(Path("benchmarks") / FILES[kind]) if whole and Path("benchmarks").is_dir() else None


def kept_result(file: str | None) -> dict:
    """The contents of a file that `--json` wrote on this machine; {} for no file. Raises CommandError."""
    if not file:
        return {}
    try:
        found = json.loads(Path(file).read_text())
    except json.JSONDecodeError as error:
        raise CommandError(f"--keep {file}", f"not a JSON file: {error}", "name a file that --json wrote") from None
    if found.get("machine", {}).get("processor") != machine_facts()["processor"]:
        raise CommandError(f"--keep {file}", "it was measured on another machine", "repeat all measurements")
    return found


def _measured_rows(chosen, libraries, options, console, kept) -> tuple[list[dict], dict]:
    """The rows in suite order, kept ones included, and the limits of the machine."""
    old = {row["name"]: row for row in kept.get("rows", [])}
    found = kept.get("limits")
    if not found:
        with console.status("the limits of the machine"):
            found = limits.measured(0.05).as_dict()
    if options.no_rows:
        return list(old.values()), found
    for item in chosen:
        with console.status(f"{item.name}: {item.what}"):
            old[item.name] = report.row_facts(timing.measure(item, libraries, options.seconds), found)
    return [old[name] for name in WORKLOADS if name in old], found


def _conditions(console, peers) -> dict:
    known = [p for p in peers if p in ("jax", "torch")]
    # No status here: the thread that draws it slows down short calls in this process (12 us become 29).
    console.print("threads, callers, calls apart", highlight=False)
    found: dict = {
        "threads": conditions.threads_against_one(),
        "callers": conditions.callers(),
        "apart": conditions.calls_apart(known),
    }
    with console.status("import, memory"):
        found |= {"import": conditions.import_seconds(), "memory": conditions.peak_memory(peers=known)}
        return {
            "conditions": found,
            "allocations": timing.allocations(),
            "warm start": startup.warm_start(),
            "cold gelu": startup.cold_gelu(with_driver=False),
        }


def _startup(names, peers, before: dict) -> dict:
    """Times of first calls and of calls with new shapes, and their geometric means relative to jax.

    before: earlier measurements, from which the rows of all other workloads are taken.
    """
    found: dict[str, list] = {"first": startup.first_calls(names, peers), "shapes": startup.new_shapes(names, peers)}
    rows: dict[str, list[dict]] = {}
    for part, new in found.items():
        every = {row["name"]: row for row in before.get(part, ())} | {row.name: asdict(row) for row in new}
        rows[part] = [every[name] for name in WORKLOADS if name in every]
    first, shapes = ([row for row in rows[part] if "jax" in row["peers"]] for part in rows)
    return rows | {
        "cold": geometric_mean(row["peers"]["jax"] / row["cold"] for row in first),
        "warm": geometric_mean(row["warm"] / row["peers"]["jax"] for row in first),
        "new shape": geometric_mean(row["seconds"] / row["peers"]["jax"] for row in shapes),
    }


def _names(text: str, valid, what: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in valid:
            nearest = difflib.get_close_matches(name, list(valid), 1)
            raise CommandError(
                f"unknown {what} '{name}'",
                f"available: {', '.join(valid)}",
                f"did you mean '{nearest[0]}'?" if nearest else "name one of them",
            )
    return names


def machine_facts() -> dict[str, str]:
    machine = host()
    return {
        "processor": f"{machine.arch} {machine.cpu}, {machine.vector_bytes * 8}-bit vectors",
        "cores": str(machine.cores),
        "last cache": f"{(machine.l3_bytes or machine.l2_bytes) >> 20} MiB",
        "python": platform.python_version(),
        "hloom": hloom.__version__,
    }


def write(file: str, text: str) -> None:
    """Writes a temporary file and renames it, so that readers never see a partial file."""
    partial = f"{file}.partial"
    Path(partial).write_text(text, encoding="utf-8")
    os.replace(partial, file)
