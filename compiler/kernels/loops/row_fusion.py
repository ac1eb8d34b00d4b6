"""The row nest: softmax, layer norm, log-sum-exp, sums of rows.

Reductions over the trailing dimensions with what comes before, between and after them, in rows that stay in cache.
"""

from __future__ import annotations

from hloom.compiler.kernels.codegen.affine import linear, variables
from hloom.compiler.kernels.codegen.description import Block, Collective, Items, Lanes, Nest, Serial
from hloom.compiler.kernels.codegen.elements import load
from hloom.compiler.kernels.loops.accumulators import Reduction
from hloom.compiler.kernels.loops.short_rows import is_short, short_nest
from hloom.compiler.kernels.request import KernelRequest, extents, finish, group_sizes, with_merged
from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.types import compute_dtype

EXPENSIVE = 8  # flops from which a value that two sweeps over the row need is kept in an output's row between them


def row_nest(request: KernelRequest) -> Nest:
    """One work item a row. Outputs have the domain's extents or those of its kept dimensions."""
    computation = request.computation
    if is_short(computation):
        return short_nest(request)
    reduces = [i for i in computation.instructions if i.opcode == "reduce"]
    dims = reduces[0].operands[0].dims
    kept = len(dims) - len(reduces[0]["dimensions"])
    levels = reduction_levels(computation, set(reduces))
    depth = max(levels[r] for r in reduces)
    vector_outputs = [k for k, o in enumerate(request.outputs) if o.dims == dims]
    early = _early(request, levels, reduces, dims, vector_outputs)
    last = [k for k in vector_outputs if k not in early]
    stashed = _stash(request, levels, reduces, dims, last)
    state: dict[str, object] = {}

    def write(writer, groups):
        outer = [g for g, group in enumerate(groups) if group[0] < kept]
        inner = [g for g, group in enumerate(groups) if group[0] >= kept]
        index = variables(dims)
        row = writer.root.child(*(f"i{g}" for g in outer))
        kept_in: dict[Instruction, str] = {}
        for level in range(1, depth + 1):
            here = [Reduction(r, keys=request.supports_loop_splitting) for r in reduces if levels[r] == level]
            for reduction in here:
                reduction.start(writer, row)
            block = row.child(*(f"i{g}" for g in inner))
            _recall(writer, block, index, dims, kept_in)
            for reduction in here:
                values = [writer.value(array, index, block) for array in reduction.arrays]
                reduction.take(writer, block, values)
            for value, pointer in stashed.items():
                if value not in kept_in and any((value, index) in b.memo for b in block.chain()):
                    writer.store(pointer, linear(index, dims), value.dtype, writer.value(value, index, block), block)
                    kept_in[value] = pointer
            for k in [k for k in early if early[k] == level]:
                output = request.outputs[k]
                value = writer.value(output, index, block)
                streamed = request.streamed(k) and level == depth and not last  # nothing reads its row again
                writer.store(request.output_name(k), linear(index, dims), output.dtype, value, block, streamed)
                if compute_dtype(output.dtype) == output.dtype:
                    kept_in[output] = request.output_name(k)
            _sweep(writer, row, block, groups, inner)
            for reduction in here:
                _finish(writer, row, reduction)
        block = row.child(*(f"i{g}" for g in inner))
        _recall(writer, block, index, dims, kept_in)
        # All values before all stores: an output may overwrite an input that another output still reads.
        values = {k: writer.value(request.outputs[k], index, block) for k in last}
        for k, value in values.items():
            pointer = request.output_name(k)
            streamed = request.streamed(k) and pointer not in stashed.values()  # else its row is in the cache already
            writer.store(pointer, linear(index, dims), request.outputs[k].dtype, value, block, streamed)
        if last:
            _sweep(writer, row, block, groups, inner)
        others = {k: o for k, o in enumerate(request.outputs) if k not in vector_outputs}
        values = {k: writer.value(o, index[: len(o.dims)], row) for k, o in others.items()}
        for k, output in others.items():
            at = linear(index[: len(output.dims)], output.dims)
            writer.store(request.output_name(k), at, output.dtype, values[k], row)
        state.update(row=row, outer=outer, inner=inner)

    def _sweep(writer, row, block, groups, inner):
        _loops(writer, row, block, dims, groups, inner)

    writer, groups = with_merged(request, dims, write, barriers=(kept,))
    sizes = group_sizes(dims, groups)
    named = extents(writer, dims, groups)
    rows = width = 1
    for g in state["outer"]:
        rows *= sizes[g]
    for g in state["inner"]:
        width *= sizes[g]
    # Lanes can share a row only where there is a loop over it, and its parts can be joined.
    shared = bool(state["inner"]) and all(Reduction(r).splittable for r in reduces)
    writer.root.body.append(Items([named[g] for g in state["outer"]], state["row"], "row" if shared else "serial"))
    return finish(request, writer, "row", writer.root, rows, request.flops() * width, width)


def _loops(writer, row: Block, block: Block, dims, groups, inner) -> None:
    """Puts `block` into the loops over the row: Lanes over the innermost merged dimension, Serial over the others."""
    named = extents(writer, dims, groups)
    if not inner:
        row.body.extend(block.body)
        return
    node = Lanes(*named[inner[-1]], block)
    for g in reversed(inner[:-1]):
        variable, extent = named[g]
        body = Block(row, row.variables | {variable}, [node])
        node = Serial(variable, "0", extent, body)
    row.body.append(node)


def _finish(writer, row: Block, reduction: Reduction) -> None:
    reduction.settle(writer, row)
    if reduction.splittable:
        row.body.append(Collective(reduction.names[0], reduction.opcode, reduction.kind))
    results = reduction.finish(writer, row)
    if len(results) == 1:
        writer.overrides[reduction.instruction] = (results[0], row)
    else:
        writer.elements[reduction.instruction] = [(name, row) for name in results]


def _recall(writer, block, index, dims, kept_in) -> None:
    """Values that an earlier sweep left in an output's row are read from there."""
    for value, pointer in kept_in.items():
        name = writer.fresh()
        block.body.append(f"{name} = {load(pointer, writer.text(linear(index, dims), pointer), value.dtype)}")
        block.memo[(value, index)] = (name, block)


def reduction_levels(computation, reduces) -> dict[Instruction, int]:
    """How many reductions, one after the other, each value depends on (a reduction counts itself)."""
    levels: dict[Instruction, int] = {}
    for instruction in computation.instructions:
        below = max((levels[o] for o in instruction.operands), default=0)
        levels[instruction] = below + (instruction in reduces)
    return levels


def _early(request, levels, reduces, dims, vector_outputs) -> dict[int, int]:
    """Outputs that a reduction's sweep computes anyway, and stores -> the level of that sweep."""
    found = {}
    for k in vector_outputs:
        level = levels[request.outputs[k]] + 1
        operands = [operand for r in reduces if levels[r] == level for operand in r.operands]
        if k not in request.shared and request.outputs[k] in _needed(operands, dims):
            found[k] = level
    return found


def _stash(request, levels, reduces, dims, vector_outputs) -> dict[Instruction, str]:
    """Expensive values that a reduction's sweep and a later one need -> the output whose row holds them meanwhile."""
    free = [k for k in vector_outputs if k not in request.shared]
    if not free:
        return {}
    later = _needed([request.outputs[k] for k in vector_outputs], dims)
    earlier: set[Instruction] = set()
    for reduce in reduces:
        earlier |= _needed(reduce.operands, dims)
    candidates = [
        i
        for i in request.computation.instructions
        if i in later
        and i in earlier
        and i.dims == dims
        and OPS[i.opcode].flops >= EXPENSIVE
        and compute_dtype(i.dtype) == i.dtype
    ]
    result = {}
    for value in reversed(candidates):  # the last ones contain the work of those before them
        k = next((k for k in free if request.outputs[k].dtype == value.dtype), None)
        if k is not None:
            result[value] = request.output_name(k)
            free.remove(k)
    return result


def _needed(roots, dims) -> set[Instruction]:
    """The full-size values that an evaluation of the roots computes for each element (not through reductions)."""
    seen: set[Instruction] = set()
    stack = list(roots)
    while stack:
        instruction = stack.pop()
        if instruction in seen or instruction.opcode in ("reduce", "parameter"):
            continue
        seen.add(instruction)
        stack.extend(instruction.operands)
    return {i for i in seen if i.dims == dims}
