"""Sizes that depend on named dimensions, with Python's operators.

A size is an integer or a `SizeExpression`. Arithmetic with expressions returns sizes: an integer if the result is
constant. Comparisons are True or False if bounds and assumptions decide them; otherwise they are a `Comparison`, whose
truth value raises an error that names the undecided condition.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from keyword import iskeyword
from typing import Any, ClassVar, TypeAlias

from hloom.ir.errors import ArgumentError, ShapeError, UndecidedSizeError
from hloom.ir.sizes import bounds, facts, forms, reading
from hloom.ir.sizes import terms as t
from hloom.ir.sizes.facts import Facts
from hloom.ir.sizes.terms import Symbol, Terms
from hloom.ir.sizes.text import written

__all__ = [
    "LARGEST", "Comparison", "Dim", "Scope", "Size", "SizeExpression", "assume", "assuming", "dims_of",
    "greatest", "highest", "is_known", "known_facts", "least", "lowest", "parsed_size", "parsed_sizes", "scopes_of",
    "single", "size_at", "size_of_terms", "size_with",
]  # fmt: skip

LARGEST = 1 << 40  # the bound of an unbounded dimension
_FACTS: ContextVar[Facts] = ContextVar("facts of sizes", default=facts.NONE)


class SizeExpression:
    """A size that depends on dimensions. terms: its canonical form."""

    __slots__ = ("_hash", "terms")
    terms: Terms
    # Set by tracing: the value of a size as a scalar array, and a NumPy function on values.
    to_array: ClassVar[Callable[[SizeExpression], Any] | None] = None
    to_function: ClassVar[Callable[[str, list], Any] | None] = None

    def __init__(self, terms: Terms):
        self.terms = terms
        self._hash = t.hash_of(terms)

    def at(self, sizes: Mapping[str, int]) -> int:
        """The value for sizes of the dimensions, by name. Raises ShapeError for a division by 0."""
        return t.at(self.terms, sizes)

    # --- arithmetic ---

    def __add__(self, other: Any) -> Any:
        right = _terms(other)
        return _with_number(operator.add, self, other) if right is None else _size(t.plus(self.terms, right))

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __sub__(self, other: Any) -> Any:
        right = _terms(other)
        return _with_number(operator.sub, self, other) if right is None else _size(t.minus(self.terms, right))

    def __rsub__(self, other: Any) -> Any:
        left = _terms(other)
        return _with_number(operator.sub, other, self) if left is None else _size(t.minus(left, self.terms))

    def __mul__(self, other: Any) -> Any:
        right = _terms(other)
        return _with_number(operator.mul, self, other) if right is None else _size(t.times(self.terms, right))

    def __rmul__(self, other: Any) -> Any:
        return self * other

    def __floordiv__(self, other: Any) -> Any:
        right = _terms(other)
        return NotImplemented if right is None else _size(forms.quotient(self.terms, right))

    def __rfloordiv__(self, other: Any) -> Any:
        left = _terms(other)
        return NotImplemented if left is None else _size(forms.quotient(left, self.terms))

    def __mod__(self, other: Any) -> Any:
        right = _terms(other)
        return NotImplemented if right is None else self - _size(t.times(right, forms.quotient(self.terms, right)))

    def __rmod__(self, other: Any) -> Any:
        left = _terms(other)
        return NotImplemented if left is None else other - self * (other // self)

    def __divmod__(self, other: Any) -> Any:
        return NotImplemented if _terms(other) is None else (self // other, self % other)

    def __rdivmod__(self, other: Any) -> Any:
        return NotImplemented if _terms(other) is None else (other // self, other % self)

    def as_array(self) -> Any:
        """The value as a scalar array, or as an integer if known. Raises UndecidedSizeError outside of a trace."""
        found = next((known for scope in scopes_of(self) if (known := scope.value(self)) is not None), None)
        if found is not None:
            return found
        if SizeExpression.to_array is None:
            raise self._refused("the value of", "compute with sizes in a traced function")
        return SizeExpression.to_array(self)

    def __truediv__(self, other: Any) -> Any:
        return self.as_array() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.as_array()

    def __pow__(self, exponent: Any) -> Any:
        if not isinstance(exponent, (int, float)):
            return NotImplemented
        if not isinstance(exponent, int) or exponent < 0:
            return self.as_array() ** exponent
        result = t.number(1)
        for _ in range(exponent):
            result = t.times(result, self.terms)
        return _size(result)

    def __neg__(self) -> SizeExpression:
        return SizeExpression(t.scaled(self.terms, -1))

    def __pos__(self) -> SizeExpression:
        return self

    def __abs__(self) -> SizeExpression:
        return self if self >= 0 else -self

    # --- comparisons ---

    def __eq__(self, other: object) -> Any:
        same = self is other or (isinstance(other, SizeExpression) and self.terms == other.terms)  # needs no proof
        return True if same else _compared(self, other, "==")

    def __ne__(self, other: object) -> Any:
        return False if self is other else _compared(self, other, "!=")

    def __ge__(self, other: Any) -> Any:
        return _compared(self, other, ">=")

    def __gt__(self, other: Any) -> Any:
        return _compared(self, other, ">")

    def __le__(self, other: Any) -> Any:
        return _compared(self, other, "<=")

    def __lt__(self, other: Any) -> Any:
        return _compared(self, other, "<")

    def __hash__(self) -> int:
        """Raises UndecidedSizeError where lookups by size are forbidden: a dict keyed by numbers would silently not
        find it."""
        if any([scope.refuses_lookups for scope in scopes_of(self)]):
            raise self._refused("a dict or set looked up by", "compare sizes, or compute with arrays")
        return self._hash

    def __bool__(self) -> bool:
        return bool(self != 0)

    # --- conversion to a number: it has none yet ---

    def _refused(self, asked: str, repair: str) -> UndecidedSizeError:
        found = "it is known when the program is called"
        for scope in scopes_of(self):
            found, repair = scope.advice() or (found, repair)
        return UndecidedSizeError(f"{asked} the size {self}", found, repair)

    def number(self) -> int | None:
        """The number determined by its dimensions, or by a guard that is recorded here; None if it is open."""
        return next((found for scope in scopes_of(self) if (found := scope.number(self)) is not None), None)

    def __index__(self) -> int:
        if (found := self.number()) is not None:
            return found
        raise self._refused("a Python integer of", "use the size itself (2*n, n//2), or loop with lax.fori_loop")

    def __int__(self) -> int:
        if (found := self.number()) is not None:
            return found
        raise self._refused("int() of", "use the size itself: n, 2*n, n//2")

    def __float__(self) -> float:
        if (found := self.number()) is not None:
            return float(found)
        raise self._refused("float() of", "compute with arrays: 1 / n, hnp.sqrt(n)")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if SizeExpression.to_function is None or method != "__call__" or options:
            raise self._refused(f"numpy.{ufunc.__name__} of", "use the function of hloom.numpy instead of numpy's")
        return SizeExpression.to_function(ufunc.__name__, list(inputs))

    def __format__(self, spec: str) -> str:
        """The text of the size; of the number if there is one, as in kernel sources."""
        found = self.number()
        return format(str(self) if found is None else found, spec)

    def __repr__(self) -> str:
        return written(self.terms)

    def __reduce__(self):
        return SizeExpression, (self.terms,)


Size: TypeAlias = int | SizeExpression


class Dim(SizeExpression):
    """A named dimension with any size from `min` to `max` that is a multiple of `multiple_of`.

    name: an identifier; equal names are the same dimension and must have the same bounds. max: None if unbounded;
    `most` is always a number. scope: additional facts about it. Raises ArgumentError.

        x = hl.ShapeDtypeStruct((hl.Dim("batch", 1, 4096), 784), "float32")

    >>> hl.eval_shape(lambda x: hnp.concatenate([x, x[1:]]), hl.ShapeDtypeStruct((hl.Dim("n"), 8), "f32")).shape
    (2*n - 1, 8)
    """

    __slots__ = ("max", "min", "most", "multiple_of", "name")

    def __init__(
        self, name: str, min: int = 1, max: int | None = None, *, multiple_of: int = 1, scope: Scope | None = None
    ):
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii() or iskeyword(name):
            raise ArgumentError(f"Dim({name!r})", "its name is not an identifier", "pass a name such as 'batch'")
        given = f"Dim({name!r}, {min!r}, {max!r}, multiple_of={multiple_of!r})"
        repair = f"pass integers, such as Dim({name!r}, 1, 4096)"
        if any(type(n) is not int for n in (min, multiple_of, *(() if max is None else (max,)))):
            raise ArgumentError(given, "bounds and multiples are integers", repair)
        most = LARGEST if max is None else max
        if not 0 <= min <= most <= LARGEST or multiple_of < 1:
            found = f"0 <= min <= max <= {LARGEST:,} and multiple_of >= 1 do not hold"
            raise ArgumentError(given, found, repair)
        low, high = -(-min // multiple_of), most // multiple_of
        if low > high:
            raise ArgumentError(given, f"no size from {min} to {most} is a multiple of {multiple_of}", repair)
        self.name, self.min, self.max, self.multiple_of, self.most = name, min, max, multiple_of, most
        super().__init__(t.of(Symbol(name, low, high, multiple_of, scope), multiple_of))

    @property
    def scope(self) -> Scope | None:
        """Additional facts about it, if any."""
        symbol = self.terms[0][0][0]
        return symbol.scope if isinstance(symbol, Symbol) else None

    def takes(self, size: int) -> bool:
        """Whether a size is allowed."""
        return self.min <= size <= self.most and size % self.multiple_of == 0

    def declaration(self) -> str:
        """As in code: Dim('n', min=1, max=4096)."""
        bound = "" if self.max is None else f", max={self.max}"
        return (
            f"Dim({self.name!r}, min={self.min}{bound}{f', multiple_of={self.multiple_of}' * (self.multiple_of > 1)})"
        )

    def __reduce__(self):
        return _dim, (self.name, self.min, self.max, self.multiple_of)


def _dim(name: str, low: int, high: int | None, multiple: int) -> Dim:
    return Dim(name, low, high, multiple_of=multiple)


class Scope:
    """Facts about dimensions that hold wherever they are used. comparisons: with the user's text of each. answered:
    results already proved, which remain valid with more facts. answers_all: whether `decide` answers every question, so
    that proofs are unnecessary. refuses_lookups: whether sizes cannot be dict keys, as in functions written for
    numbers: `{8: a}.get(n, b)` would not ask for a decision."""

    __slots__ = ("answered", "comparisons", "facts", "trace")
    in_general = True  # whether a size is assumed to be at least 2 while a function of such arrays is traced
    answers_all = refuses_lookups = False

    def __init__(self, trace: Any = None) -> None:
        self.comparisons: tuple[tuple[str, Comparison], ...] = ()
        self.facts = facts.NONE
        self.answered: dict[tuple[Terms, str, Terms], bool] = {}
        self.trace = trace  # in which values of sizes are computed if no other is current

    def add(self, text: str, comparison: Comparison) -> None:
        self.comparisons += ((text, comparison),)
        self.facts = assumed(self.facts, comparison)

    def decide(self, comparison: Comparison) -> bool | None:
        """Decides a comparison that facts leave open; None: undecided."""
        return None

    def number(self, size: SizeExpression) -> int | None:
        """The number of a size; None if known only when the program is called."""
        return None

    def advice(self) -> tuple[str, str] | None:
        """(why it has no number yet, what to do) for errors; None for the default."""
        return None

    def value(self, size: SizeExpression) -> int | None:
        """The number that represents the value of a size in a program; None if the program computes it."""
        return self.number(size)


class Comparison:
    """A comparison of sizes. how: '==', '!=', '>=', '>', '<=' or '<'. It has no truth value, as it exists only where
    bounds and assumptions do not decide."""

    __slots__ = ("how", "left", "right")

    def __init__(self, left: Size, how: str, right: Size):
        self.left, self.how, self.right = left, how, right

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds for given sizes of the dimensions, by name."""
        return bool(_PYTHON[self.how](size_at(self.left, sizes), size_at(self.right, sizes)))

    def __bool__(self) -> bool:
        for scope in scopes_of(self.left, self.right):
            if (answer := scope.decide(self)) is not None:
                return answer
        dims = {**dims_of(self.left), **dims_of(self.right)}
        low = ", ".join([f"{name} >= {dim.min}" for name, dim in dims.items()])
        found = f"it holds for some sizes only, and {low} alone is known"
        apart = [name for name, dim in dims_of(self.left).items() if dim.terms != dims[name].terms]
        if apart:
            found = f"there are two dimensions {apart[0]!r}, with different bounds or constraints"
        said = self._decided_by(dims) or "hl.Dim('n', min=2)"
        raise UndecidedSizeError(
            f"a decision by {self!r}",
            found,
            f"say what holds by the bounds of the dimension ({said}), or compute both ways with hnp.where",
        )

    def _decided_by(self, dims: Mapping[str, Dim]) -> str | None:
        """A declaration of one of the dimensions that would decide it: as a multiple of its divisor."""
        for divisor in [d for side in (self.left, self.right) for d in divisors_of(side) if isinstance(d, int)]:
            for name, dim in dims.items():
                multiple = dim.multiple_of * divisor
                if multiple < 1 or -(-dim.min // multiple) > dim.most // multiple:
                    continue
                said = Dim(name, dim.min, dim.max, multiple_of=multiple, scope=dim.scope)
                if not isinstance(self.over({**dims, name: said}), Comparison):
                    return f"hl.{said.declaration()}"
        return None

    def __int__(self) -> int:
        return int(bool(self))

    def __repr__(self) -> str:
        return f"{self.left!s} {self.how} {self.right!s}"

    def over(self, sizes: Mapping[str, Size]) -> Comparison | bool:
        """The comparison with dimensions substituted by sizes, by name."""
        compared: Comparison | bool = _PYTHON[self.how](size_with(self.left, sizes), size_with(self.right, sizes))
        return compared


_PYTHON = {
    "==": operator.eq, "!=": operator.ne, ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt,
}  # fmt: skip


def _compared(left: SizeExpression, right: Any, how: str) -> Any:
    if isinstance(right, float) and math.isinf(right):
        return _PYTHON[how](0.0, right)  # sizes are finite
    other = _terms(right)
    if other is None:
        return NotImplemented
    known, scopes = _FACTS.get(), scopes_of(left, right)
    answered = scopes[0].answered if len(scopes) == 1 and not known else None
    if answered is not None and (found := answered.get((left.terms, how, other))) is not None:
        return found
    if any([scope.answers_all for scope in scopes]):
        decided = _decided(left.terms, other, facts.INTERVALS, how)
    else:
        for scope in scopes:
            known = known.joined(scope.facts)
        decided = _decided(*_tightened(left.terms, other, known), how)
    if decided is None:
        return Comparison(left, how, right)
    if answered is not None:
        answered[left.terms, how, other] = decided
    return decided


def _with_number(function: Callable, left: Any, right: Any) -> Any:
    """The result for a size and a float, which is an array; NotImplemented for non-numbers."""
    if not any(isinstance(one, (float, complex)) for one in (left, right)):
        return NotImplemented
    return function(*[one.as_array() if isinstance(one, SizeExpression) else one for one in (left, right)])


def _tightened(left: Terms, right: Terms, known: Facts) -> tuple[Terms, Terms, Facts]:
    """Both sides and the facts with symbols that have the assumed bounds, whose canonical form leaves less to prove."""
    lows = {s: low for s, low in known.lows().items() if low <= s.high} if known else {}
    if not lows:
        return left, right, known
    mapping = {s: t.of(Symbol(s.name, low, s.high, s.multiple, s.scope)) for s, low in lows.items()}
    facts_left = [forms.replaced(one, mapping) for one in known.nonnegative]
    nonzero = [forms.replaced(one, mapping) for one in known.nonzero]
    return forms.replaced(left, mapping), forms.replaced(right, mapping), Facts([f for f in facts_left if f], nonzero)


def _decided(left: Terms, right: Terms, known: Facts, how: str) -> bool | None:
    difference = t.minus(left, right)
    if how in ("==", "!="):
        found = known.is_zero(difference)
        return found if how == "==" or found is None else not found
    if how in ("<", "<="):
        difference = t.scaled(difference, -1)
    return known.is_nonnegative(difference if how in (">=", "<=") else t.plus(difference, t.number(-1)))


def assumed(known: Facts, comparison: Comparison) -> Facts:
    """The facts extended by one."""
    difference = t.minus(_terms(comparison.left) or t.ZERO, _terms(comparison.right) or t.ZERO)
    how = comparison.how
    if how == "!=":
        return known.with_nonzero(difference)
    if how == "==":
        return known.with_nonnegative(difference, t.scaled(difference, -1))
    if how in ("<", "<="):
        difference = t.scaled(difference, -1)
    return known.with_nonnegative(difference if how in (">=", "<=") else t.plus(difference, t.number(-1)))


@contextlib.contextmanager
def assuming(*comparisons: Comparison | bool) -> Iterator[None]:
    """A block in which comparisons are assumed, including those added by `assume` until its end."""
    token = _FACTS.set(_FACTS.get())
    try:
        for comparison in comparisons:
            assume(comparison)
        yield
    finally:
        _FACTS.reset(token)


def known_facts() -> tuple[tuple[Terms, ...], ...]:
    """A comparable key of the current assumptions; () if there are none."""
    known = _FACTS.get()
    return (known.nonnegative, known.nonzero) if known else ()


def assume(comparison: Comparison | bool) -> Comparison | None:
    """Adds a comparison of sizes to the current assumptions. Returns it; None if already known.

    Raises ShapeError if it cannot hold, ArgumentError if it is not a comparison of sizes.
    """
    if isinstance(comparison, Comparison):
        _FACTS.set(assumed(_FACTS.get(), comparison))
        return comparison
    if comparison is True:
        return None
    if comparison is False:
        raise ShapeError(
            "assume(...) of sizes", "it holds for no sizes within their bounds", "correct the bounds of the Dim"
        )
    raise ArgumentError(
        "assume(...)", f"{type(comparison).__name__} is not a comparison of sizes", "pass n % 2 == 0 or n <= m"
    )


# --- sizes, including integers ---


def is_known(answer: Any) -> bool:
    """Whether a comparison of sizes is decided, and holds."""
    return not isinstance(answer, Comparison) and bool(answer)


def _size(terms: Terms) -> Size:
    value = t.value_of(terms)
    return SizeExpression(terms) if value is None else value


def _terms(size: Any) -> Terms | None:
    """The polynomial of a size; None for anything else."""
    if isinstance(size, SizeExpression):
        return size.terms
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        return None
    try:
        return t.number(operator.index(size))
    except TypeError:  # a non-integer array
        return None


def size_at(size: Size, sizes: Mapping[str, int]) -> int:
    """The value of a size for given sizes of the dimensions, by name."""
    return size.at(sizes) if isinstance(size, SizeExpression) else size


def size_with(size: Size, sizes: Mapping[str, Size]) -> Size:
    """A size with dimensions substituted by sizes, by name."""
    if not isinstance(size, SizeExpression):
        return size
    return _size(forms.with_sizes(size.terms, {name: _terms(given) or t.ZERO for name, given in sizes.items()}))


def dims_of(size: Any) -> dict[str, Dim]:
    """The dimensions of a size, by name."""
    if isinstance(size, Dim):
        return {size.name: size}
    found = t.symbols(size.terms) if isinstance(size, SizeExpression) else {}
    return {name: _of_symbol(symbol) for name, symbol in found.items()}


def divisors_of(size: Any) -> list[Size]:
    """The divisors of the floor quotients in a size, inner ones first."""
    found: dict[Terms, None] = {}

    def look(terms: Terms) -> None:
        for atom in [atom for monomial, _ in terms for atom in monomial]:
            for part in atom.parts():
                look(part)
            if isinstance(atom, t.Quotient):
                found.setdefault(atom.divisor)

    look(size.terms if isinstance(size, SizeExpression) else ())
    return [_size(terms) for terms in found]


def scopes_of(*sizes: Any) -> list[Scope]:
    """The scopes of the dimensions of sizes, each once."""
    symbols = [symbol for one in sizes if isinstance(one, SizeExpression) for symbol in t.symbols(one.terms).values()]
    return list(dict.fromkeys([symbol.scope for symbol in symbols if symbol.scope is not None]))


def _of_symbol(symbol: Symbol) -> Dim:
    times = symbol.multiple
    most = None if symbol.high == LARGEST // times else symbol.high * times
    return Dim(symbol.name, symbol.low * times, most, multiple_of=times, scope=symbol.scope)


def single(size: Any) -> Dim | None:
    """The dimension that a size consists of; None for other sizes."""
    if isinstance(size, Dim):
        return size
    found = dims_of(size)
    return next((dim for dim in found.values() if dim.terms == size.terms), None) if len(found) == 1 else None


def least(*sizes: Size) -> Any:
    """The minimum of some sizes."""
    if not any([isinstance(size, SizeExpression) for size in sizes]):
        return min(sizes)
    return _size(forms.extremum("min", [_terms(size) or t.ZERO for size in sizes]))


def greatest(*sizes: Size) -> Any:
    """The maximum of some sizes."""
    if not any([isinstance(size, SizeExpression) for size in sizes]):
        return max(sizes)
    return _size(forms.extremum("max", [_terms(size) or t.ZERO for size in sizes]))


def common_divisor(a: Size, b: Size) -> Size:
    """The greatest known common divisor."""
    for whole, part in ((a, b), (b, a)):
        if is_known(whole % part == 0):
            return part
    return math.gcd(*[factor for size in (a, b) for _, factor in _terms(size) or ()])


def lowest(size: Size) -> int | float:
    """The lower bound of a size; integers unchanged."""
    return bounds.bounds(_terms(size) or t.ZERO)[0]


def highest(size: Size) -> int | float:
    """The upper bound of a size; integers unchanged."""
    return bounds.bounds(_terms(size) or t.ZERO)[1]


def size_of_terms(terms: Terms) -> Size:
    """The size of a polynomial."""
    return _size(terms)


def parsed_sizes(text: str, dims: Mapping[str, Dim]) -> tuple[Size, ...]:
    """The sizes in a comma-separated text. Raises ArgumentError."""
    return tuple([_size(terms) for terms in reading.parsed_several(text, _named(text, dims))])


def parsed_size(text: str, dims: Mapping[str, Dim]) -> Size:
    """The size of a text over known dimensions. Raises ArgumentError."""
    return _size(reading.parsed(text, _named(text, dims)))


def _named(text: str, dims: Mapping[str, Dim]) -> Callable[[str], Terms]:
    def named(name: str) -> Terms:
        if name not in dims:
            raise ArgumentError(
                f"the size {text!r}", f"there is no dimension {name!r}", f"name one of {', '.join(dims) or 'none'}"
            )
        return dims[name].terms

    return named
