"""Device annotations of a StableHLO program: counts, meshes, shardings of arguments, results and operations.

Shardings are Shardy's (`sdy.sharding`), over meshes that the program defines, or HLO's (`mhlo.sharding`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hloom.ir.errors import HloomError
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.spmd.checks import check_sharding
from hloom.ir.spmd.outline import CONSTRAINT, ENTER, LEAVE, outlined
from hloom.ir.spmd.sharding import DeviceMesh, Sharding, replicated
from hloom.ir.spmd.shardy import ShardyProblem, parse_mesh, parse_sharding, parse_shardings
from hloom.ir.spmd.tiles import Placed, TileProblem, TileReader
from hloom.ir.stablehlo.assembly.attributes import Dialect
from hloom.ir.stablehlo.reader.registry import Item
from hloom.ir.stablehlo.syntax import Operation, Program
from hloom.ir.stablehlo.values import number
from hloom.ir.types import TupleShape

SHARDY, TILES = "sdy.sharding", "mhlo.sharding"
CALLS = (CONSTRAINT, ENTER, LEAVE)


def _operations(operations: list[Operation]) -> Iterator[Operation]:
    for op in operations:
        yield op
        for region in op.regions:
            for block in region.blocks:
                yield from _operations(block.operations)


def body_text(value) -> str:
    """The angle-bracketed text of a dialect's attribute."""
    if not isinstance(value, Dialect):
        raise ValueError(f"expected an attribute of Shardy, found {value!r:.60}")
    return value.body if value.body[:1] == "<" else f"<{value.body}>"


class Placement:
    """Reads the annotations. wanted: False if the program is for one device."""

    def __init__(self, converter, program: Program, wanted: bool):
        self.converter = converter
        self.partitions = self._count(program, "mhlo.num_partitions")
        self.replicas = self._count(program, "mhlo.num_replicas")
        self.meshes: dict[str, DeviceMesh] = {}
        self.placed: dict[Instruction, Placed] = {}  # sharding custom calls
        self.configs: dict[Instruction, str] = {}
        self.tiles: TileReader | None = None
        self.wanted = wanted
        if not wanted:
            return
        for op in program.operations:
            if op.name == "sdy.mesh":
                self.meshes[op.attributes["sym_name"]] = self.understood(
                    op, parse_mesh, body_text(op.attributes["mesh"])
                )
        texts = list(self._tile_texts(program))
        if texts:
            meshes = [m for m in self.meshes.values() if m.size == self.partitions]
            named = meshes[0] if len(meshes) == 1 else None
            self.tiles = self.understood(program.operations[0], TileReader, texts, self.partitions, named)
            self.partitions = max(self.partitions, self.tiles.count)
        if "mhlo.num_partitions" not in program.attributes:
            self.partitions = max([self.partitions, *(m.size for m in self.meshes.values())])
        for op in program.operations:
            mesh = self.meshes.get(op.attributes.get("sym_name", "")) if op.name == "sdy.mesh" else None
            if mesh is not None and mesh.names and mesh.size not in (1, self.partitions):
                raise converter.fail(
                    op, f"the mesh has {mesh.size} devices", f"mhlo.num_partitions = {self.partitions}",
                    "make them the same",
                )  # fmt: skip
        self.wanted = self.partitions > 1

    @staticmethod
    def _count(program: Program, name: str) -> int:
        value = program.attributes.get(name)
        return max(1, int(number(value))) if value is not None else 1

    @staticmethod
    def _tile_texts(program: Program) -> Iterator[str]:
        for op in _operations(program.operations):
            for given in (op.attributes, *op.attributes.get("arg_attrs", ()), *op.attributes.get("res_attrs", ())):
                if _is_stated(given):
                    yield given[TILES]

    def understood(self, op: Operation, read, *given) -> Any:
        """Applies `read` to a text of an operation. Raises ParseError."""
        try:
            return read(*given)
        except (ShardyProblem, TileProblem) as error:
            raise self.converter.fail(op, *error.args) from None
        except ValueError as error:
            raise self.converter.fail(op, f"{op.name} specifies layouts of arrays", f"{error}") from None

    # --- annotations ---

    def shardy(self, op: Operation, value) -> Sharding:
        return self.understood(op, parse_sharding, body_text(value), self.meshes)

    def shardings(self, op: Operation, value) -> tuple[Sharding, ...]:
        """The shardings of `[<...>, <...>]`, as text or as an attribute."""
        text = value if isinstance(value, str) else body_text(value)
        return self.understood(op, parse_shardings, text, self.meshes)

    def stated(self, op: Operation, attributes: Mapping, shape) -> Sharding | tuple | None:
        """The sharding in the attributes of an argument or result, or None."""
        if not self.wanted:
            return None
        found: Any = None
        if SHARDY in attributes:
            found = self.shardy(op, attributes[SHARDY])
        elif _is_stated(attributes) and self.tiles is not None:
            placed = self.understood(op, self.tiles.placed, attributes[TILES], _rank(shape))
            found = _kept(placed)
        if isinstance(found, Sharding):
            found = for_token(found, shape)
        if found is not None:
            self._check(op, found, shape)
        return found

    def _check(self, op: Operation, sharding, shape) -> None:
        try:
            check_sharding(f"the sharding of {shape!r}", sharding, shape)
        except HloomError as error:
            raise self.converter.fail(op, error.asked, error.found, error.repair) from None

    def caller(self, op: Operation) -> dict[str, int]:
        """Attributes of a custom call for the only device that executes it, if specified."""
        given = op.attributes.get(SHARDY)
        if not self.wanted or given is None or not any(m.size == self.partitions for m in self.meshes.values()):
            return {}
        found = self.shardings(op, given)
        device = found[0].device if found else None
        return {} if device is None else {"device": device}

    def annotate(self, scope, op: Operation, items: list[Item], results: list[Item]) -> list[Item]:
        """The results of an operation with the shardings of its attributes."""
        given = op.attributes
        if not self.wanted or (SHARDY not in given and not _is_stated(given)):
            return results
        if not results or "device" in self.caller(op):
            return results
        if SHARDY in given:
            text = body_text(given[SHARDY])
            found = self.shardings(op, given[SHARDY]) if text[:2] == "<[" else (self.shardy(op, given[SHARDY]),)
        elif op.name == "stablehlo.custom_call" and given.get("call_target_name") in CALLS:
            return results
        else:
            shapes = [i.shape for i in results if i.instruction is not None]
            one = self.stated(op, given, shapes[0] if len(shapes) == 1 else TupleShape(shapes))
            found = one if isinstance(one, tuple) else (one,)
        if len(found) != len(results):
            raise self.converter.fail(
                op, f"a sharding for each of {len(results)} results", f"{len(found)}", "give one for each"
            )
        mine = {i.instruction for i in items}
        return [self._with(scope, op, r, s, r.instruction in mine) for r, s in zip(results, found, strict=True)]

    def _with(self, scope, op: Operation, item: Item, sharding, is_given: bool) -> Item:
        instruction = item.instruction
        if instruction is None or sharding is None:
            return item
        self._check(op, sharding, instruction.shape)
        if is_given or instruction.opcode == "parameter" or instruction.sharding not in (None, sharding):
            return Item(scope.emit("sharding-constraint", item, sharding=sharding).instruction, item.quantized)
        instruction.sharding = sharding
        return item

    # --- constraints and manual computations ---

    def constraint(self, scope, op: Operation, item: Item, value) -> Item:
        """An array with a Shardy sharding; the array itself if that is entirely open."""
        if not self.wanted:
            return item
        sharding = self.shardy(op, value)
        self._check(op, sharding, item.shape)
        if len(sharding.open) == sharding.rank and not (*sharding.axes, *sharding.unreduced):
            return item
        return Item(scope.emit("sharding-constraint", item, sharding=sharding).instruction, item.quantized)

    def custom_call(self, scope, op: Operation, items: list[Item]) -> list[Item]:
        """XLA's sharding custom calls, which `outlined` converts once all are read."""
        if not self.wanted or not _is_stated(op.attributes):
            return items
        shape = scope.result_shape(op)
        made = scope.emit("custom-call", *items, shape=shape, custom_call_target=op.attributes["call_target_name"])
        found = self.understood(op, self.tiles.placed, op.attributes[TILES], shape.rank) if self.tiles else None
        if isinstance(found, Placed):
            self.placed[made.instruction] = found
        config = op.attributes.get("backend_config", "")
        self.configs[made.instruction] = config if isinstance(config, str) else ""
        return [made]

    # --- the module ---

    def module(self, scope, function: Operation, outputs: list[Instruction]) -> tuple[list[Instruction], list]:
        """(the outputs of the entry, their shardings): one for each, or None."""
        stated = function.attributes.get("res_attrs", ())
        found = [self.stated(function, a, o.shape) for a, o in zip(stated, outputs, strict=False)]
        found += [None] * (len(outputs) - len(found))
        if len(outputs) == 1 and found[0] is not None:
            (output,) = outputs
            if output.opcode == "parameter" or output.sharding not in (None, found[0]):
                outputs = [scope.builder.emit("copy", output)]
            outputs[0].sharding = found[0]
        return outputs, found

    def finished(self, name: str, entry: Computation) -> Module:
        """The module of an entry computation."""
        if not self.wanted:
            return Module(name, entry)
        return outlined(Module(name, entry, None, self.replicas, self.partitions), self.placed, self.configs)


def for_token(sharding: Sharding, shape) -> Sharding:
    """The sharding of an array; that of a token, which has no dimensions, as one of the empty array that replaces
    it."""
    if sharding.rank == 0 and shape.rank and 0 in shape.dims:
        return replicated(sharding.mesh, shape.rank)
    return sharding


def _is_stated(attributes: Mapping) -> bool:
    """Whether attributes contain a sharding in HLO text. It may be empty; old programs contain bytes, which are
    ignored."""
    value = attributes.get(TILES)
    return isinstance(value, str) and value.lstrip()[:1] == "{"


def _rank(shape):
    return [_rank(s) for s in shape.elements] if isinstance(shape, TupleShape) else shape.rank


def _kept(found) -> Any:
    if isinstance(found, tuple):
        return tuple(_kept(f) for f in found)
    return None if found is None or found.manual else found.sharding
