"""Numbers and arrays from outside of a NumPy program: constants of it, which are compared at each call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import CodeType, FunctionType
from typing import Any

import numpy as np

__all__ = ["Outside", "contents", "names_of", "noting"]

_MISSING = object()

# Called with each function that a kernel of a traced program inlines.
noting: ContextVar[Callable[[Any], None]] = ContextVar("noting", default=lambda function: None)


class Outside:
    """What functions read of their modules, and of the functions around them, as it was when they were traced."""

    def __init__(self) -> None:
        self._read: list[tuple[Callable[[], Any], Any, Any]] = []  # how it is read; the object; what it was
        self._seen: set[FunctionType] = set()

    def add(self, function: Any) -> None:
        """Notes what a function reads."""
        if not isinstance(function, FunctionType) or function in self._seen:
            return
        self._seen.add(function)
        scope = function.__globals__
        for name in names_of(function.__code__):
            if _is_constant(scope.get(name)):
                self._note(functools.partial(scope.get, name, _MISSING))
        for cell in function.__closure__ or ():
            if _is_constant(contents(cell)):
                self._note(functools.partial(contents, cell))

    def _note(self, read: Callable[[], Any]) -> None:
        value = read()
        self._read.append((read, value, _content(value)))

    def changed(self) -> bool:
        """Whether something is not what it was."""
        for read, value, content in self._read:  # noqa: SIM110  (in every call, where a generator costs more)
            if not _is_same(read(), value, content):
                return True
        return False


def _is_same(now: Any, before: Any, content: Any) -> bool:
    if now is not before and isinstance(before, np.ndarray):
        return False
    return (now is before and not isinstance(now, np.ndarray)) or _content(now) == content


def _content(value: Any) -> Any:
    """Equal for values that programs cannot tell apart: 1 is not 1.0, and 0.0 is not -0.0."""
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    return type(value), repr(value)


def _is_constant(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic, bool, int, float, complex))


def contents(cell: Any) -> Any:
    """What a name around a function is."""
    try:
        return cell.cell_contents
    except ValueError:  # it is not assigned yet
        return _MISSING


def names_of(code: CodeType) -> Iterator[str]:
    """The names that a function and those within it may read of their module."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_of(constant)
