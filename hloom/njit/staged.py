"""Loops of a NumPy program that no kernel takes: loops of the traced program, whose body is traced once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import ShapeError, UnsupportedError
from hloom.njit.items import Range
from hloom.njit.lowering import promotion
from hloom.njit.rewriting import Loop
from hloom.njit.values import KINDS, Array, Memory, Number, Unbound, Value, as_value, between, converted, dtype_of

__all__ = ["for_each", "while_true"]

_PLAIN = (bool, int, float, complex, np.generic)


class _Again(Exception):
    """The types carried by the loop do not yet match those of its body."""


class _Carry:
    """The carried values of a loop: numbers, in dtypes that hold all their values, and arrays that names are rebound
    to. Arrays changed in place are Refs, which the program carries by itself."""

    def __init__(self, loop: Loop, names: Mapping[str, Any]):
        self.loop, self.before = loop, dict(names)
        self.wanted = sorted(loop.assigned)
        self.numbers: dict[str, tuple[np.dtype, type | None]] = {}
        self.arrays: list[str] = []
        self.origins: dict[str, dict[int, Memory]] = {}  # of arrays that names are bound to anew: which they may be
        self.refs = {id(value.ref): value.ref for value in names.values() if isinstance(value, Array)}
        for name in self.wanted:
            value = names.get(name)
            if isinstance(value, (*_PLAIN, Number)):
                number = as_value(value)
                python = number.python if isinstance(number, Number) else type(number)
                self.numbers[name] = (dtype_of(number), python)

    @property
    def names(self) -> list[str]:
        return [*self.numbers, *self.arrays]

    def first(self) -> tuple:
        numbers = [converted(self.before[name], dtype) for name, (dtype, _) in self.numbers.items()]
        return (*numbers, *[self.before[name].traced for name in self.arrays])

    def given(self, carried: Sequence[Any]) -> list[Any]:
        """The values of the names at the beginning of an iteration."""
        values = dict(self.before)
        if len(carried) != len(self.names):  # the body was traced before, and reads what is changed around the loop
            raise _Again
        for name, value in zip(self.names, carried, strict=True):
            if name in self.numbers:
                values[name] = Number(value, self.numbers[name][1])
            else:
                values[name] = Array.one_of(value, "a loop decides which array it is", self.origins[name].values())
        return [values.get(name, Unbound(name)) for name in self.wanted]

    def next(self, made: Mapping[str, Any]) -> tuple:
        """The carried values after an iteration. Raises _Again."""
        before = (dict(self.numbers), list(self.arrays), {n: dict(o) for n, o in self.origins.items()})
        numbers = [self._number(name, made[name]) for name in list(self.numbers)]
        arrays = [self._array(name, made[name]) for name in before[1]]
        for name in self.wanted:
            if name not in self.numbers and name not in self.arrays:
                self._kept(name, made[name])
        if before != (self.numbers, self.arrays, self.origins):
            raise _Again
        return (*numbers, *arrays)

    def _number(self, name: str, after: Any) -> Any:
        """A number in a dtype that holds it and those before."""
        value = after if isinstance(after, Unbound) else as_value(after)
        if isinstance(value, (Array, Unbound)):
            self._refuse(name)
        dtype, python = self.numbers[name]
        own = value.python if isinstance(value, Number) else type(value)
        joined, weak = promotion((dtype, python is not None), (dtype_of(value), own is not None))
        self.numbers[name] = (joined, KINDS[joined.kind] if weak else None)
        return converted(value, joined)

    def _array(self, name: str, after: Any) -> Any:
        before = self.before[name]
        if isinstance(after, Array):
            found = [after.ref, *[ref for ref, _ in after.origins]]
            self.origins[name] |= {id(ref): ref for ref in found if id(ref) in self.refs}
        if not isinstance(after, Array) or after.shape != before.shape or after.dtype != before.dtype:
            self._refuse(name, after)
        return after.traced

    def _kept(self, name: str, after: Any) -> None:
        """Checks that a name that is not carried still has its value."""
        before = self.before.get(name)
        if isinstance(before, Array):
            if not (isinstance(after, Array) and before.is_same(after)):
                self.arrays.append(name)
                self.origins[name] = {id(before.ref): before.ref}
                self._array(name, after)
        elif before is not None and not isinstance(before, (Value, Unbound)) and before is not after:
            self._refuse(name)

    def _refuse(self, name: str, after: Any = None) -> NoReturn:
        error = (
            ShapeError(
                f"'{name}' in a loop", f"{self.before[name]!r} becomes {after!r}", "write into an array: x[:] = y"
            )
            if after is not None
            else UnsupportedError(f"'{name}' in a loop", "it becomes another kind of object", "use another name")
        )
        error.source = self.loop.source
        raise error

    def after(self, carried: Sequence[Any]) -> dict[str, Any]:
        values = dict(zip(self.wanted, self.given(carried), strict=True))
        return {
            name: value if name in self.names or isinstance(value, Array) else Unbound(name)
            for name, value in values.items()
        }


def for_each(loop: Loop, items: Any, names: Mapping[str, Any], body: Callable) -> dict[str, Any]:
    """`for` over a range or the rows of an array. Returns the values of names after it."""
    count: Any  # known where it can be: reverse derivatives need a bound on the steps
    if isinstance(items, (range, Range)):
        start, stop, step = [converted(b, np.dtype(np.int64)) for b in (items.start, items.stop, items.step)]
        if isinstance(items, range):
            count = np.int64(len(items))
        else:
            count = hnp.maximum((stop - start + step - hnp.sign(step)) // step, 0)
        reached = _reached(items)
        take = lambda k: Number(start + k * step, int, reached)  # noqa: E731
    else:
        array = as_value(items)
        count = np.int64(len(array))
        take = lambda k: array[Number(k, int, (0, len(array) - 1))]  # noqa: E731
    carry = _Carry(loop, names)
    while True:
        try:
            found = lax.fori_loop(
                np.int64(0), count, lambda k, values: carry.next(body(take(k), *carry.given(values))), carry.first()
            )
            return carry.after(found)
        except _Again:
            continue


def _reached(items: range | Range) -> tuple[int, int] | None:
    """The least and the greatest number of a range, where they are known."""
    start, stop, step = between(items.start), between(items.stop), between(items.step)
    if start is None or stop is None or step is None or step[0] * step[1] <= 0:
        return None
    return (start[0], stop[1] - 1) if step[0] > 0 else (stop[0] + 1, start[1])


def while_true(
    loop: Loop, names: Mapping[str, Any], test: Callable, body: Callable, has_faults: Callable[[], Any]
) -> dict[str, Any]:
    """`while`. Returns the values of names after it. has_faults: whether an index was out of range, after which the
    test has no meaning; None if none can be."""
    carry = _Carry(loop, names)
    ends = False  # whether the loop ends at a fault

    def goes_on(values: Sequence[Any]) -> Any:
        found = converted(test(*carry.given(values)), np.dtype(bool))
        return hnp.logical_and(found, hnp.logical_not(has_faults())) if ends else found

    def following(values: Sequence[Any]) -> tuple:
        made = carry.next(body(*carry.given(values)))
        if not ends and has_faults() is not None:
            raise _Again
        return made

    while True:
        try:
            return carry.after(lax.while_loop(goes_on, following, carry.first()))
        except _Again:
            ends = ends or has_faults() is not None
