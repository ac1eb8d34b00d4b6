"""Domains of nests: neighbouring dimensions that every index expression walks through as one are merged."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from hloom.compiler.kernel_ir.nodes import Var
from hloom.compiler.kernels.codegen.affine import Index, linear, merge_groups, variables
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.codegen.writer import Writer
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.records import record

T = TypeVar("T")


@record
class Domain:
    """The indexes that a nest walks through. groups: the merged dimensions, the outermost first."""

    writer: Writer
    dims: tuple[int, ...]
    groups: list[list[int]]

    @property
    def index(self) -> Index:
        return variables(self.dims)

    @property
    def names(self) -> list[str]:
        """The index variable of each group."""
        return [f"i{g}" for g in range(len(self.groups))]

    @property
    def sizes(self) -> list[int]:
        return [math.prod(self.dims[k] for k in group) for group in self.groups]

    def named(self) -> list[tuple[Var, Var]]:
        """(variable, size argument) of each group."""
        writer = self.writer
        return [(writer.index(f"i{g}"), writer.integer(f"n{g}", size)) for g, size in enumerate(self.sizes)]

    def pieces(self, cuts: list[int]) -> Iterator[None]:
        """Steps through the pieces of an innermost loop that is cut: the writer writes for one after the other."""
        for piece, (first, end) in enumerate(itertools.pairwise(cuts)):
            self.writer.piece = piece
            if len(cuts) > 2:
                self.writer.ranges = {self.groups[-1][-1]: (first, end - 1)}
            yield


def written(
    request: KernelRequest,
    dims: tuple[int, ...],
    write: Callable[[Domain], T],
    barriers: Sequence[int] = (),
    between: Callable[[Domain], bool] | None = None,
) -> tuple[Domain, T]:
    """The domain `dims` and the result of `write(domain)`, with as many dimensions merged as its expressions allow.

    Which these are is known only after writing. The first attempt merges all of them, which is right for most kernels;
    another one follows where it was not.

    between: called with the first writer and the groups that its expressions allow; returns whether to write again for
    its sake.
    """
    used, groups = [], merge_groups(dims, (), barriers)
    again = between is not None
    while True:
        writer = request.writer(dims)
        writer.set_domain(groups)
        domain = Domain(writer, dims, groups)
        result = write(domain)
        used += writer.used  # of every attempt, so that groups only become smaller
        found = merge_groups(dims, used, barriers)
        again = again and between is not None and between(Domain(writer, dims, found))
        if found == groups and not again:
            return domain, result
        groups, again = found, False


def store_outputs(
    request: KernelRequest,
    writer: Writer,
    outputs: Iterable[int],
    index: Index,
    block: Block,
    streamed: Collection[int] = (),
) -> None:
    """Computes and stores one element of each of these outputs, at as much of the index as it has dimensions.
    streamed: those whose stores may be non-temporal."""
    # All values before all stores: an output may overwrite an input that another output still reads.
    values = {k: writer.value(request.outputs[k], index[: len(request.outputs[k].dims)], block) for k in outputs}
    for k, value in values.items():
        output = request.outputs[k]
        place = linear(index[: len(output.dims)], output.dims)
        writer.store(request.output_name(k), place, value, block, k in streamed)
