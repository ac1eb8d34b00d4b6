"""Attacks hloom, and writes what happened to docs/reliability.md.

    python tests/reliability.py [--scale 0.1] [--only programs,calls] [--minutes 30] [--again] [--write]

Each attack has a goal, a number of attempts, which --scale multiplies. It runs in batches, each in a process of its
own; what a batch found is appended to --results at once, so that the next run goes on where the last one ended.
--again runs those batches anew in which something was wrong. --write makes the page of all results so far, and keeps
the sums in tests/support/reliability_totals.json for the next time; give all results of an attack in one file. The
goals take hours on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "reliability.json"
TOTALS = ROOT / "tests" / "support" / "reliability_totals.json"  # of the page: an attack's largest run so far
# Sections by tests/torch_suites.py, tests/complexity.py and benchmarks/jax_tests.
SECTIONS = [
    re.compile(rf"<!-- {name} -->.*<!-- end of {name} -->\n", re.DOTALL)
    for name in ("torch suites", "jax tests", "complexity")
]
PAGE = ROOT / "docs" / "reliability.md"
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import process_attacks  # noqa: E402, F401  its attacks
from attacks import ATTACKS, Row, attack, each, first_line  # noqa: E402
from differentiated_loops import check as check_differentiated_loop  # noqa: E402
from differentiated_numpy import check as check_differentiated_numpy  # noqa: E402
from explained_differences import agrees, close_after_promotion, explanation  # noqa: E402
from random_kernels import check_guarded as check_kernel  # noqa: E402
from random_numpy_programs import check as check_numpy_program  # noqa: E402

import hloom as hl  # noqa: E402  after the path to it
import hloom.numpy as hnp  # noqa: E402


@attack("random programs, compiled against the reference, 1 to 8 threads", 100_000, 500)
def programs(start: int, count: int) -> Row:
    """Random programs, compiled against the reference interpreter, with 1 to 8 threads, with and without fusion."""
    from random_programs import Programs, arguments, check_outputs, overflows_narrow_floats

    from hloom.backends.cpu.compilation import compile_module

    row = Row()
    for seed in range(start, start + count):
        rng = random.Random(seed)
        made = Programs(rng)
        module = made.module(rng.randrange(1, 20))
        arrays = arguments(module, seed)
        with hl.config(num_threads=1 + seed % 8):
            try:
                results = compile_module(module, fusion=seed % 5 != 0)([a.copy() for a in arrays])
                check_outputs(made, module, [np.array(r) for r in results], arrays)
                row.expect(True)
            except Exception as error:
                if isinstance(error, AssertionError) and overflows_narrow_floats(module, arrays):
                    row.explain("values of f16 beyond its range: fused code has them in f32")
                    continue
                row.expect(False, f"seed {seed}: {first_line(error)}")
    return row


@attack("random functions that compute sizes, against NumPy", 20_000, 200)
def counted(start: int, count: int) -> Row:
    """Masks, nonzero and their like in jitted functions, elementwise operations, reductions and shapes of what they
    select, for arguments that select some, all or none."""
    from counted_programs import check_counted

    return each(start, count, check_counted)


@attack("random loops that update arrays in place, every access checked, against the reference", 20_000, 200)
def updates(start: int, count: int) -> Row:
    """Reads and updates in every order, old versions that live on, swaps, nested loops and branches, simulated."""
    from update_programs import check_simulated

    return each(start, count, lambda seed: check_simulated(seed) or {})


@attack("random programs and gradients in random layouts over 2 to 8 devices, against one device", 6_000, 200)
def layouts(start: int, count: int) -> Row:
    """Random programs whose every value has a random layout: partitioned, every third one's gradient instead, and run
    by the interpreter of all devices or, every fifth one, compiled for them."""
    return _laid_out(start, count, devices_each=5)


@attack("the same where messages cost nothing, so that small arrays go the ways of large ones", 20_000, 200)
def layouts_by_bytes(start: int, count: int) -> Row:
    """Layouts and paths by the bytes that are sent alone, run by the interpreter of all devices."""
    from hloom.compiler.passes.spmd.resharding import costs

    price, costs.LATENCY = costs.LATENCY, 0.0
    try:
        return _laid_out(start, count)
    finally:
        costs.LATENCY = price


def _laid_out(start: int, count: int, devices_each: int = 0) -> Row:
    """devices_each: which programs are compiled for devices, one in so many."""
    from random_programs import Programs, arguments, check_outputs
    from spmd_modules import MESHES, annotated, check, copied, run_on_devices, run_partitioned

    from hloom.compiler.transforms.vjp import gradient
    from hloom.ir.module import Module

    row = Row()
    for seed in range(start, start + count):
        rng = random.Random(seed)
        mesh, size, differentiated = rng.choice(MESHES), rng.randrange(1, 12), seed % 3 == 0
        compiled = devices_each > 0 and seed % devices_each == 0
        made = Programs(rng, ("f64",), smooth=True) if differentiated else Programs(rng)
        module = made.module(size)
        arrays = arguments(module, seed)
        try:
            with np.errstate(all="ignore"):
                if differentiated:
                    scalar = made.scalar_output()
                    inputs = list(range(len(scalar.parameters)))
                    module = annotated(copied(Module("gradient", gradient(scalar, inputs))), mesh, rng, 0.7)
                    check(module, [*arrays, np.float64(1.0)], 1e-8)
                else:
                    run = run_on_devices if compiled else run_partitioned
                    check_outputs(made, module, run(annotated(module, mesh, rng, 0.7), arrays), arrays)
            row.expect(True)
            row.counts["gradients" if differentiated else "on devices" if compiled else "programs"] += 1
        except Exception as error:
            row.expect(False, f"seed {seed}: {first_line(error)}")
    return row


@attack("short programs that move and find elements, in layouts that divide little, against one device", 50_000, 2000)
def divided_little(start: int, count: int) -> Row:
    """Programs of `laid_out_programs`, every other one where messages cost nothing, each 50th compiled for devices."""
    from laid_out_programs import LaidOut
    from spmd_modules import MESHES, check, run_on_devices, run_partitioned

    from hloom.compiler.passes.spmd.resharding import costs

    row, price = Row(), costs.LATENCY
    for seed in range(start, start + count):
        rng = random.Random(seed)
        made = LaidOut(rng, rng.choice(MESHES))
        module = made.module(rng.randint(1, 4))
        costs.LATENCY = 0.0 if seed % 2 else price
        compiled = seed % 50 == 0
        try:
            check(module, made.arrays, 1e-12, run_on_devices if compiled else run_partitioned)
            row.expect(True)
            row.counts["on devices" if compiled else "by the interpreter"] += 1
        except Exception as error:
            row.expect(False, f"seed {seed}: {first_line(error)}")
    costs.LATENCY = price
    return row


@attack("hostile names at every door: text, code, files, pages", 6_000, 300)
def names(start: int, count: int) -> Row:
    """Names of strangers at every door of `hostile_doors`, known ones first: refused, or read back as data."""
    from hostile_doors import DOORS, passed
    from hostile_names import NAMES, hostile

    row = Row()
    for number in range(start, start + count):
        which = list(DOORS)[number % len(DOORS)]
        index = number // len(DOORS)
        name = NAMES[index] if index < len(NAMES) else hostile(number)
        with tempfile.TemporaryDirectory() as folder:
            try:
                refused = passed(which, name, Path(folder) / "door").refused
                row.expect(True)
                row.counts["refused" if refused else "taken"] += 1
            except Exception as error:
                row.expect(False, f"{which}, {name!r:.80}: {first_line(error)}")
    return row


@attack("convolutions, products, windows, transforms, attention with guard pages, against the reference", 20_000, 500)
def scratch(start: int, count: int) -> Row:
    """Random kernels with scratch memory, on levels of the processor, caches and cores; an access behind an array ends
    the batch, and standard error has its number."""
    from scratch_cases import processor, run

    row = Row()
    hl.config.guard_scratch = True
    for number in range(start, start + count):
        print(number, file=sys.stderr, flush=True)
        try:
            kind, fault = run(number)
            row.counts[kind] += 1
        except Exception as error:
            fault = f"{number}: {first_line(error)}"
        row.expect(not fault, f"{fault} ({processor(number)})")
    return row


@attack("random kernels of users with guard pages, on levels of the processor, against Python", 10_000, 100)
def random_kernels(start: int, count: int) -> Row:
    return each(start, count, check_kernel)


@attack("random NumPy programs as they are written (hl.njit), against NumPy", 10_000, 100)
def random_numpy_programs(start: int, count: int) -> Row:
    return each(start, count, check_numpy_program)


@attack("random loops that update arrays: gradients against complex steps, costs of twice the rows", 10_000, 100)
def differentiated_loops(start: int, count: int) -> Row:
    return each(start, count, check_differentiated_loop)


@attack("random NumPy programs with loops of any length: gradients three ways, costs of twice the size", 3_000, 50)
def differentiated_numpy(start: int, count: int) -> Row:
    return each(start, count, check_differentiated_numpy)


@attack("random programs with steady inputs, several calls with the same and with others", 10_000, 500)
def steady(start: int, count: int) -> Row:
    """Random graphs, loops, products and convolutions, of whose inputs some stay, change, or are in others' memory."""
    from steady_programs import check

    return each(start, count, lambda seed: {"keep something between calls": check(seed) > 0})


@attack("compiled programs of unknown sizes, one executable for all, against the reference", 1_000, 50)
def open_executables(start: int, count: int) -> Row:
    """What one executable computes at six sets of sizes, through guards and variants, is what the reference does."""
    from open_programs import check_compiled

    return each(start, count, lambda seed: dict(zip(("calls", "variants"), check_compiled(seed), strict=True)))


@attack("sessions of 1 to 4 unknown sizes, fed with six sets of sizes, against sessions of one", 1_000, 50)
def session_sizes(start: int, count: int) -> Row:
    """What a session computes, refuses and keeps for all sizes is what one does that is fed with these alone."""
    from open_sessions import check

    return each(start, count, lambda seed: dict(zip(("runs", "programs", "refused"), check(seed), strict=True)))


@attack("products and convolutions of open sizes with guard pages, six sizes each, against the reference", 2_000, 50)
def open_kernels(start: int, count: int) -> Row:
    """One executable for random layouts, dtypes, sizes that are open, and levels of the processor."""
    from open_kernels import check

    hl.config.guard_scratch = True
    return each(start, count, lambda seed: dict(zip(("calls", "variants"), check(seed), strict=True)))


@attack("random programs for ranges of sizes as libraries, every size or 48, against the program of each", 1_000, 20)
def exported_ranges(start: int, count: int) -> Row:
    """A library for ranges of 1 to 4 sizes computes what the program of each size does; multiples, 1 to 3 threads."""
    from exported_programs import check_exported

    return each(start, count, check_exported)


@attack("random programs of 1 to 4 unknown sizes at four sets of sizes, against fixed ones", 10_000, 500)
def sizes(start: int, count: int) -> Row:
    """What a program of unknown sizes computes, its constants being sizes as well, is what one of fixed sizes does."""
    from open_programs import check

    def counted(seed: int) -> dict[str, int]:
        used, refused = check(seed)
        return {
            "steps": sum(used.values()),
            "steps refused for want of a fact": sum(refused.values()) - refused["at a size"],
            "programs refused at a size": refused["at a size"],
        }

    return each(start, count, counted)


@attack("networks that NNSmith makes, through the torch backend, against eager torch", 100_000, 50)
def outside(start: int, count: int) -> Row:
    """Networks of a generator of others: computed as by eager torch, or refused. What is not made is no attempt."""
    row = Row()
    try:
        import outside_programs
    except ModuleNotFoundError as error:
        row.counts[f"numbers without {error.name}"] += count
        return row
    for seed in range(start, start + count):
        try:
            network, inputs, operators = outside_programs.made(seed)
        except Exception as error:
            row.counts[f"not made: {type(error).__name__}"] += 1
            continue
        try:
            wrong, how = outside_programs.checked(network, inputs)
        except hl.errors.HloomError:
            wrong, how = "", "refused"
        except Exception as error:
            wrong, how = first_line(error), "failed"
        if how == "unstable":
            row.explain("eager torch's result differs as well where the inputs' last bits do")
            continue
        row.counts[how] += 1
        row.expect(not wrong, f"{seed}: {wrong} of {' '.join(operators)}")
    return row


DTYPES = ("bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64")
SHAPES = ((), (0,), (1,), (3,), (2, 3), (0, 3), (2, 1, 3), (17,))
# Not functions of arrays alone, of sizes (which edge values make too large), or with results that are no numbers.
# NumPy's bincount of 2**63 - 1 writes beyond its memory.
LEFT_OUT = frozenset(
    """save savez load frombuffer fromfile fromfunction fromstring vectorize piecewise printoptions set_printoptions
    get_printoptions array_str array_repr array2string empty empty_like issubdtype iscomplexobj isrealobj isscalar
    astype einsum_path copyto put place apply_along_axis apply_over_axes from_dlpack may_share_memory shares_memory
    bincount arange linspace logspace geomspace eye identity tri ones zeros full bartlett blackman hamming hanning
    kaiser indices repeat tile resize pad vander diag diagflat broadcast_to mask_indices tril_indices triu_indices
    diag_indices kron outer histogram histogram2d histogramdd histogram_bin_edges digitize unravel_index
    array_split polyfit""".split()
)
FIRST_ARGUMENTS = {"tensordot": 2, "diff": 1, "polyder": 1, "polyint": 1}  # the next one is a number of repetitions
MEMORY = 16 << 30  # of a process that calls, in bytes


def _edge_values(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        edges = np.array([0, 1, 2, 3, 5, info.max, info.max - 1, info.min], dtype)
        return edges[rng.integers(0, len(edges), shape)]
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.7, 100.0, np.inf, -np.inf, np.nan, float(np.finfo(dtype).tiny)]
    values = np.array(edges)[rng.integers(0, len(edges), shape)]
    return values.astype(dtype)


@attack("calls of hloom.numpy's functions against NumPy's, eagerly and jitted", 200_000, 10_000)
def calls(start: int, count: int) -> Row:
    """Calls of functions that NumPy has too, with edge values, dtypes and sizes, eagerly and jitted.

    What NumPy refuses, or answers with no array, is no attempt.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    row = Row()
    names = sorted(n for n in set(hnp.__all__) & set(dir(np)) - LEFT_OUT if callable(getattr(np, n)))
    names = [n for n in names if not isinstance(getattr(np, n), type)]
    for number in range(start, start + count):
        rng = np.random.default_rng([0, number])
        name = names[rng.integers(len(names))]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            arguments = _random_arguments(rng)[: FIRST_ARGUMENTS.get(name)]
            _call(row, number, name, arguments, jitted=rng.random() < 0.1)
    return row


MATRIX_DOORS = (
    "jitted", "kernels", "batched", "eager", "jitted", "kernels", "batched_kernels", "gradients",
    "jitted", "kernels", "batched", "exported", "jitted", "kernels", "batched_kernels", "torch or jax",
)  # fmt: skip


@attack("awkward matrices, every function of linear algebra, by residuals and LAPACK's values", 500_000, 8)
def matrices(start: int, count: int) -> Row:
    """A number is a dtype, a shape with sides of 1 to 64, and a door; it has a matrix of each kind and all functions.

    A matrix of one kind with one function is an attempt. torch and jax, where they are installed, are compared with
    themselves: what they have wrong without hloom does not count.
    """
    os.environ.setdefault("JAX_PLATFORMS", "hloom,cpu")  # read when jax is imported
    import matrix_doors
    from awkward_matrices import FLOATING

    row = Row()
    warnings.simplefilter("ignore")
    for number in range(start, start + count):
        rng = np.random.default_rng([1, number])
        door, dtype = MATRIX_DOORS[number % 16], FLOATING[(number // 16 + number) % 4]
        n = int(64 ** rng.random())
        m = n if rng.random() < 0.6 else int(64 ** rng.random())
        if door == "gradients":
            found = matrix_doors.gradients(FLOATING[number % 2], min(m, 16), min(n, 16), number)
        elif door == "torch or jax":
            under = matrix_doors.under_torch if number % 32 < 16 else matrix_doors.under_jax
            found = under(dtype, min(m, 8), min(n, 8), number)
        else:
            found = matrix_doors.through(door, dtype, m, n, number)
        try:
            for what, wrong in found:
                row.expect(not wrong, f"{what}: {wrong}")
                row.counts[what.split(" ", 1)[0]] += 1
        except ModuleNotFoundError as error:
            row.counts[f"numbers without {error.name}"] += 1
    return row


def _call(row: Row, number: int, name: str, arguments: list[np.ndarray], jitted: bool) -> None:
    try:
        want = getattr(np, name)(*[a.copy() for a in arguments])
    except Exception:
        return
    if not isinstance(want, (np.ndarray, np.generic)):
        return
    want = np.asarray(want)
    text = f"{number}: {'jit ' if jitted else ''}{name}{_described(arguments)}"
    function = getattr(hnp, name)
    try:
        got = np.asarray((hl.jit(function) if jitted else function)(*arguments))
    except Exception as error:
        row.counts["refused with a clear error"] += 1
        broken = not isinstance(error, (TypeError, ValueError, NotImplementedError, IndexError, OverflowError))
        row.expect(not broken, f"{text}: {first_line(error)}")
        return
    if got.dtype != want.dtype:
        row.counts["with another dtype, as JAX promotes"] += 1
        right = close_after_promotion(name, arguments, got, want)
    else:
        right = agrees(got, want)
    if right:
        row.expect(True)
    elif reason := explanation(name, arguments, got, want):
        row.explain(reason)
    else:
        row.expect(False, f"{text}: {got!r}, not {want!r}")


def _random_arguments(rng: np.random.Generator) -> list[np.ndarray]:
    shape = SHAPES[rng.integers(len(SHAPES))]
    same_shape, same_dtype = rng.random() < 0.7, rng.random() < 0.6
    dtype = DTYPES[rng.integers(len(DTYPES))]
    arguments = []
    for _ in range(rng.integers(1, 4)):
        kind = np.dtype(dtype if same_dtype else DTYPES[rng.integers(len(DTYPES))])
        arguments.append(_edge_values(rng, kind, shape if same_shape else SHAPES[rng.integers(len(SHAPES))]))
    return arguments


def _described(arguments: list[np.ndarray]) -> str:
    return "(" + ", ".join(f"{a.dtype}{a.tolist()}" for a in arguments) + ")"


# --- batches and the table --------------------------------------------------------------------------------------------


def run_batch(name: str, start: int, count: int) -> dict:
    """A batch in a process of its own; that it crashes or hangs is something wrong."""
    started = time.monotonic()
    command = [sys.executable, __file__, "--batch", f"{name}:{start}:{count}"]
    entry = {"attack": name, "start": start, "count": count, "attempts": 0, "date": time.strftime("%Y-%m-%d")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=7200)
        if done.returncode:
            entry["wrong"] = [f"{start} to {start + count - 1}: exit {done.returncode}: {done.stderr[-300:]}"]
        else:
            entry |= json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        entry["wrong"] = [f"{start} to {start + count - 1}: hangs"]
    return entry | {"seconds": round(time.monotonic() - started, 1)}


def advance(name: str, entries: list[dict], scale: float, deadline: float, keep: Callable[[], None]) -> None:
    """Runs batches of an attack until its goal, the deadline or three batches in a row without an attempt."""
    goal, batch = int(ATTACKS[name].goal * scale), ATTACKS[name].batch
    while time.monotonic() < deadline:
        mine = [e for e in entries if e["attack"] == name]
        left = goal - sum(e["attempts"] for e in mine)
        if left <= 0 or (len(mine) > 2 and not any(e["attempts"] for e in mine[-3:])):
            return
        start = _first_gap(mine)
        following = min((e["start"] for e in mine if e["start"] > start), default=start + batch)
        entries.append(run_batch(name, start, min(batch, following - start, max(left, batch // 10))))
        keep()
        last = entries[-1]
        print(f"{name} {start}: {last['attempts']} attempts, {len(last['wrong'])} wrong", file=sys.stderr, flush=True)


def _first_gap(entries: list[dict]) -> int:
    end = 0
    for entry in sorted(entries, key=lambda e: e["start"]):
        if entry["start"] > end:
            break
        end = entry["start"] + entry["count"]
    return end


def totals(entries: list[dict]) -> dict[str, dict]:
    """By attack: the sums of its entries, or the kept ones where those have more attempts."""
    kept = json.loads(TOTALS.read_text())
    found = {}
    for name in ATTACKS:
        mine = [e for e in entries if e["attack"] == name]
        if sum(e["attempts"] for e in mine) <= kept.get(name, {"attempts": 0})["attempts"]:
            found |= {name: kept[name]} if name in kept else {}
            continue
        found[name] = {
            "attempts": sum(e["attempts"] for e in mine),
            "seconds": round(sum(e["seconds"] for e in mine)),
            "dates": sorted({e["date"] for e in mine}),
            "wrong": [fault for e in mine for fault in e["wrong"]],
            "explained": sum((Counter(e.get("explained", {})) for e in mine), Counter()),
            "counts": sum((Counter(e.get("counts", {})) for e in mine), Counter()),
            "notes": [e["note"] for e in mine if e.get("note")],
        }
    return found


def table(found: dict[str, dict]) -> str:
    with open("/proc/cpuinfo") as file:
        processor = re.search(r"model name\s*: (.*)", file.read())
    dates = sorted({date for total in found.values() for date in total["dates"]})
    lines = [
        "# Reliability",
        "",
        f"Made by `python tests/reliability.py --write` from runs of {' to '.join(dates[:1] + dates[1:][-1:])}: "
        f"hloom {hl.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"{processor[1] if processor else platform.machine()}, {os.cpu_count()} cores. "
        "`run` is what was really run so far, of several commits; `goal` is what a whole run has. "
        "A call that is refused with one of hloom's errors counts as right.",
        "",
        "| attack | run | goal | wrong | explained | s | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    faults, reasons = [], Counter()
    for name, known in ATTACKS.items():
        total = found.get(name)
        if total is None:
            lines.append(f"| {known.title} | 0 | {known.goal:,} | | | | not run yet |")
            continue
        notes = [f"{count:,} {what}" for what, count in sorted(total["counts"].items())] + total["notes"]
        lines.append(
            f"| {known.title} | {total['attempts']:,} | {known.goal:,} | {len(total['wrong'])} | "
            f"{sum(total['explained'].values())} | {total['seconds']:.0f} | {'; '.join(notes)} |"
        )
        faults += [f"- {known.title}: `{fault[:300]}`" for fault in total["wrong"][:20]]
        reasons += Counter(total["explained"])
    if reasons:
        lines += ["", "## Explained differences", "", "| times | why |", "| --- | --- |"]
        lines += [f"| {count} | {reason} |" for reason, count in reasons.most_common()]
    if faults:
        lines += ["", "## What was wrong", "", *faults]
    for section in SECTIONS:
        if there := section.search(PAGE.read_text()):
            lines += ["", *there[0].splitlines()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the goals")
    parser.add_argument("--only", default=",".join(ATTACKS), help="some of the attacks; '' for none")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no batch after so many minutes")
    parser.add_argument("--results", type=Path, default=RESULTS, help="what was found so far")
    parser.add_argument("--again", action="store_true", help="run the batches with something wrong again")
    parser.add_argument("--write", action="store_true", help="write docs/reliability.md")
    parser.add_argument("--batch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.batch:
        name, start, count = options.batch.split(":")
        row = ATTACKS[name].run(int(start), int(count))
        print(json.dumps({name: getattr(row, name) for name in ("attempts", "wrong", "explained", "counts", "note")}))
        return
    entries = json.loads(options.results.read_text()) if options.results.exists() else []
    if options.again:
        entries = [e for e in entries if not e["wrong"]]

    def keep() -> None:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(json.dumps(entries, indent=1))

    deadline = time.monotonic() + 60 * options.minutes
    for name in filter(None, options.only.split(",")):
        advance(name, entries, options.scale, deadline, keep)
    found = totals(entries)
    text = table(found)
    if options.write:
        TOTALS.write_text(json.dumps(found, indent=1) + "\n")
        PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
