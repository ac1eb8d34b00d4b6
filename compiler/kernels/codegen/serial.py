"""Blocks as sequential statements: loops as plain loops, lanes one after another, collectives as nothing."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.kernel_ir.builder import ONE, ZERO, assign, call, minus, operation, times
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Expr, For, If, Stmt, Var
from hloom.compiler.kernels.codegen.description import Block, Branch, Collective, Inner, Items, Lanes, Pieces, Serial


def decoded(dims: Sequence[tuple[Var, Expr]], item: Var, names: Names) -> list[Stmt]:
    """Statements that split a flat work item into the indices of `dims`, (variable, size) each, the last fastest."""
    made: list[Stmt] = []
    rest = item
    for k, (variable, size) in enumerate(reversed(dims)):
        if k == len(dims) - 1:
            made.append(assign(variable, rest))
        else:
            above = names.declare(f"rest{k}", "s64")
            made.append(assign(above, operation("//", rest, size)))
            made.append(assign(variable, minus(rest, times(above, size))))
            rest = above
    return made


class SerialNodes:
    """The nodes of a block as statements. Targets that have better ones for a node override its method."""

    def statements(self, block: Block) -> list[Stmt]:
        made: list[Stmt] = []
        for node in block.body:
            if isinstance(node, Stmt):
                made.append(node)
            else:
                made += getattr(self, f"write_{type(node).__name__.lower()}")(node)
        return made

    def write_items(self, node: Items) -> list[Stmt]:
        names = node.body.names
        lo, hi = names.declare("lo", "s64"), names.declare("hi", "s64")
        if len(node.dims) == 1:
            return [For(node.dims[0][0], lo, hi, ONE, self.statements(node.body))]
        item = names.declare("item", "s64")
        return [For(item, lo, hi, ONE, decoded(node.dims, item, names) + self.statements(node.body))]

    def write_pieces(self, node: Pieces) -> list[Stmt]:
        made: list[Stmt] = []
        for k, (start, stop, block) in enumerate(zip(node.bounds, node.bounds[1:], node.blocks, strict=False)):
            if node.limits:
                low, high = node.limits
                start = call("max", (low, start), by_name) if k else low
                stop = call("min", (high, stop), by_name) if k < len(node.blocks) - 1 else high
            made += self._loop(node.variable, start, stop, block)
        return made

    def write_inner(self, node: Inner) -> list[Stmt]:
        return self._loop(node.variable, ZERO, node.extent, node.body)

    def write_lanes(self, node: Lanes) -> list[Stmt]:
        return self._loop(node.variable, node.start, node.extent, node.body)

    def write_serial(self, node: Serial) -> list[Stmt]:
        return self._loop(node.variable, node.start, node.stop, node.body)

    def write_branch(self, node: Branch) -> list[Stmt]:
        return [If(node.condition, self.statements(node.body))]

    def write_collective(self, node: Collective) -> list[Stmt]:
        return []

    def _loop(self, variable: Var, start: Expr, stop: Expr, body: Block) -> list[Stmt]:
        return [For(variable, start, stop, ONE, self.statements(body))]


_SERIAL = SerialNodes()


def block_statements(block: Block) -> list[Stmt]:
    """A block as sequential statements."""
    return _SERIAL.statements(block)
