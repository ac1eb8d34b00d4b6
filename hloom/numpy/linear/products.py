"""Products: matmul, dot, tensordot and their relatives, all onto the dot op."""

from __future__ import annotations

from hloom import lax
from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import ArgumentError, ShapeError
from hloom.lax.operands import (
    as_operand,
    broadcast_dims_to,
    broadcast_shapes,
    canonical_axes,
    canonical_axis,
    promote_operands,
    reshape_to,
)
from hloom.lax.reduction import dot_dimensions
from hloom.numpy.elementwise.signs import conj
from hloom.numpy.shaping.manipulation import moveaxis, stack
from hloom.tracing.trace import bind


def contract(left, left_labels, right, right_labels, out_labels, preferred_element_type=None, dot_general=None):
    """The sum of left * right over the labels that are not in out_labels, as one dot and a transpose.

    Labels are hashable, distinct within an operand, one for each dimension; equal labels have equal sizes. A label in
    out_labels is in one or both operands, any other label is in both. dot_general: replaces lax's.
    """
    position = {label: k for k, label in enumerate(right_labels)}
    shared = [label for label in left_labels if label in position]
    kept = frozenset(out_labels)
    batch = [label for label in shared if label in kept]
    contracting = [label for label in shared if label not in kept]
    dimensions = (
        tuple(left_labels.index(label) for label in batch),
        tuple(position[label] for label in batch),
        tuple(left_labels.index(label) for label in contracting),
        tuple(position[label] for label in contracting),
    )
    if dot_general is None or dot_general is lax.dot_general:
        result = dot_dimensions(left, right, *dimensions, preferred_element_type)
    else:
        numbers = (dimensions[2:], dimensions[:2])
        result = dot_general(left, right, numbers, precision=None, preferred_element_type=preferred_element_type)
    found = batch + [x for x in left_labels if x not in shared] + [x for x in right_labels if x not in shared]
    return lax.transpose(result, [found.index(label) for label in out_labels])


@takes_out_sharding
def matmul(a, b, *, precision=None, preferred_element_type=None, out_sharding=None):
    """Matrix product over the last two axes; a left vector is a row, a right one a column; other axes broadcast.

    Promotes; the result is of the promoted dtype or preferred_element_type. Raises ShapeError, DTypeError.

    >>> a, b = hnp.ones((8, 2, 3)), hnp.ones((3, 4))
    >>> hnp.matmul(a, b).shape
    (8, 2, 4)
    >>> hnp.array([[1, 2], [3, 4]]) @ hnp.array([1, 1])
    Array([3, 7], dtype=int32)
    """
    (a, b), _ = promote_operands("matmul", (a, b), broadcast=False)
    ra, rb = len(a._shape.dims), len(b._shape.dims)
    if not ra or not rb:
        raise ShapeError(
            "matmul takes vectors and matrices", f"{a._shape!r} and {b._shape!r}", "use * to multiply by a scalar"
        )
    inner = a._shape.dims[-1], b._shape.dims[0 if rb == 1 else -2]
    if inner[0] != inner[1]:
        raise ShapeError(
            "matmul contracts the last axis of its left operand with the last but one of its right operand",
            f"{a._shape!r} @ {b._shape!r}: {inner[0]} and {inner[1]}",
            "transpose one of them (x.T, x.mT), or check the order of the operands",
        )
    if rb <= 2:
        return dot_dimensions(a, b, (), (), (ra - 1,), (0,), preferred_element_type)
    if a._shape.dims[:-2] == b._shape.dims[:-2]:
        batch = tuple(range(rb - 2))
        return dot_dimensions(a, b, batch, batch, (ra - 1,), (rb - 2,), preferred_element_type)
    dims = broadcast_shapes("matmul", [a._shape.dims[:-2], b._shape.dims[:-2]])
    a, left = _matmul_labels(a, dims, [(), ("k",)] if ra == 1 else [("m",), ("k",)])
    b, right = _matmul_labels(b, dims, [("k",), ("n",)])
    out = [*range(len(dims)), *(("m",) if ra > 1 else ()), "n"]
    # A leading axis that both operands lack, or have with size 1, is restored by the reshape.
    present = [label for label in out if label in left or label in right]
    result = contract(a, left, b, right, present, preferred_element_type)
    tail = result._shape.dims[len(result._shape.dims) - (2 if ra > 1 else 1) :]
    return reshape_to(result, dims + tail)


def _matmul_labels(x, dims, ends):
    """x without its broadcast leading axes, and its labels: 0, 1, ... for the leading axes of the result."""
    names = [name for end in ends for name in end]
    own = x._shape.dims[: x.ndim - len(names)]
    lead = len(dims) - len(own)
    kept = [k for k, extent in enumerate(own) if extent != 1]
    x = reshape_to(x, tuple(own[k] for k in kept) + x._shape.dims[len(own) :])
    return x, [lead + k for k in kept] + names


@takes_out_sharding
def dot(a, b, *, precision=None, preferred_element_type=None, out_sharding=None):
    """NumPy's dot: the last axis of a with the last but one of b (its only one for a vector); scalars multiply.

    Raises ShapeError, DTypeError.

    >>> hnp.dot(hnp.array([1, 2, 3]), hnp.array([4, 5, 6]))
    Array(32, dtype=int32)
    """
    (a, b), weak = promote_operands("dot", (a, b), broadcast=False)
    if not a.ndim or not b.ndim:
        return scaled(a, b)
    axis = max(b.ndim - 2, 0)
    _same_extent("dot", a, b, a.ndim - 1, axis)
    return dot_dimensions(a, b, (), (), (a.ndim - 1,), (axis,), preferred_element_type)


def scaled(a, b):
    """The product of broadcast operands of equal dtype."""
    (a, b), weak = promote_operands("multiply", (a, b))
    return bind("multiply", a, b, weak=weak)


def _same_extent(name, a, b, axis_a, axis_b):
    if a.shape[axis_a] != b.shape[axis_b]:
        raise ShapeError(
            f"{name} contracts axis {axis_a} of its left operand with axis {axis_b} of its right operand",
            f"{a._shape!r} and {b._shape!r}: {a.shape[axis_a]} and {b.shape[axis_b]}",
            "transpose one of them, or name other axes",
        )


def vdot(a, b, *, precision=None, preferred_element_type=None):
    """The sum of conj(a) * b over all elements, row-major. Raises ShapeError, DTypeError.

    >>> hnp.vdot(hnp.array([1 + 2j]), hnp.array([3 + 4j]))
    Array(11.-2.j, dtype=complex64)
    """
    (a, b), _ = promote_operands("vdot", (a, b), broadcast=False)
    a, b = (reshape_to(x, (x.size,)) for x in (a, b))
    return dot(conj(a), b, preferred_element_type=preferred_element_type)


def vecdot(x1, x2, /, *, axis: int = -1, precision=None, preferred_element_type=None):
    """The sum of conj(x1) * x2 along an axis; the others broadcast. Raises ShapeError, DTypeError.

    >>> hnp.vecdot(hnp.array([[1, 2], [3, 4]]), hnp.array([10, 1]))
    Array([12, 34], dtype=int32)
    """
    (a, b), _ = promote_operands("vecdot", (x1, x2), broadcast=False)
    axes = [canonical_axis(axis, x.ndim, "vecdot") for x in (a, b)]
    _same_extent("vecdot", a, b, *axes)
    a, b = (moveaxis(x, k, -1) for x, k in zip((a, b), axes, strict=True))
    dims = broadcast_shapes("vecdot", [a.shape, b.shape])
    a, b = broadcast_dims_to(conj(a), dims), broadcast_dims_to(b, dims)
    batch = tuple(range(len(dims) - 1))
    return dot_dimensions(a, b, batch, batch, (len(dims) - 1,), (len(dims) - 1,), preferred_element_type)


def matvec(x1, x2, /):
    """Matrices (..., m, n) times vectors (..., n); leading axes broadcast. Raises ShapeError, DTypeError.

    >>> hnp.matvec(hnp.array([[1, 2], [3, 4]]), hnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    x2 = as_operand(x2, "matvec")
    return lax.squeeze(matmul(x1, lax.expand_dims(x2, (-1,))), (-1,))


def vecmat(x1, x2, /):
    """Vectors (..., m), conjugated, times matrices (..., m, n). Raises ShapeError, DTypeError.

    >>> hnp.vecmat(hnp.array([1, 1]), hnp.array([[1, 2], [3, 4]]))
    Array([4, 6], dtype=int32)
    """
    x1 = conj(as_operand(x1, "vecmat"))
    return lax.squeeze(matmul(lax.expand_dims(x1, (-2,)), x2), (-2,))


def inner(a, b, *, precision=None, preferred_element_type=None):
    """The sum of products over the last axes of both; scalars multiply. Raises ShapeError, DTypeError.

    >>> hnp.inner(hnp.array([[1, 2], [3, 4]]), hnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    (a, b), _ = promote_operands("inner", (a, b), broadcast=False)
    if not a.ndim or not b.ndim:
        return scaled(a, b)
    _same_extent("inner", a, b, a.ndim - 1, b.ndim - 1)
    return dot_dimensions(a, b, (), (), (a.ndim - 1,), (b.ndim - 1,), preferred_element_type)


def outer(a, b, out=None):
    """The products of all elements of a with all of b, sizes (a.size, b.size). Raises DTypeError.

    >>> hnp.outer(hnp.array([1, 2]), hnp.array([3, 4, 5]))
    Array([[ 3,  4,  5],
           [ 6,  8, 10]], dtype=int32)
    """
    (a, b), _ = promote_operands("outer", (a, b), broadcast=False)
    return scaled(reshape_to(a, (a.size, 1)), reshape_to(b, (1, b.size)))


@takes_out_sharding
def tensordot(a, b, axes=2, *, precision=None, preferred_element_type=None, out_sharding=None):
    """The sum of products over the last `axes` axes of a and the first of b, or over axes=(of a, of b).

    Raises ShapeError, DTypeError, ArgumentError.

    >>> hnp.tensordot(hnp.ones((2, 3, 4)), hnp.ones((3, 4, 5)), axes=2).shape
    (2, 5)
    """
    (a, b), _ = promote_operands("tensordot", (a, b), broadcast=False)
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise ShapeError(
                f"tensordot over {axes} axes", f"{a._shape!r} and {b._shape!r}", "contract no more axes than both have"
            )
        left, right = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    else:
        try:
            left, right = axes
        except (TypeError, ValueError):
            raise ArgumentError(
                "tensordot takes a number of axes or a pair of lists", f"{axes!r:.80}", "pass axes=(of a, of b)"
            ) from None
        left = canonical_axes(left, a.ndim, "tensordot")
        right = canonical_axes(right, b.ndim, "tensordot")
        if len(left) != len(right):
            raise ShapeError("tensordot pairs axes", f"{left} and {right}", "name as many axes of a as of b")
    for k, j in zip(left, right, strict=True):
        _same_extent("tensordot", a, b, k, j)
    return dot_dimensions(a, b, (), (), left, right, preferred_element_type)


def kron(a, b):
    """The Kronecker product: each element of a times b; sizes are products. Raises DTypeError.

    >>> hnp.kron(hnp.array([1, 10]), hnp.array([[1, 2]]))
    Array([[ 1,  2, 10, 20]], dtype=int32)
    """
    (a, b), _ = promote_operands("kron", (a, b), broadcast=False)
    rank = max(a.ndim, b.ndim)
    da, db = ((1,) * (rank - x.ndim) + x.shape for x in (a, b))
    left = reshape_to(a, tuple(d for extent in da for d in (extent, 1)))
    right = reshape_to(b, tuple(d for extent in db for d in (1, extent)))
    return reshape_to(scaled(left, right), tuple(x * y for x, y in zip(da, db, strict=True)))


def cross(a, b, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None):
    """The cross product of vectors of size 3 (or 2, whose third component is 0). Other axes broadcast.

    Two vectors of size 2 give the third component alone. Raises ShapeError, DTypeError.

    >>> hnp.cross(hnp.array([1, 0, 0]), hnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    (a, b), _ = promote_operands("cross", (a, b), broadcast=False)
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ShapeError("cross takes vectors of size 2 or 3", f"{a._shape!r} and {b._shape!r}", "check the axes")
    components = [[lax.index_in_dim(x, k, -1, keepdims=False) for k in range(x.shape[-1])] for x in (a, b)]

    def minor(i, j):
        """a_i b_j - a_j b_i, where a missing component is 0."""
        terms = [scaled(components[0][p], components[1][q]) for p, q in ((i, j), (j, i)) if _has(components, p, q)]
        if _has(components, i, j) and _has(components, j, i):
            return lax.sub(*terms)
        if _has(components, i, j):
            return terms[0]
        return lax.neg(terms[0])

    if a.shape[-1] == b.shape[-1] == 2:
        return minor(0, 1)
    return moveaxis(stack([minor(1, 2), minor(2, 0), minor(0, 1)], -1), -1, axisc)


def _has(components, p, q):
    return p < len(components[0]) and q < len(components[1])


def matrix_transpose(x, /):
    """x with its last two axes exchanged. Raises ShapeError.

    >>> hnp.matrix_transpose(hnp.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    x = as_operand(x, "matrix_transpose")
    if x.ndim < 2:
        raise ShapeError("matrix_transpose takes matrices (rank 2 and more)", f"{x._shape!r}", "reshape the operand")
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
