"""The shared arrays of a tiled nest.

A load that jumps along the outputs' fast dimension is read along the other one into a shared array first: directly, the
32 lanes of a warp would touch 32 lines of memory for 128 bytes.
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.builder import assign, constant, element, minus, plus, times
from hloom.compiler.kernel_ir.nodes import Assign, Load, Stmt, Store, Var
from hloom.compiler.kernels.codegen.description import Nest, Tiles
from hloom.ir.records import record
from hloom.ir.types import DTYPES

SIDE = 32  # elements a side of a tile: a warp reads and writes whole rows of it
PITCH = SIDE + 1  # padded, so that a column of the tile lies in 32 different banks
SHARED_BYTES = 48 * 1024  # static shared memory that a block has on every GPU


@record(frozen=True)
class Stage:
    """A shared array. fill: the statement that reads an element of the tile into it."""

    name: str
    dtype: str
    fill: Stmt


def stages(nest: Nest, node: Tiles) -> tuple[list[Stage], list]:
    """The shared arrays of a tiled nest, as many as a block has room for, and its body reading from them.

    A load without room, or one whose index is computed in the body, stays where it is used.
    """
    names, row, column = node.body.names, node.across[0], node.along[0]
    known = {row, column, *(names.get(name) for name in nest.integers), *(variable for variable, _ in node.outer)}
    first_row, first_column = (names.declare(f"{variable.name}_first", "s64") for variable in (row, column))
    place = minus(plus(times(minus(row, first_row), constant(PITCH)), column), first_column)
    made: list[Stage] = []
    read: dict[Var, Load] = {}
    size = 0
    for value, dtype, load in node.staged:
        more = SIDE * PITCH * DTYPES[dtype].itemsize
        needed = {part for part in load.index.walk() if isinstance(part, Var)}
        if size + more > SHARED_BYTES or not needed <= known:
            continue
        size += more
        stage = Var(f"*{dtype}", f"stage{len(made)}")
        made.append(Stage(stage.name, dtype, Store(stage, place, load, dtype)))
        read[value] = element(stage, place)
    body = [
        assign(one.var, read[one.var]) if isinstance(one, Assign) and one.var in read else one for one in node.body.body
    ]
    return made, body
