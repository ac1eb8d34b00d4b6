"""The syntax tree of a StableHLO program.

Values are represented by their names (`%0`, `%0#1`), types and attributes by `types` and `attributes`. Pretty and
generic syntax of an op yield the same tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Operation:
    """`%results = name(operands) <{attributes}> (regions) : (operand types) -> result types`.

    results: pairs of a name and its number of values (`%0:2`). place: index of its first token in the text.
    """

    name: str
    results: list[tuple[str, int]] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    attributes: dict = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)
    operand_types: tuple = ()
    result_types: tuple = ()
    successors: list[tuple[str, list[str]]] = field(default_factory=list)
    location: str | None = None
    place: int = 0

    def result_names(self) -> list[str]:
        """A name for each result: `%0`, or `%0#0`, `%0#1` if the name has several values."""
        return [f"{name}#{k}" if count > 1 else name for name, count in self.results for k in range(count)]


@dataclass(slots=True)
class Block:
    """Operations after a label with arguments (names and types). The label is '' if omitted."""

    label: str = ""
    arguments: list[tuple[str, object]] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


@dataclass(slots=True)
class Region:
    """A region of an operation: a list of blocks."""

    blocks: list[Block] = field(default_factory=list)

    @property
    def arguments(self) -> list[tuple[str, object]]:
        return self.blocks[0].arguments if self.blocks else []

    @property
    def operations(self) -> list[Operation]:
        return self.blocks[0].operations if self.blocks else []


@dataclass(slots=True)
class Program:
    """A module: its name (or ''), attributes, and operations (functions, nested modules).

    resources: the blobs after the module that `dense_resource<name>` refers to.
    """

    name: str = ""
    attributes: dict = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    resources: dict[str, str] = field(default_factory=dict)
    text: str = ""
    file: str = "<text>"

    def functions(self) -> dict[str, Operation]:
        """The functions by name."""
        return {o.attributes["sym_name"]: o for o in self.operations if o.name == "func.func"}
