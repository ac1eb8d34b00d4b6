"""jax's own tests with hloom as its device: which of those that pass on jax's CPU pass on hloom?

    git clone --depth 1 --branch jax-v0.10.2 https://github.com/jax-ml/jax
    python -m benchmarks.jax_tests.files --source jax [--share N] [--cases K] [--write] lax_test lax_numpy_test ...

Runs every N-th test (by a hash of its name) of each file on hloom, and those that do not pass there on jax's CPU. They
run in the order of a hash of their names, so the tests run before --limit are a sample of the file; --resume continues
from there, and --again repeats the tests that did not pass. --write writes the table (`table.py`). The tests take the
device for a CPU (`jax_test_dut`), so that they have the CPU's tolerances, and none is skipped that the CPU runs. This
file is also the pytest plugin that chooses tests and writes their outcomes.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
import zlib
from pathlib import Path
from unittest import mock

from benchmarks.jax_tests import table

_DEVICES = re.compile(r"request_cpu_devices\((\d+)\)")  # what a file asks of jax's CPU
ENDED, MISUSED, NO_TESTS = (0, 1), 4, 5  # exit statuses of pytest
UNCOLLECTED = "uncollected"


# --- the pytest plugin ---------------------------------------------------------------------------------------------


def _write(record: dict) -> None:
    with open(os.environ["JAX_SUITE_LOG"], "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def pytest_configure(config):
    """The tests take hloom for a CPU."""
    if "JAX_SUITE_LOG" in os.environ:
        import jax  # the program itself does without
        from jax._src import test_util  # enters the setting
        from jax._src.internal_test_util import export_back_compat_test_util as compatibility

        del test_util
        mock.patch.object(compatibility.CompatTestBase, "default_jax_backend", lambda self: "cpu").start()
        jax.config.update("jax_test_dut", "cpu")


def pytest_collection_modifyitems(config, items):
    """Keeps the share of the tests, without those that ran before the process died, or the tests of a list."""
    if "JAX_SUITE_LOG" not in os.environ:
        return
    log = Path(os.environ["JAX_SUITE_LOG"])
    ran = {record["test"] for record in records(log) if record["outcome"] != UNCOLLECTED}
    share, only = int(os.environ["JAX_SUITE_SHARE"]), json.loads(os.environ["JAX_SUITE_ONLY"])
    if not ran:
        _write({"test": "", "outcome": "collected", "count": len(items)})
    kept = [
        item
        for item in items
        if item.nodeid not in ran
        and (item.nodeid in only if only is not None else zlib.crc32(item.name.encode()) % share == 0)
    ]
    if os.environ.get("JAX_SUITE_ORDER") == "hash":  # any part of the run is a sample of all
        kept.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
    items[:] = kept
    if jax := sys.modules.get("jax"):  # a suite that chose jax's CPU for its tests
        jax.config.update("jax_platform_name", "")


def pytest_collectreport(report):
    """A file that cannot be imported."""
    if report.failed and "JAX_SUITE_LOG" in os.environ:
        _write({"test": report.nodeid, "outcome": UNCOLLECTED, "text": str(report.longrepr)[-2000:]})


def pytest_runtest_logstart(nodeid, location):
    """A test that has begun and has no other outcome has ended the process."""
    _write({"test": nodeid, "outcome": "crashed"})


def pytest_runtest_logreport(report):
    """The outcome of a test, or of its preparation."""
    if report.when == "call" or report.outcome != "passed":
        text = "" if report.outcome == "passed" else str(report.longrepr)[-6000:]
        _write({"test": report.nodeid, "outcome": report.outcome, "seconds": report.duration, "text": text})


# --- the program ---------------------------------------------------------------------------------------------------


def records(log: Path) -> list[dict]:
    """The plugin's records, in the order of the run."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []


def run(
    source: Path, file: str, platform: str, log: Path, options: argparse.Namespace, only: list[str] | None
) -> dict[str, dict]:
    """The last record of each test of a file on a platform; {} where it cannot be collected."""
    devices = _DEVICES.search((source / f"tests/{file}.py").read_text(encoding="utf-8"))
    settings = {
        "JAX_PLATFORMS": platform, "JAX_NUM_GENERATED_CASES": str(options.cases),
        "HLOOM_NUM_CPU_DEVICES": devices[1] if devices else "1", "JAX_SUITE_SHARE": str(options.share),
        "JAX_SUITE_ONLY": json.dumps(only), "JAX_SUITE_ORDER": "hash",
        "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    command = [
        sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist",
        "-p", "benchmarks.jax_tests.files", f"--timeout={options.timeout}", "--timeout-method=thread",
        f"tests/{file}.py",
    ]  # fmt: skip
    return run_tests(command, source, settings, log, options.limit, 3 * options.timeout,
                     options.resume or options.again)  # fmt: skip


def run_tests(
    command: list[str], folder: Path, settings: dict[str, str], log: Path, limit: float, silence: float,
    resume: bool = False,
) -> dict[str, dict]:  # fmt: skip
    """The last record of each test of a command of pytest's, which starts again after a death.

    Ends after `limit` seconds in all; a test that writes nothing for `silence` seconds ends as one that crashed.
    resume: tests that are in the log do not run again.
    """
    settings = os.environ | settings | {"JAX_SUITE_LOG": str(log)}
    if not resume:
        log.unlink(missing_ok=True)
    end = time.monotonic() + limit
    with open(log.with_suffix(".txt"), "w", encoding="utf-8") as output:
        while time.monotonic() < end:
            before = len(records(log))
            process = subprocess.Popen(command, cwd=folder, env=settings, stdout=output, stderr=output)
            try:
                status = _wait(process, log, end, silence)
            finally:
                process.kill()
                process.wait()
            if status == MISUSED:
                output.flush()
                text = log.with_suffix(".txt").read_text(encoding="utf-8")
                raise SystemExit(f"pytest refused its options (it needs the package pytest-timeout): {text}")
            if status in (*ENDED, NO_TESTS) or len(records(log)) == before:
                break
    written = records(log)
    cut = limit > 0 and time.monotonic() > end  # with a limit of 0 the records of another run are read
    if cut and written and written[-1]["outcome"] == "crashed":  # the test that was under way
        written.pop()
        log.write_text("".join(json.dumps(record) + "\n" for record in written), encoding="utf-8")
    return {record["test"]: record for record in written if record["outcome"] != UNCOLLECTED}


def _wait(process: subprocess.Popen, log: Path, end: float, silence: float) -> int | None:
    """The exit status of a run; None if it had to be ended."""
    start = time.monotonic()
    while (status := process.poll()) is None and (now := time.monotonic()) < end:
        written = time.time() - log.stat().st_mtime if log.exists() else 0
        if now - start > silence and written > silence:
            return None
        time.sleep(0.2)
    return status


def measure(file: str, options: argparse.Namespace) -> dict:
    """The row of a file; its tests that pass on jax's CPU alone are named in it."""
    start, folder = time.monotonic(), options.out
    if options.again:
        for platform in ("hloom", "cpu"):
            _forget(folder / f"{file}.{platform}.jsonl")
    own = run(options.source, file, "hloom,cpu", folder / f"{file}.hloom.jsonl", options, None)
    count = own.pop("", {}).get("count", 0)
    others = [name for name, record in own.items() if record["outcome"] != "passed"]
    reference = {}
    if others:
        reference = run(options.source, file, "cpu", folder / f"{file}.cpu.jsonl", options, others)
    only_cpu = [name for name in others if reference.get(name, {}).get("outcome") == "passed"]
    passed = len(own) - len(others)
    return {
        "file": file, "tests": count, "run": len(own), "cpu": passed + len(only_cpu), "hloom": passed,
        "seconds": round(time.monotonic() - start), "failed": only_cpu, "date": datetime.date.today().isoformat(),
        "jax": importlib.metadata.version("jax"),
    }  # fmt: skip


def _forget(log: Path) -> None:
    """Leaves in a log the tests that passed."""
    written = records(log)
    last = {record["test"]: record["outcome"] for record in written}
    kept = [record for record in written if last[record["test"]] in ("passed", "collected")]
    if written:
        log.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")


def report(row: dict, out: Path) -> None:
    """Prints what was measured as a row of Markdown, its name first, with the failures; and keeps it in a folder."""
    with open(out / "rows.jsonl", "a", encoding="utf-8") as log:
        log.write(json.dumps(row) + "\n")
    cells = [str(row[k]) for k in (next(iter(row)), "tests", "run", "cpu", "hloom", "seconds")]
    print("|", " | ".join(cells), "|", *(f"\n    {test}" for test in row["failed"]), flush=True)


def main() -> None:
    """Prints a row of Markdown for each file, and writes the texts of failures to --out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", type=Path, required=True, help="jax's source, which has the folder tests")
    parser.add_argument("--out", type=Path, default=Path("jax_files"), help="a folder for records")
    parser.add_argument("--share", type=int, default=1, help="run every N-th test")
    parser.add_argument("--cases", type=int, default=1, help="cases that jax generates for each test")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for a test")
    parser.add_argument("--limit", type=int, default=3600, help="seconds for a file on one device")
    parser.add_argument("--resume", action="store_true", help="continue after the records in --out")
    parser.add_argument("--again", action="store_true", help="as --resume, and run again what did not pass")
    parser.add_argument("--write", action="store_true", help="note the rows, and make the table")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(exist_ok=True)
    print("| file | tests | run | pass on jax's CPU | of these on hloom | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for file in options.files:
        row = measure(file, options)
        report(row, options.out)
        if options.write:
            table.keep(row)


if __name__ == "__main__":
    main()
