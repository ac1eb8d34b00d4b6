"""The table of jax's own tests, of the counts that `files` keeps with --write.

    counts.json       the row of each file that ran
    exceptions.txt    the tests that jax's CPU passes and hloom does not, with a reason each

`write` makes the sections in benchmarks/BRIDGES.md and docs/reliability.md. A test that has no reason is listed as a
failure.
"""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COUNTS, EXCEPTIONS = HERE / "counts.json", HERE / "exceptions.txt"
TABLE, SUMMARY = ROOT / "benchmarks" / "BRIDGES.md", ROOT / "docs" / "reliability.md"
NUMBERS = ("tests", "run", "cpu", "hloom")


def keep(row: dict) -> None:
    """Notes the row of a file in place of its last one, and makes the sections anew."""
    kept = rows()
    kept[row["file"]] = {key: row[key] for key in (*NUMBERS, "date", "jax", "failed")}
    COUNTS.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n", encoding="utf-8")
    write()


def rows() -> dict[str, dict]:
    return json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {}


def reasons() -> dict[str, str]:
    """By the names of tests: `file::class::test`."""
    lines = EXCEPTIONS.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(": ") for line in lines if line.strip() and not line.startswith("#"))
    return {name: reason for name, _, reason in pairs}


def short(test: str) -> str:
    """`tests/lax_test.py::LaxTest::test_add` -> `lax_test::LaxTest::test_add`."""
    file, _, name = test.partition("::")
    return f"{Path(file).stem}::{name}"


def totals(kept: dict[str, dict] | None = None) -> dict[str, int]:
    """The sums over all files: of tests, those that ran, that pass on jax's CPU, and of these on hloom."""
    kept = rows() if kept is None else kept
    return {key: sum(row[key] for row in kept.values()) for key in NUMBERS}


def table() -> str:
    """A row for each file, and the tests that did not pass."""
    kept = rows()
    total, names = totals(kept), [short(test) for row in kept.values() for test in row["failed"]]
    known = reasons()
    lines = [
        "| file | tests | run | pass on jax's CPU | of these on hloom | run on |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for file, row in kept.items():
        run = "whole" if row["run"] >= row["tests"] else f"{row['run']:,}"
        lines.append(f"| {file} | {row['tests']:,} | {run} | {row['cpu']:,} | {row['hloom']:,} | {row['date']} |")
    lines.append(
        f"| these {len(kept)} files | {total['tests']:,} | {total['run']:,} | {total['cpu']:,} | {total['hloom']:,} | |"
    )
    lines += ["", "What jax's CPU passes and hloom does not:" if names else "Nothing that jax's CPU passes fails.", ""]
    lines += [f"- `{name}`: {known.get(name, 'a fault, not yet repaired')}" for name in names]
    return "\n".join(lines) + "\n"


def summary() -> str:
    """The totals, in a few lines."""
    kept = rows()
    total, known = totals(kept), reasons()
    failed = [short(test) for row in kept.values() for test in row["failed"]]
    explained = sum(name in known for name in failed)
    whole = sum(row["run"] >= row["tests"] for row in kept.values())
    versions = ", ".join(sorted({row["jax"] for row in kept.values()}))
    return (
        "## jax's own tests, with hloom as jax's device\n\n"
        "Made by `python -m benchmarks.jax_tests.files --source JAX --write FILE ...`; each file's row is in "
        "`benchmarks/BRIDGES.md`. `run` counts skipped tests. `explained`: tests that jax's CPU passes and hloom does "
        "not, for a reason that `benchmarks/jax_tests/exceptions.txt` gives.\n\n"
        "| jax | files | of these whole | tests | run | pass on jax's CPU | of these on hloom | share | explained | "
        "failed |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        f"| {versions} | {len(kept)} | {whole} | {total['tests']:,} | {total['run']:,} | {total['cpu']:,} | "
        f"{total['hloom']:,} | {100 * total['hloom'] / max(total['cpu'], 1):.2f} % | {explained} | "
        f"{len(failed) - explained} |\n"
    )


def write() -> None:
    _put(TABLE, "<!-- generated: jax tests -->", "<!-- end: jax tests -->", table())
    _put(SUMMARY, "<!-- jax tests -->", "<!-- end of jax tests -->", summary())


def _put(page: Path, begin: str, end: str, text: str) -> None:
    """Puts a text between two marks of a page, which has them."""
    before, there, rest = page.read_text(encoding="utf-8").partition(begin + "\n")
    _, found, after = rest.partition(end)
    if not there or not found:
        raise SystemExit(f"{page.name} has no section {begin}")
    page.write_text(before + there + text + found + after, encoding="utf-8")
