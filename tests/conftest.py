"""What all tests share: golden texts, and `pytest --bless`, which writes them anew (the reviewer reads the diff)."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from pathlib import Path

import pytest

try:
    from hypothesis import HealthCheck, settings
except ModuleNotFoundError:  # of some tests alone, in an environment of what a user installs
    settings = None

GOLDEN = Path(__file__).parent / "golden"
# What JAX computes here are small arrays, to compare with: most of its time is XLA's compilation, which takes a fifth
# less without optimization. The tests' processes inherit it; flags that are set win. A jaxlib that no longer knows one
# of the flags ends with an error that names it.
XLA_FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if XLA_FLAGS not in (_given := os.environ.get("XLA_FLAGS", "")):
    os.environ["XLA_FLAGS"] = f"{XLA_FLAGS} {_given}".rstrip()
# The time of an example is no property of what it tests: a process that waits 0.2 s for a processor would fail. Test
# modules take the profile when they are imported.
if settings is not None:
    settings.register_profile("hloom", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("hloom")


def pytest_addoption(parser):
    parser.addoption("--bless", action="store_true", help="write golden texts instead of comparing with them")


def pytest_collection_finish():
    """Fourteen thousand tests are no garbage: without them a `gc.collect()` of a test takes milliseconds."""
    gc.collect()
    gc.freeze()


def pytest_configure(config):
    """Builds the file of prebuilt code where the code generator has changed, once for all processes of a test run."""
    if hasattr(config, "workerinput"):
        return
    from hloom.backends.cpu.prebuild import prebuild
    from hloom.compiler.targets.cpu.prebuilt import archive

    if not archive.is_current():
        print("the code generator has changed: compiling the prebuilt code, some 20 s", flush=True)
        prebuild()


@pytest.hookimpl(trylast=True)  # after -m and -k have chosen
def pytest_collection_modifyitems(config, items):
    """Leaves out samples of what slow tests of the same file do in full; in several processes, slow tests come first,
    so that no process waits at the end for a long one of another."""
    slow = {item for item in items if item.get_closest_marker("slow")}
    files = {item.path for item in slow}
    samples = {item for item in items if item.get_closest_marker("sample") and item.path in files}
    if samples and not any("::" in argument for argument in config.args):
        config.hook.pytest_deselected(items=list(samples))
        items[:] = [item for item in items if item not in samples]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item not in slow)


@pytest.fixture(scope="module", autouse=True)
def _caches_of_one_module():
    """Frees what a module's tests compiled, in hloom and in JAX, whose programs are larger."""
    yield
    for name in ("hloom", "jax"):
        library = sys.modules.get(name)
        if library is not None and library.__name__ == name:
            library.clear_caches()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)  # the C library keeps what was freed


@pytest.fixture(params=["x86-64-v3", "x86-64-v4"])
def code_machine(request):
    """A machine to generate code for, whether or not this one runs it: for tests that read sources, IR or assembly."""
    from hloom.compiler.targets.cpu import machine

    if machine.architecture() != "x86_64":
        pytest.skip("LLVM generates code for the architecture of the process")
    return machine.level_machine(request.param)


@pytest.fixture(params=["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def cpu_level(request):
    """A level of x86-64 that kernels are compiled for and run on in the test: for tests that compare results."""
    import hloom as hl
    from hloom.compiler.targets.cpu import machine

    if request.param not in machine.valid_choices():
        pytest.skip(f"this machine does not run {request.param}")
    with hl.config(cpu=request.param):
        yield request.param


@pytest.fixture
def golden(request):
    """golden("ir/name.hlo", text): the text is what `tests/golden/ir/name.hlo` holds; with --bless it becomes that."""

    def check(path: str, text: str) -> None:
        file = GOLDEN / path
        if request.config.getoption("--bless"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            return
        assert file.exists(), f"{file} is missing: run pytest --bless and review the new file"
        assert text == file.read_text(encoding="utf-8"), f"{file} differs: if that is meant, run pytest --bless"

    return check


def pytest_terminal_summary(terminalreporter):
    """How many of the conformance files passed, over all processes."""
    totals: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, counts in getattr(report, "user_properties", ()):
                if name == "stablehlo" and getattr(report, "when", "") == "call":
                    for status, count in counts.items():
                        totals[status] = totals.get(status, 0) + count
    if totals:
        text = ", ".join(f"{count} {status}" for status, count in totals.items())
        terminalreporter.write_line(f"StableHLO test data: {sum(totals.values())} files: {text}")
