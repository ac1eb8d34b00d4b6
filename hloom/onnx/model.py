"""A loaded model: a function that is compiled for the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom.arrays.array import Array
from hloom.dispatch.jit import jit
from hloom.dispatch.stages import Lowered
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.onnx.evaluate import run_nodes
from hloom.onnx.graph import Graph, Port, Scope
from hloom.onnx.open_sizes import Stale
from hloom.onnx.plans import Repeated
from hloom.onnx.program import PLANS, Program
from hloom.onnx.reader import package
from hloom.onnx.sizes import as_tensor
from hloom.onnx.table import NeedsValue
from hloom.tracing.active import TRACES
from hloom.tracing.trace import Tracer
from hloom.tree import pytrees

_ARRAYS = frozenset((Array, np.ndarray))


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
        """The outputs by name."""
        return dict(zip(self.names, self, strict=True))

    def __repr__(self) -> str:
        return f"Outputs({', '.join(f'{n}={v!r}' for n, v in zip(self.names, self, strict=True))})"

    def __reduce__(self):
        return Outputs, (self.names, tuple(self))


pytrees.register(Outputs, lambda o: (tuple(o), o.names), Outputs)


class Model:
    """An ONNX model as a function of its inputs, by position or by name.

    params: name to array, the weights. Assign to its items to change them. Integers of 2 and 4 bits that only
    DequantizeLinear reads are of 8.
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
        self._names = tuple(p.name for p in self.inputs)
        self._named_inputs = frozenset(self._names)
        self._repeated: dict[tuple, Repeated | None] = {}  # None: such arguments are right, and that is all

    def __call__(self, *args, **kwargs):
        """The output, or `Outputs` if there are several.

        Inputs are arrays of the dtypes and shapes of `inputs` (numbers and lists are converted). A model that has
        initializers among its inputs takes other values for them by name.
        Raises ArgumentError, ShapeError, DTypeError.
        """
        form, arrays = self._form(args, kwargs)
        if form in self._repeated and not TRACES.active:
            repeated = self._repeated[form]
            if repeated is not None:
                try:
                    return self._packed(repeated.run(self.params, arrays))
                except Stale:  # settings have changed
                    self._repeated.clear()
                    self._program.forget_open()
            values = dict(zip(self._names, arrays, strict=True))
        else:
            values = self._arguments(args, kwargs)
        if any(map(_traced, values.values())) or any(map(_traced, self.params.values())):
            return self.function(self.params, values)
        outputs = self._program.run(self.params, values)
        if form is not None and all(v is a for v, a in zip(values.values(), arrays, strict=True)):
            if len(self._repeated) >= PLANS:
                self._repeated.pop(next(iter(self._repeated)), None)
            self._repeated[form] = self._program.repeated(self._names, values)
        return self._packed(outputs)

    def _form(self, args: tuple, kwargs: dict) -> tuple[tuple | None, Sequence]:
        """(the key that decides whether arguments are valid, and which program takes them; the arguments in the model's
        order). The former is None unless each input is one host array."""
        if kwargs:
            if args or kwargs.keys() != self._named_inputs:
                return None, args
            args = tuple([kwargs[name] for name in self._names])
        elif len(args) != len(self._names):
            return None, args
        if not _ARRAYS.issuperset(map(type, args)):
            return None, args
        return tuple([a._key if type(a) is Array else (a.dtype, a.shape) for a in args]), args

    def function(self, params: Mapping[str, Any], inputs):
        """The model as a pure function, for jit, grad and vmap: `hl.grad(loss)(model.params)`.

        params: as `model.params`. inputs: name to array, or a sequence in the order of `model.inputs`.
        Raises ConcretizationTypeError if a shape depends on a traced value.
        """
        values = dict(inputs) if isinstance(inputs, Mapping) else self._arguments(tuple(inputs), {})
        env = {**self._graph.initializers, **params, **values}
        try:
            run_nodes(self._graph.nodes, env, self._scope)
        except NeedsValue as found:
            raise self._program.unknown(found) from None
        return self._packed([as_tensor(env[p.name]) for p in self.outputs])

    def lower(self, *args, **kwargs) -> Lowered:
        """The program for inputs like these, as `hl.jit(f).lower`. Raises as `function` does."""
        return jit(self._named).lower(self.params, self._arguments(args, kwargs))

    def _named(self, params, inputs):
        return self.function(params, inputs)

    def as_text(self) -> str:
        """The graph without its weights as ONNX's text; `lower(*inputs).as_text()` is hloom's."""
        return package().printer.to_text(self._proto)

    def __repr__(self) -> str:
        return f"<ONNX model {self.name!r}: {list(self.inputs)} -> {list(self.outputs)}>"

    def _packed(self, values):
        if len(values) == 1:
            return values[0]
        return Outputs([p.name for p in self.outputs], values)

    def _arguments(self, args: tuple, kwargs: dict) -> dict[str, Any]:
        """Input to value, checked, in the model's order."""
        names = self._names
        values = dict(zip(names, args, strict=False))
        if kwargs or len(args) != len(names):
            self._join(values, args, kwargs)
        sizes: dict[str, tuple[int, str]] = {}
        found = {port.name: self._checked(port, values.get(port.name), sizes) for port in self.inputs}
        for name, port in self._optional.items():
            if name in values:
                found[name] = self._checked(port, values[name], sizes)
        return found

    def _join(self, values: dict[str, Any], args: tuple, kwargs: dict) -> None:
        """Puts arguments by name among those by position."""
        if len(args) > len(self._names):
            raise self._refused(f"{len(args)} arguments by position", "pass one array per input")
        for name, value in kwargs.items():
            if name in values:
                raise self._refused(f"{name!r} by position and by name", "pass it once")
            if name not in self._names and name not in self._optional:
                raise self._refused(f"an input called {name!r}", "use a name of model.inputs")
            values[name] = value
        for port in self.inputs:
            if port.name not in values and "optional" not in port.kind:
                raise self._refused(f"no value for {port.name!r}", f"pass {port.name!r} too")

    def _refused(self, found: str, repair: str) -> ArgumentError:
        takes = ", ".join(map(repr, self.inputs)) or "no inputs"
        return ArgumentError(f"the ONNX model {self.name!r} takes {takes}", found, repair)

    def _checked(self, port: Port, value, sizes: dict[str, tuple[int, str]]):
        """The value of an input, which has the dtype and the shape of its port."""
        if value is None and "optional" in port.kind:
            return None
        if port.kind.endswith("sequence"):
            if not isinstance(value, (list, tuple)):
                raise ArgumentError(self._what(port), f"{type(value).__name__}", "pass a list of arrays")
            element = Port(port.name, port.dtype, port.shape)
            return [self._checked(element, v, {}) for v in value]
        if port.kind.endswith("map"):
            if not isinstance(value, dict):
                raise ArgumentError(self._what(port), f"{type(value).__name__}", "pass a dict")
            return value
        if port.dtype == object:
            value = self._strings(port, value)
        elif not isinstance(value, (Array, np.ndarray)):
            try:
                value = hnp.asarray(value if hasattr(value, "dtype") else np.asarray(value, port.dtype))
            except (TypeError, ValueError, OverflowError) as error:
                raise ArgumentError(self._what(port), f"{type(value).__name__} ({error})", "pass an array") from None
        if port.dtype is not None and value.dtype != port.dtype and port.dtype != object:
            raise DTypeError(self._what(port), f"{np.dtype(value.dtype).name}{list(value.shape)}",
                             f"pass x.astype({port.dtype.name!r})")  # fmt: skip
        if port.shape is not None:
            self._check_shape(port, value.shape, port.shape, sizes)
        return value

    def _strings(self, port: Port, value) -> np.ndarray:
        array = np.asarray(value)
        if array.dtype.kind not in "OSU":
            raise DTypeError(self._what(port), f"an array of {array.dtype}", "pass an array of strings")
        text = [v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else str(v) for v in array.ravel()]
        return np.array(text, object).reshape(array.shape)

    def _check_shape(self, port: Port, shape, wanted, sizes: dict[str, tuple[int, str]]) -> None:
        if len(shape) != len(wanted):
            raise ShapeError(self._what(port), f"the shape {list(shape)}", f"pass an array of {len(wanted)} axes")
        for axis, (size, expected) in enumerate(zip(shape, wanted, strict=True)):
            if size == expected or expected is None:
                continue
            found = f"the shape {list(shape)}"
            if isinstance(expected, int):
                raise ShapeError(self._what(port), found, f"axis {axis} has size {expected}")
            known, first = sizes.setdefault(expected, (size, port.name))
            if known != size:
                found = f"{found}, and {expected} = {known} in {first!r}"
                raise ShapeError(self._what(port), found, f"axis {axis} has that size")

    def _what(self, port: Port) -> str:
        return f"the input {port!r} of the ONNX model {self.name!r}"


def _traced(value) -> bool:
    return any(map(_traced, value)) if isinstance(value, list) else isinstance(value, Tracer)
