"""Factor rules of the op table: their form, and that an op on parts of its operands makes parts of its result."""

import math
from functools import lru_cache

import derivative_cases
import numpy as np
import op_modules
import pytest

from hloom.ir.build import Builder, scalar_computation
from hloom.ir.interpret import evaluate_instruction, observed, run
from hloom.ir.op_table import OPS
from hloom.ir.ops.reductions.window import WindowDimension
from hloom.ir.spmd.factors import OWN, result_shapes
from hloom.ir.types import FLOATS8, INEXACT, Shape, TupleShape

NOT_A_FUNCTION = ("parameter", "constant", "iota", "rng-bit-generator")  # of operands, or counts through the whole


@lru_cache(maxsize=1)
def samples():
    """(instruction, values of its operands, its value) of every op with a rule in the cases of the other tests, once
    for each opcode, shapes and attributes."""
    found, seen = [], set()

    def finished(computation, values):
        for instruction in computation.instructions:
            key = (instruction.opcode, tuple(o.shape for o in instruction.operands), repr(instruction.attributes))
            if OPS[instruction.opcode].factors and key not in seen:
                seen.add(key)
                found.append((instruction, [values[o] for o in instruction.operands], values[instruction]))

    with observed(finished), np.errstate(all="ignore"):
        for given in op_modules.cases():
            if not {"custom-call", "send", "recv"} & {i.opcode for i in given.module.instructions()}:
                run(given.module, given.arguments)
        for given in derivative_cases.CASES:
            computation = given.computation()
            values = {p: np.asarray(a) for p, a in zip(computation.parameters, given.arguments(), strict=True)}
            for i in computation.instructions:
                if i not in values:
                    values[i] = evaluate_instruction(i, [values[o] for o in i.operands])
            finished(computation, values)
    return found


def test_every_op_has_a_rule_or_says_why_not():
    for name, entry in OPS.items():
        if not entry.factors:
            assert entry.factors.reason not in ("", "not declared yet"), f"'{name}' has no factors part"


def test_every_rule_is_used():
    used = {i.opcode for i, _, _ in samples()} | {"kernel-map"}  # of users' kernels: tests/hloom/kernels
    missing = {name for name, entry in OPS.items() if entry.factors} - used
    assert not missing, f"no case has {sorted(missing)}: add a module to tests/support/op_modules.py"


def test_the_form_of_all_rules():
    for instruction, _, _ in samples():
        rule = OPS[instruction.opcode].factors(instruction)
        arrays = [*(o.shape for o in instruction.operands), *result_shapes(instruction.shape)]
        given = [*rule.operands, *rule.results]
        assert len(arrays) == len(given), instruction
        of_results = {f for r in rule.results for d in r for f in d}
        for shape, factors in zip(arrays, given, strict=True):
            assert len(shape.dims) == len(factors), instruction
            for size, these in zip(shape.dims, factors, strict=True):
                assert size == 1 or these or 0 in shape.dims, instruction
                if not set(these) & rule.windows:
                    assert math.prod(rule.sizes[f] for f in these) == size, instruction
            used = [f for these in factors for f in these]
            assert len(set(used)) == len(used), f"{instruction}: a factor twice in one array"
        assert not rule.reduction & of_results and not rule.reduction & rule.whole
        assert rule.combiner == OWN or OPS[rule.combiner].associative
        for kinds in (rule.reduction, rule.whole, rule.windows, rule.masked):
            assert all(f < len(rule.sizes) for f in kinds)


def cut(array, factors, factor, part):
    """The part of an array along a factor: None where another factor is major to it in the dimension."""
    for d, these in enumerate(factors):
        if factor in these:
            if these[0] != factor:
                return None
            size = array.shape[d]
            unit = size // SIZES[0] if len(these) > 1 else 1
            bounds = (0, HALF[0] * unit) if part == 0 else (HALF[0] * unit, size)
            return array[(slice(None),) * d + (slice(*bounds),)]
    return array


SIZES, HALF = [0], [0]


def localized(instruction, operands, shape):
    """The attributes for local operands and result."""
    attributes = dict(instruction.attributes)
    if instruction.opcode == "slice":
        attributes["slice"] = tuple(
            (0, size, 1) if (start, limit, step) == (0, old, 1) else (start, limit, step)
            for (start, limit, step), size, old in zip(
                attributes["slice"], operands[0].shape, instruction.operands[0].dims, strict=True
            )
        )
    elif instruction.opcode == "dynamic-slice":
        attributes["dynamic_slice_sizes"] = shape.dims
    elif instruction.opcode == "gather":
        attributes["slice_sizes"] = tuple(
            min(new, size) if size == old else size
            for size, new, old in zip(
                attributes["slice_sizes"], operands[0].shape, instruction.operands[0].dims, strict=True
            )
        )
    return attributes


def computed(instruction, rule, factor, part, operands, value):
    """The op on a part of its operands, and the part of the whole result; None where a dimension can't be cut so."""
    local = [cut(o, f, factor, part) for o, f in zip(operands, rule.operands, strict=True)]
    results = value if isinstance(value, tuple) else (value,)
    expected = [cut(np.asarray(r), f, factor, part) for r, f in zip(results, rule.results, strict=True)]
    if any(x is None for x in (*local, *expected)):
        return None
    shapes = [Shape(r.dtype, r.shape) for r in expected]
    shape = TupleShape(shapes) if isinstance(instruction.shape, TupleShape) else shapes[0]
    attributes = localized(instruction, local, shape)
    with np.errstate(all="ignore"):
        found = OPS[instruction.opcode].reference(*local, shape=shape, **attributes)
    return found if isinstance(found, tuple) else (found,), expected


def close(found, expected, dtype):
    if dtype in INEXACT:
        loose = 0.3 if dtype in FLOATS8 else {1: 0.3, 2: 3e-2}.get(dtype.itemsize, 2e-4)
        wide = np.complex128 if dtype.kind == "c" else np.float64
        np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol=loose, atol=loose)
    else:
        np.testing.assert_array_equal(found, expected)


def chosen(opcode):
    return [s for s in samples() if s[0].opcode == opcode]


WITH_RULES = sorted(name for name, entry in OPS.items() if entry.factors and name not in NOT_A_FUNCTION)


@pytest.mark.parametrize("opcode", WITH_RULES)
def test_parts_of_operands_give_parts_of_the_result(opcode):
    for instruction, operands, value in chosen(opcode):
        rule = OPS[opcode].factors(instruction)
        masked = {f for f in rule.masked if f not in rule.reduction}
        for factor in rule.splittable - rule.reduction - masked - {f for f, _ in rule.local}:
            if rule.sizes[factor] < 2:
                continue
            SIZES[0], HALF[0] = rule.sizes[factor], rule.sizes[factor] // 2
            for part in range(2):
                made = computed(instruction, rule, factor, part, operands, value)
                for found, expected in zip(*made, strict=True) if made else ():
                    assert found.shape == expected.shape, (instruction, instruction.attributes, factor)
                    close(np.asarray(found), expected, expected.dtype)


@pytest.mark.parametrize("opcode", WITH_RULES)
def test_parts_of_a_reduction_combine_to_the_result(opcode):
    for instruction, operands, value in chosen(opcode):
        rule = OPS[opcode].factors(instruction)
        if rule.combiner == OWN or isinstance(value, tuple):
            continue
        combiner = OPS[rule.combiner]
        for factor in rule.reduction - rule.masked - rule.windows:
            size = rule.sizes[factor]
            if size < 2:
                continue
            SIZES[0], HALF[0] = size, size // 2
            parts = []
            for part in range(2):
                given = list(operands)
                if part and opcode in ("reduce", "scatter"):
                    start = 0 if opcode == "scatter" else len(given) // 2
                    given[start] = np.full_like(given[start], combiner.neutral(given[start].dtype))
                made = computed(instruction, rule, factor, part, given, value)
                if made:
                    parts.append(np.asarray(made[0][0]))
            if parts:
                with np.errstate(all="ignore"):
                    total = combiner.reference(*parts, shape=instruction.shape)
                close(total, np.asarray(value), instruction.shape.dtype)


def made(opcode, *shapes, shape=None, **attributes):
    builder = Builder("main")
    return builder.emit(opcode, *[builder.parameter(s) for s in shapes], shape=shape, **attributes)


def rule_of(opcode, *shapes, **parts):
    return OPS[opcode].factors(made(opcode, *shapes, **parts))


F32 = np.dtype(np.float32)


def f32(*dims):
    return Shape(F32, dims)


def test_dot():
    rule = rule_of(
        "dot", f32(2, 3, 4), f32(2, 4, 5), lhs_batch_dims=(0,), rhs_batch_dims=(0,), lhs_contracting_dims=(2,),
        rhs_contracting_dims=(1,),
    )  # fmt: skip
    assert rule.operands == (((0,), (1,), (3,)), ((0,), (3,), (2,)))
    assert rule.results == (((0,), (1,), (2,)),)
    assert (rule.sizes, rule.reduction) == ((2, 3, 5, 4), {3})


@pytest.mark.parametrize(
    ("old", "new", "factors", "whole"),
    [
        ((12,), (3, 4), ([(0, 1)], [(0,), (1,)]), ()),
        ((2, 6, 5), (12, 5), ([(0,), (1,), (2,)], [(0, 1), (2,)]), ()),
        ((4, 6), (8, 3), ([(0,), (1, 2)], [(0, 1), (2,)]), ()),
        ((2, 3), (3, 2), ([(0,), (2,)], [(1,), (3,)]), (0, 1, 2, 3)),
        ((1, 5), (5, 1, 1), ([(), (0,)], [(0,), (), ()]), ()),
        ((7, 2, 3), (7, 3, 2), ([(0,), (1,), (3,)], [(0,), (2,), (4,)]), (1, 2, 3, 4)),
        ((), (1,), ([], [()]), ()),
    ],
)
def test_reshape(old, new, factors, whole):
    rule = rule_of("reshape", f32(*old), shape=f32(*new))
    assert ([*rule.operands[0]], [*rule.results[0]]) == factors
    assert rule.whole == set(whole)


def test_convolution():
    window = (WindowDimension(3, low=1, high=1), WindowDimension(1))
    attributes = {"window": window, "dim_labels": "b01f_01io->b01f"}
    rule = rule_of("convolution", f32(8, 16, 16, 4), f32(3, 1, 4, 6), **attributes)
    batch, output, features, rows, columns = 0, 1, 2, 3, 4
    assert rule.operands[0] == ((batch,), (rows,), (columns,), (features,))
    assert rule.operands[1][1:] == ((), (features,), (output,))
    assert rule.results[0] == ((batch,), (rows,), (columns,), (output,))
    assert (rule.reduction, rule.windows) == ({features}, {rows})
    grouped = rule_of("convolution", f32(8, 16, 16, 4), f32(3, 1, 1, 8), **attributes, feature_group_count=4)
    assert grouped.local == ((0, "feature_group_count"),)
    assert grouped.results[0][3] == (0, 2) and grouped.operands[0][3] == (0, 3)


def test_the_gradient_of_a_kernel_is_a_sum_over_space():
    window = (WindowDimension(16, low=1, high=1),)
    rule = rule_of("convolution", f32(8, 16, 4), f32(8, 16, 6), window=window, dim_labels="f0b_i0o->0bf")
    space = rule.operands[0][1][0]
    assert rule.operands[1][1] == (space,) and space in rule.reduction & rule.windows


def test_lookup_in_a_table():
    indices = Shape(np.dtype(np.int32), (32, 8))
    rule = rule_of(
        "gather", f32(1000, 64), indices, offset_dims=(2,), collapsed_slice_dims=(0,), start_index_map=(0,),
        index_vector_dim=2, slice_sizes=(1, 64),
    )  # fmt: skip
    (vocabulary,), (features,) = rule.operands[0]
    assert vocabulary in rule.reduction & rule.masked
    assert rule.results[0] == (rule.operands[1][0], rule.operands[1][1], (features,))


def test_scatter_add():
    indices = Shape(np.dtype(np.int32), (32,))
    attributes = {
        "update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1,
    }  # fmt: skip
    add = scalar_computation("add", F32)
    rule = rule_of("scatter", f32(1000, 64), indices, f32(32, 64), **attributes, to_apply=add)
    assert rule.operands[0] == rule.results[0]
    assert rule.operands[0][0][0] in rule.masked - rule.reduction
    assert rule.operands[1][0] == rule.operands[2][0] and rule.operands[1][0][0] in rule.reduction
    assert rule.combiner == "add"


def test_scatter_of_windows_at_the_beginning_of_a_dimension():
    """No index says where along dimension 1 the windows lie, which are smaller than it."""
    attributes = {
        "update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1, "to_apply": scalar_computation("add", F32),
    }  # fmt: skip
    rule = rule_of("scatter", f32(10, 8), Shape(np.dtype(np.int32), (4,)), f32(4, 3), **attributes)
    (indexed,), (beginning,) = rule.operands[0]
    assert indexed in rule.masked and beginning in rule.whole - rule.masked
