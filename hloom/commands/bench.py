"""Times the workloads: hloom and the peers that are installed, in turns in one process, held against the machine.

    hloom bench                                      the core suite, tables only
    hloom bench --suite full --peers jax,torch,numpy everything; writes RESULTS.md, results.json, results.png
    hloom bench --only gelu_4m,softmax --peers jax --no-startup --no-conditions
    hloom bench --suite full --keep results.json --only softmax   the rows of that file, softmax measured anew

Each workload's results are checked against NumPy in double precision before they are timed. Rows that miss their goal
stand first, with what their profile shows. 'torch' stands for torch and torch.compile, 'numpy' for NumPy and numexpr,
'unfused' for hloom with one kernel an operation.
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

from hloom.commands import CommandError

FILES = {"json": "results.json", "png": "results.png", "markdown": "RESULTS.md"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", choices=("core", "full"), default="core", help="which workloads (default: core)")
    parser.add_argument("--peers", default="jax,torch,numpy", help="names with commas (default: jax,torch,numpy)")
    parser.add_argument("--only", default="", metavar="NAMES", help="these workloads or families, names with commas")
    parser.add_argument("--seconds", type=float, default=0.25, help="of timing, for each workload and library")
    parser.add_argument("--folder", help="where the full suite writes its three files (default: benchmarks, if there)")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured")
    parser.add_argument("--png", metavar="FILE", help="draw charts (needs matplotlib: pip install 'hloom[bench]')")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables")
    parser.add_argument("--keep", metavar="FILE", help="a JSON of before: what is not measured now is taken from it")
    parser.add_argument("--note", default="", help="a remark for the written results")
    parser.add_argument("--no-rows", action="store_true", help="time no workloads: with --keep, the other parts")
    parser.add_argument("--no-startup", action="store_true", help="leave out first calls and new shapes")
    parser.add_argument("--no-conditions", action="store_true", help="leave out import, threads, callers, memory")
    parser.add_argument("--list", action="store_true", help="list the workloads and stop")


def run(options: argparse.Namespace) -> int:
    from hloom.backends.cpu.driver import driver
    from hloom.benchmarks.libraries import GROUPS, PEERS, load
    from hloom.benchmarks.report import report
    from hloom.benchmarks.report.goals import geometric_means, goals
    from hloom.benchmarks.workloads import FAMILIES

    console = Console() if sys.stdout.isatty() else Console(width=160)  # a file has no width of its own
    if options.list:
        for family in FAMILIES:
            console.print(family.name, style="bold", highlight=False)
            for item in family.members.values():
                console.print(f"  {item.name:20} {item.suite:5} {item.what}", highlight=False)
        return 0
    peers = [p for name in _names(options.peers, PEERS, "peer") for p in GROUPS.get(name, (name,))]
    chosen = chosen_workloads(options)
    files = {kind: getattr(options, kind) or _default_file(options, kind) for kind in FILES}
    if options.png and importlib.util.find_spec("matplotlib") is None:
        raise CommandError("--png draws with matplotlib", "it is not installed", "pip install 'hloom[bench]'")
    for file in files.values():
        if file and not Path(file).absolute().parent.is_dir():
            raise CommandError(f"{file} was to be written", "its folder does not exist", "make the folder first")
    kept = kept_result(options.keep)

    threads = driver().num_threads
    libraries = load(peers, threads)
    absent = [p for p in peers if p not in {library.name for library in libraries}]
    if absent:
        console.print(f"not installed, left out: {', '.join(absent)}")
    console.print(f"{threads} threads each; {len(chosen)} workloads", highlight=False)
    rows, limits = _measured_rows(chosen, libraries, options, console, kept)
    rows = [report.judged(row, limits) for row in rows]
    triads = [row["triad"] for row in rows if row["triad"]]
    extras = dict(kept.get("extras", {}))
    names = [item.name for item in chosen]
    if not options.no_conditions:
        extras |= _conditions(console, peers)
    if not options.no_startup:
        with console.status("first calls and new shapes, in processes of their own"):
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
    if files["json"]:
        write(files["json"], json.dumps(result, indent=1) + "\n")
    if files["markdown"]:
        write(files["markdown"], report.markdown(result))
    if files["png"] and importlib.util.find_spec("matplotlib") is not None:
        from hloom.benchmarks.report.plot import bar_chart

        bar_chart(result, files["png"])
    written = [file for file in files.values() if file and Path(file).exists()]
    if written:
        console.print(f"written: {', '.join(written)}", highlight=False)
    return 0


def chosen_workloads(options: argparse.Namespace) -> list:
    """The workloads that --only names, by name or family, or those of the suite."""
    from hloom.benchmarks.workloads import FAMILIES, WORKLOADS

    families = {family.name: list(family.members) for family in FAMILIES}
    only = [w for name in _names(options.only, [*WORKLOADS, *families], "workload") for w in families.get(name, [name])]
    return [w for w in WORKLOADS.values() if (w.name in only if only else w.suite in ("core", options.suite))]


def _default_file(options: argparse.Namespace, kind: str) -> str | None:
    """The whole of the full suite goes into the folder of benchmarks, where the project has it."""
    if options.folder:
        return str(Path(options.folder) / FILES[kind])
    whole = options.suite == "full" and not options.only and not options.no_rows
    return str(Path("benchmarks") / FILES[kind]) if whole and Path("benchmarks").is_dir() else None


def kept_result(file: str | None) -> dict:
    """What `--json` wrote on this machine before; {} for no file. Raises CommandError."""
    if not file:
        return {}
    try:
        found = json.loads(Path(file).read_text())
    except json.JSONDecodeError as error:
        raise CommandError(f"--keep {file}", f"it is no JSON: {error}", "name a file that --json wrote") from None
    if found.get("machine", {}).get("processor") != machine_facts()["processor"]:
        raise CommandError(f"--keep {file}", "it was measured on another machine", "measure everything anew")
    return found


def _measured_rows(chosen, libraries, options, console, kept) -> tuple[list[dict], dict]:
    """The rows in the order of the suite, kept ones among them, and the limits of the machine."""
    from hloom.benchmarks.measure import limits, timing
    from hloom.benchmarks.report import report
    from hloom.benchmarks.workloads import WORKLOADS

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
    from hloom.benchmarks.measure import conditions, startup, timing

    known = [p for p in peers if p in ("jax", "torch")]
    # What is timed in this process is timed without the thread that draws a status: calls of 12 us took 29 beside it.
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
    """First calls and new shapes, and what the goals ask of them: hloom against jax, geometric means. before: what the
    same found earlier, of which other workloads' rows are kept."""
    from hloom.benchmarks.measure import startup
    from hloom.benchmarks.report.goals import geometric_mean
    from hloom.benchmarks.workloads import WORKLOADS

    found = {"first": startup.first_calls(names, peers), "shapes": startup.new_shapes(names, peers)}
    rows = {}
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
                f"{what} '{name}' was asked for",
                f"there are {', '.join(valid)}",
                f"did you mean '{nearest[0]}'?" if nearest else "name one of them",
            )
    return names


def machine_facts() -> dict[str, str]:
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


def write(file: str, text: str) -> None:
    """Writes aside and renames: nobody finds half a file."""
    partial = f"{file}.partial"
    Path(partial).write_text(text, encoding="utf-8")
    os.replace(partial, file)
