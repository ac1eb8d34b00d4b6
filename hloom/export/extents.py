"""Numbers of plans as functions of named dimensions.

A program for a range of sizes is traced and planned for some of them. The numbers of these plans (sizes, strides,
counts of work items) are sums of products of the dimensions, of the dimensions counted in tiles, or count parts into
which such a sum is divided. Which form it is follows from the values at the corners of a box of sizes, exactly, and has
to hold for all other samples; where several forms do, a size for which they differ decides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from hloom.export.nodes import value_of

__all__ = ["Extent", "candidates", "difference", "fitted"]

Sizes = tuple[int, ...]
MOST_COMPARED = 1 << 16
# Sizes to which kernels round: rows and columns of register tiles, lanes, cache lines.
TILES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 28, 30, 32, 48, 64, 128, 256, 512)


class Extent:
    """A number that depends on dimensions. expression: as of `nodes`; text: for people. is_affine: whether it is a sum
    of products of dimensions."""

    __slots__ = ("expression", "is_affine", "text")

    def __init__(self, expression: Any, text: str, is_affine: bool = False):
        self.expression, self.text, self.is_affine = expression, text, is_affine

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Extent({self.text!r})"


def fitted(values: Mapping[Sizes, int], low: Sizes, high: Sizes, names: Sequence[str]) -> Any:
    """The int or Extent that has these values for these sizes, the simplest of several; None where no known form has
    them. values: for the corners of the box from low to high, and for others inside."""
    found = candidates(values, low, high, names)
    return found[0] if found else None


def candidates(
    values: Mapping[Sizes, int],
    low: Sizes,
    high: Sizes,
    names: Sequence[str],
    counted: Sequence[tuple[Extent, Mapping[Sizes, int]]] = (),
    parts: Sequence[int] = (),
) -> list[Any]:
    """All forms that have these values, simple ones first. counted, parts: numbers that may be divided into parts of
    these sizes, rounded up, with their values."""
    if len(set(values.values())) == 1:
        return [next(iter(values.values()))]
    varying = [k for k in range(len(low)) if low[k] != high[k]]
    found: list[Any] = []
    for tile in TILES:
        made = _fit(values, low, high, varying, tile)
        if made is not None:
            found.append(Extent(_expression(made, tile), _text(made, tile, names), tile == 1))
            if tile == 1:
                return found  # many samples on a line are one
    for number, at in counted:
        for part in parts:
            counts = {sizes: -(-at[sizes] // part) for sizes in values}
            least, most = counts[low], counts[high]
            if least == most or (values[high] - values[low]) % (most - least):
                continue
            factor = (values[high] - values[low]) // (most - least)
            offset = values[low] - factor * least
            if all(values[sizes] == offset + factor * counts[sizes] for sizes in values):
                quotient = ("floordiv", ("add", number.expression, part - 1), part)
                text = f"{factor}*ceil(({number.text})/{part}) + {offset}"
                found.append(Extent(("add", ("multiply", factor, quotient), offset), text))
    return found


def difference(first: Extent, other: Extent, low: Sizes, high: Sizes) -> Sizes | None:
    """Sizes in the box for which two forms differ; None where they are equal at all that were looked at: all sizes of a
    box of up to 2^16, else as many at random."""
    count = math.prod(b - a + 1 for a, b in zip(low, high, strict=True))
    if count <= MOST_COMPARED:
        grids = np.meshgrid(*[np.arange(a, b + 1) for a, b in zip(low, high, strict=True)], indexing="ij")
        points = [grid.ravel() for grid in grids]
    else:
        generator = np.random.default_rng(0)
        points = [generator.integers(a, b + 1, MOST_COMPARED) for a, b in zip(low, high, strict=True)]
    sizes: Any = tuple(points)  # all at once
    values = [value_of(one.expression, sizes) for one in (first, other)]
    where = np.flatnonzero(values[0] != values[1])
    return tuple([int(axis[where[len(where) // 2]]) for axis in points]) if len(where) else None


def _units(size: int, tile: int) -> int:
    return -(-size // tile)


def _fit(
    values: Mapping[Sizes, int], low: Sizes, high: Sizes, varying: list[int], tile: int
) -> dict[tuple[int, ...], int] | None:
    """The integer coefficients of the products of dimensions, counted in tiles, by the dimensions in each product."""
    coefficients: dict[tuple[int, ...], Fraction] = {}
    # Interpolates from corner to corner, one dimension after the other.
    subsets = [s for n in range(len(varying) + 1) for s in itertools.combinations(varying, n)]
    spans = {k: (_units(low[k], tile), _units(high[k], tile)) for k in varying}
    if any(a == b for a, b in spans.values()):
        return None
    for subset in subsets:
        corner = tuple([high[k] if k in subset else low[k] for k in range(len(low))])
        if corner not in values:
            return None
        # Lagrange: the product over the varying dimensions of (x - a) / (b - a) or (b - x) / (b - a).
        term: dict[tuple[int, ...], Fraction] = {(): Fraction(values[corner])}
        for k in varying:
            a, b = spans[k]
            scale = Fraction(1, b - a)
            slope, offset = (scale, -a * scale) if k in subset else (-scale, b * scale)
            longer: dict[tuple[int, ...], Fraction] = {}
            for key, factor in term.items():
                longer[key] = longer.get(key, Fraction(0)) + factor * offset
                longer[(*key, k)] = longer.get((*key, k), Fraction(0)) + factor * slope
            term = longer
        for key, factor in term.items():
            coefficients[key] = coefficients.get(key, Fraction(0)) + factor
    if any(c.denominator != 1 for c in coefficients.values()):
        return None
    whole = {key: int(c) for key, c in coefficients.items() if c}
    for sizes, value in values.items():
        if value != sum(c * math.prod(_units(sizes[k], tile) for k in key) for key, c in whole.items()):
            return None
    return whole


def _expression(coefficients: Mapping[tuple[int, ...], int], tile: int) -> Any:
    def dimension(k: int) -> Any:
        one = ("dimension", k)
        return one if tile == 1 else ("floordiv", ("add", one, tile - 1), tile)

    total: Any = None
    for key, coefficient in coefficients.items():
        term: Any = coefficient
        for k in key:
            term = dimension(k) if term == 1 else ("multiply", term, dimension(k))
        total = term if total is None else ("add", total, term)
    return 0 if total is None else total


def _text(coefficients: Mapping[tuple[int, ...], int], tile: int, names: Sequence[str]) -> str:
    terms: list[str] = []
    for key, coefficient in sorted(coefficients.items(), key=lambda item: -len(item[0])):
        product = [names[k] if tile == 1 else f"ceil({names[k]}/{tile})" for k in key]
        shown = "*".join(([] if abs(coefficient) == 1 and key else [str(abs(coefficient))]) + product)
        sign = "-" if coefficient < 0 else "+"
        terms.append(f" {sign} {shown}" if terms else ("-" if sign == "-" else "") + shown)
    return "".join(terms) or "0"
