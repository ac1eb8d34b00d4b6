"""Inference of dimension sizes from the shapes of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hloom.ir.sizes.expressions import Dim, Size, dims_of, size_at

__all__ = ["solved"]


def solved(shapes: Sequence[tuple[Sequence[Size], Sequence[int]]]) -> dict[str, int] | None:
    """The sizes of dimensions, by name, for which shapes (wanted, given) agree; None if there are none or they are not
    determined: each must be alone in a shape, or the only unknown of an expression that is monotonic in it."""
    sizes: dict[str, int] = {}
    pairs = [(w, g) for wanted, given in shapes for w, g in zip(wanted, given, strict=True)]
    left = [pair for pair in pairs if dims_of(pair[0])]
    while left:
        rest = []
        for wanted, given in left:
            unknown = [d for name, d in dims_of(wanted).items() if name not in sizes]
            if len(unknown) == 1:
                sizes[unknown[0].name] = _solution(wanted, int(given), unknown[0], sizes)
            elif unknown:
                rest.append((wanted, given))
        if len(rest) == len(left):
            return None
        left = rest
    return sizes if all(size_at(w, sizes) == g for w, g in pairs) else None


def _solution(wanted: Size, given: int, dim: Dim, sizes: Mapping[str, int]) -> int:
    """The smallest size of a dimension for which an expression is at least a number."""
    low, high = dim.min, min(dim.most, max(2 * abs(given) + 2, dim.min))
    while low < high:
        middle = (low + high) // 2
        if size_at(wanted, {**sizes, dim.name: middle}) < given:
            low = middle + 1
        else:
            high = middle
    return low
