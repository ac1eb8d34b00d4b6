"""Files of libraries that stand between a user's code and hloom's, under the names of JAX's module."""

from __future__ import annotations

import os

from hloom.ir.source import count_as_internal


def register_exclusion(path: str) -> None:
    """Errors name the innermost line outside of hloom and of this file (or of the files in this folder)."""
    count_as_internal(os.path.realpath(path))


def api_boundary(fun, **options):
    """The function itself: errors of hloom name the user's line wherever they come from."""
    return fun
