"""`x[[i, j]]`: a list of numbers as an index, among slices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from hloom.kernels.frontend.arrays import Array, Arrays
from hloom.kernels.frontend.values import Listed, Number, Static, Value, View, integer

__all__ = ["Lists", "axis_of_list"]


def axis_of_list(entries: list) -> int | None:
    """The position of a list among the entries of an index, if all others are slices."""
    found = [k for k, entry in enumerate(entries) if isinstance(entry, Static) and isinstance(entry.value, Listed)]
    others = [entry for entry in entries if isinstance(entry, Static) and isinstance(entry.value, slice)]
    return found[0] if len(found) == 1 and len(others) == len(entries) - 1 and len(entries[found[0]].value) else None


class Lists(Arrays):
    """Parts of arrays at numbers of a list."""

    @abstractmethod
    def taken_from(self, view: View, entries: list, text: str) -> Array:
        """A part of a view, as NumPy's indices take it."""

    @abstractmethod
    def as_operand_number(self, value: Value, text: str) -> Number:
        """An index."""

    def taken_by_list(self, view: View, entries: list, axis: int, text: str) -> View:
        """A copy of the parts, as NumPy makes one. axis: the position of the list."""
        parts = list(self._parts(view, entries, axis, text))
        dims = [*parts[0].dims[:axis], integer(len(parts)), *parts[0].dims[axis:]]
        found = self.scratch(dims, view.dtype, "listed")
        for k, part in enumerate(parts):
            self.assign(self._at(found, axis, k), part)
        return found

    def assign_listed(self, view: View, entries: list, axis: int, value: Array | Number, text: str) -> None:
        """`x[[i, j]] = value`: one part after the other, of a value that is computed before."""
        count = len(entries[axis].value)
        held = value if isinstance(value, Number) else self.kept(value, "listed")
        # Where the value has the dimension of the list, if it is not broadcast along it.
        own = -1 if isinstance(held, Number) else axis - (len(view.dims) - len(held.dims))
        several = own >= 0 and isinstance(held, View) and held.dims[own].known != 1
        if several and isinstance(held, View):
            self._require_equal(held.dims[own], integer(count))
        for k, part in enumerate(self._parts(view, entries, axis, text)):
            self.assign(part, self._at(held, own, k if several else 0) if own >= 0 and isinstance(held, View) else held)

    def _parts(self, view: View, entries: list, axis: int, text: str) -> Iterator[View]:
        """The part of a view at each number of the list."""
        for entry in entries[axis].value:
            chosen = [*entries[:axis], self.as_operand_number(entry, text), *entries[axis + 1 :]]
            part = self.taken_from(view, chosen, text)
            assert isinstance(part, View)
            yield part

    def _at(self, view: View, axis: int, k: int) -> View:
        part = self.taken_from(view, [*[Static(slice(None))] * axis, integer(k)], "")
        assert isinstance(part, View)
        return part
