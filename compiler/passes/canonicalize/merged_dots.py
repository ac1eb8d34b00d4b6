"""merge-dots: merges dots of few rows with the same matrix into one dot of stacked rows.

    x1 w, x2 w, ... = slices of [x1; x2; ...] w

This occurs in recurrent networks unrolled by a Python loop (or an exporter): each step reads the whole matrix for a
row. Dots that depend on each other are not merged.
"""

from __future__ import annotations

from collections.abc import Iterable

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations
from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops.linalg.dot import dot_dims
from hloom.ir.rewrite import has_effects, sweep

NAME = "merge-dots"
FEWEST = 4  # minimum number of dots
TURNED = 16  # minimum number of rows if the matrix is contracted along its rows, as it is transposed first
ROWS = 16  # maximum number of rows of a dot: for more, the products take longer than reading the matrix
NEAR = 32 << 10  # bytes of a matrix that stays in the L1 cache, where rereading is free
MATRICES = 16  # maximum number of groups, as each takes a walk over all instructions


@module_pass(NAME, "dot")
def merge_dots(module: Module) -> Module:
    """Merges dots of few rows with the same matrix into one dot."""
    return change_computations(module, _merged)


def _merged(computation: Computation) -> Computation:
    found: dict[tuple, list[Instruction]] = {}
    for instruction in computation.instructions:
        if instruction.opcode == "dot" and (key := _key(instruction)) is not None:
            found.setdefault(key, []).append(instruction)
    # Sizes are tested last, as each decision on open sizes excludes some.
    short = [[dot for dot in dots if _is_short(dot)] for dots in found.values() if len(dots) >= FEWEST]
    several = sorted((dots for dots in short if len(dots) >= FEWEST), key=len, reverse=True)[:MATRICES]
    place = {dot: dot for dots in several for dot in dots}  # the position of each after the changes so far
    for dots in several:
        first = {place[dot]: dot for dot in dots}
        levels = [[first[dot] for dot in group] for group in _independent(computation, list(first))]
        for level in levels:
            group = [place[dot] for dot in level]
            if _pays(group) and not _has_effects_between(computation, group):
                computation = _with_one(computation, group, place)
    return computation


def _sides(dot: Instruction) -> tuple[int, int]:
    """(index of the operand with the rows, index of the matrix): a vector may be on either side."""
    x, w = dot.operands
    return (1, 0) if len(w.dims) == 1 or (len(x.dims) == 2 and w.shape.size in w.dims and w.dims[-1] == 1) else (0, 1)


def _key(dot: Instruction) -> tuple | None:
    """The common key of dots that may be merged; None for a dot that is not."""
    lb, rb, *contracting = dot_dims(dot.attributes)
    rows, matrix = _sides(dot)
    x, w = dot.operands[rows], dot.operands[matrix]
    if lb or rb or len(contracting[0]) != 1 or len(w.dims) != 2 or not x.dims or 0 in (*x.dims, *w.dims) or x is w:
        return None
    (across,), (along,) = contracting[rows], contracting[matrix]
    if across != len(x.dims) - 1 and x.shape.size != x.dims[across]:
        return None
    others = sorted((name, str(v)) for name, v in dot.attributes.items() if not name.endswith("_dims"))
    return (w, along, x.dtype, dot.dtype, dot.device, *others)


def _is_short(dot: Instruction) -> bool:
    """Whether reading the matrix takes longer than the products."""
    rows, matrix = _sides(dot)
    x, w, across = dot.operands[rows], dot.operands[matrix], dot_dims(dot.attributes)[2 + rows][0]
    return w.shape.bytes > NEAR and x.shape.size <= (ROWS if rows == 0 else 1) * x.dims[across]


def _independent(computation: Computation, dots: list[Instruction]) -> list[list[Instruction]]:
    """The dots in groups of independent ones, by the number of dots that each depends on."""
    wanted, level = set(dots), dict[Instruction, int]()
    groups: dict[int, list[Instruction]] = {}
    for instruction in computation.instructions:
        before = max((level[o] for o in instruction.operands), default=0)
        if instruction in wanted:
            groups.setdefault(before, []).append(instruction)
            before += 1
        level[instruction] = before
    return [group for group in groups.values() if len(group) >= FEWEST]


def _pays(group: list[Instruction]) -> bool:
    """Whether the bytes moved for merging are fewer than the saved reads of the matrix."""
    matrix = _sides(group[0])[1]
    w, (along,) = group[0].operands[matrix], dot_dims(group[0].attributes)[2 + matrix]
    columns = w.dims[1 - along]
    if w.opcode == "transpose":
        along = w["dimensions"][along]
    if along == 1 and sum(dot.shape.size for dot in group) < TURNED * columns:
        return False
    moved = sum(dot.operands[_sides(dot)[0]].shape.size + dot.shape.size for dot in group)
    return 2 * moved <= (len(group) - 1) * w.shape.size


def _has_effects_between(computation: Computation, group: list[Instruction]) -> bool:
    """Whether instructions with effects are in the range to be reordered."""
    instructions = computation.instructions
    first, last = instructions.index(group[0]), instructions.index(group[-1])
    return any(map(has_effects, instructions[first:last]))


def _with_one(computation: Computation, group: list[Instruction], place: dict[Instruction, Instruction]) -> Computation:
    """The computation with one dot for a group, at the position where all operands are available."""
    builder = Builder(computation.name)
    mapped: dict[Instruction, Instruction] = {}
    members = set(group)
    needed = list(dict.fromkeys(o for dot in group for o in dot.operands))
    for instruction in computation.instructions:
        stack = [instruction]
        while stack:
            current = stack[-1]
            if current in mapped:
                stack.pop()
                continue
            waiting = [o for o in (needed if current in members else current.operands) if o not in mapped]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if current in members:
                with builder.provenance(group[0], NAME):
                    mapped |= zip(group, _one(builder, group, mapped), strict=True)
            else:
                operands = tuple([mapped[o] for o in current.operands])
                mapped[current] = builder.add(
                    current if operands == current.operands else current.with_operands(operands)
                )
    for dot, now in place.items():
        place[dot] = mapped[now]
    return sweep(Computation(computation.name, computation.parameters, builder.instructions, mapped[computation.root]))


def _one(builder: Builder, group: list[Instruction], mapped: dict[Instruction, Instruction]) -> Iterable[Instruction]:
    """The results of the dots of a group, as parts of the merged one."""
    first, matrix = group[0], _sides(group[0])[1]
    w, along = mapped[first.operands[matrix]], dot_dims(first.attributes)[2 + matrix]
    depth, columns = w.dims[along[0]], w.dims[1 - along[0]]
    counts = [dot.shape.size // columns for dot in group]
    rows = []
    for dot, count in zip(group, counts, strict=True):
        x = mapped[dot.operands[_sides(dot)[0]]]
        rows.append(builder.emit("reshape", x, shape=x.shape.with_dims((count, depth))))
    stacked = builder.emit("concatenate", *rows, dimensions=(0,))
    attributes = first.attributes | {"lhs_contracting_dims": (1,), "rhs_contracting_dims": along}
    product = builder.emit("dot", stacked, w, shape=first.shape.with_dims((sum(counts), columns)), **attributes)
    start = 0
    for dot, count in zip(group, counts, strict=True):
        part = builder.emit("slice", product, slice=((start, start + count, 1), (0, columns, 1)))
        start += count
        yield builder.emit("reshape", part, shape=dot.shape)
