"""topk: one walk over each row, which keeps the best elements so far in order; an item is a row."""

from __future__ import annotations

import functools

import numpy as np

from hloom.compiler.kernel_ir.builder import ONE, ZERO, call, cast, chosen
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.generic.language import Formula, Pointer, T, kernel_function, s32, s64, scratch
from hloom.compiler.kernel_ir.nodes import Expr, Var
from hloom.compiler.kernels.codegen.functions import source_of
from hloom.compiler.kernels.launch import Launch, launch_by_work
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.module import Instruction
from hloom.ir.types import DTYPES, HLO_NAME, HOST_DTYPES, NARROW_FLOATS, PRED

LARGEST = 128  # of k: a value that is better than the last is inserted among the others


def has_topk_kernel(instruction: Instruction) -> bool:
    (x,) = instruction.operands
    dtype = x.dtype
    return dtype not in HOST_DTYPES and dtype != DTYPES["u64"] and 0 < instruction["k"] <= LARGEST


def topk_launches(request: KernelRequest) -> list[Launch]:
    """The launch of a computation of one topk; none where there are no rows."""
    instruction = request.instruction("topk")
    (x,) = instruction.operands
    count, k = x.dims[-1], instruction["k"]
    rows = x.shape.size // max(count, 1)
    if not rows:
        return []
    kind, largest = HLO_NAME[x.dtype], instruction.attributes.get("largest", True)
    pointers = {"x": request.names[x], "values": request.output_name(0), "places": request.output_name(1)}
    params = {key: Var("*s32" if key == "places" else f"*{kind}", name) for key, name in pointers.items()}
    params |= {name: Var("s64", name) for name in ("n", "lo", "hi")}
    known = {"key_of": functools.partial(key_of, dtype=x.dtype), "largest": largest, "k": k}
    source = source_of(best_of_rows, request.title("best"), [*params.values()], {**params, **known}, {"T": kind})
    return [launch_by_work(source, [*pointers.values(), count], rows, count * 2.0, moved=request.moved)]


@kernel_function
def best_of_rows(
    x: Pointer[T], values: Pointer[T], places: Pointer[s32], n: s64, lo: s64, hi: s64, key_of: Formula, largest: bool,
    k: int,
) -> None:  # fmt: skip
    best = scratch(s64, k)
    for row in range(lo, hi):
        first = row * n
        start = row * k
        found = 0
        last = s64(0)
        for i in range(n):
            value = x[first + i]
            key = key_of(value)
            if not largest:
                key = -1 - key
            if found < k or key > last:
                j = min(found, k - 1)
                while j > 0 and best[j - 1] < key:
                    best[j] = best[j - 1]
                    values[start + j] = values[start + j - 1]
                    places[start + j] = places[start + j - 1]
                    j -= 1
                best[j] = key
                values[start + j] = value
                places[start + j] = s32(i)
                found = min(found + 1, k)
                last = best[found - 1]


def key_of(value: Expr, dtype: np.dtype) -> Expr:
    """An s64 in the order of the values: for floats that of their bits, in which -0 precedes 0 and NaN comes last."""
    if dtype == DTYPES["f64"]:
        return call("flipped_s64", (call("bitcast_f64_s64", (value,), by_name),), by_name)
    if dtype == DTYPES["f32"] or dtype in NARROW_FLOATS:
        return cast("s64", call("flipped_s32", (call("bitcast_f32_s32", (value,), by_name),), by_name))
    return chosen(value, cast("s64", ONE), cast("s64", ZERO)) if dtype == PRED else cast("s64", value)
