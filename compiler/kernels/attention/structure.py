"""Which fused computations are attention: two contractions with a row nest between them.

first = dot(queries, keys), any element-wise work and reductions of its rows, then second = dot(weights, values) over
the rows. Nothing here looks at what the row nest computes: softmax with or without masks, with the maximum subtracted
or not, by a division or by log-sum-exp, all have this structure.
"""

from __future__ import annotations

import math

from hloom.compiler.kernels.contractions.operands import Roles
from hloom.compiler.kernels.loops.accumulators import Reduction
from hloom.compiler.normal_forms import accumulation_dtype, is_normal_dot
from hloom.compiler.reshapes import without_ones_groups
from hloom.ir.module import Computation, Instruction, walk
from hloom.ir.ops import OPS
from hloom.ir.ops.linalg.dot import dot_dims
from hloom.ir.records import record
from hloom.ir.sizes.guards import typical
from hloom.ir.types import HLO_NAME, compute_dtype

FLOATS = ("f32", "f64")
SCORES = 256 << 10  # bytes of scratch memory for scores: with the product's own, within half a megabyte of stack
SUMS = 64 << 10  # bytes of scratch memory for the sums, and for queries that are computed
ROW_BYTES = SCORES // 4  # of a row of scores
PANEL = 64  # columns of a register tile at most
LEAST = 8  # scores in a row, below which it is no work for a register tile
# Rows of a block that use a panel of keys or values while it is in the first cache. With fewer of them the panels' way
# from the second or third cache costs time, unless the scores are so many that they would go to memory otherwise.
BLOCK = 24
KEPT = 4 << 20  # bytes of keys and values that come fast enough for half of such a block
MEMORY = 64 << 20  # bytes of scores that no cache holds
BLOCKS = 8  # blocks that keep several cores busy


@record(frozen=True)
class Attention:
    """The parts of a computation that is attention.

    first, second: its contractions; `rows` is (batch, rows), `extent` the length of a row of scores.
    domain: dims of what is reduced; its last dimension is the row.
    reduces: the reductions of rows. needed: those whose results what follows the second contraction reads.
    results: numbers of the outputs that follow the second contraction. scores, of_rows: numbers of those that the row
    nest itself has, for each score and for each row.
    """

    first: Instruction
    second: Instruction
    rows: tuple[int, int]
    extent: int
    domain: tuple[int, ...]
    reduces: tuple[Instruction, ...]
    needed: tuple[Instruction, ...]
    results: tuple[int, ...]
    scores: tuple[int, ...]
    of_rows: tuple[int, ...]

    @property
    def weights(self) -> Instruction:
        return self.second.operands[0]


def attention_of(computation: Computation) -> Attention | None:
    """The parts of a fused computation that one kernel computes block of rows by block of rows; None where it is
    something else, or too long or too short for that."""
    dots = [i for i in computation.instructions if i.opcode == "dot"]
    reduces = [i for i in computation.instructions if i.opcode == "reduce"]
    if len(dots) != 2 or not reduces or not all(is_normal_dot(d) for d in dots):
        return None
    first, second = dots
    one, two = Roles(first), Roles(second)
    batch, rows, extent, depth = one.extents
    if two.extents[:2] != (batch, rows) or two.extents[3] != extent:
        return None
    dtype = accumulation_dtype(first)
    if dtype not in FLOATS or accumulation_dtype(second) != dtype:
        return None
    weights = second.operands[0]
    if dot_dims(second.attributes)[2] != (len(weights.dims) - 1,):
        return None  # not over the rows
    kinds = _kinds(computation, first, second, (batch, rows), extent)
    if kinds is None or kinds.get(weights) != "score":
        return None
    domains = {r.operands[0].dims for r in reduces}  # at most one dimension of them is the row's
    if len(domains) != 1 or not all(kinds.get(r) == "row" for r in reduces):
        return None
    if any(HLO_NAME[compute_dtype(r.dtype)] != dtype for r in reduces):
        return None
    itemsize = 4 if dtype == "f32" else 8
    if not LEAST <= extent <= ROW_BYTES // itemsize or not _pays(one.extents, two.extents[2], itemsize, first):
        return None
    (domain,) = domains
    outputs = computation.outputs()
    numbers: dict[str, list[int]] = {"result": [], "score": [], "row": [], "spread": []}
    for k, output in enumerate(outputs):
        numbers[kinds.get(output, "result")].append(k)
    results = [untransposed(outputs[k]) for k in numbers["result"]]
    if not results or numbers["spread"] or any(o.dims != results[0].dims for o in results):
        return None
    features = two.extents[2]
    if results[0].dims[-1:] != (features,) or not _fits(results[0].dims, (batch, rows, features)):
        return None
    if any(outputs[k] is first or outputs[k].dims not in (domain, weights.dims) for k in numbers["score"]):
        return None
    # The reductions that the outputs read other than through the second contraction.
    needed = [i for i in walk(results, lambda i: i is second or i in reduces) if i in reduces]
    indices = (tuple(numbers[kind]) for kind in ("result", "score", "row"))
    return Attention(first, second, (batch, rows), extent, domain, tuple(reduces), tuple(needed), *indices)


def _pays(extents, features: int, itemsize: int, first: Instruction) -> bool:
    """Whether blocks of rows are large enough, and enough, to be faster than products of their own."""
    batch, rows, extent, depth = extents
    scores, sums = SCORES // itemsize, SUMS // itemsize
    # Rows of scratch memory are up to two panels longer, and queries may have to be copied.
    if extent + 2 * PANEL > scores or features + 2 * PANEL > sums or depth + 2 * PANEL > sums:
        return False
    # At least a block of rows, and blocks for the cores: one comparison, so that sizes known later need few variants.
    if features * depth == 0 or rows < max(BLOCK, (-(-BLOCKS // typical(batch)) - 1) * BLOCK + 1):
        return False
    wanted = BLOCK // 2 if typical(extent * (depth + features)) * itemsize <= KEPT else BLOCK
    computed = depth if first.operands[0].opcode != "parameter" else 0

    def fit(count: int) -> bool:
        """Whether there is room for so many rows."""
        return count * extent <= scores and count * features <= sums and count * computed <= sums

    return fit(wanted) or (batch * rows * extent * itemsize >= MEMORY and fit(1))


def _fits(dims, parts) -> bool:
    """Whether dims are `parts`, some of them in several dimensions, with 1s anywhere."""
    return math.prod(dims) == math.prod(parts) and all(len(olds) == 1 for olds, _ in without_ones_groups(parts, dims))


def _kinds(computation, first, second, rows, extent) -> dict[Instruction, str] | None:
    """How each instruction that needs `first` and is not behind `second` depends on it: a 'score' needs the element of
    `first` at its own index, a 'row' is one value per row, a 'spread' repeats such values along further dimensions.
    None where one depends on it otherwise (other rows, other positions in the row)."""
    kinds: dict[Instruction, str] = {first: "score"}
    behind, outputs = {second}, set(computation.outputs())
    if not _is_score(first.dims, rows, extent):
        return None
    for instruction in computation.instructions:
        if instruction in (first, second) or instruction.opcode == "tuple":
            continue
        of = [kinds[o] for o in instruction.operands if o in kinds]
        family = OPS[instruction.opcode].family
        if not behind.isdisjoint(instruction.operands):
            behind.add(instruction)
            last = instruction.opcode == "transpose" and instruction in outputs
            if "score" in of or not (family == "elementwise" or instruction.opcode == "reshape" or last):
                return None
        elif of:
            kind = _kind(instruction, of, family, rows, extent)
            if kind is None:
                return None
            kinds[instruction] = kind
    if second.operands[1] in kinds or any(o in kinds for o in first.operands):
        return None
    return kinds


def _kind(instruction, of: list[str], family: str, rows, extent) -> str | None:
    dims, opcode = instruction.dims, instruction.opcode
    operand = instruction.operands[0]
    if family == "elementwise":
        kind = next(k for k in ("score", "spread", "row") if k in of)
        return None if kind == "row" and not _fits(dims, rows) else kind
    if opcode == "reshape" and of == ["row"]:
        return "row" if _fits(dims, rows) else None
    if opcode == "reshape" and of == ["score"]:
        return "score" if _is_score(dims, rows, extent) else None
    if opcode == "broadcast" and of == ["row"]:
        rank = len(operand.dims)
        own = instruction["dimensions"] == tuple(range(rank)) and dims[:rank] == operand.dims
        return "spread" if own and len(dims) == rank + 1 else None
    if opcode == "reduce" and len(instruction.operands) == 2 and of in (["score"], ["spread"]):
        reduction = Reduction(instruction)
        own = _is_score(operand.dims, rows, extent) and instruction["dimensions"] == (len(operand.dims) - 1,)
        return "row" if own and reduction.splittable else None
    return None


def untransposed(output: Instruction) -> Instruction:
    """What an output is before it is transposed: the kernel stores it in that order."""
    return output.operands[0] if output.opcode == "transpose" else output


def _is_score(dims, rows, extent) -> bool:
    return bool(dims) and dims[-1] == extent and _fits(dims, (*rows, extent))
