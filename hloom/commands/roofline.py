"""Measures memory bandwidth and peak multiply-add throughput, and positions the workloads on that roofline.

Examples:
    hloom roofline
    hloom roofline --suite full --png roof.png --json roof.json
    hloom roofline --from results.json
    hloom roofline --machine-only

All kernels are hloom's own. Bandwidth is that of the triad `a + s b` over arrays that all threads read repeatedly; the
peak is that of independent fused multiply-adds in registers.

"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

from rich.console import Console

from hloom.backends.cpu.driver import driver
from hloom.benchmarks.libraries import load
from hloom.benchmarks.measure import limits, timing
from hloom.benchmarks.report import report, roofline
from hloom.benchmarks.report.plot import roof_chart
from hloom.commands import CommandError
from hloom.commands.bench import chosen_workloads, kept_result, machine_facts, write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", choices=("core", "full"), default="core", help="which workloads to time")
    parser.add_argument("--only", default="", metavar="NAMES", help="comma-separated workloads or families")
    parser.add_argument("--seconds", type=float, default=0.1, help="time per measurement")
    parser.add_argument(
        "--from",
        dest="rows",
        metavar="FILE",
        help="use the results in a JSON file that `hloom bench` wrote on this machine",
    )
    parser.add_argument("--machine-only", action="store_true", help="measure the machine only, no workloads")
    parser.add_argument("--json", metavar="FILE", help="write the measurements to this file")
    parser.add_argument(
        "--png", metavar="FILE", help="draw the roofline (requires matplotlib: pip install 'hloom[bench]')"
    )


def run(options: argparse.Namespace) -> int:
    console = Console() if sys.stdout.isatty() else Console(width=160)
    if options.png and importlib.util.find_spec("matplotlib") is None:
        raise CommandError("--png requires matplotlib", "it is not installed", "pip install 'hloom[bench]'")
    for file in (options.json, options.png):
        if file and not Path(file).absolute().parent.is_dir():
            raise CommandError(f"{file} cannot be written", "its folder does not exist", "create the folder first")
    rows = kept_result(options.rows).get("rows", []) if options.rows else []
    chosen = [] if options.rows or options.machine_only else chosen_workloads(options)
    libraries = load((), driver().num_threads)
    with console.status("the limits of the machine"):
        found = limits.measured(options.seconds).as_dict()
    for item in chosen:
        with console.status(f"{item.name}: {item.what}"):
            rows.append(report.row_facts(timing.measure(item, libraries, options.seconds, profiled=False), found))
    points = roofline.points(rows, found)
    roofline.print_roofline(found, points, console)
    if options.json:
        write(
            options.json, json.dumps({"machine": machine_facts(), "limits": found, "points": points}, indent=1) + "\n"
        )
    if options.png:
        roof_chart(found, points, options.png)
    return 0
