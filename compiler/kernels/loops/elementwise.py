"""The loop nest: element-wise work over one domain, any index maps, several outputs; in tiles where an input is read
across the grain (transposes)."""

from __future__ import annotations

import math

from hloom.compiler.fusibility import MASKED
from hloom.compiler.kernel_ir.nodes import Load, Var
from hloom.compiler.kernels.codegen.description import Block, Inner, Items, Nest, Pieces, Tiles
from hloom.compiler.kernels.codegen.guards import bound, bounds
from hloom.compiler.kernels.loops.domain import Domain, store_outputs, written
from hloom.compiler.kernels.loops.short_rows import ROWS, SHORT, STATEMENTS, written_out_nest
from hloom.compiler.kernels.request import KernelRequest, finish
from hloom.ir.module import Instruction
from hloom.ir.sizes.guards import typical
from hloom.ir.types import DTYPES, HLO_NAME, PRED, compute_dtype

# A tile uses so many bytes of each memory page that it reads across the grain, and so many elements of each row of the
# results, which is half as many bytes: pages that are read count more, since each is another place of the memory.
ACROSS_BYTES = 512
ALONG = 64
PAGE = 4096  # bytes
BALANCE = 2  # flops for a byte from which on arithmetic bounds a kernel and not memory; cores have 4 to 10


def loop_nest(request: KernelRequest) -> Nest:
    """One element of every output for each index of the domain, the first output's dimensions."""
    total, work = request.outputs[0].shape.size, request.flops()
    outputs = range(len(request.outputs))
    streamed = [] if _is_arithmetic(request) else [k for k in outputs if request.streamed(k)]
    cuts, masks = [0, 0], False

    def write(domain: Domain) -> tuple[Block, list[Block]]:
        domain.writer.masks = masks
        # Values that depend on the outer indexes only are written outside of the innermost loop.
        outer = domain.writer.root.child(*domain.names[:-1])
        blocks = []
        for _ in domain.pieces(cuts):
            blocks.append(outer.child(*domain.names[-1:]))
            store_outputs(request, domain.writer, outputs, domain.index, blocks[-1], streamed)
        return outer, blocks

    def between(domain: Domain) -> bool:
        nonlocal cuts, masks
        if not (request.supports_loop_splitting and domain.writer.guards) or _tiled_dimension(domain) is not None:
            return False
        cuts = bounds(domain.writer, domain.groups, domain.dims)
        masks = bool(domain.groups) and domain.sizes[-1] >= MASKED
        return True

    domain, (outer, blocks) = written(request, request.outputs[0].dims, write, between=between)
    if _has_short_rows(request, domain):
        return written_out_nest(request, domain.dims, domain.groups[-1][0])
    writer, named, sizes = domain.writer, domain.named(), domain.sizes
    tiled = _tiled_dimension(domain)
    if tiled is not None:
        return _tiles(request, domain, tiled, outer, blocks[0])
    cut = len(blocks) > 1
    ends = [bound(writer, place, named[-1][1], sizes[-1]) for place in cuts] if cut else []
    if len(named) <= 1:
        writer.root.body += outer.body
        writer.root.body.append(
            Pieces(named[0][0], ends, blocks, (writer.index("lo"), writer.index("hi")))
            if cut
            else Items(named, blocks[0])
        )
        return finish(request, writer, "loop", writer.root, total, work)
    outer.body.append(Pieces(named[-1][0], ends, blocks) if cut else Inner(*named[-1], blocks[0]))
    order = _item_order(domain, request.outputs[0]) if request.supports_loop_splitting else range(len(named) - 1)
    writer.root.body.append(Items([named[g] for g in order], outer))
    items = total // sizes[-1] if sizes[-1] else 0
    return finish(request, writer, "loop", writer.root, items, work * typical(sizes[-1]), sizes[-1])


def _is_arithmetic(request: KernelRequest) -> bool:
    """Whether arithmetic bounds the kernel, which then hides that an ordinary store reads its line first."""
    return request.flops() * typical(request.outputs[0].shape.size) > BALANCE * typical(request.moved)


def _tiled_dimension(domain: Domain) -> int | None:
    """The dimension along which an input is contiguous while the innermost one jumps; None where there is none."""
    groups, sizes = domain.groups, domain.sizes
    if len(groups) < 2:
        return None
    last = groups[-1][-1]
    for affines in domain.writer.loads.values():
        for affine in affines:
            if affine.terms.get(last, 0) in (0, 1, -1):
                continue
            for g, group in enumerate(groups[:-1]):
                if affine.terms.get(group[-1], 0) in (1, -1) and sizes[g] >= 8 and sizes[-1] >= 8:
                    return g
    return None


def _has_short_rows(request: KernelRequest, domain: Domain) -> bool:
    """Whether rows of a few elements are read far from each other, each beside its neighbour in the next row: the loop
    then goes over the rows, so that LLVM makes vectors of rows (colours of an image that come plane by plane)."""
    groups, sizes = domain.groups, domain.sizes
    if not request.supports_loop_splitting or len(groups) < 2 or domain.writer.guards:
        return False
    width = sizes[-1]
    if not 1 < width <= SHORT or sizes[-2] < ROWS or width * len(request.computation.instructions) > STATEMENTS:
        return False
    last, next_row = groups[-1][-1], groups[-2][-1]
    return any(
        affine.terms.get(last, 0) not in (0, 1, -1) and affine.terms.get(next_row, 0) == 1
        for affines in domain.writer.loads.values()
        for affine in affines
    )


def _item_order(domain: Domain, output: Instruction) -> list[int]:
    """The dimensions of the items, the slowest first: those of the output, or of the inputs where rows are short.

    A row is contiguous on both sides. Of rows shorter than a memory page, those that are read one after the other
    should be neighbours: what is read is waited for, what is written is not.
    """
    groups = domain.groups
    natural = list(range(len(groups) - 1))
    last = groups[-1][-1]
    if domain.sizes[-1] * output.dtype.itemsize >= PAGE:
        return natural
    orders = set()
    for affines in domain.writer.loads.values():
        for affine in affines:
            steps = [affine.terms.get(groups[g][-1], 0) for g in natural]
            if affine.terms.get(last, 0) == 1 and all(steps):
                orders.add(tuple(sorted(natural, key=lambda g: -abs(typical(steps[g])))))
    return list(orders.pop()) if len(orders) == 1 else natural


def _tiles(request: KernelRequest, domain: Domain, across: int, outer: Block, inner: Block) -> Nest:
    writer, named, sizes = domain.writer, domain.named(), domain.sizes
    staged = _staged(domain, across, inner)
    widest = max((DTYPES[dtype].itemsize for _, dtype, _ in staged), default=8)
    tall, wide = ACROSS_BYTES // max(widest, 4), ALONG
    body = Block(writer.root, inner.variables, [*outer.body, *inner.body])
    others = [g for g in range(len(named) - 1) if g != across]
    dims = [named[g] for g in others]
    writer.root.body.append(Tiles(dims, named[across], named[-1], (tall, wide), body, staged))
    tiles = -(-sizes[across] // tall) * -(-sizes[-1] // wide) * math.prod(sizes[g] for g in others)
    return finish(request, writer, "transpose", writer.root, tiles, request.flops() * tall * wide, sizes[-1])


def _staged(domain: Domain, across: int, inner: Block) -> list[tuple[Var, str, Load]]:
    """The loads of inputs that are contiguous along `across`: a target reads a tile of them into an array first.

    Walking down their columns instead, a tile's rows would lie a large power of two apart for common sizes, and evict
    each other from the first-level cache.
    """
    last, far = domain.groups[-1][-1], domain.groups[across][-1]
    staged = []
    for block, value, affine, dtype, load in domain.writer.load_sites:
        contiguous = affine.terms.get(far, 0) in (1, -1) and affine.terms.get(last, 0) not in (0, 1, -1)
        computed = any(isinstance(variable, str) for variable in affine.terms)  # known only inside of the body
        if block is not inner or not contiguous or computed or dtype == PRED:
            continue
        staged.append((value, HLO_NAME[compute_dtype(dtype)], load))
    return staged
