"""The targets: their definitions, how they follow from the measurements, and which rows miss theirs."""

from __future__ import annotations

import math

MEMORY = 0.85  # of the triad's bandwidth
PEAK = 0.90  # of the FMA peak
# Rows with special targets; all others have to be as fast as every peer.
LARGE_PRODUCTS = ("matmul_1024", "matmul_2048")
OTHER_PRODUCTS = ("matmul_f64", "matmul_bf16", "matmul_s8")
SMALL_LOOPS = ("scan_10000", "scan_product", "while_scalar")
WINDOWS = tuple(f"conv_{n}x{n}{part}" for n in (3, 5) for part in ("", "_by_input", "_by_filter"))


def geometric_mean(values) -> float | None:
    logs = [math.log(value) for value in values if value and value > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None


def geometric_means(rows: list[dict]) -> dict[str, float]:
    """The geometric mean of each library's ratios, over the workloads that it ran."""
    names = dict.fromkeys(n for row in rows for n in row["ratios"])
    means = {name: geometric_mean(row["ratios"][name] for row in rows if name in row["ratios"]) for name in names}
    return {name: mean for name, mean in means.items() if mean is not None}


def missed(row: dict) -> list[str]:
    """The targets that a row misses, the worst first; empty where it reaches all of them."""
    found = [
        (ratio, f"{1 / ratio:.2f}x the time of {name}")
        for name, ratio in row["ratios"].items()
        if ratio < 1 and name != "unfused"
    ]
    share = row.get("share_of_triad")
    if row["memory_bound"] and share is not None and share < MEMORY:
        found.append((share / MEMORY, f"{share:.0%} of the triad's bandwidth"))
    share = row.get("share_of_peak")
    if row["name"] in LARGE_PRODUCTS and share is not None and share < PEAK:
        found.append((share / PEAK, f"{share:.0%} of the FMA peak"))
    if row["name"] in SMALL_LOOPS and row["ratios"].get("jax", 10) < 10:
        found.append((row["ratios"]["jax"] / 10, f"{row['ratios']['jax']:.1f}x the speed of jax"))
    return [text for _, text in sorted(found)]


def goals(rows: list[dict], extras: dict) -> list[dict]:
    """The targets: title, wanted, found (None: not measured), reached, and a remark."""
    return [
        {
            "what": what,
            "wanted": f"{sign} {bound:g}",
            "found": found,
            "reached": None if found is None else (found >= bound if sign == ">=" else found <= bound),
            "remark": remark,
        }
        for what, sign, bound, found, remark in _measured(rows, extras)
    ]


def _measured(rows: list[dict], extras: dict) -> list[tuple]:
    """The targets as (title, sign, bound, found, remark)."""
    by_name = {row["name"]: row for row in rows}
    means = geometric_means(rows)

    def ratios(library, names=None):
        chosen = rows if names is None else [by_name[n] for n in names if n in by_name]
        return {row["name"]: row["ratios"][library] for row in chosen if library in row["ratios"]}

    def least(found: dict):
        """The worst of several, and its name."""
        found = {name: value for name, value in found.items() if value is not None}
        name = min(found, key=found.__getitem__) if found else None
        return (None, "") if name is None else (found[name], name)

    def share(part, names=None):
        chosen = [row for row in rows if row.get(part) is not None and (names is None or row["name"] in names)]
        return {row["name"]: row[part] for row in chosen}

    def count(found: dict, bound: float):
        return f"{sum(v >= bound for v in found.values())} of {len(found)} reach it" if found else ""

    memory = {name: value for name, value in share("share_of_triad").items() if by_name[name]["memory_bound"]}
    seconds = {row["name"]: row["seconds"]["hloom"] for row in rows}
    lenet = 100 / seconds["lenet_step"] if "lenet_step" in seconds else None
    call = seconds["tiny_add"] * 1e6 if "tiny_add" in seconds else None
    start = extras.get("startup") or {}
    conditions = extras.get("conditions") or {}
    threads = {n: v["speedup"] for n, v in (conditions.get("threads") or {}).items()}
    memories = {n: v["jax"] / max(v["hloom"], 1) for n, v in (conditions.get("memory") or {}).items() if "jax" in v}
    together = conditions.get("callers") or {}
    jax_worst, compiled = ratios("jax"), ratios("torch.compile")
    tree = "; ".join(f"{by_name['tree_20']['seconds']['hloom'] * 1e6:.1f} us" for _ in [0] if "tree_20" in by_name)
    return [
        ("run time: speedup over jax, geometric mean", ">=", 3.0, means.get("jax"), f"{len(jax_worst)} workloads"),
        ("worst workload: speedup over jax", ">=", 1.0, *_and_count(least(jax_worst), count(jax_worst, 1.0))),
        ("run time: speedup over torch.compile, geometric mean", ">=", 2.0, means.get("torch.compile"),
         f"{len(compiled)} workloads"),
        ("memory-bound workloads: lowest share of the triad", ">=", MEMORY, *_and_count(least(memory),
                                                                                     count(memory, MEMORY))),
        ("matmul 1024^3, 2048^3: speedup over jax", ">=", 1.0, *least(ratios("jax", LARGE_PRODUCTS))),
        ("matmul 1024^3, 2048^3: share of the FMA peak", ">=", PEAK, *least(share("share_of_peak", LARGE_PRODUCTS))),
        ("matmul in f64, bf16, s8: speedup over jax", ">=", 1.0, *least(ratios("jax", OTHER_PRODUCTS))),
        ("3 x 3, 5 x 5 convolutions: speedup over torch", ">=", 1.0, *least(ratios("torch", WINDOWS))),
        ("LeNet-5 training, images per second", ">=", 5000.0, lenet, ""),
        ("scan and while of small bodies: speedup over jax", ">=", 10.0, *least(ratios("jax", SMALL_LOOPS))),
        ("smallest jitted call, microseconds", "<=", 2.5, call, ""),
        ("call with a pytree of 20 arrays: speedup over jax", ">=", 1.0, ratios("jax", ["tree_20"]).get("tree_20"),
         tree),
        ("first call, cold: speedup over jax, geometric mean", ">=", 1.0, start.get("cold"), ""),
        ("first call, warm cache: time relative to jax's first call", "<=", 0.2, start.get("warm"), ""),
        ("new shape: time relative to jax's recompilation", "<=", 0.1, start.get("new shape"), ""),
        ("import hloom, seconds", "<=", 0.25, conditions.get("import"), ""),
        ("two threads: speedup over one, compute-bound", ">=", 1.8, *least(threads)),
        ("four concurrent Python threads: throughput relative to one", ">=", 1.0, together.get("ratio"),
         "" if together.get("correct", True) else "wrong results"),
        ("peak memory of training steps: jax relative to hloom", ">=", 1.0, *least(memories)),
        ("bytes allocated in 100 training steps", "<=", 0.0, (extras.get("allocations") or {}).get("bytes"), ""),
    ]  # fmt: skip


def _and_count(found: tuple, text: str) -> tuple:
    value, name = found
    return value, f"{name}; {text}" if text else name
