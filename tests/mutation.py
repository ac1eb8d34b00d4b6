"""Changes one place of `ir/` or `compiler/` at a time, and looks whether a test fails.

    python tests/mutation.py [--count 200] [--of 200] [--only ID ...] [--files 12] [--seconds 60] [--again] [--list]

The mutants are a fixed sample (`support/mutants.py`). Each one is written into a copy of the tree; the tests that reach
its line run, those of the mirrored folder first, until one fails. What a test file reaches is found once, by a run
with coverage. Results are kept in build/mutation, so that the next run goes on where the last one ended; a change of
the sources begins anew. A cache of kernels is of one mutant alone.

A mutant is killed (a test fails, or takes much longer than it did), equivalent (`support/equivalent_mutants.tsv` has
the reason why no test could tell), survived, or unreached (survived, and no test runs the line in its own process).
--files, --seconds: how many test files a mutant is tried on, and seconds of tests in each. --again: tries those that
survived once more, for instance with new tests. Takes hours on two cores; `nox -s mutation` is a nightly command.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "support")]

from mutants import Mutant, sample  # noqa: E402  after the path to it

FOLDERS = ("ir", "compiler")
BUILD = ROOT / "build" / "mutation"
TREE = BUILD / "tree"
RESULTS = BUILD / "results.json"
EQUIVALENT = ROOT / "tests" / "support" / "equivalent_mutants.tsv"
PREBUILT = Path("compiler/targets/cpu/prebuilt")
# What is tried on every mutant after the tests of its room: programs through all of the compiler, and every op.
GENERAL = (
    "tests/compiler/test_random_programs.py",
    "tests/compiler/passes/test_passes_random.py",
    "tests/ir/ops/test_ops.py",
    "tests/compiler/transforms/test_derivatives.py",
    "tests/compiler/transforms/test_batch.py",
    "tests/compiler/kernels/test_kernels.py",
    "tests/hloom/dispatch/test_computed_sizes.py",
    "tests/hloom/transforms/test_vmap.py",
    "tests/hloom/numpy/test_numpy_ufuncs.py",
)
FEW = 4  # test files: a mutant that no more of them reach is tried on those of other rooms
TRACED_SECONDS = 400  # of one test file; the tests that end later are not used
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "mutation_plugin", "-p", "no:randomly", "--tb=line",
          "--hypothesis-seed=0")  # fmt: skip


# --- the copy of the tree ---------------------------------------------------------------------------------------------


def copy_tree() -> str:
    """Brings the copy up to date; returns a digest of the sources that are changed in it. Times of files stay, which
    Python's bytecode is checked by."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = [name for name in listed.stdout.decode().split("\0") if name and os.path.lexists(ROOT / name)]
    names += [str(path.relative_to(ROOT)) for path in (ROOT / PREBUILT).glob("*.bin")]
    for path in TREE.rglob("*.py"):
        if not (ROOT / path.relative_to(TREE)).exists():
            path.unlink()
    digest = hashlib.sha256()
    for name in sorted(names):
        source, target = ROOT / name, TREE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            if not target.is_symlink():
                target.symlink_to(source.readlink())
        elif not target.exists() or _stamp(source) != _stamp(target):
            shutil.copy2(source, target)
        if name.endswith(".py") and name.split("/")[0] in FOLDERS:
            digest.update(name.encode() + source.read_bytes())
    return digest.hexdigest()


def _stamp(path: Path) -> tuple[int, int]:
    return path.stat().st_size, path.stat().st_mtime_ns


@contextmanager
def changed(mutant: Mutant) -> Iterator[None]:
    """The copy with the mutant. Its time is another one, so that no bytecode of the original is taken for it."""
    path = TREE / mutant.path
    before, text = path.stat(), path.read_text(encoding="utf-8")
    path.write_text(mutant.applied(text), encoding="utf-8")
    os.utime(path, (before.st_mtime, before.st_mtime + 3600))
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(TREE), str(TREE / "tests" / "support")])
    return {**os.environ, "PYTHONPATH": path, **more}


def _run(arguments: list[str], limit: float, **environment: str) -> tuple[int | None, str]:
    """The exit status of Python in the copy and what it printed; None: it ran into the limit of seconds."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=TREE, env=_environment(**environment), start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace",
    )  # fmt: skip
    try:
        text, _ = process.communicate(timeout=limit)
        return process.returncode, text
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # pytest then ends in order, and coverage writes what it has
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its session: the test's own processes as well
        return None, process.communicate()[0]


# --- what a test file reaches -----------------------------------------------------------------------------------------


class Trace:
    """What the tests of a file took and reached, in a run of the unchanged tree.

    seconds: of each test that passed, by node id."""

    def __init__(self, file: str, seconds: dict[str, float]):
        self.file, self.seconds = file, seconds
        self._data = _kept(file).with_suffix(".coverage")

    @functools.cache  # noqa: B019  as many as there are test files
    def lines(self, path: str) -> dict[int, list[str]]:
        """The tests that run each line of a file ("" for the import of modules)."""
        from coverage import CoverageData

        data = CoverageData(str(self._data))
        data.read()
        return {
            line: [context.rpartition("|")[0] for context in contexts]
            for line, contexts in data.contexts_by_lineno(str(TREE / path)).items()
        }

    def reaching(self, mutant: Mutant) -> list[str]:
        """The tests of the file that may tell the mutant: first those that run its lines, then those that are named
        like its file, then the quickest."""
        lines = self.lines(mutant.path)
        found = {test for line in range(mutant.first, mutant.last + 1) for test in lines.get(line, ())}
        # Modules are imported once, for all tests; functions that are compiled from their source run no lines.
        all_of_them = bool(lines) if mutant.compiled else bool(found) and ("" in found or mutant.top_level)
        chosen = [test for test in self.seconds if test in found or all_of_them]
        own = _words(mutant.path)
        return sorted(chosen, key=lambda test: (test not in found, not own & _words(test), self.seconds[test]))


def _kept(file: str) -> Path:
    return BUILD / "traces" / f"{file.replace('/', '.')}.json"


def _key(file: str, sources: str) -> str:
    return hashlib.sha256((sources + (TREE / file).read_text(encoding="utf-8")).encode()).hexdigest()


def is_traced(file: str, sources: str) -> bool:
    return _kept(file).exists() and json.loads(_kept(file).read_text())["key"] == _key(file, sources)


@functools.cache
def trace(file: str, sources: str) -> Trace:
    """Runs a test file with coverage of `FOLDERS`, or reads what an earlier run found."""
    kept = _kept(file)
    kept.parent.mkdir(parents=True, exist_ok=True)
    if is_traced(file, sources):
        return Trace(file, json.loads(kept.read_text())["seconds"])
    data, times, settings = kept.with_suffix(".coverage"), kept.with_suffix(".times"), BUILD / "coveragerc"
    for old in (data, times):
        old.unlink(missing_ok=True)
    settings.write_text(f"[run]\ninclude = {','.join(f'{TREE / name}/*' for name in FOLDERS)}\n")
    start = time.monotonic()
    _run(
        [*PYTEST, "-m", "not slow", f"--cov-config={settings}", "--cov", "--cov-context=test", "--cov-report=", file],
        TRACED_SECONDS, COVERAGE_FILE=str(data), HLOOM_MUTATION_TIMES=str(times),
        HLOOM_CACHE_DIR=str(BUILD / "kernels"),
    )  # fmt: skip
    seconds = dict(json.loads(line) for line in times.read_text().splitlines()) if times.exists() else {}
    if not data.exists():
        seconds = {}
    kept.write_text(json.dumps({"key": _key(file, sources), "seconds": seconds}))
    print(f"    traced {file}: {len(seconds)} tests, {time.monotonic() - start:.0f} s", flush=True)
    return Trace(file, seconds)


@functools.cache
def _files(folder: str, pattern: str = "*.py") -> dict[str, str]:
    """The texts of the files of a folder, not those behind links."""
    return {
        path.relative_to(TREE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((TREE / folder).rglob(pattern))
    }


def _words(path: str) -> set[str]:
    """The words of a path or of a test's name, singular."""
    words = {word.rstrip("s") for word in re.split(r"[/_.:\[\]-]", path)}
    return words - {"test", "py", "compiler", "ir", "kernel", ""}


def candidates(path: str) -> list[str]:
    """Test files that may tell a mutant of a file: those that import it or speak of it, of its folder, of a folder that
    imports it, those that share words with its path; small ones first."""
    module = "hloom." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, name = module.rpartition(".")
    imports = re.compile(rf"{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{name}\b")
    parts = path.split("/")
    users = {
        user.rpartition("/")[0]
        for package in (*FOLDERS, "hloom")
        for user, text in _files(package).items()
        if user != path and imports.search(text)
    }
    stem = Path(path).stem.replace("_", "")
    ranked = []
    for file, text in _files("tests", "test_*.py").items():
        folders = file.split("/")[1:-1]
        depth = next((i for i, (a, b) in enumerate(zip(folders, parts, strict=False)) if a != b), len(folders))
        direct, used = bool(imports.search(text)), "/".join(folders) in users
        spoken = len(stem) > 3 and stem in re.sub("[_-]", "", text)
        score = 4 * direct + 2 * used + depth + 2 * len(_words(path) & _words(file)) + 2 * spoken
        if depth or direct or used or spoken:
            ranked.append((-score, len(text), file))
    return [file for _, _, file in sorted(ranked)]


# --- mutants ----------------------------------------------------------------------------------------------------------


def _order(path: str, sources: str, files: int, also: list[str]) -> tuple[list[str], list[str]]:
    """The test files that a mutant is tried on, and those that follow where few of them reach it. Files whose trace is
    known come first, and all of these follow."""

    def untraced(file: str) -> bool:
        return not is_traced(file, sources)

    ranked = candidates(path)
    first = sorted(dict.fromkeys([*also, *ranked[:files], *GENERAL]), key=untraced)
    rest = [*(file for file in _files("tests", "test_*.py") if not untraced(file)), *ranked[files : 2 * files]]
    return first, [file for file in dict.fromkeys(rest) if file not in first]


def _chosen(found: Trace, mutant: Mutant, seconds: float) -> tuple[list[str], float]:
    """Tests of a file that reach a mutant, and their time in seconds, which is about the given one at most."""
    tests, total = [], 0.0
    for test in found.reaching(mutant):
        total += found.seconds[test]
        if tests and total > seconds:
            break
        tests.append(test)
    return tests, min(total, seconds)


def tried(mutant: Mutant, sources: str, files: int, also: list[str], seconds: float) -> tuple[str, str]:
    """What became of a mutant, and which test told it or which files reached it."""
    first, rest = _order(mutant.path, sources, files, also)
    reached: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutation-") as kernels:
        for file in [*first, *rest]:
            if len(reached) >= FEW and file in rest:
                break
            tests, total = _chosen(trace(file, sources), mutant, seconds)
            if not tests:
                continue
            reached.append(file)
            with changed(mutant):
                status, text = _run_tests(tests, 120 + 6 * total, kernels)
                if status == 4:  # a test does not exist: tests may be named by what is changed
                    status, text = _run_tests([file], 120 + 6 * sum(trace(file, sources).seconds.values()), kernels)
            if status is None:
                return "timeout", file
            if status != 0:
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
                return "killed", failed[1] if failed else f"{file}: exit status {status}"
    return ("survived" if reached else "unreached"), " ".join(reached)


def _run_tests(tests: list[str], limit: float, kernels: str) -> tuple[int | None, str]:
    chosen = BUILD / "chosen.txt"
    chosen.write_text("\n".join(tests))
    return _run([*PYTEST, "-x", f"@{chosen}"], limit, PYTHONDONTWRITEBYTECODE="1", HLOOM_CACHE_DIR=kernels)


def equivalent() -> dict[str, str]:
    """Reasons by mutant of those that no test could tell."""
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines() if EQUIVALENT.exists() else []
    return {line.split("\t")[0]: line.split("\t")[2] for line in lines if line and not line.startswith("#")}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="mutants of the sample that are tried, the first ones")
    parser.add_argument("--of", type=int, default=200, help="mutants in the sample")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these mutants, or all of files whose path begins so")
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--also", nargs="+", default=[], metavar="FILE", help="test files that are tried first")
    parser.add_argument("--again", action="store_true", help="try those that survived once more")
    parser.add_argument("--list", action="store_true", help="print the mutants and what became of them, try none")
    given = parser.parse_args(argv)
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one run at a time changes the copy
        return _report(given)


def _report(given: argparse.Namespace) -> int:
    sources = copy_tree()
    chosen = sample(TREE, FOLDERS, given.of)[: given.count]
    if given.only:
        chosen = [m for m in chosen if m.id in given.only or m.path.startswith(tuple(given.only))]
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results = kept.get("results", {}) if kept.get("sources") == sources else {}
    reasons, counts = equivalent(), Counter[str]()
    for mutant in chosen:
        outcome, told = results.get(mutant.id, ("", ""))
        again = not outcome or (given.again and outcome in ("survived", "unreached"))
        if mutant.id in reasons:
            outcome, told = "equivalent", reasons[mutant.id]
        elif again and not given.list:
            outcome, told = tried(mutant, sources, given.files, given.also, given.seconds)
            results[mutant.id] = outcome, told
            RESULTS.write_text(json.dumps({"sources": sources, "results": results}, indent=0))
        counts[outcome or "not tried"] += 1
        print(f"{outcome or 'not tried':10} {mutant}\n           {told}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    unknown = set(reasons) - {m.id for m in sample(TREE, FOLDERS, given.of)}
    if unknown:
        print(f"{EQUIVALENT.name} names mutants that are not in the sample: {' '.join(sorted(unknown))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
