"""The roofline model of the workloads (Williams, Waterman, Patterson 2009).

A workload's intensity is its operations per byte of inputs and results; its limit is the minimum of the FMA
peak and of intensity times bandwidth. Operations of element-wise work are the op table's estimates: functions such as
exp count as several, and few of them are multiply-adds, so those stay well below the peak.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from hloom.benchmarks.report.diagnosis import bandwidth_at


def points(rows: list[dict], limits: dict) -> list[dict]:
    """For each row whose operations are known: intensity, gflops, roof (GF/s), the share of it, its kind.

    rows: from `report.row_facts`; rows bounded by the cost of a call are left out. A workload whose arrays fit
    into a cache has that cache's roof.
    """
    found = []
    for row in rows:
        operations, moved, seconds = row["operations"], row["ideal_bytes"], row["seconds"]["hloom"]
        if not operations or not moved or row["bound_by"] == "overhead":
            continue
        peak = limits["peaks"].get(row["dtype"]) or max(limits["peaks"].values())
        bandwidth = bandwidth_at(limits["sweep"], moved)
        if bandwidth < 1.3 * limits["triad"]:  # out of the caches
            bandwidth = row["triad"] or limits["triad"]
        intensity = operations / moved
        roof = min(peak, intensity * bandwidth)
        found.append(
            {
                "name": row["name"],
                "family": row["family"],
                "intensity": intensity,
                "gflops": operations / seconds / 1e9,
                "roof": roof / 1e9,
                "share": operations / seconds / roof,
                "under": "multiply-adds" if roof == peak else "bandwidth",
            }
        )
    return found


def print_roofline(limits: dict, found: list[dict], console: Console) -> None:
    """The machine's limits, and the workloads, those with the lowest share of their roof first."""
    machine = Table("what", "", title="The machine's limits", title_justify="left")
    machine.add_row("threads", str(limits["threads"]))
    for dtype, peak in limits["peaks"].items():
        machine.add_row(f"multiply-adds, {dtype}", f"{peak / 1e9:.1f} GF/s")
    machine.add_row("triad, 16M float32, jitted", f"{limits['triad'] / 1e9:.1f} GB/s")
    for name, bandwidth in limits["caches"].items():
        machine.add_row(f"triad in {name}", f"{bandwidth / 1e9:.1f} GB/s")
    console.print(machine)
    sizes = Table("swept by all threads", "triad GB/s", "sum GB/s", title="Bandwidth by size", title_justify="left")
    for size, triad, total in limits["sweep"]:
        text = f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB"
        sizes.add_row(text, f"{triad / 1e9:.1f}", f"{total / 1e9:.1f}")
    console.print(sizes)
    if not found:
        return
    table = Table("workload", title="Workloads under the roof", title_justify="left")
    for head in ("operations a byte", "GF/s", "roof GF/s", "of the roof", "roof of"):
        table.add_column(head, justify="right")
    for p in sorted(found, key=lambda p: p["share"]):
        table.add_row(p["name"], f"{p['intensity']:.3g}", f"{p['gflops']:.3g}", f"{p['roof']:.3g}", f"{p['share']:.0%}",
                      p["under"])  # fmt: skip
    console.print(table)
