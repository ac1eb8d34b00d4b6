"""Times the workloads: hloom fused and unfused, and the peers that are installed, in turns in one process.

    hloom bench                                      the core suite, table only
    hloom bench --suite full --json r.json --png r.png
    hloom bench --only gelu_4m,softmax --peers jax

Each workload's results are checked against NumPy in double precision before they are timed.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import json
import os
import platform
import statistics
from pathlib import Path

from rich.console import Console

from hloom.commands import CommandError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", choices=("core", "full"), default="core", help="which workloads (default: core)")
    parser.add_argument("--peers", default="jax,torch,numpy", help="names with commas (default: jax,torch,numpy)")
    parser.add_argument("--only", default="", metavar="NAMES", help="these workloads, names with commas")
    parser.add_argument("--seconds", type=float, default=0.6, help="of timing, for each workload and library")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured")
    parser.add_argument("--png", metavar="FILE", help="draw a bar chart (needs matplotlib: pip install 'hloom[bench]')")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables")
    parser.add_argument("--note", default="", help="a remark for the written results")
    parser.add_argument("--no-startup", action="store_true", help="leave out what needs processes of its own")
    parser.add_argument("--list", action="store_true", help="list the workloads and stop")


def run(options: argparse.Namespace) -> int:
    from hloom.bench import report, startup, timing
    from hloom.bench.libraries import PEERS, load
    from hloom.bench.workloads import WORKLOADS
    from hloom.native_setup import driver

    console = Console()
    if options.list:
        for item in WORKLOADS.values():
            console.print(f"{item.name:18} {item.suite:5} {item.what}", highlight=False)
        return 0
    peers = _names(options.peers, PEERS, "peer")
    only = _names(options.only, WORKLOADS, "workload")
    chosen = [w for w in WORKLOADS.values() if (w.name in only if only else w.suite in ("core", options.suite))]
    if options.png and importlib.util.find_spec("matplotlib") is None:
        raise CommandError("--png draws with matplotlib", "it is not installed", "pip install 'hloom[bench]'")
    for file in (options.json, options.png, options.markdown):
        if file and not Path(file).absolute().parent.is_dir():
            raise CommandError(f"{file} was to be written", "its folder does not exist", "make the folder first")

    threads = driver().num_threads
    libraries = load(peers, threads)
    absent = [p for p in peers if p not in {library.name for library in libraries}]
    if absent:
        console.print(f"not installed, left out: {', '.join(absent)}")
    console.print(f"{threads} threads each; {len(chosen)} workloads", highlight=False)
    rows = []
    for item in chosen:
        with console.status(f"{item.name}: {item.what}"):
            rows.append(report.row_facts(timing.measure(item, libraries, options.seconds)))
    triads = [row["triad"] for row in rows if row["triad"]]
    triad = statistics.median(triads) if triads else timing.triad(options.seconds)
    extras: dict = {"allocations": timing.allocations()}
    if not options.no_startup:
        with console.status("processes of their own: warm start, cold compilation"):
            extras["warm start"] = startup.warm_start()
            extras["cold gelu"] = startup.cold_gelu(with_driver=False)
            extras["cold gelu, driver cached"] = startup.cold_gelu(with_driver=True)
    result = {
        "machine": _machine(),
        "threads": threads,
        "note": options.note,
        "triad": triad,
        "libraries": {library.name: library.title for library in libraries},
        "rows": rows,
        "geometric_means": report.geometric_means(rows),
        "extras": extras,
        "goals": report.goals(rows, extras),
    }
    report.print_tables(result, console)
    if options.json:
        _write(options.json, json.dumps(result, indent=1) + "\n")
    if options.markdown:
        _write(options.markdown, report.markdown(result))
    if options.png:
        from hloom.bench.plot import bar_chart

        bar_chart(result, options.png)
    return 0


def _names(text: str, valid, what: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in valid:
            nearest = difflib.get_close_matches(name, list(valid), 1)
            raise CommandError(
                f"{what} '{name}' was asked for",
                f"there are {', '.join(valid)}",
                f"did you mean '{nearest[0]}'?" if nearest else "name one of them",
            )
    return names


def _machine() -> dict[str, str]:
    import hloom
    from hloom.compiler.targets.cpu.machine import host

    machine = host()
    return {
        "processor": f"{machine.arch} {machine.cpu}, {machine.vector_bytes * 8}-bit vectors",
        "cores": str(machine.cores),
        "last cache": f"{(machine.l3_bytes or machine.l2_bytes) >> 20} MiB",
        "python": platform.python_version(),
        "hloom": hloom.__version__,
    }


def _write(file: str, text: str) -> None:
    """Writes aside and renames: nobody finds half a file."""
    partial = f"{file}.partial"
    Path(partial).write_text(text, encoding="utf-8")
    os.replace(partial, file)
