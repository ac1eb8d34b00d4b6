"""Programs as graphs that TensorBoard shows: GraphDef messages, and the run metadata of a profiled program.

A node's name is its path: `hl.named_scope`s, then its name in HLO. A loop, a branch or a kernel is a node and, below
its name, the nodes of the computations that it calls; these get the operands of the call, and the call gets their
result. The colours are by device, by compute time and by memory.

Source: github.com/tensorflow/tensorflow, core/framework: graph.proto, node_def.proto, step_stats.proto.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hloom.compiler.analysis import instruction_flops
from hloom.dispatch.jit import jit, make_module
from hloom.dispatch.stages import Compiled, Lowered
from hloom.errors import ArgumentError
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.types import Shape, TupleShape
from hloom.profiler import profile
from hloom.summary.events import tensorboard

CALLS = frozenset({"call", "conditional", "fusion", "manual-computation", "scan", "while"})  # shown with their callees
MOVES = frozenset({"get-tuple-element", "tuple"})  # left out: their readers are connected to their elements
LONGEST = 120  # characters of an attribute

# The enum values of TensorFlow's DataType.
_DTYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "complex64": 8, "int64": 9, "bool": 10,
    "bfloat16": 14, "uint16": 17, "complex128": 18, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip


def module_of(function: Any, args: tuple, kwargs: dict) -> Module:
    """The module of a function with arguments, of a lowered or compiled function, or of a module itself.

    Raises ArgumentError.
    """
    if isinstance(function, Module):
        return function
    if isinstance(function, Compiled | Lowered):
        return function.module
    if callable(function):
        return make_module(function)(*args, **kwargs)
    raise ArgumentError(
        "a summary's graph is that of a function with its arguments, or of a lowered or compiled function",
        f"{type(function).__name__}",
        "summary.graph(step, state, batch)",
    )


def definition(module: Module):
    """The GraphDef of a module."""
    return _Graph(module).nodes


def profiled(function: Any, args: tuple, kwargs: dict):
    """(GraphDef of the optimized module, RunMetadata with seconds and bytes of its kernels, the profile's parts)."""
    if isinstance(function, Compiled):
        compiled = function
    elif isinstance(function, Lowered):
        compiled = function.compile()
    else:
        made = function if hasattr(function, "lower") else jit(function)
        compiled = made.lower(*args, **kwargs).compile()
    parts = profile(compiled, (args, kwargs))
    graph = _Graph(compiled.module)
    return graph.nodes, _metadata(graph, parts), parts


class _Graph:
    """The nodes of a module. names: of each instruction by its id, the last one if it is called twice."""

    def __init__(self, module: Module):
        self.proto = tensorboard()
        self.nodes = self.proto.graph_pb2.GraphDef(versions={"producer": 22})
        self.names: dict[int, str] = {}
        self._used: dict[str, int] = {}
        self._add(module.entry, "", {})

    def _add(
        self, computation: Computation, scope: str, given: dict[int, list[str]], kernel: bool = False
    ) -> list[str]:
        """Adds a computation's nodes below a scope. given: for the index of a parameter the nodes of its argument ({}
        for the entry, whose parameters are nodes). kernel: whether one kernel computes it; its nodes then have no
        separate scopes. Returns the nodes that produce its result."""
        found: dict[int, list[str]] = {}  # for an instruction's id, the nodes that its readers read
        for instruction in computation.instructions:
            inputs = [name for operand in instruction.operands for name in found[id(operand)]]
            if instruction.opcode == "parameter" and scope:
                found[id(instruction)] = given.get(instruction["index"], [])
            elif instruction.opcode == "get-tuple-element":
                source = found[id(instruction.operands[0])]
                held = len(source) == len(instruction.operands[0].shape.elements)  # a node for each element
                found[id(instruction)] = [source[instruction["index"]]] if held else source
            elif instruction.opcode in MOVES:
                found[id(instruction)] = inputs
            else:
                found[id(instruction)] = [self._node(instruction, scope, inputs, found, kernel)]
        return list(dict.fromkeys(found[id(computation.root)]))

    def _node(
        self, instruction: Instruction, scope: str, inputs: list[str], found: dict[int, list[str]], kernel: bool
    ) -> str:
        name = self._name(instruction, scope, kernel)
        results: list[str] = []
        if instruction.opcode in CALLS:
            operands = instruction.operands
            if instruction.opcode == "conditional":
                operands = operands[1:]  # the first one chooses
            for number, called in enumerate(instruction.called()):
                taken = operands[number : number + 1] if instruction.opcode == "conditional" else operands
                given = {index: found[id(operand)] for index, operand in enumerate(taken)}
                kernel = instruction.opcode == "fusion"
                inside = name if kernel else self._unused(f"{name}/{_plain(called.name)}")
                results += self._add(called, inside, given, kernel)
        self.names[id(instruction)] = name
        op = "Const" if instruction.opcode == "constant" else instruction.opcode  # which TensorBoard draws small
        node = self.nodes.node.add(name=name, op=op, input=dict.fromkeys([*inputs, *results]))
        node.device = instruction.device
        self._attributes(node, instruction)
        return name

    def _name(self, instruction: Instruction, scope: str, kernel: bool) -> str:
        """Its path: the scope, below it the named scopes that are not in the scope already, and its name."""
        scopes = instruction.source.function.split("/")[:-1] if instruction.source is not None and not kernel else []
        # Instructions of a loop's body have the scopes of the loop, which precede the loop's name.
        own = [part for part in map(_plain, scopes) if part not in scope.split("/")]
        return self._unused(
            "/".join([*([scope] if scope else []), *own, _plain(instruction.hint or instruction.opcode)])
        )

    def _unused(self, name: str) -> str:
        count = self._used.get(name, 0)
        self._used[name] = count + 1
        return self._unused(f"{name}_{count}") if count else name

    def _attributes(self, node, instruction: Instruction) -> None:
        value, shape_proto = self.proto.attr_value_pb2.AttrValue, self.proto.tensor_shape_pb2.TensorShapeProto
        shapes = _shapes(instruction.shape)
        dims = [
            shape_proto(dim=[shape_proto.Dim(size=-1 if isinstance(n, SizeExpression) else n) for n in shape.dims])
            for shape in shapes
        ]
        node.attr["_output_shapes"].CopyFrom(value(list=value.ListValue(shape=dims)))
        if len(shapes) == 1 and (number := _DTYPES.get(shapes[0].dtype.name)):
            node.attr["T"].CopyFrom(value(type=number))
        node.attr["shape"].CopyFrom(value(s=str(instruction.shape).encode()))
        if instruction.source is not None and instruction.source.line:
            node.attr["line"].CopyFrom(value(s=f"{instruction.source.file}:{instruction.source.line}".encode()))
        if instruction.sharding is not None:
            node.attr["sharding"].CopyFrom(value(s=str(instruction.sharding).encode()))
        is_open = any(s.is_open for one in (instruction, *instruction.operands) for s in _shapes(one.shape))
        if not is_open and (flops := instruction_flops(instruction)):
            node.attr["flops"].CopyFrom(value(i=int(flops)))
        for name, content in instruction.attributes.items():
            if not isinstance(content, Computation) and not (
                isinstance(content, tuple) and content and isinstance(content[0], Computation)
            ):
                shown = str(content)
                shown = shown if len(shown) <= LONGEST else shown[: LONGEST - 3] + "..."
                node.attr[f"hlo.{name}"].CopyFrom(value(s=shown.encode()))


def _metadata(graph: _Graph, parts: Iterable) -> Any:
    """Seconds and bytes of the kernels, one after the other in the program's order."""
    proto = graph.proto
    devices: dict[str, list] = {}
    start = 0
    of = {id(part.instruction): part for part in parts}
    for instruction, name in graph.names.items():
        part = of.get(instruction)
        if part is None:
            continue
        micros = max(1, round(part.seconds * 1e6))
        stats = proto.step_stats_pb2.NodeExecStats(
            node_name=name,
            all_start_micros=start,
            op_start_rel_micros=0,
            op_end_rel_micros=micros,
            all_end_rel_micros=micros,
            timeline_label=f"{part.name}: {part.what}, {part.launches} launches",
        )
        memory = sum(shape.bytes for shape in _shapes(part.instruction.shape))
        stats.memory.add(allocator_name="buffers", total_bytes=memory, peak_bytes=memory)
        devices.setdefault(part.instruction.device or "cpu:0", []).append(stats)
        start += micros
    steps = [proto.step_stats_pb2.DeviceStepStats(device=d, node_stats=stats) for d, stats in devices.items()]
    return proto.config_pb2.RunMetadata(step_stats=proto.step_stats_pb2.StepStats(dev_stats=steps))


def _shapes(shape: Any) -> list[Shape]:
    """The arrays of a shape."""
    return [s for element in shape.elements for s in _shapes(element)] if isinstance(shape, TupleShape) else [shape]


def _plain(name: str) -> str:
    """A name of the characters that TensorBoard takes in names."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name).lstrip("_-.") or "op"
