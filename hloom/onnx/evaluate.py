"""Evaluates the nodes of a graph while tracing: known values are computed immediately, the rest is recorded."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hloom.errors import ArgumentError, AttributeValueError, HloomError, UnsupportedError
from hloom.onnx.choices import misspelt
from hloom.onnx.graph import Graph, Node, Scope
from hloom.onnx.reader import Reader, package, schema_of, scope_of
from hloom.onnx.reference import computed
from hloom.onnx.sizes import Sizes, as_tensor, evaluated, lowered
from hloom.onnx.table import Entry, NeedsValue, find, is_known, static
from hloom.onnx.values import described, type_of
from hloom.tracing.concrete import ensure_compile_time_eval
from hloom.tracing.trace import Tracer

LARGE = 1 << 16  # elements of a constant
DEPTH = 64  # of functions that call functions


class Host:
    """Stands, while tracing, for a value that exists only at run time and outside of programs: a tensor of strings."""

    def __init__(self, dtype=object, shape=None):
        self.dtype, self.shape = np.dtype(dtype), shape


class _Origin(NamedTuple):
    """The key, among values by their names, of what is noted about one."""

    name: str


class Call:
    """The information about its node that a rule may use."""

    def __init__(self, node: Node, env: dict[str, Any], scope: Scope, depth: int):
        self.node, self.env, self.scope, self.depth = node, env, scope, depth
        self.opset = scope.opsets.get(node.domain, 1)
        self.outputs = node.outputs

    def wants(self, output: int) -> bool:
        """Whether anything reads an output."""
        return output < len(self.outputs) and self.outputs[output] != ""

    def note(self, origin: Any) -> None:
        """Keeps what the first output is made of for `origin`, in the rules of nodes that read it. origin.value: the
        output."""
        env: dict[Any, Any] = self.env
        env[_Origin(self.outputs[0])] = origin

    def origin(self, position: int, value: Any) -> Any:
        """What `note` kept about the value of an input; None if there is nothing, or the input has another value."""
        env: dict[Any, Any] = self.env
        found = env.get(_Origin(self.node.inputs[position]))
        return found if found is not None and found.value is value else None

    def body(self, graph: Graph, *, keeps_sizes: bool = False):
        """A body as a function from its inputs to a list of its outputs, which may be `Sizes` where it keeps_sizes."""

        def call(*inputs):
            env = dict(self.env)
            env.update(graph.initializers)
            env.update(zip((p.name for p in graph.inputs), inputs, strict=False))
            run_nodes(graph.nodes, env, self.scope, self.depth + 1)
            results = [env[p.name] for p in graph.outputs]
            return results if keeps_sizes else lowered(results)

        return call


def run_nodes(nodes: Sequence[Node], env: dict[str, Any], scope: Scope, depth: int = 0) -> None:
    """Evaluates nodes in their order. env: name to value; gets their outputs."""
    for node in nodes:
        run_node(node, env, scope, depth)


def run_node(node: Node, env: dict[str, Any], scope: Scope, depth: int = 0) -> None:
    """Evaluates one node and puts its outputs into env. Raises NeedsValue, and the errors of the rule."""
    inputs = [env[name] if name else None for name in node.inputs]
    try:
        results = _evaluate(node, inputs, env, scope, depth)
    except NeedsValue:
        raise
    except HloomError as error:
        note = f"  node:   {node.title}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(
            f"{node.title} of an ONNX model, on {', '.join(map(described, inputs)) or 'no inputs'}",
            f"{type(error).__name__}: {error}",
            "check the node with onnx.checker.check_model, and the shapes of the inputs",
        ) from error
    if any(node.outputs[len(results) :]):
        raise ArgumentError(
            f"{node.title} of an ONNX model",
            f"{len(results)} results for {len(node.outputs)} outputs",
            "check the node with onnx.checker.check_model",
        )
    for name, value in zip(node.outputs, results, strict=False):
        if name:
            env[name] = value


def _evaluate(node: Node, inputs: list, env: dict[str, Any], scope: Scope, depth: int) -> Sequence:
    if any(isinstance(value, Host) for value in inputs):
        raise NeedsValue("it reads strings")
    function = scope.functions.get((node.domain, node.op, _overload(node)))
    if function is None:
        check_choices(node)
    entry = None if function is not None else find(node.domain, node.op, scope.opsets.get(node.domain, 1))
    if entry is None or not node.attributes.keys() <= entry.attributes:
        function = function or schema_function(node, inputs, scope)
        if function is None:
            return computed(node, lowered(inputs), scope)
        return _expanded(function, node, inputs, scope, depth)
    return apply(entry, node, inputs, env, scope, depth)


def check_choices(node: Node) -> None:
    """Raises AttributeValueError for an attribute that names a way which its op does not have."""
    if (wrong := misspelt(node)) is not None:
        name, value, allowed = wrong
        raise AttributeValueError(
            f"{node.title} of an ONNX model", f"{name}={value!r}", f"use one of {', '.join(map(repr, allowed))}"
        )


def apply(entry: Entry, node: Node, inputs: list, env: dict[str, Any], scope: Scope, depth: int) -> Sequence:
    """The outputs of a node by the rule of its entry."""
    attributes = defaults(node.domain, node.op, scope.opsets.get(node.domain, 1)) | node.attributes
    keywords = {name: value for name, value in attributes.items() if name in entry.attributes}
    call = [Call(node, env, scope, depth)] if entry.takes_node else []
    sizes = frozenset([k for k, value in enumerate(inputs) if isinstance(value, Sizes)])
    if sizes and not node.domain:
        results = evaluated(entry.name, inputs, keywords, lambda *given: entry.rule(*call, *given, **keywords))
        if results is not NotImplemented:
            return _as_tuple(results)
    for position in entry.static - sizes:
        if position < len(inputs) and inputs[position] is not None:
            inputs[position] = static(inputs[position], f"input {position} decides shapes")
    known = _known_inputs(entry, inputs, [env[name] for name in node.uses - set(node.inputs) if name in env])
    if known is None:
        given = [_given(entry, k, value) for k, value in enumerate(inputs)]
        return _as_tuple(entry.rule(*call, *given, **keywords))
    with ensure_compile_time_eval():
        results = entry.rule(*call, *known, **keywords)
    if getattr(results, "size", 0) > LARGE and not entry.host:  # recorded, so that programs hold no large constants
        results = entry.rule(*call, *known, **keywords)
        if isinstance(results, Tracer):
            return (results,)
    return numbers(_as_tuple(results))


def _known_inputs(entry: Entry, inputs: list, captured: list) -> list | None:
    """The inputs if all of them, and the outer values that the node uses, are known; None otherwise."""
    if is_known([*inputs, *captured]):
        return inputs
    if entry.host or any(_is_text(value) for value in inputs):
        # Tracers that carry values (grad outside jit) are known too.
        return [None if value is None else static_tree(value) for value in inputs]
    return None


def _as_tuple(results) -> tuple:
    return results if isinstance(results, tuple) else (results,)


def _given(entry: Entry, position: int, value):
    """The value passed to a rule for an input: for sizes their elements if they determine shapes, their integer values
    if these determine what is traced, and otherwise the array that the program computes."""
    if isinstance(value, Sizes) and position in entry.static:
        return value.elements
    if isinstance(value, Sizes) and position in entry.decides:
        return value.numbers()
    return as_tensor(value)


def static_tree(value):
    """`static` of a value or of each element of a sequence."""
    if isinstance(value, list):
        return [static_tree(v) for v in value]
    if value is None:
        return None
    if isinstance(value, Sizes):
        return value.numbers()
    try:
        return static(value, "it runs on concrete values")
    except NeedsValue as found:
        raise NeedsValue(found.what) from None


def numbers(values):
    """Eager results as NumPy arrays."""
    if isinstance(values, (tuple, list)):
        return type(values)(map(numbers, values))
    if values is None or isinstance(values, (np.ndarray, dict)):
        return values
    return np.asarray(values)


def _is_text(value) -> bool:
    if isinstance(value, list):
        return any(map(_is_text, value))
    return isinstance(value, np.ndarray) and value.dtype.kind in "OSU"


@functools.cache
def defaults(domain: str, name: str, version: int) -> dict[str, Any]:
    """The attributes of an op with a default in ONNX's schema, for nodes that do not set them."""
    schema = schema_of(name, version, domain)
    if schema is None:
        return {}
    reader = Reader()
    return {
        key: reader.attribute(attribute.default_value, None)
        for key, attribute in schema.attributes.items()
        if attribute.default_value.type
    }


def _overload(node: Node) -> str:
    return getattr(node.proto, "overload", "")


def _expanded(function, node: Node, inputs: list, scope: Scope, depth: int) -> Sequence:
    """The outputs of a node whose op is a function: the model's, or ONNX's own body of an op without a rule."""
    if depth > DEPTH:
        raise UnsupportedError(
            f"the function {node.title}", f"calls nested more than {DEPTH} deep", "inline the functions"
        )
    body, inner = _body(function, node, scope)
    env: dict[str, Any] = dict.fromkeys(p.name for p in body.inputs)
    env.update(zip((p.name for p in body.inputs), inputs, strict=False))
    run_nodes(body.nodes, env, inner, depth + 1)
    return [env.get(p.name) for p in body.outputs]  # unused optional outputs are not computed


def callee(node: Node, scope: Scope) -> tuple[Graph, Scope] | None:
    """(body, the scope of its nodes) for a node that calls a function: of the model, or ONNX's body of an op without a
    rule that does not depend on the types of its inputs. None for other nodes."""
    function = scope.functions.get((node.domain, node.op, _overload(node)))
    if function is None:
        version = scope.opsets.get(node.domain, 1)
        schema = schema_of(node.op, version, node.domain)
        if find(node.domain, node.op, version) is not None or schema is None or not schema.has_function:
            return None
        function = schema.function_body
    return _body(function, node, scope)


def _body(function, node: Node, scope: Scope) -> tuple[Graph, Scope]:
    inner = replace(scope, opsets=scope.opsets | scope_of(function, {}).opsets, nodes=())
    given = {a.name: a for a in node.proto.attribute}
    return Reader().function(function, _with_defaults(node, scope) | given), inner


def _with_defaults(node: Node, scope: Scope) -> dict[str, Any]:
    schema = schema_of(node.op, scope.opsets.get(node.domain, 1), node.domain)
    if schema is None:
        return {}
    return {key: a.default_value for key, a in schema.attributes.items() if a.default_value.type}


def has_function(node: Node, version: int) -> bool:
    """Whether ONNX's schema of an op has a body to expand."""
    schema = schema_of(node.op, version, node.domain)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def schema_function(node: Node, inputs: list, scope: Scope):
    """The FunctionProto of an op's body in ONNX's schema; None if it has none."""
    onnx = package()
    version = scope.opsets.get(node.domain, 1)
    schema = schema_of(node.op, version, node.domain)
    if schema is None:
        return None
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        types = [type_of(value).SerializeToString() for value in inputs]
        content = schema.get_context_dependent_function_with_opset_version(
            max(versions, default=version), node.proto.SerializeToString(), types
        )
        function = onnx.FunctionProto()
        function.ParseFromString(content)
        if function.node:
            return function
    return schema.function_body if schema.has_function else None
