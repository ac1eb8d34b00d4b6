"""What runs a program: NumPy as it is, Numba's two versions, hloom, and jax where its form is written."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

import hloom as hl
from hloom.benchmarks.numpy_programs.jax_forms import FORMS
from hloom.benchmarks.numpy_programs.table import Program

ENGINES = ("numpy", "numba", "parallel", "hloom", "jax")


@dataclass(frozen=True)
class Engine:
    """function: takes the arguments that `prepare` makes of a program's. in_place: whether it changes these."""

    function: Callable
    prepare: Callable[[tuple], tuple] = tuple
    in_place: bool = True


def engine(name: str, program: Program) -> Engine | None:
    """None: there is no form of the program for jax."""
    if name == "numpy":
        return Engine(program.function)
    if name == "hloom":
        return Engine(hl.njit(program.function))
    if name in ("numba", "parallel"):
        return _numba(program.function, name == "parallel")
    return _jax(program)


def _numba(function: Callable, parallel: bool) -> Engine:
    """`numba.njit` of a function; the Python functions that it calls or is given are compiled too."""
    import numba

    numba.set_num_threads(len(os.sched_getaffinity(0)))

    @functools.cache
    def compiled(part: FunctionType) -> Any:
        scope = part.__globals__
        found = {n: compiled(scope[n]) for n in part.__code__.co_names if isinstance(scope.get(n), FunctionType)}
        own = FunctionType(part.__code__, scope | found, part.__name__, part.__defaults__, part.__closure__)
        return numba.njit(own, parallel=parallel)

    assert isinstance(function, FunctionType)
    prepare = lambda args: tuple([compiled(a) if isinstance(a, FunctionType) else a for a in args])  # noqa: E731
    return Engine(compiled(function), prepare)


def _jax(program: Program) -> Engine | None:
    """The results of a form for jax are the program's, and then the arrays that it changes."""
    if program.name not in FORMS:
        return None
    import jax

    jax.config.update("jax_enable_x64", True)
    static = tuple([k for k, a in enumerate(program.arguments("tiny")) if isinstance(a, (int, FunctionType))])
    compiled = jax.jit(FORMS[program.name], static_argnums=static)

    def prepare(args: tuple) -> tuple:
        return tuple([jax.device_put(a) if isinstance(a, np.ndarray) else a for a in args])

    return Engine(lambda *args: jax.block_until_ready(compiled(*args)), prepare, in_place=False)
