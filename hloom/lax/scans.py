"""Running sums and products through windows as long as the array; other scans in log2(size) steps."""

from __future__ import annotations

from hloom.ir.build import scalar_computation
from hloom.ir.types import NARROW_FLOATS
from hloom.ir.window import WindowDimension
from hloom.lax.elementwise import is_nan, select
from hloom.lax.movement import pad
from hloom.lax.operands import F32, as_operand, canonical_axis, constant, convert
from hloom.lax.reduction import highest, lowest
from hloom.lax.table import abs as absolute
from hloom.lax.table import add, docstring, documented, exp, log1p, max, min, neg, sub
from hloom.tracing.trace import bind


def scan_steps(x, axis: int, combine, neutral, reverse: bool = False):
    """Running `combine` along an axis: each step combines with the element 1, 2, 4, ... positions before (or after).

    combine(x, shifted) -> array, associative and commutative; neutral: a number.
    """
    distance, extent = 1, x.shape[axis]
    while distance < extent:
        edges = (-distance, distance, 0) if reverse else (distance, -distance, 0)
        x = combine(x, pad(x, neutral, [edges if k == axis else (0, 0, 0) for k in range(x.ndim)]))
        distance *= 2
    return x


def running(x, axis: int, opcode: str, reverse: bool = False):
    """The running combination along an axis, in element order: 'add', 'multiply', 'or', 'and'."""
    extent = x.shape[axis]
    if extent < 2:
        return x
    low, high = (0, extent - 1) if reverse else (extent - 1, 0)
    long = WindowDimension(extent, 1, low, high)
    window = tuple([long if k == axis else WindowDimension(1) for k in range(x.ndim)])
    neutral = constant({"add": 0, "multiply": 1, "or": False, "and": True}[opcode], x.dtype)
    combiner = scalar_computation(opcode, x.dtype)
    return bind("reduce-window", x, neutral, weak=x.weak, window=window, to_apply=combiner)


def _cumulative(name: str, along, text: str, wide: bool, printed: str):
    """along(x, axis, reverse) -> array. wide: narrow floats are combined as float32."""

    def function(operand, axis: int = 0, reverse: bool = False):
        x = as_operand(operand, name)
        axis = canonical_axis(axis, x.ndim, name)
        work = F32 if wide and x.dtype in NARROW_FLOATS else x.dtype
        return convert(along(convert(x, work, x.weak), axis, reverse), x.dtype, x.weak)

    example = "{f}(hnp.array([3.0, 1.0, 4.0])).round(3)", f"Array({printed}, dtype=float32)"
    text = f"{text} along an axis, from its end if reverse. Raises ShapeError, DTypeError."
    return documented(function, name, docstring(text, example, f"hl.lax.{name}"))


def _ordered(opcode: str):
    return lambda x, axis, reverse: running(x, axis, opcode, reverse)


def _stepped(combine, neutral):
    return lambda x, axis, reverse: scan_steps(x, axis, combine, neutral(x.dtype), reverse)


def _log_add(a, b):
    larger = max(a, b)
    difference = sub(a, b)
    # The difference of equal infinities is NaN; the larger one is then the result.
    return select(is_nan(difference), add(a, b), add(larger, log1p(exp(neg(absolute(difference))))))


cumsum = _cumulative("cumsum", _ordered("add"), "The running sum", True, "[3., 4., 8.]")
cumprod = _cumulative("cumprod", _ordered("multiply"), "The running product", True, "[ 3.,  3., 12.]")
cummax = _cumulative("cummax", _stepped(max, lowest), "The largest element so far", False, "[3., 3., 4.]")
cummin = _cumulative("cummin", _stepped(min, highest), "The smallest element so far", False, "[3., 1., 1.]")
cumlogsumexp = _cumulative(
    "cumlogsumexp",
    _stepped(_log_add, lambda dtype: float("-inf")),
    "The logarithm of the running sum of exponentials",
    True,
    "[3.   , 3.127, 4.349]",
)
