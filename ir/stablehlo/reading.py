"""Reading a program, with its dialect (HLO text or StableHLO) determined from its text or file name."""

from __future__ import annotations

import re
from pathlib import Path

from hloom.ir.module import Module
from hloom.ir.stablehlo.assembly.parser import parse_program
from hloom.ir.stablehlo.reader.module import to_module
from hloom.ir.text import parse_module

_COMMENTS = r"(?:\s+|//[^\n]*|/\*[\s\S]*?\*/)*+"
_MLIR = re.compile(_COMMENTS + r'(?:module\b(?!\s*\()|func\.func\b|"builtin\.module"|"func\.func"|#|![\w$.]+\s*=)')


def is_stablehlo(text: str, file: str = "") -> bool:
    """Whether a text is MLIR rather than HLO text: by the file extension, otherwise by its beginning."""
    suffix = Path(file).suffix
    if suffix in (".mlir", ".stablehlo"):
        return True
    if suffix in (".hlo", ".txt"):
        return False
    return _MLIR.match(text) is not None


def read_module(text: str, file: str = "<text>", input_shapes=None, known=()) -> Module:
    """The module of HLO text or of a StableHLO program. input_shapes, known: as for `to_module`."""
    if is_stablehlo(text, file):
        return to_module(parse_program(text, file), None, input_shapes, known)
    return parse_module(text, file)
