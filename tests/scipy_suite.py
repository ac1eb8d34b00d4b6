"""Runs SciPy's own Array API tests on arrays of hloom, and prints the shares that pass:

    python tests/scipy_suite.py [PART ...] [--most N] [--against jax.numpy] [--frozen]

PART: subpackages such as `stats`; all by default. --most N runs N tests of each file, chosen by their names, the same
ones for every namespace. --against runs them for another namespace too. --frozen: hloom without item assignment.

A test counts if it passes with NumPy's arrays. No mark of SciPy's that skips a test for a namespace, or expects its
failure, is followed, and a test that skips itself did not pass (`tests/support/scipy_backend.py`). All have 64 bits;
jax's functions run under `jax.jit` where SciPy's tests do that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("cluster differentiate fft integrate interpolate linalg ndimage optimize signal spatial special stats").split()


def outcomes(part: str, backend: str, options) -> dict[str, str]:
    """The outcome of each test of a subpackage, and prints the last line of what failed."""
    paths = [str(ROOT), str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")]
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "scipy_backend", "--tb=short",
                   "--backend", backend, "--most", str(options.most), "--found", str(rows), "--pyargs", f"scipy.{part}",
                   *(["--frozen"] if options.frozen else [])]  # fmt: skip
        subprocess.run(
            command, cwd=folder, stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SCIPY_ARRAY_API": '["numpy"]'},
        )  # fmt: skip
        for line in rows.read_text().splitlines():
            row = json.loads(line)
            if found.get(row["test"]) != "failed":  # an error after the test counts too
                found[row["test"]] = row["outcome"]
            if row["outcome"] == "failed" and backend.startswith("hloom"):
                print(f"{part}: {row['test']}: {' '.join(row['text'].split())[-200:]}", flush=True)
    return found


def share(passing: set[str], base: set[str]) -> str:
    return f"{len(passing & base)} of {len(base)}, {len(passing & base) / max(len(base), 1):.1%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--most", type=int, default=10**9)
    parser.add_argument("--against", choices=["jax.numpy"])
    parser.add_argument("--frozen", action="store_true")
    options = parser.parse_args()
    backends = ["numpy", "hloom.numpy", *([options.against] if options.against else [])]
    total: dict[str, set[str]] = {backend: set() for backend in backends}
    for part in options.parts:
        passing = {}
        for backend in backends:
            done = outcomes(part, backend, options)
            passing[backend] = {f"{part} {test}" for test, outcome in done.items() if outcome == "passed"}
            total[backend] |= passing[backend]
        print(part, *(f"{b}: {share(passing[b], passing['numpy'])}" for b in backends[1:]), sep="; ", flush=True)
    print("all", *(f"{b}: {share(total[b], total['numpy'])}" for b in backends[1:]), sep="; ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
