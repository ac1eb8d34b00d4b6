"""The benchmark on one screen: the figures and the bar chart of the README and of the site's home page.

The figures are made from `results.json` alone; the chart also has Numba's bar, from `user_kernels.json`.
`pytest --bless tests/test_docs.py` writes them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

FOLDER = Path(__file__).parents[1]
LIBRARIES = {"jax": "#5c6bc0", "torch.compile": "#ef8e3b", "numpy": "#9e9e9e"}
NAMES = {"numpy": "NumPy"}
NUMBA = "#4db6ac"
FEWEST = 3  # workloads that a bar is a mean of
LEFT, BASE, STEP, BAR, UNIT = 44, 250, 101, 25, 22  # pixels; UNIT: of one unit of the ratio


def results() -> dict:
    return json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))


def user_kernels() -> dict:
    """The times of `benchmarks.measure.user_kernels`, with their machine, which may differ from that of `results`."""
    return json.loads((FOLDER / "user_kernels.json").read_text(encoding="utf-8"))


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _reached(result: dict, what: str) -> float:
    (found,) = (goal["found"] for goal in result["goals"] if goal["what"].startswith(what))
    return found


def speed(result: dict) -> str:
    """How many times as fast as the other libraries, in words: `4.2 times as fast as jax, ...`."""
    means = [f"{result['geometric_means'][library]:.1f}" for library in LIBRARIES]
    counts = [str(sum(library in row["ratios"] for row in result["rows"])) for library in LIBRARIES]
    jax, torch, numpy = means
    return (
        f"**{jax} times as fast as jax, {torch} times as torch.compile, {numpy} times as NumPy**: geometric means of "
        f"{counts[0]}, {counts[1]} and {counts[2]} workloads on two CPU cores"
    )


def first_calls(result: dict) -> str:
    cold = _reached(result, "first call, cold")
    warm = _reached(result, "first call, warm")
    return (
        f"**First calls take {1 / cold:.0%} of jax's time** in a new process, and {warm:.0%} with kernels from the "
        "disk cache"
    )


def chart(result: dict, kernels: dict) -> str:
    """An SVG: for each family of workloads the run time of jax, torch.compile and NumPy relative to hloom, and for
    kernels written as loops that of Numba relative to `hl.kernel`."""
    rows = result["rows"]
    families = {"all": rows}
    for row in rows:
        families.setdefault(row["family"], []).append(row)
    colors = list(LIBRARIES.values())
    columns: list[tuple[str, int, list[tuple[str, list[float]]]]] = []  # name, number of workloads, bars: color, ratios
    for family, members in families.items():
        found = [[row["ratios"][library] for row in members if library in row["ratios"]] for library in LIBRARIES]
        columns.append((family, len(members), list(zip(colors, found, strict=True))))
    loops = [row["Numba"] / row["hl.kernel"] for row in kernels["rows"]]
    columns.append(("kernels", len(loops), [("", []), (NUMBA, loops)]))
    width = LEFT + STEP * len(columns) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 300" font-family="system-ui, sans-serif" '
        'font-size="12" role="img" aria-label="Run time of jax, torch.compile, NumPy and Numba relative to hloom, by '
        'family of workloads">',
        f'<rect width="{width}" height="300" rx="10" fill="#f6f7fb"/>',
        f'<text x="{LEFT}" y="24" font-size="14" fill="#1a237e">Run time relative to hloom (higher is slower)</text>',
    ]
    x = width - 370
    for library, color in (LIBRARIES | {"Numba": NUMBA}).items():
        name = NAMES.get(library, library)
        lines.append(f'<rect x="{x}" y="14" width="11" height="11" fill="{color}"/>')
        lines.append(f'<text x="{x + 16}" y="24" fill="#333">{name}</text>')
        x += 40 + 8 * len(name)
    for k, (family, count, bars) in enumerate(columns):
        x = LEFT + k * STEP
        for n, (color, ratios) in enumerate(bars):
            if len(ratios) < FEWEST:
                continue
            mean, left = _mean(ratios), x + 6 + n * (BAR + 3)
            top = BASE - UNIT * mean
            lines.append(
                f'<rect x="{left}" y="{top:.1f}" width="{BAR}" height="{UNIT * mean:.1f}" fill="{color}"/>'
                f'<text x="{left + BAR / 2}" y="{top - 4:.1f}" font-size="11" fill="#333" text-anchor="middle">'
                f"{mean:.1f}</text>"
            )
        middle = x + 6 + (3 * BAR + 6) / 2
        weight = ' font-weight="bold"' if family == "all" else ""
        lines.append(
            f'<text x="{middle}" y="{BASE + 18}" fill="#333" text-anchor="middle"{weight}>{family}</text>'
            f'<text x="{middle}" y="{BASE + 34}" font-size="11" fill="#777" text-anchor="middle">{count}</text>'
        )
    one = BASE - UNIT
    lines += [
        f'<path d="M{LEFT - 4} {BASE}H{width - 8}" stroke="#999"/>',
        f'<path d="M{LEFT - 4} {one}H{width - 8}" stroke="#1a237e" stroke-dasharray="4 3"/>',
        f'<text x="{LEFT - 8}" y="{one + 4}" font-size="11" fill="#1a237e" text-anchor="end">hloom</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
