"""Memory that is kept to save work, and may be freed at any time.

    on_release(function)    function(everything) frees what nobody uses now
    release(everything)     calls them all

everything: also what is likely to be needed again, such as idle blocks of the buffer pool. Results never depend on it.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["on_release", "release"]

_functions: list[Callable[[bool], object]] = []


def on_release(function: Callable[[bool], object]) -> Callable[[bool], object]:
    """Adds a function, which is returned; usable as a decorator."""
    _functions.append(function)
    return function


def release(everything: bool = False) -> None:
    """Frees what nobody uses now."""
    for function in _functions:
        function(everything)
