"""Device annotations of HLO text: the counts and the mesh of a module, the shardings of instructions.

HLO's shardings have no axes. hloom's text has the mesh in the frontend attributes of the module, so that axes
round-trip; without it the axes are a0, a1, ...
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hloom.ir.module import Instruction, Module
from hloom.ir.spmd.outline import outlined
from hloom.ir.spmd.sharding import DeviceMesh
from hloom.ir.spmd.shardy import ShardyProblem, all_shardings, parse_mesh
from hloom.ir.spmd.tiles import Placed, TileProblem, TileReader, parse_tiles
from hloom.ir.text.lexer import Cursor
from hloom.ir.types import TupleShape

MESH = "hloom.mesh"  # the frontend attribute of a module that names the axes of its shardings
_SHARDY = re.compile(r"#sdy\.mesh(<\[.*?\].*?>)")


def named_mesh(module: Module) -> DeviceMesh | None:
    """The mesh in a module's text: that of its shardings, or the one of which all others are atoms."""
    meshes = dict.fromkeys(s.mesh for i in module.instructions() for s in all_shardings(i.sharding) if s.device is None)
    for mesh in meshes:
        if all(other in (mesh, mesh.atomic()) for other in meshes):
            return mesh
    return None


class Placement:
    """Collects annotations during parsing; shardings are interpreted once all are known."""

    def __init__(self) -> None:
        self.counts = {"replica_count": 1, "num_partitions": 1}
        self.mesh: DeviceMesh | None = None
        self.texts: dict[Instruction, tuple[str, int]] = {}  # and token positions
        self.configs: dict[Instruction, str] = {}  # backend configs of custom calls

    def read_mesh(self, cursor: Cursor) -> None:
        """Reads the frontend attributes of the module."""
        start = cursor.at
        cursor.skip_value()
        tokens = cursor.tokens[start : cursor.at]
        for k, token in enumerate(tokens[:-2]):
            if token in (MESH, "xla.sdy.meshes") and tokens[k + 1] == "=":
                inner = Cursor(tokens[k + 2], "<mesh>").string() if tokens[k + 2][:1] == '"' else ""
                found = _SHARDY.findall(inner) if token != MESH else [inner]
                try:
                    meshes = [parse_mesh(text) for text in found]
                except ShardyProblem as error:
                    problem, seen, repair = error.args
                    raise cursor.fail(problem, seen, repair, at=start + k + 2) from None
                self.mesh = meshes[0] if len(meshes) == 1 else self.mesh

    def note(self, cursor: Cursor, instruction: Instruction) -> None:
        """Reads the sharding of an instruction."""
        start = cursor.at
        cursor.skip_value()
        text = " ".join(cursor.tokens[start : cursor.at])
        self._understood(cursor, start, parse_tiles, text)
        self.texts[instruction] = text, start

    @staticmethod
    def _understood(cursor: Cursor, at: int, read: Callable, *given):
        try:
            return read(*given)
        except TileProblem as error:
            problem, seen, repair = error.args
            raise cursor.fail(problem, seen, repair, at=at) from None

    def applied(self, module: Module, cursor: Cursor) -> Module:
        """The module with its counts and shardings; manual regions between XLA's custom calls become computations of
        their own."""
        module.replicas, module.partitions = self.counts["replica_count"], self.counts["num_partitions"]
        if self.mesh is not None and self.mesh.size != module.partitions:
            raise cursor.fail(
                f"the mesh of the module has {self.mesh.size} devices", f"num_partitions={module.partitions}",
                "make them the same", at=0,
            )  # fmt: skip
        placed: dict[Instruction, Placed] = {}
        reader = TileReader([text for text, _ in self.texts.values()], module.partitions, self.mesh)
        for instruction, (text, at) in self.texts.items():
            found = self._understood(cursor, at, reader.placed, text, _rank(instruction.shape))
            if reader.count > 1 and found is not None:
                instruction.sharding = _kept(found)
                if isinstance(found, Placed):
                    placed[instruction] = found
        module.partitions = max(module.partitions, reader.count)
        return outlined(module, placed, self.configs)


def _rank(shape):
    return [_rank(s) for s in shape.elements] if isinstance(shape, TupleShape) else shape.rank


def _kept(found):
    """The remaining sharding of an instruction; None if all axes are manual."""
    if isinstance(found, tuple):
        return tuple(_kept(f) for f in found)
    return None if found is None or found.manual else found.sharding
