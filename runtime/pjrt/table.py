"""All native functions, and the object code of them."""

from __future__ import annotations

from hloom.runtime import driver_source
from hloom.runtime.pjrt import buffers, client, events, execute, queue, storage
from hloom.runtime.pjrt.functions import linked, symbol, unimplemented
from hloom.runtime.pjrt.interface import FIELDS
from hloom.runtime.pjrt.interface import FUNCTIONS as NAMES

__all__ = ["FUNCTIONS", "IN_PYTHON", "MISSING"]

_WRITTEN = (
    *events.FUNCTIONS, *storage.FUNCTIONS, *buffers.FUNCTIONS, *client.FUNCTIONS, *execute.FUNCTIONS, *queue.FUNCTIONS,
)  # fmt: skip
_SYMBOLS = {function.name for function in _WRITTEN}
# Functions of the C interface implemented in Python: compilation and rare requests.
IN_PYTHON = tuple(name for name in NAMES if name in FIELDS and symbol(name) not in _SYMBOLS)
# Functions that hloom answers with an error.
MISSING = tuple(name for name in NAMES if name not in FIELDS)
FUNCTIONS = (
    *driver_source.FUNCTIONS,
    *linked((*_WRITTEN, *map(unimplemented, MISSING)), driver_source.FUNCTIONS),
)
