"""Native functions as nodes and as C: all of them are read and compile, and what they compute is what Python does."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess

import numpy as np
import pytest

from hloom.compiler.kernel_ir.native.c_printer import constants, declared, printed
from hloom.compiler.kernel_ir.native.functions import INTRINSICS, read_function, specialized
from hloom.compiler.kernel_ir.reader import KernelSyntaxError
from hloom.export.emit import NATIVE
from hloom.export.native_driver import _NAMES, PREFIX, driver_text
from hloom.ir.sizes.numbers import OPERATIONS
from hloom.runtime import driver_source, numbers_source, records_source, team_source
from hloom.runtime.distributed import messages
from hloom.runtime.driver_source import COPY, JUMP, JUMP_IF_ZERO, KERNEL, SWAP, SWITCH, NativeFunction, words
from hloom.runtime.pjrt import table

SOURCES = {
    source.name: source
    for room in (driver_source, numbers_source, team_source, records_source, messages, table)
    for source in room.FUNCTIONS
}
HEAD = "#define _GNU_SOURCE\n#include <stdint.h>\n#include <stddef.h>\n#include <string.h>\n"
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")


def native(text, result="s64", **calls):
    return NativeFunction("f", text, words(1), result, {name: (words(1), kind) for name, kind in calls.items()})


def library(folder, *texts):
    (folder / "native.c").write_text("\n".join([HEAD, (NATIVE / "words.c").read_text(), *texts]))
    command = ["cc", "-std=gnu11", "-O1", "-Wall", "-Werror", "-Wno-unused-function", "-shared", "-fPIC", "native.c"]
    subprocess.run([*command, "-o", "native.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "native.so"))


def test_the_language_has_the_intrinsics_of_the_front_end():
    intrinsics = pytest.importorskip("hloom.compiler.targets.cpu.numba_frontend.intrinsics")
    assert INTRINSICS.keys() == intrinsics.namespace().keys()


@needs_cc
def test_all_native_functions_are_c(tmp_path):
    functions = [read_function(source) for source in SOURCES.values()]
    assert len(functions) > 200
    outside = {n: s for source in SOURCES.values() for n, s in source.calls.items() if n not in SOURCES}
    externs = [
        f"int64_t outside_{name}({', '.join(['int64_t'] * len(params)) or 'void'});"
        for name, (params, _) in outside.items()
    ]
    more = {
        "store_byte": 2, "call_function": 4, "call_function_of_7": 8, "crc32c_word": 2, "crc32c_byte": 2
    }  # fmt: skip
    externs += [f"int64_t outside_{name}({', '.join(['int64_t'] * count)});" for name, count in more.items()]
    names = {name: f"outside_{name}" for name in (*outside, *more)} | _NAMES
    # hloom_now is in words.c, which reads the clock.
    functions = [f for f in functions if f.name != "hloom_now"]
    parts = [declared(f) + ";" for f in functions] + [printed(f, names, PREFIX) for f in functions]
    text = "\n".join([HEAD, (NATIVE / "words.c").read_text(), *constants(functions, PREFIX), *externs, *parts])
    (tmp_path / "all.c").write_text(text)
    flags = ["-std=gnu11", "-Wall", "-Werror", "-Wno-unused-function", "-Wno-unused-variable"]
    subprocess.run(["cc", *flags, "-fsyntax-only", "all.c"], cwd=tmp_path, check=True)


class Words:
    """Memory of int64 words at addresses, and a driver's functions in Python over it."""

    def __init__(self, count):
        self.memory = np.zeros(count, np.int64)
        self.address = self.memory.ctypes.data
        self.calls = []

    def scope(self, *sources):
        def load(address, index):
            return int(self.memory[(address - self.address) // 8 + index])

        def store(address, index, value):
            self.memory[(address - self.address) // 8 + index] = value

        def copy_bytes(target, source, count):
            ctypes.memmove(target, source, count)

        scope = {
            "load": load, "relaxed_load": load, "atomic_load": load, "store": store, "relaxed_store": store,
            "atomic_store": store, "load_byte": lambda a: ctypes.c_uint8.from_address(a).value,
            "copy_bytes": copy_bytes, "call_kernel": self.kernel, "compare_exchange": None, "hloom_turns": None,
        }  # fmt: skip
        for source in sources:
            exec(source.text, scope)
            scope |= source.constants
        return scope

    def kernel(self, kernel, args, low, high):
        self.calls.append((args - self.address, low, high))


@needs_cc
def test_numbers_have_the_values_of_python(tmp_path):
    source = SOURCES["hloom_evaluate"]
    function = read_function(source)
    text = printed(function, _NAMES, PREFIX).replace("static int64_t", "int64_t", 1)
    evaluate = library(tmp_path, *constants([function], PREFIX), text).hloom_evaluate
    evaluate.restype, evaluate.argtypes = ctypes.c_int64, [ctypes.c_int64] * 3
    rng = np.random.default_rng(0)
    extremes = np.array([0, 1, -1, 7, 1 << 31, -(1 << 31), 3 << 61, -(3 << 61), (1 << 63) - 1, -(1 << 63) + 1])
    seen = set()
    for _ in range(2000):
        memory = Words(40)
        values, rows = memory.memory[:8], memory.memory[8:40].reshape(8, 4)
        values[:] = rng.choice(extremes, 8) if rng.random() < 0.5 else rng.integers(-100, 100, 8)
        count = int(rng.integers(1, 9))
        rows[:, 0], rows[:, 1:] = rng.integers(0, len(OPERATIONS), 8), rng.integers(0, 8, (8, 3))
        before = memory.memory.copy()
        wanted = memory.scope(source)["hloom_evaluate"](rows.ctypes.data, count, values.ctypes.data)
        made, memory.memory[:] = memory.memory.copy(), before
        assert evaluate(rows.ctypes.data, count, values.ctypes.data) == wanted
        np.testing.assert_array_equal(memory.memory, made)
        seen.add(wanted)
    assert seen == {0, numbers_source.OVERFLOW, numbers_source.BY_ZERO}


def program(memory, rng):
    """Random steps, which end: their rows, their number and their arguments."""
    count, base = 12, memory.address
    args, steps = memory.memory[:32], memory.memory[64 : 64 + 8 * count].reshape(count, 8)
    args[:8] = base + 8 * (40 + np.arange(8))  # of words
    args[8:14] = rng.integers(count, count + 2, 6)  # targets of switches: behind the last step
    args[14:18] = [0, 1, 2, 3]  # what swaps exchange
    memory.memory[40:48] = rng.integers(-2, 3, 8)
    for k, row in enumerate(steps):
        later = int(rng.integers(k + 1, count + 1))
        items = int(rng.integers(1, 50))
        row[:] = [
            [KERNEL, 77, rng.integers(0, 8), items, rng.choice([0, 7, 64]), 0, 5, 0], [JUMP, later, 0, 0, 0, 0, 0, 0],
            [JUMP_IF_ZERO, later, rng.integers(0, 8), 0, 0, 0, 0, 0],
            [COPY, *rng.integers(0, 4, 2) * 2, 8, 0, 0, 0, 0],
            [SWITCH, rng.integers(0, 8), rng.integers(1, 6), 8, 0, 0, 0, 0],
            [SWAP, 14, 2, 16, 2, 0, 0, 0],
        ][int(rng.integers(0, 6))]  # fmt: skip
    return steps, count, args


@needs_cc
def test_exported_programs_run_as_those_of_the_runtime(tmp_path):
    """The exported functions, specialized and in C, against the source of the runtime's, run by Python."""
    entry = "void run(int64_t a, int64_t b, int64_t c, int64_t d) { hloom_run(a, b, c, d); }"
    code = library(tmp_path, driver_text(), entry)
    code.run.argtypes = [ctypes.c_int64] * 4
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    for seed in range(300):
        wanted, got = Words(400), Words(400)
        steps, count, args = program(wanted, np.random.default_rng(seed))
        run = wanted.scope(*(SOURCES[name] for name in ("hloom_wakes", "hloom_parallel", "hloom_run")))["hloom_run"]
        run(wanted.address + 1600, steps.ctypes.data, count, 0, 0, args.ctypes.data, 0, 0)
        steps, count, args_of_c = program(got, np.random.default_rng(seed))
        kernel = kind(functools.partial(got.kernel, 0))
        steps[steps[:, 0] == KERNEL, 1] = ctypes.cast(kernel, ctypes.c_void_p).value
        code.run(got.address + 1600, steps.ctypes.data, count, args_of_c.ctypes.data)
        assert got.calls == wanted.calls
        np.testing.assert_array_equal(args_of_c[:8] - got.address, args[:8] - wanted.address)
        np.testing.assert_array_equal(got.memory[40:48], wanted.memory[40:48])


def test_known_parameters_and_steps_that_never_come():
    run = specialized(read_function(SOURCES["hloom_run"]), {"block": 0, "relocation_count": 0}, ["LOOP", "AWAIT"])
    assert [var.name for var in run.params] == [
        "pool", "steps", "step_count", "relocations", "args", "slots"
    ]  # fmt: skip
    text = printed(run, {}, "D_")
    assert "block" not in text and "usleep" not in text and "for (" in text and "D_LOOP" not in text
    assert "D_POLL" in text and "relocation" not in text.partition("{")[2]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(a):\n    return b\n", "line 2: the name b"),
        ("def f(a):\n    return g(a)\n", "line 2: the function g"),
        ("def f(a):\n    g(a)\n", "line 2: the function g"),
        ("def f(a):\n    x = store(a, 0, 1)\n", "line 2: the result of store"),
        ("def f(a):\n    x = h(a)\n", "line 2: the result of h"),
        ("def f(a):\n    with a:\n        pass\n", "line 2: a statement With"),
    ],
)
def test_text_of_another_language(text, found):
    with pytest.raises(KernelSyntaxError, match=found):
        read_function(native(text, h="void"))


def test_c_of_expressions_and_loops():
    text = "def f(a):\n    x = 0\n    for k in range(a, load(a, 0), 2):\n        if not (k < 3 and a != 1 or k == 9):\n"
    text += "            x += -k // 2 - (a - k) * 3 << 1\n"
    text += "    while x:\n        x = max(x % 5, 1, a) if a else -1\n    return x\n"
    assert printed(read_function(native(text)), {}, "").splitlines() == [
        "static int64_t f(int64_t a) {",
        "  int64_t x = 0;",
        "  for (int64_t k = a, k_end = load(a, 0); k < k_end; k += 2) {",
        "    if (!((k < 3 && a != 1) || k == 9)) {",
        "      x += (floor_quotient(-k, 2) - (a - k) * 3) << 1;",
        "    }",
        "  }",
        "  while (x) {",
        "    x = a ? greatest(greatest(floor_rest(x, 5), 1), a) : -1;",
        "  }",
        "  return x;",
        "}",
    ]


def test_what_has_no_c():
    for text in ("def f(a):\n    for k in range(4, 0, -1):\n        pause()\n", "def f(a):\n    a, b = 1, 2\n"):
        with pytest.raises(TypeError, match="f: .* native function"):
            printed(read_function(native(text, "void")), {}, "")
