"""A loaded model: a function that is compiled for the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom.arrays.array import Array
from hloom.dispatch.jit import jit
from hloom.dispatch.stages import Lowered
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.onnx.evaluate import run_nodes
from hloom.onnx.graph import Graph, Port, Scope
from hloom.onnx.program import Program
from hloom.onnx.reader import package
from hloom.onnx.table import NeedsValue
from hloom.tracing.trace import Tracer
from hloom.tree import pytrees


class Outputs(tuple):
    """The outputs of a model in their order; `outputs["name"]` is one of them."""

    names: tuple[str, ...]

    def __new__(cls, names, values):
        made = super().__new__(cls, values)
        made.names = tuple(names)
        return made

    def __getitem__(self, key):
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self.names:
            raise KeyError(f"no output {key!r}; the outputs are {', '.join(self.names)}")
        return super().__getitem__(self.names.index(key))

    def as_dict(self) -> dict[str, Any]:
        return dict(zip(self.names, self, strict=True))

    def __repr__(self) -> str:
        return f"Outputs({', '.join(f'{n}={v!r}' for n, v in zip(self.names, self, strict=True))})"

    def __reduce__(self):
        return Outputs, (self.names, tuple(self))


pytrees.register(Outputs, lambda o: (tuple(o), o.names), Outputs)


class Model:
    """An ONNX model as a function of its inputs, by position or by name.

    params: name to array, the weights. Assign to its items to change them.
    inputs, outputs: the model's ports (name, dtype, shape).
    """

    def __init__(self, graph: Graph, scope: Scope, params: dict[str, np.ndarray], proto: Any):
        self._graph, self._scope, self._proto = graph, scope, proto
        self.name = graph.name or "model"
        self.params: dict[str, Any] = {name: hnp.asarray(value) for name, value in params.items()}
        given = set(graph.initializers) | set(params)
        self.inputs = tuple(p for p in graph.inputs if p.name not in given)
        self._optional = {p.name: p for p in graph.inputs if p.name in given}
        self.outputs = graph.outputs
        self._program = Program(graph, scope, frozenset(params))

    def __call__(self, *args, **kwargs):
        """The output, or `Outputs` where there are several.

        Inputs are arrays of the dtypes and shapes of `inputs` (numbers and lists are converted). A model that has
        initializers among its inputs takes other values for them by name.
        Raises ArgumentError, ShapeError, DTypeError.
        """
        values = self._arguments(args, kwargs)
        if any(isinstance(leaf, Tracer) for leaf in pytrees.leaves((values, self.params))):
            return self.function(self.params, values)
        return self._packed(self._program.run({**self.params, **values}))

    def function(self, params: Mapping[str, Any], inputs):
        """The model as a pure function, for jit, grad and vmap: `hl.grad(loss)(model.params)`.

        params: as `model.params`. inputs: name to array, or a sequence in the order of `model.inputs`.
        Raises ConcretizationTypeError where a shape depends on a traced value.
        """
        values = dict(inputs) if isinstance(inputs, Mapping) else self._arguments(tuple(inputs), {})
        env = {**self._graph.initializers, **params, **values}
        try:
            run_nodes(self._graph.nodes, env, self._scope)
        except NeedsValue as found:
            raise self._program.unknown(found) from None
        return self._packed([env[p.name] for p in self.outputs])

    def lower(self, *args, **kwargs) -> Lowered:
        """The program for inputs like these, as `hl.jit(f).lower`. Raises as `function` does."""
        return jit(self._named).lower(self.params, self._arguments(args, kwargs))

    def _named(self, params, inputs):
        return self.function(params, inputs)

    def as_text(self) -> str:
        """The graph as ONNX's text; `lower(*inputs).as_text()` is hloom's."""
        return package().printer.to_text(self._proto)

    def __repr__(self) -> str:
        return f"<ONNX model {self.name!r}: {list(self.inputs)} -> {list(self.outputs)}>"

    def _packed(self, values):
        if len(values) == 1:
            return values[0]
        return Outputs([p.name for p in self.outputs], values)

    def _arguments(self, args: tuple, kwargs: dict) -> dict[str, Any]:
        what = f"the ONNX model {self.name!r} takes {', '.join(map(repr, self.inputs)) or 'no inputs'}"
        names = [p.name for p in self.inputs]
        if len(args) > len(names):
            raise ArgumentError(what, f"{len(args)} arguments by position", "pass one array per input")
        values = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name in values:
                raise ArgumentError(what, f"{name!r} by position and by name", "pass it once")
            if name not in names and name not in self._optional:
                raise ArgumentError(what, f"an input called {name!r}", "use a name of model.inputs")
            values[name] = value
        missing = [p for p in self.inputs if p.name not in values and "optional" not in p.kind]
        if missing:
            raise ArgumentError(what, f"no value for {missing[0].name!r}", f"pass {missing[0].name!r} too")
        sizes: dict[str, tuple[int, str]] = {}
        ports = {p.name: p for p in self.inputs} | self._optional
        return {name: self._checked(ports[name], values.get(name), sizes) for name in [*names, *self._optional]
                if name in values or name in names}  # fmt: skip

    def _checked(self, port: Port, value, sizes: dict[str, tuple[int, str]]):
        what = f"the input {port!r} of the ONNX model {self.name!r}"
        if value is None and "optional" in port.kind:
            return None
        if port.kind.endswith("sequence"):
            if not isinstance(value, (list, tuple)):
                raise ArgumentError(what, f"{type(value).__name__}", "pass a list of arrays")
            element = Port(port.name, port.dtype, port.shape)
            return [self._checked(element, v, {}) for v in value]
        if port.dtype == object:
            array = np.asarray(value)
            if array.dtype.kind not in "OSU":
                raise DTypeError(what, f"an array of {array.dtype}", "pass an array of strings")
            text = [v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else str(v) for v in array.ravel()]
            value = np.array(text, object).reshape(array.shape)
        elif not isinstance(value, (Array, np.ndarray)):
            try:
                value = (
                    hnp.asarray(np.asarray(value, port.dtype)) if not hasattr(value, "dtype") else hnp.asarray(value)
                )
            except (TypeError, ValueError) as error:
                raise ArgumentError(what, f"{type(value).__name__} ({error})", "pass an array") from None
        if port.dtype is not None and port.dtype != object and np.dtype(value.dtype) != port.dtype:
            raise DTypeError(what, f"{np.dtype(value.dtype).name}{list(value.shape)}",
                             f"pass x.astype({port.dtype.name!r})")  # fmt: skip
        self._check_shape(port, value, sizes, what)
        return value if port.dtype == object else hnp.asarray(value)

    def _check_shape(self, port: Port, value, sizes: dict[str, tuple[int, str]], what: str) -> None:
        if port.shape is None:
            return
        found = f"the shape {list(value.shape)}"
        if len(value.shape) != len(port.shape):
            raise ShapeError(what, found, f"pass an array of {len(port.shape)} axes")
        for axis, (size, wanted) in enumerate(zip(value.shape, port.shape, strict=True)):
            if isinstance(wanted, int) and size != wanted:
                raise ShapeError(what, found, f"axis {axis} has size {wanted}")
            if isinstance(wanted, str):
                known, first = sizes.setdefault(wanted, (size, port.name))
                if known != size:
                    raise ShapeError(
                        what, f"{found}, and {wanted} = {known} in {first!r}", f"axis {axis} has that size"
                    )
