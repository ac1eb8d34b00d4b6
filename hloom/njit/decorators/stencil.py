"""`hl.stencil`: a function of an element and its neighbours as one of arrays."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from hloom.ir.source import Source
from hloom.kernels.frontend.syntax import definition_of
from hloom.njit.control import Runtime
from hloom.njit.decorators.universal import Universal, require_options
from hloom.njit.functions import numpy_call
from hloom.njit.inlining import values_of_returns
from hloom.njit.liveness import assigned
from hloom.njit.loops import kernel_of
from hloom.njit.lowering import relative
from hloom.njit.rewriting import Loop, Program
from hloom.njit.values import Array, as_value, dtype_of

__all__ = ["Stencil", "stencil"]

_OUT = "_njit_out"
_RELATIVE = "_njit_relative"


def stencil(
    function: Any = None,
    *,
    neighborhood: Sequence[tuple[int, int]] | None = None,
    standard_indexing: Sequence[str] = (),
    cval: Any = None,
    **options: Any,
):
    """A function of an element and its neighbours, called with arrays: `@hl.stencil`.

    >>> @hl.stencil
    ... def mean(x):
    ...     return (x[-1] + x[0] + x[1]) / 3
    >>> mean(np.array([0.0, 3.0, 6.0, 0.0, 3.0]))
    array([0., 3., 3., 3., 0.])

    Indices are relative to the element: `x[0, 0]` is the element itself, of the first argument and of all others that
    are indexed, whose shapes are the same. The result has the first argument's shape, and the dtype of what the
    function returns. Elements with neighbours outside of the array are `cval` (default 0).

    neighborhood: the least and the greatest index of each dimension, where indices are computed or slices:
    `((-2, 2),)`. standard_indexing: names of arguments whose indices are not relative. Calls take `out=`, whose border
    changes only where there is a `cval`. The function may have loops, branches and several returns.

    Raises, at the line of the function: UnsupportedError for a computed index without a neighborhood and for what
    cannot be compiled; ShapeError where arrays differ in shape; DTypeError for a cval that the result's dtype does not
    hold.
    """
    mode = function if isinstance(function, str) else options.pop("func_or_mode", "constant")
    if mode != "constant":
        raise ArgumentError(f"hl.stencil with the mode {mode!r}", "borders are constant", 'use "constant"')
    require_options("stencil", options)
    given = (neighborhood, tuple(standard_indexing), cval)
    return Stencil(function, *given) if callable(function) else lambda f: Stencil(f, *given)


class Stencil(Universal):
    """A function that `hl.stencil` compiles. neighborhood: as declared, or of the indices that it has."""

    of = ("out",)

    def __init__(self, function: Callable, neighborhood: Any, standard_indexing: tuple[str, ...], cval: Any):
        super().__init__(function)
        self.cval = cval
        names = list(self.of_user.parameters)
        self.nin = len(names)
        unknown = [name for name in standard_indexing if name not in names[1:]]
        if unknown:
            raise ArgumentError(f"standard_indexing of {self.name}", f"'{unknown[0]}'",
                                f"name one of {', '.join(names[1:]) or 'its arguments after the first'}")  # fmt: skip
        definition, self._file, above = definition_of(self.written)
        self._node = copy.deepcopy(definition)
        ast.increment_lineno(self._node, above)
        if neighborhood is not None:
            neighborhood = [(int(low), int(high)) for low, high in neighborhood]
        indices = _Relative(self, set(names) - set(standard_indexing), neighborhood)
        self._node.body = [indices.visit(statement) for statement in self._node.body]
        self.relative, self.ndim = indices.found, indices.ndim
        if not self.relative or self.ndim is None:
            raise ArgumentError(f"the stencil {self.name}", "it has no relative index", f"index {names[0]}[0, 0]")
        if neighborhood is None:
            offsets = [(0,) * self.ndim, *indices.offsets]
            neighborhood = [(min(axis), max(axis)) for axis in zip(*offsets, strict=True)]
        self.neighborhood = tuple(neighborhood)
        for offset in indices.offsets:
            if any(not low <= k <= high for k, (low, high) in zip(offset, self.neighborhood, strict=True)):
                raise ArgumentError(f"the index {list(offset)} of {self.name}",
                                    f"its neighborhood is {self.neighborhood}", "make it larger")  # fmt: skip

    def error(self, kind: type, node: ast.AST, asked: str, found: str, repair: str) -> Exception:
        made = kind(asked, found, repair)
        made.source = Source(self._file, getattr(node, "lineno", 0), self.name)
        return made

    def in_program(self, runtime: Runtime, *args: Any, out: Any = None) -> Any:
        try:
            bound = self.of_user.bind(*args)
        except TypeError as error:
            raise ArgumentError(f"a call of {self.name}", str(error), f"call {self.name}{self.of_user}") from None
        bound.apply_defaults()
        names = {k: as_value(v) if hasattr(v, "shape") else v for k, v in bound.arguments.items()}
        first = next(iter(names.values()))
        shape = self._require_shapes(names, first)
        if out is not None and tuple(out.shape) != shape:
            raise ShapeError(f"out= of {self.name}", f"{list(out.shape)} for arrays of {list(shape)}",
                             "pass one of their shape")  # fmt: skip
        bounds = [
            range(-min(0, low), size - max(0, high))
            for size, (low, high) in zip(shape, self.neighborhood, strict=True)
        ]  # fmt: skip
        if out is None:
            dtype = self._dtype(names, bounds)
            self._require_cval(dtype)
            target = numpy_call(np.full, (shape, dtype.type(0 if self.cval is None else self.cval)), {})
        else:
            target = runtime.target(out)
            if self.cval is not None:
                self._require_cval(target.dtype)
                target[...] = target.dtype.type(self.cval)
        if all(bounds):
            loop = self._loop(bounds, stores=True)
            inner = Runtime(Program(lambda _: self.written, (loop,), self.written), runtime.trace, runtime.stack)
            inner.for_loop(0, bounds[0], {**names, _OUT: target, _RELATIVE: relative})
        return target

    def _require_shapes(self, names: dict[str, Any], first: Any) -> tuple[int, ...]:
        if not isinstance(first, Array) or first.ndim != self.ndim:
            raise ShapeError(f"the first argument of {self.name}", f"{first!r}",
                             f"pass an array of {self.ndim} dimensions")  # fmt: skip
        for name in self.relative:
            if not isinstance(names[name], Array) or names[name].shape != first.shape:
                raise ShapeError(f"'{name}' of {self.name}", f"{names[name]!r}, and the first is {first!r}",
                                 "pass arrays of one shape, or name it in standard_indexing")  # fmt: skip
        return first.shape

    def _require_cval(self, dtype: np.dtype) -> None:
        if self.cval is not None and not np.can_cast(np.min_scalar_type(self.cval), dtype, "same_kind"):
            raise DTypeError(f"cval={self.cval!r} of {self.name}", f"the result is {dtype}",
                             "pass a number of its kind")  # fmt: skip

    def _dtype(self, names: dict[str, Any], bounds: Sequence[range]) -> np.dtype:
        """The dtype of what the function returns; the kernel that says so is not run."""
        loop = self._loop(bounds, stores=False)
        (result,) = loop.live
        names = {**names, result: False, _RELATIVE: relative}
        found = kernel_of(loop, bounds[0], names, self.written, lambda *_: None)
        return dtype_of(found[result])

    def _loop(self, bounds: Sequence[range], stores: bool) -> Loop:
        """The loops over all elements that have their neighbours."""
        node = copy.deepcopy(self._node)
        body, results, is_tuple = values_of_returns(node.body, self._file, self.name)
        if is_tuple or len(results) != 1:
            raise self.error(UnsupportedError, node, f"the stencil {self.name}", "it returns no number", "return one")
        axes = [_axis(k) for k in range(len(bounds))]
        value: ast.expr = ast.Name(results[0], ast.Load())
        if stores:
            at: list[ast.expr] = [ast.Name(a, ast.Load()) for a in axes]
            place = ast.Subscript(ast.Name(_OUT, ast.Load()), ast.Tuple(at, ast.Load()), ast.Store())
            body.append(ast.Assign([place], value))
        for axis, bound in reversed(list(zip(axes, bounds, strict=True))):
            limits: list[ast.expr] = [ast.Constant(bound.start), ast.Constant(bound.stop)]
            items = ast.Call(ast.Name("range", ast.Load()), limits, [])
            body = [ast.For(ast.Name(axis, ast.Store()), items, body, [])]
        (nest,) = body
        assert isinstance(nest, ast.For)
        for one in ast.walk(nest):
            if not hasattr(one, "lineno"):
                ast.copy_location(one, node)
        ast.fix_missing_locations(nest)
        live = frozenset() if stores else frozenset(results)
        return Loop(nest, self._file, self.name, live, frozenset(assigned([nest])))


def _axis(k: int) -> str:
    return f"_njit_index_of_axis{k}"


class _Relative(ast.NodeTransformer):
    """Indices from the element on become those of the array. found: the arrays that have such; offsets: the constant
    ones. bounds: the declared neighborhood, in which a kernel checks the others."""

    def __init__(self, of: Stencil, names: set[str], bounds: Sequence[tuple[int, int]] | None):
        self.of, self.names, self.bounds = of, names, bounds or ()
        self.found: list[str] = []
        self.offsets: list[tuple[int, ...]] = []
        self.ndim: int | None = None

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if not isinstance(node.value, ast.Name) or node.value.id not in self.names:
            self.generic_visit(node)
            return node
        if not isinstance(node.ctx, ast.Load):
            raise self.of.error(UnsupportedError, node, f"an assignment to {ast.unparse(node)}",
                                "a stencil does not change its arguments", "return the new value")  # fmt: skip
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if self.ndim not in (None, len(entries)):
            raise self.of.error(ArgumentError, node, f"the index {ast.unparse(node)}",
                                f"others have {self.ndim} dimensions", "index all arrays alike")  # fmt: skip
        self.ndim = len(entries)
        if self.bounds and len(self.bounds) != self.ndim:
            raise self.of.error(ArgumentError, node, f"the neighborhood of {self.of.name}",
                                f"{len(self.bounds)} dimensions, its indices have {self.ndim}",
                                "give the least and the greatest index of each")  # fmt: skip
        if node.value.id not in self.found:
            self.found.append(node.value.id)
        offsets = [_constant(entry) for entry in entries]
        if all(k is not None for k in offsets):
            self.offsets.append(tuple([k for k in offsets if k is not None]))
        elif not self.bounds:
            raise self.of.error(UnsupportedError, node, f"the index {ast.unparse(node)} of a stencil", "it is computed",
                                "declare the range of indices: neighborhood=((-1, 1),)")  # fmt: skip
        checked = None in offsets  # others are known to be in the neighborhood
        made = [self._absolute(self.visit(entry), k, node.value.id, checked) for k, entry in enumerate(entries)]
        node.slice = made[0] if len(made) == 1 else ast.Tuple(made, ast.Load())
        return ast.copy_location(node, node)

    def _absolute(self, entry: ast.expr, axis: int, name: str, checked: bool) -> ast.expr:
        def moved(part: ast.expr | None, beyond: int = 0) -> ast.expr:
            if part is None:
                raise self.of.error(UnsupportedError, entry, "an open slice in a stencil", ast.unparse(entry),
                                    "give both its bounds")  # fmt: skip
            if checked:
                low, high = self.bounds[axis]
                what = f"the index {axis} of '{name}' from the element, in the neighborhood {low} to {high},"
                values: list[ast.expr] = [ast.Constant(k) for k in (low, high + beyond, what)]
                part = ast.Call(ast.Name(_RELATIVE, ast.Load()), [part, *values], [])
            return ast.BinOp(ast.Name(_axis(axis), ast.Load()), ast.Add(), part)

        if isinstance(entry, ast.Slice):
            return ast.Slice(moved(entry.lower), moved(entry.upper, 1), entry.step)
        return moved(entry)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if not isinstance(node.value, ast.Name):
            self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return node


def _constant(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found = _constant(node.operand)
        return None if found is None else -found
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None
