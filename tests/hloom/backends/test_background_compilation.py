"""Background compilation: fallback kernels, when they are replaced, and what becomes of errors, forks and exits."""

import os
import subprocess
import sys
import threading
import weakref
from collections import OrderedDict

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.backends import autotuner
from hloom.backends.cpu import background_compile, driver
from hloom.compiler.cache import Cache
from hloom.compiler.targets.cpu import codegen
from hloom.compiler.targets.cpu.machine import host, host_name
from hloom.compiler.targets.cpu.target import CpuTarget

pytestmark = pytest.mark.skipif(host().arch != "x86_64", reason="stores past the caches are x86's")
SMALL, LARGE = np.arange(1000, dtype=np.float32), np.arange(5000, dtype=np.float32)


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch):
    """No kernel is in the process or on disk; from 20 KB on results are stored past the caches."""
    background_compile.wait()
    monkeypatch.setattr(driver, "_kernels", weakref.WeakValueDictionary())
    monkeypatch.setattr(driver, "_recent", OrderedDict())
    cache = Cache(None)
    for module in (driver, autotuner):
        monkeypatch.setattr(module, "default_cache", lambda: cache)
    monkeypatch.setattr(CpuTarget, "nontemporal_threshold", property(lambda self: 20_000))
    yield
    background_compile.wait()


def _function():
    return hl.jit(lambda x: (x * 3 + 1, hnp.sqrt(x)))


def _compiled(function, x):
    return function.lower(x).compile()


def _running(compiled) -> set[int]:
    """The addresses of the kernels that the program calls."""
    executable = compiled.executable.runner
    frames = [frame.activation.steps.reshape(-1, 8)[:, 1].tolist() for frame in executable._frames]
    steps = [step.kernel for step in executable.program.steps]
    assert all(frame[: len(steps)] == steps for frame in frames)
    return set(steps)


@pytest.mark.parametrize("first, second", [(SMALL, LARGE), (LARGE, SMALL)], ids=["larger", "smaller"])
def test_another_shape_runs_at_once_with_the_other_kind_of_stores(first, second, monkeypatch):
    monkeypatch.setattr(background_compile, "DELAY", 1.0)
    function = _function()
    function(first)
    before = _running(_compiled(function, first))
    expected = [second * 3 + 1, np.sqrt(second)]
    results = [function(second)]
    compiled = _compiled(function, second)
    assert (compiled.kernels_compiled, compiled.kernels_pending) == (0, 1)
    assert _running(compiled) == before
    background_compile.wait()
    assert _running(compiled).isdisjoint(before)  # in the frame that has run, too
    results.append(function(second))
    for result in results:
        for got, wanted in zip(result, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(got), wanted)


def test_the_kernel_is_there_for_the_next_program(monkeypatch):
    monkeypatch.setattr(background_compile, "DELAY", 0.0)
    function = _function()
    function(SMALL)
    function(LARGE)
    background_compile.wait()
    compiled = _compiled(function, LARGE[:-1])
    assert (compiled.kernels_compiled, compiled.kernels_pending) == (0, 0)


def test_a_setting_turns_it_off():
    function = _function()
    function(SMALL)
    with hl.config(background_compilation=False):
        compiled = _compiled(function, LARGE)
    assert (compiled.kernels_compiled, compiled.kernels_pending) == (1, 0)


def test_what_is_timed_by_the_autotuner_is_compiled_first():
    _function()(SMALL)
    tuned = hl.jit(lambda x: (x * 3 + 1, hnp.sqrt(x)), autotune=True)
    compiled = _compiled(tuned, LARGE)
    assert (compiled.kernels_compiled, compiled.kernels_pending) == (1, 0)


def test_calls_from_several_threads_while_kernels_are_exchanged(monkeypatch):
    monkeypatch.setattr(background_compile, "DELAY", 0.005)
    function = _function()
    function(SMALL)
    wrong = []

    def calls():
        for _ in range(200):
            result, _ = function(LARGE)
            if not np.array_equal(np.asarray(result), LARGE * 3 + 1):
                wrong.append(result)

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_error_in_the_background_is_reported_and_the_fallback_stays(monkeypatch):
    function, told = _function(), []
    function(SMALL)
    monkeypatch.setattr(threading, "excepthook", lambda arguments: told.append(arguments.exc_value))

    def broken(kernel, cpu):
        raise RuntimeError("no memory for code")

    monkeypatch.setattr(background_compile, "load_kernel_unlocked", broken)
    np.testing.assert_array_equal(np.asarray(function(LARGE)[0]), LARGE * 3 + 1)
    background_compile.wait()
    assert [str(error) for error in told] == ["no memory for code"]
    np.testing.assert_array_equal(np.asarray(function(LARGE)[0]), LARGE * 3 + 1)


def test_a_kernel_is_compiled_for_the_processor_of_its_program(monkeypatch):
    made, compile_kernels = [], codegen.compile_kernels

    def recorded(kernels, cache=None, name=None):
        made.append(name or host_name())
        return compile_kernels(kernels, cache, name)

    function = _function()
    with hl.config(cpu="x86-64-v2"):
        function(SMALL)
        monkeypatch.setattr(codegen, "compile_kernels", recorded)
        compiled = _compiled(function, LARGE)
        before = _running(compiled)
    background_compile.wait()
    assert made == ["x86-64-v2"] and not {k.address for k in driver._kernels.values()} & _running(compiled)
    assert before.isdisjoint(_running(compiled))
    np.testing.assert_array_equal(np.asarray(function(LARGE)[0]), LARGE * 3 + 1)
    background_compile.wait()
    assert set(made[1:]) == {"native"}


def test_it_is_told(monkeypatch, capsys):
    monkeypatch.setattr(background_compile, "DELAY", 0.0)
    function = _function()
    function(SMALL)
    with hl.config(debug=1):
        function(LARGE)
        background_compile.wait()
    told = capsys.readouterr().err
    assert "1 kernels, 0 of them new, 1 to be compiled in the background" in told
    assert "hloom: compiled loop_multiply_add_sqrt in the background, " in told


_PROGRAM = """
import os, sys
import numpy as np
import hloom as hl
from hloom.backends.cpu import background_compile
from hloom.compiler.targets.cpu.target import CpuTarget

CpuTarget.nontemporal_threshold = property(lambda self: 20_000)
f = hl.jit(lambda x: x * 3 + 1)
f(np.ones(1000, np.float32))
f(np.ones(5000, np.float32))
f(np.ones((50, 100), np.float32))
{rest}
print("done", float(f(np.ones(5000, np.float32))[0]))
"""
_FORK = """
child = os.fork()
if child == 0:
    background_compile.wait()
    os._exit(int(float(f(np.ones(6000, np.float32))[0])))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
"""


@pytest.mark.parametrize("rest", ["", _FORK], ids=["end", "fork"])
def test_a_program_may_end_or_fork_meanwhile(rest, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(rest=rest)],
        env=os.environ | {"HLOOM_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "done 4.0\n", "")
