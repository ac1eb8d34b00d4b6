"""Ops without a rule: ONNX's reference evaluator computes them in Python, one call out of the compiled program."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.errors import FallbackWarning, UnsupportedError, import_extra
from hloom.ir.source import current_source, warn_while_compiling
from hloom.onnx.graph import Graph, Node, Scope
from hloom.onnx.reader import dtype_of, package, schema_of
from hloom.onnx.table import NeedsValue, is_known
from hloom.onnx.values import type_of
from hloom.tracing.callback import pure_callback

COST = "ONNX's reference evaluator computes it in Python, as hloom has no rule for it"


@functools.lru_cache(maxsize=1024)
def evaluator(node: Node, scope: Scope) -> Any:
    """The ReferenceEvaluator of one node, whose inputs and outputs are named by position; None if ONNX has none.

    Nodes with bodies have none: these refer to values of the surrounding graph.
    """
    if any(isinstance(v, Graph) for v in node.attributes.values()):
        return None
    onnx = package()
    reference = import_extra("ops of ONNX models without a rule", "onnx", "onnx.reference")
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    proto.domain = node.domain
    del proto.input[:], proto.output[:]
    proto.input.extend(name and f"input{k}" for k, name in enumerate(node.inputs))
    proto.output.extend(name and f"output{k}" for k, name in enumerate(node.outputs))
    ports = [[onnx.ValueInfoProto(name=n) for n in names if n] for names in (proto.input, proto.output)]
    graph = onnx.helper.make_graph([proto], "node", *ports)
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in scope.opsets.items()]
    if node.domain not in scope.opsets:
        opsets.append(onnx.helper.make_opsetid(node.domain, 1))
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    try:
        return reference.ReferenceEvaluator(model, new_ops=list(scope.new_ops))
    except (RuntimeError, NotImplementedError, TypeError, ValueError, LookupError, AttributeError):
        return None  # each ONNX domain reports an unknown op with its own exception


def computed(node: Node, inputs: list, scope: Scope) -> Sequence:
    """The outputs of a node by the reference evaluator.

    Runs eagerly on concrete values; in a program by a callback, if ONNX infers the shapes of the outputs. Raises
    NeedsValue if it does not, and UnsupportedError for an op without a reference in ONNX.
    """
    found = evaluator(node, scope)
    if found is None:
        raise UnsupportedError(
            f"{node.title} of opset {scope.opsets.get(node.domain, 1)}",
            "an op that hloom has no rule for, and ONNX neither a function nor a reference",
            "declare a rule (hl.onnx.rule), pass an OpRun class (hl.onnx.load(..., new_ops=[...])), or export the "
            "model with other ops",
        )
    if is_known(inputs):
        return _run(found, node, inputs)
    shapes = _inferred(node, inputs, scope)
    if shapes is None:
        raise NeedsValue(COST, category=FallbackWarning)
    places = [k for k, value in enumerate(inputs) if value is not None]

    def call(*arrays):
        given: list = [None] * len(inputs)
        for k, array in zip(places, arrays, strict=True):
            given[k] = np.asarray(array)
        made = [v for v, name in zip(_run(found, node, given), node.outputs, strict=True) if name]
        return tuple(np.asarray(v, s.dtype) for v, s in zip(made, shapes, strict=True))

    operands = [inputs[k] for k in places]
    moved = sum(int(np.prod(v.shape)) * np.dtype(v.dtype).itemsize for v in [*operands, *shapes])
    cost = f"a call out of the compiled program each time, which copies {moved:,} bytes"
    warn_while_compiling(f"{node.title}: {COST}; {cost}", FallbackWarning, current_source())
    results = iter(pure_callback(call, tuple(shapes), *operands, vmap_method="sequential"))
    return [next(results) if name else None for name in node.outputs]


def _run(found, node: Node, inputs: list) -> list:
    feeds = {f"input{k}": value for k, (name, value) in enumerate(zip(node.inputs, inputs, strict=True)) if name}
    results = iter(found.run(None, feeds))
    return [_value(next(results)) if name else None for name in node.outputs]


def _value(result):
    """A result of the evaluator: an array, a list of such, or a dict as it is."""
    if isinstance(result, list):
        return [_value(v) for v in result]
    if result is None or isinstance(result, dict):
        return result
    array = np.asarray(result)
    return array.astype(object) if array.dtype.kind in "SU" else array


def _inferred(node: Node, inputs: list, scope: Scope) -> list[ShapeDtypeStruct] | None:
    """The shapes and dtypes of the outputs that ONNX infers; None if it leaves one open."""
    onnx = package()
    schema = schema_of(node.op, scope.opsets.get(node.domain, 1), node.domain)
    if schema is None or any(isinstance(v, (list, dict)) for v in inputs):
        return None
    given = [(n, v) for n, v in zip(node.inputs, inputs, strict=True) if n]
    types = {name: type_of(value) for name, value in given}
    data = {n: onnx.numpy_helper.from_array(v, n) for n, v in given if isinstance(v, np.ndarray)}
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in scope.opsets.items()]
    try:
        found = onnx.shape_inference.infer_node_outputs(schema, node.proto, types, data, opset_imports=opsets)
    except (RuntimeError, ValueError, KeyError, TypeError):  # onnx.shape_inference.InferenceError, a RuntimeError
        return None
    shapes = []
    for name in filter(None, node.outputs):
        tensor = found[name].tensor_type if name in found and found[name].HasField("tensor_type") else None
        if tensor is None or not tensor.elem_type or not tensor.HasField("shape"):
            return None
        dims = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
        dtype = dtype_of(tensor.elem_type)
        if dtype.kind == "O" or any(d is None for d in dims):
            return None
        shapes.append(ShapeDtypeStruct(tuple(dims), dtype))
    return shapes
