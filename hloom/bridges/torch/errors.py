"""What torch's users are told: ops by their names in ATen, places by the user's lines."""

from __future__ import annotations

import os
import re

import torch

from hloom.errors import HloomError, UnsupportedError
from hloom.ir.source import Source

__all__ = ["UnsupportedOpsError", "refused", "source_of"]

_TORCH = os.path.dirname(os.path.realpath(torch.__file__)) + os.sep
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (.+)')


def source_of(node) -> Source | None:
    """The user's line that a node of a graph comes from: the innermost one outside of torch; None where none is
    noted."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    for file, line, function in reversed(frames):
        if not os.path.realpath(file).startswith(_TORCH):
            return Source(file, int(line), function.strip())
    if not frames:
        return None
    file, line, function = frames[-1]
    return Source(file, int(line), function.strip())


class UnsupportedOpsError(UnsupportedError):
    """A graph has ops that hloom has no rule for. `ops`: their names, each with the user's line."""

    def __init__(self, nodes):
        places: dict[str, Source | None] = {}
        for node in nodes:
            op = node.args[1] if str(node.target) == "with_effects" else node.target
            places.setdefault(str(op), source_of(node))
        self.ops = places
        listed = "".join(f"\n            {name}, at {place or 'an unknown line'}" for name, place in places.items())
        super().__init__(
            f"torch.compile with backend='hloom': {len(places)} op{'s' * (len(places) > 1)} without a rule",
            listed.lstrip("\n ") if len(places) == 1 else listed,
            "leave these calls out of the graph with torch.compiler.disable, or use other ops",
            "",
        )


def refused(node, error: Exception) -> UnsupportedError:
    """What a rule raised for a node, with the op and the user's line."""
    what = error.asked if isinstance(error, HloomError) else f"{type(error).__name__}: {error}"
    found = f": {error.found}" if isinstance(error, HloomError) and error.found else ""
    repair = error.repair if isinstance(error, HloomError) and error.repair else "leave this call out of the graph"
    return UnsupportedError(
        f"{node.target} in a graph for backend='hloom'", f"{what}{found}", repair, source_of(node) or ""
    )
