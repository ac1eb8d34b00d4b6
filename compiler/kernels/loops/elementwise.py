"""The loop nest: element-wise work over one domain, any index maps, several outputs; in tiles where an input is read
across the grain (transposes)."""

from __future__ import annotations

import itertools

from hloom.compiler.fusibility import MASKED
from hloom.compiler.kernels.codegen.affine import linear, variables
from hloom.compiler.kernels.codegen.description import Block, Inner, Items, Nest, Pieces, Tiles
from hloom.compiler.kernels.codegen.guards import bound_text, bounds
from hloom.compiler.kernels.request import KernelRequest, extents, finish, group_sizes, with_merged
from hloom.ir.types import DTYPES, HLO_NAME, PRED, compute_dtype

# A tile uses so many bytes of each memory page that it reads across the grain, and so many elements of each row of the
# results, which is half as many bytes: pages that are read count more, since each is another place of the memory.
ACROSS_BYTES = 512
ALONG = 64
PAGE = 4096  # bytes
BALANCE = 2  # flops for a byte from which on arithmetic bounds a kernel and not memory; cores have 4 to 10


def loop_nest(request: KernelRequest) -> Nest:
    """One element of every output for each index of the domain, the first output's extents."""
    dims = request.outputs[0].dims
    state: dict[str, object] = {"bounds": [0, 0], "masks": False}

    def write(writer, groups):
        writer.masks = state["masks"]
        names = [f"i{g}" for g in range(len(groups))]
        # Values that depend on the outer indexes only are written outside of the innermost loop.
        outer = writer.root.child(*names[:-1])
        places = state["bounds"]
        blocks = []
        for piece, (first, end) in enumerate(itertools.pairwise(places)):
            writer.piece = piece
            if len(places) > 2:
                writer.ranges = {groups[-1][-1]: (first, end - 1)}
            block = outer.child(*names[-1:])
            _element(request, writer, dims, block)
            blocks.append(block)
        state["outer"], state["blocks"] = outer, blocks

    def between(writer, groups):
        sizes = group_sizes(dims, groups)
        if (
            not (request.supports_loop_splitting and writer.guards)
            or _tiled_dimension(writer, groups, sizes) is not None
        ):
            return False
        state["bounds"] = bounds(writer, groups, dims)
        state["masks"] = bool(sizes) and sizes[-1] >= MASKED
        return True

    writer, groups = with_merged(request, dims, write, between=between)
    sizes = group_sizes(dims, groups)
    named = extents(writer, dims, groups)
    outer, blocks = state["outer"], state["blocks"]
    work = request.flops()
    total = request.outputs[0].shape.size
    tiled = _tiled_dimension(writer, groups, sizes)
    if tiled is not None:
        return _tiles(request, writer, named, groups, sizes, tiled, outer, blocks[0])
    cut = len(blocks) > 1
    if cut:
        texts = [bound_text(writer, place, named[-1][1], sizes[-1]) for place in state["bounds"]]
    if len(groups) <= 1:
        writer.root.body += outer.body
        writer.root.body.append(Pieces(named[0][0], texts, blocks, ("lo", "hi")) if cut else Items(named, blocks[0]))
        return finish(request, writer, "loop", writer.root, total, work)
    outer.body.append(Pieces(named[-1][0], texts, blocks) if cut else Inner(*named[-1], blocks[0]))
    order = (
        _item_order(writer, groups, sizes, request.outputs[0])
        if request.supports_loop_splitting
        else range(len(groups) - 1)
    )
    writer.root.body.append(Items([named[g] for g in order], outer))
    items = total // sizes[-1] if sizes[-1] else 0
    return finish(request, writer, "loop", writer.root, items, work * sizes[-1], sizes[-1])


def _element(request: KernelRequest, writer, dims, block: Block) -> None:
    """One element of every output, in `block`."""
    index = variables(dims)
    values = [writer.value(output, index, block) for output in request.outputs]
    for k, (output, value) in enumerate(zip(request.outputs, values, strict=True)):
        place = linear(index, output.dims)
        streamed = request.streamed(k) and not _is_arithmetic(request)
        writer.store(request.output_name(k), place, output.dtype, value, block, streamed)


def _is_arithmetic(request: KernelRequest) -> bool:
    """Whether arithmetic bounds the kernel, which then hides that an ordinary store reads its line first."""
    return request.flops() * request.outputs[0].shape.size > BALANCE * request.moved


def _tiled_dimension(writer, groups, sizes) -> int | None:
    """The dimension along which an input is contiguous while the innermost one jumps; None where there is none."""
    if len(groups) < 2:
        return None
    last = groups[-1][-1]
    for affines in writer.loads.values():
        for affine in affines:
            if affine.terms.get(last, 0) in (0, 1, -1):
                continue
            for g, group in enumerate(groups[:-1]):
                if affine.terms.get(group[-1], 0) in (1, -1) and sizes[g] >= 8 and sizes[-1] >= 8:
                    return g
    return None


def _item_order(writer, groups, sizes, output) -> list[int]:
    """The dimensions of the items, the slowest first: those of the output, or of the inputs where rows are short.

    A row is contiguous on both sides. Of rows shorter than a memory page, those that are read one after the other
    should be neighbours: what is read is waited for, what is written is not.
    """
    natural = list(range(len(groups) - 1))
    last = groups[-1][-1]
    if sizes[-1] * output.dtype.itemsize >= PAGE:
        return natural
    orders = set()
    for affines in writer.loads.values():
        for affine in affines:
            steps = [affine.terms.get(groups[g][-1], 0) for g in natural]
            if affine.terms.get(last, 0) == 1 and all(steps):
                orders.add(tuple(sorted(natural, key=lambda g: -abs(steps[g]))))
    return list(orders.pop()) if len(orders) == 1 else natural


def _tiles(request, writer, named, groups, sizes, across: int, outer: Block, inner: Block) -> Nest:
    staged = _staged(writer, groups, across, inner)
    widest = max((DTYPES[dtype].itemsize for _, dtype, _ in staged), default=8)
    tall, wide = ACROSS_BYTES // max(widest, 4), ALONG
    body = Block(writer.root, inner.variables, [*outer.body, *inner.body])
    rest = [pair for g, pair in enumerate(named[:-1]) if g != across]
    writer.root.body.append(Tiles(rest, named[across], named[-1], (tall, wide), body, staged))
    tiles = -(-sizes[across] // tall) * -(-sizes[-1] // wide)
    for g, size in enumerate(sizes[:-1]):
        if g != across:
            tiles *= size
    return finish(request, writer, "transpose", writer.root, tiles, request.flops() * tall * wide, sizes[-1])


def _staged(writer, groups, across: int, inner: Block) -> list[tuple[str, str, str]]:
    """The loads of inputs that are contiguous along `across`: a target reads a tile of them into an array first.

    Walking down their columns instead, a tile's rows would lie a large power of two apart for common extents, and evict
    each other from the first-level cache.
    """
    last, far = groups[-1][-1], groups[across][-1]
    staged = []
    for block, name, affine, dtype, text in writer.load_sites:
        contiguous = affine.terms.get(far, 0) in (1, -1) and affine.terms.get(last, 0) not in (0, 1, -1)
        computed = any(isinstance(variable, str) for variable in affine.terms)  # known only inside of the body
        if block is not inner or not contiguous or computed or dtype == PRED:
            continue
        staged.append((name, HLO_NAME[compute_dtype(dtype)], text))
    return staged
