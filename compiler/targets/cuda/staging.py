"""Which loads of a tiled nest go through shared memory, found in the text of its statements.

A load is staged where its index jumps along the outputs' fast dimension and is contiguous across it: read directly, the
32 lanes of a warp would touch 32 lines of memory for 128 bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hloom.compiler.kernels.description import Nest, Tiles
from hloom.ir.types import DTYPES, compute_dtype

PADDING = 1  # elements added to a tile's row, so that a column of it lies in 32 different banks
SHARED_BYTES = 48 * 1024  # static shared memory of a block on every GPU

_LOAD = re.compile(r"^(\w+) = (?:(\w+)\[([^\]]*)\]|load_\w+\((\w+), ([^)]*)\))$")
_STORE = re.compile(r"^(?:(\w+)\[.*?\] = |store_\w+\((\w+), )")
_TERM = re.compile(r"^(\w+)(?: \* (\w+))?$")


@dataclass(frozen=True)
class Stage:
    """A load through shared memory: `name = load` with `tile` in between."""

    name: str
    load: str
    dtype: str
    tile: str
    statement: str


def store_target(statement: str) -> str:
    """The pointer that a statement stores to, or ''."""
    found = _STORE.match(statement)
    return (found[1] or found[2]) if found else ""


def coefficients(index: str, integers: dict[str, int]) -> dict[str, int] | None:
    """Index variable -> coefficient of the sum `i0 * in0_i0 + i1 + in0_o`; None where the text is no such sum."""
    result: dict[str, int] = {}
    for part in index.split(" + "):
        term = _TERM.match(part.strip())
        if term is None:
            return None
        name, factor = term[1], term[2]
        if factor is None and (name in integers or name.isdigit()):
            continue
        if factor is not None and factor not in integers:
            return None
        result[name] = result.get(name, 0) + (1 if factor is None else integers[factor])
    return result


def stage_loads(nest: Nest, node: Tiles) -> list[Stage]:
    """The loads of a tile's body to stage: not under a guard, with an index of the tile's own variables, and not of an
    array that the kernel also writes. As many as fit in shared memory; the others are read where they are used."""
    across, along = node.across[0], node.along[0]
    variables = {across, along, *(name for name, _ in node.outer)}
    dtypes = dict(nest.pointers)
    stages, size = [], 0
    for statement in node.body.body:
        found = _LOAD.match(statement) if isinstance(statement, str) else None
        if found is None:
            continue
        pointer, index = found[2] or found[4], found[3] or found[5]
        terms = coefficients(index, nest.integers)
        if pointer not in dtypes or pointer.startswith("io") or terms is None or not terms.keys() <= variables:
            continue
        if terms.get(along, 0) in (0, 1, -1) or terms.get(across, 0) not in (1, -1):
            continue
        dtype = dtypes[pointer]
        tile_bytes = node.size * (node.size + PADDING) * compute_dtype(DTYPES[dtype]).itemsize
        if size + tile_bytes > SHARED_BYTES:
            continue
        size += tile_bytes
        load = statement.split(" = ", 1)[1]
        stages.append(Stage(found[1], load, dtype, f"staged{len(stages)}", statement))
    return stages


def without_staged(body: list, stages: list[Stage]) -> list:
    """The body without the loads that are staged."""
    staged = {stage.statement for stage in stages}
    return [node for node in body if not (isinstance(node, str) and node in staged)]
