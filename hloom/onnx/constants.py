"""Finds the tensors of a model that determine shapes: they are constants of its programs, while other floats are
weights.

Examples are the scales of Resize, the limits of Range, the depth of OneHot and the values they are computed from. They
are found when a model is loaded, by following values computed only from stored tensors and shapes to the inputs that
have to be known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hloom.onnx.evaluate import DEPTH, callee
from hloom.onnx.graph import Graph, Node, Scope
from hloom.onnx.table import find

FEW = 1024  # maximal number of values that a program may be compiled for
_OF_SHAPES = frozenset({"Shape", "Size"})

Sources = frozenset[str] | None  # the stored tensors that a value is computed of; None: of more than these and shapes


def deciding(graph: Graph, scope: Scope) -> set[str]:
    """The names of the graph's initializers whose values determine shapes, of up to FEW elements each."""
    known: dict[str, Sources] = {
        name: frozenset({name}) if value.size <= FEW else None for name, value in graph.initializers.items()
    }
    found: set[str] = set()
    _follow(graph.nodes, known, scope, found, 0)
    return found


def _follow(nodes: Sequence[Node], known: dict[str, Sources], scope: Scope, found: set[str], depth: int) -> None:
    """Adds to `found` the stored tensors that the nodes require. known: name to sources; gets those of their
    outputs."""
    for node in nodes:
        called = callee(node, scope) if depth < DEPTH else None
        if called is not None:
            made = _follow_call(node, *called, known, found, depth)
        else:
            made = [_sources(node, known)] * len(node.outputs)
            found |= _wanted(node, known, scope)
        for value in node.attributes.values():
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Graph):
                    _follow(part.nodes, _inside(part, known), scope, found, depth)
        known.update((name, sources) for name, sources in zip(node.outputs, made, strict=False) if name)


def _sources(node: Node, known: Mapping[str, Sources]) -> Sources:
    """The stored tensors that the outputs of a node are computed of."""
    if node.op in _OF_SHAPES and not node.domain:
        return frozenset()
    together: frozenset[str] = frozenset()
    for name in node.uses:
        uses = known.get(name)
        if uses is None:
            return None
        together |= uses
    return together


def _wanted(node: Node, known: Mapping[str, Sources], scope: Scope) -> frozenset[str]:
    """The stored tensors whose values an op needs for shapes."""
    entry = find(node.domain, node.op, scope.opsets.get(node.domain, 1))
    if entry is None:
        return frozenset()
    wanted = range(len(node.inputs)) if entry.host else entry.static | entry.decides
    names = [node.inputs[k] for k in wanted if k < len(node.inputs) and node.inputs[k]]
    return frozenset().union(*(known.get(name) or () for name in names))


def _follow_call(
    node: Node, body: Graph, inner: Scope, known: Mapping[str, Sources], found: set[str], depth: int
) -> list[Sources]:
    """Follows the function that a node calls. Returns the sources of its outputs."""
    env: dict[str, Sources] = dict.fromkeys((p.name for p in body.inputs), frozenset())
    given = (known.get(name) if name else frozenset() for name in node.inputs)
    env.update(zip((p.name for p in body.inputs), given, strict=False))
    _follow(body.nodes, env, inner, found, depth + 1)
    return [env.get(p.name) for p in body.outputs]


def _inside(body: Graph, known: Mapping[str, Sources]) -> dict[str, Sources]:
    """The known values at the start of a body, whose inputs change from step to step."""
    env = dict(known)
    env.update(dict.fromkeys(body.initializers, frozenset()))
    env.update(dict.fromkeys(p.name for p in body.inputs))
    return env
