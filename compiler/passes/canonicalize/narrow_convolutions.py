"""narrow-convolutions: converts a convolution of narrow integers to a dot of its windows (im2col).

Products of 8-bit and 16-bit integers are accumulated several per word if both operands of a dot are in memory: about
three times as fast as products of 32-bit integers. The windows of a 3 x 3 convolution are nine times its operand, whose
elements are a quarter or half as large as those sums.
"""

from __future__ import annotations

import math

from hloom.compiler.normal_forms import IN_WORDS
from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations, replaced
from hloom.compiler.targets.base import Target
from hloom.ir.build import Builder, Value
from hloom.ir.module import Instruction, Module
from hloom.ir.ops.linalg.convolution import groups_of, parse_labels
from hloom.ir.types import DTYPES
from hloom.ir.window import window_of

NAME = "narrow-convolutions"
S32, BYTES = DTYPES["s32"], frozenset((DTYPES["s8"], DTYPES["u8"]))
WINDOW = 49  # maximum number of window elements
FEWEST = 8  # minimum number of output features: with fewer, copying the windows takes as long as the products
MOST = 1 << 26  # maximum number of elements of all windows


@module_pass(NAME, "convolution")
def narrow_convolutions(module: Module, target: Target) -> Module:
    """Converts convolutions of 8-bit and 16-bit integers to dots of their windows."""
    if not target.supports_integer_words:
        return module
    return change_computations(module, lambda computation: replaced(computation, NAME, _is_wanted, _as_dot))


def _is_wanted(instruction: Instruction) -> bool:
    if instruction.opcode != "convolution" or instruction.dtype != S32:
        return False
    x, w = instruction.operands
    if x.dtype not in IN_WORDS or w.dtype not in IN_WORDS or 0 in (*x.dims, *w.dims, *instruction.dims):
        return False
    labels, window = parse_labels(instruction["dim_labels"]), window_of(instruction)
    taps = math.prod(d.size for d in window)
    if groups_of(instruction.attributes) != (1, 1) or not 1 < taps <= WINDOW:
        return False
    if any(d.base_dilation != 1 or d.reversed or d.low < 0 or d.high < 0 for d in window):
        return False
    features, outputs = x.dims[labels.lhs.feature], w.dims[labels.rhs.batch]
    return outputs >= FEWEST and instruction.shape.size // outputs * taps * features <= MOST


def _before_widening(x: Value) -> Value:
    """x as 8-bit integers where it was converted from such, which canonicalize-convolutions does for two kinds of them
    but the dot does without."""
    inner = x.instruction
    turns = []
    while inner.opcode == "transpose":
        turns.append(inner["dimensions"])
        (inner,) = inner.operands
    if inner.opcode != "convert" or x.dtype not in IN_WORDS or inner.operands[0].dtype not in BYTES:
        return x
    found = Value(x.builder, inner.operands[0])
    for order in reversed(turns):
        found = found.transpose(order)
    return found


def _as_dot(builder: Builder, instruction: Instruction, _) -> Instruction:
    x, w = (_before_widening(Value(builder, o)) for o in instruction.operands)
    labels, window = parse_labels(instruction["dim_labels"]), window_of(instruction)
    x = x.transpose([labels.lhs.batch, *labels.lhs.spatial, labels.lhs.feature])
    w = w.transpose([*labels.rhs.spatial, labels.rhs.feature, labels.rhs.batch])
    edges = ((0, 0, 0), *((d.low, d.high, 0) for d in window), (0, 0, 0))
    if any(low or high for low, high, _ in edges):
        x = x.op("pad", Value(builder, builder.splat(0, x.shape.with_dims(()))), padding=edges)
    places = [instruction.dims[k] for k in labels.out.spatial]
    windows = x
    for axis, (d, n) in reversed([*enumerate(zip(window, places, strict=True), 1)]):  # longer runs for each dimension
        parts = []
        for tap in range(d.size):
            bounds = [(0, size, 1) for size in windows.dims]
            first = tap * d.window_dilation
            bounds[axis] = (first, first + (n - 1) * d.stride + 1, d.stride)
            parts.append(windows.op("slice", slice=tuple(bounds)).instruction)
        joined = parts[0] if len(parts) == 1 else builder.emit("concatenate", *parts, dimensions=(len(window) + 1,))
        windows = Value(builder, joined)
    depth, outputs = windows.dims[-1], w.dims[-1]
    rows = windows.reshape((math.prod(windows.dims[:-1]), depth))
    product = rows.op("dot", w.reshape((depth, outputs)), shape=instruction.shape.with_dims((rows.dims[0], outputs)),
                      lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))  # fmt: skip
    order = [labels.out.batch, *labels.out.spatial, labels.out.feature]
    made = product.reshape((windows.dims[0], *places, outputs))
    return made.transpose([order.index(k) for k in range(len(order))]).instruction
