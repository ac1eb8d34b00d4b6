"""Reductions over segments: rows of an array combined by the segment that each belongs to (`jax.ops`)."""

from __future__ import annotations

import hloom.numpy as hnp
from hloom import lax
from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import DTypeError, ShapeError
from hloom.ir.types import INEXACT, INTEGERS, PRED
from hloom.lax.operands import as_operand, whole_number
from hloom.tracing.concrete import require_known


def _neutral(kind: str, dtype):
    if kind == "add":
        return 0
    if kind == "multiply":
        return 1
    if dtype == PRED:
        return kind == "min"
    if dtype in INEXACT:
        return float("-inf" if kind == "max" else "inf")
    info = hnp.iinfo(dtype)
    return int(info.min if kind == "max" else info.max)


def _segment(
    name, kind, data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode, combine
):
    x, ids = as_operand(data, name), as_operand(segment_ids, name)
    if ids.dtype not in INTEGERS:
        raise DTypeError(f"{name} takes integer segment_ids", f"{ids._shape!r}", "convert them with astype('int32')")
    if ids.ndim != 1 or not x.ndim or ids.shape[0] != x.shape[0]:
        raise ShapeError(
            f"{name} takes a segment for each row of its data", f"{x._shape!r} and {ids._shape!r}", "match them"
        )
    if num_segments is None:
        values = require_known(ids, name, "the number of segments is a size of the result", "pass num_segments=")
        num_segments = int(values.max(initial=-1)) + 1
    count = whole_number(num_segments, name, "num_segments")
    if count < 0:
        raise ShapeError(f"{name} takes num_segments that is not negative", f"{count}", "check it")
    options = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode}
    start = lax.full((count, *x.shape[1:]), _neutral(kind, x.dtype), x.dtype)
    if bucket_size is None:
        return getattr(start.at[ids], kind)(x, wrap_negative_indices=False, **options)
    partial = [
        getattr(start.at[ids[k : k + bucket_size]], kind)(
            x[k : k + bucket_size], wrap_negative_indices=False, **options
        )
        for k in range(0, max(ids.shape[0], 1), bucket_size)
    ]
    result = partial[0]
    for other in partial[1:]:
        result = combine(result, other)
    return result


def _function(name: str, kind: str, combine, meaning: str, empty: str, printed: str):
    @takes_out_sharding
    def function(
        data,
        segment_ids,
        num_segments: int | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        bucket_size: int | None = None,
        mode=None,
        out_sharding=None,
    ):
        return _segment(
            name,
            kind,
            data,
            segment_ids,
            num_segments,
            indices_are_sorted,
            unique_indices,
            bucket_size,
            mode,
            combine,
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The {meaning} of the rows of data with the same number in segment_ids, a row for each.

    data: (n, ...). segment_ids: n integers from 0 on; others, negative ones too, are left out (or as `mode` says).
    num_segments: the size of the result, required inside jit. indices_are_sorted, unique_indices: promises.
    bucket_size: partial results of so many rows, combined at the end. A segment without rows is {empty}.
    Raises ShapeError, DTypeError, TracerConversionError.

    >>> hl.ops.{name}(hnp.array([3, 1, 4]), hnp.array([0, 0, 1]))
    Array({printed}, dtype=int32)
    """
    return function


segment_sum = _function("segment_sum", "add", hnp.add, "sum", "0", "[4, 4]")
segment_prod = _function("segment_prod", "multiply", hnp.multiply, "product", "1", "[3, 4]")
segment_max = _function("segment_max", "max", hnp.maximum, "maximum", "the least value of the dtype", "[3, 4]")
segment_min = _function("segment_min", "min", hnp.minimum, "minimum", "the largest value of the dtype", "[1, 4]")

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]
__dir__ = __all__.copy
