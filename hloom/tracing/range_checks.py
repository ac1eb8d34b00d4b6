"""Checks that indices are in range: now where their values are known, when the program runs under `debug_checks`."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.config import config
from hloom.errors import IndexOutOfBoundsError
from hloom.ir.source import current_source
from hloom.tracing.callback import debug_callback


def check_in_range(indices: Any, low: int, size: int, asked: str, repair: str) -> None:
    """Raises IndexOutOfBoundsError if an index (Array or Tracer) is not in low <= index < size.

    Traced indices are compared with their values where the trace carries them. In a compiled program they are
    compared when it runs, if `hl.config.debug_checks` is set; the error then names the line that was traced.
    """
    values = indices._value() if isinstance(indices, Array) else indices.value
    source = current_source()

    def check(numbers) -> None:
        numbers = np.asarray(numbers)
        if numbers.size and (int(numbers.min()) < low or int(numbers.max()) >= size):
            wrong = numbers[(numbers < low) | (numbers >= size)].flat[0]
            where = f" among {indices._shape!r}" if numbers.ndim else ""
            raise IndexOutOfBoundsError(asked, f"{int(wrong)}{where}", repair, source)

    if values is not None:
        check(values)
    elif config.debug_checks:
        debug_callback(check, indices)


__all__ = ["check_in_range"]
