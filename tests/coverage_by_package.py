"""Prints the coverage of the last run by package, from the data that `nox -s coverage` leaves."""

import json
import tempfile
from collections import Counter
from pathlib import Path

from coverage import Coverage

COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")
NESTED = ("ir", "compiler", "runtime", "benchmarks", "hloom")


def package(path: str) -> str:
    """`compiler/kernels` of a file in it; the first package and one below."""
    parts = Path(path).parts
    parts = parts[1:] if parts[0] == "hloom" and parts[1] in NESTED else parts
    return "/".join(parts[: min(2, len(parts) - 1)])


def totals(files: dict[str, dict]) -> dict[str, Counter]:
    """The counts of each package and of all, from the `files` of a JSON report."""
    found: dict[str, Counter] = {}
    for path, entry in sorted(files.items()):
        for name in (package(path), "all"):
            found.setdefault(name, Counter()).update({count: entry["summary"][count] for count in COUNTS})
    return found


def main() -> None:
    coverage = Coverage()
    coverage.load()
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        coverage.json_report(outfile=file.name)
        files = json.load(file)["files"]
    print(f"{'package':40} {'lines':>8} {'run':>7} {'branches':>9} {'run':>7}")
    found = totals(files)
    for name, counts in sorted(found.items(), key=lambda item: (item[0] == "all", item[0])):
        lines, run, branches, taken = (counts[count] for count in COUNTS)
        print(f"{name:40} {lines:8} {run / max(lines, 1):7.1%} {branches:9} {taken / max(branches, 1):7.1%}")


if __name__ == "__main__":
    main()
