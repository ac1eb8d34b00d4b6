"""Where scratch memory lies, and guards behind it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.contractions.render import shared_kernels
from hloom.compiler.targets.cpu.codegen import llvm_ir
from hloom.compiler.targets.cpu.interface import kernel_key
from hloom.compiler.targets.cpu.llvm_emitter import emitter, scratch
from hloom.compiler.targets.cpu.machine import host

ROOT = Path(__file__).resolve().parents[4]


def kernel(count: int, index: int, name: str = "scratch") -> KernelSource:
    """Writes and reads one element of an array in scratch memory."""
    text = (
        f"def {name}(out, at, lo, hi):\n    room = scratch_f32({count})\n    for i in range(lo, hi):\n"
        f"        room[at + {index}] = f32(7)\n        out[i] = room[at + {index}]\n"
    )
    return KernelSource(name, text, ("f32*", "s64", "s64", "s64"))


def test_large_arrays_are_not_on_the_stack():
    for made in shared_kernels("f32", host()):
        text = llvm_ir(made, optimized=False)
        if "scratch_" in made.text:
            assert "@malloc" in text and "@free" in text
    assert "@malloc" not in llvm_ir(kernel(scratch.ON_STACK // 4, 0), optimized=False)
    assert "@malloc" in llvm_ir(kernel(scratch.ON_STACK // 4 + 1, 0), optimized=False)


@pytest.mark.parametrize("triple, kind", [("wasm32-unknown-wasi", "i32"), ("x86_64-unknown-linux-gnu", "i64")])
def test_sizes_have_the_type_of_the_target(triple, kind):
    text, _ = emitter.kernel_text(kernel(5000, 0), triple, lambda name: None)
    assert f"@malloc({kind} " in text and f"declare noalias ptr @malloc({kind})" in text


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support")))
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"PYTHONPATH": paths} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


SMALL_STACK = """
import threading, numpy as np, hloom as hl, hloom.numpy as hnp
hl.config.num_threads = 1
x = np.random.default_rng(0).integers(-3, 4, (300, 900)).astype(np.float32)
product = hl.jit(lambda x, y: hnp.maximum(x @ y, 0)).lower(x, x.T).compile()
threading.stack_size(256 << 10)
results = []
thread = threading.Thread(target=lambda: results.append(np.asarray(product(x, x.T))))
thread.start()
thread.join()
assert np.array_equal(results[0], np.maximum(x @ x.T, 0))
print("right")
"""


def test_products_run_in_a_thread_with_a_small_stack():
    done = run(SMALL_STACK)
    assert done.stdout == "right\n", (done.returncode, done.stderr[-500:])


GUARDED = """
import sys, numpy as np, test_scratch
from hloom.compiler.targets.cpu import codegen
from hloom.compiler.targets.cpu.llvm_emitter import scratch
from hloom.runtime import native
import ctypes
scratch.use_guards(True)
count, index = map(int, sys.argv[1:])
made = test_scratch.kernel(count, 0)
code = codegen.compile_kernels([made])[0]
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
    native.load(code.data, code.symbols)[made.name])
out = np.zeros(1, np.float32)
words = np.array([out.ctypes.data, index], np.int64)
words[1] = count - 1
function(words.ctypes.data, 0, 1)
print(out[0], flush=True)
words[1] = index
function(words.ctypes.data, 0, 1)
"""


@pytest.mark.parametrize("count, index", [(10, 10), (5000, 5000), (5000, -1)])
def test_an_access_outside_of_an_array_ends_the_process(count, index):
    folder = str(Path(__file__).parent)
    done = run(f"import sys; sys.path.insert(0, {folder!r})\n" + GUARDED, str(count), str(index))
    assert done.stdout == "7.0\n", done.stderr[-500:]
    assert done.returncode in (-signal.SIGSEGV, -signal.SIGILL, -signal.SIGTRAP, -signal.SIGBUS)


def test_guards_are_part_of_the_key():
    made = kernel(10, 0)
    before = kernel_key(made)
    scratch.use_guards(True)
    try:
        assert kernel_key(made) != before
    finally:
        scratch.use_guards(False)


def test_random_kernels_with_guards():
    """A sample of the campaign of `tests/reliability.py`, which has 20,000."""
    program = (
        "import hloom as hl, scratch_cases as cases\nhl.config.guard_scratch = True\n"
        "for number in range(0, 12000, 500):\n"
        "    print(number, flush=True)\n"
        "    assert not (fault := cases.run(number)[1]), fault\n"
    )
    done = run(program)
    assert done.returncode == 0, (done.returncode, done.stdout.split()[-1:], done.stderr[-600:])
