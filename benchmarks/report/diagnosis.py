"""Profile summaries: sentences derived from a workload's profile and the limits of the machine."""

from __future__ import annotations

from hloom.profiler import Part

FULL = 0.85  # of a limit: more than this is at the limit


def bandwidth_at(sweep: list[list[float]], size: float) -> float:
    """The triad's bytes per second for a working set, interpolated between measured sizes."""
    below = [row for row in sweep if row[0] <= size] or sweep[:1]
    above = [row for row in sweep if row[0] >= size] or sweep[-1:]
    low, high = below[-1], above[0]
    if high[0] == low[0]:
        return low[1]
    part = (size - low[0]) / (high[0] - low[0])
    return low[1] + part * (high[1] - low[1])


def diagnosis(parts: list[Part], row: dict, limits: dict | None) -> str:
    """One line. row: as `report.row_facts` has it; limits: of `Limits.as_dict()`."""
    seconds = row["seconds"]["hloom"]
    inside = sum(part.seconds for part in parts)
    said = []
    outside = 1 - inside / seconds
    if outside > 0.4 and 5e-7 < seconds - inside < 2e-4:  # more is not call overhead but other load on the machine
        said.append(f"{outside:.0%} of {seconds * 1e6:.1f} us is call overhead outside of kernels")
    ideal = row["ideal_bytes"]
    moved = sum(part.bytes for part in parts)
    if ideal and moved > 1.3 * ideal and moved > 1e5:
        said.append(f"moves {moved / ideal:.1f} times the bytes of inputs and results")
    launches = sum(part.launches for part in parts)
    if launches >= 8 and inside / launches < 20e-6:
        said.append(f"{launches} launches of {inside / launches * 1e6:.1f} us on average")
    listed = 0.0
    for part in parts[:3]:
        if inside and listed < 0.7 * inside:
            listed += part.seconds
            said.append(_part(part, inside, row, limits))
    return "; ".join(said)


def _part(part: Part, inside: float, row: dict, limits: dict | None) -> str:
    """One kernel: its share of the time, and its bound."""
    name = f"{part.launches} x {part.name}" if part.launches > 1 else part.name
    facts = []
    memory = compute = 0.0
    speed, flops = part.bytes / part.seconds if part.seconds else 0.0, part.flops / max(part.seconds, 1e-12)
    if limits and part.seconds > 5e-6 and speed:
        triad = row.get("triad")
        roof = bandwidth_at(limits["sweep"], part.bytes / max(part.launches, 1))
        if triad and row["ideal_bytes"] > 2e7:
            roof = max(triad, min(roof, 1.3 * triad))
        memory = min(speed / roof, 1.0)
        facts.append(f"{memory:.0%} of bandwidth")
    peak = row.get("peak") or (limits or {}).get("peaks", {}).get(row.get("dtype"))
    if peak and part.seconds > 5e-6 and flops:
        compute = min(flops / peak, 1.0)
        if compute > 0.02:
            facts.append(f"{flops / 1e9:.0f} GF/s, {compute:.0%} of FMA peak")
    if part.name == "Python":
        facts.append("computed by a Python library")
    elif memory >= FULL:
        facts.append("memory-bound")
    elif compute >= FULL:
        facts.append("compute-bound")
    elif not part.shared and part.seconds > 30e-6 * part.launches and limits and limits["threads"] > 1:
        facts.append("one chunk, so one thread")
    elif part.seconds > 5e-6 and memory:
        tiles = part.name.startswith(("contraction", "product", "convolution"))
        facts.append(
            "bound by neither bandwidth nor multiply-adds" if tiles else "bound by the instructions of its loop"
        )
    share = f"{part.seconds / inside:.0%} of the time in {name} ({part.what})"
    return f"{share}: {', '.join(facts)}" if facts else share
