"""Nests as Python text for the CPU: work items lo..hi, lanes as plain loops, collectives as nothing."""

from __future__ import annotations

from hloom.compiler.kernels.description import (
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
from hloom.compiler.kernels.source import KernelSource
from hloom.compiler.targets.cpu.together import rows_together


def render(nest: Nest) -> KernelSource:
    """The kernel text of a nest: pointers, integers, then lo and hi."""
    parameters = [name for name, _ in nest.pointers] + list(nest.integers) + ["lo", "hi"]
    types = [f"{dtype}*" for _, dtype in nest.pointers] + ["s64"] * (len(nest.integers) + 2)
    body = rows_together(nest) or block_lines(nest.root)
    lines = [f"def {nest.name}({', '.join(parameters)}):", *indent(body)]
    return KernelSource(nest.name, "\n".join(lines) + "\n", tuple(types))


def indent(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def block_lines(block: Block) -> list[str]:
    """The lines of a block, not indented."""
    lines: list[str] = []
    for node in block.body:
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


def _tiles(node: Tiles) -> list[str]:
    (row, rows), (column, columns) = node.across, node.along
    size = node.size
    place = f"({row} - {row}_first) * {size + 1} + {column} - {column}_first"  # one more a row: no power of two apart
    lines = [f"stage{k} = scratch_{dtype}({size * (size + 1)})" for k, (_, dtype, _) in enumerate(node.staged)]
    lines += [f"tiles = ({columns} + {size - 1}) // {size}", f"bands = ({rows} + {size - 1}) // {size}"]
    inner = _decode([*node.outer, ("band", "bands"), ("tile", "tiles")], "item")
    for variable, extent, number in ((row, rows, "band"), (column, columns, "tile")):
        inner.append(f"{variable}_first = {number} * {size}")
        inner.append(f"{variable}_last = min({variable}_first + {size}, {extent})")
    over_rows, over_columns = (f"for {v} in range({v}_first, {v}_last):" for v in (row, column))
    body = block_lines(node.body)
    for k, (name, _, text) in enumerate(node.staged):
        inner += [over_columns, *indent([over_rows, *indent([f"stage{k}[{place}] = {text}"])])]
        body[body.index(f"{name} = {text}")] = f"{name} = stage{k}[{place}]"
    inner += [over_rows, *indent([over_columns, *indent(body)])]
    return [*lines, "for item in range(lo, hi):", *indent(inner)]


_NODES = {
    Items: _items,
    Pieces: _pieces,
    Inner: lambda node: _loop(node.variable, "0", node.extent, node.body),
    Lanes: lambda node: _loop(node.variable, node.start, node.extent, node.body),
    Serial: lambda node: _loop(node.variable, node.start, node.stop, node.body),
    Branch: lambda node: [f"if {node.condition}:", *indent(block_lines(node.body))],
    Collective: lambda node: [],
    Tiles: _tiles,
}
