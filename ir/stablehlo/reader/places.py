"""Source locations of operations of a StableHLO program: in its text, and in the original Python program."""

from __future__ import annotations

import re

from hloom.ir.errors import ParseError
from hloom.ir.source import Source
from hloom.ir.stablehlo.lexer import _TOKEN, MlirCursor
from hloom.ir.stablehlo.syntax import Operation, Program

__all__ = ["Places"]

_FILE_LINE = re.compile(r'"([^"]+)":([0-9]{1,9})')
_LOCATION = re.compile(r"^(#loc\d{0,9}) = loc\((.*)\)$", re.MULTILINE)
_LOCATION_NAME = re.compile(r"#loc\d{0,9}")
_DEEPEST = 100  # maximum nesting of locations


class Places:
    """The lines of a program's operations, and errors with these lines."""

    def __init__(self, program: Program):
        self.program = program
        self._lines: list[int] | None = None
        self._locations: dict[str, str] | None = None  # by name in the text

    def line(self, place: int) -> int:
        if self._lines is None:
            lines, line, last = [], 1, 0
            text = self.program.text
            for match in _TOKEN.finditer(text):
                start = match.start(1)
                line += text.count("\n", last, start)
                last = start
                lines.append(line)
            self._lines = lines
        return self._lines[place] if place < len(self._lines) else 0

    def source(self, op: Operation, function: str, caller: Source | None = None) -> Source:
        """The source in the user's Python program if there is a location, otherwise that of the function's call site
        (caller), or the line of this text."""
        place = self.place(op, function)
        return place or caller or Source(self.program.file, self.line(op.place), function)

    def place(self, op: Operation, function: str) -> Source | None:
        """The source in the user's Python program, if there is a location."""
        found = self._line_of_location(op.location) if op.location else None
        return Source(*found, function) if found else None

    def _line_of_location(self, location: str, depth: int = 0) -> tuple[str, int] | None:
        """(file, line) of a location or of the first nested location that has one; names (`#loc7`) are looked up."""
        found = _FILE_LINE.search(location)
        if found:
            return found[1], int(found[2])
        if depth > _DEEPEST:
            return None
        if self._locations is None:
            self._locations = dict(_LOCATION.findall(self.program.text))
        for name in _LOCATION_NAME.findall(location):
            place = self._line_of_location(self._locations.get(name, ""), depth + 1)
            if place:
                return place
        return None

    def fail(self, op: Operation, problem: str, found: str = "", repair: str = "") -> ParseError:
        return MlirCursor(self.program.text, self.program.file).fail(problem, found, repair, at=op.place)
