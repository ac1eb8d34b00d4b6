"""The derivative of reduce: linear for sums, by position for extrema, through a binary tree for other combiners."""

from __future__ import annotations

import numpy as np

from hloom.compiler.transforms.inline import inline_calls
from hloom.ir.build import Builder, Value, combiner_opcode
from hloom.ir.errors import DifferentiationError
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops import OPS
from hloom.ir.sizes.expressions import is_known
from hloom.ir.types import DTYPES, NARROW_FLOATS, TupleShape


def reduction_jvp(pushforward, instruction: Instruction, primals, tangents):
    """The tangent of a reduce, a list of them for several operands."""
    if len(primals) == 2:
        opcode = combiner_opcode(instruction["to_apply"])
        if opcode == "add":
            return _sum_jvp(instruction, primals, tangents)
        if opcode in ("maximum", "minimum"):
            return _extreme_jvp(pushforward, instruction, primals, tangents)
    builder = pushforward.builder
    mark = len(builder.instructions)
    results = reduction_tree(builder, instruction)
    for made in builder.instructions[mark:]:
        pushforward.push(made)
    found = [pushforward.tangents.get(r) for r in results]
    return found if isinstance(instruction.shape, TupleShape) else found[0]


def _kept(instruction: Instruction) -> tuple[int, ...]:
    """The dimensions of the operand that the result keeps."""
    return tuple(k for k in range(len(instruction.operands[0].dims)) if k not in instruction["dimensions"])


def _sum_jvp(instruction, primals, tangents):
    array, initial = tangents
    if array is None:
        return initial.broadcast(instruction.dims, ())
    return array.op("reduce", initial if initial is not None else primals[1].like(0), **instruction.attributes)


def _extreme_jvp(pushforward, instruction, primals, tangents):
    """The mean of the tangents of the elements that attain the extremum.

    The initial value is one of them, unless it is the neutral constant, which is not a user value.
    """
    array, initial = primals
    t_array, t_initial = tangents
    result = pushforward.primal
    start = initial.instruction
    opcode = combiner_opcode(instruction["to_apply"])
    assert opcode is not None  # maximum or minimum
    neutral = start.opcode == "constant" and start["value"] == OPS[opcode].neutral(array.dtype)
    # Counts in float32 for narrow floats: float16 ends at 65504.
    count_dtype = DTYPES["f32"] if array.dtype in NARROW_FLOATS else array.dtype
    at_extreme = array.compare("EQ", result.broadcast(array.dims, _kept(instruction)))
    count = at_extreme.convert(count_dtype).sum(instruction["dimensions"])
    total = None
    if t_array is not None:
        total = at_extreme.where(t_array, t_array.like(0)).sum(instruction["dimensions"])
    if not neutral:
        at_start = initial.broadcast(result.dims, ()).compare("EQ", result)
        count = count + at_start.convert(count_dtype)
        if t_initial is not None:
            term = at_start.where(t_initial.broadcast(result.dims, ()), result.like(0))
            total = term if total is None else total + term
    elif any(is_known(array.dims[d] == 0) for d in instruction["dimensions"]):
        return None
    if total is None:
        return None
    # Multiplied by the share rather than divided by the count, so that the count is never stored in a narrow float.
    return total * (1 / count).convert(array.dtype)


def reduction_tree(builder: Builder, instruction: Instruction) -> list[Instruction]:
    """Emits a reduce as ordinary ops: about log2(n) steps, each of which combines neighbours.

    The combiner is applied to whole arrays. Order is preserved, so associative, non-commutative combiners yield the
    same result as the reduce. Returns one instruction for each operand.
    """
    half = len(instruction.operands) // 2
    arrays, initial = instruction.operands[:half], instruction.operands[half:]
    dimensions, kept = tuple(instruction["dimensions"]), _kept(instruction)
    combiner = inline_calls(instruction["to_apply"])
    dims = tuple(arrays[0].dims[k] for k in kept)
    state = []
    for array in arrays:
        value = Value(builder, array).transpose((*dimensions, *kept))
        length = int(np.prod([array.dims[d] for d in dimensions], dtype=int))
        state.append(value.reshape((length, *dims)))
    while length > 1:
        pairs = length // 2
        left = [_rows(v, 0, 2 * pairs, 2) for v in state]
        right = [_rows(v, 1, 2 * pairs, 2) for v in state]
        combined = lift(builder, combiner, [*left, *right], (pairs, *dims), instruction)
        if length % 2:
            combined = [
                c.op("concatenate", _rows(v, length - 1, length, 1), dimensions=(0,))
                for c, v in zip(combined, state, strict=True)
            ]
        state, length = combined, pairs + length % 2
    starts = [Value(builder, start).broadcast(dims, ()) for start in initial]
    if length == 0:
        return [s.instruction for s in starts]
    last = [v.reshape(dims) for v in state]
    return [v.instruction for v in lift(builder, combiner, [*starts, *last], dims, instruction)]


def _rows(value: Value, start: int, limit: int, stride: int) -> Value:
    bounds = ((start, limit, stride), *((0, extent, 1) for extent in value.dims[1:]))
    return value.op("slice", slice=bounds)


def lift(builder: Builder, computation: Computation, arguments, dims, reduction: Instruction) -> list[Value]:
    """Emits a scalar computation for arrays of dimensions `dims`, element-wise; returns its outputs.

    Raises DifferentiationError, at the line of `reduction`, if an op in it cannot be applied element-wise.
    """
    mapped: dict[Instruction, Value] = dict(zip(computation.parameters, arguments, strict=True))
    tuples: dict[Instruction, list[Value]] = {}
    for instruction in computation.instructions:
        if instruction in mapped:
            continue
        opcode = instruction.opcode
        if opcode == "get-tuple-element":
            mapped[instruction] = tuples[instruction.operands[0]][instruction["index"]]
            continue
        operands = [mapped[o] for o in instruction.operands]
        entry = OPS[opcode]
        if opcode == "tuple":
            tuples[instruction] = operands
        elif opcode == "constant" and instruction.dims == ():
            scalar = builder.constant(instruction["value"])
            mapped[instruction] = Value(builder, scalar).broadcast(dims, ()) if dims else Value(builder, scalar)
        elif entry.family == "elementwise" and instruction.dims == ():
            shape = instruction.shape.with_dims(dims) if entry.shaped else None
            mapped[instruction] = operands[0].op(opcode, *operands[1:], shape=shape, **instruction.attributes)
        elif opcode in ("reshape", "broadcast", "transpose") and instruction.dims == instruction.operands[0].dims == ():
            mapped[instruction] = operands[0]
        else:
            raise DifferentiationError(
                f"the derivative of a reduce with combiner '{computation.name}' was asked for",
                f"the combiner uses '{opcode}' ({instruction.shape!r}), which is not element by element",
                "write the combiner with element-wise ops on scalars",
                source=reduction.source,
            )
    return tuples.get(computation.root) or [mapped[computation.root]]
