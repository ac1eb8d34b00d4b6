"""Every function of `hl.numpy` in every dtype is compiled without Numba, whose import takes 0.4 s of a first call."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import warnings

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.backends.compile import optimized_plan
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu import backend, library
from hloom.compiler.targets.cpu.llvm_emitter import emitter
from hloom.compiler.transforms.counted import counted_program
from hloom.errors import HloomError
from hloom.ir.ops.programs.sizes import computes_sizes

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
]  # fmt: skip
FORMS = 2  # of arguments that a function takes


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    numbers = np.arange(np.prod(shape)).reshape(shape) % 3
    return numbers.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def arguments(dtype: str) -> list[tuple]:
    """What functions may be called with: matrices, vectors, and numbers beside them."""
    x, v = values((4, 4), dtype), values((6,), dtype)
    return [
        (x,), (x, x), (v, v), (x, x, x), (v,), (v, v, v), ([x, x],), (x, 1), (v, 2), (x, (4, 4)), (x, 2, 0),
        (x, np.array([0, 1])), (x, np.array([[0, 1]]), 1), (x != 0, x, x),
    ]  # fmt: skip


def kernels(function, form: tuple) -> list[KernelSource] | None:
    """The kernels of a call; None where the function takes no such arguments."""
    given = {k: a for k, a in enumerate(form) if isinstance(a, (np.ndarray, list))}

    def call(arrays):
        return function(*[arrays.get(k, a) for k, a in enumerate(form)])

    try:
        module = hl.jit(call).lower(given).module
    except (HloomError, TypeError, ValueError, IndexError):
        return None
    if computes_sizes(module.entry):
        module = module.with_entry(counted_program(module.entry).computation)
    launches = [step.launch for step in optimized_plan(module)[1].kernels()]
    passed = [a for launch in launches for a in launch.arguments if isinstance(a, KernelSource)]
    return [*(launch.source for launch in launches), *passed]


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_function_needs_numba(dtype):
    seen: set[KernelSource] = set()
    called = 0
    for name in sorted(set(dir(hnp))):
        function = getattr(hnp, name)
        if name.startswith("_") or not callable(function) or inspect.isclass(function):
            continue
        taken = 0
        for form in arguments(dtype):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = kernels(function, form)
            if found is None:
                continue
            called, taken = called + 1, taken + 1
            for source in set(found) - seen:
                emitter.kernel_text(source, backend.triple(), library.signature, library.shared_size)  # or it raises
            seen.update(found)
            if taken == FORMS:
                break
    assert called > 200 and len(seen) > 100


def test_a_new_process_does_not_import_it(tmp_path):
    script = (
        "import sys, numpy as np, hloom as hl, hloom.numpy as hnp\n"
        "for dtype in ('int64', 'uint64', 'int32', 'uint8'):\n"
        "    for function in (hnp.max, hnp.invert, hnp.negative, hnp.sort, hnp.ptp):\n"
        "        hl.jit(function)(np.arange(100).astype(dtype))\n"
        "assert 'numba' not in sys.modules\n"
        "later = ('hloom.compiler.passes.spmd', 'hloom.ir.text.parser')\n"
        "assert not [name for name in sys.modules if name.startswith(later)]\n"
    )
    environment = os.environ | {"HLOOM_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
