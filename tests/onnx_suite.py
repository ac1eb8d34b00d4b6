"""Runs onnx's whole backend suite on hloom and prints the counts: `python tests/onnx_suite.py [PATTERN] [--write]`.

With --write the counts and the failing cases are written into docs/reference/onnx.md.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "onnx.md"
# Python puts the folder of a script first, and `tests/hloom` hides the package where that is installed as editable.
sys.path[:1] = [str(ROOT / "tests" / "support"), str(ROOT)]

import onnx  # noqa: E402
import onnx_cases  # noqa: E402

import hloom.onnx  # noqa: E402, F401  # a package that cannot be imported is an error at once, not one of each case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    passed: Counter[str] = Counter()
    total: Counter[str] = Counter()
    failed: dict[str, str] = {}
    jobs = [(case.kind, case.name, lambda case=case: onnx_cases.run(case)) for case in onnx_cases.cases()]
    jobs += [("real", f"real/{name}", lambda p=path, e=expected: onnx_cases.run_real(p, e))
             for name, path, expected in onnx_cases.real_models()]  # fmt: skip
    for kind, name, job in jobs:
        if not re.search(options.pattern, name):
            continue
        total[kind] += 1
        try:
            job()
            passed[kind] += 1
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {str(error).strip()[:200]}".replace("\n", " ")
            print(f"{name}: {failed[name]}", flush=True)
    lines = [f"{kind}: {passed[kind]} of {total[kind]}" for kind in total]
    print(*lines, f"all: {passed.total()} of {total.total()}, {time.perf_counter() - start:.0f} s", sep="\n")
    if options.write:
        write(passed, total, failed)
    unexpected = [name for name in failed if onnx_cases.cause(name) is None]
    return 1 if unexpected else 0


def write(passed: Counter[str], total: Counter[str], failed: dict[str, str]) -> None:
    """The tables of the page."""
    rows = [f"onnx {onnx.__version__}, opset {onnx.defs.onnx_opset_version()}:", "",
            "| cases | passed | of |", "| --- | --- | --- |"]  # fmt: skip
    rows += [f"| {kind} | {passed[kind]} | {total[kind]} |" for kind in total]
    rows += [f"| all | {passed.total()} | {total.total()} |", "", "| failing | cause |", "| --- | --- |"]
    rows += [f"| `{name}` | {onnx_cases.cause(name) or text} |" for name, text in failed.items()]
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split("<!-- written: suite -->\n")
    after = rest[rest.index("<!-- end -->") :]
    PAGE.write_text(before + "<!-- written: suite -->\n" + "\n".join(rows) + "\n" + after, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
