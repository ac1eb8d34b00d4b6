"""Summaries of a program's tensors: collected where they are made, fetched together, written by `hl.summary.Writer`.

scalar("loss", cost)
for w in program.get_collection("trainable_variables"): histogram(w.name, w)
merged = merge_all()
...
values, _ = session.run([merged, train], feed)
write(writer, values, step)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hloom.errors import ArgumentError
from hloom.ir.records import record
from hloom.sessions.graph import Node
from hloom.sessions.program import SUMMARIES, Program, current_program, program_of
from hloom.summary import Writer


@record(eq=False)
class Summary:
    """kind: a method of Writer. options: further arguments of it."""

    kind: str
    name: str
    node: Node
    options: dict[str, Any]


def _collect(kind: str, name: str, node: Any, **options: Any) -> None:
    if not isinstance(node, Node):
        raise ArgumentError(f"the summary {name!r}", f"{type(node).__name__}", "pass a tensor of the program")
    program = program_of(node)
    found = program.get_collection(SUMMARIES)
    if any((s.kind, s.name) == (kind, name) for s in found):
        raise ArgumentError(f"a second {kind} summary {name!r}", "names are unique", "choose another name")
    program.add_to_collection(SUMMARIES, Summary(kind, name, node, options))


def scalar(name: str, node: Any) -> None:
    """A number."""
    _collect("scalar", name, node)


def histogram(name: str, node: Any) -> None:
    """The distribution of a tensor's elements."""
    _collect("histogram", name, node)


def image(name: str, node: Any) -> None:
    """Pictures, as `Writer.image` takes them."""
    _collect("image", name, node)


def audio(name: str, node: Any, rate: int) -> None:
    """Sounds, as `Writer.audio` takes them. rate: samples per second."""
    _collect("audio", name, node, rate=rate)


def merge_all(program: Program | None = None) -> dict[str, Node]:
    """The fetches for all summaries of the program: the tensors by kind and name."""
    found = (program or current_program()).get_collection(SUMMARIES)
    return {f"{s.kind}:{s.name}": s.node for s in found}


def write(writer: Writer, values: Mapping[str, Any], step: int, program: Program | None = None) -> None:
    """Writes the values that a run fetched for `merge_all`."""
    known = {f"{s.kind}:{s.name}": s for s in (program or current_program()).get_collection(SUMMARIES)}
    for key, value in values.items():
        kind, _, name = key.partition(":")
        options = known[key].options if key in known else {}
        getattr(writer, kind)(name, value, step=step, **options)


__all__ = ["Summary", "audio", "histogram", "image", "merge_all", "scalar", "write"]
__dir__ = __all__.copy
