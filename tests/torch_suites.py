"""Runs suites of others through the torch backend, and prints the counts:

    python tests/torch_suites.py SUITE [--part K/N] [--only WORD] [--limit SECONDS] [--write] [--tests FILE]

SUITE:
    ops            the first of torch's samples of each op (`op_db`) in each of its dtypes, against torch
    gradients      the same with derivatives, of those that torch differentiates
    dynamic        the same with open sizes, in float32
    transformers   every architecture of `transformers` that can be built small, each in a process of its own: a
                   forward, and `generate` with a dynamic and with a static cache, against torch;
                   `tests/support/torch_models_small.py` says which are built, and why others are not
    inductor       tests of torch's own compiler with the backend swapped; FILE is torch's test_torchinductor.py

--part K/N runs the cases whose names hash to K of N, the same ones in each run. Cases that are listed in
`tests/support/torch_exceptions.txt`, with a reason each, count as explained where they fail. --write keeps the
counts in `tests/support/torch_suites.json` and makes the table in docs/reliability.md.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import importlib
import json
import os
import pickle
import re
import select
import signal
import sys
import time
import traceback
import unittest
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import torch  # noqa: E402  after the paths
import torch_models_small  # noqa: E402
import torch_samples  # noqa: E402

from hloom.bridges.torch import hloom  # noqa: E402
from hloom.errors import FallbackWarning  # noqa: E402
from hloom.ir import source  # noqa: E402

EXCEPTIONS = ROOT / "tests" / "support" / "torch_exceptions.txt"
COUNTS = ROOT / "tests" / "support" / "torch_suites.json"
PAGE = ROOT / "docs" / "reliability.md"
Case = tuple[str, Callable[[], None]]


def ops(gradients: bool = False, dynamic: bool = False) -> Iterator[Case]:
    for op in torch_samples.op_db:
        for dtype in torch_samples.dtypes_of(op, gradients):
            if not dynamic or dtype == torch.float32:
                name = " ".join([op.name, op.variant_test_name, str(dtype).removeprefix("torch.")]).replace("  ", " ")
                yield name, lambda op=op, dtype=dtype: torch_samples.check(op, dtype, gradients, dynamic)


def transformers(options) -> Iterator[Case]:
    """In the order of the hashes of their names, so that the first of them are a fair share. Each in a process."""
    torch._dynamo.list_backends()  # imports what each of the processes would import again
    names = sorted(torch_models_small.architectures(), key=lambda name: zlib.crc32(name.encode()))
    generate: dict[str, bool] = {}

    def forward(name: str) -> None:
        generate[name] = False
        generate[name] = _apart(lambda: torch_models_small.check_forward(name), options.each)

    for name in names:
        yield f"{name} forward", lambda name=name: forward(name)
    for cache in ("dynamic", "static"):
        for name in names:
            if generate.get(name, True):
                job = lambda name=name, cache=cache: torch_models_small.check_generate(name, cache)  # noqa: E731
                yield f"{name} {cache}", lambda job=job: _apart(job, options.each)


class ApartError(Exception):
    """What a process of its own raised, or that it ended or was too slow."""


def _apart(job: Callable[[], Any], seconds: float) -> Any:
    """The job in a copy of this process, which may die or take too long alone."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        torch.set_num_threads(
            1
        )  # small programs: threads of torch that wait for each other would take most of the time
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(_told(job), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        ready = select.select([pipe], [], [], seconds)[0]
        text = pipe.read() if ready else b""
    if not ready:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not text:
        raise ApartError(f"not done in {seconds:.0f} s" if not ready else f"its process ended with {status}")
    category, message, fallbacks = pickle.loads(text)
    for fallback in fallbacks:
        warnings.warn(fallback, FallbackWarning, stacklevel=1)
    if category:
        raise (torch_samples.NotThere if category == "NotThere" else ApartError)(message)
    return message


def _told(job: Callable[[], Any]) -> tuple[str, Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", FallbackWarning)
        try:
            category, message = "", job()
        except torch_samples.NotThere as error:
            category, message = "NotThere", str(error)
        except Exception as error:
            category, message = type(error).__name__, f"{type(error).__name__}: {error}"
            traceback.print_exc()
    return category, message, [str(w.message) for w in caught if w.category is FallbackWarning]


def inductor(options) -> Iterator[Case]:
    """The CPU tests of torch's file, whose calls of its compiler are those of hloom instead."""
    compiler = importlib.import_module("torch._inductor.compile_fx")
    compiler.compile_fx = lambda graph, examples, *rest, **given: hloom(graph, examples)
    path = Path(options.tests)
    sys.path.insert(0, str(path.parent))
    module = importlib.import_module(path.stem)
    suite = module.CpuTests
    for name in sorted(n for n in dir(suite) if n.startswith("test_")):
        yield name, lambda name=name: _run_unittest(suite(name))


def _run_unittest(test: unittest.TestCase) -> None:
    result = unittest.TestResult()
    test.run(result)
    if result.skipped:
        raise unittest.SkipTest(result.skipped[0][1])
    for _, text in (*result.errors, *result.failures):
        lines = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
        raise AssertionError(lines[0] if lines else text)


SUITES: dict[str, Callable] = {
    "ops": lambda options: ops(),
    "gradients": lambda options: ops(gradients=True),
    "dynamic": lambda options: ops(dynamic=True),
    "transformers": transformers,
    "inductor": inductor,
}
TITLES = {
    "ops": "torch's `op_db`, ops × dtypes, the first sample of each",
    "gradients": "the same, derivatives",
    "dynamic": "the same, open sizes, float32",
    "transformers": "`transformers`: architectures, small, random weights: forward, `generate` with both caches",
    "inductor": "torch's tests of its own compiler, with the backend swapped",
}


def exceptions(suite: str) -> dict[str, str]:
    """The reasons of the cases of a suite that may fail, by patterns of their names."""
    found = {}
    for line in EXCEPTIONS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            place, _, reason = line.partition(": ")
            suites, _, pattern = place.partition(" ")
            if suite in suites.split(","):
                found[pattern] = reason
    return found


def run(suite: str, options) -> Counter:
    known, counts, failed = exceptions(suite), Counter(), []
    number, of = map(int, options.part.split("/"))
    started = time.monotonic()
    for name, job in SUITES[suite](options):
        if zlib.crc32(name.encode()) % of != number % of or not re.search(options.only, name):
            continue
        if time.monotonic() - started > options.limit:
            counts["not run"] += 1
            continue
        source._SHOWN.clear()
        torch._dynamo.reset()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", FallbackWarning)
            try:
                job()
                found = "passed"
            except (unittest.SkipTest, torch_samples.NotThere) as error:
                found, text = "not there", str(error)
            except Exception as error:
                reason = next((r for p, r in known.items() if fnmatch.fnmatch(name, p)), "")
                found, text = "explained" if reason else "failed", f"{type(error).__name__}: {error}"
                if options.verbose:
                    traceback.print_exc()
        counts[found] += 1
        if found == "passed":
            counts["with calls of torch"] += any(w.category is FallbackWarning for w in caught)
            print(f"passed: {name}", flush=True)
        else:
            print(f"{found}: {name}: {' '.join(text.split())[:300]}", flush=True)
            failed += [name] if found == "failed" else []
    counts["seconds"] = round(time.monotonic() - started)
    print(suite, options.part, dict(counts), flush=True)
    return counts


def write(suite: str, part: str, counts: Counter) -> None:
    kept = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    kept[suite] = {"part": part, "date": datetime.date.today().isoformat(), "torch": torch.__version__, **counts}
    COUNTS.write_text(json.dumps(kept, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition("<!-- torch suites -->")
    after = rest.partition("<!-- end of torch suites -->")[2]
    PAGE.write_text(before.rstrip("\n") + "\n\n" + table() + ("\n" + after.lstrip("\n") if after.strip() else ""))


def table() -> str:
    """The section on these suites, of the counts that are kept."""
    lines = [
        "<!-- torch suites -->",
        "## Suites of others through the torch backend",
        "",
        "Made by `python tests/torch_suites.py SUITE --part K/N --write`. `part`: which share of the cases was run; "
        "a case belongs to a share by its name. `explained`: fails for a reason that "
        "`tests/support/torch_exceptions.txt` gives. `not there`: torch or the library has no such case. "
        "`with calls of torch`: of those that passed, how many have an op that torch computes.",
        "",
        "| suite | part | run on | passed | failed | explained | not there | with calls of torch | s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for suite, row in json.loads(COUNTS.read_text()).items():
        cells = [
            row.get(k, 0) for k in ("passed", "failed", "explained", "not there", "with calls of torch", "seconds")
        ]
        lines.append(
            f"| {TITLES[suite]} | {row['part']} | {row['date']} | " + " | ".join(f"{c:,}" for c in cells) + " |"
        )
    return "\n".join([*lines, "<!-- end of torch suites -->"]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--part", default="0/1", help="K/N: every Nth case")
    parser.add_argument("--only", default="", help="a regular expression that names of cases contain")
    parser.add_argument("--limit", type=float, default=1e9, help="begin no case after so many seconds")
    parser.add_argument("--each", type=float, default=300, help="seconds that one architecture may take")
    parser.add_argument("--tests", help="torch's test_torchinductor.py")
    parser.add_argument("--write", action="store_true", help="note the counts, and write the table")
    parser.add_argument("--verbose", action="store_true", help="print tracebacks")
    options = parser.parse_args()
    counts = run(options.suite, options)
    if options.write:
        write(options.suite, f"{options.part}, `{options.only}`" if options.only else options.part, counts)
    return min(counts["failed"], 1)


if __name__ == "__main__":
    raise SystemExit(main())
