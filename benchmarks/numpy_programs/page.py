"""The page of results, `benchmarks/NUMPY.md`, from the file of records."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import hloom as hl
from hloom.benchmarks.numpy_programs.gradients import TOLERANCE
from hloom.benchmarks.numpy_programs.jax_forms import FORMS
from hloom.benchmarks.numpy_programs.table import PROGRAMS, SIZES
from hloom.benchmarks.report.goals import geometric_mean

LEAST = 0.9  # of Numba's time over hloom's


def machine() -> dict[str, str]:
    """What times depend on."""
    found = {"cores": str(len(os.sched_getaffinity(0))), "processor": platform.processor() or platform.machine()}
    info = Path("/proc/cpuinfo")
    if info.exists() and (model := re.search(r"model name\s*: (.*)", info.read_text())):
        found["processor"] = model.group(1)
    found |= {"hloom": hl.__version__, "python": platform.python_version()}
    for name in ("numpy", "numba", "jax"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


def ratio(record: dict, other: str) -> float | None:
    """An engine's time over hloom's; "best": the faster of Numba's versions. None: one of them was not timed."""
    seconds = record["seconds"]
    names = ("numba", "parallel") if other == "best" else (other,)
    least = min([seconds[n] for n in names if n in seconds], default=None)
    return least / seconds["hloom"] if least is not None and "hloom" in seconds else None


def line_of(record: dict) -> str:
    """A line for who waits."""
    parts = []
    for name, status in record["status"].items():
        seconds = record["seconds"].get(name)
        parts.append(f"{name} {seconds * 1e3:.3g} ms" if seconds is not None else f"{name} {status[:60]}")
    best = ratio(record, "best")
    return "  ".join([*parts, *([f"Numba/hloom {best:.2f}"] if best else []), record.get("failed", "")])


def records(results: dict, sizes: Iterable[str] = SIZES) -> Iterator[tuple[str, str, dict]]:
    for name, program in results["programs"].items():
        for size in sizes:
            if name in PROGRAMS and size in program["sizes"]:
                yield name, size, program["sizes"][size]


def _mean(values: Iterable[float | None]) -> str:
    found = [v for v in values if v is not None]
    mean = geometric_mean(found)
    return f"{mean:.2f}" if mean is not None else ""


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *[f"| {' | '.join(r)} |" for r in rows]])


def _agreement(results: dict) -> str:
    titles = {"hloom": "hloom", "numba": "Numba", "parallel": "Numba, parallel", "jax": "jax"}
    ran = {engine for _, _, r in records(results) for engine in r["status"]}
    rows = []
    for kind in [*dict.fromkeys(p.kind for p in PROGRAMS.values()), "all"]:
        row = [kind, str(sum(kind in (p.kind, "all") for p in PROGRAMS.values()))]
        for engine in titles:
            found = [r["status"].get(engine, "") for n, _, r in records(results) if kind in (PROGRAMS[n].kind, "all")]
            counts = [
                sum(s.startswith(word) for s in found)
                for word in ("agrees", "refused", "different", "slow", "unchecked")
            ]
            row += [" / ".join(map(str, counts))] if engine in ran else []
        rows.append(row)
    return _table(["programs", "count", *[title for engine, title in titles.items() if engine in ran]], rows)


def _exceptions(results: dict) -> list[str]:
    """Programs that hloom does not run, or whose results differ; and where NumPy took too long to be the reference."""
    lines = []
    for name, size, record in records(results):
        status = record["status"].get("hloom", record.get("failed", ""))
        if status and not status.startswith(("agrees", "unchecked")):
            lines.append(f"- `{name}`, {size}: {_plain(status)}")
    slow = [f"{n} ({s})" for n, s, r in records(results) if r["status"].get("numpy", "").startswith("slow")]
    if slow:
        lines.append(f"- NumPy took longer than the limit: {', '.join(slow)}.")
    return lines


def _plain(message: str) -> str:
    """Without paths of the machine."""
    return re.sub(r"/\S*/(?=\w+\.py)", "", message).replace("|", "\\|").replace("*", "\\*")


def _speed(results: dict) -> list[str]:
    if not any("hloom" in r["seconds"] and ratio(r, "best") for _, _, r in records(results)):
        return []
    rows = []
    for kind in [*dict.fromkeys(p.kind for p in PROGRAMS.values()), "all"]:
        of_kind = lambda s, k=kind: [r for n, _, r in records(results, s) if k in (PROGRAMS[n].kind, "all")]  # noqa: E731
        by_size = [_mean(ratio(r, "best") for r in of_kind([size])) for size in SIZES]
        others = [_mean(ratio(r, o) for r in of_kind(SIZES)) for o in ("best", "numpy", "jax")]
        rows.append([kind, *by_size, *others])
    below = sorted((v, n, s) for n, s, r in records(results) if (v := ratio(r, "best")) is not None and v < LEAST)
    each = []
    for name in results["programs"]:
        found = {s: r for n, s, r in records(results) if n == name}
        if found:
            each.append([f"`{name}`", PROGRAMS[name].kind, *[_cell(found.get(size)) for size in SIZES]])
    return [
        "## Speed", "",
        "Time of others over hloom's: geometric means. By size, of the best of Numba's versions; then over all sizes.",
        "",
        _table(["programs", *SIZES, "Numba", "NumPy", "jax"], rows), "",
        f"Below {LEAST} ({len(below)} of {sum(ratio(r, 'best') is not None for _, _, r in records(results))}): "
        + ", ".join(f"{n} ({s}: {v:.2f})" for v, n, s in below) + ".", "",
        "Each program: hloom's time; the best of Numba's over it; NumPy's; jax's.", "",
        _table(["program", "kind", *SIZES], each), "",
    ]  # fmt: skip


def _cell(record: dict | None) -> str:
    if record is None or "hloom" not in record["seconds"]:
        return ""
    ratios = [f"{v:.2f}" if (v := ratio(record, o)) is not None else "–" for o in ("best", "numpy", "jax")]
    return f"{_time(record['seconds']['hloom'])}; {' / '.join(ratios)}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


def _first(results: dict) -> list[str]:
    found = {n: p["first"] for n, p in results["programs"].items() if n in PROGRAMS and "numba" in p.get("first", {})}
    if not found:
        return []
    over = _mean(f["cold"] / f["numba"] for f in found.values())
    warm = sorted(f["warm"] for f in found.values())
    longest = sorted(found, key=lambda n: -found[n]["cold"])[:10]
    return [
        "## First calls", "",
        f"hloom's first call with empty caches, over Numba's: geometric mean {over} of {len(found)} programs. hloom's "
        f"import and first call with a warm cache, over NumPy's import: median {warm[len(warm) // 2] * 1e3:.0f} ms, "
        f"longest {warm[-1] * 1e3:.0f} ms.", "",
        _table(["longest first calls", "hloom", "Numba", "hloom, warm"], [
            [f"`{n}`", *[f"{found[n][k] * 1e3:.0f} ms" for k in ("cold", "numba", "warm")]] for n in longest]), "",
    ]  # fmt: skip


def _gradients(results: dict) -> list[str]:
    status: dict[str, list[str]] = {}
    costs = []
    for name, size, record in records(results):
        if "gradient" in record["status"]:
            status.setdefault(name, []).append(record["status"]["gradient"])
        if "gradient" in record["seconds"] and "hloom" in record["seconds"]:
            costs.append((record["seconds"]["gradient"] / record["seconds"]["hloom"], name, size))
    if not status:
        return []
    right = [n for n, s in status.items() if any(x == "agrees" for x in s) and not any("different" in x for x in s)]
    lines = ["## Gradients", "",
             f"{len(right)} of {len(status)} programs with float arguments and results have gradients that agree with "
             f"central differences within {TOLERANCE:g}. The others:", ""]  # fmt: skip
    lines += [
        f"- `{n}`: {_plain(next((x for x in s if x != 'agrees'), ''))}" for n, s in status.items() if n not in right
    ]
    if costs:
        worst = ", ".join(f"{n} ({s}: {v:.1f})" for v, n, s in sorted(costs, reverse=True)[:10])
        lines += ["", f"Time over the function's: geometric mean {_mean(v for v, _, _ in costs)}; most: {worst}."]
    return [*lines, ""]


HEAD = """\
# NumPy programs

{count} programs of our own (`benchmarks/numpy_programs/programs/`), in three sizes and float64, run from the same
source by NumPy, `numba.njit`, `numba.njit(parallel=True)` and `hl.njit`; {forms} of them also in a form for jax
(`benchmarks/numpy_programs/jax_forms.py`). This page is generated.

```
python -m benchmarks.numpy_programs             # all programs, sizes and columns; continues an interrupted run
python -m benchmarks.numpy_programs --only stencils lu --size small --columns numpy numba hloom
python -m benchmarks.numpy_programs --rounds 0  # compares results and times nothing
python -m benchmarks.numpy_programs --page      # writes this page from benchmarks/numpy_programs.json
```

Results and arguments that are changed in place are compared with NumPy's: the largest difference over the largest
element of each array is at most 1e-12, or what the program states with a reason. Where NumPy takes longer than the
limit (20 s by default), the first engine that finishes is the reference. Engines are timed in turns in one process
per program; the minimum of each counts. Arguments that a program changes are restored between calls, outside of the
timing. First calls are timed in new processes, with empty caches and with prebuilt code, as an installed package has
(`python -m hloom.backends.cpu.prebuild`).

Small has some 1,000 elements, medium 100,000, large 1,000,000 or what takes 10 to 300 ms. `fastmath` is off.

{machine}

## Agreement

Agrees / refused / different / no result within the limit / nothing to compare with within the limit, over all sizes
that were run.

"""


def text_of(results: dict) -> str:
    m = results["machine"]
    versions = [f"{title} {m[key]}" for key, title in (("hloom", "hloom"), ("numpy", "NumPy"), ("numba", "Numba"),
                                                       ("jax", "jax"), ("python", "Python")) if m[key]]  # fmt: skip
    machine = f"{m['processor']}, {m['cores']} cores; {', '.join(versions)}."
    head = HEAD.format(count=len(PROGRAMS), forms=len(FORMS.keys() & PROGRAMS.keys()), machine=machine)
    lines = ["", *_exceptions(results), "", *_speed(results), *_first(results), *_gradients(results)]
    return re.sub(r"\n{3,}", "\n\n", head + _agreement(results) + "\n" + "\n".join(lines)).rstrip() + "\n"
