"""Matrix products over groups of rows (`ragged_dot`) and with block-scaled operands (`scaled_dot`)."""

from __future__ import annotations

from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.records import record
from hloom.ir.types import INTEGERS, as_dtype
from hloom.lax.elementwise import ge, lt, select
from hloom.lax.movement import broadcast_in_dim, broadcasted_iota, full_like, transpose
from hloom.lax.operands import as_operand, canonical_axis, convert, reshape_to
from hloom.lax.reduction import dot_general
from hloom.lax.scans import cumsum
from hloom.lax.table import bitwise_and, mul, sub


@record(frozen=True)
class RaggedDotDimensionNumbers:
    """The contracted, batch, ragged and group dimensions of `ragged_dot_general`.

    dot_dimension_numbers: as for `dot_general`; lhs_ragged_dimensions: the dimension of lhs that is divided into
    groups; rhs_group_dimensions: the dimension of rhs that indexes groups, if any.
    """

    dot_dimension_numbers: tuple
    lhs_ragged_dimensions: tuple
    rhs_group_dimensions: tuple

    def __post_init__(self):
        (lc, rc), (lb, rb) = self.dot_dimension_numbers
        pairs = ((tuple(lc), tuple(rc)), (tuple(lb), tuple(rb)))
        object.__setattr__(self, "dot_dimension_numbers", pairs)
        for name in ("lhs_ragged_dimensions", "rhs_group_dimensions"):
            object.__setattr__(self, name, tuple(getattr(self, name)))


@takes_out_sharding
def ragged_dot(
    lhs, rhs, group_sizes, precision=None, preferred_element_type=None, group_offset=None, out_sharding=None
):
    """Multiplies each group of rows of lhs (m, k), with sizes group_sizes (g), by a separate matrix of rhs (g, k, n):
    (m, n).

    Rows after the last group are 0. Raises ShapeError, DTypeError.

    >>> rows, weights = hnp.array([[1.0], [2.0], [3.0]]), hnp.array([[[1.0]], [[10.0]]])
    >>> hl.lax.ragged_dot(rows, weights, hnp.array([1, 2]))
    Array([[ 1.],
           [20.],
           [30.]], dtype=float32)
    """
    numbers = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    return ragged_dot_general(lhs, rhs, group_sizes, numbers, precision, preferred_element_type, group_offset)


@takes_out_sharding
def ragged_dot_general(
    lhs,
    rhs,
    group_sizes,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision=None,
    preferred_element_type=None,
    group_offset=None,
    out_sharding=None,
):
    """`dot_general` with one dimension of lhs divided into groups of group_sizes.

    If it is neither a contracting nor a batch dimension, each group uses a separate rhs, along rhs_group_dimensions. If
    it is contracted, the result has a new first dimension, the product of each group. If it is a batch dimension, the
    groups have no effect. group_sizes: integers [g], optionally with leading batch dimensions and the dimensions of lhs
    before the ragged one. Raises ShapeError, DTypeError, ArgumentError.
    """
    name = "ragged_dot_general"
    left, right, sizes = (as_operand(x, name) for x in (lhs, rhs, group_sizes))
    numbers = ragged_dot_dimension_numbers
    (lc, rc), (lb, rb) = numbers.dot_dimension_numbers
    if group_offset is not None:
        raise ArgumentError("ragged_dot with group_offset", "a part of the groups", "slice rhs and group_sizes")
    if sizes.dtype not in INTEGERS or not sizes.ndim:
        raise DTypeError("group_sizes counts rows", f"{sizes._shape!r}", "pass a vector of integers")
    if len(numbers.lhs_ragged_dimensions) != 1:
        raise ArgumentError(
            "one dimension of lhs is cut into groups", f"{numbers.lhs_ragged_dimensions}", "name one dimension"
        )
    ragged = canonical_axis(numbers.lhs_ragged_dimensions[0], left.ndim, name)
    lc, lb = (tuple(canonical_axis(d, left.ndim, name) for d in dims) for dims in (lc, lb))
    if ragged in lb:
        return dot_general(left, right, ((lc, rc), (lb, rb)), precision, preferred_element_type)
    contracted = ragged in lc
    groups = numbers.rhs_group_dimensions
    if len(groups) != (0 if contracted else 1):
        raise ArgumentError(
            "rhs has a dimension for groups where a dimension of the result is cut, and none where a sum is",
            f"rhs_group_dimensions={groups}",
            "name one" if not contracted else "leave it empty",
        )
    parts = _in_groups(name, left, sizes, ragged, lc if contracted else None, lb)
    lc, lb = tuple(d + 1 for d in lc), tuple(d + 1 for d in lb)
    if not contracted:
        group = canonical_axis(groups[0], right.ndim, name)
        if right.shape[group] != sizes.shape[-1]:
            raise ShapeError(
                "rhs has a matrix for each group", f"{right._shape!r} and {sizes._shape!r}", "match their sizes"
            )
        pairs = (((0, *lc), (group, *rc)), (lb, rb))
        return dot_general(parts, right, pairs, precision, preferred_element_type)
    found = dot_general(parts, right, ((lc, rc), (lb, rb)), precision, preferred_element_type)
    place = len(lb)  # after the batch dimensions
    return transpose(found, (place, *(k for k in range(found.ndim) if k != place)))


def _in_groups(name, x, sizes, ragged: int, contracting, batch):
    """x with a new first dimension for the groups: elements of other groups are 0."""
    count = sizes.shape[-1]
    if sizes.ndim > 1:
        outer = contracting if contracting is not None else range(x.ndim)
        before = [*batch, *(k for k in outer if k < ragged and k not in batch)]
        if sizes.ndim - 1 != len(before) or any(
            e not in (1, x.shape[k]) for e, k in zip(sizes.shape, before, strict=False)
        ):
            raise ShapeError(
                "group_sizes has the batch dimensions and those of lhs before the cut one in front",
                f"{sizes._shape!r} for {x._shape!r}",
                "or pass one count for each group",
            )
    else:
        before = []
    last = sizes.ndim - 1
    ends = transpose(cumsum(sizes, axis=last), (last, *range(last)))
    starts = sub(ends, transpose(sizes, (last, *range(last))))
    dims = (count, *x.shape)
    order = sorted(range(len(before)), key=lambda k: before[k])

    def spread(v):
        v = transpose(v, (0, *(k + 1 for k in order)))
        return broadcast_in_dim(v, dims, (0, *(before[k] + 1 for k in order)))

    place = broadcasted_iota(sizes.dtype, dims, ragged + 1)
    inside = bitwise_and(ge(place, spread(starts)), lt(place, spread(ends)))
    wide = broadcast_in_dim(x, dims, tuple(range(1, x.ndim + 1)))
    return select(inside, wide, full_like(wide, 0))


def scaled(x, scale, name: str, dtype):
    """x times its scale, with one element per block of x along a dimension, in a wider dtype."""
    x = convert(as_operand(x, name), dtype)
    if scale is None:
        return x
    scale = convert(as_operand(scale, name), dtype)
    if scale.ndim != x.ndim or any(not s or d % s for d, s in zip(x.shape, scale.shape, strict=True)):
        raise ShapeError(
            f"{name} takes a scale whose sizes divide those of its operand",
            f"{scale._shape!r} for {x._shape!r}",
            "pass one scale for each block",
        )
    blocks = tuple(d // s for d, s in zip(x.shape, scale.shape, strict=True))
    between = tuple(n for pair in zip(scale.shape, blocks, strict=True) for n in pair)
    wide = broadcast_in_dim(scale, between, tuple(range(0, 2 * x.ndim, 2)))
    return mul(x, reshape_to(wide, x.shape))


def scaled_dot(lhs, rhs, *, lhs_scale=None, rhs_scale=None, dimension_numbers=None, preferred_element_type=None):
    """dot_general(lhs * lhs_scale, rhs * rhs_scale), each scale with one element per block of its operand.

    dimension_numbers: as for `dot_general`; by default the last dimension of lhs with the second to last of rhs, over
    equal leading ones. Products are computed in f32. Raises ShapeError.
    """
    dtype = as_dtype("bf16" if preferred_element_type is None else preferred_element_type)
    exact = as_dtype("f64") if dtype == as_dtype("f64") else as_dtype("f32")
    left, right = scaled(lhs, lhs_scale, "scaled_dot", exact), scaled(rhs, rhs_scale, "scaled_dot", exact)
    if dimension_numbers is None:
        batch = tuple(range(left.ndim - 2))
        dimension_numbers = (((left.ndim - 1,), (right.ndim - 2,)), (batch, batch))
    return convert(dot_general(left, right, dimension_numbers), dtype)
