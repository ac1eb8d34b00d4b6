"""The report of the benchmark: rows that miss their target, tables by family, means, first calls, targets.

Tables are built once, as `Page`s of headings and cells, and printed or written as Markdown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hloom.benchmarks.measure.timing import Row
from hloom.benchmarks.report.diagnosis import diagnosis
from hloom.benchmarks.report.goals import geometric_mean, geometric_means, missed

ARITHMETIC = 0.25  # of the FMA peak


def row_facts(row: Row, limits: dict | None = None) -> dict:
    """A row of the report as plain data. Times in seconds; ratios: the library's time over hloom fused.

    share_of_triad: inputs read once and results written once, over the triad's bandwidth of the same turns.
    share_of_peak: likewise flops over the multiply-adds of the row's dtype. missed: the targets that the row misses;
    why: the diagnosis from its profile and the limits.
    """
    seconds = row.seconds["hloom"]
    facts = {
        "name": row.name,
        "what": row.what,
        "family": row.family,
        "bound_by": row.bound_by,
        "dtype": row.dtype,
        "seconds": row.seconds,
        "ratios": {name: row.ratio(name) for name in row.seconds if name != "hloom"},
        "errors": row.errors,
        "left_out": row.left_out,
        "kernels": row.kernels,
        "bytes": row.bytes,
        "ideal_bytes": row.ideal_bytes,
        "triad": row.triad or None,
        "share_of_triad": row.ideal_bytes / seconds / row.triad if row.triad else None,
        "gflops": row.flops / seconds / 1e9 if row.flops else None,
        "peak": row.peak or None,
        "share_of_peak": row.flops / seconds / row.peak if row.peak else None,
        "operations": row.operations,
        "profile": [part.facts() for part in row.parts[:6]],
    }
    return judged(facts | {"why": diagnosis(row.parts, facts, limits)}, limits)


def judged(row: dict, limits: dict | None) -> dict:
    """The row with 'memory_bound' and 'missed'.

    A workload that reads and writes little counts as bound by memory only where its operations, at the triad's
    bandwidth, would not be arithmetic at the limit too: a quarter of the FMA peak, since few of them are multiply-adds
    and a function such as exp needs integer work besides.
    """
    bound = row["bound_by"] == "memory" and row["share_of_triad"] is not None
    peaks = (limits or {}).get("peaks", {})
    peak = peaks.get(row["dtype"]) or max(peaks.values(), default=0.0)
    if bound and peak and row["operations"]:
        bound = row["operations"] / row["ideal_bytes"] * row["triad"] <= ARITHMETIC * peak
    row = row | {"memory_bound": bound}
    return row | {"missed": missed(row)}


@dataclass
class Page:
    """One table: a title, heads, rows of cells, and a remark below."""

    title: str
    heads: list[str]
    rows: list[list[str]] = field(default_factory=list)
    remark: str = ""


def _limit(row: dict) -> str:
    """The row's share of the limit that applies to it."""
    if row["bound_by"] == "memory" and row["share_of_triad"] is not None:
        return f"{row['share_of_triad']:.0%} of triad" + ("" if row["memory_bound"] else " (arithmetic)")
    if row["gflops"]:
        share = f", {row['share_of_peak']:.0%} of peak" if row["share_of_peak"] is not None else ""
        return f"{row['gflops']:.0f} GF/s{share}"
    return ""


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.4f}" if seconds < 1e-4 else f"{seconds * 1e3:.3f}"


def _ratios(row: dict, names: list[str]) -> list[str]:
    return [f"{row['ratios'][n]:.2f}" if n in row["ratios"] else "" for n in names]


def pages(result: dict) -> list[Page]:
    """All tables of a result."""
    rows, titles = result["rows"], result["libraries"]
    names = [name for name in titles if name != "hloom" and any(name in row["ratios"] for row in rows)]
    made = []
    behind = [row for row in rows if row["missed"]]
    if behind:
        page = Page("Rows that miss their target", ["workload", "misses", "profile summary"])
        worst = sorted(behind, key=lambda row: min([row["ratios"].get("jax", math.inf), row["share_of_triad"] or 1.0]))
        page.rows = [[row["name"], "; ".join(row["missed"]), row["why"]] for row in worst]
        page.remark = f"{len(behind)} of {len(rows)} workloads; all others reach their targets."
        made.append(page)
    for family in dict.fromkeys(row["family"] for row in rows):
        members = [row for row in rows if row["family"] == family]
        page = Page(family[:1].upper() + family[1:], ["workload", "hloom ms", *names, "kernels", "MB", "of the limit"])
        for row in members:
            moved = f"{row['bytes'].get('hloom', 0) / 1e6:.3g}"
            page.rows.append([row["name"], _milliseconds(row["seconds"]["hloom"]), *_ratios(row, names),
                              str(row["kernels"].get("hloom", "")), moved, _limit(row)])  # fmt: skip
        page.rows.append(["geometric mean", "", *_means(members, names), "", "", ""])
        made.append(page)
    page = Page("Run time relative to hloom (geometric means)", ["library", "mean", "workloads", "worst", "slower in"])
    for name in names:
        ratios = {row["name"]: row["ratios"][name] for row in rows if name in row["ratios"]}
        worst = min(ratios, key=ratios.__getitem__)
        page.rows.append([titles[name], f"{geometric_mean(ratios.values()):.2f}", str(len(ratios)),
                          f"{worst} {ratios[worst]:.2f}", str(sum(r < 1 for r in ratios.values()))])  # fmt: skip
    page.remark = "Above 1, hloom is faster; 'slower in' counts the workloads where hloom is slower."
    if names:
        made.append(page)
    made += _startup_pages(result)
    made += _condition_pages(result["extras"].get("conditions") or {})
    numbers = Page("Targets", ["quantity", "target", "measured", "", "remark"])
    for goal in result["goals"]:
        numbers.rows.append([goal["what"], goal["wanted"], _found(goal), _mark(goal), goal["remark"]])
    return [*made, numbers]


def _means(rows: list[dict], names: list[str]) -> list[str]:
    means = geometric_means(rows)
    return [f"{means[n]:.2f}" if n in means else "" for n in names]


def _startup_pages(result: dict) -> list[Page]:
    start = result["extras"].get("startup") or {}
    made = []
    if start.get("first"):
        peers = list(dict.fromkeys(name for row in start["first"] for name in row["peers"]))
        heads = ["workload", "cold ms", "warm ms", *(f"{p} ms" for p in peers), *(f"{p} / cold" for p in peers)]
        page = Page("First-call latency, in new processes", [*heads, *(f"warm / {p}" for p in peers)])
        for row in start["first"]:
            others = [row["peers"].get(p) for p in peers]
            page.rows.append([
                row["name"], *(f"{x * 1e3:.1f}" for x in (row["cold"], row["warm"])),
                *("" if x is None else f"{x * 1e3:.1f}" for x in others),
                *("" if x is None else f"{x / row['cold']:.2f}" for x in others),
                *("" if x is None else f"{row['warm'] / x:.2f}" for x in others),
            ])  # fmt: skip
        page.remark = "cold: empty disk cache; warm: with the disk cache of an earlier process."
        made.append(page)
    if start.get("shapes"):
        peers = list(dict.fromkeys(name for row in start["shapes"] for name in row["peers"]))
        page = Page("Calls with a new shape", ["workload", "hloom ms", *(f"{p} ms" for p in peers),
                    *(f"share of {p}" for p in peers), "kernels", "compiled", "pending"])  # fmt: skip
        for row in start["shapes"]:
            others = [row["peers"].get(p) for p in peers]
            page.rows.append([
                row["name"], f"{row['seconds'] * 1e3:.1f}", *("" if x is None else f"{x * 1e3:.1f}" for x in others),
                *("" if x is None else f"{row['seconds'] / x:.2f}" for x in others),
                str(row["kernels"]), str(row["compiled"]), str(row.get("pending", "")),
            ])  # fmt: skip
        page.remark = (
            "compiled: kernels that were not there already, of those of the program; pending: those compiled in the "
            "background while fallback kernels ran."
        )
        made.append(page)
    return made


def _condition_pages(conditions: dict) -> list[Page]:
    made = []
    if conditions.get("threads"):
        page = Page("All threads and one thread", ["workload", "one ms", "all ms", "speedup"])
        page.rows = [[n, _milliseconds(v["one"]), _milliseconds(v["all"]), f"{v['speedup']:.2f}"]
                     for n, v in conditions["threads"].items()]  # fmt: skip
        made.append(page)
    for key, title, unit in (
        ("apart", "Calls one millisecond apart, in microseconds", 1e-6),
        ("memory", "Peak memory of five training steps, in MB", 1e6),
    ):
        if table := conditions.get(key):
            names = list(dict.fromkeys(name for row in table.values() for name in row))
            page = Page(title, ["workload", *names])
            page.rows = [
                [n, *(f"{v[name] / unit:.1f}" if name in v else "" for name in names)] for n, v in table.items()
            ]
            made.append(page)
    return made


def _found(goal: dict) -> str:
    return "not measured" if goal["found"] is None else f"{goal['found']:.3g}"


def _mark(goal: dict) -> str:
    return {True: "reached", False: "missed", None: ""}[goal["reached"]]


def limit_lines(result: dict) -> list[str]:
    """The limits of the machine, as sentences."""
    limits = result.get("limits") or {}
    lines = [f"triad (a + 3 b, jitted by hloom, 16M float32): {result['triad'] / 1e9:.1f} GB/s; timed interleaved "
             "with each memory-bound workload, whose share refers to these timings"]  # fmt: skip
    if limits.get("peaks"):
        peaks = ", ".join(f"{dtype} {value / 1e9:.0f} GF/s" for dtype, value in limits["peaks"].items())
        caches = ", ".join(f"{name} {value / 1e9:.0f}" for name, value in limits["caches"].items())
        lines.append(f"FMA peak, {limits['threads']} threads: {peaks}; triad by level, GB/s: {caches}")
    return lines


def print_tables(result: dict, console: Console | None = None) -> None:
    """All tables, and the limits."""
    console = console or Console()
    for page in pages(result):
        table = Table(title=page.title, title_justify="left")
        for k, head in enumerate(page.heads):
            wordy = k == 0 or head in ("misses", "profile summary", "quantity", "remark")
            table.add_column(escape(head), justify="left" if wordy else "right", overflow="fold")
        for row in page.rows:
            table.add_row(*(escape(cell) for cell in row))
        console.print(table)
        if page.remark:
            console.print(page.remark, highlight=False)
    for line in limit_lines(result):
        console.print(line, highlight=False)


def markdown(result: dict) -> str:
    """The same tables for a file, with the machine and versions."""
    facts = "; ".join(f"{k}: {v}" for k, v in result["machine"].items())
    libraries = ", ".join(title for name, title in result["libraries"].items() if name != "hloom")
    lines = [
        "# Benchmark results",
        "",
        "Written by `python -m hloom bench`. Times depend on the machine; ratios within one run depend on it less.",
        "",
        f"- Machine: {facts}",
        f"- Threads of each library: {result['threads']}; against {libraries or 'nothing'}",
        *(f"- {line[:1].upper()}{line[1:]}" for line in limit_lines(result)),
        f"- {result['note']}"
        if result.get("note")
        else "- Medians of interleaved timings in one process, after checking the results",
        "",
        "The columns of other libraries are their run time relative to hloom: above 1, hloom is faster. They are "
        "empty where a library lacks what the workload needs, or its result fails the accuracy check. Kernels and "
        "MB count hloom's launches and traffic. Above 100% of the triad, a workload's arrays fit in the last-level "
        "cache. '(arithmetic)' marks workloads that are not memory-bound: at the triad's bandwidth their operations "
        "would exceed a quarter of the FMA peak.",
        "",
    ]

    def row(cells):
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    for page in pages(result):
        lines += [f"## {page.title}", "", row(page.heads), row(["---"] * len(page.heads))]
        lines += [row(cells) for cells in page.rows]
        lines += ["", page.remark, ""] if page.remark else [""]
    left_out = {f"{r['name']}, {n}": why for r in result["rows"] for n, why in r.get("left_out", {}).items()}
    if left_out:
        lines += ["## Not measured", "", *(f"- {name}: {why}" for name, why in left_out.items()), ""]
    for name, value in result["extras"].items():
        if not isinstance(value, dict):
            lines.append(f"- {name}: {value:.3f} s")
    return "\n".join(lines).rstrip() + "\n"
