"""A model as records: nodes with converted attributes, graphs, and the scope of their nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Port:
    """An input or output of a model.

    dtype: of a tensor or of the tensors of a sequence; strings are object. None if the model does not specify it.
    shape: sizes, names of sizes, or None for an unknown size; None for an unknown rank.
    kind: tensor, sequence, optional; several from the outside in, such as "optional sequence".
    """

    name: str
    dtype: np.dtype | None
    shape: tuple[int | str | None, ...] | None
    kind: str = "tensor"

    def __repr__(self) -> str:
        dtype = "?" if self.dtype is None else "string" if self.dtype == object else self.dtype.name
        sizes = "..." if self.shape is None else ",".join("?" if s is None else str(s) for s in self.shape)
        kind = "" if self.kind == "tensor" else f"{self.kind} of "
        return f"{self.name}: {kind}{dtype}[{sizes}]"


@dataclass(eq=False)
class Node:
    """A call of an op. inputs and outputs are names, '' for absent ones; attributes are those that the model sets."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    proto: Any
    uses: frozenset[str] = frozenset()  # names that it reads, those that its bodies capture among them

    @property
    def title(self) -> str:
        """How messages call it: Conv 'conv1', or by its first output where it has no name."""
        name = self.name or next((o for o in self.outputs if o), "")
        return f"{self.domain + '.' if self.domain else ''}{self.op} {name!r}"


@dataclass(eq=False)
class Graph:
    """A graph, or the body of a node or of a function."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: tuple[Node, ...]
    initializers: dict[str, np.ndarray] = field(default_factory=dict)

    def captures(self) -> set[str]:
        """Names of the surrounding graph that it reads."""
        made = {p.name for p in self.inputs} | set(self.initializers)
        found: set[str] = set()
        for node in self.nodes:
            found |= node.uses - made
            made.update(node.outputs)
        return found | ({p.name for p in self.outputs} - made)


@dataclass(eq=False)
class Scope:
    """The scope of a graph's nodes: versions of the domains, the model's functions, and its own nodes, which the op
    Gradient differentiates. new_ops: classes that the reference evaluator computes foreign ops with."""

    opsets: dict[str, int]
    functions: dict[tuple[str, str, str], Any]  # (domain, name, overload): FunctionProto
    nodes: tuple[Node, ...] = ()
    new_ops: tuple[type, ...] = ()
