"""Graphs with ops that torch computes: cut into graphs that hloom compiles, and calls of torch's ops between them.

A node that torch computes gets a level: the number of such nodes on the longest path to it. hloom's nodes of one level
form one graph, so that a model with one such op in each of its layers has one graph more than layers. The torch ops of
a level run after its graph, in order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from hloom.bridges.torch.dtypes import TO_HLOOM
from hloom.bridges.torch.errors import source_of
from hloom.bridges.torch.graphs import COPY, is_evaluated, op_of, tensors_in
from hloom.bridges.torch.rules import rule_of
from hloom.errors import DeviceError
from hloom.ir.records import record, replace

__all__ = ["Parts", "left_to_torch"]


def left_to_torch(graph_module, refused: Mapping[Node, str] | None = None) -> dict[Node, str]:
    """The nodes of a graph that torch has to compute, each with the reason. refused: nodes that are known to be of
    these. Raises DeviceError for tensors that are not on the CPU."""
    found: dict[Node, str] = dict(refused or {})
    for node in graph_module.graph.nodes:
        _check_devices(node)
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        if node not in found and (reason := _reason(node, found)):
            found[node] = reason
    return found


def _reason(node: Node, found: Mapping[Node, str]) -> str:
    """Why torch computes a node; '' if hloom does. found: the nodes before it that torch computes."""
    if node.target is operator.getitem and node.args[0] in found:
        return found[node.args[0]]
    for value in (node, *node.all_input_nodes):
        for tensor in tensors_in(value.meta.get("val")):
            if tensor.dtype not in TO_HLOOM or tensor.layout != torch.strided:
                return f"hloom has no tensors of dtype {tensor.dtype} and layout {tensor.layout}"
    if any(_is_open(n.meta.get("val")) for n in (node, *node.all_input_nodes)):
        return "its sizes or operands are known only at run time"
    if is_evaluated(node) or node.target in (operator.getitem, COPY) or rule_of(op_of(node)) is not None:
        return ""
    return "hloom has no rule for it"


def _is_open(value) -> bool:
    """Whether a declared value has numbers that depend on data."""
    if isinstance(value, (list, tuple)):
        return any(_is_open(v) for v in value)
    numbers = torch.SymInt, torch.SymFloat, torch.SymBool
    return isinstance(value, (torch.Tensor, *numbers)) and bool(free_unbacked_symbols(value))


def _check_devices(node: Node) -> None:
    for tensor in tensors_in(node.meta.get("val")):
        if tensor.device.type != "cpu":
            raise DeviceError(
                f"{node.target} in a graph for backend='hloom'",
                f"a tensor on {tensor.device}",
                "move the model and its inputs to the CPU: hloom runs torch's programs there",
                source_of(node) or "",
            )


# --- cutting ---


def _changes_operands(node: Node) -> bool:
    """Whether a node of torch's does more than to compute its results."""
    return node.is_impure(False) or getattr(getattr(node.target, "_schema", None), "is_mutable", False)


def _levels(nodes: list[Node], by_torch: Mapping[Node, Any]) -> dict[Node, int]:
    """The level of each computed node. Changes of tensors keep their position among all others."""
    levels: dict[Node, int] = {}
    floor, movable = 0, True
    for node in nodes:
        level = max([floor, *(levels[n] + (n in by_torch) for n in node.all_input_nodes if n in levels)])
        if node in by_torch and _changes_operands(node):
            level = max([level, *levels.values()])
            floor, movable = level + 1, False
        elif node.target is COPY:
            level = floor = max([level, *(at + (n in by_torch) for n, at in levels.items())])
        levels[node] = level
    if movable:
        _sink(nodes, by_torch, levels)
    return levels


def _sink(nodes: list[Node], by_torch: Mapping[Node, Any], levels: dict[Node, int]) -> None:
    """Moves values that depend only on arguments, such as casts of weights, to their first use, so that less is kept in
    between."""
    free: set[Node] = set()
    for node in nodes:
        plain = isinstance(node.meta.get("val"), torch.Tensor) and node not in by_torch and node.target is not COPY
        if plain and all(n in free or n not in levels for n in node.all_input_nodes):
            free.add(node)
    for node in reversed(nodes):
        if node in free and node.users and all(user in levels for user in node.users):
            levels[node] = min(levels[user] for user in node.users)


def _segment(graph_module, nodes: list[Node], inputs: list[Node], outputs: list[Node]) -> GraphModule:
    """A graph of some nodes. inputs, outputs: the nodes whose values enter and leave it."""
    graph, copies = Graph(), dict[Node, Node]()
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in nodes:
        for source in node.all_input_nodes:
            if source.op == "get_attr" and source not in copies:
                copies[source] = graph.node_copy(source)
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[node] for node in outputs])
    return GraphModule(graph_module, graph)


@record
class _Step:
    """An executable part: `call` maps the values of `inputs`, a list, to those of `outputs`. last: values that are not
    needed afterwards."""

    call: Callable[[list], list]
    inputs: list[Node]
    outputs: list[Node]
    last: list[Node]


class Parts:
    """A graph as calls of compiled graphs and of torch's ops.

    by_torch: the nodes that torch computes. compiled(graph_module, name): the caller of a graph, which takes a list of
    arguments.
    """

    def __init__(self, graph_module, by_torch: Mapping[Node, Any], name: str, compiled: Callable[[Any, str], Callable]):
        self.graph_module = graph_module
        nodes = list(graph_module.graph.nodes)
        self._placeholders = [n for n in nodes if n.op == "placeholder"]
        self._output = next(n for n in nodes if n.op == "output")
        computed = [n for n in nodes if n.op not in ("placeholder", "get_attr", "output")]
        levels = _levels(computed, by_torch)
        self.steps: list[_Step] = []
        for level in range(max(levels.values(), default=-1) + 1):
            members = [n for n in computed if levels[n] == level]
            ours = [n for n in members if n not in by_torch]
            if ours:
                self.steps.append(self._compiled(ours, f"{name}_{level}", compiled))
            for node in members:
                if node in by_torch:
                    self.steps.append(_Step(self._call_of(node), list(node.all_input_nodes), [node], []))
        self._constants = {n: self._attribute(n) for n in nodes if n.op == "get_attr"}
        self._note_last_uses()

    def _compiled(self, nodes: list[Node], name: str, compiled) -> _Step:
        inside = set(nodes)
        inputs = dict.fromkeys(i for n in nodes for i in n.all_input_nodes if i not in inside and i.op != "get_attr")
        outputs = [n for n in nodes if any(user not in inside for user in n.users)]
        segment = _segment(self.graph_module, nodes, list(inputs), outputs)
        return _Step(compiled(segment, name), list(inputs), outputs, [])

    def _call_of(self, node: Node) -> Callable[[list], list]:
        """A call of torch for a node, which gets the values of the nodes that it reads."""
        target: Any = node.target

        def call(values: list) -> list:
            known = dict(zip(node.all_input_nodes, values, strict=True))
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
            return [target(*args, **kwargs)]

        return call

    def _attribute(self, node: Node):
        owner: Any = self.graph_module
        for part in node.target.split("."):
            owner = getattr(owner, part)
        return owner

    def _note_last_uses(self) -> None:
        kept = {*self._output.all_input_nodes, *self._constants}
        for step in reversed(self.steps):
            step.last.extend(n for n in dict.fromkeys([*step.inputs, *step.outputs]) if n not in kept)
            kept.update(step.inputs)

    def with_calls(self, changed: Callable[[Callable[[list], list]], Callable[[list], list]]) -> Parts:
        """The same with each call replaced by `changed(call)`."""
        made = copy(self)
        made.steps = [replace(step, call=changed(step.call)) for step in self.steps]
        return made

    def __call__(self, arguments: list) -> list:
        values: dict[Node, Any] = dict(zip(self._placeholders, arguments, strict=True))
        values.update(self._constants)
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
            for step in self.steps:
                values.update(zip(step.outputs, step.call([values[n] for n in step.inputs]), strict=True))
                for node in step.last:
                    del values[node]
        results = self._output.args[0]
        listed = list(results) if isinstance(results, (list, tuple)) else [results]
        return [values[r] if isinstance(r, Node) else r for r in listed]
