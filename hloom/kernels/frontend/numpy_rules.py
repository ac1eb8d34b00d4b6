"""Functions of NumPy in a user's kernel that are more than one op, with their rules: {"where": ...}.

A rule gets the positional and the named arguments of a call, and its text for errors.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.ir.records import replace
from hloom.ir.types import DTYPES, PRED, default_dtype
from hloom.kernels.frontend.expressions import Expressions
from hloom.kernels.frontend.values import S64, Lazy, Number, Static, Value, View, integer

__all__ = ["RULES"]

_F64 = DTYPES["f64"]


def _where(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    test, yes, no = [self.as_operand(value, text) for value in given]
    return self.elementwise(lambda t, a, b: self.choice(self.truth(t).expr, a, b), test, yes, no)


def _clip(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    low = named.pop("min", named.pop("a_min", given[1] if len(given) > 1 else Static(None)))
    high = named.pop("max", named.pop("a_max", given[2] if len(given) > 2 else Static(None)))
    made = self.as_operand(given[0], text)
    for bound, op in ((low, "max"), (high, "min")):
        if not (isinstance(bound, Static) and bound.value is None):
            made = self.elementwise(lambda a, b, op=op: self.binary(op, a, b), made, self.as_operand(bound, text))
    return made


def _mean(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    array = self.as_operand(given[0], text)
    if array.dtype.kind in "iub":
        array = self.elementwise(lambda x: self.cast(x, default_dtype(float)), array)
    total = self._reduction("sum", [array], dict(named), [array, *given[1:]], text)
    if isinstance(array, Number):
        return array
    axis = self.static(named.get("axis", given[1] if len(given) > 1 else Static(None)))
    axes = range(len(array.dims)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    count = self.product([array.dims[a if isinstance(a, int) else self.static(a)] for a in axes])
    return self.elementwise(lambda x: self.binary("/", x, self.cast(count, x.dtype)), self.as_operand(total, text))


def _square(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    return self.elementwise(lambda x: self.binary("**", x, integer(2)), self.as_operand(given[0], text))


def _isnan(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    def test(x):
        held = Number(self._held(x.expr), x.dtype, x.weak)
        return self.binary("!=", held, held)

    return self.elementwise(test, self.as_operand(given[0], text))


def _round(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    if len(given) > 1 or named:
        self.unsupported(f"digits of {text:.60}", "round to integers")
    return self.elementwise(lambda x: self.call("round-nearest-even", x), self.as_operand(given[0], text))


def _cast(kind: str) -> Callable:
    dtype, weak = {"int": (S64, True), "float": (_F64, True), "bool": (PRED, False)}[kind]

    def made(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
        value = self.as_operand(given[0], text)
        if not isinstance(value, Number):
            self.unsupported(f"{kind} of an array: {text:.60}", f"use .astype({kind})")
        if kind == "bool":
            return self.truth(value)
        return self.cast(value, dtype, weak)

    return made


def _astype(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    dtype = self.dtype(given[1] if len(given) > 1 else named["dtype"], text)
    return self.elementwise(lambda x: self.cast(x, dtype), self.as_operand(given[0], text))


def _copy(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    array = self.as_operand(given[0], text)
    return array if isinstance(array, Number) else self.kept(array, "copy")


def _len(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    value = given[0]
    if isinstance(value, Static):
        return integer(len(value.value))
    if isinstance(value, Number) or not value.dims:
        self.unsupported(f"{text:.60}: a number has no length", "take the length of an array")
    return value.dims[0]


def _dot(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    left, right = [self.as_operand(value, text) for value in given]
    if isinstance(left, Number) or isinstance(right, Number):
        return self.elementwise(lambda a, b: self.binary("*", a, b), left, right)
    return self.dot(left, right)


def _vdot(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    left, right = [self.as_operand(value, text) for value in given]
    dims = [0 if isinstance(operand, Number) else len(operand.dims) for operand in (left, right)]
    if max(dims) > 1:
        self.unsupported(f"{text:.60}", "multiply vectors; np.vdot flattens other arrays")
    return _dot(self, [_conjugate(self, [left], {}, text), right], named, text)


def _conjugate(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    value = self.as_operand(given[0], text)
    if len(given) > 1 or named or value.dtype == PRED:
        self.unsupported(f"{text:.60}", "conjugate numbers, and assign the result")
    if value.dtype.kind != "c":
        return value

    def element(x: Number) -> Number:
        real, imaginary = [self.cast(self.real_or_imaginary(x, part), _F64) for part in ("real", "imag")]
        return self.cast(self.of_parts(real, self.negative(imaginary)), x.dtype)

    return self.elementwise(element, value)


def _place(kind: str) -> Callable:
    def made(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
        array = self.as_operand(given[0], text)
        if isinstance(array, Number) or named or len(given) > 1:
            self.unsupported(f"{text:.60}", "call it with a vector alone")
        return self.place_of(kind, array)

    return made


def _arange(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    bounds = [self.as_operand_number(value, text) for value in given[:2]]
    start, stop = (integer(0), bounds[0]) if len(bounds) == 1 else bounds
    size = self.binary("max", self.binary("-", stop, start), integer(0))
    dtype = self.dtype(named["dtype"], text) if "dtype" in named else default_dtype(int)
    return Lazy((size,), dtype, False, lambda at: self.cast(self.binary("+", start, at[0]), dtype))


def _item(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    return self.as_operand_number(given[0], text)


def _hypot(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    x, y = [self.as_operand(value, text) for value in given]
    square = lambda v: self.binary("**", v, integer(2))  # noqa: E731
    return self.elementwise(lambda a, b: self.call("sqrt", self.binary("+", square(a), square(b))), x, y)


def _fill(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    if not isinstance(given[0], View):
        self.unsupported(f"{text:.60}", "fill an array that the kernel makes")
    self.writes += 1
    self.assign(given[0], self.as_operand(given[1], text))
    return Static(None)


def _flip(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    array = self.as_operand(given[0], text)
    if isinstance(array, Number):
        self.unsupported(f"{text:.60}", "flip an array")
    axis = self.static(named.get("axis", given[1] if len(given) > 1 else Static(None)))
    axes = range(len(array.dims)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    turned = {a % len(array.dims) for a in axes}
    view = self.kept(array, "part") if isinstance(array, Lazy) else array
    entries = [Static(slice(None, None, -1 if k in turned else None)) for k in range(len(view.dims))]
    return self.taken_from(view, entries, text)


def _outer(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    return self.outer_product("*", *[self.as_operand(value, text) for value in given])


def _variance(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    if len(given) > 1 or named:
        self.unsupported(f"{text:.60}", "take the variance of all elements")
    array = self.as_operand(given[0], text)
    mean = self.as_operand(_mean(self, [array], {}, text), text)
    view = self.kept(array, "part") if isinstance(array, Lazy) else array
    squares = self.elementwise(lambda x, m: self.binary("**", self.binary("-", x, m), integer(2)), view, mean)
    return _mean(self, [squares], {}, text)


def _deviation(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    return self.elementwise(lambda x: self.call("sqrt", x), self.as_operand(_variance(self, given, named, text), text))


def _norm(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    if len(given) > 1 or named:
        self.unsupported(f"{text:.60}", "take the 2-norm of a vector, or of all elements")
    array = self.as_operand(given[0], text)
    squares = self.elementwise(lambda x: self.binary("**", self.call("abs", x), integer(2)), array)
    total = self._reduction("sum", [squares], {}, [squares], text)
    return self.elementwise(lambda x: self.call("sqrt", x), self.as_operand(total, text))


def _flatten(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    array = self.as_operand(given[0], text)
    if isinstance(array, Number) or len(given) > 1 or named:
        self.unsupported(f"{text:.60}", "flatten an array, in C order")
    view = self.kept(array, "flat")
    return replace(view, dims=(self.product(view.dims),), strides=(integer(1),))


def _ravel(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    view = given[0]
    if isinstance(view, View):
        strides = self.strides(view.dims)
        if any(own.expr != other.expr for own, other in zip(view.strides, strides, strict=True)):
            self.unsupported(f"{text:.60}", "ravel whole arrays, or use flatten, which copies")
        return replace(view, dims=(self.product(view.dims),), strides=(integer(1),))
    return _flatten(self, given, named, text)


def _sort(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    """`x.sort()`, of a short vector."""
    view = given[0]
    most = view.dims[0].span[1] if isinstance(view, View) and len(view.dims) == 1 else None
    if not isinstance(view, View) or most is None or most > 1024 or len(given) > 1 or named:
        self.unsupported(f"{text:.60}", "sort vectors of up to 1024 elements, or outside of the loop")
    self.writes += 1
    self.sorted_in_place(view)
    return Static(None)


def _complex(self: Expressions, given: list[Value], named: dict[str, Value], text: str) -> Value:
    parts = [self.cast(self.as_operand_number(value, text), _F64) for value in given]
    parts += [self.cast(self.number(0.0), _F64)] * (2 - len(parts))
    return self.of_parts(*parts)


RULES: dict[str, Callable] = {
    "where": _where, "select": _where, "clip": _clip, "mean": _mean, "square": _square, "isnan": _isnan,
    "round": _round, "int": _cast("int"), "float": _cast("float"), "bool": _cast("bool"), "astype": _astype,
    "copy": _copy, "len": _len, "dot": _dot, "vdot": _vdot, "argmax": _place("max"), "argmin": _place("min"),
    "arange": _arange, "flip": _flip, "outer": _outer, "var": _variance, "std": _deviation, "norm": _norm,
    "complex": _complex, "flatten": _flatten, "ravel": _ravel, "sort": _sort,
    "conj": _conjugate, "conjugate": _conjugate, "item": _item, "hypot": _hypot, "fill": _fill,
}  # fmt: skip
