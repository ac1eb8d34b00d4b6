"""Marks of loops for LLVM's vectorizer."""

from __future__ import annotations

import re
from collections.abc import Iterable

# LLVM chooses the number of accumulators of a reduction well.
_ACCUMULATORS = ("sum_", "prod_", "max_", "min_", "tile_")
# Loops with this many operations process four vectors per iteration.
_LONG = 24
_OPERATION = re.compile(r" = f(?:add|sub|mul|div) ")
_LABEL = re.compile(r'^("?[\w.$-]+"?):')
_JUMP = re.compile(r'^  br label %("?[\w.$-]+"?)$')


def is_interleaved(names: Iterable[str]) -> bool:
    """Whether a kernel that calls these names gets the marks of `interleaved`."""
    return not any(name.startswith(_ACCUMULATORS) for name in names)


def interleaved(text: str) -> str:
    """LLVM IR whose innermost loops process two vectors per iteration, or four where the loop is long.

    Element-wise kernels are chains of dependent operations of some four cycles each. LLVM interleaves only the shortest
    loops; two independent chains take hardly longer than one.
    """
    lines = text.split("\n")
    places: dict[str, int] = {}
    last = -1  # the header of the last loop that was found
    number = 0
    for k, line in enumerate(lines):
        if line.startswith("define"):
            places, last = {}, -1
        elif label := _LABEL.match(line):
            places[label[1].strip('"')] = k
        elif jump := _JUMP.match(line):
            header = places.get(jump[1].strip('"'))
            if header is not None and header > last:
                lines[k] = f"{line}, !llvm.loop !{9000 + number}"
                count = 8998 if _is_long(lines[header:k]) else 8999
                lines.append(f"!{9000 + number} = distinct !{{!{9000 + number}, !{count}}}")
                number += 1
            if header is not None:
                last = max(last, header)
    if number:
        lines.append('!8999 = !{!"llvm.loop.interleave.count", i32 2}')
        lines.append('!8998 = !{!"llvm.loop.interleave.count", i32 4}')
    return "\n".join(lines)


def _is_long(body: list[str]) -> bool:
    """Whether a loop is a long chain of plain arithmetic."""
    return sum(bool(_OPERATION.search(line)) for line in body) >= _LONG
