"""Functions applied along axes, element by element, and piecewise."""

from __future__ import annotations

import functools
import re

from hloom.errors import ArgumentError, ShapeError
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    canonical_axes,
    canonical_axis,
    convert,
    reshape_to,
)
from hloom.numpy.elementwise.logic import truth, where
from hloom.numpy.shaping.manipulation import expand_dims
from hloom.transforms.vmap import vmap
from hloom.tree import pytrees as tree

_DIMENSIONS = r"\(\s*(?:\w+(?:\s*,\s*\w+)*)?\s*,?\s*\)"
_SIDE = rf"\s*{_DIMENSIONS}(?:\s*,\s*{_DIMENSIONS})*\s*"


def _read_signature(text: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    if not re.fullmatch(f"{_SIDE}->{_SIDE}", text):
        raise ArgumentError("a signature such as '(n),(n)->()'", f"{text!r}", "name the core axes of each array")
    inputs, outputs = text.split("->")

    def axes(side: str) -> list[tuple[str, ...]]:
        return [tuple(re.findall(r"\w+", group)) for group in re.findall(_DIMENSIONS, side)]

    return axes(inputs), axes(outputs)


def vectorize(pyfunc, *, excluded=frozenset(), signature: str | None = None):
    """Extends a function of arrays of fixed rank to arrays of any rank, by `hl.vmap` over all leading axes.

    signature: the core axes, such as '(n,m),(m)->(n)'; scalars by default. Leading axes broadcast.
    excluded: positions and names of arguments that are passed unchanged. Raises ArgumentError, and ShapeError if core
    axes of the same name differ.
    """
    excluded = frozenset(excluded)
    if any(not isinstance(e, (int, str)) or (isinstance(e, int) and e < 0) for e in excluded):
        raise ArgumentError("vectorize excludes positions and names of arguments", f"{set(excluded)}", "check them")

    @functools.wraps(pyfunc)
    def vectorized(*args, **kwargs):
        return _vectorized_call(pyfunc, excluded, signature, args, kwargs)

    return vectorized


def _vectorized_call(pyfunc, excluded: frozenset, signature: str | None, args: tuple, kwargs: dict):
    """Evaluates `vectorize`'s function for arguments."""
    name = getattr(pyfunc, "__name__", "the function")
    names = [key for key in kwargs if key not in excluded]
    places = [k for k in range(len(args)) if k not in excluded]
    if names and signature is not None:
        raise ArgumentError(
            f"vectorize of {name} with a signature takes arrays by position", f"{names}", "exclude these names"
        )

    def call(*dynamic):
        given = list(args)
        for place, value in zip(places, dynamic, strict=False):
            given[place] = value
        return pyfunc(*given, **{**kwargs, **dict(zip(names, dynamic[len(places) :], strict=True))})

    arrays = [as_operand(v, name) for v in [*(args[k] for k in places), *(kwargs[n] for n in names)]]
    cores, results = _read_signature(signature) if signature else ([()] * len(arrays), None)
    if len(cores) != len(arrays):
        raise ArgumentError(
            f"vectorize of {name} with the signature {signature!r}", f"{len(arrays)} arrays", f"pass {len(cores)}"
        )
    _check_cores(name, arrays, cores)
    ranks = [a.ndim - len(core) for a, core in zip(arrays, cores, strict=True)]
    return _over_leading_axes(name, call if results is None else _checked(call, name, results), arrays, ranks)


def _over_leading_axes(name: str, mapped, arrays: list, ranks: list[int]):
    """The function mapped over the leading axes, given the core `ranks`; leading axes broadcast."""
    dims = broadcast_shapes(name, [a.shape[:rank] for a, rank in zip(arrays, ranks, strict=True)] or [()])
    # One vmap for each leading axis, the last axis innermost; an array of size 1 there is not mapped.
    squeezed = []
    for a, rank in zip(arrays, ranks, strict=True):
        stretched = [k for k in range(rank) if a.shape[k] == 1 and dims[len(dims) - rank + k] != 1]
        squeezed.append((reshape_to(a, tuple(d for k, d in enumerate(a.shape) if k not in stretched)), stretched))
    for axis in reversed(range(len(dims))):
        has = [axis - (len(dims) - rank) for rank in ranks]
        axes = tuple(0 if k >= 0 and k not in gone else None for k, (_, gone) in zip(has, squeezed, strict=True))
        if all(a is None for a in axes):
            mapped = _repeated(mapped, dims[axis])
        else:
            mapped = vmap(mapped, in_axes=axes)
    return mapped(*(a for a, _ in squeezed))


def _check_cores(name, arrays, cores) -> None:
    extents: dict[str, int] = {}
    for a, core in zip(arrays, cores, strict=True):
        if a.ndim < len(core):
            raise ShapeError(
                f"{name} takes an array with the core axes {core}", f"{a._shape!r}", "pass an array of that rank"
            )
        for label, extent in zip(core, a.shape[a.ndim - len(core) :], strict=True):
            if extents.setdefault(label, extent) != extent:
                raise ShapeError(
                    f"{name}: the core axis {label!r} has one size", f"{extents[label]} and {extent}", "match them"
                )


def _checked(function, name, results):
    """Raises ShapeError if the function's results do not have the ranks of the signature."""

    def call(*args):
        found = function(*args)
        flat = found if isinstance(found, tuple) else (found,)
        shapes = [as_operand(f, name).shape for f in flat]
        if len(shapes) != len(results) or any(len(s) != len(r) for s, r in zip(shapes, results, strict=False)):
            raise ShapeError(
                f"{name} returns arrays with the core axes {results}", f"shapes {shapes}", "correct the signature"
            )
        return found

    return call


def _repeated(function, extent: int):
    """A new first axis along which the values are constant."""

    def call(*args):
        found = function(*args)
        return tree.map(lambda r: broadcast_dims_to(as_operand(r, "vectorize"), (extent, *r.shape)), found)

    return call


def apply_along_axis(func1d, axis: int, arr, *args, **kwargs):
    """func1d(vector, *args, **kwargs) of every vector along an axis; its results' axes replace that axis.

    Raises ShapeError.

    >>> hnp.apply_along_axis(lambda row: row.max() - row.min(), 1, hnp.array([[1, 5, 2], [7, 7, 4]]))
    Array([4, 3], dtype=int32)
    """
    x = as_operand(arr, "apply_along_axis")
    axis = canonical_axis(axis, x.ndim, "apply_along_axis")

    def mapped(vector):
        return func1d(vector, *args, **kwargs)

    for k in range(1, x.ndim - axis):
        mapped = vmap(mapped, in_axes=k, out_axes=-1)
    for _ in range(axis):
        mapped = vmap(mapped, in_axes=0, out_axes=0)
    return mapped(x)


def apply_over_axes(func, a, axes):
    """func(array, axis) for each axis in turn; a result may lack that axis. Raises ShapeError.

    >>> hnp.apply_over_axes(hnp.sum, hnp.ones((2, 3, 4)), [0, 2]).ravel()
    Array([8., 8., 8.], dtype=float32)
    """
    x = as_operand(a, "apply_over_axes")
    for axis in canonical_axes(axes, x.ndim, "apply_over_axes"):
        result = func(x, axis)
        if result.ndim == x.ndim - 1:
            result = expand_dims(result, axis)
        if result.ndim != x.ndim:
            raise ShapeError(
                "apply_over_axes takes a function that keeps the rank, or loses its axis",
                f"{x._shape!r} became {result._shape!r}",
                "check the function",
            )
        x = result
    return x


def piecewise(x, condlist, funclist, *args, **kw):
    """At each element the function (or scalar) of the last condition that holds; elsewhere 0, or an extra default
    function.

    All functions are computed for all elements. Raises ArgumentError, ShapeError.

    >>> x = hnp.array([-2.0, 0.0, 2.0])
    >>> hnp.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: 10 * v])
    Array([ 2.,  0., 20.], dtype=float32)
    """
    x = as_operand(x, "piecewise")
    if isinstance(condlist, (list, tuple)):
        conditions = list(condlist)
    else:
        masks = as_operand(condlist, "piecewise")
        conditions = [masks] if masks.shape == x.shape or not masks.ndim else [masks[k] for k in range(masks.shape[0])]
    functions = list(funclist)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        raise ArgumentError(
            "piecewise takes a function for each condition, and optionally a default",
            f"{len(conditions)} conditions, {len(functions)} functions",
            "match them",
        )

    def value(f):
        found = as_operand(f(x, *args, **kw) if callable(f) else f, "piecewise")
        return convert(found, x.dtype)

    result = value(functions[len(conditions)] if len(functions) > len(conditions) else 0)
    for condition, function in zip(conditions, functions, strict=False):
        result = where(truth(as_operand(condition, "piecewise")), value(function), result)
    return broadcast_dims_to(result, x.shape)
