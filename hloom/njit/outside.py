"""Numbers and arrays from outside of a NumPy program: constants of it, which are compared at each call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import numpy as np

__all__ = ["Outside"]

_MISSING = object()


class Outside:
    """What functions read of their modules, and of the functions around them, as it was when they were traced."""

    def __init__(self) -> None:
        self._read: list[tuple[Callable[[], Any], Any, Any]] = []  # how it is read; the object; a copy of an array
        self._seen: set[FunctionType] = set()

    def add(self, function: Any) -> None:
        """Notes what a function reads."""
        if not isinstance(function, FunctionType) or function in self._seen:
            return
        self._seen.add(function)
        scope = function.__globals__
        for name in _names(function.__code__):
            if _is_constant(scope.get(name)):
                self._note(functools.partial(scope.get, name, _MISSING))
        for cell in function.__closure__ or ():
            if _is_constant(_contents(cell)):
                self._note(functools.partial(_contents, cell))

    def _note(self, read: Callable[[], Any]) -> None:
        value = read()
        self._read.append((read, value, value.copy() if isinstance(value, np.ndarray) else value))

    def changed(self) -> bool:
        """Whether something is not what it was."""
        return any(not _same(read(), value, kept) for read, value, kept in self._read)


def _same(now: Any, before: Any, kept: Any) -> bool:
    if isinstance(before, np.ndarray):
        return now is before and now.shape == kept.shape and now.tobytes() == kept.tobytes()
    return type(now) is type(before) and (now is before or repr(now) == repr(before))


def _is_constant(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic, bool, int, float, complex))


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is not assigned yet
        return _MISSING


def _names(code: CodeType) -> Iterator[str]:
    """The names that a function and those within it may read of their module."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
