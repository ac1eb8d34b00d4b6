"""What the benchmark says: a table, JSON, Markdown, and whether the project's numbers are reached."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table

from hloom.bench.timing import Row


def row_facts(row: Row) -> dict:
    """A row of the report as plain data. Times in seconds; ratios: the library's time over hloom fused."""
    seconds = row.seconds["hloom"]
    return {
        "name": row.name,
        "what": row.what,
        "bound_by": row.bound_by,
        "seconds": row.seconds,
        "ratios": {name: row.ratio(name) for name in row.seconds if name != "hloom"},
        "errors": row.errors,
        "kernels": row.kernels,
        "bytes": row.bytes,
        "ideal_bytes": row.ideal_bytes,
        "triad": row.triad or None,
        "share_of_triad": row.ideal_bytes / seconds / row.triad if row.triad else None,
        "gflops": row.flops / seconds / 1e9 if row.flops else None,
    }


def geometric_means(rows: list[dict]) -> dict[str, float]:
    """Over the workloads that a library ran, the geometric mean of its ratios."""
    means = {}
    for name in dict.fromkeys(n for row in rows for n in row["ratios"]):
        logs = [math.log(row["ratios"][name]) for row in rows if name in row["ratios"]]
        means[name] = math.exp(sum(logs) / len(logs))
    return means


def goals(rows: list[dict], extras: dict) -> list[dict]:
    """The numbers to reach: what, wanted, found (None: not measured), reached."""
    by_name = {row["name"]: row for row in rows}

    def ratio(workload, library):
        return by_name.get(workload, {}).get("ratios", {}).get(library)

    triad = by_name.get("chain_16m", {}).get("share_of_triad")
    calls = by_name.get("tiny_add", {}).get("seconds", {}).get("hloom")
    wanted = [
        ("chain, 16M: share of the triad's bandwidth", ">=", 0.8, triad),
        ("chain, 16M: times as fast as NumPy", ">=", 5.0, ratio("chain_16m", "numpy")),
        ("softmax: times as fast as jax", ">=", 1.0, ratio("softmax", "jax")),
        ("layer norm: times as fast as jax", ">=", 1.0, ratio("layer_norm", "jax")),
        ("gelu, 4M: times as fast as jax", ">=", 1.0, ratio("gelu_4m", "jax")),
        ("matmul, 1024^3: times as fast as jax", ">=", 0.9, ratio("matmul_1024", "jax")),
        ("smallest jitted call, microseconds", "<=", 5.0, calls and calls * 1e6),
        ("process start to first result, warm cache, s", "<=", 0.7, extras.get("warm start")),
        ("first call of gelu, empty cache, s", "<=", 0.25, extras.get("cold gelu")),
        ("bytes allocated in 100 training steps", "<=", 0.0, extras.get("allocations", {}).get("bytes")),
    ]
    return [
        {
            "what": what,
            "wanted": f"{sign} {bound:g}",
            "found": found,
            "reached": None if found is None else (found >= bound if sign == ">=" else found <= bound),
        }
        for what, sign, bound, found in wanted
    ]


def _cells(row: dict, titles: dict) -> list[str]:
    def kernels_and_megabytes():
        yield " / ".join(str(row["kernels"].get(n, "")) for n in ("hloom", "unfused"))
        yield " / ".join(f"{row['bytes'].get(n, 0) / 1e6:.3g}" for n in ("hloom", "unfused"))

    share, gflops = row["share_of_triad"], row["gflops"]
    speed = f"{share:.0%} of triad" if share is not None else f"{gflops:.0f} GF/s" if gflops else ""
    ratios = [f"{row['ratios'][n]:.2f}" if n in row["ratios"] else "" for n in titles if n != "hloom"]
    return [row["name"], f"{row['seconds']['hloom'] * 1e3:.3f}", *ratios, *kernels_and_megabytes(), speed]


def _heads(titles: dict) -> list[str]:
    others = [f"{title}" for name, title in titles.items() if name != "hloom"]
    return ["workload", "hloom ms", *others, "kernels", "MB moved", "speed"]


def _last(means: dict, titles: dict) -> list[str]:
    ratios = [f"{means[n]:.2f}" if n in means else "" for n in titles if n != "hloom"]
    return ["geometric mean", "", *ratios, "", "", ""]


def print_tables(result: dict, console: Console | None = None) -> None:
    """The table of workloads and that of the numbers to reach."""
    console = console or Console()
    titles = result["libraries"]
    table = Table(
        title="hloom fused: ms; the others: their time over hloom's (above 1, hloom is faster); "
        "kernels and MB moved: fused / unfused"
    )
    for k, head in enumerate(_heads(titles)):
        table.add_column(head, justify="left" if k == 0 else "right")
    for row in result["rows"]:
        table.add_row(*_cells(row, titles))
    table.add_section()
    table.add_row(*_last(result["geometric_means"], titles))
    console.print(table)
    console.print(
        f"triad (a + 3 b, jitted by hloom, 16M float32): {result['triad'] / 1e9:.1f} GB/s; it takes turns with "
        "each workload that memory bounds, and its share is of those turns"
    )
    numbers = Table("number", "wanted", "found", "", title="Numbers to reach")
    for goal in result["goals"]:
        numbers.add_row(goal["what"], goal["wanted"], _found(goal), _mark(goal))
    console.print(numbers)
    for name, value in result["extras"].items():
        console.print(f"{name}: {value if isinstance(value, dict) else f'{value:.3f} s'}")


def _found(goal: dict) -> str:
    return "not measured" if goal["found"] is None else f"{goal['found']:.3g}"


def _mark(goal: dict) -> str:
    return {True: "reached", False: "missed", None: ""}[goal["reached"]]


def markdown(result: dict) -> str:
    """The same tables for a file, with the machine and versions."""
    titles = result["libraries"]
    facts = "; ".join(f"{k}: {v}" for k, v in result["machine"].items())
    lines = [
        "# Results of the benchmark",
        "",
        "Made by `python -m hloom bench`; times depend on the machine, ratios within this one run less so.",
        "",
        f"- Machine: {facts}",
        f"- Threads: {result['threads']}; triad (a + 3 b, jitted by hloom): {result['triad'] / 1e9:.1f} GB/s",
        f"- {result['note']}" if result.get("note") else "- Median of turns in one process; results checked first",
        "",
        "The first column of times is hloom fused, in ms; the others are their time over hloom's: above 1, hloom is "
        "faster. Kernels and MB moved are of hloom fused / unfused. The triad takes turns with each workload that "
        "memory bounds; above 100% of it the workload's arrays stay in the last cache, unlike the triad's.",
        "",
    ]

    def row(cells):
        return "| " + " | ".join(cells) + " |"

    lines += [row(_heads(titles)), row(["---"] + ["---:"] * (len(_heads(titles)) - 1))]
    lines += [row(_cells(r, titles)) for r in result["rows"]]
    lines += [row(f"**{c}**" if c else "" for c in _last(result["geometric_means"], titles)), ""]
    lines += ["## Numbers to reach", "", "| number | wanted | found | |", "| --- | --- | ---: | --- |"]
    lines += [row([g["what"], g["wanted"], _found(g), _mark(g)]) for g in result["goals"]]
    lines += [""]
    lines += [f"- {name}: {v if isinstance(v, dict) else f'{v:.3f} s'}" for name, v in result["extras"].items()]
    return "\n".join(lines) + "\n"
