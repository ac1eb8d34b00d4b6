"""Running sums, products, extremes: an associative op applied along an axis in log2(extent) shifted steps."""

from __future__ import annotations

from hloom.ir.types import NARROW_FLOATS
from hloom.lax.elementwise import abs as absolute
from hloom.lax.elementwise import add, exp, is_nan, log1p, max, min, mul, neg, select, sub
from hloom.lax.movement import pad
from hloom.lax.reduction import highest, lowest
from hloom.operands import F32, as_operand, canonical_axis, convert


def scan_steps(x, axis: int, combine, neutral, reverse: bool = False):
    """Running `combine` along an axis: each step combines with what stands 1, 2, 4, ... places before (or behind).

    combine(x, shifted) -> array, associative and commutative; neutral: a number.
    """
    distance, extent = 1, x.shape[axis]
    while distance < extent:
        edges = (-distance, distance, 0) if reverse else (distance, -distance, 0)
        x = combine(x, pad(x, neutral, [edges if k == axis else (0, 0, 0) for k in range(x.ndim)]))
        distance *= 2
    return x


def _cumulative(name: str, combine, neutral, text: str, wide: bool):
    def function(operand, axis: int = 0, reverse: bool = False):
        x = as_operand(operand, name)
        axis = canonical_axis(axis, x.ndim, name)
        work = F32 if wide and x.dtype in NARROW_FLOATS else x.dtype
        result = scan_steps(convert(x, work, x.weak), axis, combine, neutral(work), reverse)
        return convert(result, x.dtype, x.weak)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text} along an axis, from its end if reverse. Raises ShapeError, DTypeError."
    return function


def _log_add(a, b):
    larger = max(a, b)
    difference = sub(a, b)
    # The difference of equal infinities is NaN; the larger is then the sum.
    return select(is_nan(difference), add(a, b), add(larger, log1p(exp(neg(absolute(difference))))))


cumsum = _cumulative("cumsum", add, lambda dtype: 0, "The running sum", True)
cumprod = _cumulative("cumprod", mul, lambda dtype: 1, "The running product", True)
cummax = _cumulative("cummax", max, lowest, "The largest element so far", False)
cummin = _cumulative("cummin", min, highest, "The smallest element so far", False)
cumlogsumexp = _cumulative(
    "cumlogsumexp", _log_add, lambda dtype: float("-inf"), "The logarithm of the running sum of exponentials", True
)
