"""Numbers computed when a program is called: a list of integer operations, which native code evaluates.

A `Node` is a number of the list. It has Python's operators, so code that computes with numbers records operations when
given nodes; equal operations are shared. `lower_of`, `higher_of` and `chosen` accept integers and nodes.
`hloom.ir.sizes.evaluation` converts sizes to nodes, `hloom.runtime.open_program` evaluates them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["OPERATIONS", "Node", "Nodes", "Number", "chosen", "higher_of", "lower_of"]

# The function of each operation, by its code in rows of `Nodes`.
OPERATIONS: tuple[Callable[[int, int], int], ...] = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    min,
    max,
    lambda left, right: int(left <= right),
    lambda left, right: int(left == right),
)
ADD, SUBTRACT, MULTIPLY, DIVIDE, LEAST, GREATEST, LESS_EQUAL, EQUAL = range(len(OPERATIONS))


class Node:
    """A number in a list of operations. index: of its value in the list."""

    __slots__ = ("index", "nodes")

    def __init__(self, nodes: Nodes, index: int):
        self.nodes, self.index = nodes, index

    def __add__(self, other: Number) -> Number:
        return self.nodes.made(ADD, self, other)

    __radd__ = __add__

    def __sub__(self, other: Number) -> Number:
        return self.nodes.made(SUBTRACT, self, other)

    def __rsub__(self, other: int) -> Number:
        return self.nodes.made(SUBTRACT, other, self)

    def __mul__(self, other: Number) -> Number:
        return self.nodes.made(MULTIPLY, self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Number) -> Number:
        return self.nodes.made(DIVIDE, self, other)

    def __rfloordiv__(self, other: int) -> Number:
        return self.nodes.made(DIVIDE, other, self)

    def __neg__(self) -> Number:
        return self.nodes.made(SUBTRACT, 0, self)

    def __le__(self, other: Number) -> Number:
        return self.nodes.made(LESS_EQUAL, self, other)

    def __ge__(self, other: Number) -> Number:
        return self.nodes.made(LESS_EQUAL, other, self)

    def __gt__(self, other: Number) -> Number:
        return 1 - (self <= other)

    def __lt__(self, other: Number) -> Number:
        return 1 - (self >= other)

    def __bool__(self) -> bool:
        raise TypeError("a number that is known when a program is called has no truth value: use `chosen`")

    def __repr__(self) -> str:
        return f"%{self.index}"


Number: TypeAlias = int | Node


def lower_of(left: Number, right: Number) -> Any:
    """The lower of two numbers."""
    nodes = _nodes(left, right)
    return min(left, right) if nodes is None else nodes.made(LEAST, left, right)


def higher_of(left: Number, right: Number) -> Any:
    """The higher of two numbers."""
    nodes = _nodes(left, right)
    return max(left, right) if nodes is None else nodes.made(GREATEST, left, right)


def chosen(condition: Number, true: Number, false: Number) -> Any:
    """`true` if a condition (1 or 0) holds, else `false`."""
    return condition * true + (1 - condition) * false if isinstance(condition, Node) else true if condition else false


def _nodes(*numbers: Number) -> Nodes | None:
    return next((number.nodes for number in numbers if isinstance(number, Node)), None)


class Nodes:
    """A list of operations over named inputs.

    values: for each node its value if constant, or 0. rows: (operation, node, node, node of the result) in evaluation
    order.
    """

    def __init__(self, names: Sequence[str]):
        self.names = list(names)
        self.values = [0] * len(self.names)
        self.rows: list[tuple[int, int, int, int]] = []
        self._inputs = {name: Node(self, k) for k, name in enumerate(self.names)}
        self._constants: dict[int, Node] = {}
        self._made: dict[tuple[int, int, int], Node] = {}

    def given(self, name: str) -> Node:
        return self._inputs[name]

    def define(self, name: str, node: Node) -> None:
        """Adds a name for a node."""
        self._inputs[name] = node

    def constant(self, number: int) -> Node:
        found = self._constants.get(number)
        if found is None:
            found = self._constants[number] = self._new(number)
        return found

    def _new(self, value: int) -> Node:
        self.values.append(value)
        return Node(self, len(self.values) - 1)

    def made(self, operation: int, left: Number, right: Number) -> Number:
        """The result of an operation; a number if both operands are numbers."""
        left, right = [one if isinstance(one, Node) else int(one) for one in (left, right)]
        if isinstance(left, int) and isinstance(right, int) and not (operation == DIVIDE and right == 0):
            return OPERATIONS[operation](left, right)
        if operation in (ADD, SUBTRACT) and isinstance(right, int) and right == 0:
            return left
        if operation in (ADD, MULTIPLY) and isinstance(left, int) and left == (operation == MULTIPLY):
            return right
        if operation in (MULTIPLY, DIVIDE) and isinstance(right, int) and right == 1:
            return left
        if operation == MULTIPLY and any([isinstance(one, int) and one == 0 for one in (left, right)]):
            return 0
        places = self.node(left).index, self.node(right).index
        key = (operation, *places)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._new(0)
            self.rows.append((*key, found.index))
        return found

    def quotient(self, left: Number, right: Number) -> Number:
        """The floor quotient, of integers too."""
        return self.made(DIVIDE, left, right)

    def equal(self, left: Number, right: Number) -> Number:
        """1 if two numbers are equal, else 0."""
        return self.made(EQUAL, left, right)

    def at_most(self, left: Number, right: Number) -> Number:
        """1 if the first number is at most the second, else 0."""
        return self.made(LESS_EQUAL, left, right)

    def node(self, number: Number) -> Node:
        """The node of a number, which may be an integer."""
        return number if isinstance(number, Node) else self.constant(int(number))

    def evaluated(self, given: Mapping[str, int]) -> list[int]:
        """The values of all nodes. Raises ZeroDivisionError for a quotient by 0."""
        values = [given[name] for name in self.names] + self.values[len(self.names) :]
        for operation, left, right, target in self.rows:
            values[target] = OPERATIONS[operation](values[left], values[right])
        return values
