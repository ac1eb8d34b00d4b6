"""Stretches of a model's nodes as compiled functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hloom.onnx.graph import Node

__all__ = ["Plan", "Repeated", "Trace"]


class Plan:
    """A stretch: nodes start..stop, compiled; then the node at stop separately, if `eager`."""

    def __init__(self, start: int, stop: int):
        self.start, self.stop = start, stop
        self.eager = False
        self.function: Any = None
        self.live: tuple[str, ...] = ()  # arguments of the function
        self.params: tuple[str, ...] = ()
        self.known: dict[str, Any] = {}  # values computed while tracing
        self.next: dict[Any, Plan] = {}

    def run(self, params: Mapping[str, Any], live: dict[str, Any]) -> dict[str, Any]:
        """The computation of the stretch."""
        if self.function is None:
            return {}
        return self.function(*[params[n] for n in self.params], *[live[n] for n in self.live])


class Repeated:
    """Calls like an earlier one: they go directly to its program, without repeating the analysis.

    plan: of all nodes. positions: of its arguments among the model's inputs.
    """

    def __init__(self, plan: Plan, inputs: Sequence[str], outputs: Sequence[str]):
        self.plan, self.outputs = plan, outputs
        self.positions = [inputs.index(name) for name in plan.live]

    def run(self, params: Mapping[str, Any], arrays: Sequence) -> list:
        """The outputs. arrays: one for each of the model's inputs."""
        plan = self.plan
        results = plan.function(*[params[n] for n in plan.params], *[arrays[k] for k in self.positions])
        return [results[name] for name in self.outputs]


class Trace:
    """The position of a stretch's trace, and the values there. count: of the nodes that it reached."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.count = 0
        self.env: Mapping[str, Any] = {}

    def starts(self, values: Sequence) -> None:
        self.count = 0

    def enters(self, node: Node, env: Mapping[str, Any]) -> None:
        self.node, self.env = node, env
        self.count += 1

    def left(self) -> None:
        """The node is evaluated."""

    def ends(self) -> None:
        self.node, self.env = None, {}
