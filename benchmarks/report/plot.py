"""Charts: the ratios of a benchmark, and the roofline."""

from __future__ import annotations

COLORS = {
    "unfused": "#9ecae1",
    "numpy": "#fd8d3c",
    "numexpr": "#fdd0a2",
    "jax": "#31a354",
    "torch": "#9e9ac8",
    "torch.compile": "#54278f",
}
FAMILY_COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2")


def _pyplot():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def bar_chart(result: dict, path: str) -> None:
    """Writes a PNG: for each workload and library its time over that of hloom fused, by family. Raises ImportError,
    OSError."""
    pyplot = _pyplot()
    rows = result["rows"]
    others = [n for n in result["libraries"] if n != "hloom" and any(n in row["ratios"] for row in rows)]
    labels: list[str] = []
    heads: list[tuple[float, str]] = []
    places: dict[str, float] = {}
    place = 0.0
    for family in dict.fromkeys(row["family"] for row in rows):
        heads.append((place, family))
        place += 1
        for row in rows:
            if row["family"] == family:
                places[row["name"]] = place
                labels.append(row["name"])
                place += 1
    places["geometric mean"] = place + 0.5
    labels.append("geometric mean")
    figure, axes = pyplot.subplots(figsize=(9, 0.19 * place + 2), layout="constrained")
    for other in others:
        found = {row["name"]: row["ratios"][other] for row in rows if other in row["ratios"]}
        if other in result["geometric_means"]:
            found["geometric mean"] = result["geometric_means"][other]
        axes.plot(list(found.values()), [places[name] for name in found], "o", markersize=4.5, alpha=0.85,
                  label=result["libraries"][other], color=COLORS[other])  # fmt: skip
    axes.axvline(1.0, color="black", linewidth=1)
    for place, family in heads:
        axes.text(0.01, place, family, transform=axes.get_yaxis_transform(), weight="bold", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_yticks([places[name] for name in labels], labels, fontsize=7)
    axes.set_ylim(places["geometric mean"] + 1, -1)
    axes.set_xlabel("time over the time of hloom (log): to the right of 1, hloom is faster")
    axes.grid(axis="both", linewidth=0.3, alpha=0.6)
    figure.legend(ncols=max(len(others), 1), frameon=False, loc="outside upper center", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120, format="png")
    pyplot.close(figure)


def roof_chart(limits: dict, points: list[dict], path: str) -> None:
    """Writes a PNG: the roofs of caches, memory and multiply-adds, and each workload under them. Raises ImportError,
    OSError."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(10, 6.5), layout="constrained")
    left = min([0.05, *(p["intensity"] for p in points)])
    right = max([200.0, *(2 * p["intensity"] for p in points)])
    top = max(limits["peaks"].values()) / 1e9
    for (name, bandwidth), style in zip(reversed(limits["caches"].items()), ("-", "--", "-.", ":"), strict=False):
        bandwidth /= 1e9
        axes.plot([left, top / bandwidth], [left * bandwidth, top], style, color="#555555", linewidth=1)
        axes.annotate(f"{name} {bandwidth:.0f} GB/s", (left, left * bandwidth), fontsize=8, xytext=(3, 3),
                      textcoords="offset points")  # fmt: skip
    for dtype, peak in limits["peaks"].items():
        axes.plot([peak / max(limits["caches"].values()), right], [peak / 1e9] * 2, color="black", linewidth=1)
        axes.annotate(f"multiply-adds {dtype} {peak / 1e9:.0f} GF/s", (12, peak / 1e9), fontsize=8,
                      xytext=(0, 3), textcoords="offset points")  # fmt: skip
    for color, family in zip(FAMILY_COLORS, dict.fromkeys(p["family"] for p in points), strict=False):
        members = [p for p in points if p["family"] == family]
        axes.plot([p["intensity"] for p in members], [p["gflops"] for p in members], "o", color=color, label=family,
                  markersize=5)  # fmt: skip
        for p in members:
            axes.annotate(p["name"], (p["intensity"], p["gflops"]), fontsize=5.5, xytext=(3, -2),
                          textcoords="offset points")  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("operations for each byte of inputs and results")
    axes.set_ylabel("GF/s")
    if points:
        axes.legend(fontsize=8, frameon=False, loc="lower right")
    axes.grid(linewidth=0.3, alpha=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130, format="png")
    pyplot.close(figure)
