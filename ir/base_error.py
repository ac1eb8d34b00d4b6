"""The base of all errors of hloom, below everything that raises one: the IR, the compiler, the runtime and the front
end."""

from __future__ import annotations

from hloom.ir.source import Source, current_source


class HloomError(Exception):
    """Base of all errors of hloom.

    asked:  what the user's code asked for, one sentence.
    found:  what was there instead (shapes, dtypes, values).
    repair: one thing to try.
    source: the user's file and line (or a text that says it, '' for none); by default the innermost frame outside
    of hloom, of Python's own modules and of libraries that take any arrays.
    """

    def __init__(self, asked: str, found: str = "", repair: str = "", source: Source | str | None = None):
        self.asked, self.found, self.repair = asked, found, repair
        self.source = current_source() if source is None else source
        super().__init__(asked, found, repair)

    def __str__(self) -> str:
        lines = [self.asked]
        if self.found:
            lines.append(f"  found:  {self.found}")
        if self.source:
            lines.append(f"  where:  {self.source}")
            if isinstance(self.source, Source) and (code := self.source.code()):
                lines.append(f"          {code}")
        if self.repair:
            lines.append(f"  repair: {self.repair}")
        return "\n".join(lines)


class OutOfMemoryError(HloomError, MemoryError):
    """An array, or the temporaries of a program, are larger than the system's memory: hnp.ones(1 << 60)."""


def out_of_memory(asked: str, found: str) -> OutOfMemoryError:
    """The error for what was asked, with its shape, and what was found, with its bytes."""
    return OutOfMemoryError(asked, found, "use smaller arrays, or compute in parts (lax.map, lax.scan)")


def no_memory(error: MemoryError, name: str, shapes: list) -> MemoryError:
    """What NumPy says when there is no memory for what `name` returns, as an error of hloom."""
    if isinstance(error, HloomError):
        return error
    return out_of_memory(f"{name}, which returns {', '.join(map(repr, shapes))}", str(error))
