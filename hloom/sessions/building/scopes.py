"""Variables that are found again by name: `get_variable` and the scopes that name them.

    with variable_scope("conv1"):
        w = get_variable("weights", [3, 3, 1, 16])               # conv1/weights
    with variable_scope("conv1", reuse=True):
        get_variable("weights") is w

Their names come from variable scopes only, not from `hl.named_scope` or `hl.device`: towers on several devices share
them.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import hloom.numpy as hnp
from hloom import random
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.source import name_scope
from hloom.ir.types import INEXACT, as_dtype
from hloom.nn import initializers
from hloom.sessions.graph import Variable
from hloom.sessions.program import GLOBAL_VARIABLES, Program, current_program
from hloom.tracing.trace import resumed


class VariableScope:
    """The settings of `get_variable`: the prefix of variable names, whether the variables have to exist already, and
    the initializer of those without one."""

    def __init__(self, name: str = "", reuse: bool = False, initializer: Any = None):
        self.name, self.reuse, self.initializer = name, reuse, initializer

    def reuse_variables(self) -> None:
        """From now on, `get_variable` returns variables that exist, and makes none, until the scope ends."""
        self.reuse = True

    def __repr__(self) -> str:
        return f"<variable scope {self.name!r}, reuse={self.reuse}>"


def get_variable_scope() -> VariableScope:
    """The variable scope around, of the current program. Outside of all scopes, that of the whole program, without a
    name."""
    scopes = current_program().scopes
    if not scopes:
        scopes.append(VariableScope())
    return scopes[-1]


@contextmanager
def variable_scope(
    name_or_scope: str | VariableScope, reuse: bool | None = None, initializer: Any = None
) -> Iterator[VariableScope]:
    """A scope for variables, which is a `hl.named_scope` for operations as well.

    A name is appended to that of the enclosing scope, whose initializer and reuse also hold inside. A VariableScope is
    re-entered, regardless of the enclosing scope: `with variable_scope(get_variable_scope()):` is for
    `reuse_variables`, which lasts until the end of the block. reuse: whether variables have to exist. initializer: as
    in `get_variable`, for those without one. Raises ArgumentError.
    """
    around = get_variable_scope()
    if isinstance(name_or_scope, VariableScope):
        given = name_or_scope
        scope = VariableScope(given.name, given.reuse if reuse is None else bool(reuse), given.initializer)
    elif isinstance(name_or_scope, str) and name_or_scope.strip("/ ") == name_or_scope != "":
        name = f"{around.name}/{name_or_scope}" if around.name else name_or_scope
        scope = VariableScope(name, bool(reuse) or around.reuse, around.initializer)
    else:
        raise ArgumentError("variable_scope", f"{name_or_scope!r:.60}", "pass a name, or a scope that it returned")
    scope.initializer = scope.initializer if initializer is None else initializer
    scopes = current_program().scopes
    scopes.append(scope)
    own = scope.name.rpartition("/")[2]
    try:
        with name_scope(own) if own else nullcontext():
            yield scope
    finally:
        scopes.pop()


def get_variable(
    name: str,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    initializer: Any = None,
    *,
    trainable: bool = True,
    collections: Iterable[str] = (GLOBAL_VARIABLES,),
    key: Any = None,
) -> Variable:
    """The variable of this name in the enclosing variable scope: a new one, or with reuse the existing one.

    dtype: float32 by default, or an array's own. initializer: an array, or a number that fills the shape; a function of
    `hl.nn.initializers`, or another of (key, shape, dtype); a function whose first parameter is called `shape`, of
    (shape, dtype); a function without parameters. None: that of the scope, else Glorot's uniform distribution for
    floats and zeros for other dtypes. key: for random initial values; by default derived from the variable's name, so
    that all workers begin with the same values.

    Raises ArgumentError for a variable that exists without reuse or does not exist with it, ShapeError, DTypeError.
    """
    program, scope = current_program(), get_variable_scope()
    if not isinstance(name, str):
        raise ArgumentError("get_variable(name, shape)", f"the name {name!r:.60}", "pass a string first")
    full = f"{scope.name}/{name}" if scope.name else name
    if scope.reuse:
        return _existing(program, full, shape, dtype)
    if full in program.variables:
        raise ArgumentError(
            f"a new variable {full!r}", "it exists",
            f"get it again with variable_scope({scope.name!r}, reuse=True) or get_variable_scope().reuse_variables()",
        )  # fmt: skip
    chosen = scope.initializer if initializer is None else initializer
    if shape is None and (chosen is None or (callable(chosen) and _form(chosen))):
        raise ArgumentError(f"a new variable {full!r}", "no shape", "pass shape=, or an array as initializer=")
    dims = None if shape is None else _sizes(full, shape)
    with resumed(program.trace), program.outside_of_controls(), name_scope(f"{full}/initial", outermost=True):
        start = _initial(chosen, dims, dtype, full, key)
    with name_scope("", outermost=True):
        return program.variable(
            full, start, shape=dims, dtype=dtype, trainable=trainable, collections=collections
        )  # fmt: skip


def _sizes(name: str, shape: Any) -> tuple[int, ...]:
    sizes = tuple(shape) if hasattr(shape, "__iter__") and not isinstance(shape, str) else (None,)
    if not all(hasattr(n, "__index__") and not isinstance(n, bool) and n.__index__() >= 0 for n in sizes):
        raise ArgumentError(f"a new variable {name!r}", f"the shape {shape!r:.60}", "pass a list of sizes: [784, 100]")
    return sizes


def _existing(program: Program, name: str, shape: Any, dtype: Any) -> Variable:
    found = program.variables.get(name)
    if found is None:
        raise ArgumentError(
            f"the variable {name!r}, with reuse", f"there are {', '.join(map(repr, program.variables)) or 'none'}",
            "make it first, in a scope without reuse",
        )  # fmt: skip
    if shape is not None and tuple(shape) != found.shape:
        raise ShapeError(
            f"the variable {name!r} of shape {tuple(shape)}, with reuse", f"it is {found._shape!r}", "ask for its shape"
        )
    if dtype is not None and as_dtype(dtype) != found.dtype:
        raise DTypeError(
            f"the variable {name!r} of {as_dtype(dtype)}, with reuse", f"it is {found._shape!r}", "ask for its dtype"
        )
    return found


def _form(initializer: Callable) -> tuple[str, ...]:
    """The arguments that a function is called with, in order."""
    try:
        names = list(inspect.signature(initializer).parameters)
    except (TypeError, ValueError):  # of C code
        return ("key", "shape", "dtype")
    if not names:
        return ()
    if names[0] == "shape":
        return ("shape", "dtype") if len(names) > 1 else ("shape",)
    return ("key", "shape", "dtype")


def _initial(initializer: Any, dims: tuple | None, dtype: Any, name: str, key: Any) -> Any:
    wanted = as_dtype("float32" if dtype is None else dtype)
    if initializer is None and (wanted not in INEXACT or 0 in (dims or ())):
        return hnp.zeros(dims, wanted)
    if initializer is not None and not callable(initializer):
        value = hnp.asarray(initializer)
        number = dims is not None and value.shape == ()
        return hnp.full(dims, value, wanted) if number else value
    if key is None:
        key = random.fold_in(random.key(0), zlib.crc32(name.encode()) & 0x7FFFFFFF)
    if initializer is None:
        if len(dims or ()) < 2:  # Glorot's limit, where the inputs and the outputs are the elements
            limit = (3 / (*(dims or ()), 1)[0]) ** 0.5
            return random.uniform(key, dims, wanted, -limit, limit)
        initializer = initializers.glorot_uniform()
    given = {"key": key, "shape": dims, "dtype": wanted}
    return initializer(*(given[argument] for argument in _form(initializer)))


__all__ = ["VariableScope", "get_variable", "get_variable_scope", "variable_scope"]
