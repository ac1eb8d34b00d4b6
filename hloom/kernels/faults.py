"""The error for an index out of range in a running kernel, or another condition that a program checks, with the
user's line."""

from __future__ import annotations

import copy
import weakref

import numpy as np

from hloom.config import config
from hloom.errors import ArgumentError, DifferentiationError, IndexOutOfBoundsError, ShapeError
from hloom.ir.build import Builder, Value
from hloom.ir.ops.programs.structure import HostFunction
from hloom.ir.source import Source
from hloom.ir.types import TupleShape
from hloom.kernels.derivatives.tape import FULL
from hloom.kernels.frontend.memory import FAULT_BITS, Check
from hloom.tracing.trace import bind

__all__ = ["raise_fault", "watch", "watch_tape"]

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


def watch_tape(build: Builder, name: str, fault: Value, source: Source | None) -> None:
    """Has the program raise an error where the tape of a gradient was too small."""
    target = HostFunction(f"hloom.tape_fault.{name}")

    def raised(word: np.ndarray) -> tuple:
        if int(word[0]) == FULL:
            raise DifferentiationError(
                f"the gradient of a loop of unknown length in '{name}'",
                f"it keeps values of more iterations than fit into {config.tape_bytes:,} bytes",
                "raise hl.config.tape_bytes, or use forward mode (hl.jvp)",
                source,
            )
        return ()

    target.function, target.method = raised, "sequential"
    shape = TupleShape(())
    build.emit(
        "custom-call", fault.instruction, shape=shape, custom_call_target=target, custom_call_has_side_effect=True
    )


def raise_fault(name: str, checks: tuple[Check, ...], word: int) -> None:
    """Raises the error of a kernel whose fault is `word`; 0 is none."""
    if not word:
        return
    check = checks[(word >> FAULT_BITS) - 1]
    if check.error is not None:
        raised = copy.copy(check.error)
        raised.add_note(f"raised at {check.source}: {check.source.code()}")
        raise raised
    if check.asked:
        raise ArgumentError(check.asked, check.what, check.repair, check.source)
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
