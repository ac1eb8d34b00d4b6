"""Factor rules of the ops that move elements, reduce and slide windows; see `hloom.ir.spmd.factors`."""

from __future__ import annotations

from hloom.ir.build import combiner_opcode
from hloom.ir.sizes.expressions import common_divisor
from hloom.ir.spmd.factors import OWN, FactorRule, RuleBuilder, along, pointwise
from hloom.ir.types import result_shapes


def broadcast_factors(instruction) -> FactorRule:
    rule = RuleBuilder(instruction)
    source = {target: d for d, target in enumerate(instruction["dimensions"])}
    for d in range(len(rule.result_dims[0])):
        rule.add({0: source[d]} if d in source else {}, {0: d})
    return rule.finish()


def transpose_factors(instruction) -> FactorRule:
    rule = RuleBuilder(instruction)
    for d, source in enumerate(instruction["dimensions"]):
        rule.add({0: source}, {0: d})
    return rule.finish()


def reshape_factors(instruction) -> FactorRule:
    """The greatest common divisor of the two sizes that begin at the same position is a factor of both dimensions. If
    it is 1, dimensions up to the next common boundary are needed as a whole."""
    rule = RuleBuilder(instruction)
    old, new = rule.operand_dims[0], rule.result_dims[0]
    if 0 in old:
        return rule.finish()
    i = j = -1
    a = b = 1  # the remaining sizes of dimension i of the operand and j of the result
    while True:
        while a == 1 and i + 1 < len(old):
            i += 1
            a = old[i]
        while b == 1 and j + 1 < len(new):
            j += 1
            b = new[j]
        if a == 1 or b == 1:
            return rule.finish()
        common = common_divisor(a, b)
        if common > 1:
            rule.add({0: i}, {0: j}, size=common)
            a, b = a // common, b // common
            continue
        rule.add({0: i}, {}, "whole", size=a)
        rule.add({}, {0: j}, "whole", size=b)
        while a != b:
            if a < b:
                i += 1
                a *= old[i]
                if old[i] > 1:
                    rule.add({0: i}, {}, "whole")
            else:
                j += 1
                b *= new[j]
                if new[j] > 1:
                    rule.add({}, {0: j}, "whole")
        a = b = 1


def reverse_factors(instruction) -> FactorRule:
    turned = instruction["dimensions"]
    return _shifted(instruction, [d in turned for d in range(len(instruction.shape.dims))])


def slice_factors(instruction) -> FactorRule:
    sizes = instruction.operands[0].shape.dims
    whole = [
        (start, limit, step) == (0, size, 1)
        for (start, limit, step), size in zip(instruction["slice"], sizes, strict=True)
    ]
    return _shifted(instruction, [not w for w in whole])


def pad_factors(instruction) -> FactorRule:
    return _shifted(instruction, [any(padding) for padding in instruction["padding"]])


def _shifted(instruction, moves: list[bool], arrays: int = 1) -> FactorRule:
    """Dimension by dimension, of the first `arrays` operands and all results; those with moves[d] need elements of
    neighbours. The remaining operands are scalars."""
    if not any(moves):
        return pointwise(instruction)
    rule = RuleBuilder(instruction)
    for d, moved in enumerate(moves):
        operands, results = dict.fromkeys(range(arrays), d), dict.fromkeys(range(len(rule.results)), d)
        rule.add(operands, results, *(["windows"] if moved else []))
    return rule.finish()


def concatenate_factors(instruction) -> FactorRule:
    moved = instruction["dimensions"]
    return _shifted(
        instruction, [d in moved for d in range(len(instruction.shape.dims))], arrays=len(instruction.operands)
    )


def dynamic_slice_factors(instruction) -> FactorRule:
    rule = RuleBuilder(instruction)
    for d, (size, part) in enumerate(zip(rule.operand_dims[0], rule.result_dims[0], strict=True)):
        if size == part:
            rule.add({0: d}, {0: d})
        else:
            rule.add({0: d}, {}, "reduction", "masked")
    return rule.finish()


def dynamic_update_slice_factors(instruction) -> FactorRule:
    rule = RuleBuilder(instruction)
    for d, (size, part) in enumerate(zip(*rule.operand_dims[:2], strict=True)):
        if size == part:
            rule.add({0: d, 1: d}, {0: d})
        else:
            rule.add({0: d}, {0: d}, "masked")
    return rule.finish()


def reduce_factors(instruction) -> FactorRule:
    count = len(instruction.operands) // 2
    opcode = combiner_opcode(instruction["to_apply"]) if count == 1 else None
    rule = RuleBuilder(instruction, opcode or OWN)
    kept = 0
    for d in range(len(rule.operand_dims[0])):
        operands = dict.fromkeys(range(count), d)
        if d in instruction["dimensions"]:
            rule.add(operands, {}, "reduction")
        else:
            rule.add(operands, dict.fromkeys(range(count), kept))
            kept += 1
    return rule.finish()


def window_factors(instruction) -> FactorRule:
    """reduce-window: arrays, then initial values; select-and-scatter: an operand and a source, then the value."""
    arrays = len(instruction.operands) // 2 if instruction.opcode == "reduce-window" else 2
    rank = len(instruction.operands[0].shape.dims)
    window = instruction.attributes.get("window", ())
    moves = [not d.is_plain() for d in window] if window else [False] * rank
    return _shifted(instruction, moves, arrays)


def each_alone(instruction) -> FactorRule:
    """Operand k corresponds to result k, of the same shape, and to no other one."""
    if len(instruction.operands) == 1:
        return pointwise(instruction)
    rule = RuleBuilder(instruction)
    for k, shape in enumerate(result_shapes(instruction.shape)):
        for d in range(len(shape.dims)):
            rule.add({k: d}, {k: d})
    return rule.finish()


def exchanged_factors(instruction) -> FactorRule:
    """A collective along its `dimensions`, which are needed as a whole; the others pass through."""
    dimensions = instruction.attributes.get("dimensions", ())
    if not dimensions:
        return each_alone(instruction)
    rule = RuleBuilder(instruction)
    for d in range(len(rule.operand_dims[0])):
        if d not in dimensions:
            rule.add({0: d}, {0: d})
    return rule.finish()


def along_dimensions(instruction) -> FactorRule:
    """A sort: its dimension is needed as a whole."""
    return along(instruction, instruction["dimensions"])
