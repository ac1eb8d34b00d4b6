"""Normal forms of contractions: the canonicalization passes produce them, and the contraction kernels require them."""

from __future__ import annotations

from hloom.ir.module import Instruction
from hloom.ir.ops.linalg.convolution import Labels, groups_of, parse_labels
from hloom.ir.ops.linalg.dot import dot_dims, free_dims
from hloom.ir.types import DTYPES, HLO_NAME, compute_dtype
from hloom.ir.window import window_of

ACCUMULATE = {"s8": "s32", "s16": "s32", "u8": "u32", "u16": "u32"}
IN_WORDS = frozenset(DTYPES[name] for name in ("s8", "u8", "s16"))  # several of which are packed per word
SUMMED = ("f32", "f64", "s32", "s64", "u32", "u64")  # accumulation dtypes of the contraction kernels


def accumulation_dtype(contraction: Instruction) -> str:
    """The accumulation dtype: the result's, float32 for narrow floats, at least 32 bits for integers."""
    name = HLO_NAME[compute_dtype(contraction.dtype)]
    return ACCUMULATE.get(name, name)


def is_in_words(dot: Instruction) -> bool:
    """Whether a dot has packed integer operands, accumulated in 32 bits."""
    return accumulation_dtype(dot) in ("s32", "u32") and all(o.dtype in IN_WORDS for o in dot.operands)


def is_normal_dot(dot: Instruction) -> bool:
    """Whether a dot has at most one batch, row, column and contracting dimension and a supported dtype."""
    lb, rb, lc, rc = dot_dims(dot.attributes)
    x, y = (o.dims for o in dot.operands)
    groups = (lb, lc, free_dims(len(x), lb, lc), free_dims(len(y), rb, rc))
    return max(map(len, groups)) <= 1 and accumulation_dtype(dot) in SUMMED


def is_normal_convolution(convolution: Instruction) -> bool:
    """Whether a convolution has a supported dtype, normal labels, no batch groups, no reversal, no base dilation."""
    groups, batch_groups = groups_of(convolution.attributes)
    left, right = convolution.operands
    if batch_groups != 1 or any(d.base_dilation != 1 or d.reversed for d in window_of(convolution)):
        return False
    if left.dtype != right.dtype or 0 in left.dims or 0 in right.dims or 0 in convolution.dims:
        return False
    if accumulation_dtype(convolution) not in SUMMED:
        return False
    return is_normal_labels(parse_labels(convolution["dim_labels"]), groups)


def is_normal_labels(labels: Labels, groups: int) -> bool:
    """Whether the kernel's output features come first or last, and the result's first, last, or second after the batch.
    With several groups they come first or last."""
    rank = len(labels.out.order)
    if labels.rhs.batch not in (0, rank - 1):
        return False
    if labels.out.feature in (0, rank - 1):
        return True
    return groups == 1 and is_batch_first(labels)


def is_batch_first(labels: Labels) -> bool:
    """Whether the result has its batch first and its features second (or alone after it)."""
    return labels.out.batch == 0 and labels.out.feature == 1 and len(labels.out.order) > 2
