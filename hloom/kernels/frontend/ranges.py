"""Ranges of integers: of sums, products, quotients, and after comparisons."""

from __future__ import annotations

from collections.abc import Callable

from hloom.kernels.frontend.values import UNKNOWN, Range

__all__ = ["after", "meet", "of_operation", "other_than", "union", "within"]

_LARGEST = 1 << 62  # ranges beyond are not known, so that nothing wraps around


def of_operation(op: str, left: Range, right: Range) -> Range:
    """The range of `left op right` in s64."""
    rule = _RULES.get(op)
    found = UNKNOWN if rule is None else rule(left, right)
    return (_kept(found[0]), _kept(found[1]))


def union(left: Range, right: Range) -> Range:
    """The union of two ranges."""
    return (_both(min, left[0], right[0]), _both(max, left[1], right[1]))


def meet(left: Range, right: Range) -> Range:
    """The intersection of two ranges."""
    return (_either(max, left[0], right[0]), _either(min, left[1], right[1]))


def within(value: Range, size: Range) -> bool | None:
    """Whether an index is valid for a size: True or False where it is certain for every value."""
    low, high = value
    if low is not None and low >= 0 and high is not None and size[0] is not None and high < size[0]:
        return True
    if (high is not None and high < 0) or (low is not None and size[1] is not None and low >= size[1]):
        return False
    return None


def after(op: str, right: Range) -> Range:
    """The range of a value for which `value op right` is true."""
    low, high = right
    match op:
        case "<":
            return (None, None if high is None else high - 1)
        case "<=":
            return (None, high)
        case ">":
            return (None if low is None else low + 1, None)
        case ">=":
            return (low, None)
        case "==":
            return right
    return UNKNOWN


def other_than(value: Range, other: Range) -> Range:
    """The range of a value that differs from the only number of another range, where that is an end of its own."""
    (low, high), (number, last) = value, other
    if number is None or number != last:
        return UNKNOWN
    return (number + 1 if low == number else None, number - 1 if high == number else None)


def _kept(bound: int | None) -> int | None:
    return bound if bound is not None and -_LARGEST < bound < _LARGEST else None


def _both(chosen: Callable, left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else chosen(left, right)


def _either(chosen: Callable, left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else chosen(left, right)


def _plus(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def _negative(value: Range) -> Range:
    low, high = value
    return (None if high is None else -high, None if low is None else -low)


def _add(left: Range, right: Range) -> Range:
    return (_plus(left[0], right[0]), _plus(left[1], right[1]))


def _multiply(left: Range, right: Range) -> Range:
    if left[0] is not None and left[0] >= 0 and right[0] is not None and right[0] >= 0:
        return (left[0] * right[0], None if left[1] is None or right[1] is None else left[1] * right[1])
    if None in (*left, *right):
        return UNKNOWN
    corners = [a * b for a in left for b in right]  # type: ignore[operator]
    return (min(corners), max(corners))


def _divide(left: Range, right: Range) -> Range:
    if right[0] is None or right[0] <= 0 or left[0] is None or left[0] < 0 or _is_empty(right):
        return UNKNOWN
    return (0 if right[1] is None else left[0] // right[1], None if left[1] is None else left[1] // right[0])


def _is_empty(value: Range) -> bool:
    """Whether the range is empty, as in unreachable code."""
    return value[0] is not None and value[1] is not None and value[1] < value[0]


def _remainder(left: Range, right: Range) -> Range:
    if right[0] is None or right[0] <= 0 or _is_empty(right):
        return UNKNOWN
    most = None if right[1] is None else right[1] - 1
    if left[0] is not None and left[0] >= 0 and left[1] is not None and most is not None:
        most = min(most, left[1])
    return (0, most)


def _least(left: Range, right: Range) -> Range:
    return (_both(min, left[0], right[0]), _either(min, left[1], right[1]))


def _greatest(left: Range, right: Range) -> Range:
    return (_either(max, left[0], right[0]), _both(max, left[1], right[1]))


_RULES: dict[str, Callable[[Range, Range], Range]] = {
    "+": _add, "-": lambda left, right: _add(left, _negative(right)), "*": _multiply, "//": _divide,
    "%": _remainder, "min": _least, "max": _greatest,
}  # fmt: skip
