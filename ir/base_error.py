"""The base of all hloom errors, imported by every layer that raises one: the IR, the compiler, the runtime and the
front end."""

from __future__ import annotations

from hloom.ir.source import Source, current_source


class HloomError(Exception):
    """Base of all errors of hloom.

    asked: the request of the user's code, one sentence. found: what was found instead (shapes, dtypes, values). repair:
    one possible fix. source: the user's file and line (or a string for it, '' for none); by default the innermost frame
    outside of hloom, the standard library and libraries that accept any arrays.
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
    """The error for a request, with its shape, and what was found, with its size in bytes."""
    return OutOfMemoryError(asked, found, "use smaller arrays, or compute in parts (lax.map, lax.scan)")


def no_memory(error: MemoryError, name: str, shapes: list) -> MemoryError:
    """NumPy's MemoryError for the results of `name`, as a hloom error."""
    if isinstance(error, HloomError):
        return error
    return out_of_memory(f"{name}, which returns {', '.join(map(repr, shapes))}", str(error))
