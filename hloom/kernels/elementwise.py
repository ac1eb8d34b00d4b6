"""Kernels that compute each element from those at the same index: they become ops, which fuse with their neighbours."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from hloom.compiler.kernel_ir.builder import number
from hloom.compiler.kernel_ir.nodes import Assign, Const, Expr, For, Load, Stmt, Store, Var
from hloom.compiler.kernel_ir.rewrite import replaced, substituted
from hloom.compiler.kernel_ir.types import REGISTER
from hloom.contexts import disable_jit
from hloom.dispatch.jit import jit
from hloom.ir.build import Value
from hloom.ir.ops.programs.kernel import ElementKernel
from hloom.kernels.derivatives.tangents import Tangents
from hloom.kernels.frontend.races import Loops, index_of
from hloom.kernels.programs import Body, Draft
from hloom.tracing.trace import bind, resumed

__all__ = ["Elements", "elements_of"]

LARGEST = 300  # nodes of an expression
_numbers = itertools.count(1)


class Elements(ElementKernel):
    """element: an expression of `parameters`, the elements of the operands."""

    element: Expr
    parameters: tuple[Var, ...]
    dims: tuple[int, ...]

    def expression(self, arguments: Sequence[str]) -> str:
        given = {p: Var(p.type, name) for p, name in zip(self.parameters, arguments, strict=True)}
        return str(substituted(self.element, given))

    def evaluate(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        with disable_jit(False), resumed(None):
            return np.asarray(self._run(*arrays))

    @functools.cached_property
    def _run(self):
        return jit(lambda *arrays: bind("kernel-map", *arrays, kernel=self))

    @functools.lru_cache(32)  # noqa: B019  (a kernel lives as long as its function)
    def _partial(self, which: int) -> Elements | None:
        """The derivative by an operand; None where it is zero."""
        wanted = self.parameters[which]
        dot = Var(wanted.type, "dot")
        made = Tangents(str(self), {wanted}, lambda var: dot).of(self.element)
        if made is None:
            return None
        one = substituted(made, {dot: number(1.0, dot.type)})
        return _elements(f"{self}.d{which}", one, self.parameters, self.dtype, self.dims)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None]) -> Value | None:
        total: Value | None = None
        for k, tangent in enumerate(tangents):
            derivative = None if tangent is None else self._partial(k)
            if tangent is not None and derivative is not None:
                first, *rest = primals
                product = first.op("kernel-map", *rest, kernel=derivative) * tangent.convert(self.dtype)
                total = product if total is None else total + product
        return total


def _elements(name: str, element: Expr, parameters, dtype: np.dtype, dims: tuple[int, ...]) -> Elements:
    made = Elements(f"{name}.{next(_numbers)}")
    made.element, made.parameters, made.dtype, made.dims = element, tuple(parameters), dtype, dims
    return made


def elements_of(body: Body) -> list[Elements] | None:
    """The results of a kernel as functions of elements, one for each; None for other kernels.

    The operands are arrays of the results' shape, and numbers.
    """
    if not _is_simple(body):
        return None
    (draft,), results = body.drafts, body.results()
    nest, statements = _straight([*draft.prologue, *draft.body])
    stores = [s for s in statements if isinstance(s, Store)]
    if nest is None or len(stores) != len(results) or len({s.pointer for s in stores}) != len(results):
        return None
    loops = _loops(draft, nest, statements, body)
    index = stores[0].index
    if any(index_of(s.index, loops) != index_of(index, loops) for s in stores):
        return None
    if not _covers(index, draft, nest, loops, body, math.prod(results[0].dims)):
        return None
    arrays = sorted([(a.number, p) for p, a in body.arrays.items() if a.role == "in"], key=lambda pair: pair[0])
    parameters = {p: Var(_register(p), f"p{number}") for number, p in arrays}
    made: list[Elements] = []
    for store in sorted(stores, key=lambda s: body.arrays[_pointer(s)].number):
        element = _element(store.value, index, loops, parameters, body)
        if element is None:
            return None
        name = f"{body.name}_{len(made)}" if len(results) > 1 else body.name
        array = body.arrays[_pointer(store)]
        made.append(_elements(name, element, parameters.values(), array.dtype, array.dims))
    return made


def _is_simple(body: Body) -> bool:
    """Whether a kernel is one loop of real operands and results, all of one shape or numbers, without memory."""
    results = body.results()
    operands = [a for a in body.arrays.values() if a.role == "in"]
    if len(body.drafts) != 1 or len(operands) + len(results) != len(body.arrays) or not operands or not results:
        return False
    if body.drafts[0].item is None or body.drafts[0].scratches:
        return False
    dims = results[0].dims
    shapes = [*[a.dims or dims for a in operands], *[a.dims for a in results]]
    return bool(dims) and set(shapes) == {dims} and all(a.dtype.kind != "c" for a in operands)


def _loops(draft: Draft, nest: list[For], statements: Sequence[Stmt], body: Body) -> Loops:
    definitions = {s.var: s.value for s in statements if isinstance(s, Assign) and s.var not in _digits(draft)}
    return Loops(dict.fromkeys(_digits(draft)), {loop.var for loop in nest}, definitions, dict(body.sizes))


def _digits(draft: Draft) -> tuple[Var, ...]:
    """The indices that the number of an iteration is made of."""
    assert draft.item is not None
    return draft.digits or (draft.item,)


def _pointer(store: Store) -> Var:
    assert isinstance(store.pointer, Var)
    return store.pointer


def _register(pointer: Var) -> str:
    return REGISTER.get(pointer.type[1:], pointer.type[1:])


def _straight(block: Sequence[Stmt]) -> tuple[list[For] | None, list[Stmt]]:
    """(loops around each other, statements of all) of a block without branches; None for the loops of others."""
    nest: list[For] = []
    statements: list[Stmt] = []
    for k, s in enumerate(block):
        match s:
            case Assign(var=var) if not var.varies:
                statements.append(s)
            case Store():
                statements.append(s)
            case For() if k == len(block) - 1:
                inner, more = _straight(s.body)
                if inner is None:
                    return None, []
                nest = [s, *inner]
                statements += more
            case _:
                return None, []
    return nest, statements


def _covers(index: Expr, draft: Draft, nest: list[For], loops: Loops, body: Body, count: int) -> bool:
    """Whether an index takes each value from 0 to `count` less one, once."""
    digits = _digits(draft)
    form = index_of(index, loops)
    if form is None or form.constant:
        return False
    factors = dict(form.terms)
    extents: dict[Var, int] = {}
    for digit in digits:
        extents[digit] = (body.spans.get(digit, (None, None))[1] or 0) + 1
    for loop in nest:
        if loop.start != Const("s64", 0) or loop.step != Const("s64", 1):
            return False
        stop = loop.stop
        size = stop.value if isinstance(stop, Const) else body.sizes.get(stop) if isinstance(stop, Var) else None
        tile = body.tiles.get(stop) if isinstance(stop, Var) else None
        if tile is not None and factors.get(tile.digit, 0) == tile.step * factors.get(loop.var, 0):
            factors.pop(tile.digit, None)
            extents.pop(tile.digit, None)
            size = tile.size
        if not isinstance(size, int):
            return False
        extents[loop.var] = size
    factor = 1
    for place, var in sorted((factors.get(var, 0), k) for k, var in enumerate(extents)):
        extent = list(extents.values())[var]
        if extent == 1:
            continue
        if place != factor:
            return False
        factor *= extent
    return factor == count


def _element(value: Expr, index: Expr, loops: Loops, parameters: dict[Var, Var], body: Body) -> Expr | None:
    """The value as an expression of elements of the operands; None where it reads others."""
    made, whole = value, index_of(index, loops)
    for _ in range(len(loops.definitions) + 1):
        before = made
        made = substituted(made, loops.definitions)
        if sum(1 for _ in itertools.islice(made.walk(), LARGEST + 1)) > LARGEST:
            return None
        if made == before:
            break

    def element(part: Expr) -> Expr | None:
        if not isinstance(part, Load) or not isinstance(part.pointer, Var) or part.pointer not in parameters:
            return None
        if not body.arrays[part.pointer].dims:
            return parameters[part.pointer]
        return parameters[part.pointer] if index_of(part.index, loops) == whole else None

    made = replaced(made, element)
    left = set(_variables(made)) - set(parameters.values())
    return None if left or any(isinstance(part, Load) for part in made.walk()) else made


def _variables(expression: Expr) -> Iterator[Var]:
    return (part for part in expression.walk() if isinstance(part, Var))
