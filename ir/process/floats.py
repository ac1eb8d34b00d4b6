"""The floating-point environment of a thread: its rounding mode, and whether denormal numbers are flushed to zero.

Other libraries change it. The threads in which XLA calls a plugin flush denormal numbers, and so does a thread after
`torch.set_flush_denormal(True)`; a compiler would compute different values there, for example for a program's
constants. A thread inherits the environment of the one that starts it.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator

_BYTES = 64  # at least `fenv_t` of any system: 32 in glibc for x86-64, 8 for AArch64
_process = ctypes.CDLL(None)


def _default() -> object:
    """FE_DFL_ENV."""
    if sys.platform == "darwin":
        return ctypes.byref((ctypes.c_char * _BYTES).in_dll(_process, "_FE_DFL_ENV"))
    return ctypes.c_void_p(-1)


@contextlib.contextmanager
def default_floats() -> Iterator[None]:
    """Temporarily restores IEEE 754's defaults: round to nearest, with denormal numbers."""
    kept = ctypes.create_string_buffer(_BYTES)
    _process.fegetenv(kept)
    _process.fesetenv(_default())
    try:
        yield
    finally:
        _process.fesetenv(kept)
