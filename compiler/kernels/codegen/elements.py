"""Statements that read or write an element: loads, plain stores, and non-temporal stores for large results.

Which stores are right depends on the shape, and nothing else of the text does. So while the kernel for a shape is
compiled, the one with the other stores may serve as a fallback.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.compiler.kernel_ir.nodes import Stmt, Store, Var
from hloom.compiler.kernel_ir.rewrite import mapped
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.ir.records import replace
from hloom.ir.types import HLO_NAME, NARROW_FLOATS, PRED


def load(pointer: str, index: str, dtype: np.dtype) -> str:
    """The expression that reads an element; narrow floats arrive as float32, pred as a boolean."""
    if dtype in NARROW_FLOATS or dtype == PRED:
        return f"load_{HLO_NAME[dtype]}({pointer}, {index})"
    return f"{pointer}[{index}]"


def store(pointer: str, index: str, dtype: np.dtype, value: str, streamed: bool = False) -> str:
    """The statement that writes an element; `streamed`: non-temporal, `value` being a name or a number."""
    if streamed:
        return f"stream_{HLO_NAME[dtype]}({pointer}, {index}, {value})"
    if dtype in NARROW_FLOATS or dtype == PRED:
        return f"store_{HLO_NAME[dtype]}({pointer}, {index}, {value})"
    return f"{pointer}[{index}] = {value}"


def with_stores(source: KernelSource, past_caches: frozenset[str]) -> KernelSource:
    """The kernel of a text with non-temporal stores wherever possible, with those to the named pointers only."""

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
