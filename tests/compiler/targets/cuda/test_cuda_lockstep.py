"""Kernels of the CUDA target, simulated thread by thread, against the reference interpreter."""

import random

import numpy as np
import pytest
from cuda_programs import (
    bias_gelu,
    check,
    computation,
    inputs,
    layer_norm,
    log_sum_exp,
    request,
    simulated,
    softmax,
    transposed,
)
from kernel_nests import nests
from random_graphs import Graphs

from hloom.compiler.fusibility import has_expression
from hloom.compiler.targets.cuda.codegen.render import render
from hloom.ir.build import Builder
from hloom.ir.types import DTYPES, Shape

BOTH_ORDERS = pytest.mark.parametrize("reverse", [False, True])


def grains(program, shared=None) -> list[str]:
    return [render(nest).grain for nest in nests(request(program, shared))]


# --- element-wise -------------------------------------------------------------------------------------------------


@BOTH_ORDERS
def test_a_chain_with_a_broadcast_row(reverse):
    program = bias_gelu(9, 77)
    assert grains(program) == ["element"]
    check(program, reverse=reverse)


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_any_grid_does_all_the_items(blocks):
    check(softmax(9, 77), blocks=blocks, threads=64)
    check(transposed(2, 33, 40), blocks=blocks, threads=64)


def test_padding_outside_and_between():
    def build(x):
        fill = x.builder.constant(np.float32(0.5))
        padded = x.builder.emit("pad", x.instruction, fill, padding=((1, 2, 1), (0, 3, 2)))
        return type(x)(x.builder, padded) * 2.0

    check(computation([("f32", (5, 7))], build))


def test_concatenation():
    def build(x, y):
        joined = x.builder.emit("concatenate", x.instruction, y.instruction, dimensions=(1,))
        return type(x)(x.builder, joined).op("tanh")

    check(computation([("f32", (6, 5)), ("f32", (6, 8))], build))


def test_slices_with_strides_reversed_and_reshaped():
    def build(x):
        part = x.op("slice", slice=((1, 9, 2), (0, 15, 3))).op("reverse", dimensions=(1,))
        return part.reshape((5, 4)) + 1.0

    check(computation([("f32", (9, 15))], build))


def test_several_outputs_of_several_dtypes():
    def build(x, y):
        total = x + y
        return total, total.compare("GT", y), total.convert("bf16"), total.convert("s8"), total.convert("f16")

    check(computation([("f32", (11, 13)), ("f32", (11, 13))], build))


@pytest.mark.parametrize("dtype", ["s8", "u8", "s16", "u32", "s64", "u64"])
def test_integers_wrap_and_divide_by_zero_as_hlo_says(dtype):
    def build(x, y):
        return x * y + x, x / y, x.op("remainder", y), x.op("shift-left", y), x.op("maximum", y)

    check(computation([(dtype, (5, 9)), (dtype, (5, 9))], build))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "c64", "pred"])
def test_other_dtypes(dtype):
    def build(x, y):
        return x.op("xor", y) if dtype == "pred" else x * y + x

    check(computation([(dtype, (5, 9)), (dtype, (5, 9))], build))


def test_a_scalar_and_an_update_in_place():
    check(computation([("f32", ()), ("f32", ())], lambda x, y: x * y))

    def build(x, y, start):
        updated = x.builder.emit("dynamic-update-slice", x.instruction, y.instruction, start.instruction)
        return type(x)(x.builder, updated)

    program = computation([("f32", (40,)), ("f32", (7,)), ("s32", ())], build)
    check(program, shared={0: 0})


@pytest.mark.parametrize("size", [1, 3, 4, 5, 127, 1030])
def test_four_elements_a_thread_and_the_rest(size):
    def build(x, y, z):
        return x * y.convert("f32"), z, x.compare("GT", y.convert("f32"))

    shapes = [("f32", (size,)), ("bf16", (size,)), ("pred", (size,))]
    check(computation(shapes, build), threads=32)
    check(computation([("f32", (size,)), ("f32", (size,))], lambda x, y: x * 2.0 + y), shared={0: 0})


def test_random_element_wise_graphs():
    """Chains of element-wise ops and movement, in both orders of the threads."""
    done = 0
    for seed in range(600):
        program = Graphs(random.Random(seed), integral=False).module(12).entry
        outputs = program.outputs()
        fused = all(has_expression(i) or i.opcode in ("parameter", "tuple") for i in program.instructions)
        if not fused or any(o.dims != outputs[0].dims for o in outputs) or not outputs[0].shape.size:
            continue
        # Between two ops of one kernel a bf16 value is not rounded.
        narrow = any(i.shape.dtype == DTYPES["bf16"] for i in program.instructions if i.opcode != "tuple")
        check(program, tolerance=2**-6 if narrow else 2e-5, reverse=bool(seed % 2))
        done += 1
    assert done > 100


# --- rows ---------------------------------------------------------------------------------------------------------


@BOTH_ORDERS
@pytest.mark.parametrize("program", [softmax(7, 45), layer_norm(5, 70), log_sum_exp(18, 33)], ids=lambda p: p.name)
def test_short_rows_are_done_by_warps(program, reverse):
    assert grains(program) == ["warp"]
    check(program, reverse=reverse)


@BOTH_ORDERS
@pytest.mark.parametrize("program", [softmax(3, 1100), layer_norm(2, 1029)], ids=lambda p: p.name)
def test_long_rows_are_done_by_blocks(program, reverse):
    assert grains(program) == ["block"]
    check(program, reverse=reverse, blocks=2)


@pytest.mark.parametrize("columns", [1, 2, 31, 32, 33])
def test_rows_at_the_edges_of_a_warp(columns):
    check(softmax(17, columns))


def test_rows_of_two_dimensions_that_do_not_merge():
    def build(x, y):
        weighted = x * y.broadcast(x.dims, (0, 2))
        return weighted / weighted.op("abs").sum([1, 2]).broadcast(x.dims, (0,))

    program = computation([("f32", (5, 4, 37)), ("f32", (5, 37))], build)
    (nest,) = nests(request(program))
    assert "i1 < n1" in render(nest).text and "i2 += 32" in render(nest).text
    check(program)


def test_a_row_in_place():
    check(softmax(7, 45), shared={0: 0})
    check(softmax(3, 1100), shared={0: 0}, threads=64)


def arg_max(rows, columns):
    """(maximum, its index) of each row: a reduction of two arrays, whose combiner is no single op."""
    builder = Builder("arg_max_combiner")
    f32, s32 = Shape(DTYPES["f32"]), Shape(DTYPES["s32"])
    value, place, other, other_place = (builder.parameter(shape) for shape in (f32, s32, f32, s32))
    first = builder.emit("compare", value, other, direction="GE")
    chosen = builder.emit("select", first, value, other)
    combiner = builder.finish(builder.tuple([chosen, builder.emit("select", first, place, other_place)]))

    def build(x):
        index = x.builder.emit("iota", shape=Shape(DTYPES["s32"], x.dims), iota_dimension=1)
        start = x.builder.constant(np.float32(-np.inf)), x.builder.constant(np.int32(0))
        both = x.builder.emit("reduce", x.instruction, index, *start, dimensions=(1,), to_apply=combiner)
        return tuple(type(x)(x.builder, x.builder.emit("get-tuple-element", both, index=k)) for k in range(2))

    return computation([("f32", (rows, columns))], build, "arg_max")


def test_a_combiner_that_cannot_be_split_is_done_by_one_thread():
    program = arg_max(19, 23)
    assert grains(program) == ["serial"]
    check(program)


# --- reductions ---------------------------------------------------------------------------------------------------


@BOTH_ORDERS
@pytest.mark.parametrize("dimensions", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_sums_over_any_dimensions(dimensions, reverse):
    check(computation([("f32", (6, 5, 37))], lambda x: x.op("abs").sum(dimensions) * 0.5), reverse=reverse)


@pytest.mark.parametrize("dimensions", [(0,), (1,)])
@pytest.mark.parametrize(
    "dtype, opcode, initial",
    [
        ("f32", "multiply", 1), ("f32", "maximum", -np.inf), ("f32", "minimum", 3.0), ("s32", "add", 4),
        ("u8", "maximum", 0), ("s64", "minimum", 5), ("pred", "and", True), ("pred", "or", False), ("s16", "xor", 0),
        ("c64", "add", 0), ("bf16", "maximum", -np.inf), ("f64", "add", 0), ("u64", "multiply", 1),
    ],
)  # fmt: skip
def test_combiners_and_dtypes(dtype, opcode, initial, dimensions):
    check(
        computation([(dtype, (41, 3 if opcode == "multiply" else 35))], lambda x: x.reduce(opcode, initial, dimensions))
    )


def test_a_long_sum_is_cut_into_chunks():
    program = computation([("f32", (3, 40000))], lambda x: x.sum([0, 1]))
    first, join = (render(nest) for nest in nests(request(program)))
    assert (first.grain, join.grain) == ("block", "serial") and first.items > 1
    check(program)


def test_few_long_rows_write_the_elements_along_the_way():
    check(computation([("f32", (2, 20000))], lambda x: ((x * 2.0).sum([1]), x * 2.0)), threads=256)


def test_a_combiner_that_is_no_known_op():
    builder = Builder("weighted")
    a, b = (builder.parameter(Shape(DTYPES["f32"])) for _ in range(2))
    combiner = builder.finish(builder.emit("add", builder.emit("multiply", a, builder.constant(np.float32(0.5))), b))

    def build(x):
        start = x.builder.constant(np.float32(1))
        return type(x)(x.builder, x.builder.emit("reduce", x.instruction, start, dimensions=(0,), to_apply=combiner))

    check(computation([("f32", (21, 6))], build))


# --- transposes ---------------------------------------------------------------------------------------------------


@BOTH_ORDERS
@pytest.mark.parametrize("dtype", ["f32", "pred", "bf16", "c64", "s8"])
def test_a_transpose_goes_through_a_shared_tile(dtype, reverse):
    program = transposed(2, 37, 45, dtype)
    (nest,) = nests(request(program))
    source = render(nest)
    assert source.grain == "tile"
    if dtype != "pred":
        first, second = source.text.split("cuda.syncthreads()")[:2]
        assert "] = in0[" in first or "] = load_bf16(in0, " in first, "not staged"
        assert "in1" in second and "in1" not in first.split(":", 1)[1], "staged without need"
    check(program, reverse=reverse, threads=64)


def test_tiles_that_find_no_room_are_read_where_they_are_used():
    def build(*operands):
        total = operands[0].op("transpose", dimensions=(1, 0))
        for operand in operands[1:]:
            total = total + operand.op("transpose", dimensions=(1, 0))
        return total

    program = computation([("c128", (20, 21))] * 4, build)
    (nest,) = nests(request(program))
    text = render(nest).text
    assert text.count("cuda.shared.array") == 2 and text.count("stage") == 6
    check(program, threads=64)


def test_two_transposed_inputs_have_a_tile_each():
    def build(x, y):
        return x.op("transpose", dimensions=(1, 0)) - y.op("transpose", dimensions=(1, 0)).op("abs")

    program = computation([("f32", (33, 34)), ("f64", (33, 34))], lambda x, y: build(x.convert("f64"), y))
    (nest,) = nests(request(program))
    assert render(nest).text.count("cuda.shared.array") == 2
    check(program, threads=96)


def test_the_same_bits_for_any_order_and_grid():
    program = softmax(5, 1500)
    arrays = inputs(program)
    results = [
        simulated(program, arrays, blocks=blocks, reverse=reverse)[0].tobytes()
        for blocks in (1, 3)
        for reverse in (False, True)
    ]
    assert len(set(results)) == 1


@pytest.mark.parametrize("columns", [8, 12, 10])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "pred", "s8"])
def test_rows_of_multiples_of_four_are_read_by_vectors(dtype, columns):
    def build(x, row, column):
        wide = row.broadcast(x.dims, (1,))
        both = x.op("and", wide) if dtype == "pred" else x + wide
        tall = column.broadcast(x.dims, (0,))
        return both.op("xor", tall) if dtype == "pred" else both * tall

    program = computation([(dtype, (7, columns)), (dtype, (columns,)), (dtype, (7,))], build)
    (nest,) = nests(request(program))
    source = render(nest)
    assert source.text.count("copy4(") == (3 if columns % 4 == 0 else 0)
    assert source.alignment == (16 if columns % 4 == 0 else 1)
    check(program, reverse=True)
    check(program, shared={0: 0})


def test_rows_that_begin_anywhere_are_read_one_by_one():
    def build(x):
        return x.op("slice", slice=((0, 6, 1), (1, 9, 1))) + x.op("slice", slice=((0, 6, 1), (4, 12, 1)))

    program = computation([("f32", (6, 12))], build)
    (nest,) = nests(request(program))
    assert "copy4" not in render(nest).text
    check(program)


@pytest.mark.parametrize("dims, reduced", [((12, 40), (0,)), ((3, 5, 9), (1,)), ((4, 6, 7), (0, 2)), ((20, 5), (0,))])
def test_what_is_not_cut_is_one_kernel(dims, reduced):
    program = computation([("f32", dims)], lambda x: x.sum(reduced) * 2.0)
    assert len(nests(request(program))) == 1
    check(program, reverse=True)
    both = computation([("f32", dims)], lambda x: (x.sum(reduced), x * 3.0))
    check(both)
