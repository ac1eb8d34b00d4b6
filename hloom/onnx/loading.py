"""`load`: turns a file into a Model, or raises one error that names every obstacle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from hloom.errors import ArgumentError, FileError, HloomError, UnsupportedError
from hloom.onnx import rules  # the table of ops
from hloom.onnx.constants import deciding
from hloom.onnx.evaluate import check_choices, has_function
from hloom.onnx.graph import Graph, Node, Scope
from hloom.onnx.model import Model
from hloom.onnx.reader import CORRUPT, Reader, package, parse, schema_of, scope_of, without_initializers
from hloom.onnx.reference import evaluator
from hloom.onnx.rules.math import WIDER
from hloom.onnx.table import OPS, find

LARGE = 1024  # elements from which on a constant is an argument of the program, not a part of it


def load(source, *, new_ops: Sequence[type] = ()) -> Model:
    """The model in an .onnx file as a function.

    source: a path, the bytes of a file, an open file, or an onnx.ModelProto. External data are read from the folder of
    the path, and from nowhere else.
    new_ops: classes derived from onnx.reference.op_run.OpRun, which compute ops that neither hloom nor ONNX has, as in
    onnx.reference.ReferenceEvaluator. `hl.onnx.rule` declares ops that become part of the compiled program.

    Ops without a rule that ONNX's reference evaluator has are computed by it, in calls out of the compiled program,
    with a FallbackWarning. Raises MissingFileError and FileError for a file that is missing, damaged, or whose tensors
    do not have the size that they state; AttributeValueError for an attribute with a value that its op does not have;
    UnsupportedError with all nodes that hloom cannot run, but for those of the branches of an If, which may not be
    taken.
    """
    for cls in new_ops:
        if not (isinstance(cls, type) and hasattr(cls, "op_domain") and hasattr(cls, "_run")):
            raise ArgumentError("new_ops of an ONNX model", f"{cls!r}", "pass classes derived from "
                                "onnx.reference.op_run.OpRun, which set op_domain")  # fmt: skip
    proto, folder = parse(source)
    try:
        return _model(proto, folder, tuple(new_ops))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, HloomError):
            raise
        raise FileError("an ONNX model", f"{type(error).__name__}: {error}", CORRUPT) from error


def _model(proto, folder, new_ops: tuple[type, ...]) -> Model:
    reader = Reader(folder)
    initializers = reader.initializers(proto.graph)
    proto = without_initializers(proto)  # the arrays hold the weights: the file's bytes are freed
    functions = {(f.domain, f.name, getattr(f, "overload", "")): f for f in proto.functions}
    scope = scope_of(proto, functions)
    graph = reader.graph(proto.graph)
    graph.initializers = initializers
    scope.nodes, scope.new_ops = graph.nodes, new_ops
    _check(graph, scope)
    _check_ops(graph, scope, reader)
    return Model(graph, scope, _parameters(graph, scope), proto)


def supported_ops() -> dict[str, tuple[str, ...]]:
    """Domain to the names of the ops that hloom has a rule for; ONNX's functions among the others are expanded."""
    found: dict[str, list[str]] = {}
    for domain, name in sorted(OPS):
        found.setdefault(domain, []).append(name)
    return {domain: tuple(names) for domain, names in found.items()}


def _check(graph: Graph, scope: Scope) -> None:
    """Raises FileError for nodes that read values not produced by earlier nodes, and for names that are defined
    twice."""
    what = f"the graph {graph.name!r} of an ONNX model"
    made = {p.name for p in graph.inputs} | set(graph.initializers)
    for node in graph.nodes:
        if missing := sorted(node.uses - made):
            raise FileError(what, f"{node.title} reads {missing[0]!r}, which nothing before it makes", CORRUPT)
        for name in node.outputs:
            if name and name in made:
                raise FileError(what, f"{node.title} makes {name!r} a second time", CORRUPT)
            made.add(name)
    if missing := [p.name for p in graph.outputs if p.name not in made]:
        raise FileError(what, f"the output {missing[0]!r}, which no node makes", CORRUPT)
    if not scope.opsets:
        raise FileError(what, "no opset", CORRUPT)


def _all_nodes(graph: Graph, taken: bool) -> Iterator[tuple[Node, bool]]:
    """Nodes of a graph and of its bodies, and whether each runs if the graph does: those of branches may not."""
    for node in graph.nodes:
        yield node, taken
        for value in node.attributes.values():
            for body in value if isinstance(value, tuple) else (value,):
                if isinstance(body, Graph):
                    yield from _all_nodes(body, taken and node.op != "If")


def _check_ops(graph: Graph, scope: Scope, reader: Reader) -> None:
    """Raises UnsupportedError with all nodes that no rule and no function fits."""
    onnx = package()
    newest = {"": onnx.defs.onnx_opset_version()}
    for domain, version in scope.opsets.items():
        if version > newest.get(domain, version):
            raise UnsupportedError(f"an ONNX model of opset {version}", f"the installed onnx {onnx.__version__} knows "
                                   f"opsets up to {newest[domain]}", "pip install --upgrade onnx")  # fmt: skip
    missing: dict[str, list[str]] = {}
    damaged: list[str] = []
    checked: set[tuple[str, str, str, bool]] = set()
    pending: list[tuple[Graph, Scope, bool]] = [(graph, scope, True)]
    while pending:
        body, inner, runs = pending.pop()
        for node, taken in _all_nodes(body, runs):
            key = (node.domain, node.op, getattr(node.proto, "overload", ""))
            if key in scope.functions:
                if (*key, taken) not in checked:
                    checked.add((*key, taken))
                    function = scope.functions[key]
                    own = replace(inner, opsets=inner.opsets | scope_of(function, {}).opsets)
                    pending.append((reader.function(function, {a.name: a for a in node.proto.attribute}), own, taken))
                continue
            version = inner.opsets.get(node.domain, 1)
            if wrong := _wrong(node, version):
                damaged.append(wrong)
            elif taken:
                check_choices(node)
                if text := _missing(node, version, inner):
                    missing.setdefault(text, []).append(repr(_name(node)))
    if damaged:
        raise FileError("nodes of an ONNX model", "; ".join(damaged[:8]), CORRUPT)
    if missing:
        found = "; ".join(f"{op} at {', '.join(names[:8])}{' …' * (len(names) > 8)}" for op, names in missing.items())
        raise UnsupportedError(
            "loading an ONNX model",
            f"ops without a rule: {found}",
            "declare rules for them (hl.onnx.rule), pass OpRun classes (hl.onnx.load(..., new_ops=[...])), define them "
            "as functions of the model (onnx.helper.make_function), or export it with other ops",
        )


def _missing(node: Node, version: int, scope: Scope) -> str:
    """The unsupported part of a node: its op, or attributes; '' if it can be computed."""
    entry = find(node.domain, node.op, version)
    if entry is not None and node.attributes.keys() <= entry.attributes:
        return ""
    if has_function(node, version) or evaluator(node, scope) is not None:
        return ""
    if entry is not None:
        return f"{node.op} with {', '.join(sorted(node.attributes.keys() - entry.attributes))}"
    return f"{node.domain or 'ai.onnx'}.{node.op} ({version})"


def _wrong(node: Node, version: int) -> str:
    """Violations of an op's schema by a node: the numbers of inputs and outputs, attributes and their kinds."""
    schema = schema_of(node.op, version, node.domain)
    if schema is None:
        return ""
    for what, values, least, most in (("inputs", node.inputs, schema.min_input, schema.max_input),
                                      ("outputs", node.outputs, schema.min_output, schema.max_output)):  # fmt: skip
        if not least <= len(values) <= most:
            return f"{node.title} has {len(values)} {what}"
    for attribute in node.proto.attribute:
        known = schema.attributes.get(attribute.name)
        if known is not None and int(known.type.value) != attribute.type and not attribute.ref_attr_name:
            return f"{node.title} has an attribute {attribute.name!r} of kind {attribute.type}"
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in node.attributes:
            return f"{node.title} has no attribute {name!r}"
    return ""


def _name(node: Node) -> str:
    return node.name or next((o for o in node.outputs if o), "")


def _parameters(graph: Graph, scope: Scope) -> dict[str, np.ndarray]:
    """The tensors that are arguments of the program: floats, and large ones of other types.

    They are taken out of the graph's initializers. Those that only decide shapes stay there.
    """
    for node in graph.nodes:
        value = node.attributes.get("value")
        if node.op == "Constant" and isinstance(value, np.ndarray) and value.size >= LARGE:
            graph.initializers.setdefault(node.outputs[0], value)
    graph.nodes = tuple(n for n in graph.nodes if n.op != "Constant" or n.outputs[0] not in graph.initializers)
    _widen(graph, scope)
    found = {}
    constants = deciding(graph, scope)
    for name, value in list(graph.initializers.items()):
        kind = value.dtype.kind
        if name in constants or kind in "OSU" or (kind in "iub" and value.size < LARGE):
            continue
        found[name] = graph.initializers.pop(name)
    return found


def _widen(graph: Graph, scope: Scope) -> None:
    """Makes 8-bit integers of stored 2-bit and 4-bit ones that only DequantizeLinear reads, which has no other results.

    They take as many bytes. Arguments of programs of the narrow types are converted for each call.
    """
    narrow = {name for name, value in graph.initializers.items() if value.dtype.name in WIDER}
    if not narrow:
        return
    others = {port.name for port in graph.outputs} | {port.name for port in graph.inputs}
    own = ("", "DequantizeLinear", "") in scope.functions
    for node in graph.nodes:
        if node.op != "DequantizeLinear" or node.domain or own:
            others |= node.uses
    for name in narrow - others:
        value = graph.initializers[name]
        graph.initializers[name] = value.astype(WIDER[value.dtype.name])


__all__ = ["load", "rules", "supported_ops"]
