"""Statements that read or write an element: loads, plain stores, and non-temporal stores for large results.

Which stores are right depends on the shape, and nothing else of the text does. So while the kernel for a shape is
compiled, the one with the other stores may serve as a fallback.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.ir.records import replace
from hloom.ir.types import DTYPES, HLO_NAME, NARROW_FLOATS, PRED

# (kind, pointer, index, value: a name or a number)
_STREAM = re.compile(r"\bstream_(\w+)\((\w+), (.*), (\w+(?:\([^(),]*\))?)\)$", re.MULTILINE)


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

    def kept(found: re.Match) -> str:
        kind, pointer, index, value = found.groups()
        return found[0] if pointer in past_caches else store(pointer, index, DTYPES[kind], value)

    if "stream_" not in source.text:
        return source
    text = _STREAM.sub(kept, source.text)
    return source if text == source.text else replace(source, text=text)


def fallbacks(source: KernelSource, leaving: frozenset[str]) -> Callable[[], list[KernelSource]] | None:
    """Returns the kernels with all stores non-temporal, those to the pointers in `leaving`, or none: their results have
    the same bits. None where there is no difference."""
    if "stream_" not in source.text:
        return None
    pointers = frozenset(found[1] for found in _STREAM.findall(source.text))
    kinds = dict.fromkeys((frozenset(), leaving & pointers, pointers))
    return lambda: [with_stores(source, kind) for kind in kinds]
