"""What the decorators of this room share: functions that trace themselves, and the options that Numba's have."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.errors import ArgumentError
from hloom.kernels.frontend.functions import of_numba
from hloom.njit.calls import same_arrays
from hloom.njit.control import InProgram
from hloom.njit.njit import NumpyFunction
from hloom.njit.rewriting import Program
from hloom.tree import pytrees as tree

__all__ = ["Universal", "require_options"]

# Options of Numba that say how it compiles, and what hloom does in any case.
_OPTIONS = frozenset(("nopython", "cache", "fastmath", "nogil", "forceobj", "boundscheck", "identity", "target"))


class Universal(NumpyFunction, InProgram):
    """A decorated function whose call is a NumPy program of its own.

    of: the options that calls take beside arguments.
    """

    of: tuple[str, ...] = ()
    nin: int

    def __init__(self, function: Callable):
        written = of_numba(function)[0]
        super().__init__(written)
        self.of_user = inspect.signature(written)
        any_number = inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)
        named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in self.of]
        self.signature = inspect.Signature([any_number, *named])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = super().__call__(*args, **kwargs)
        outs = [*args[self.nin :], *(out if isinstance(out := kwargs.get("out"), tuple) else [out])]
        outs = [out for out in outs if out is not None]
        return found if not outs else outs[0] if len(outs) == 1 else tuple(outs)  # the caller's arrays, as in NumPy

    def _longer_call(self, args: Any, kwargs: Any) -> Any:
        if same_arrays(tree.leaves([*args, *kwargs.values()])) is None:  # parts of arrays, which are only read
            copied = [np.array(a) if isinstance(a, np.ndarray) else a for a in args[: self.nin]]
            args = (*copied, *args[self.nin :])
        return super()._longer_call(args, kwargs)

    @functools.cached_property
    def program(self) -> Program:
        def make(runtime):
            def run(*args: Any, **options: Any) -> Any:
                return self.in_program(runtime, *args, **options)

            return run

        return Program(make, (), self.written)


def require_options(name: str, options: dict[str, Any]) -> None:
    """Accepts Numba's options that change no result. Raises ArgumentError for others."""
    target = options.get("target", "cpu")
    if target not in ("cpu", "parallel"):
        raise ArgumentError(f"hl.{name} with target={target!r}", "it is not supported",
                            'use target="parallel", or hl.device("cuda") around the call')  # fmt: skip
    unknown = [key for key in options if key not in _OPTIONS]
    if unknown or options.get("forceobj"):
        asked = (unknown or ["forceobj"])[0]
        raise ArgumentError(f"hl.{name} with {asked}=", "there is no such option", "leave it out")
