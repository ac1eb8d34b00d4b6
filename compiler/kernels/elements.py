"""Statements that read or write an element: loads, plain stores, and stores past the caches, for large results.

Which stores are right depends on the shape, and nothing else of the text does. So while the kernel for a shape is
compiled, the one with the other stores may stand in.
"""

from __future__ import annotations

import re

import numpy as np

from hloom.compiler.kernels.source import KernelSource
from hloom.ir.records import replace
from hloom.ir.types import DTYPES, HLO_NAME, NARROW_FLOATS, PRED

_STREAM = re.compile(r"\bstream_(\w+)\((\w+), (.*), (\w+)\)$", re.MULTILINE)


def load(pointer: str, index: str, dtype: np.dtype) -> str:
    """The expression that reads an element; narrow floats arrive as float32, pred as a boolean."""
    if dtype in NARROW_FLOATS or dtype == PRED:
        return f"load_{HLO_NAME[dtype]}({pointer}, {index})"
    return f"{pointer}[{index}]"


def store(pointer: str, index: str, dtype: np.dtype, value: str, streamed: bool = False) -> str:
    """The statement that writes an element; `streamed`: past the caches, `value` being a name."""
    if streamed:
        return f"stream_{HLO_NAME[dtype]}({pointer}, {index}, {value})"
    if dtype in NARROW_FLOATS or dtype == PRED:
        return f"store_{HLO_NAME[dtype]}({pointer}, {index}, {value})"
    return f"{pointer}[{index}] = {value}"


def with_stores(source: KernelSource, past_caches: bool) -> tuple[KernelSource, KernelSource | None]:
    """The kernel of a text that has stores past the caches wherever it may, with the stores that are wanted; and the
    one that may stand in for it. None where there is no difference."""
    text = _STREAM.sub(lambda found: store(found[2], found[3], DTYPES[found[1]], found[4]), source.text)
    if text == source.text:
        return source, None
    plain = replace(source, text=text)
    return (source, plain) if past_caches else (plain, source)
