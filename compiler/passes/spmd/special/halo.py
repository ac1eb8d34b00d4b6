"""Halo exchange: remote elements of a split dimension that windows, shifts and reversals read.

Device p of n has elements p * part to (p + 1) * part of a dimension; it needs elements p * step + first to p * step +
first + width. Missing elements come from devices at constant distances, by one permutation per distance, of only those
elements that any device needs.
"""

from __future__ import annotations

import numpy as np

from hloom.compiler.passes.spmd.resharding.costs import cost
from hloom.compiler.passes.spmd.resharding.layouts import S32, Axes
from hloom.compiler.passes.spmd.scope import Scope
from hloom.ir.module import Instruction
from hloom.ir.records import record
from hloom.ir.types import Shape


@record(frozen=True)
class Fetch:
    """The elements that devices need of a dimension of `size` elements, of which each of `count` has `part`: `width`
    elements from p * step + first. Only those between low and high (the size, if None) are read."""

    size: int
    part: int
    count: int
    step: int
    first: int
    width: int
    low: int = 0
    high: int | None = None

    def starts(self) -> list[int]:
        return [p * self.step + self.first for p in range(self.count)]

    def pieces(self) -> list[tuple[int, int, int, tuple[int, ...]]]:
        """(distance, start, limit, devices): elements start to limit of the device at this distance, for these devices.
        Together they form one range of elements that begins in the part of the first."""
        spans = {}
        for p, start in enumerate(self.starts()):
            low = max(start, self.low)
            high = min(start + self.width, self.size if self.high is None else self.high)
            if low < high:
                spans[p] = (low, high)
        if not spans:
            return [(0, 0, 1, ())]
        first = min(low // self.part - p for p, (low, _) in spans.items())
        last = max((high - 1) // self.part - p for p, (_, high) in spans.items())
        start = min(low % self.part for p, (low, _) in spans.items() if low // self.part - p == first)
        limit = max((high - 1) % self.part for p, (_, high) in spans.items() if (high - 1) // self.part - p == last) + 1
        found = []
        for distance in range(first, last + 1):
            users = tuple(
                p for p, (low, high) in spans.items()
                if low // self.part <= p + distance <= (high - 1) // self.part
            )  # fmt: skip
            bounds = (start if distance == first else 0, limit if distance == last else self.part)
            found.append((distance, *bounds, users))
        return found

    def price(self, cross: float) -> float:
        """The cost of fetching it. cross: the bytes per element."""
        moved = [limit - start for distance, start, limit, users in self.pieces() if distance and users]
        return sum(cost("collective-permute", 2, places * cross) for places in moved)

    def leaves(self) -> bool:
        """Whether a device needs elements out of the dimension's bounds."""
        return any(start < 0 or start + self.width > self.size for start in self.starts())


class Exchange:
    """The exchange for several needs: equal pieces over the same distance around the ring are sent together."""

    def __init__(self, scope: Scope):
        self.scope = scope
        self.pairs: dict[tuple, set[tuple[int, int]]] = {}
        self.made: dict[tuple, Instruction] = {}

    def expect(self, value: Instruction, d: int, fetch: Fetch) -> None:
        """Registers a need, before any piece is requested."""
        for distance, start, limit, users in fetch.pieces():
            if distance:
                key = (id(value), d, start, limit, distance % fetch.count)
                self.pairs.setdefault(key, set()).update((p + distance, p) for p in users)

    def piece(self, value: Instruction, d: int, axes: Axes, fetch: Fetch, start: int, limit: int, distance: int):
        """Elements start to limit of the device at a distance."""
        piece = self.scope.mover.cut(value, d, start, limit)
        if distance == 0:
            return piece
        key = (id(value), d, start, limit, distance % fetch.count)
        found = self.made.get(key)
        if found is None:
            groups = self.scope.layouts.mesh.groups(axes)
            pairs = sorted((g[source], g[target]) for g in groups for source, target in self.pairs[key])
            found = self.made[key] = self.scope.mover.permuted(piece, pairs)
        return found


def fetched(
    scope: Scope, value: Instruction, d: int, axes: Axes, fetch: Fetch, fill: Instruction | None,
    exchange: Exchange | None = None,
) -> Instruction:  # fmt: skip
    """The elements of dimension d that each device needs. fill: a scalar for elements out of bounds; otherwise these
    are arbitrary. exchange: shared with other needs."""
    emit, mover = scope.builder.emit, scope.mover
    if exchange is None:
        exchange = Exchange(scope)
        exchange.expect(value, d, fetch)
    pieces = fetch.pieces()
    parts = [exchange.piece(value, d, axes, fetch, start, limit, distance) for distance, start, limit, _ in pieces]
    joined = emit("concatenate", *parts, dimensions=(d,)) if len(parts) > 1 else parts[0]
    # The start of each device's elements in its extended part.
    begin = pieces[0][0] * fetch.part + pieces[0][1]
    offsets = [start - p * fetch.part - begin for p, start in enumerate(fetch.starts())]
    low = max(0, -min(offsets))
    high = max(0, max(offsets) + fetch.width - joined.dims[d])
    if low or high:
        padding = tuple((low, high, 0) if k == d else (0, 0, 0) for k in range(len(value.dims)))
        joined = emit("pad", joined, _number(scope, fill, value), padding=padding)
    if len(set(offsets)) == 1:
        found = mover.cut(joined, d, offsets[0] + low, offsets[0] + low + fetch.width)
    else:
        moved = scope.numbers.start(axes, fetch.step - fetch.part)
        moved = emit("add", moved, scope.builder.splat(offsets[0] + low, Shape(S32)))
        found = mover.at(joined, d, moved, fetch.width)
    if fill is not None and fetch.leaves() and not _is_clean(fetch, fill):
        found = _filled(scope, found, d, axes, fetch, fill)
    return found


def _is_clean(fetch: Fetch, fill: Instruction) -> bool:
    """Whether out-of-bounds elements arrive as zeros, and should be zeros."""
    zero = fill.opcode == "constant" and not np.asarray(fill["value"]).any()
    return zero and fetch.part * fetch.count == fetch.size


def _number(scope: Scope, fill: Instruction | None, value: Instruction) -> Instruction:
    return fill if fill is not None else scope.builder.constant(np.zeros((), value.dtype))


def _filled(scope: Scope, value: Instruction, d: int, axes: Axes, fetch: Fetch, fill: Instruction) -> Instruction:
    emit = scope.builder.emit
    place = emit("iota", shape=Shape(np.int32, value.dims), iota_dimension=d)
    start = emit("add", scope.numbers.start(axes, fetch.step), scope.builder.splat(fetch.first, Shape(S32)))
    place = emit("add", place, scope.mover.spread(start, value.dims))
    above = emit("compare", place, scope.builder.splat(0, place.shape), direction="GE")
    below = emit("compare", place, scope.builder.splat(fetch.size, place.shape), direction="LT")
    return emit("select", emit("and", above, below), value, scope.mover.spread(fill, value.dims))
