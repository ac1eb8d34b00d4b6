"""Cached memory that may be freed at any time.

    on_release(function) function(everything) frees unused memory
    release(everything)     calls them all

everything: includes memory likely to be needed again, such as idle blocks of the buffer pool. Results never depend on
it.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["on_release", "release"]

_functions: list[Callable[[bool], object]] = []


def on_release(function: Callable[[bool], object]) -> Callable[[bool], object]:
    """Registers a function and returns it; usable as a decorator."""
    _functions.append(function)
    return function


def release(everything: bool = False) -> None:
    """Frees unused memory."""
    for function in _functions:
        function(everything)
