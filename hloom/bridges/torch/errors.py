"""Messages for torch users: ops by their ATen names, locations by the user's lines."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Mapping

import torch

from hloom.errors import FallbackWarning, HloomError
from hloom.ir.source import Source, is_not_the_users, warn_while_compiling

__all__ = ["RefusedOps", "caller", "refusal", "source_of", "warn", "warn_of_calls"]

_TORCH = os.path.dirname(os.path.realpath(torch.__file__)) + os.sep
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (.+)')


def source_of(node) -> Source | None:
    """The user's line that a node of a graph comes from: the innermost one outside torch; None if none is recorded."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    for file, line, function in reversed(frames):
        if not os.path.realpath(file).startswith(_TORCH):
            return Source(file, int(line), function.strip())
    if not frames:
        return None
    file, line, function = frames[-1]
    return Source(file, int(line), function.strip())


def caller() -> Source | str:
    """The user's line that called what torch compiles now; '' if there is none."""
    for frame, line in traceback.walk_stack(None):
        file = frame.f_code.co_filename
        if not is_not_the_users(file) and not os.path.realpath(file).startswith(_TORCH):
            return Source(file, line, frame.f_code.co_name)
    return ""


class RefusedOps(Exception):
    """Rules refused nodes of a graph. reasons: why, for each node."""

    def __init__(self, reasons: Mapping):
        self.reasons = reasons
        super().__init__(*(f"{node.target}: {reason}" for node, reason in reasons.items()))


def refusal(error: Exception) -> str:
    """The exception of a rule, as the reason why torch computes a node."""
    if not isinstance(error, HloomError):
        return f"hloom's rule raised {type(error).__name__}: {error}"
    return f"hloom refuses {error.asked}" + (f": {error.found}" if error.found else "")


def warn(text: str, category: type[Warning], source: Source | None = None) -> None:
    """Warns at a user line, once per text. Never raises: a warning must not make a computation fail."""
    known = source is not None and source.file
    warn_while_compiling(text, category, source if known else Source("<torch.compile>", 1, ""))


def warn_of_calls(reasons: Mapping, name: str) -> None:
    """Warns of the nodes of a graph that torch computes. reasons: why, for each node."""
    for node, reason in reasons.items():
        source = source_of(node)
        text = (
            f"torch computes {node.target} in the program '{name}': {reason}\n"
            "  cost:   a call out of the program, whose parts before and after it are compiled alone\n"
            f"  where:  {source or 'an unknown line'}\n"
            "  repair: none is needed; an op that hloom has a rule for is fused with its neighbours"
        )
        warn(text, FallbackWarning, source)
