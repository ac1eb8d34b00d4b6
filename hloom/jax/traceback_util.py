"""Files of libraries that stand between a user's code and hloom's, under the names of JAX's module."""

from __future__ import annotations

import os

from hloom.ir.source import count_as_internal, is_internal


def register_exclusion(path: str) -> None:
    """Errors name the innermost line outside of hloom and of this file (or of the files in this folder)."""
    count_as_internal(os.path.realpath(path))


def api_boundary(fun, **options):
    """The function itself: errors of hloom name the user's line wherever they come from."""
    return fun


def include_frame(frame) -> bool:
    """Whether a frame is the user's: of no file of hloom's or of a library that was excluded."""
    return not is_internal(frame.f_code.co_filename)


__all__ = ["api_boundary", "include_frame", "register_exclusion"]
__dir__ = __all__.copy
