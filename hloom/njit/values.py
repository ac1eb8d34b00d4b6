"""The values of names in a NumPy program during tracing: numbers and mutable arrays.

A NumPy array is memory that several names share. Here it is a `Ref`, whose value is traced, and a view is a Ref
with the steps that lead from the whole array to the part. Dtypes are NumPy's: NumPy's functions determine the dtypes
that an operation converts its operands to (`ufunc.resolve_dtypes`).
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np

from hloom import lax
from hloom import numpy as hnp
from hloom.errors import ArgumentError, DTypeError, IndexOutOfBoundsError, UnsupportedError
from hloom.ir.records import record
from hloom.ir.source import Source, current_source
from hloom.njit.guards import checked, stored_where
from hloom.tracing.refs import Ref
from hloom.tracing.trace import as_array

__all__ = [
    "KINDS", "PYTHON", "Array", "Memory", "Number", "Unbound", "Undecided", "Value", "as_value", "between", "changes",
    "converted", "dtype_of", "traced",
]  # fmt: skip

# Types of Python's numbers, and the dtypes that they have alone; and back, by the kind of a dtype.
PYTHON = {bool: np.dtype(bool), int: np.dtype(np.int64), float: np.dtype(np.float64), complex: np.dtype(complex)}
KINDS = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


class Undecided(Exception):
    """A number has to be known while the program is traced. always: in loops that are kernels too."""

    def __init__(self, what: str, always: bool = False):
        super().__init__(what)
        self.what, self.always, self.source = what, always, current_source()


class Value:
    """A number or an array of a traced program. Operators are NumPy's ufuncs: `hloom.njit.operators` adds them."""

    __slots__ = ()
    __array_ufunc__ = None  # so that NumPy's arrays leave operators to this class

    @property
    @abstractmethod
    def traced(self) -> Any:
        """The array of hloom that it is now."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.traced.shape

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.traced.dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def _known(self, what: str) -> NoReturn:
        raise Undecided(what)

    def __bool__(self) -> bool:
        return self._known("a truth value")

    def __int__(self) -> int:
        self._known("an integer")

    def __float__(self) -> float:
        self._known("a number")

    def __complex__(self) -> complex:
        self._known("a number")

    def __index__(self) -> int:
        return self._known("an integer")

    def __str__(self) -> str:
        raise Undecided("text", always=True)

    def __format__(self, spec: str) -> str:
        raise Undecided("text", always=True)

    def __hash__(self) -> int:
        raise Undecided("a key", always=True)

    def __array__(self, dtype=None, copy=None):
        self._known("an array")


class Number(Value):
    """A number of NumPy, or of Python: `python` is then its type, which takes the dtype of the other operand.

    between: the least and the greatest integer that it can be, where they are known.
    """

    __slots__ = ("_value", "between", "python")

    def __init__(self, value: Any, python: type | None = None, between: tuple[int, int] | None = None):
        self._value, self.python, self.between = value, python, between

    @property
    def traced(self) -> Any:
        return self._value

    @property
    def real(self) -> Number:
        return Number(self.traced.real, self.python and (float if self.python is complex else self.python))

    @property
    def imag(self) -> Number:
        return Number(self.traced.imag, self.python and (float if self.python is complex else self.python))

    @property
    def T(self) -> Number:  # noqa: N802  (NumPy's name)
        return self

    def __getitem__(self, index: Any) -> Any:
        if index == ():
            return self
        entries = index if isinstance(index, tuple) else (index,)
        if not all(entry is None or entry is Ellipsis for entry in entries):
            raise TypeError(f"'{self.dtype}' object is not subscriptable")
        return Array.of(self.traced[index])

    def __repr__(self) -> str:
        return f"a number of {self.dtype}"


def between(value: Any) -> tuple[int, int] | None:
    """The least and the greatest integer that a number can be, where they are known."""
    if isinstance(value, Number):
        return value.between
    return (int(value), int(value)) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else None


@record(frozen=True)
class Step:
    """From an array to a part of it. take: the part. put: the array in which the part has other elements."""

    take: Callable[[Any], Any]
    put: Callable[[Any, Any], Any]


class Changes:
    """What changes while an expression is traced that Python may not evaluate, or not as often. made: arrays made
    within it, which may change."""

    def __init__(self) -> None:
        self.made: set[int] = set()
        self.kept: list[Memory] = []  # so that ids stay those of the arrays made
        self.before: dict[int, tuple[Memory, Any]] = {}  # what others were before they changed

    @property
    def changed(self) -> bool:
        return bool(self.before)

    def take_back(self) -> None:
        """Gives the arrays from before it their values again."""
        for memory, value in self.before.values():
            memory.write(value)

    def none_in(self, part: Callable[[], Any], source: Source | None) -> Any:
        """The value of an expression that changes no array from before it."""
        value = part()
        if self.changed:
            raise UnsupportedError(
                "a change of an array, or a draw of a random number, in a conditional expression, `and`, `or`, a chain "
                "of comparisons or the test of a loop", "how often it happens would depend on a computed value",
                "assign the value to a name before, or in an if statement", source,
            )  # fmt: skip
        return value


_changes: ContextVar[tuple[Changes, ...]] = ContextVar("changes", default=())


@contextmanager
def changes() -> Iterator[Changes]:
    """Notes what changes within it."""
    found = Changes()
    before = _changes.set((*_changes.get(), found))
    try:
        yield found
    finally:
        _changes.reset(before)


class Memory(Ref):
    """A Ref that counts its writes, as the program is traced."""

    __slots__ = ("writes",)

    def __init__(self, value: Any):
        super().__init__(value)
        self.writes = 0
        for found in _changes.get():
            found.made.add(id(self))
            found.kept.append(self)

    def write(self, value: Any) -> None:
        self.writes += 1
        for found in _changes.get():
            if id(self) not in found.made:
                found.before.setdefault(id(self), (self, self.read()))
        super().write(value)


class Array(Value):
    """Memory, or a view of some.

    ref: its value. steps: from the whole array to the part. layout: an array of NumPy whose elements lie as these do in
    the memory of the whole one; nothing reads or writes it. None: the program computes how many there are. fixed: why
    the array cannot be changed in place, or ''. origins: arrays that it may be, and how
    often these were written before.
    """

    __slots__ = ("fixed", "layout", "moved", "origins", "ref", "steps", "strided")

    def __init__(self, ref: Memory, steps: tuple[Step, ...] = (), layout: np.ndarray | None = None):
        self.ref, self.steps = ref, steps
        if layout is None and all(isinstance(n, int) for n in ref.shape):
            layout = np.empty(ref.shape, ref.dtype)
        self.layout = layout
        self.fixed = ""
        self.strided = False  # whether it is an argument that NumPy does not have in C order
        self.origins: tuple[tuple[Memory, int], ...] = ()
        self.moved = False  # whether its place in the whole is computed; `layout` is that of the first place

    @classmethod
    def of(cls, value: Any) -> Array:
        """New memory with the elements of an array."""
        value = as_array(value, "an array")
        return cls(Memory(value.astype(value.dtype) if value.weak else value))

    @classmethod
    def one_of(cls, value: Any, reason: str, origins: Iterable[Memory]) -> Array:
        """An array that may be one of others, or a view of one, as the program decides. It is read like any other as
        long as these are not changed."""
        made = cls.of(value)
        made.fixed = reason
        made.origins = tuple([(ref, ref.writes) for ref in origins])
        return made

    def require_current(self) -> None:
        """Refuses to read an array that may be one that was changed since."""
        if any(ref.writes != before for ref, before in self.origins):
            raise UnsupportedError("an array after a change in place of another one",
                                   f"{self.fixed}, and it may be the one that was changed",
                                   "make a copy in the branch or the loop: x = x.copy()")  # fmt: skip

    @property
    def traced(self) -> Any:
        self.require_current()
        value = self.ref.read()
        for step in self.steps:
            value = step.take(value)
        return value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.ref.shape if self.layout is None else self.layout.shape

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.ref.dtype) if self.layout is None else self.layout.dtype

    def write(self, value: Any) -> None:
        """Other elements, of the same shape and dtype."""
        if self.fixed:
            raise UnsupportedError("a change in place of an array", self.fixed, "change a copy: x = x.copy()")
        wholes = [self.ref.read()]
        for step in self.steps[:-1]:
            wholes.append(step.take(wholes[-1]))
        for step, whole in zip(reversed(self.steps), reversed(wholes), strict=False):
            value = step.put(whole, value)
        self.ref.write(value)

    @staticmethod
    def _part_of_counted(value: Any) -> Array:
        """A view in NumPy, of an array whose size the program computes."""
        made = Array.of(value)
        made.fixed = "it is a part of an array whose size the program computes"
        return made

    def is_same(self, other: Array) -> bool:
        """Whether two arrays are the same elements of the same memory."""
        return self.ref is other.ref and self.steps == other.steps

    def view(self, step: Step, layout: np.ndarray) -> Array:
        made = Array(self.ref, (*self.steps, step), layout)
        made.moved, made.fixed, made.strided, made.origins = self.moved, self.fixed, self.strided, self.origins
        return made

    # --- indices

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self):
        return (self[k] for k in range(len(self)))  # each element as it is then

    def __getitem__(self, index):
        given = index
        index, basic, numbers = _index(index, self.shape)
        found = self.traced[index]
        if not basic:
            return Array.of(found) if found.shape else Number(found)
        if numbers and found.shape and self.layout is not None:
            entries = given if isinstance(given, tuple) else (given,)
            first = tuple([0 if isinstance(e, Number) else e for e in entries])
            made = self.view(_part(index), self.layout[first])
            made.moved = True
            return made
        if not found.shape and not _has_ellipsis(index):
            return Number(found)
        if self.layout is None:
            return self._part_of_counted(found)
        return self.view(_part(index), self.layout[index])

    def __setitem__(self, index, value) -> None:
        index, _, _ = _index(index, self.shape)
        value = as_value(value)
        _require_same_kind(value, self.dtype, "x[...] = y")
        whole, given = self.traced, converted(value, self.dtype)
        stored = stored_where(whole, index, given)
        self.write(whole.at[index].set(given) if stored is None else stored)

    def assign(self, value: Any) -> None:
        """`self[...] = value`."""
        self[...] = value

    # --- NumPy's views

    def reshape(self, *shape) -> Array:
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
        if self.strided and self.ndim > 1:
            reason = "it is a reshape of an argument that is not in C order, in NumPy a copy or a view"
            return Array.one_of(self.traced.reshape(shape), reason, [self.ref])
        try:
            if self.layout is None:
                raise ValueError
            layout = self.layout.reshape(shape, copy=False)
        except ValueError:  # its elements do not lie so that this is a view, or the shape does not fit
            made = self.traced.reshape(shape)
            return self._part_of_counted(made) if self.layout is None else Array.of(made)
        before, after = self.shape, layout.shape
        step = Step(lambda v: v.reshape(after), lambda whole, part: part.reshape(before))
        return self.view(step, layout)

    def transpose(self, *axes) -> Array:
        axes = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        if self.layout is None:
            return self._part_of_counted(self.traced.transpose(*axes))
        order = tuple(reversed(range(self.ndim))) if not axes else tuple([a % self.ndim for a in axes])
        back = tuple(np.argsort(order).tolist())
        step = Step(lambda v: v.transpose(order), lambda whole, part: part.transpose(back))
        return self.view(step, self.layout.transpose(order))

    @property
    def T(self) -> Array:  # noqa: N802  (NumPy's name)
        return self.transpose()

    @property
    def flat(self) -> Array:
        """The elements in C order: a view, or a copy that cannot be changed."""
        before = self.shape
        layout = None if self.layout is None else self.layout.reshape(-1)
        if layout is None or not np.shares_memory(layout, self.layout):
            made = Array.of(self.traced.reshape(-1))
            made.fixed = "it is x.flat of an array that is not in C order"
            return made
        return self.view(Step(lambda v: v.reshape(-1), lambda whole, part: part.reshape(before)), layout)

    @property
    def real(self):
        if self.dtype.kind != "c" or self.layout is None:
            return self if self.dtype.kind != "c" else self._part_of_counted(self.traced.real)
        return self.view(Step(lambda v: v.real, lambda whole, part: lax.complex(part, whole.imag)), self.layout.real)

    @property
    def imag(self):
        if self.layout is None:
            return self._part_of_counted(self.traced.imag)
        if self.dtype.kind != "c":
            made = Array.of(hnp.zeros(self.shape, self.dtype))
            made.fixed = "it is the imaginary part of real numbers"
            return made
        return self.view(Step(lambda v: v.imag, lambda whole, part: lax.complex(whole.real, part)), self.layout.imag)

    def __repr__(self) -> str:
        return f"an array of {self.dtype}{list(self.shape)}"


class Unbound:
    """The value of a name that is unassigned on some paths."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def _fail(self, *_: Any, **__: Any):
        raise ArgumentError(
            f"the value of '{self.name}'", "it is assigned in one branch, or in a loop, and not before",
            "assign it before the branch or loop",
        )  # fmt: skip

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __getitem__ = __bool__ = __iter__ = (
        _fail
    )
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __call__ = __setitem__ = __len__ = __index__ = __float__ = _fail

    @property
    def traced(self) -> Any:
        return self._fail()


def _part(index: Any) -> Step:
    return Step(lambda v: v[index], lambda whole, part: whole.at[index].set(part))


def _has_ellipsis(index: Any) -> bool:
    return any(entry is Ellipsis for entry in (index if isinstance(index, tuple) else (index,)))


def _index(index: Any, shape: tuple[int, ...]) -> tuple[Any, bool, bool]:
    """(the index for hloom's arrays, whether it is basic, whether numbers in it are traced). Raises
    IndexOutOfBoundsError."""
    entries = [_of_list(e) if isinstance(e, list) else e for e in (index if isinstance(index, tuple) else (index,))]
    taken = [_axes_of(entry) for entry in entries]
    if sum(taken) > len(shape):
        raise IndexOutOfBoundsError(f"{sum(taken)} indices", f"an array of {len(shape)} dimensions", "use fewer")
    made: list[Any] = []
    axis = 0
    for entry, count in zip(entries, taken, strict=True):
        made.append(_entry(entry, axis, shape))
        axis += len(shape) - sum(taken) if entry is Ellipsis else count
    arrays = any(isinstance(e, Array) or (isinstance(e, np.ndarray) and e.ndim) for e in entries)
    numbers = any(isinstance(e, Number) for e in entries)
    return (tuple(made) if isinstance(index, tuple) else made[0]), not arrays, numbers


def _of_list(entry: list) -> Any:
    """A list as an index: an array of NumPy where all its elements are known."""
    return as_value(entry) if any(isinstance(e, Value) for e in entry) else np.asarray(entry)


def _axes_of(entry: Any) -> int:
    """How many axes an entry of an index takes."""
    if entry is None or entry is Ellipsis:
        return 0
    is_mask = isinstance(entry, (Array, np.ndarray)) and entry.dtype.kind == "b"
    return entry.ndim if is_mask else 1


def _entry(entry: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """An entry of an index, as hloom's arrays take it. axis: the first that it takes."""
    if entry is None or entry is Ellipsis:
        return entry
    if isinstance(entry, slice):
        return slice(*[_bound(b) for b in (entry.start, entry.stop, entry.step)])
    if isinstance(entry, Number):
        if entry.dtype.kind == "b":
            raise UnsupportedError("an index by a truth value", "a traced number", "use np.where")
        return checked(entry.traced, axis, shape[axis], entry.between)
    if isinstance(entry, Array):
        return entry.traced if entry.dtype.kind not in "iu" else checked(entry.traced, axis, shape[axis])
    if isinstance(entry, np.ndarray) and entry.ndim:
        if entry.dtype.kind in "iu" and ((entry < -shape[axis]) | (entry >= shape[axis])).any():
            raise IndexOutOfBoundsError(
                f"elements {entry.tolist()} of axis {axis}", f"its size is {shape[axis]}",
                "use indices within the array",
            )  # fmt: skip
        return entry
    at = operator.index(entry)
    if not -shape[axis] <= at < shape[axis]:
        raise IndexOutOfBoundsError(
            f"element {at} of axis {axis}", f"its size is {shape[axis]}", "use an index within the array"
        )
    return at


def _bound(bound: Any) -> int | None:
    return None if bound is None else operator.index(bound)


# --- dtypes


def as_value(value: Any) -> Any:
    """A traced value, or a number of Python; arrays of NumPy become constants."""
    if isinstance(value, Value) or type(value) in PYTHON:
        return value
    if isinstance(value, (list, tuple)):
        parts = [as_value(v) for v in value]
        if all(not isinstance(p, Value) for p in parts):
            return Array.of(hnp.asarray(np.asarray(value)))
        dtype = np.result_type(*map(dtype_of, parts))
        return Array.of(hnp.stack([converted(p, dtype) for p in parts]))
    if isinstance(value, np.generic):
        return Number(hnp.asarray(value))
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            raise DTypeError("an array in a compiled NumPy program", f"dtype {value.dtype}", "use numbers")
        return Array.of(hnp.asarray(value))
    return Array.of(value) if getattr(value, "shape", None) else Number(as_array(value, "a number"))


def dtype_of(value: Any) -> np.dtype:
    found = PYTHON.get(type(value))
    return value.dtype if found is None else found


def traced(value: Any) -> Any:
    """The argument for hloom's functions."""
    return value.traced if isinstance(value, Value) else value


def converted(value: Any, dtype: np.dtype) -> Any:
    """The array of hloom in a dtype."""
    value = as_value(value)
    if not isinstance(value, Value):
        if type(value) is int and dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            raise DTypeError(f"the Python integer {value} with the dtype {dtype}", f"it is out of bounds for {dtype}",
                             "convert the other operand to a wider dtype first: x.astype(np.int64)")  # fmt: skip
        return hnp.asarray(np.asarray(value).astype(dtype))
    found = value.traced
    if found.dtype == dtype and not found.weak:
        return found
    if value.dtype.kind == "c" and dtype.kind not in "cb":
        found = found.real
    return found.astype(dtype)


def _require_same_kind(value: Any, dtype: np.dtype, what: str) -> None:
    own = dtype_of(value)
    if own.kind == "c" and dtype.kind != "c":
        raise DTypeError(what, f"complex values into {dtype}", "take their real part")
