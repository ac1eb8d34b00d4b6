"""`hl.njit(fallback=True)`: calls that cannot be compiled run in Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.errors import FallbackWarning, HloomError, IndexOutOfBoundsError
from hloom.ir.source import Source

__all__ = ["Fallback"]

_DEPTH = 8  # of the caller's frame, from `warn` on


class Fallback:
    """The calls of a function that run in Python. always: whether all do, as its source cannot be compiled."""

    def __init__(self, function: Callable):
        self.function, self.always = function, False
        self._kinds: set[Any] = set()  # of arguments
        self._warned = False

    def takes(self, structure: Any, leaves: Sequence[Any]) -> bool:
        """Whether a call of such arguments could not be compiled before."""
        return self.always or (bool(self._kinds) and _kind(structure, leaves) in self._kinds)

    def add(self, structure: Any, leaves: Sequence[Any]) -> None:
        self._kinds.add(_kind(structure, leaves))

    def run(self, error: Exception | None, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        """The call in Python. error: why it could not be compiled, if that is new.

        An error that does not say what hloom lacks may be the program's own: Python raises it again, without a warning.
        """
        lacks = isinstance(error, HloomError) and not isinstance(error, IndexOutOfBoundsError)
        if error is not None and lacks:
            self._warn(error)
        found = self.function(*arguments, **named)
        if error is not None and not lacks:
            self._warn(error)
        return found

    def _warn(self, error: Exception) -> None:
        if self._warned:
            return
        self._warned = True
        text = str(error) if isinstance(error, HloomError) else f"{type(error).__name__}: {error}{self._line(error)}"
        name = getattr(self.function, "__name__", "function")
        warnings.warn(f"'{name}' runs in Python, as it cannot be compiled:\n{text}", FallbackWarning, _DEPTH)

    def _line(self, error: Exception) -> str:
        """The line of the function that an error comes from: its compiled code has the user's file and lines."""
        file = self.function.__code__.co_filename
        lines, frame = [self.function.__code__.co_firstlineno], error.__traceback__
        while frame is not None:
            if frame.tb_frame.f_code.co_filename == file and frame.tb_frame.f_code.co_name == self.function.__name__:
                lines.append(frame.tb_lineno)
            frame = frame.tb_next
        source = Source(file, lines[-1], self.function.__name__)
        return f"\n  where:  {source}: {source.code()}"


def _kind(structure: Any, leaves: Sequence[Any]) -> Any:
    kinds = [(leaf.dtype, leaf.shape) if isinstance(leaf, np.ndarray) else type(leaf) for leaf in leaves]
    return (structure, *kinds)
