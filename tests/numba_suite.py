"""Runs Numba's own tests of NumPy and control flow through `hl.njit`, and prints the counts:

    python tests/numba_suite.py [MODULE ...] [--only WORD] [--limit SECONDS] [--keep FILE] [--write]

MODULE: of `numba.tests`, by default those of MODULES. The installed Numba has the tests; `hl.njit` is put in the place
of `numba.njit` by `tests/support/numba_border.py`. A test passes, fails, or is excluded for a reason: where it asks for
what is not NumPy, or by a line of `tests/support/numba_exclusions.txt`. --limit: of a test, in seconds; one that takes
longer fails. --keep writes each test's outcome as a line of JSON. --write keeps the counts in
`tests/support/numba_suite.json` and makes the tables in docs/reference/numba.md.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import importlib
import json
import os
import select
import subprocess
import sys
import time
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXCLUSIONS = ROOT / "tests" / "support" / "numba_exclusions.txt"
COUNTS = ROOT / "tests" / "support" / "numba_suite.json"
PAGE = ROOT / "docs" / "reference" / "numba.md"
# The modules, and what the table calls them.
MODULES = {
    "array_methods": "methods of arrays", "np_functions": "functions of NumPy", "array_reductions": "reductions",
    "array_manipulation": "reshape, transpose, stack, split, broadcast", "array_attr": "attributes of arrays",
    "array_iterators": "`flat`, `ndindex`, `ndenumerate`, `nditer`", "array_exprs": "array expressions",
    "array_constants": "arrays from outside", "array_return": "arrays as results",
    "dyn_array": "`zeros`, `full`, `arange`, `stack`",
    "indexing": "indices and slices", "fancy_indexing": "arrays as indices", "storeslice": "assignment to slices",
    "slices": "`slice`", "ufuncs": "ufuncs", "linalg": "`np.linalg`", "polynomial": "`np.polynomial`", "sort": "sorts",
    "operators": "operators of numbers", "complex": "complex numbers, `cmath`", "mathlib": "`math`",
    "builtins": "Python's functions", "numberctor": "`int`, `float`, `complex`, `np.int32`",
    "numbers": "views of numbers",
    "maxmin": "`max`, `min`", "nan": "NaN", "multi3": "products of 64 bits", "casting": "conversions",
    "flow_control": "`for`, `while`, `if`, `break`", "controlflow": "branches", "dataflow": "assignments",
    "range": "`range`", "iteration": "iteration", "usecases": "small programs", "mandelbrot": "Mandelbrot",
    "blackscholes": "Black-Scholes", "tuples": "tuples", "unpack_sequence": "unpacking", "return_values": "results",
    "chained_assign": "chained assignment", "comprehension": "comprehensions", "closure": "functions within functions",
    "globals": "values from outside", "interproc": "calls", "nested_calls": "calls of compiled functions",
    "overlap": "overlapping slices", "ssa": "names in branches and loops", "extended_arg": "long functions",
    "conditions_as_predicates": "truth of values",
}  # fmt: skip


# --- a process that runs the tests of a module


def exclusions() -> dict[str, str]:
    """{pattern of a test: name of the reason}"""
    lines = [line.split("#")[0].split() for line in EXCLUSIONS.read_text(encoding="utf-8").splitlines()]
    return {line[0]: " ".join(line[1:]) for line in lines if line}


def tests_of(suite: Any) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        else:
            yield test


class Outcome(unittest.TestResult):
    """The outcome of one test: what failed, why it was skipped."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: list[BaseException] = []
        self.skips: list[str] = []

    def _failed(self, test: Any, err: Any) -> None:
        self.failed.append(err[1])

    addError = addFailure = _failed

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._failed(test, err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.skips.append(reason)


def run_one(test: unittest.TestCase, border: Any) -> dict[str, str]:
    outcome = Outcome()
    border.prepare(test.id())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        test.run(outcome)
    if outcome.failed:
        error = outcome.failed[0]
        return {"outcome": "failed", "why": f"{type(error).__name__}: {error}"}
    if outcome.skips:
        reason = outcome.skips[0].split(":")[0]
        return {"outcome": "excluded", "reason": reason if reason in border.EXCLUDED else "skipped by Numba",
                "why": outcome.skips[0]}  # fmt: skip
    if not border.computed[0]:
        return {"outcome": "excluded", "reason": "errors", "why": "nothing is computed"}
    return {"outcome": "passed"}


def work(module: str, done: set[str], only: str) -> None:
    """Runs the tests of a module that are not done; prints a line of JSON before and after each."""
    sys.path[:1] = [str(ROOT / "tests" / "support"), str(ROOT)]
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # tests print
    import numba_border as border  # after the path

    border.install()
    imported = importlib.import_module(f"numba.tests.test_{module}")
    border.loaded(imported)
    found = unittest.defaultTestLoader.loadTestsFromModule(imported)
    patterns = exclusions()
    for test in tests_of(found):
        name = test.id().removeprefix("numba.tests.test_")
        if name in done or only not in name:
            continue
        print(json.dumps({"begin": name}), file=lines)
        start = time.perf_counter()
        reason = next((r for p, r in patterns.items() if fnmatch.fnmatch(name, p)), None)
        made = {"outcome": "excluded", "reason": reason, "why": "listed"} if reason else run_one(test, border)
        print(json.dumps({"test": name, "seconds": round(time.perf_counter() - start, 2), **made}), file=lines)


# --- the process that starts them


def outcomes(module: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The outcomes of a module's tests. A test that ends its process, or is too slow, fails, and the rest goes on in
    another one."""
    done: set[str] = set()
    while True:
        command = [sys.executable, __file__, "--work", module, "--only", options.only]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.DEVNULL)  # fmt: skip
        assert worker.stdin and worker.stdout
        worker.stdin.write(json.dumps(sorted(done)))
        worker.stdin.close()
        begun, why = "", ""
        while True:
            # To import Numba takes a while too.
            if not select.select([worker.stdout], [], [], options.limit if begun else options.limit + 60)[0]:
                why = f"not done in {options.limit:.0f} s"
                break
            line = worker.stdout.readline()
            if not line:
                break
            message = json.loads(line)
            begun = message.get("begin", "")
            if not begun:
                done.add(message["test"])
                yield message
        if begun or why:  # it is too slow, or it has ended
            worker.kill()
        code = worker.wait()
        if not begun:
            if code or why:
                yield {"test": f"{module}.import", "outcome": "failed", "why": f"the process ended with {code}"}
            return
        done.add(begun)
        yield {"test": begun, "outcome": "failed", "why": why or f"the process ended with {code}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, set(json.load(sys.stdin)), options.only)
        return 0
    keep = options.keep.open("a", encoding="utf-8", buffering=1) if options.keep else None
    counts: dict[str, Counter[str]] = {}
    for module in options.modules or MODULES:
        count = counts[module] = Counter()
        for made in outcomes(module, options):
            kind = made["outcome"] if made["outcome"] != "excluded" else f"excluded: {made['reason']}"
            count[kind] += 1
            if keep:
                print(json.dumps(made), file=keep)
            elif made["outcome"] == "failed":
                print(made["test"], made["why"].replace("\n", " ")[:300], flush=True)
        ran = count["passed"] + count["failed"]
        print(f"{module}: {count['passed']} of {ran}, {count.total() - ran} excluded", flush=True)
    passed = sum(c["passed"] for c in counts.values())
    ran = passed + sum(c["failed"] for c in counts.values())
    print(f"all: {passed} of {ran}, {100 * passed / max(ran, 1):.1f} %")
    if options.write:
        write(counts)
    return 0


def write(counts: dict[str, Counter[str]]) -> None:
    """Keeps the counts of modules with those of others, and makes the tables of the page."""
    kept = json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {}
    kept |= {module: dict(sorted(count.items())) for module, count in counts.items()}
    kept = {module: kept[module] for module in MODULES if module in kept}
    COUNTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split("<!-- written: suite -->\n")
    after = rest[rest.index("<!-- end -->") :]
    PAGE.write_text(f"{before}<!-- written: suite -->\n{tables(kept)}{after}", encoding="utf-8")


def tables(kept: dict[str, dict[str, int]]) -> str:
    passed = sum(c.get("passed", 0) for c in kept.values())
    ran = passed + sum(c.get("failed", 0) for c in kept.values())
    left = sum((Counter({k: n for k, n in c.items() if k.startswith("excluded")}) for c in kept.values()), Counter())
    rows = [f"{passed} of {ran} tests pass, {100 * passed / max(ran, 1):.1f} %.", "",
            "| tests of | module | passed | of | left out |", "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for module, count in kept.items():
        own = count.get("passed", 0) + count.get("failed", 0)
        rows.append(f"| {MODULES[module]} | `test_{module}` | {count.get('passed', 0)} | {own} "
                    f"| {sum(count.values()) - own} |")  # fmt: skip
    missing = [f"`test_{module}`" for module in MODULES if module not in kept]
    rows += ["", f"Not run yet, and not in the share: {', '.join(missing)}."] if missing else []
    rows += ["", "| left out | tests |", "| --- | --- |"]
    reasons = {"skipped by Numba": "skipped by the tests themselves"} | reasons_of_border()
    rows += [f"| {reasons[k.removeprefix('excluded: ')]} | {n} |" for k, n in left.most_common()]
    return "\n".join(rows) + "\n"


def reasons_of_border() -> dict[str, str]:
    """EXCLUDED of `tests/support/numba_border.py`, which only a process of its own can import: it changes Numba."""
    tree = ast.parse((ROOT / "tests" / "support" / "numba_border.py").read_text(encoding="utf-8"))
    return next(ast.literal_eval(node.value) for node in tree.body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXCLUDED")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
