"""The loop nest: element-wise work over one domain, any index maps, several outputs; in tiles where an input is read
across the grain (transposes)."""

from __future__ import annotations

from hloom.compiler.kernels.affine import linear, variables
from hloom.compiler.kernels.description import Block, Inner, Items, Nest, Tiles
from hloom.compiler.kernels.request import KernelRequest, extents, finish, group_sizes, two_passes

TILE = 32  # elements a side: 32 rows of 32 float32 are 4 KiB, and a cache line of the far side is used whole


def loop_nest(request: KernelRequest) -> Nest:
    """One element of every output for each index of the domain, the first output's extents."""
    dims = request.outputs[0].dims
    state: dict[str, object] = {}

    def write(writer, groups):
        block = Block(writer.root)
        names = [f"i{g}" for g in range(len(groups))]
        # Values that depend on the outer indexes only are written outside of the innermost loop.
        outer = writer.root.child(*names[:-1]) if len(groups) > 1 else writer.root.child(*names)
        block = outer.child(*names[-1:]) if len(groups) > 1 else outer
        index = variables(dims)
        values = [writer.value(output, index, block) for output in request.outputs]
        for k, (output, value) in enumerate(zip(request.outputs, values, strict=True)):
            writer.store(request.output_name(k), linear(index, output.dims), output.dtype, value, block)
        state["outer"], state["inner"] = outer, block

    writer, groups = two_passes(request, dims, write)
    sizes = group_sizes(dims, groups)
    named = extents(writer, dims, groups)
    outer, inner = state["outer"], state["inner"]
    work = request.flops()
    total = request.outputs[0].shape.size
    tiled = _tiled_dimension(writer, groups, sizes)
    if tiled is not None:
        return _tiles(request, writer, named, sizes, tiled, outer, inner)
    if len(groups) <= 1:
        writer.root.body.append(Items(named, outer))
        return finish(request, writer, "loop", writer.root, total, work)
    outer.body.append(Inner(*named[-1], inner))
    writer.root.body.append(Items(named[:-1], outer))
    items = total // sizes[-1] if sizes[-1] else 0
    return finish(request, writer, "loop", writer.root, items, work * sizes[-1])


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


def _tiles(request, writer, named, sizes, across: int, outer: Block, inner: Block) -> Nest:
    body = Block(writer.root, inner.variables, [*outer.body, *inner.body])
    rest = [pair for g, pair in enumerate(named[:-1]) if g != across]
    writer.root.body.append(Tiles(rest, named[across], named[-1], TILE, body))
    tiles = -(-sizes[across] // TILE) * -(-sizes[-1] // TILE)
    for g, size in enumerate(sizes[:-1]):
        if g != across:
            tiles *= size
    return finish(request, writer, "transpose", writer.root, tiles, request.flops() * TILE * TILE)
