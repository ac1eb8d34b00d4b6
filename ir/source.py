"""Where in the user's program something came from: file, line, function and variable name."""

from __future__ import annotations

import dis
import os
import sys
from functools import lru_cache
from typing import NamedTuple

_ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
# In a checkout the rooms lie side by side (the package reaches them through links), installed inside of the package.
_INSTALLED = os.path.exists(os.path.join(_ROOT, "jit.py"))
_ROOMS = ("ir", "compiler", "runtime", "hloom")
_OURS = (_ROOT + os.sep,) if _INSTALLED else tuple(os.path.join(_ROOT, room) + os.sep for room in _ROOMS)
_LIBRARIES = (f"{os.sep}optree{os.sep}", f"{os.sep}functools.py", f"{os.sep}contextlib.py", "<frozen ")


class Source(NamedTuple):
    """A place in the user's program. `variable` is the name that the result is assigned to, or ''."""

    file: str
    line: int
    function: str
    variable: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


_internal: dict[str, bool] = {}


def is_internal(filename: str) -> bool:
    """Whether a file is hloom's, or of a library that stands between the user's code and hloom's."""
    known = _internal.get(filename)
    if known is None:
        path = os.path.realpath(filename) if os.path.exists(filename) else filename
        known = path.startswith(_OURS) or any(part in filename for part in _LIBRARIES)
        _internal[filename] = known
    return known


def count_as_internal(path: str) -> None:
    """From now on a file, or the files in a folder, count as a library's."""
    global _OURS
    _OURS = (*_OURS, path + os.sep if os.path.isdir(path) else path)
    _internal.clear()


@lru_cache(maxsize=4096)
def _assigned_name(code, last: int) -> str:
    """The variable that the value made by the instruction at byte offset `last` is stored in directly, or ''."""
    following = False
    for instruction in dis.get_instructions(code):
        if following:
            if instruction.opname in ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF"):
                return instruction.argval
            if instruction.opname not in ("CACHE", "NOP", "COPY"):
                return ""
        elif instruction.offset == last:
            following = True
    return ""


@lru_cache(maxsize=65536)
def _source_at(code, last: int, line: int) -> Source:
    return Source(code.co_filename, line, code.co_name, _assigned_name(code, last))


def current_source() -> Source | None:
    """The innermost frame of the call stack that is not hloom's own, or None when there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        if not is_internal(frame.f_code.co_filename):
            return _source_at(frame.f_code, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return None
