"""The error for an index out of range in a running kernel, with the user's line of the index."""

from __future__ import annotations

import weakref

import numpy as np

from hloom.errors import IndexOutOfBoundsError, ShapeError
from hloom.ir.ops.programs.structure import HostFunction
from hloom.ir.types import TupleShape
from hloom.kernels.frontend.memory import FAULT_BITS, Check
from hloom.tracing.trace import bind

__all__ = ["raise_fault", "watch"]

_targets: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


def watch(name: str, kernel: str, checks: tuple[Check, ...], fault) -> None:
    """Has the program raise an error where a kernel's fault is not 0. kernel: the name in programs."""
    target = _targets.get(kernel)
    if target is None:
        target = _targets[kernel] = HostFunction(f"hloom.kernel_fault.{kernel}")

        def raised(word: np.ndarray) -> tuple:
            raise_fault(name, checks, int(word[0]))
            return ()

        target.function, target.method = raised, "sequential"
    bind("custom-call", fault, shape=TupleShape(()), custom_call_target=target, custom_call_has_side_effect=True)


def raise_fault(name: str, checks: tuple[Check, ...], word: int) -> None:
    """Raises the error of a kernel whose fault is `word`; 0 is none."""
    if not word:
        return
    check = checks[(word >> FAULT_BITS) - 1]
    index = word & ((1 << FAULT_BITS) - 1)
    index -= (index >> (FAULT_BITS - 1)) << FAULT_BITS
    error = ShapeError if check.size is None else IndexOutOfBoundsError
    raise error(
        f"the kernel '{name}' reads or writes within its arrays",
        f"{check.what} is {index}"
        + (f", the size {check.size}" if check.size is not None else "")
        + f", at {check.source}: {check.source.code()}",
        "check the index before, or end the loop earlier",
        check.source,
    )
