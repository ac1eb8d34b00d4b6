"""The collectives of a compiled function, as a list that shows itself as a table."""

from __future__ import annotations

from hloom.compiler.communication import bytes_sent, table
from hloom.ir.records import replace


class Collectives(list):
    """The `CollectiveUse`s of a program in its order: kind, axes, groups, bytes, times, source, why.

    It prints as a table, with or without rich.
    """

    @property
    def bytes(self) -> float:
        """The bytes that a device sends in a call; the body of a loop of unknown length counts once."""
        return bytes_sent(self)

    def __str__(self) -> str:
        return table(self) if self else "no collectives"

    def __rich__(self):
        # Saves start-up time: rich takes 20 ms, and few programs show this table.
        from rich.table import Table

        shown = Table("kind", "axes", "bytes a device", "times", "line", "why")
        for use in self:
            times = "?" if use.times is None else f"{use.times:,}"
            shown.add_row(use.kind, use.among, f"{use.bytes:,}", times, str(use.source or ""), use.why)
        who = "the devices send" if all(use.kind == "send" for use in self) else "each device sends"
        shown.caption = f"{who} {self.bytes:,.0f} bytes in a call"
        return shown


def with_whole_axes(uses) -> Collectives:
    """The collectives with the mesh's axes in place of their atoms ('x.0', 'x.1')."""
    return Collectives(replace(use, axes=_whole(use.axes)) for use in uses)


def _whole(axes: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if axes is None:
        return None
    names: dict[str, None] = {}
    for axis in axes:
        name, dot, number = axis.rpartition(".")
        names[name if dot and number.isdigit() else axis] = None
    return tuple(names)


__all__ = ["Collectives", "with_whole_axes"]
