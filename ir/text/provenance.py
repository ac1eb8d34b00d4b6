"""Provenance in HLO text: `metadata={op_name=".." source_file=".." source_line=N}`, and XLA's tables of stack frames.

op_name is `function/variable`; op_type, otherwise unused by hloom, names the rules and passes that made it.
"""

from __future__ import annotations

from hloom.ir.module import Instruction
from hloom.ir.source import Source
from hloom.ir.text.lexer import Cursor, escape

DEVICE = "device"  # the frontend attribute for the device chosen for an instruction (`Source.device`)
TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


def metadata_text(instruction: Instruction) -> str:
    """The metadata of an instruction without braces, or '' if unknown."""
    fields = []
    source = instruction.source
    if instruction.made_by:
        fields.append(f"op_type={escape(';'.join(instruction.made_by))}")
    if source is not None:
        name = f"{source.function}/{source.variable}" if source.variable else source.function
        if name:
            fields.append(f"op_name={escape(name)}")
        if source.file:
            fields.append(f"source_file={escape(source.file)} source_line={source.line}")
    return " ".join(fields)


def parse_pairs(cursor: Cursor) -> dict[str, str | int]:
    """`{key=value key=value}`: strings and integers; other values are ignored."""
    if cursor.peek() == "{}":
        cursor.at += 1
        return {}
    pairs: dict[str, str | int] = {}
    cursor.expect("{")
    while not cursor.accept("}"):
        key = cursor.name("a name")
        cursor.expect("=")
        token = cursor.peek()
        if token[:1] == '"' and len(token) > 1:
            pairs[key] = cursor.string()
        elif token.isascii() and token.isdigit() and len(token) < 19:
            pairs[key] = cursor.integer()
        else:
            cursor.skip_value()
    return pairs


class Frames:
    """XLA's tables of file names, functions, locations and frames, which `stack_frame_id` refers to."""

    def __init__(self):
        self.tables: dict[str, dict[object, object]] = {name: {} for name in TABLES}

    def parse(self, cursor: Cursor) -> None:
        while cursor.peek() in TABLES:
            table = self.tables[cursor.take()]
            while cursor.peek().isascii() and cursor.peek().isdigit():
                key = cursor.integer()
                table[key] = cursor.string() if cursor.peek()[:1] == '"' else parse_pairs(cursor)

    def source(self, frame_id) -> Source | None:
        """The location of a frame, or None if it is missing."""
        frame = self._row("StackFrames", frame_id)
        place = self._row("FileLocations", frame.get("file_location_id"))
        file = self.tables["FileNames"].get(place.get("file_name_id"))
        function = self.tables["FunctionNames"].get(place.get("function_name_id"))
        if not isinstance(file, str):
            return None
        return Source(file, _integer(place.get("line")), function if isinstance(function, str) else "")

    def _row(self, table: str, key) -> dict:
        row = self.tables[table].get(key)
        return row if isinstance(row, dict) else {}


def _integer(value) -> int:
    return value if isinstance(value, int) else 0


def parse_metadata(cursor: Cursor, frames: Frames) -> tuple[Source | None, tuple[str, ...]]:
    """(source, made_by) of `metadata={...}`."""
    pairs = parse_pairs(cursor)
    made = pairs.get("op_type")
    made_by = tuple(made.split(";")) if isinstance(made, str) and made else ()
    file, name = pairs.get("source_file"), pairs.get("op_name")
    if not isinstance(file, str):
        return frames.source(pairs.get("stack_frame_id")), made_by
    function, slash, variable = name.rpartition("/") if isinstance(name, str) else ("", "", "")
    if not slash:
        function, variable = variable, ""
    return Source(file, _integer(pairs.get("source_line")), function, variable), made_by
