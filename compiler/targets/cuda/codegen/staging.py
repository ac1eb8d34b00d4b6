"""The shared arrays of a tiled nest, and which statements store.

A load that jumps along the outputs' fast dimension is read along the other one into a shared array first: directly, the
32 lanes of a warp would touch 32 lines of memory for 128 bytes.
"""

from __future__ import annotations

import re

from hloom.compiler.kernels.codegen.description import Nest, Tiles
from hloom.ir.records import record
from hloom.ir.types import DTYPES

SIDE = 32  # elements a side of a tile: a warp reads and writes whole rows of it
PITCH = SIDE + 1  # padded, so that a column of the tile lies in 32 different banks
SHARED_BYTES = 48 * 1024  # static shared memory that a block has on every GPU

_STORE = re.compile(r"^(?:(\w+)\[.*?\] = |store_\w+\((\w+), )")
_NAME = re.compile(r"[A-Za-z_]\w*")


@record(frozen=True)
class Stage:
    """A shared array. place: where an element of the tile lies in it; load: the expression that fills it."""

    name: str
    dtype: str
    place: str
    load: str


def store_target(statement: str) -> str:
    """The pointer that a statement stores to, or ''."""
    found = _STORE.match(statement)
    return (found[1] or found[2]) if found else ""


def stages(nest: Nest, node: Tiles) -> tuple[list[Stage], list]:
    """The shared arrays of a tiled nest, as many as a block has room for, and its body reading from them.

    A load without room, or one whose index is computed in the body, stays where it is used.
    """
    row, column = node.across[0], node.along[0]
    known = {row, column, *nest.integers, *(name for name, _ in (*node.outer, *nest.pointers))}
    made: list[Stage] = []
    body, size = list(node.body.body), 0
    for value, dtype, load in node.staged:
        needed = set(_NAME.findall(load.partition("(")[2] if load.startswith("load_") else load))
        more = SIDE * PITCH * DTYPES[dtype].itemsize
        if size + more > SHARED_BYTES or not needed <= known:
            continue
        size += more
        name = f"stage{len(made)}"
        place = f"{name}[({row} - {row}_first) * {PITCH} + {column} - {column}_first]"
        made.append(Stage(name, dtype, place, load))
        body[body.index(f"{value} = {load}")] = f"{value} = {place}"
    return made, body
