"""Kernels and other users of Numba share its types of intrinsics; compiling in one must not break the other."""

from __future__ import annotations

import pytest
from numba import cfunc, types

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.math import FUNCTIONS
from hloom.compiler.targets.cpu import codegen

SIGNATURE = types.void(types.CPointer(types.uint8), types.int64)


def through_numba(number: int) -> None:
    scope = {name: FUNCTIONS[name].python for name in ("load_pred", "store_pred")}
    exec(f"def negate{number}(p, i):\n    store_pred(p, i, not load_pred(p, i))\n", scope)
    assert cfunc(SIGNATURE)(scope[f"negate{number}"]).address


def through_hloom(number: int) -> None:
    text = (
        f"def negate_kernel{number}(p, lo, hi):\n    for i in range(lo, hi):\n"
        f"        store_pred(p, i + {number}, not load_pred(p, i))\n"
    )
    kernel = KernelSource(f"negate_kernel{number}", text, ("pred*", "s64", "s64"))
    assert codegen.compile_kernels([kernel], None)[0].data


@pytest.mark.parametrize("order", [(0, 1, 0, 1), (1, 0, 1, 0)])
def test_intrinsics_are_typed_by_both(order):
    for turn, which in enumerate(order):
        (through_hloom, through_numba)[which](turn + 10 * order[0])
