"""Tensors of sizes that are known when a program is called: the results of `Shape` and the nodes after it.

A graph computes shapes by nodes on small tensors of integers. If a size is open (`hloom.ir.sizes`), such a tensor is a
`Sizes`: its elements are integers and expressions of dimensions. The functions of `ON_SIZES` compute with the
expressions; other nodes get the values as an array that the program computes. A tensor without an expression becomes a
NumPy array again, so that models of fixed shapes have no `Sizes`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom.ir.sizes.expressions import Size, SizeExpression, greatest, least
from hloom.onnx.reader import dtype_of
from hloom.tracing.conversion import size_array

__all__ = [
    "MOVED", "ON_SIZES", "Sizes", "as_tensor", "count_of", "elements_of", "evaluated", "integers", "lowered",
    "sizes_or_numbers",
]  # fmt: skip

# Ops whose rules move elements of any type: they take NumPy arrays of objects, as those of strings.
MOVED = frozenset("Concat Expand Gather Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze".split())


class Sizes:
    """A tensor of integers of which some are known when the program is called.

    elements: an array of objects, integers and SizeExpressions. dtype: of integers.
    """

    __slots__ = ("dtype", "elements")

    def __init__(self, elements: np.ndarray, dtype):
        self.elements, self.dtype = elements, np.dtype(dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.elements.shape

    @property
    def ndim(self) -> int:
        return self.elements.ndim

    @property
    def size(self) -> int:
        return self.elements.size

    def as_array(self):
        """The values, which the traced program computes."""
        flat = [size_array(v, self.dtype) if isinstance(v, SizeExpression) else hnp.asarray(v, self.dtype)
                for v in self.elements.reshape(-1).tolist()]  # fmt: skip
        return hnp.reshape(hnp.stack(flat), self.shape)

    def numbers(self) -> np.ndarray:
        """The values as integers, if the dimensions determine them. Raises UndecidedSizeError."""
        return np.array([int(v) for v in self.elements.reshape(-1).tolist()], self.dtype).reshape(self.shape)

    def __repr__(self) -> str:
        return f"Sizes({self.elements.tolist()}, {self.dtype.name})"


def sizes_or_numbers(elements: Any, dtype) -> Sizes | np.ndarray:
    """A tensor of these elements, objects: a plain array if none is an expression. An expression that may not fit in
    the dtype is replaced by its value."""
    found = np.asarray(elements, object)
    limits = np.iinfo(dtype)
    for place, value in enumerate(found.reshape(-1).tolist()):
        if isinstance(value, SizeExpression) and limits.bits < 64 and not limits.min <= value <= limits.max:
            found = found.copy()
            found.reshape(-1)[place] = int(value)
    if any([isinstance(v, SizeExpression) for v in found.reshape(-1).tolist()]):
        return Sizes(found, dtype)
    return found.astype(np.int64).astype(dtype)


def elements_of(value: Sizes | np.ndarray) -> np.ndarray:
    """The elements of sizes or of known values, as an array of objects."""
    return value.elements if isinstance(value, Sizes) else np.asarray(value).astype(object)


def integers(values) -> tuple[Size, ...]:
    """The elements of an array that decides shapes: Python's integers, and expressions of sizes that are open."""
    return tuple([v if isinstance(v, SizeExpression) else int(v) for v in np.asarray(values).reshape(-1).tolist()])


def count_of(sizes: Iterable[Size]) -> Size:
    """The product of sizes."""
    return functools.reduce(operator.mul, sizes, 1)


def as_tensor(value):
    """A value for functions of arrays: sizes as an array that the program computes, others unchanged."""
    if isinstance(value, list):
        return [as_tensor(v) for v in value]
    return value.as_array() if isinstance(value, Sizes) else value


def lowered(values: Sequence) -> list:
    """Several values for functions of arrays."""
    return [as_tensor(v) for v in values]


def evaluated(name: str, inputs: list, attributes: dict, rule: Callable):
    """The result of an op on sizes; NotImplemented where it does not compute with expressions. rule: of the op, called
    with inputs in place of these."""
    given = [v for v in inputs if v is not None]
    if name in MOVED:
        data = given if name == "Concat" else given[:1]
        if not any([isinstance(v, Sizes) for v in data]) or not all(map(_is_integer, data)):
            return NotImplemented
        count = len(data)
        made = rule(*map(elements_of, data), *[_numbers(v) for v in inputs[count:]])
        dtype = _dtype(data)
        return (
            tuple([sizes_or_numbers(v, dtype) for v in made])
            if isinstance(made, tuple)
            else sizes_or_numbers(made, dtype)
        )
    function = ON_SIZES.get(name)
    if function is None or not all(map(_is_integer, given)) or attributes.get("broadcast"):
        return NotImplemented
    return function(inputs, attributes)


def _is_integer(value) -> bool:
    return isinstance(value, Sizes) or (isinstance(value, np.ndarray) and value.dtype.kind in "iub")


def _numbers(value):
    return value.numbers() if isinstance(value, Sizes) else value


# --- functions of inputs and attributes that compute with expressions; NotImplemented if they cannot ---


def _quotient(a, b):
    """Truncated toward zero."""
    if (a >= 0) == (b > 0):
        return a // b
    return -((-a) // b)


def _remainder(a, b, *, fmod=0):
    return a - b * _quotient(a, b) if fmod else a % b


def _each(function: Callable, *operands) -> np.ndarray:
    """A function of elements, of arrays that are broadcast together."""
    return np.asarray(np.frompyfunc(function, len(operands), 1)(*[elements_of(o) for o in operands]), object)


def _dtype(values: Sequence) -> np.dtype:
    return next(v.dtype for v in values if v is not None and np.dtype(v.dtype).kind in "iu")


def _arithmetic(function: Callable) -> Callable:
    def computed(inputs: list, attributes: dict):
        options = {"fmod": attributes["fmod"]} if "fmod" in attributes else {}
        return sizes_or_numbers(_each(functools.partial(function, **options), *inputs), _dtype(inputs))

    return computed


def _folded(function: Callable) -> Callable:
    """A function of two elements, for any number of operands."""

    def computed(inputs: list, attributes: dict):
        made = functools.reduce(lambda a, b: _each(function, a, b), inputs[1:], elements_of(inputs[0]))
        return sizes_or_numbers(made, _dtype(inputs))

    return computed


def _comparison(function: Callable) -> Callable:
    def computed(inputs: list, attributes: dict):
        return _each(lambda a, b: bool(function(a, b)), *inputs).astype(bool)

    return computed


def _where(inputs: list, attributes: dict):
    condition, a, b = inputs
    if isinstance(condition, Sizes):
        return NotImplemented
    return sizes_or_numbers(_each(lambda c, x, y: x if c else y, condition, a, b), _dtype([a, b]))


def _clip(inputs: list, attributes: dict):
    x, low, high = (*inputs, None, None)[:3]
    made = elements_of(x)
    if low is not None:
        made = _each(greatest, made, low)
    if high is not None:
        made = _each(least, made, high)
    return sizes_or_numbers(made, x.dtype)


def _cast(inputs: list, attributes: dict):
    """To another type of integers, or to bool; floats are computed by the program."""
    x = inputs[0]
    named = attributes.get("to")
    if isinstance(named, str):  # before opset 6
        return NotImplemented
    to = np.dtype(inputs[1].dtype) if named is None else dtype_of(named)
    if to.kind == "b":
        return _each(lambda v: bool(v != 0), x).astype(bool)
    if to.kind not in "iu" or to.name not in np.sctypeDict:
        return NotImplemented
    return sizes_or_numbers(x.elements, to)


def _reduced(function: np.ufunc) -> Callable:
    def computed(inputs: list, attributes: dict):
        x, axes = inputs[0], attributes.get("axes")
        if len(inputs) > 1 and inputs[1] is not None:
            axes = integers(inputs[1])
        if not axes and attributes.get("noop_with_empty_axes"):
            return x
        made = function.reduce(x.elements, axis=tuple(axes) if axes else None, keepdims=bool(attributes["keepdims"]))
        return sizes_or_numbers(made, x.dtype)

    return computed


def _range(inputs: list, attributes: dict):
    start, limit, delta = [elements_of(v).reshape(()).item() for v in inputs]
    step = int(delta)
    dtype = inputs[0].dtype
    if dtype.kind not in "iu" or not step:
        return NotImplemented
    count = greatest(0, -((start - limit) // step))
    return (hnp.arange(count, dtype=np.int64) * step + start).astype(dtype)


ON_SIZES: dict[str, Callable[[list, dict], Any]] = {
    "Add": _arithmetic(operator.add), "Sub": _arithmetic(operator.sub), "Mul": _arithmetic(operator.mul),
    "Div": _arithmetic(_quotient), "Mod": _arithmetic(_remainder), "Neg": _arithmetic(operator.neg),
    "Abs": _arithmetic(abs), "Min": _folded(least), "Max": _folded(greatest), "Sum": _folded(operator.add),
    "Equal": _comparison(operator.eq), "Less": _comparison(operator.lt), "LessOrEqual": _comparison(operator.le),
    "Greater": _comparison(operator.gt), "GreaterOrEqual": _comparison(operator.ge), "Where": _where, "Clip": _clip,
    "Cast": _cast, "CastLike": _cast, "ReduceProd": _reduced(np.multiply), "ReduceSum": _reduced(np.add),
    "Range": _range,
}  # fmt: skip
