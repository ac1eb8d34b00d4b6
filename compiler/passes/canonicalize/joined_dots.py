"""join-dots: merges a sum of many dots of equal sizes into one dot of concatenated operands.

    a1 b1 + a2 b2 + ... = [a1 a2 ...] [b1; b2; ...]

This occurs in the gradient of a matrix used in each step of a Python loop. Separately, each dot writes a result that
the sum reads again, which takes longer than the few products of a step.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter

import numpy as np

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations, replaced
from hloom.ir.build import Builder, Value
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops.linalg.dot import dot_dims
from hloom.ir.types import PRED

NAME = "join-dots"
FEWEST = 3  # minimum number of dots


@module_pass(NAME, "dot")
def join_dots(module: Module) -> Module:
    """Merges sums of small dots of equal sizes into one dot of concatenated operands."""
    return change_computations(module, _joined)


def _joined(computation: Computation) -> Computation:
    if sum(i.opcode == "dot" for i in computation.instructions) < FEWEST:
        return computation
    uses = Counter(o for i in computation.instructions for o in i.operands)
    uses[computation.root] += 1
    adds = [i for i in computation.instructions if i.opcode == "add" and i.dtype != PRED]
    # Adds whose result is used only by another add of the same sum.
    inner = {o for i in adds for o in i.operands if o.opcode == "add" and uses[o] == 1 and o.dims == i.dims}
    sums = {}
    for i in adds:
        if i not in inner:
            terms = [old for old, _ in _terms(i, i, inner)]
            groups = _groups(terms, uses) if all(t.dims == i.dims for t in terms) else []
            if groups:
                sums[i] = groups

    def make(builder: Builder, current: Instruction, original: Instruction) -> Instruction:
        return _sum(builder, _terms(original, current, inner), sums[original])

    return replaced(computation, NAME, sums.__contains__, make)


def _sum(
    builder: Builder, pairs: list[tuple[Instruction, Instruction]], groups: list[list[Instruction]]
) -> Instruction:
    """The sum of terms (term, replacement), with each group of dots merged."""
    new = dict(pairs)
    joined = {dot for group in groups for dot in group}
    dots = (_side_by_side(builder, [new[dot] for dot in group]) for group in groups)
    rest = (Value(builder, value) for term, value in pairs if term not in joined)
    return functools.reduce(operator.add, itertools.chain(dots, rest)).instruction


def _terms(original: Instruction, current: Instruction, inner: set[Instruction]):
    """(term, replacement) of a sum, in order."""
    stack, found = [(original, current)], []
    while stack:
        old, new = stack.pop()
        if old is original or old in inner:
            stack += reversed(list(zip(old.operands, new.operands, strict=True)))
        else:
            found.append((old, new))
    return found


def _groups(terms: list[Instruction], uses: Counter) -> list[list[Instruction]]:
    """The groups of dots among the terms of a sum to merge."""
    found: dict[tuple, list[Instruction]] = {}
    for term in terms:
        if term.opcode == "dot" and uses[term] == 1:
            lb, _, lc, rc = dot_dims(term.attributes)
            if len(lc) == 1 and not lb:
                x, y = term.operands
                others = [tuple(n for k, n in enumerate(o.dims) if (k,) != c) for o, c in ((x, lc), (y, rc))]
                key = (tuple(sorted(term.attributes.items(), key=str)), *others, x.dtype, y.dtype)
                found.setdefault(key, []).append(term)
    return [group for group in found.values() if len(group) >= FEWEST and _pays(group)]


def _pays(group: list[Instruction]) -> bool:
    """Whether the operands are smaller than the results, whose writes and reads are saved."""
    return sum(o.shape.size for dot in group for o in dot.operands) < len(group) * group[0].shape.size


def _side_by_side(builder: Builder, group: list[Instruction]) -> Value:
    first = group[0]
    _, _, lc, rc = dot_dims(first.attributes)
    operands = []
    for k, (d,) in enumerate((lc, rc)):
        arrays = [dot.operands[k] for dot in group]
        permutation = arrays[0].attributes.get("dimensions", ())
        turned = all(a.opcode == "transpose" and a["dimensions"] == permutation for a in arrays)
        parts = [Value(builder, a.operands[0] if turned else a) for a in arrays]
        place = permutation[d] if turned else d
        operand = _laid_out(builder, parts, place)
        operands.append(operand.transpose(permutation) if turned else operand)
    return operands[0].op("dot", operands[1], shape=first.shape, **first.attributes)


def _laid_out(builder: Builder, parts: list[Value], place: int) -> Value:
    """The parts concatenated along a dimension, copied one by one, as a loop over a concatenation of many would test
    each element for its part."""
    dims = list(parts[0].dims)
    dims[place] = sum(part.dims[place] for part in parts)
    first = parts[0].instruction.shape
    whole = Value(builder, builder.splat(0, first.with_dims(dims)))
    start = 0
    for part in parts:
        starts = [builder.constant(np.asarray(start if k == place else 0, np.int32)) for k in range(len(dims))]
        whole = Value(builder, builder.emit("dynamic-update-slice", whole.instruction, part.instruction, *starts))
        start += part.dims[place]
    return whole
