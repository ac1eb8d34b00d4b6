"""Objects that create arrays by indexing: grids (`mgrid`, `ogrid`), joined ranges (`r_`, `c_`) and indexes (`s_`)."""

from __future__ import annotations

from hloom.errors import ArgumentError
from hloom.lax.operands import promote_operands, reshape_to
from hloom.numpy.creation import arange, array, linspace, meshgrid
from hloom.numpy.shaping.manipulation import concatenate, stack


def _range(part: slice):
    """start:stop:step, or start:stop:n*1j for n evenly spaced points with both ends."""
    start = 0 if part.start is None else part.start
    if part.stop is None:
        raise ArgumentError("a range takes an end", f"{part}", "write start:stop or start:stop:step")
    if isinstance(part.step, complex):
        return linspace(start, part.stop, int(abs(part.step)))
    return arange(start, part.stop, part.step)


class _Grid:
    """Coordinates of a grid: indexed with ranges start:stop:step, where a step n*1j means n points with both ends."""

    def __init__(self, sparse: bool):
        self._sparse = sparse

    def __getitem__(self, ranges):
        if isinstance(ranges, slice):
            return _range(ranges)
        axes, _ = promote_operands("mgrid", [_range(r) for r in ranges], broadcast=False)
        grids = meshgrid(*axes, indexing="ij", sparse=self._sparse)
        if self._sparse:
            return grids
        return stack(grids) if grids else array([])


mgrid, ogrid = _Grid(False), _Grid(True)


class _Joined:
    """Ranges, arrays and scalars concatenated along an axis.

    A leading string, 'axis,rank,place' (all but the first are optional), sets the axis, the minimum rank of the parts,
    and the position of new axes of size 1: the parts' first axis is axis `place` of the result.
    """

    def __init__(self, axis: int, rank: int, place: int):
        self._defaults = axis, rank, place

    def __getitem__(self, parts):
        parts = parts if isinstance(parts, tuple) else (parts,)
        axis, rank, place = self._defaults
        if parts and isinstance(parts[0], str) and parts[0] in ("r", "c"):
            joined = self[parts[1:]]
            row = (1, joined.size) if parts[0] == "r" else (joined.size, 1)
            return joined if joined.ndim > 1 else reshape_to(joined, row)
        if parts and isinstance(parts[0], str):
            axis, rank, place = self._read(parts[0], place)
            parts = parts[1:]
        arrays = []
        for part in parts:
            given = _range(part) if isinstance(part, slice) else array(part)
            own = given.ndim
            scalar = own == 0
            given = reshape_to(given, (1,)) if scalar else given
            missing = rank - given.ndim
            if missing > 0:
                # A scalar becomes 1 x ... x 1 wherever its axis would go.
                front = min(max(place if place >= 0 else missing + place + 1, 0), missing)
                given = reshape_to(given, (1,) * front + given.shape + (1,) * (missing - front))
            arrays.append(given)
        return concatenate(arrays, axis)

    @staticmethod
    def _read(text: str, place: int) -> tuple[int, int, int]:
        try:
            numbers = [int(n) for n in text.split(",")]
        except ValueError:
            numbers = []
        if not 1 <= len(numbers) <= 3:
            raise ArgumentError("r_ takes a text such as '0,2,1'", f"{text!r}", "write 'axis' or 'axis,rank'")
        axis, rank, place = (*numbers, *(0, 1, place)[len(numbers) :])
        return axis, rank, place


r_, c_ = _Joined(0, 1, -1), _Joined(-1, 2, 0)


class _Index:
    """Returns the index itself: s_[1:3] is slice(1, 3)."""

    def __init__(self, as_tuple: bool):
        self._as_tuple = as_tuple

    def __getitem__(self, index):
        return (index,) if self._as_tuple and not isinstance(index, tuple) else index


s_, index_exp = _Index(False), _Index(True)
