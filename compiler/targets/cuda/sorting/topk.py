"""topk: k rounds over a row, each of which finds the best element behind the one found before.

The lanes of a warp (of a block, for long rows) go through the row in strides and agree on the best by shuffles. Of
equal elements the one that comes first wins, so that nothing depends on which lane has seen it. A row is read k times,
from the caches after the first.
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.builder import ONE, ZERO, both, cast, compared, constant, element, load
from hloom.compiler.kernel_ir.nodes import Var
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.kernels.topk import key_of
from hloom.compiler.targets.cuda.codegen.source import barrier, shared_array, shuffled
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
    dtype, largest = HLO_NAME[x.dtype], instruction.attributes.get("largest", True)
    block = request.writer(()).root
    names = block.names
    item, lane, n = (names.declare(name, "s64") for name in ("item", "lane", "n"))
    first, last = block.let("first", item * n), block.let("last", cast("s64", ZERO))
    last_place = block.let("last_place", cast("s64", constant(-1)))
    taken, turn = block.loop("taken", ZERO, constant(k))
    best, place = turn.let("best", cast("s64", ZERO)), turn.let("place", cast("s64", constant(-1)))
    i, inside = turn.loop("i", lane, n, constant(lanes))
    key = inside.let("key", key_of(inside.let("value", load(names[pointer], first + i)), x.dtype))
    if not largest:
        inside.let("key", -ONE - key)
    later = both("and", (compared("==", key, last), i > last_place))
    behind = inside.let("behind", both("or", (last_place < 0, key < last, later)))
    found = inside.branch(both("and", (behind, both("or", (place < 0, key > best)))))
    found.let("best", key)
    found.let("place", cast("s64", i))
    for distance in (16, 8, 4, 2, 1):
        other = turn.let("other", shuffled(best, distance))
        _take_better(turn, best, place, other, turn.let("other_place", shuffled(place, distance)))
    shared = []
    if lanes > WARP:
        shared = [shared_array(name, "s64", BLOCK // WARP) for name in ("keys", "where")]
        keys, where = (array.var for array in shared)
        one = turn.branch(compared("==", lane & 31, ZERO))
        one.store(keys, lane >> 5, best)
        one.store(where, lane >> 5, place)
        turn.body.append(barrier())
        warp, inside = turn.loop("warp", ZERO, constant(BLOCK // WARP))
        other = inside.let("other", element(keys, warp))
        _take_better(inside, best, place, other, inside.let("other_place", element(where, warp)))
        turn.body.append(barrier())
    one = turn.branch(compared("==", lane, ZERO))
    start = one.let("start", item * k + taken)
    one.store(names[values], start, load(names[pointer], first + place))
    one.store(names[places], start, cast("s32", place))
    turn.let("last", best)
    turn.let("last_place", place)
    source = cuda_source(
        request.title("best"), [(pointer, dtype), (values, dtype), (places, "s32")], {"n": count}, block.statements(),
        grain="warp" if lanes == WARP else "block", items=rows, shared=shared,
    )  # fmt: skip
    return [launch_of_source(source, {"n": count, "items": rows}, rows * count * 2.0 * k, processors=processors)]


def _take_better(block: Block, best: Var, place: Var, other: Var, other_place: Var) -> None:
    """best, place = the other one where that is larger, or as large and comes first."""
    first = both("and", (compared("==", other, best), other_place < place))
    larger = both("or", (place < 0, other > best, first))
    inside = block.branch(both("and", (other_place >= 0, larger)))
    inside.set([best], [other])
    inside.set([place], [other_place])
