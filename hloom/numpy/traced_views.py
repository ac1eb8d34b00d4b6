"""Writes to traced arrays with `hl.config.item_assignment`: `x[i] = v`, `x += y`, and views, as NumPy has them.

A write makes the traced array stand for a new value from there on; what was recorded before reads the old one. Arrays
that a traced function gets are its caller's, who would not see the write: it is refused, as is one from within a loop
or a branch to an array from outside of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from hloom.arrays import views
from hloom.arrays.base import ArrayMethods
from hloom.errors import ImmutableArrayError
from hloom.ir.module import Instruction
from hloom.ir.source import is_internal
from hloom.tracing.trace import Tracer, bind, current_trace

__all__ = ["apart", "by_user", "stop", "use", "view", "write"]

_plain: dict[str, Any] = {}  # attributes of the class without the setting


def use(methods: dict[str, Any]) -> None:
    """Installs methods of traced arrays."""
    for name, method in {"__setitem__": _assign, **methods}.items():
        _plain[name] = vars(Tracer).get(name)
        setattr(Tracer, name, method)


def stop() -> None:
    """Removes them."""
    for name, plain in _plain.items():
        if plain is None:
            delattr(Tracer, name)
        else:
            setattr(Tracer, name, plain)
    _plain.clear()


def by_user(depth: int = 2) -> bool:
    """Whether the caller's caller is no function of hloom, whose arrays have no views."""
    return not is_internal(sys._getframe(depth).f_code.co_filename)


def apart(x: Tracer) -> Tracer:
    """Another traced array of the same value."""
    return bind("copy", x, weak=x.weak)


def view(x: Any, result: Any, part: Callable | None) -> Any:
    """The result as a view of x, if NumPy's is one. part: the function of NumPy data that makes it; None: a copy."""
    if not isinstance(result, Tracer) or not result._shape.dims or part is None or x.trace is not result.trace:
        return result
    root: Any
    root, chain = views.origin(x)
    chain = (*chain, part)
    if not root._shape.is_open:
        data = np.empty(root._shape.dims, np.bool_)
        if data.size and not np.may_share_memory(views.taken(data, chain), data):
            return apart(result) if result is x else result
    if result is x:
        result = apart(result)
    views.join(result, root, chain)
    return result


def _assign(x: Tracer, index, value) -> None:
    if not by_user():
        ArrayMethods.__setitem__(x, index, value)
    write(x, x.at[index].set(value), "x[i] = y")


def write(x: Any, value: Any, what: str) -> None:
    """Gives an array, the one that it is a view of, and that one's other views the elements of a value of its shape."""
    root: Any
    root, chain = views.origin(x)
    links = [(link, one) for link in getattr(root, "_views", None) or () if (one := link.view()) is not None]
    _require_own(x, root, what)
    if (chain or links) and root._shape.is_open:
        _refuse(x, what, "it is a view, or has one, and has sizes that are not known yet", "x = x.copy()")
    if not chain:
        _become(root, value)
    else:
        flat = root.reshape(-1).at[_places(root, chain)].set(value.reshape(-1))
        _become(root, flat.reshape(root.shape))
    if links:
        flat = root.reshape(-1)
        for link, one in links:
            _become(one, flat[_places(root, link.chain)].reshape(one.shape))


def _places(root: Any, chain: tuple[Callable, ...]) -> np.ndarray:
    """The places of a view's elements in its root."""
    dims = root._shape.dims
    return views.taken(np.arange(root._shape.size).reshape(dims), chain).reshape(-1)


def _become(x: Any, value: Any) -> None:
    x.instruction, x.value, x.weak = value.instruction, value.value, value.weak


def _require_own(x: Any, root: Any, what: str) -> None:
    """Raises ImmutableArrayError for an array that the current trace has not made."""
    if not isinstance(root, Tracer) or root.trace is not current_trace():
        _refuse(x, what, "it was made outside of the traced function, loop or branch", "x = x.copy() within it")
    if _is_parameter(root.instruction):
        _refuse(x, what, "it is an argument, and its caller would not see the write", "x = x.copy() first")


def _is_parameter(instruction: Instruction) -> bool:
    while instruction.opcode == "get-tuple-element":
        (instruction,) = instruction.operands
    return instruction.opcode == "parameter"


def _refuse(x: Any, what: str, found: str, repair: str) -> NoReturn:
    raise ImmutableArrayError(f"{what} in a traced function", f"{x._shape!r}: {found}", f"{repair}, and return it")
