"""Dataclass instances as arguments and results of NumPy programs: trees of their attributes.

Users' classes are not registered with `hloom.tree`: elsewhere in their programs instances stay what they are.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hloom.ir.records import record
from hloom.tree import pytrees as tree

__all__ = [
    "Argument",
    "Constant",
    "Packed",
    "data_of",
    "flatten",
    "instance_of",
    "node_of",
    "packed_result",
    "unflatten",
    "unpacked",
]


class Packed:
    """An instance as a node of trees. kind: its class. names, values: of its attributes."""

    __slots__ = ("kind", "names", "values")

    def __init__(self, kind: type, names: tuple[str, ...], values: Iterable[Any]):
        self.kind, self.names, self.values = kind, names, tuple(values)

    def __repr__(self) -> str:
        return f"an instance of {self.kind.__name__}"

    def map(self, function: Callable, *others: Packed) -> Packed:
        rows = zip(self.values, *[other.values for other in others], strict=True)
        return Packed(self.kind, self.names, [function(*row) for row in rows])

    def is_like(self, other: Any) -> bool:
        return isinstance(other, Packed) and (self.kind, self.names) == (other.kind, other.names)


class Constant:
    """A part of a result that is no number: text, an enumeration's member, a type."""

    __slots__ = ("value",)
    types = (str, bytes, enum.Enum, np.dtype, type)

    def __init__(self, value: Any):
        self.value = value


tree.register(Constant, lambda c: ((), c.value), lambda value, _: Constant(value))
tree.register(Packed, lambda p: (p.values, (p.kind, p.names)), lambda data, values: Packed(data[0], data[1], values))


@record(frozen=True)
class Argument:
    """As a constant of a result: an argument that the program changes, by the number of its leaf."""

    number: int


def _is_instance(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type) and not tree.is_tree_node(type(value))


def data_of(value: Any) -> dict[Any, Any]:
    """The attributes of a dataclass instance or a named tuple by name, the entries of a dict by key; else nothing."""
    if isinstance(value, dict):
        return value
    if isinstance(value, tuple):
        return {name: getattr(value, name) for name in getattr(value, "_fields", ())}
    if not _is_instance(value):
        return {}
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
    return {**fields, **getattr(value, "__dict__", {})}  # methods may have set others


def _leaf(value: Any) -> Any:
    if not _is_instance(value):
        return value
    found = data_of(value)
    return Packed(type(value), tuple(found), [packed(v) for v in found.values()])


def node_of(value: Any) -> Any:
    """An instance or a named tuple as a node, whose values are as they were; other values themselves."""
    if _is_instance(value) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        found = data_of(value)
        return Packed(type(value), tuple(found), found.values())
    return value


def packed(value: Any) -> Any:
    """A tree with its dataclass instances as nodes."""
    leaves, structure = tree.flatten(value)
    return tree.unflatten(structure, map(_leaf, leaves)) if any(map(_is_instance, leaves)) else value


def packed_result(value: Any) -> Any:
    """The tree of a result, with what is no number in its structure."""
    return tree.map(lambda v: Constant(v) if isinstance(v, Constant.types) else v, packed(value))


def unpacked(value: Any, arguments: Mapping[int, Any] | Sequence[Any] = ()) -> Any:
    """The instances again. They are made without their `__init__`, which may compute. arguments: the leaves of those of
    the call, which the value may hold."""
    is_packed = lambda v: isinstance(v, (Packed, Constant))  # noqa: E731
    nodes, structure = tree.flatten(value, is_packed)
    if not any(map(is_packed, nodes)):
        return value
    return tree.unflatten(structure, [instance_of(node, arguments) for node in nodes])


def instance_of(node: Any, arguments: Mapping[int, Any] | Sequence[Any] = ()) -> Any:
    """What a node stands for."""
    if isinstance(node, Constant):
        return arguments[node.value.number] if isinstance(node.value, Argument) else node.value
    if not isinstance(node, Packed):
        return node
    if issubclass(node.kind, tuple):
        return tuple.__new__(node.kind, [unpacked(value, arguments) for value in node.values])
    made: Any = object.__new__(node.kind)
    for name, value in zip(node.names, node.values, strict=True):
        object.__setattr__(made, name, unpacked(value, arguments))  # frozen ones too
    return made


def flatten(value: Any) -> tuple[list[Any], Any]:
    """(leaves, structure) with those of instances."""
    return tree.flatten(packed(value))


def unflatten(structure: Any, leaves: Iterable[Any]) -> Any:
    return unpacked(tree.unflatten(structure, leaves))
