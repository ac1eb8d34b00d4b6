"""The tests of libraries on jax with hloom as its device: which of those that pass on jax's CPU pass on hloom?

    python -m benchmarks.jax_tests.libraries [--limit SECONDS] optax=site:optax flax=SOURCE/tests numpyro=SOURCE/test

Each library is a name and the path of its tests: folders of its source, with commas between, or `site:PACKAGE` for
tests that come inside the installed package. The tests run in the order of a hash of their names, so what ran until
the limit is a fair sample of the suite. Those that do not pass on hloom run again, by themselves, on hloom and on
jax's CPU: suites rely on the order of their files, as where one file changes jax's settings. Pytest's settings are
those of the source.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.jax_tests import files


def _package(path: str) -> Path | None:
    """The folder of an installed package that a path names."""
    if not path.startswith("site:"):
        return None
    found = importlib.util.find_spec(path.removeprefix("site:"))
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"no package {path.removeprefix('site:')} is installed here")
    return Path(next(iter(found.submodule_search_locations)))


def tests_of(path: str) -> list[str]:
    """The files with tests in folders, or in an installed package."""
    folders = [_package(one) or Path(one).resolve() for one in path.split(",")]
    found = {str(file) for folder in folders for form in ("test_*.py", "*_test.py") for file in folder.rglob(form)}
    if not found:
        raise SystemExit(f"no files test_*.py or *_test.py in {path}")
    return sorted(found)


def run(
    name: str, path: str, platform: str, options: argparse.Namespace, only: list[str] | None = None, log: str = ""
) -> dict[str, dict]:
    """The last record of each test that ran on a platform, by its node's name. log: of the records, in place of the
    platform's name."""
    first = path.partition(",")[0]
    package, folder = _package(first), Path(first).resolve()
    tops = [p for p in (folder, *folder.parents) if (p / "pyproject.toml").exists() or (p / "setup.py").exists()]
    root = tops[0] if tops else folder
    sources = [] if package else [str(root)]  # the library as it was when these tests were written
    settings = {
        "JAX_PLATFORMS": platform, "KERAS_BACKEND": "jax", "EINOPS_TEST_BACKENDS": "numpy,jax",
        "HLOOM_NUM_CPU_DEVICES": str(options.devices), "JAX_NUM_CPU_DEVICES": str(options.devices),
        "JAX_SUITE_SHARE": "1", "JAX_SUITE_ORDER": "hash",
        "JAX_SUITE_ONLY": json.dumps(only), "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join([os.getcwd(), *sources, os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    command = [
        sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist",
        "-p", "benchmarks.jax_tests.files", f"--timeout={options.timeout}", "--timeout-method=signal", "-W", "default",
        f"--rootdir={package.parent if package else root}", f"--import-mode={'importlib' if package else 'prepend'}",
        "--continue-on-collection-errors",
    ]  # fmt: skip
    if package:
        command += ["-c", os.devnull]
    where, records = options.out if package else root, options.out / f"{name}.{log or platform}.jsonl"
    return files.run_tests(
        [*command, *tests_of(path)], where, settings, records, options.limit, 3 * options.timeout,
        options.resume and only is None,
    )  # fmt: skip


def measure(name: str, path: str, options: argparse.Namespace) -> dict:
    """The row of a library; its tests that pass on jax's CPU alone are named in it."""
    start = time.monotonic()
    own = run(name, path, "hloom,cpu", options, log="hloom")
    count = own.pop("", {}).get("count", 0)
    own = {test: record for test, record in own.items() if record["outcome"] != "skipped"}
    others = [test for test, record in own.items() if record["outcome"] != "passed"]
    if others:
        again = run(name, path, "hloom,cpu", options, others, "again")
        others = [test for test in others if again.get(test, {}).get("outcome") != "passed"]
    reference = run(name, path, "cpu", options, others) if others else {}
    only_cpu = [test for test in others if reference.get(test, {}).get("outcome") == "passed"]
    passed = len(own) - len(others)
    written = files.records(options.out / f"{name}.hloom.jsonl")
    broken = sorted({record["test"] for record in written if record["outcome"] == files.UNCOLLECTED})
    return {
        "library": name, "tests": count, "run": len(own), "cpu": passed + len(only_cpu), "hloom": passed,
        "seconds": round(time.monotonic() - start), "failed": only_cpu, "not imported": broken,
    }  # fmt: skip


def main() -> None:
    """Prints a row of Markdown for each library, and writes the texts of failures to --out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("jax_libraries"), help="a folder for records")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for a test")
    parser.add_argument("--limit", type=int, default=360, help="seconds for a library on one platform")
    parser.add_argument("--devices", type=int, default=1, help="devices of each platform")
    parser.add_argument("--resume", action="store_true", help="continue after the records in --out")
    parser.add_argument("libraries", nargs="+", metavar="NAME=PATH")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(exist_ok=True)
    print("| library | tests | run | pass on jax's CPU | of these on hloom | seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for library in options.libraries:
        name, _, path = library.partition("=")
        row = measure(name, path, options)
        files.report(row, options.out)
        for file in row["not imported"]:
            print(f"    cannot be imported: {file}", flush=True)


if __name__ == "__main__":
    main()
