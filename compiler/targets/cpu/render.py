"""Nests as Python text for the CPU: work items lo..hi, lanes as plain loops, collectives as nothing."""

from __future__ import annotations

import re

from hloom.compiler.kernels.codegen.description import (
    Block,
    Branch,
    Collective,
    Inner,
    Items,
    Lanes,
    Nest,
    Pieces,
    Serial,
    Tiles,
)
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
    body = rows_together(nest) or block_lines(nest.root, vector_bytes)
    lines = [f"def {nest.name}({', '.join(parameters)}):", *indent(body)]
    return KernelSource(nest.name, "\n".join(lines) + "\n", tuple(types))


def indent(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def block_lines(block: Block, vector_bytes: int = 0) -> list[str]:
    """The lines of a block, not indented."""
    lines: list[str] = []
    for node in block.body:
        if isinstance(node, Tiles):  # always the outermost
            lines += _tiles(node, vector_bytes)
        else:
            lines += [node] if isinstance(node, str) else _NODES[type(node)](node)
    return lines


def _decode(dims: list[tuple[str, str]], item: str) -> list[str]:
    """Statements that take the flat work item apart, the last dimension fastest."""
    lines, rest = [], item
    for k, (variable, extent) in enumerate(reversed(dims)):
        if k == len(dims) - 1:
            lines.append(f"{variable} = {rest}")
        else:
            above = f"rest{k}"
            lines += [f"{above} = {rest} // {extent}", f"{variable} = {rest} - {above} * {extent}"]
            rest = above
    return lines


def _items(node: Items) -> list[str]:
    if len(node.dims) == 1:
        return [f"for {node.dims[0][0]} in range(lo, hi):", *indent(block_lines(node.body))]
    return ["for item in range(lo, hi):", *indent(_decode(node.dims, "item") + block_lines(node.body))]


def _loop(variable: str, start: str, stop: str, body: Block) -> list[str]:
    bounds = stop if start == "0" else f"{start}, {stop}"
    return [f"for {variable} in range({bounds}):", *indent(block_lines(body))]


def _pieces(node: Pieces) -> list[str]:
    lines = []
    low, high = node.limits or ("", "")
    for k, (start, stop, block) in enumerate(zip(node.bounds, node.bounds[1:], node.blocks, strict=False)):
        if node.limits:
            start = f"max({low}, {start})" if k else low
            stop = f"min({high}, {stop})" if k < len(node.blocks) - 1 else high
        lines += _loop(node.variable, start, stop, block)
    return lines


def _tiles(node: Tiles, vector_bytes: int) -> list[str]:
    (row, rows), (column, columns) = node.across, node.along
    tall, wide = node.sizes
    pitch = wide + PAD
    place = f"({row} - {row}_first) * {pitch} + {column} - {column}_first"
    lines = [f"stage{k} = scratch_{dtype}({tall * pitch})" for k, (_, dtype, _) in enumerate(node.staged)]
    lines += [f"tiles = ({columns} + {wide - 1}) // {wide}", f"bands = ({rows} + {tall - 1}) // {tall}"]
    inner = _decode([*node.outer, ("band", "bands"), ("tile", "tiles")], "item")
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


_NODES = {
    Items: _items,
    Pieces: _pieces,
    Inner: lambda node: _loop(node.variable, "0", node.extent, node.body),
    Lanes: lambda node: _loop(node.variable, node.start, node.extent, node.body),
    Serial: lambda node: steps_together(node) or _loop(node.variable, node.start, node.stop, node.body),
    Branch: lambda node: [f"if {node.condition}:", *indent(block_lines(node.body))],
    Collective: lambda node: [],
}
