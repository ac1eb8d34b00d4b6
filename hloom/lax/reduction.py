"""Functions of `hloom.lax` that combine elements: reductions, argmax, dot; and compiler directives."""

from __future__ import annotations

import numpy as np

from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import AttributeValueError, DTypeError, ShapeError, TracerConversionError
from hloom.ir.build import scalar_computation
from hloom.ir.sizes.counted import require_elements
from hloom.ir.types import COMPLEX, FLOATS, INTEGERS, PRED, Shape, TupleShape, as_dtype
from hloom.lax.elementwise import is_nan
from hloom.lax.movement import broadcasted_iota
from hloom.lax.operands import (
    NUMBERS,
    as_operand,
    canonical_axes,
    canonical_axis,
    constant,
    convert,
    full,
    read,
    reshape_to,
    with_weakness,
)
from hloom.lax.table import docstring, documented
from hloom.tracing.concrete import at_once
from hloom.tracing.signatures import function_name
from hloom.tracing.trace import bind, trace_function
from hloom.tree import pytrees as tree

# --- reductions ---------------------------------------------------------------------------------------------------


def lowest(dtype):
    """The neutral element of max: -inf, False or the smallest integer."""
    if dtype in FLOATS or dtype in COMPLEX:
        return float("-inf")
    return False if dtype == PRED else int(np.iinfo(dtype).min)


def highest(dtype):
    """The neutral element of min: inf, True or the largest integer."""
    if dtype in FLOATS or dtype in COMPLEX:
        return float("inf")
    return True if dtype == PRED else int(np.iinfo(dtype).max)


def reduce_with(opcode: str, x, axes, initial):
    """x reduced by a binary op over canonical axes, strongly typed. Without axes, x itself."""
    if not axes:
        return with_weakness(x, False) if x.weak else x
    return bind(
        "reduce",
        x,
        constant(initial, x._shape.dtype),
        dimensions=tuple(sorted(axes)),
        to_apply=scalar_computation(opcode, x._shape.dtype),
    )


def _reduction(name: str, opcode: str, initial, text: str, printed: str):
    def function(operand, axes):
        x = as_operand(operand, name)
        axes = canonical_axes(axes if isinstance(axes, int) or axes is None else tuple(axes), x.ndim, name)
        return reduce_with(opcode, x, axes, initial(x.dtype))

    example = "{f}(hnp.array([[12, 10], [7, 5]]), (1,))", f"Array({printed}, dtype=int32)"
    text = f"{text} over the axes, which disappear. Raises ShapeError, DTypeError."
    return documented(function, name, docstring(text, example, f"hl.lax.{name}"))


reduce_sum = _reduction("reduce_sum", "add", lambda dtype: 0, "The sum", "[22, 12]")
reduce_prod = _reduction("reduce_prod", "multiply", lambda dtype: 1, "The product", "[120,  35]")
_NAN = "(NaN if there is one)"
reduce_max = _reduction("reduce_max", "maximum", lowest, f"The largest element {_NAN}", "[12,  7]")
reduce_min = _reduction("reduce_min", "minimum", highest, f"The smallest element {_NAN}", "[10,  5]")
reduce_and = _reduction(
    "reduce_and", "and", lambda d: True if d == PRED else -1 if d.kind == "i" else highest(d), "`and`", "[8, 5]"
)
reduce_or = _reduction("reduce_or", "or", lambda dtype: 0, "`or`", "[14,  7]")
reduce_xor = _reduction("reduce_xor", "xor", lambda dtype: 0, "`xor`", "[6, 2]")


def reduce(operands, init_values, computation, dimensions):
    """operands (an array or a tree of arrays of equal shape) reduced over `dimensions`.

    computation(accumulator, element) -> accumulator: associative, on scalars or trees of scalars like `operands`;
    init_values: its neutral elements, scalars. Raises ShapeError, DTypeError, AttributeValueError.

    >>> hl.lax.reduce(hnp.array([[1, 2], [3, 4]]), 0, hl.lax.add, (1,))
    Array([3, 7], dtype=int32)
    """
    leaves, structure = tree.flatten(operands)
    starts, start_structure = tree.flatten(init_values)
    arrays = [as_operand(x, "reduce") for x in leaves]
    if len(starts) != len(arrays) or start_structure != structure:
        raise ShapeError(
            "reduce takes an initial value for each operand",
            f"{len(starts)} initial values for {len(arrays)} operands",
            "give init_values the structure of operands",
        )
    pairs = zip(starts, arrays, strict=True)
    starts = [constant(s, a.dtype) if type(s) in NUMBERS else as_operand(s, "reduce") for s, a in pairs]
    axes = canonical_axes(tuple(dimensions), arrays[0].ndim, "reduce")
    scalars = [Shape(a.dtype) for a in arrays]
    _, in_tree = tree.flatten(((operands, operands), {}))
    traced = trace_function(computation, scalars * 2, in_tree, function_name(computation))
    if traced.captures:
        raise TracerConversionError(
            "a reduction's computation used a traced value from outside",
            f"{traced.captures[0]!r}",
            "apply it before or after the reduction; a combiner sees two scalars only",
        )
    if not axes:
        return operands
    result = bind("reduce", *arrays, *starts, dimensions=tuple(sorted(axes)), to_apply=traced.computation)
    results = result if isinstance(result, tuple) else (result,)
    weak = [array.weak and start.weak for array, start in zip(arrays, starts, strict=True)]
    return tree.unflatten(structure, [*map(with_weakness, results, weak)])


def _arg_extreme(name: str, operand, axis: int, index_dtype, largest: bool):
    x = as_operand(operand, name)
    axis = canonical_axis(axis, x.ndim, name)
    if x.dtype in COMPLEX:
        raise DTypeError(f"{name} takes ordered elements", f"{x._shape!r}", "use real parts or absolute values")
    dtype = as_dtype(index_dtype)
    if dtype not in INTEGERS:
        raise DTypeError(f"{name} returns indices of an integer dtype", f"{dtype}", "pass index_dtype='s32'")
    extent = x.shape[axis]
    require_elements((extent,), f"{name} along axis {axis}", repr(x._shape), "pass a non-empty array")
    if dtype.itemsize >= 4:
        extreme_of = np.argmax if largest else np.argmin
        found = at_once(name, lambda v: extreme_of(v, axis).astype(dtype), x)
        if found is not None:
            return found
    if x.dtype == PRED:
        x = convert(x, as_dtype("s8"))
    # Two reductions: the extremum, then the smallest index that attains it (or is NaN, as then the extremum is too).
    # Unlike a single reduction of (value, index) pairs, both vectorize.
    opcode, neutral = ("maximum", lowest(x.dtype)) if largest else ("minimum", highest(x.dtype))
    extreme = reduce_with(opcode, x, (axis,), neutral)
    kept = tuple(k for k in range(x.ndim) if k != axis)
    spread = bind("broadcast", extreme, shape=x._shape, dimensions=kept)
    found = bind("compare", x, spread, direction="EQ")
    if x.dtype in FLOATS:
        found = bind("or", found, is_nan(x))
    index = broadcasted_iota(dtype, x.shape, axis)
    last = highest(dtype)  # some element attains the extremum; a constant independent of the size serves all shapes
    return reduce_with("minimum", bind("select", found, index, full(last, dtype, x.shape)), (axis,), last)


def argmax(operand, axis: int, index_dtype="s32"):
    """The index of the first largest element along axis; NaN counts as the largest. Raises ShapeError, DTypeError.

    >>> hl.lax.argmax(hnp.array([[1, 5, 2], [7, 3, 4]]), 1)
    Array([1, 0], dtype=int32)
    """
    return _arg_extreme("argmax", operand, axis, index_dtype, largest=True)


def argmin(operand, axis: int, index_dtype="s32"):
    """The index of the first smallest element along axis; NaN counts as the smallest. Raises ShapeError, DTypeError.

    >>> hl.lax.argmin(hnp.array([[1, 5, 2], [7, 3, 4]]), 1, index_dtype=hnp.uint32)
    Array([0, 1], dtype=uint32)
    """
    return _arg_extreme("argmin", operand, axis, index_dtype, largest=False)


# --- products -----------------------------------------------------------------------------------------------------


@takes_out_sharding
def dot_general(lhs, rhs, dimension_numbers, precision=None, preferred_element_type=None, *, out_sharding=None):
    """The sum of products over contracted dimensions.

    dimension_numbers: ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch)). Result dimensions: batch, the
    remaining ones of lhs, the remaining ones of rhs; its dtype is preferred_element_type or that of lhs and rhs.
    `precision` is accepted for compatibility with JAX: products are computed in the full precision of their dtype.
    Raises ShapeError, AttributeValueError.

    >>> a, b = hnp.ones((8, 2, 3)), hnp.ones((8, 3, 4))
    >>> hl.lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,)))).shape
    (8, 2, 4)
    """
    left, right = as_operand(lhs, "dot_general"), as_operand(rhs, "dot_general")
    (lc, rc), (lb, rb) = dimension_numbers
    lc, lb = (tuple(canonical_axis(d, left.ndim, "dot_general") for d in dims) for dims in (lc, lb))
    rc, rb = (tuple(canonical_axis(d, right.ndim, "dot_general") for d in dims) for dims in (rc, rb))
    return dot_dimensions(left, right, lb, rb, lc, rc, preferred_element_type)


def dot_dimensions(left, right, lb=(), rb=(), lc=(), rc=(), preferred_element_type=None):
    """`dot_general` with canonical dimension numbers."""
    shape = None
    if preferred_element_type is not None:
        dtype = as_dtype(preferred_element_type)
        dims = [left.shape[k] for k in lb]
        dims += [left.shape[k] for k in range(left.ndim) if k not in lb and k not in lc]
        dims += [right.shape[k] for k in range(right.ndim) if k not in rb and k not in rc]
        shape = Shape(dtype, tuple(dims))
    return bind(
        "dot",
        left,
        right,
        shape=shape,
        weak=left.weak and right.weak and shape is None,
        lhs_batch_dims=lb,
        rhs_batch_dims=rb,
        lhs_contracting_dims=lc,
        rhs_contracting_dims=rc,
    )


@takes_out_sharding
def dot(lhs, rhs, precision=None, preferred_element_type=None, *, out_sharding=None):
    """The product of vectors and matrices: the last dimension of lhs with the first of rhs. Raises ShapeError.

    >>> hl.lax.dot(hnp.array([[1, 2], [3, 4]]), hnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    left, right = as_operand(lhs, "dot"), as_operand(rhs, "dot")
    if not (1 <= left.ndim <= 2 and 1 <= right.ndim <= 2) or left.shape[-1] != right.shape[0]:
        raise ShapeError(
            "lax.dot takes vectors or matrices that share a size",
            f"{left._shape!r} and {right._shape!r}",
            "transpose one of them, or use lax.dot_general or hnp.matmul",
        )
    return dot_dimensions(left, right, (), (), (left.ndim - 1,), (0,), preferred_element_type)


def batch_matmul(lhs, rhs, precision=None):
    """Matrix products over equal leading dimensions: (..., m, k) and (..., k, n) to (..., m, n). Raises ShapeError.

    >>> hl.lax.batch_matmul(hnp.ones((8, 2, 3)), hnp.ones((8, 3, 4))).shape
    (8, 2, 4)
    """
    left, right = as_operand(lhs, "batch_matmul"), as_operand(rhs, "batch_matmul")
    rank = left.ndim
    if rank != right.ndim or rank < 2 or left.shape[:-2] != right.shape[:-2]:
        raise ShapeError(
            "batch_matmul takes operands of one rank, 2 or more, with equal leading dimensions",
            f"{left._shape!r} and {right._shape!r}",
            "use hnp.matmul, which broadcasts",
        )
    batch = tuple(range(rank - 2))
    return dot_dimensions(left, right, batch, batch, (rank - 1,), (rank - 2,))


# --- compiler directives ------------------------------------------------------------------------------------------


def stop_gradient(x):
    """x (an array or a tree of them), whose derivative is zero. Integers and Python numbers pass unchanged.

    >>> hl.grad(lambda x: x * hl.lax.stop_gradient(x))(3.0)
    Array(3., dtype=float32, weak_type=True)
    """

    def stop(leaf):
        leaf = as_operand(leaf, "stop_gradient")
        if leaf.dtype not in FLOATS and leaf.dtype not in COMPLEX:
            return leaf
        return bind("copy", leaf, weak=leaf.weak, stop_gradient=True)

    return tree.map(stop, x)


def optimization_barrier(operand):
    """operand (an array or a tree of them), as a barrier to code motion and fusion.

    >>> hl.lax.optimization_barrier((hnp.array([1]), hnp.array([2.0])))
    (Array([1], dtype=int32), Array([2.], dtype=float32))
    """
    leaves, structure = tree.flatten(operand)
    arrays = [as_operand(leaf, "optimization_barrier") for leaf in leaves]
    if not arrays:
        return operand
    result = bind("optimization-barrier", *arrays)
    results = result if isinstance(result, tuple) else [result]
    return tree.unflatten(structure, [with_weakness(r, a.weak) for r, a in zip(results, arrays, strict=True)])


def custom_call(target: str, *operands, shape, has_side_effect: bool = False):
    """The function registered under this name (`hl.register_custom_call`) applied to arrays.

    shape: (dtype, sizes) of its result, or a list of them for several results. Raises ShapeError if the function
    returns something else, HloomError if none is registered.

    >>> hl.register_custom_call("my_reverse", lambda x: x[::-1].copy())
    >>> hl.lax.custom_call("my_reverse", hnp.array([1, 2, 3]), shape=("s32", (3,)))
    Array([3, 2, 1], dtype=int32)
    """
    arrays = [as_operand(x, "custom_call") for x in read(operands, "custom_call")]
    several = isinstance(shape, list)
    try:
        shapes = [
            s if isinstance(s, Shape) else Shape(as_dtype(s[0]), tuple(s[1])) for s in (shape if several else [shape])
        ]
    except TypeError:
        raise AttributeValueError(
            "custom_call takes the shape of its result",
            f"{shape!r:.80}",
            "pass shape=('f32', (2, 3)) or a list of such",
        ) from None
    return bind(
        "custom-call",
        *arrays,
        shape=TupleShape(shapes) if several else shapes[0],
        custom_call_target=target,
        custom_call_has_side_effect=has_side_effect,
    )


def keep_axes(x, axes, dims):
    """A reduced x with the reduced axes restored as size 1. dims: the sizes before the reduction."""
    return reshape_to(x, tuple(1 if k in axes else d for k, d in enumerate(dims)))
