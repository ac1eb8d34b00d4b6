"""Non-temporal stores for large results.

Which stores are right depends on the shape, and nothing else of a kernel does. So while the kernel for a shape is
compiled, the one with the other stores may serve as a fallback.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.compiler.kernel_ir.nodes import Stmt, Store, Var
from hloom.compiler.kernel_ir.rewrite import mapped
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.ir.records import replace


def with_stores(source: KernelSource, past_caches: frozenset[str]) -> KernelSource:
    """A kernel with non-temporal stores wherever possible, with those to the named pointers only."""

    def kept(statement: Stmt) -> Stmt | None:
        name = _streamed(statement)
        return None if name is None or name in past_caches else replace(statement, streamed=False)

    nodes = source.unsettled
    if not {*map(_streamed, nodes.walk())} - {None} - past_caches:
        return source
    return KernelSource.of(replace(nodes, body=mapped(nodes.body, kept)), source.parts)


def fallbacks(source: KernelSource, leaving: frozenset[str]) -> Callable[[], list[KernelSource]] | None:
    """Returns the kernels with all stores non-temporal, those to the pointers in `leaving`, or none: their results have
    the same bits. None where there is no difference."""
    pointers = frozenset(name for s in source.unsettled.walk() if (name := _streamed(s)) is not None)
    if not pointers:
        return None
    kinds = dict.fromkeys((frozenset(), leaving & pointers, pointers))
    return lambda: [with_stores(source, kind) for kind in kinds]


def _streamed(statement: Stmt) -> str | None:
    """The pointer of a non-temporal store; None for other statements."""
    if isinstance(statement, Store) and statement.streamed and isinstance(statement.pointer, Var):
        return statement.pointer.name
    return None
