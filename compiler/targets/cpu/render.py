"""Nests as kernels for the CPU: work items lo..hi, lanes as plain loops, collectives as nothing."""

from __future__ import annotations

from hloom.compiler.kernel_ir.builder import (
    ONE,
    assign,
    call,
    compared,
    constant,
    do,
    element,
    least,
    minus,
    operation,
    plus,
    store,
    terms_of,
    times,
)
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.nodes import Assign, Binary, Expr, For, Kernel, Load, Scratch, Stmt, Var
from hloom.compiler.kernel_ir.rewrite import mapped
from hloom.compiler.kernels.codegen.description import Nest, Serial, Tiles
from hloom.compiler.kernels.codegen.serial import SerialNodes, block_statements, decoded
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.contractions.tile_shapes import ITEMSIZES
from hloom.compiler.targets.cpu.row_blocks import rows_together, steps_together

PAD = 8  # elements between the rows of a staged tile, which else would lie a power of two apart


def render(nest: Nest, vector_bytes: int = 0) -> KernelSource:
    """The kernel of a nest: pointers, integers, then lo and hi.

    vector_bytes: of a vector register, in which squares of a tile are transposed; 0: element by element.
    """
    names = nest.root.names
    params = [names.declare(name, f"*{dtype}") for name, dtype in nest.pointers]
    params += [names.declare(name, "s64") for name in (*nest.integers, "lo", "hi")]
    body = rows_together(nest) or _CpuNodes(vector_bytes).statements(nest.root)
    return KernelSource.of(Kernel(nest.name, tuple(params), body))


class _CpuNodes(SerialNodes):
    """Serial statements with staged tiles and loops whose steps are unrolled and jammed."""

    def __init__(self, vector_bytes: int):
        self.vector_bytes = vector_bytes

    def write_tiles(self, node: Tiles) -> list[Stmt]:
        return _Tiles(node, self.vector_bytes).statements()

    def write_serial(self, node: Serial) -> list[Stmt]:
        return steps_together(node) or super().write_serial(node)


class _Tiles:
    """A tiled nest whose staged inputs are read in the order of memory first."""

    def __init__(self, node: Tiles, vector_bytes: int):
        self.node, self.vector_bytes, self.names = node, vector_bytes, node.body.names
        (self.row, self.rows), (self.column, self.columns) = node.across, node.along
        tall, wide = node.sizes
        self.pitch = wide + PAD
        self.stages = [self.names.declare(f"stage{k}", f"*{dtype}") for k, (_, dtype, _) in enumerate(node.staged)]
        lines = times(minus(self.row, self._of(self.row, "first")), constant(self.pitch))
        self.place = minus(plus(lines, self.column), self._of(self.column, "first"))

    def _integer(self, name: str) -> Var:
        return self.names.declare(name, "s64")

    def _of(self, variable: Var, what: str) -> Var:
        """An index that belongs to a dimension: its `first` in the tile, its `last`."""
        return self._integer(f"{variable.name}_{what}")

    def statements(self) -> list[Stmt]:
        node, row, column = self.node, self.row, self.column
        tall, wide = node.sizes
        made: list[Stmt] = [Scratch(stage, tall * self.pitch) for stage in self.stages]
        tiles, bands, band, tile = map(self._integer, ("tiles", "bands", "band", "tile"))
        for count, extent, size in ((tiles, self.columns, wide), (bands, self.rows, tall)):
            made.append(assign(count, operation("//", plus(extent, constant(size - 1)), constant(size))))
        item = self._integer("item")
        inner = decoded([*node.outer, (band, bands), (tile, tiles)], item, self.names)
        for variable, extent, number, size in ((row, self.rows, band, tall), (column, self.columns, tile, wide)):
            first = self._of(variable, "first")
            inner.append(assign(first, times(number, constant(size))))
            inner.append(assign(self._of(variable, "last"), least(plus(first, constant(size)), extent)))
        for stage, (_, dtype, read) in zip(self.stages, node.staged, strict=True):
            inner += self._filled(stage, dtype, read)
        body = self._over(row, self._of(row, "first"), self._over(column, self._of(column, "first"), self._body()))
        lo, hi = map(self._integer, ("lo", "hi"))
        return [*made, For(item, lo, hi, ONE, [*inner, *body])]

    def _over(self, variable: Var, first: Expr, body: list[Stmt]) -> list[Stmt]:
        """A loop over a dimension of the tile."""
        return [For(variable, first, self._of(variable, "last"), ONE, body)]

    def _body(self) -> list[Stmt]:
        """The body of the nest, which reads what is staged where it lies then."""
        staged = {var: stage for (var, _, _), stage in zip(self.node.staged, self.stages, strict=True)}

        def read(statement: Stmt) -> Stmt | None:
            if isinstance(statement, Assign) and statement.var in staged:
                return Assign(statement.var, element(staged[statement.var], self.place))
            return None

        return mapped(block_statements(self.node.body), read)

    def _filled(self, stage: Var, dtype: str, read: Load) -> list[Stmt]:
        """The statements that fill a stage: squares in vector registers, and what is left one by one."""
        row, column = self.row, self.column
        lanes = self.vector_bytes // ITEMSIZES.get(dtype, self.vector_bytes or 1)
        step = _step_of_columns(read, row, column) if lanes > 1 else None
        fill = store(stage, self.place, read)
        row_first, column_first = self._of(row, "first"), self._of(column, "first")
        if step is None:
            return self._over(column, column_first, self._over(row, row_first, [fill]))
        size, width = constant(ITEMSIZES[dtype]), constant(lanes)
        made: list[Stmt] = []
        for variable in (row, column):
            first, last = self._of(variable, "first"), self._of(variable, "last")
            left = operation("%", minus(last, first), width)
            made.append(assign(self._of(variable, "whole"), minus(last, left)))
        arguments = (
            plus(_address(read.pointer), times(read.index, size)),
            times(step, size),
            plus(_address(stage), times(self.place, size)),
            constant(self.pitch * ITEMSIZES[dtype]),
        )
        square = do(f"transpose_{dtype}_{lanes}x{lanes}", arguments)
        row_whole, column_whole, row_rest = self._of(row, "whole"), self._of(column, "whole"), self._of(row, "rest")
        squares = For(row, row_first, row_whole, width, [square])
        made.append(For(column, column_first, column_whole, width, [squares]))
        rest = call("select", (compared("<", column, column_whole), row_whole, row_first), by_name)
        each = [assign(row_rest, rest), *self._over(row, row_rest, [fill])]
        return [*made, *self._over(column, column_first, each)]


def _address(pointer: Expr) -> Expr:
    return call("address", (pointer,), by_name)


def _step_of_columns(read: Load, row: Var, column: Var) -> Expr | None:
    """The elements from one column to the next of a load whose rows follow each other in memory; None for others."""
    if read.type != read.pointer.type[1:]:
        return None
    parts = terms_of(read.index)
    steps = [part.right for part in parts if isinstance(part, Binary) and part.op == "*" and part.left is column]
    return steps[0] if row in parts and steps else None
