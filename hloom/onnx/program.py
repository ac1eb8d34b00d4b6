"""Programs of a model: the nodes in stretches that are compiled for the shapes of their inputs.

The first shapes of a model are compiled as fixed sizes: most models are called with no others, fixed sizes run a little
faster, and values that depend only on weights are computed once for all calls. From the second shapes on, a program
with dimensions for the sizes that the model leaves open serves all sizes (`open_sizes`), if possible. Otherwise each
set of shapes is compiled separately:

Usually one stretch is the whole model. A node whose result's shape depends on run-time values (NonZero, a Loop whose
number of steps is computed, ops on strings) ends it: that node is run separately, on concrete values, and the rest is
compiled for the resulting shapes. If only a few values are needed (the target of Reshape, the k of TopK), the rest is
compiled for these values instead. Either case warns once per node.
"""

from __future__ import annotations

import inspect
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import hloom.numpy as hnp
from hloom.arrays.array import Array
from hloom.dispatch.jit import JitFunction
from hloom.dispatch.signature import JitOptions, argument_array
from hloom.errors import ConcretizationTypeError, DataDependentWarning, UnsupportedError
from hloom.ir.sizes.policy import ALONE_OF_MODELS
from hloom.ir.source import current_source, warn_while_compiling
from hloom.ir.types import HLO_NAME, NARROWED
from hloom.onnx.constants import FEW
from hloom.onnx.evaluate import Host, run_node
from hloom.onnx.graph import Graph, Node, Scope
from hloom.onnx.open_sizes import OpenPrograms, Stale, Watch
from hloom.onnx.plans import Plan, Repeated, Trace
from hloom.onnx.sizes import as_tensor
from hloom.onnx.table import NeedsValue, is_known
from hloom.tracing.signatures import identifiers

PLANS = 256  # programs of one stretch
MANY = 32  # number of shapes from which on a warning reports that each is compiled


class Program:
    """Runs a graph. params: names of the weights, whose shapes never change."""

    def __init__(self, graph: Graph, scope: Scope, params: frozenset[str]):
        self.graph, self.scope, self.params = graph, scope, params
        self.plans: dict[Any, Plan] = {}
        self.open = OpenPrograms(graph)
        self.values: set[str] = set()  # names whose values programs are compiled for
        self.warned: set[int] = set()
        self.warned_of_many = False
        self.outputs = [p.name for p in graph.outputs]
        count = len(graph.nodes)
        self.needed: list[frozenset[str]] = [frozenset()] * (count + 1)
        self.needed[count] = frozenset(self.outputs)
        for k in range(count - 1, -1, -1):
            node = graph.nodes[k]
            self.needed[k] = (self.needed[k + 1] - set(node.outputs)) | node.uses

    def run(self, params: Mapping[str, Any], live: dict[str, Any]) -> list:
        """The outputs for values of the weights and of the inputs."""
        try:
            return self._run(params, live)
        except Stale:  # settings have changed
            self.forget_open()
            return self._run(params, live)

    def forget_open(self) -> None:
        """Forgets the programs for many sizes."""
        self.open.clear()
        self.plans.clear()

    def _run(self, params: Mapping[str, Any], live: dict[str, Any]) -> list:
        known = self.graph.initializers
        if not known.keys().isdisjoint(live):  # inputs with a default
            known = {name: v for name, v in known.items() if name not in live}
        if not self.params.isdisjoint(live):
            params = {name: v for name, v in params.items() if name not in live}
        start, plans, count = 0, self.plans, len(self.graph.nodes)
        given, live = live, {name: _as_array(v) for name, v in live.items()}
        while True:
            plan, results = self._step(plans, start, params, live, known)
            if plan.stop == count:
                # An input that is an output too is copied.
                everything = ChainMap(results, plan.known, given, live, params)  # type: ignore[arg-type]
                return [_array(everything[name]) for name in self.outputs]
            needed, known = self.needed[plan.stop], plan.known
            live = {name: v for name, v in (live | results).items() if name in needed and name not in known}
            start, plans = plan.stop, plan.next
            if plan.eager:
                made = self._eagerly(self.graph.nodes[start], {**params, **known, **live})
                known = {name: v for name, v in known.items() if name not in made}
                live.update(made)
                start += 1

    def repeated(self, inputs: Sequence[str], live: dict[str, Any]) -> Repeated | None:
        """For calls with inputs like these, which were just made. None if the program depends on more than dtypes
        and shapes, or is of several stretches."""
        key = tuple([(name, _shape_of(v)) for name, v in live.items()])
        plan = None if self.values else self.plans.get(key)
        if plan is None or plan.function is None or plan.stop < len(self.graph.nodes):
            return None
        computed = set(self.outputs).isdisjoint({*plan.known, *live, *self.params})
        return Repeated(plan, inputs, self.outputs) if computed and set(plan.live) <= set(inputs) else None

    def _step(self, plans: dict[Any, Plan], start: int, params, live: dict[str, Any], known: dict[str, Any]):
        """(the stretch from a node on, its results) for these values. Traces it where it is new."""
        while True:
            fixed = {name: _numbers(live.get(name, params.get(name))) for name in self.values
                     if name in live or name in params} if self.values else {}  # fmt: skip
            key: Any = tuple([(name, _shape_of(v)) for name, v in live.items()])
            if fixed:
                key += tuple((name, v.dtype.str, v.shape, v.tobytes()) for name, v in sorted(fixed.items()))
            if (plan := plans.get(key)) is not None:
                return plan, plan.run(params, live)
            made = None
            if plans is self.plans and len(plans) >= ALONE_OF_MODELS and not self.values:
                made = self.open.run(params, live, lambda watch: self._opened(params, live, known, watch))
            if made is None:
                made = self._traced(start, params, live, {**known, **fixed}, fixed)
                self.open.settle()
            if made is not None:
                if len(plans) >= PLANS:
                    plans.pop(next(iter(plans)))
                plans[key] = made[0]
                self._warn_of_many(plans)
                return made

    def _warn_of_many(self, plans: dict[Any, Plan]) -> None:
        """Warns where many shapes were compiled for a stretch, of which one is new."""
        if self.warned_of_many or len({id(plan) for plan in plans.values()}) != MANY:
            return
        self.warned_of_many = True
        warn_while_compiling(
            f"the ONNX model {self.graph.name!r} was compiled for {MANY} shapes of its inputs, each by itself"
            + (f", as {self.open.why}" if self.open.why else "")
            + "; pad inputs to fewer shapes",
            DataDependentWarning,
            current_source(),
        )

    def _opened(self, params, live: dict[str, Any], known: dict[str, Any], watch: Watch):
        """A plan of all nodes under the dimensions of `watch`, and its results. Raises NeedsValue, Stale, and errors of
        rules that require fixed values."""
        plan = Plan(0, len(self.graph.nodes))
        self._take(plan, params, live, known, ())
        plan.function = self._function(plan, known, frozenset(live) | frozenset(params), watch, watch.dims)
        return plan, plan.run(params, live)

    def _take(self, plan: Plan, params, live, known, others) -> None:
        """Sets which values are arguments of a plan: not those of `others`."""
        used = self.needed[plan.start]
        plan.live = tuple([name for name in live if name in used and name not in others])
        plan.params = tuple([name for name in params if name in used and name not in known])

    def _function(
        self, plan: Plan, before: Mapping[str, Any], given: frozenset[str], trace: Trace, dims: Mapping | None = None
    ) -> JitFunction:
        """The function of a plan. before: values known at its start; given: its inputs and the weights; dims: of inputs
        with open sizes."""
        nodes, needed, names = self.graph.nodes[plan.start : plan.stop], self.needed[plan.stop], plan.params + plan.live

        def compute(*values):
            trace.starts(values)
            env = {**before, **dict(zip(names, values, strict=True))}
            for node in nodes:
                trace.enters(node, env)
                run_node(node, env, self.scope)
                trace.left()
            fresh = {name: as_tensor(v) for name, v in env.items() if name in needed and name not in given}
            plan.known = {name: v for name, v in fresh.items() if is_known(v)}
            trace.ends()
            return {name: v for name, v in fresh.items() if name not in plan.known}

        parameters = identifiers(names)
        compute.__name__ = self.graph.name if self.graph.name.isidentifier() else "model"
        compute.__signature__ = _signature(parameters)  # type: ignore[attr-defined]
        if dims is not None:
            called = dict(zip(names, parameters, strict=True))
            dims = {called[name]: shape for name, shape in dims.items() if name in called}
        return JitFunction(compute, JitOptions(steady=len(plan.params), dims=dims))

    def _traced(self, start: int, params, live: dict[str, Any], known: dict[str, Any], fixed: dict[str, Any]):
        """A new stretch and its results; None if `values` has grown and the key must be made anew."""
        plan = Plan(start, len(self.graph.nodes))
        host = {name: Host(shape=getattr(v, "shape", None)) for name, v in live.items() if _on_host(v)}
        self._take(plan, params, live, known, host.keys() | fixed.keys())
        given = (frozenset(live) | frozenset(params)) - frozenset(fixed)
        while plan.stop > start or plan.stop == 0 == len(self.graph.nodes):
            trace = Trace()
            plan.function = self._function(plan, {**host, **known}, given, trace)
            try:
                return plan, plan.run(params, live)
            except NeedsValue as found:
                node, at = trace.node, start + trace.count - 1
                assert node is not None
                name = _wanted(found, trace.env)
                given_now = name in live or name in params
                if name is not None and (name in known or (at == start and not given_now)):
                    raise self._stuck(node, found, repr(name)) from found
                if name is None or name in live or name not in params:  # the values of weights do not change
                    self._warn(at, node, found, name)
                plan.eager, plan.stop, plan.function = name is None, at, None
                if name is not None:
                    self.values.add(name)
                    if given_now:
                        return None
        plan.known = {name: v for name, v in known.items() if name in self.needed[plan.stop]}
        return plan, {}

    def _stuck(self, node: Node, found: NeedsValue, value: str) -> UnsupportedError:
        """The error for a node that requests values that it already has, or that nothing computes."""
        return UnsupportedError(
            f"{node.title} of the ONNX model {self.graph.name!r}",
            f"{found.what}: the values of {value} are not available before the node runs",
            "store them in the model as an initializer, or pass them as an input",
        )

    def _eagerly(self, node: Node, env: dict[str, Any]) -> dict[str, Any]:
        """The outputs of one node, on concrete values."""
        numbers = {name: _numbers(env[name]) for name in node.uses}
        try:
            run_node(node, numbers, self.scope)
        except NeedsValue as found:
            raise self._stuck(node, found, "a value inside of it") from found
        return {name: _live(numbers[name]) for name in node.outputs if name}

    def _warn(self, at: int, node: Node, found: NeedsValue, name: str | None) -> None:
        if at in self.warned or found.what == "it reads strings":
            return
        self.warned.add(at)
        how = f"programs are compiled for the values of {name!r}" if name else "it runs by itself, not compiled"
        warn_while_compiling(f"{node.title}: {found.what}; {how}", found.category, current_source())

    def unknown(self, found: NeedsValue) -> ConcretizationTypeError:
        """The error for a shape that depends on a traced value."""
        return ConcretizationTypeError(
            f"a node of the ONNX model {self.graph.name!r} inside of jit, where {found.what}",
            "a traced value, which has no number yet",
            "call the model outside of jit, or pass that input as a NumPy array",
        )


def _signature(names: Sequence[str]) -> inspect.Signature:
    """Parameters named after the values of a model, for instructions and messages."""
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names])


def _wanted(found: NeedsValue, env: Mapping[str, Any]) -> str | None:
    """The name of the few values that a node needs; None if it has to run separately."""
    if found.value is None or int(np.prod(found.value.shape)) > FEW:
        return None
    return next((name for name, value in env.items() if value is found.value), None)


def _on_host(value) -> bool:
    if isinstance(value, list):
        return any(map(_on_host, value))
    return isinstance(value, dict) or (isinstance(value, np.ndarray) and value.dtype.kind in "OSU")


def _numbers(value):
    """A value as NumPy arrays; maps stay as they are."""
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    return value if value is None or isinstance(value, dict) else np.asarray(value)


def _live(value):
    """A value as arrays of hloom; strings and maps are unchanged."""
    if isinstance(value, list):
        return [_live(v) for v in value]
    return value if value is None or isinstance(value, dict) or _on_host(value) else hnp.asarray(value)


def _as_array(value):
    """A numeric NumPy array as an Array, which several stretches accept without another check; other values
    unchanged."""
    if (
        type(value) is np.ndarray
        and value.flags.c_contiguous
        and value.dtype in HLO_NAME
        and value.dtype not in NARROWED
    ):
        return argument_array(value)
    return value


def _array(value):
    return _live(value) if not isinstance(value, Array) else value


def _shape_of(value):
    if isinstance(value, list):
        return tuple(map(_shape_of, value))
    if isinstance(value, dict):
        return dict
    return None if value is None else (value.shape, value.dtype)
