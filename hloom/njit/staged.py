"""Loops of a NumPy program that no kernel takes: loops of the traced program, whose body is traced once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import ShapeError, UnsupportedError
from hloom.njit.items import Counted, Items, Range, has_count
from hloom.njit.lowering import promotion
from hloom.njit.rewriting import Loop
from hloom.njit.values import (
    KINDS,
    Array,
    Memory,
    Number,
    Unbound,
    Value,
    as_value,
    between,
    converted,
    dtype_of,
    traced,
)

__all__ = ["Containers", "for_each", "while_true"]

_PLAIN = (bool, int, float, complex, np.generic)


class _Again(Exception):
    """The types carried by the loop do not yet match those of its body."""


class _Carry:
    """The carried values of a loop: numbers, in dtypes that hold all their values, and arrays that names are rebound
    to. Arrays changed in place are Refs, which the program carries by itself.

    broken: the name that says whether `break` left the loop, or ''; it is carried first. runs: whether there is an
    iteration. fresh: names that are first assigned in the loop, and their values after the first trace of it.
    """

    def __init__(self, loop: Loop, names: Mapping[str, Any], broken: str, runs: bool):
        self.loop, self.before, self.broken, self.runs = loop, dict(names), broken, runs
        self.containers = Containers(names.values())
        self.wanted = sorted(loop.assigned)
        self.numbers: dict[str, tuple[np.dtype, type | None]] = {}
        self.arrays: dict[str, np.dtype] = {}
        self.fresh: dict[str, Value] = {}
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
        fresh = [hnp.zeros(np.shape(traced(value)), dtype_of(value)) for value in self.fresh.values()]
        arrays = [converted(self.before[name], dtype) for name, dtype in self.arrays.items()]
        flag = [np.bool_(False)] if self.broken else []
        return (*flag, *numbers, *arrays, *fresh)

    def traced(self, body: Callable, carried: Sequence[Any], *item: Any) -> tuple:
        """An iteration."""
        with self.containers:
            made = body(*item, *self.given(carried))
            self.containers.contents()
        if self.containers.changed:
            kind = type(next(iter(self.containers.changed.values()))).__name__
            error = UnsupportedError(f"a change of a {kind} in a loop", "the loop is compiled, and runs its body once",
                                     "use an array: x = np.zeros(n)")  # fmt: skip
            error.source = self.loop.source
            raise error
        return self.next(made)

    def given(self, carried: Sequence[Any]) -> list[Any]:
        """The values of the names at the beginning of an iteration."""
        values = dict(self.before)
        flags = 1 if self.broken else 0
        if len(carried) != flags + len(self.names) + len(self.fresh):
            raise _Again  # the body was traced before, and reads what is changed around the loop
        for name, value in zip(self.names, carried[flags:], strict=False):
            if name in self.numbers:
                values[name] = Number(value, self.numbers[name][1])
            else:
                values[name] = Array.one_of(value, "a loop decides which array it is", self.origins[name].values())
        return [values.get(name, Unbound(name)) for name in self.wanted]

    def next(self, made: Mapping[str, Any]) -> tuple:
        """The carried values after an iteration. Raises _Again."""
        before = (dict(self.numbers), dict(self.arrays), {n: dict(o) for n, o in self.origins.items()}, [*self.fresh])
        numbers = [self._number(name, made[name]) for name in list(self.numbers)]
        arrays = [self._array(name, made[name]) for name in before[1]]
        for name in self.wanted:
            if name not in self.numbers and name not in self.arrays:
                self._kept(name, made[name])
        if before != (self.numbers, self.arrays, self.origins, [*self.fresh]):
            raise _Again
        fresh = [converted(made[name], dtype_of(value)) for name, value in self.fresh.items()]
        flag = [converted(made[self.broken], np.dtype(bool))] if self.broken else []
        return (*flag, *numbers, *arrays, *fresh)

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
        if not isinstance(after, Array) or after.shape != before.shape:
            self._refuse(name, after)
        joined = np.result_type(self.arrays[name], after.dtype)
        if joined != before.dtype and (not self.runs or joined.kind not in "fc"):
            self._refuse(name, after)  # without an iteration it would keep its dtype
        self.arrays[name] = joined
        return converted(after, joined)

    def _kept(self, name: str, after: Any) -> None:
        """Checks that a name that is not carried still has its value."""
        before = self.before.get(name)
        if before is None or isinstance(before, Unbound):
            if self.runs and name in self.loop.live and isinstance(after, (*_PLAIN, Value)):
                self.fresh.setdefault(name, as_value(after))
        elif isinstance(before, Array):
            if not (isinstance(after, Array) and before.is_same(after)):
                self.arrays[name] = before.dtype
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
        found = {
            name: value if name in self.names or isinstance(value, Array) else Unbound(name)
            for name, value in values.items()
        }
        for (name, first), value in zip(self.fresh.items(), carried[len(carried) - len(self.fresh) :], strict=True):
            python = first.python if isinstance(first, Number) else type(first)
            found[name] = Array.of(value) if isinstance(first, Array) else Number(value, python)
        return found


def for_each(loop: Loop, items: Any, names: Mapping[str, Any], body: Callable, broken: str = "") -> dict[str, Any]:
    """`for` over a range, the rows of an array or several of these. broken: the name that says whether `break` left it.
    Returns the values of names after it."""
    count: Any  # known where it can be: reverse derivatives need a bound on the steps
    if isinstance(items, (range, Range)):
        start, stop, step = [converted(b, np.dtype(np.int64)) for b in (items.start, items.stop, items.step)]
        if isinstance(items, range):
            count = np.int64(len(items))
        else:
            count = hnp.maximum((stop - start + step - hnp.sign(step)) // step, 0)
        reached = _reached(items)
        take = lambda k: Number(start + k * step, int, reached)  # noqa: E731
    elif isinstance(items, Counted):
        array = items.array
        count = converted(items.count, np.dtype(np.int64))
        take = lambda k: array[Number(k, int, (0, len(array) - 1))]  # noqa: E731
    elif isinstance(items, Items):
        count = np.int64(len(items)) if items.count is None else converted(items.count, np.dtype(np.int64))
        take = lambda k: items.take(Number(k, int, (0, len(items) - 1)))  # noqa: E731
    else:
        array = as_value(items)
        count = np.int64(len(array))
        take = lambda k: array[Number(k, int, (0, len(array) - 1))]  # noqa: E731
    runs = not isinstance(items, Range) and not has_count(items) and len(items) > 0
    carry = _Carry(loop, names, broken, runs)
    while True:
        try:
            if not broken:
                found = lax.fori_loop(
                    np.int64(0), count, lambda k, values: carry.traced(body, values, take(k)), carry.first()
                )
                return carry.after(found)
            found = lax.while_loop(
                lambda state: (state[0] < count) & ~state[1],
                lambda state: (state[0] + 1, *carry.traced(body, state[1:], take(state[0]))),
                (np.int64(0), *carry.first()),
            )
            return carry.after(found[1:])
        except _Again:
            continue


def _reached(items: range | Range) -> tuple[int, int] | None:
    """The least and the greatest number of a range, where they are known."""
    start, stop, step = between(items.start), between(items.stop), between(items.step)
    if start is None or stop is None or step is None or step[0] * step[1] <= 0:
        return None
    return (start[0], stop[1] - 1) if step[0] > 0 else (stop[0] + 1, start[1])


def while_true(
    loop: Loop, names: Mapping[str, Any], test: Callable, body: Callable, broken: str, has_faults: Callable[[], Any]
) -> dict[str, Any]:
    """`while`. Returns the values of names after it. has_faults: whether an index was out of range, after which the
    test has no meaning; None if none can be."""
    assert isinstance(loop.node, ast.While)
    runs = isinstance(loop.node.test, ast.Constant) and bool(loop.node.test.value)
    carry = _Carry(loop, names, broken, runs)

    ends = False  # whether the loop ends at a fault

    def goes_on(values: Sequence[Any]) -> Any:
        found = converted(test(*carry.given(values)), np.dtype(bool))
        found = found & ~values[0] if broken else found
        return hnp.logical_and(found, hnp.logical_not(has_faults())) if ends else found

    def following(values: Sequence[Any]) -> tuple:
        made = carry.traced(body, values)
        if not ends and has_faults() is not None:
            raise _Again
        return made

    while True:
        try:
            return carry.after(lax.while_loop(goes_on, following, carry.first()))
        except _Again:
            ends = ends or has_faults() is not None


# --- lists and dicts


class Containers:
    """The lists, dicts and sets in values. Within a `with` block, which traces some statements, these change them; at
    its end they are as before.

    changed: those that a block has changed, by identity.
    """

    def __init__(self, values: Iterable[Any]):
        self._found: dict[int, tuple[Any, Any]] = {}  # the container, and a copy
        self.changed: dict[int, Any] = {}
        for value in values:
            self._add(value)

    def _add(self, value: Any) -> None:
        if isinstance(value, (list, dict, set)) and id(value) not in self._found:
            self._found[id(value)] = value, value.copy()
        elif not isinstance(value, tuple):
            return
        for part in value.values() if isinstance(value, dict) else value:
            self._add(part)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        for value, copied in self._found.values():
            if not _is_same(value, copied):
                self.changed[id(value)] = value
                _replace(value, copied)

    def contents(self) -> tuple:
        """What those that blocks have changed contain now."""
        self.changed |= {id(value): value for value, copied in self._found.values() if not _is_same(value, copied)}
        parts = [(tuple(v), tuple(v.values())) if isinstance(v, dict) else tuple(v) for v in self.changed.values()]
        return tuple(parts)

    def update(self, contents: Sequence[Any]) -> None:
        """Makes `contents` of what they contain."""
        for value, made in zip(self.changed.values(), contents, strict=True):
            _replace(value, dict(zip(*made, strict=True)) if isinstance(value, dict) else made)


def _is_same(value: Any, copied: Any) -> bool:
    if len(value) != len(copied):
        return False
    if isinstance(value, dict):
        return all(a is b and value[a] is copied[b] for a, b in zip(value, copied, strict=True))
    if isinstance(value, set):
        return {id(v) for v in value} == {id(v) for v in copied}
    return all(a is b for a, b in zip(value, copied, strict=True))


def _replace(value: Any, content: Any) -> None:
    value.clear()
    if isinstance(value, (dict, set)):
        value.update(content)
    else:
        value.extend(content)
