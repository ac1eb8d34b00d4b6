"""A bar chart of the ratios."""

from __future__ import annotations

import math

COLORS = {"unfused": "#9ecae1", "numpy": "#fdae6b", "jax": "#a1d99b", "torch": "#bcbddc", "torch.compile": "#9e9ac8"}


def bar_chart(result: dict, path: str) -> None:
    """Writes a PNG: for each workload and library its time over that of hloom fused. Raises ImportError, OSError."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = result["rows"]
    others = [name for name in result["libraries"] if name != "hloom"]
    names = [row["name"] for row in rows] + ["geometric mean"]
    width = 0.8 / max(1, len(others))
    figure, axes = pyplot.subplots(figsize=(max(7, 0.5 * len(names) + 2), 5.5), layout="constrained")
    for k, other in enumerate(others):
        values = [row["ratios"].get(other, math.nan) for row in rows] + [result["geometric_means"].get(other, math.nan)]
        places = [x + (k - (len(others) - 1) / 2) * width for x in range(len(names))]
        heights = [value - 1 for value in values]  # bars start at 1, up for slower than hloom and down for faster
        axes.bar(places, heights, width, bottom=1, label=result["libraries"][other], color=COLORS[other])
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axes.set_ylabel("time / time of hloom fused (log)")
    axes.set_title("Above 1: hloom's fused kernels are faster")
    axes.legend(ncols=len(others), frameon=False, loc="upper center")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120, format="png")
    pyplot.close(figure)
