"""Nests as Python text for the CPU: work items lo..hi, lanes as plain loops, collectives as nothing."""

from __future__ import annotations

import re

from hloom.compiler.kernels.codegen.description import Nest, Serial, Tiles
from hloom.compiler.kernels.codegen.serial import SerialText, block_lines, decoded, indent
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.contractions.tile_shapes import ITEMSIZES
from hloom.compiler.targets.cpu.row_blocks import rows_together, steps_together

PAD = 8  # elements between the rows of a staged tile, which else would lie a power of two apart


def render(nest: Nest, vector_bytes: int = 0) -> KernelSource:
    """The kernel text of a nest: pointers, integers, then lo and hi.

    vector_bytes: of a vector register, in which squares of a tile are transposed; 0: element by element.
    """
    parameters = [name for name, _ in nest.pointers] + list(nest.integers) + ["lo", "hi"]
    types = [f"{dtype}*" for _, dtype in nest.pointers] + ["s64"] * (len(nest.integers) + 2)
    body = rows_together(nest) or _CpuText(vector_bytes).lines(nest.root)
    lines = [f"def {nest.name}({', '.join(parameters)}):", *indent(body)]
    return KernelSource(nest.name, "\n".join(lines) + "\n", tuple(types))


class _CpuText(SerialText):
    """Serial text with staged tiles and loops whose steps are unrolled and jammed."""

    def __init__(self, vector_bytes: int):
        self.vector_bytes = vector_bytes

    def write_tiles(self, node: Tiles) -> list[str]:
        return _tiles(node, self.vector_bytes)

    def write_serial(self, node: Serial) -> list[str]:
        return steps_together(node) or super().write_serial(node)


def _tiles(node: Tiles, vector_bytes: int) -> list[str]:
    (row, rows), (column, columns) = node.across, node.along
    tall, wide = node.sizes
    pitch = wide + PAD
    place = f"({row} - {row}_first) * {pitch} + {column} - {column}_first"
    lines = [f"stage{k} = scratch_{dtype}({tall * pitch})" for k, (_, dtype, _) in enumerate(node.staged)]
    lines += [f"tiles = ({columns} + {wide - 1}) // {wide}", f"bands = ({rows} + {tall - 1}) // {tall}"]
    inner = decoded([*node.outer, ("band", "bands"), ("tile", "tiles")], "item")
    for variable, extent, number, size in ((row, rows, "band", tall), (column, columns, "tile", wide)):
        inner.append(f"{variable}_first = {number} * {size}")
        inner.append(f"{variable}_last = min({variable}_first + {size}, {extent})")
    over_rows, over_columns = (f"for {v} in range({v}_first, {v}_last):" for v in (row, column))
    body = block_lines(node.body)
    for k, (name, dtype, text) in enumerate(node.staged):
        lanes = vector_bytes // ITEMSIZES.get(dtype, vector_bytes or 1)
        square = _square(text, row, column) if lanes > 1 else None
        first = f"{row}_first"
        if square:
            pointer, index, step = square
            size = ITEMSIZES[dtype]
            inner += [f"{v}_whole = {v}_last - ({v}_last - {v}_first) % {lanes}" for v in (row, column)]
            inner += [
                f"for {column} in range({column}_first, {column}_whole, {lanes}):",
                f"    for {row} in range({row}_first, {row}_whole, {lanes}):",
                f"        transpose_{dtype}_{lanes}x{lanes}(address({pointer}) + ({index}) * {size}, {step} * {size},",
                f"                            address(stage{k}) + ({place}) * {size}, {pitch * size})",
            ]
            first = f"{row}_rest"
        store = indent([f"for {row} in range({first}, {row}_last):", f"    stage{k}[{place}] = {text}"])
        if square:
            store = [f"    {first} = select({column} < {column}_whole, {row}_whole, {row}_first)", *store]
        inner += [over_columns, *store]
        body[body.index(f"{name} = {text}")] = f"{name} = stage{k}[{place}]"
    inner += [over_rows, *indent([over_columns, *indent(body)])]
    return [*lines, "for item in range(lo, hi):", *indent(inner)]


def _square(load: str, row: str, column: str) -> tuple[str, str, str] | None:
    """(pointer, index, elements from one column to the next) of a load whose rows follow each other in memory."""
    found = re.fullmatch(r"(\w+)\[(.*)\]", load)
    if found is None:
        return None
    terms = found[2].split(" + ")
    steps = [term.removeprefix(f"{column} * ") for term in terms if term.startswith(f"{column} * ")]
    return (found[1], found[2], steps[0]) if row in terms and steps else None
