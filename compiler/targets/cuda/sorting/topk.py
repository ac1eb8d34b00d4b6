"""topk: k rounds over a row, each of which finds the best element behind the one found before.

The lanes of a warp (of a block, for long rows) go through the row in strides and agree on the best by shuffles. Of
equal elements the one that comes first wins, so that nothing depends on which lane has seen it. A row is read k times,
from the caches after the first.
"""

from __future__ import annotations

from hloom.compiler.kernels.codegen.elements import load, store
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.topk import key_lines
from hloom.compiler.targets.cuda.launches import CudaLaunch, cuda_source, launch_of_source
from hloom.ir.types import HLO_NAME

WARP, BLOCK = 32, 256
WARP_ROW = 1024  # rows up to this length are a warp's


def topk_launches(request: KernelRequest, processors: int) -> list[CudaLaunch]:
    """The launch of a computation of one topk; none where there are no rows."""
    instruction = request.instruction("topk")
    (x,) = instruction.operands
    count, k = x.dims[-1], instruction["k"]
    rows = x.shape.size // max(count, 1)
    if not rows:
        return []
    pointer, values, places = request.names[x], request.output_name(0), request.output_name(1)
    lanes = WARP if count <= WARP_ROW else BLOCK
    shared, agreed = {}, []
    for distance in (16, 8, 4, 2, 1):
        agreed += [
            f"other = shuffle_xor(best, {distance})",
            f"other_place = shuffle_xor(place, {distance})",
            *_better("other", "other_place"),
        ]
    if lanes > WARP:
        warps = BLOCK // WARP
        shared = dict.fromkeys(("keys", "where"), f"cuda.shared.array({warps}, s64)")
        agreed += [
            "if lane & 31 == 0:",
            "    keys[lane >> 5] = best",
            "    where[lane >> 5] = place",
            "cuda.syncthreads()",
            f"for warp in range({warps}):",
            "    other = keys[warp]",
            "    other_place = where[warp]",
            *("    " + line for line in _better("other", "other_place")),
            "cuda.syncthreads()",
        ]
    largest = instruction.attributes.get("largest", True)
    lines = [
        "first = item * n",
        "last = s64(0)",
        "last_place = s64(-1)",
        f"for taken in range({k}):",
        "    best = s64(0)",
        "    place = s64(-1)",
        f"    for i in range(lane, n, {lanes}):",
        f"        value = {load(pointer, 'first + i', x.dtype)}",
        *("        " + line for line in key_lines(x.dtype, largest)),
        "        behind = last_place < 0 or key < last or (key == last and i > last_place)",
        "        if behind and (place < 0 or key > best):",
        "            best = key",
        "            place = s64(i)",
        *("    " + line for line in agreed),
        "    if lane == 0:",
        f"        start = item * {k} + taken",
        "        " + store(values, "start", x.dtype, load(pointer, "first + place", x.dtype)),
        f"        {places}[start] = s32(place)",
        "    last = best",
        "    last_place = place",
    ]
    dtype = HLO_NAME[x.dtype]
    source = cuda_source(
        request.title("best"), [(pointer, dtype), (values, dtype), (places, "s32")], {"n": count}, lines,
        grain="warp" if lanes == WARP else "block", items=rows, shared=shared,
    )  # fmt: skip
    return [launch_of_source(source, {"n": count, "items": rows}, rows * count * 2.0 * k, processors=processors)]


def _better(key: str, place: str) -> list[str]:
    """best, place = the other one where that is larger, or as large and comes first."""
    return [
        f"if {place} >= 0 and (place < 0 or {key} > best or ({key} == best and {place} < place)):",
        f"    best = {key}",
        f"    place = {place}",
    ]
