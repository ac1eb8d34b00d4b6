"""reduce: any combiner, several operands."""

from __future__ import annotations

import functools
import math

import numpy as np

from hloom.ir.build import combiner_opcode
from hloom.ir.errors import AttributeValueError
from hloom.ir.interpret import evaluate
from hloom.ir.op_table import OPS, No, op
from hloom.ir.ops.batching import reduce_batch
from hloom.ir.ops.bounding import reduce_bounded
from hloom.ir.ops.factoring import reduce_factors
from hloom.ir.ops.rules import UFUNCS, arrays_and_initial_values, combined_precisely, require_combiner
from hloom.ir.types import Shape, TupleShape, wide_dtype


def _reduce_infer(operands, attributes, shape):
    arrays, initial = arrays_and_initial_values("reduce", operands)
    dimensions = attributes.get("dimensions", ())
    rank = arrays[0].rank
    if len(set(dimensions)) != len(dimensions) or any(not 0 <= d < rank for d in dimensions):
        raise AttributeValueError(
            f"reduce takes distinct dimensions between 0 and {rank - 1}",
            f"{tuple(dimensions)} of {arrays[0]!r}",
            "name each dimension once",
        )
    require_combiner("reduce", "to_apply", attributes.get("to_apply"), initial)
    kept = tuple(size for k, size in enumerate(arrays[0].dims) if k not in dimensions)
    shapes = [Shape(a.dtype, kept) for a in arrays]
    return shapes[0] if len(shapes) == 1 else TupleShape(shapes)


def _reduce_reference(*operands, shape, dimensions, to_apply):
    count = len(operands) // 2
    arrays, initial = operands[:count], operands[count:]
    opcode = combiner_opcode(to_apply)
    if count == 1 and opcode in UFUNCS:
        x, start = arrays[0], initial[0]
        with np.errstate(all="ignore"):
            if dimensions and x.size:
                if x.dtype == bool and opcode in ("add", "multiply"):
                    x = (np.any if opcode == "add" else np.all)(x, tuple(dimensions))
                elif opcode in ("add", "multiply"):
                    reduced = functools.partial(UFUNCS[opcode].reduce, x, tuple(dimensions))
                    x = combined_precisely(reduced, x, opcode, wide_dtype(x.dtype))
                else:
                    x = UFUNCS[opcode].reduce(x, tuple(dimensions))
                x = np.asarray(x)
            elif dimensions:
                return np.broadcast_to(start, shape.dims)
            start = np.asarray(start).astype(x.dtype, copy=False)
            found = np.asarray(OPS[opcode].evaluate(x, start, shape=Shape(x.dtype, shape.dims)))
            return found.astype(shape.dtype, copy=False)
    # Any combiner: applied to whole slices, so the loop runs only over the reduced sizes.
    kept = [k for k in range(arrays[0].ndim) if k not in dimensions]
    order = (*dimensions, *kept)
    dims = tuple(arrays[0].shape[k] for k in kept)
    steps = math.prod(arrays[0].shape[k] for k in dimensions)
    flat = [np.transpose(a, order).reshape((steps, *dims)) for a in arrays]
    state = [np.broadcast_to(s, dims) for s in initial]
    for k in range(steps):
        result = evaluate(to_apply, [*state, *(f[k] for f in flat)], lifted=dims)
        state = list(result) if count > 1 else [result]
    return tuple(state) if count > 1 else state[0]


def _reduce_jvp(build, instruction, primals, tangents):
    """Linear for add; for maximum and minimum the mean over the elements that attain the extremum; in general the
    derivative of a binary tree of combiners (see transforms/reduction.py)."""
    return build.reduction_jvp(instruction, primals, tangents)


def _reduce_transpose(build, instruction, cotangent, operands):
    # Only sums of one operand are linear, and only those occur as tangents.
    array = instruction.operands[0]
    kept = [k for k in range(len(array.dims)) if k not in instruction["dimensions"]]
    spread = cotangent.broadcast(array.dims, kept)
    return [spread if operands[0] is None else None, cotangent.sum(range(len(kept))) if operands[1] is None else None]


op(
    "reduce",
    family="reduce",
    infer=_reduce_infer,
    reference=_reduce_reference,
    code=No("its combiner is inlined by the kernel writer"),
    jvp=_reduce_jvp,
    transpose=_reduce_transpose,
    batch=reduce_batch,
    factors=reduce_factors,
    bounded=reduce_bounded,
    attributes={"dimensions": "ints", "to_apply": "computation"},
    dialects="hlo",
)
