"""Annotations of GSPMD, jax's older partitioner (`jax_use_shardy_partitioner=False`), in the terms of Shardy.

GSPMD's shardings are tile assignments in text, without meshes (`mhlo.sharding`). A mesh is found whose axes can express
all of them. Shardings of arguments, of results and of single-device calls are rewritten permanently; hloom's reader
understands the rest unchanged, Shardy's propagation does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from hloom.errors import UnsupportedError
from hloom.ir.records import replace
from hloom.ir.spmd.outline import CONSTRAINT, ENTER, LEAVE
from hloom.ir.spmd.sharding import DeviceMesh, Sharding, on_device
from hloom.ir.spmd.shardy import mesh_text, sharding_text, shardings_text
from hloom.ir.spmd.tiles import Placed, TileProblem, TileReader

__all__ = ["Annotations"]

_CALLS = (CONSTRAINT, ENTER, LEAVE)
_SHARDY, _TILES = "sdy.sharding", "mhlo.sharding"
_SIDES = (("arg_attrs", "inputs"), ("res_attrs", "results"))
_GROUP = re.compile(r"shard_(?:as|like) ([0-9]{1,9})", re.ASCII)
_OPEN = re.compile(r"unspecified_dims=\[([0-9,\s]*)\]", re.ASCII)


class Annotations:
    """Those of a module for several devices. texts: the shardings that it has."""

    def __init__(self, texts: Sequence[str], devices: int):
        self._names: dict[DeviceMesh, str] = {}
        self.devices = devices
        try:
            self._reader = TileReader(texts, devices)
        except TileProblem as error:
            raise _unreadable(error) from None

    @staticmethod
    def of(module: ir.Module, devices: int) -> Annotations | None:
        """Those of a module; None for one with Shardy's, or without any."""
        texts: list[str] = []
        for op in _operations(module):
            if op.name == "sdy.mesh":
                return None
            texts += [_text(op, _TILES)]
            for side, _ in _SIDES:
                rows = map(ir.DictAttr, ir.ArrayAttr(op.attributes[side]) if side in op.attributes else ())
                texts += [_string(row[_TILES]) for row in rows if _TILES in row]
        texts = [text for text in texts if text]
        return Annotations(texts, devices) if texts else None

    def rewrite_signature(self, module: ir.Module) -> None:
        """Shardings of arguments, results and calls that one device makes, in Shardy's terms."""
        assert self._reader.mesh is not None
        self._named(Sharding(self._reader.mesh.atomic(), ()))
        for op in list(_operations(module)):
            for side, types in _SIDES:
                if side in op.attributes:
                    kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
                    op.attributes[side] = self._rows(op.attributes[side], getattr(kind, types))
            text = _text(op, _TILES)
            is_call = op.name == "stablehlo.custom_call" and _text(op, "call_target_name") not in _CALLS
            if is_call and "maximal" in text:
                del op.attributes[_TILES]
                self._place(op, text)
        self._define(module)

    def rewrite(self, module: ir.Module) -> None:
        """Annotations of operations in Shardy's terms too, for its propagation. That does not pass the calls by which a
        manual computation is entered and left."""
        for op in list(_operations(module)):
            text = _text(op, _TILES)
            if not text:
                continue
            del op.attributes[_TILES]
            with op.location, ir.InsertionPoint(op):
                if _text(op, "call_target_name") == CONSTRAINT:
                    self._constrain(op, text)
                elif _text(op, "call_target_name") != ENTER:
                    self._place(op, text)
        self._define(module)

    def stated(self, shardings: Sequence[Sharding]) -> list[Any]:
        """Shardings as Shardy's attributes."""
        return [self._attribute(sharding) for sharding in shardings]

    def _constrain(self, op: Any, text: str) -> None:
        """A constraint in place of a call that is one."""
        operand, group = op.operands[0], _GROUP.search(text)
        if group:  # arrays that shall have one layout
            sdy.ShardingGroupOp(operand, int(group[1]))
        found = self._sharding(text, _rank(operand.type))
        if found is not None:
            opened = _OPEN.search(_text(op, "backend_config"))
            dims = tuple(int(d) for d in opened[1].split(",") if d.strip()) if opened else ()
            operand = sdy.ShardingConstraintOp(operand, self._attribute(replace(found, open=dims))).result
        op.results[0].replace_all_uses_with(operand)
        op.erase()

    def _place(self, op: Any, text: str) -> None:
        """Shardings of an operation's results, if the text specifies one for each; that of a call without results
        specifies its device."""
        ranks = [_rank(result.type) for result in op.results] or [0]
        placed = self._placed(text, ranks[0] if len(ranks) == 1 else ranks)
        found = [_kept(one) for one in (placed if isinstance(placed, tuple) else (placed,))]
        kept = [self._named(one) for one in found if one is not None]
        if len(kept) == len(found) == len(ranks):
            listed = f"#sdy.sharding_per_value<{shardings_text(kept, self._names)}>"
            op.attributes[_SHARDY] = ir.Attribute.parse(listed)

    def _rows(self, rows: Any, types: Sequence[Any]) -> ir.ArrayAttr:
        """The attributes of arguments or results with Shardy's shardings."""
        made = []
        stated: list[Any] = [ir.DictAttr(row) for row in ir.ArrayAttr(rows)]
        for row, kind in zip(stated, types, strict=True):
            known = {pair.name: pair.attr for pair in row}
            text = _string(known.pop(_TILES)) if _TILES in known else ""
            found = self._sharding(text, _rank(kind)) if text else None
            if found is not None:
                known[_SHARDY] = self._attribute(found)
            made.append(ir.DictAttr.get(known))
        return ir.ArrayAttr.get(made)

    def _placed(self, text: str, rank: Any) -> Any:
        try:
            return self._reader.placed(text, rank)
        except TileProblem as error:
            raise _unreadable(error) from None

    def _sharding(self, text: str, rank: int) -> Sharding | None:
        return _kept(self._placed(text, rank))

    def _attribute(self, sharding: Sharding) -> Any:
        return ir.Attribute.parse(f"#sdy.sharding{sharding_text(self._named(sharding), self._names)}")

    def _named(self, sharding: Sharding) -> Sharding:
        """A sharding whose mesh has a name."""
        self._names.setdefault(sharding.mesh, f"mesh_{len(self._names)}" if self._names else "mesh")
        return sharding

    def _define(self, module: ir.Module) -> None:
        """Adds the meshes that a module does not define yet."""
        known = {_string(op.attributes["sym_name"]) for op in _operations(module) if "sym_name" in op.attributes}
        lines = [f"sdy.mesh @{name} = {mesh_text(mesh)}" for mesh, name in self._names.items() if name not in known]
        start = ir.InsertionPoint.at_block_begin(module.body)
        for op in ir.Module.parse("\n".join(lines)).body.operations:
            start.insert(op.operation.clone())


def _operations(module: ir.Module) -> Iterator[Any]:
    """All operations, a function before its body."""
    stack = [op.operation for op in reversed(list(module.body.operations))]
    while stack:
        op = stack.pop()
        yield op
        stack += [inner.operation for region in op.regions for block in region for inner in block][::-1]


def _string(attribute: Any) -> str:
    """The text of a string attribute; none of another kind, as old programs have."""
    return ir.StringAttr(attribute).value if isinstance(attribute, ir.StringAttr) else ""


def _text(op: Any, name: str) -> str:
    """The text of an attribute of an operation, if it has one."""
    return _string(op.attributes[name]) if name in op.attributes else ""


def _rank(kind: Any) -> int:
    return len(kind.shape) if isinstance(kind, ir.RankedTensorType) else 0


def _kept(placed: Placed | None) -> Sharding | None:
    """A sharding over axes of prime size; None inside a manual computation."""
    if placed is None or placed.manual:
        return None
    device = placed.sharding.device
    return placed.sharding.atomic() if device is None else on_device(device, 0)  # that has no dimensions in Shardy


def _unreadable(error: TileProblem) -> UnsupportedError:
    asked, found, repair = error.args
    return UnsupportedError(f"a sharding of jax's program: {asked}", found, repair, "")
