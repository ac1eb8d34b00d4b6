"""topk: one walk over each row, which keeps the best elements so far in order; an item is a row."""

from __future__ import annotations

from hloom.compiler.kernels.codegen.elements import load, store
from hloom.compiler.kernels.codegen.source import KernelSource
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
    pointer, values, places = request.names[x], request.output_name(0), request.output_name(1)
    lines = [
        f"best = scratch_s64({k})",
        "for row in range(lo, hi):",
        "    first = row * n",
        f"    start = row * {k}",
        "    found = 0",
        "    last = s64(0)",
        "    for i in range(n):",
        f"        value = {load(pointer, 'first + i', x.dtype)}",
        *("        " + line for line in key_lines(x.dtype, instruction.attributes.get("largest", True))),
        f"        if found < {k} or key > last:",
        f"            j = min(found, {k - 1})",
        "            while j > 0 and best[j - 1] < key:",
        "                best[j] = best[j - 1]",
        "                " + store(values, "start + j", x.dtype, load(values, "start + j - 1", x.dtype)),
        f"                {places}[start + j] = {places}[start + j - 1]",
        "                j -= 1",
        "            best[j] = key",
        "            " + store(values, "start + j", x.dtype, "value"),
        f"            {places}[start + j] = s32(i)",
        f"            found = min(found + 1, {k})",
        "            last = best[found - 1]",
    ]
    title = request.title("best")
    text = "\n".join([f"def {title}({pointer}, {values}, {places}, n, lo, hi):", *("    " + line for line in lines)])
    dtype = f"{HLO_NAME[x.dtype]}*"
    source = KernelSource(title, text + "\n", (dtype, dtype, "s32*", "s64", "s64", "s64"))
    return [launch_by_work(source, [pointer, values, places, count], rows, count * 2.0, moved=request.moved)]


def key_lines(dtype, largest: bool) -> list[str]:
    """Statements that compute `key`, an integer in the order of the values: for floats that of their bits, in which -0
    precedes 0 and NaN comes last."""
    if dtype == DTYPES["f64"]:
        key = "flipped_s64(bitcast_f64_s64(value))"
    elif dtype == DTYPES["f32"] or dtype in NARROW_FLOATS:
        key = "s64(flipped_s32(bitcast_f32_s32(value)))"
    else:
        key = "s64(1) if value else s64(0)" if dtype == PRED else "s64(value)"
    return [f"key = {key}"] if largest else [f"key = {key}", "key = -1 - key"]
