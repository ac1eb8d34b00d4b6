"""Partitioning defined by jax programs: `jax.experimental.custom_partitioning`, whose functions define the computation
of each device, and callbacks with `partitioned=True`, which are called with the parts.

Both are custom calls in jax's program. Before it is partitioned, each becomes a call with a `PartitionRule`, which is
queried once the layouts are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax._src import custom_partitioning as jax_rules
from jax._src.lib import xla_client
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from hloom.bridges.pjrt.callbacks import calls_python, takes_parts
from hloom.bridges.pjrt.decoding import decoded
from hloom.bridges.pjrt.names import Named, rename
from hloom.bridges.pjrt.spmd.layouts import hlo_sharding
from hloom.compiler.passes.spmd.propagate import propagate
from hloom.errors import ReplicationWarning, UnsupportedError
from hloom.ir.build import Builder, tuple_elements
from hloom.ir.module import Computation, Instruction, Module, map_module
from hloom.ir.ops.programs.structure import HostFunction
from hloom.ir.spmd.factors import FactorRule, RuleBuilder, result_shapes
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.spmd.tiles import TileReader
from hloom.ir.stablehlo import parse_program, to_module
from hloom.ir.types import Shape, TupleShape

__all__ = ["inferred", "lowering", "with_rules"]

# --- jax's rules --------------------------------------------------------------------------------------------------


class _Functions:
    """The functions of one call. info: jax's record of them, by whose key it finds them. factors: the sharding rule."""

    def __init__(self, key: str, factors: FactorRule | None):
        self.key = key.encode()
        self.info = jax_rules._sharding_callbacks[self.key]  # which jax does not hold
        self.factors = factors

    def partition(self, operands: list, given: list, result: Any, found: Any) -> tuple[bytes, list, Any]:
        """(the program of each device, the layouts of its operands and of its result)."""
        return jax_rules._custom_partitioning_partition(operands, given, result, found, self.key)

    def infer(self, operands: list, given: list, result: Any) -> Any:
        """The layout of the result for those of the operands."""
        return jax_rules._custom_partitioning_infer_sharding_from_operands(operands, given, result, self.key)

    def propagate_user(self, found: Any, result: Any) -> Any:
        """The layout of the result for the one that its readers want."""
        return jax_rules._custom_partitioning_propagate_user_sharding(found, result, self.key)


_functions: Named[_Functions] = Named("jax.partition")


def lowering(context, *values, **parameters):
    """jax's rule, whose call names the functions by a number in place of an address."""
    made = jax_rules._custom_partitioning_lowering_rule(context, *values, **parameters)
    written = list(ir.InsertionPoint.current.block.operations)
    call = written[-1].operation if written else None
    if call is not None and _text(call, "call_target_name") == jax_rules._CUSTOM_PARTITIONING_CALL_NAME:
        functions = _Functions(_text(call, "backend_config"), _factors(call))
        context.module_context.add_keepalive(functions)
        context.module_context.add_host_callback(functions.partition)  # such programs cannot be stored
        rename(call, _functions.add(functions))
    return made


def _text(op: Any, name: str) -> str:
    return ir.StringAttr(op.attributes[name]).value if name in op.attributes else ""


def _factors(call: Any) -> FactorRule | None:
    """The sharding rule of a call in Shardy's terms."""
    if "sdy.sharding_rule" not in call.attributes:
        return None
    rule = sdy.OpShardingRuleAttr(call.attributes["sdy.sharding_rule"])

    def dims(mappings: Any) -> tuple:
        arrays = map(sdy.TensorMappingAttr, mappings)
        return tuple(tuple(tuple(sdy.DimMappingAttr(d).factor_indices) for d in a.dim_mappings) for a in arrays)

    return FactorRule(
        dims(rule.operand_mappings), dims(rule.result_mappings), tuple(rule.factor_sizes),
        reduction=frozenset(rule.reduction_factors), whole=frozenset(rule.need_replication_factors),
        windows=frozenset(rule.permutation_factors),
    )  # fmt: skip


# --- in hloom's program -------------------------------------------------------------------------------------------


class _Target(HostFunction):
    """The target of a custom call while layouts are found. rule: its factors; None if its arrays have nothing to do
    with each other."""

    rule: FactorRule | None

    def factors(self, instruction: Instruction) -> FactorRule:
        if self.rule is not None:
            return self.rule
        made = RuleBuilder(instruction)
        for k, dims in enumerate(made.operand_dims):
            for d in range(len(dims)):
                made.add({k: d})
        for k, dims in enumerate(made.result_dims):
            for d in range(len(dims)):
                made.add({}, {k: d})
        return made.finish()


def with_rules(module: Module) -> Module:
    """The module with a call that has a rule in place of each custom call that has one. Raises UnsupportedError if
    its functions are not of this process."""
    named: dict[Instruction, _Functions] = {}

    def change(instruction: Instruction) -> Instruction:
        target = instruction.attributes.get("custom_call_target") or ""
        if not _functions.is_name(target):
            return _called(instruction, None, _Parts(instruction)) if _is_by_parts(instruction, target) else instruction
        functions = _functions.get(target)
        if functions is None:
            raise UnsupportedError(
                "jax.experimental.custom_partitioning", "functions that are not in this process any more",
                "trace the program again: programs with such functions cannot be stored", "",
            )  # fmt: skip
        made = _called(instruction, functions.factors, _Computed(instruction, functions))
        named[made] = functions
        return made

    made = map_module(module, change)
    for computation in made.computations():
        for call in computation.instructions:
            if call in named and _is_asked(named[call]):
                _infer(made, call, named[call])
    return made


def _is_by_parts(instruction: Instruction, target: str) -> bool:
    """Whether it calls a Python function with the parts of arrays. One without arguments is called by each device."""
    return takes_parts(target) and bool(instruction.operands)


def _called(instruction: Instruction, factors: FactorRule | None, rule: _Rule) -> Instruction:
    target = _Target(instruction["custom_call_target"])
    target.rule = factors
    builder = Builder(str(target))
    builder.source = instruction.source
    inner = instruction.with_operands(tuple(builder.parameter(o.shape) for o in instruction.operands))
    inner.attributes = {**instruction.attributes, "custom_call_target": target}
    callee = builder.finish(builder.add(inner))
    attributes = {"to_apply": callee, "partition": rule}
    made = Instruction(
        "call", instruction.operands, instruction.shape, attributes, instruction.hint, instruction.source,
        instruction.made_by,
    )  # fmt: skip
    made.sharding = instruction.sharding
    return made


class _Rule:
    """The work of each device for a custom call, on its parts of the operands (`PartitionRule`)."""

    def __init__(self, instruction: Instruction):
        self.instruction = instruction
        self.operands = [o.shape for o in instruction.operands]

    def on_parts(self, inner: Computation, given: list[Sharding], found: list[Sharding]) -> Computation:
        """The computation of whole arrays in which each device runs `inner` on its parts of these layouts. Dimensions
        that are not divided are padded, as jax's functions expect."""
        builder = Builder(inner.name)
        builder.source = self.instruction.source
        given, found = _over_one_mesh([*given, *found], len(given))
        values = [
            _padded(builder, builder.parameter(shape), sharding)
            for shape, sharding in zip(self.operands, given, strict=True)
        ]
        made = builder.emit(
            "manual-computation", *values, to_apply=inner, in_shardings=tuple(given), out_shardings=tuple(found),
            manual_axes=(*given, *found)[0].mesh.names,
        )  # fmt: skip
        several = isinstance(made.shape, TupleShape)
        elements = tuple_elements(builder, made) if several else [made]
        wanted = result_shapes(self.instruction.shape)
        cut = [_cut(builder, element, shape) for element, shape in zip(elements, wanted, strict=True)]
        return builder.finish(builder.tuple(cut) if several else cut[0])


def _over_one_mesh(shardings: list[Sharding], count: int) -> tuple[list[Sharding], list[Sharding]]:
    """The first `count` shardings and the others, over axes of prime size of one mesh."""
    finer = [s.atomic() for s in shardings]
    if len({s.mesh for s in finer}) > 1:
        raise UnsupportedError(
            "layouts of a function of jax.experimental.custom_partitioning", "layouts over different meshes",
            "let partition return layouts over the axes of the program's mesh", "",
        )  # fmt: skip
    return finer[:count], finer[count:]


def _padded(builder: Builder, value: Instruction, sharding: Sharding) -> Instruction:
    more = [sharding.count(d) * part - size for d, (part, size) in _parts(value.shape, sharding)]
    if not any(more):
        return value
    zero = builder.splat(0, Shape(value.dtype))
    return builder.emit("pad", value, zero, padding=tuple((0, high, 0) for high in more))


def _parts(shape: Shape, sharding: Sharding) -> Any:
    return enumerate(zip(sharding.local_dims(shape.dims), shape.dims, strict=True))


def _cut(builder: Builder, value: Instruction, shape: Shape) -> Instruction:
    if value.dims == shape.dims:
        return value
    return builder.emit("slice", value, slice=tuple((0, size, 1) for size in shape.dims))


class _Parts(_Rule):
    """A Python function that each device calls with its parts."""

    def partitioned(self, operands: list[Sharding], results: list[Sharding], devices: tuple[str, ...]) -> Computation:
        given = [Sharding(s.mesh, s.dims) for s in operands]
        inner = Builder(self.instruction["custom_call_target"])
        inner.source = self.instruction.source
        parts = [
            inner.parameter(shape.with_dims(sharding.local_dims(shape.dims)))
            for shape, sharding in zip(self.operands, given, strict=True)
        ]
        made = inner.add(self.instruction.with_operands(tuple(parts)))
        return self.on_parts(inner.finish(made), given, [])


class _Computed(_Rule):
    """A function whose `partition` defines the computation of each device."""

    def __init__(self, instruction: Instruction, functions: _Functions):
        super().__init__(instruction)
        self.functions = functions

    def partitioned(self, operands: list[Sharding], results: list[Sharding], devices: tuple[str, ...]) -> Computation:
        count = len(devices)
        arguments, result = _xla_shapes(self.instruction)
        given = [hlo_sharding(s, count) for s in operands]
        found = _packed(result, [hlo_sharding(s, count) for s in results])
        code, given, found = self.functions.partition(arguments, given, result, found)
        text = decoded(code)
        if calls_python(text):  # jax does not keep the functions that the device's program names
            raise UnsupportedError(
                "the device's part of a function of jax.experimental.custom_partitioning", "it calls Python",
                "call Python outside of it, or in a shard_map", "",
            )  # fmt: skip
        inner = to_module(parse_program(text, "jax"), shardings=False).entry
        mesh = (*operands, *results)[0].mesh
        ranks = [s.rank for s in self.operands], [s.rank for s in result_shapes(self.instruction.shape)]
        layouts = _layouts(mesh, count, [*given, *_elements(result, found)], [*ranks[0], *ranks[1]])
        return self.on_parts(inner, layouts[: len(given)], layouts[len(given) :])


def _xla_shapes(instruction: Instruction) -> tuple[list, Any]:
    """XLA's shapes of the operands, and of the result."""

    def one(shape: Shape) -> Any:
        return xla_client.Shape.array_shape(shape.dtype, shape.dims)

    made = [one(s) for s in result_shapes(instruction.shape)]
    several = isinstance(instruction.shape, TupleShape)
    return [one(o.shape) for o in instruction.operands], xla_client.Shape.tuple_shape(made) if several else made[0]


def _packed(shape: Any, shardings: list) -> Any:
    return xla_client.HloSharding.tuple_sharding(shape, shardings) if shape.is_tuple() else shardings[0]


def _elements(shape: Any, sharding: Any) -> list:
    return sharding.tuple_elements() if shape.is_tuple() else [sharding]


def _layouts(mesh: DeviceMesh, count: int, shardings: Sequence[Any], ranks: Sequence[int]) -> list[Sharding]:
    """XLA's shardings in hloom's terms, over a mesh if its axes can express them."""
    texts = [str(s) for s in shardings]
    reader = TileReader(texts, count, mesh)
    placed: list[Any] = [reader.placed(text, rank) for text, rank in zip(texts, ranks, strict=True)]
    return [p.sharding for p in placed]


# --- the older partitioner ----------------------------------------------------------------------------------------


def _is_asked(functions: _Functions) -> bool:
    """Whether functions instead of a sharding rule determine the result's layout
    (`jax_use_shardy_partitioner=False`)."""
    info = functions.info
    return info.infer_sharding_from_operands is not None or info.propagate_user_sharding is not None


def inferred(text: str, devices: int) -> tuple[list, list] | None:
    """The layouts of a program's arguments and results as found by hloom's propagation, if such functions take part."""
    if not any(functions is not None and _is_asked(functions) for functions in _functions.named_in(text)):
        return None
    module = to_module(parse_program(text, "jax"), shardings=True)
    module.partitions = devices
    with ReplicationWarning.silenced():  # compilation warns
        entry = propagate(with_rules(module)).entry
    several = isinstance(entry.root.shape, TupleShape)
    return [p.sharding for p in entry.parameters], list(entry.root.sharding) if several else [entry.root.sharding]


def _infer(module: Module, call: Instruction, functions: _Functions) -> None:
    """Queries a call's functions for the layout of its result, and annotates it: `infer_sharding_from_operands`, or
    `propagate_user_sharding` if there is no such function and readers require the result to be split."""
    if call.sharding is not None:
        return
    with ReplicationWarning.silenced():  # compilation warns
        laid_out = propagate(module)
    new = _same_place(module.entry, laid_out.entry, call)
    if new is None:
        return
    count = module.partitions
    arguments, result = _xla_shapes(call)
    found = new.sharding if isinstance(new.shape, TupleShape) else (new.sharding,)
    given = [o.sharding for o in new.operands]
    info = functions.info
    if info.infer_sharding_from_operands is not None:
        made = functions.infer(arguments, [hlo_sharding(s, count) for s in given], result)
    elif info.propagate_user_sharding is not None and any(not s.is_replicated for s in found):
        made = functions.propagate_user(_packed(result, [hlo_sharding(s, count) for s in found]), result)
    else:
        return
    mesh = (*given, *found)[0].mesh
    stated = _layouts(mesh, count, _elements(result, made), [s.rank for s in result_shapes(call.shape)])
    call.sharding = tuple(stated) if isinstance(call.shape, TupleShape) else stated[0]


def _same_place(before: Computation, after: Computation, wanted: Instruction) -> Instruction | None:
    """The instruction of the propagated program in the place of one of the program."""
    for old, new in zip(before.instructions, after.instructions, strict=True):
        if old is wanted:
            return new
        for one, other in zip(old.called(), new.called(), strict=True):
            if (inner := _same_place(one, other, wanted)) is not None:
                return inner
    return None
