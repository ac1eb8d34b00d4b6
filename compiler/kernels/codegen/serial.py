"""Blocks as sequential statements: loops as plain loops, lanes one after another, collectives as nothing."""

from __future__ import annotations

from hloom.compiler.kernels.codegen.description import Block, Branch, Collective, Inner, Items, Lanes, Pieces, Serial


def indent(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def decoded(dims: list[tuple[str, str]], item: str) -> list[str]:
    """Statements that split a flat work item into the indices of `dims`, (variable, size) each, the last fastest."""
    lines, rest = [], item
    for k, (variable, size) in enumerate(reversed(dims)):
        if k == len(dims) - 1:
            lines.append(f"{variable} = {rest}")
        else:
            above = f"rest{k}"
            lines += [f"{above} = {rest} // {size}", f"{variable} = {rest} - {above} * {size}"]
            rest = above
    return lines


class SerialText:
    """Writes the nodes of a block as statements. Targets with better text for a node override its method."""

    def lines(self, block: Block) -> list[str]:
        """The lines of a block, not indented."""
        lines: list[str] = []
        for node in block.body:
            lines += [node] if isinstance(node, str) else getattr(self, f"write_{type(node).__name__.lower()}")(node)
        return lines

    def write_items(self, node: Items) -> list[str]:
        if len(node.dims) == 1:
            return [f"for {node.dims[0][0]} in range(lo, hi):", *indent(self.lines(node.body))]
        return ["for item in range(lo, hi):", *indent(decoded(node.dims, "item") + self.lines(node.body))]

    def write_pieces(self, node: Pieces) -> list[str]:
        lines = []
        low, high = node.limits or ("", "")
        for k, (start, stop, block) in enumerate(zip(node.bounds, node.bounds[1:], node.blocks, strict=False)):
            if node.limits:
                start = f"max({low}, {start})" if k else low
                stop = f"min({high}, {stop})" if k < len(node.blocks) - 1 else high
            lines += self._loop(node.variable, start, stop, block)
        return lines

    def write_inner(self, node: Inner) -> list[str]:
        return self._loop(node.variable, "0", node.extent, node.body)

    def write_lanes(self, node: Lanes) -> list[str]:
        return self._loop(node.variable, node.start, node.extent, node.body)

    def write_serial(self, node: Serial) -> list[str]:
        return self._loop(node.variable, node.start, node.stop, node.body)

    def write_branch(self, node: Branch) -> list[str]:
        return [f"if {node.condition}:", *indent(self.lines(node.body))]

    def write_collective(self, node: Collective) -> list[str]:
        return []

    def _loop(self, variable: str, start: str, stop: str, body: Block) -> list[str]:
        bounds = stop if start == "0" else f"{start}, {stop}"
        return [f"for {variable} in range({bounds}):", *indent(self.lines(body))]


_SERIAL = SerialText()


def block_lines(block: Block) -> list[str]:
    """The lines of a block as sequential statements, not indented."""
    return _SERIAL.lines(block)
