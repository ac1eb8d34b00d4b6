"""Each kind of loop nest, compiled, against the reference interpreter: odd extents, 0 and 1, rank 0, every dtype."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_programs import computation
from kernel_checks import check
from plan_simulator import simulate, small_cuts
from random_programs import arguments, assert_near, largest_and_place, reference

from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cpu.target import host_target
from hloom.ir.build import Builder, Value
from hloom.ir.module import Module
from hloom.ir.types import DTYPES, PRED, Shape

NUMBERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "c64", "c128")
ALL = ("pred", *NUMBERS)
EXTENTS = [(), (1,), (0,), (7,), (1, 1), (3, 0), (0, 5), (5, 1, 9), (33, 65)]


# --- loops --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", EXTENTS, ids=str)
def test_loop(dims):
    program = computation([("f32", dims), ("f32", dims)], lambda x, y: (x * y - 0.5).op("tanh") + x)
    check(program, ["loop"] if 0 not in dims else [])


def test_loops_of_every_dtype():
    def build(*values):
        return tuple(v.op("xor", v) if v.dtype == PRED else v * v + v for v in values)

    check(computation([(t, (3, 5)) for t in ALL], build))


def test_a_broadcast_row_column_and_scalar_meet():
    def build(x, row, column, scalar):
        return x + row.broadcast(x.dims, (1,)) * column.broadcast(x.dims, (0,)) - scalar.broadcast(x.dims, ())

    program = computation([("f32", (7, 13)), ("f32", (13,)), ("f32", (7,)), ("f32", ())], build)
    compiled = check(program, ["loop"])
    # What depends on the row only is loaded outside of the inner loop.
    outer, inner = compiled.source().split("for i1 in")
    assert outer.count("= in") == 2 and inner.count("= in") == 2


def test_neighbouring_dimensions_are_one_loop():
    source = check(computation([("f32", (3, 4, 5, 6))], lambda x: x + x)).source()
    assert source.count("for ") - source.count("# ") <= 1 and "for i0 in range(lo, hi)" in source


INDEX_OPS = {
    "reverse": lambda x: x.op("reverse", dimensions=(0, 2)),
    "slice": lambda x: x.op("slice", slice=((1, 5, 2), (0, 7, 3), (2, 3, 1))),
    "nothing of it": lambda x: x.op("slice", slice=((2, 2, 1), (0, 7, 1), (0, 9, 1))),
    "pad": lambda x: x.op("pad", x.like(0.5).op("slice", slice=((0, 1, 1),) * 3).reshape(()),
                          padding=((1, 2, 0), (-2, 0, 1), (0, -3, 2))),
    "concatenate": lambda x: x.op("concatenate", x, x.op("slice", slice=((0, 5, 1), (0, 2, 1), (0, 9, 1))),
                                  dimensions=(1,)),
    "reshape": lambda x: x.reshape((9, 35)).op("reverse", dimensions=(0,)),
    "reshape apart": lambda x: (x + x).reshape((45, 7)).op("transpose", dimensions=(1, 0)),
    "iota": lambda x: x * Value(x.builder, x.builder.emit("iota", shape=x.shape, iota_dimension=1)),
}  # fmt: skip


@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("name", INDEX_OPS)
def test_index_maps(name, fusion):
    check(computation([("f32", (5, 7, 9))], lambda x: INDEX_OPS[name](x + 1.0) * 2.0), fusion=fusion)


def test_index_maps_one_after_the_other():
    def build(x):
        for name in ("reverse", "pad", "concatenate", "slice"):
            x = INDEX_OPS[name](x) if name != "slice" else x.op("slice", slice=((0, 5, 2), (1, 9, 1), (1, 9, 3)))
            if name == "pad":
                x = x.op("slice", slice=((0, 5, 1), (0, 7, 1), (0, 9, 1)))
        return x.op("tanh")

    check(computation([("f32", (5, 7, 9))], build))


@pytest.mark.parametrize("start", [-3, 0, 2, 9])
def test_windows_are_clamped(start):
    def build(x, y):
        where = [Value(x.builder, x.builder.constant(start, "s32")), Value(x.builder, x.builder.constant(1, "s64"))]
        piece = x.op("dynamic-slice", *where, dynamic_slice_sizes=(2, 3))
        return piece * 2.0, x.op("dynamic-update-slice", y + piece, *where)

    check(computation([("f32", (6, 7)), ("f32", (2, 3))], build))


# --- transposes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims,order", [
    ((65, 33), (1, 0)), ((64, 64), (1, 0)), ((3, 40, 70), (0, 2, 1)), ((40, 3, 70), (2, 1, 0)),
    ((9, 8, 10, 11), (3, 1, 0, 2)), ((1, 50, 40), (2, 0, 1)), ((0, 50, 40), (2, 0, 1)), ((2, 3), (1, 0)),
], ids=str)  # fmt: skip
def test_transposes(dims, order):
    check(computation([("f32", dims)], lambda x: (x * 2.0).op("transpose", dimensions=order) + 1.0))


@pytest.mark.parametrize("dtype", ["pred", "bf16", "f16", "u8", "s32", "u64", "c64", "f64"])
def test_transposes_of_every_width(dtype):
    check(computation([(dtype, (77, 139))], lambda x: x.op("transpose", dimensions=(1, 0))))  # squares, and rests


@pytest.mark.parametrize("dims,order,fastest", [
    ((3, 5, 4, 9), (0, 2, 1, 3), "i1"), ((3, 5, 4, 9), (2, 1, 0, 3), "i0"), ((5, 4, 1024), (1, 0, 2), "i1"),
], ids=str)  # fmt: skip
def test_short_rows_are_gone_through_as_they_are_read(dims, order, fastest):
    turned = tuple(dims[k] for k in order)
    program = computation(
        [("f32", dims), ("f32", dims[-1:])],
        lambda x, b: (x * 2.0).op("transpose", dimensions=order) + b.broadcast(turned, (len(dims) - 1,)),
    )
    (kernel,) = check(program, ["loop"]).plan.kernels()
    assert f"{fastest} = item - rest0 *" in kernel.launch.source.text  # rows of a page or more are written in order


def test_a_transpose_added_to_its_input():
    check(computation([("f32", (70, 70))], lambda x: x + x.op("transpose", dimensions=(1, 0))))


# --- rows ---------------------------------------------------------------------------------------------------------


def softmax(x):
    d = len(x.dims) - 1
    power = (x - x.reduce("maximum", -np.inf, [d]).broadcast(x.dims, range(d))).op("exponential")
    return power / power.sum([d]).broadcast(x.dims, range(d))


def layer_norm(x):
    d = len(x.dims) - 1
    mean = (x.sum([d]) * (1 / max(x.dims[-1], 1))).broadcast(x.dims, range(d))
    variance = ((x - mean) * (x - mean)).sum([d]) * (1 / max(x.dims[-1], 1))
    return (x - mean) * (variance + 1e-5).op("rsqrt").broadcast(x.dims, range(d))


ROWS = {
    "one level": lambda x: (x * x).sum([len(x.dims) - 1]),
    "one level and back": lambda x: x * (x * x).sum([len(x.dims) - 1]).broadcast(x.dims, range(len(x.dims) - 1)),
    "two levels": layer_norm,
    "three levels": lambda x: layer_norm(softmax(x)),
    "two outputs": lambda x: (softmax(x), x.reduce("maximum", -np.inf, [len(x.dims) - 1])),
}


@pytest.mark.parametrize("dims", [(1,), (9,), (1, 1), (5, 1), (1, 9), (0, 9), (5, 0), (17, 33), (3, 1, 20), (2, 3, 1)],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize("name", ROWS)
def test_rows(name, dims):
    if 0 in dims and name in ("three levels", "two levels"):
        pytest.skip("0 / 0 in every row")
    check(computation([("f32", dims)], ROWS[name]))


@pytest.mark.parametrize("rows", [1, 4, 40])
def test_long_rows(rows):
    """Few long rows would be reduced in chunks, but what is computed from their sums keeps them in one kernel."""
    check(computation([("f32", (rows, 20000))], softmax), ["row"])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "s32", "u64", "c64"])
def test_rows_of_every_dtype(dtype):
    def build(x):
        total = (x + x).sum([1])
        return x * total.broadcast(x.dims, (0,)), total

    check(computation([(dtype, (5, 9))], build), ["row"])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("width", [9, 70])
@pytest.mark.parametrize("largest", [True, False], ids=["maximum", "minimum"])
def test_largest_and_smallest_elements_of_rows(largest, width, dtype):
    """NaNs of both signs, infinities, zeros of both signs and small numbers; in a row nest and in a reduction."""
    random = np.random.default_rng(5)
    special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-7, -1e-7, 1.0]
    rows = [np.full(width, s) for s in special] + [random.permutation(np.resize(special, width)) for _ in range(4)]
    rows += [random.permutation(np.resize(special[2:], width)) for _ in range(4)]
    rows += [random.choice([0.0, -0.0], width) for _ in range(4)] + [random.normal(size=width) for _ in range(4)]
    x = np.array(rows).astype(DTYPES[dtype])
    name, start = ("maximum", -np.inf) if largest else ("minimum", np.inf)
    wanted = [np.nan if np.isnan(row).any() else (max if largest else min)(
        row.astype(np.float64), key=lambda v: (v, not np.signbit(v))) for row in x]  # fmt: skip
    wanted = np.array(wanted).astype(DTYPES[dtype]).astype(np.float64)

    def check_rows(kind, x, wanted):
        program = computation([(dtype, x.shape)], lambda x: x.reduce(name, start, [1]))
        compiled = compile_module(Module(kind, program))
        text = compiled.plan.kernels()[0].launch.source
        assert text.name.startswith(kind) and f"{name[:3]}key_" in text.text
        found = compiled([x])[0].astype(np.float64)
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(wanted[wanted == 0]))

    check_rows("row", x, wanted)
    for k in range(0, len(x) - 2, 2):  # of two long rows each is cut into chunks
        check_rows("reduce", np.tile(x[k : k + 2], (1, 90_000 // width)), wanted[k : k + 2])


def centred(x):
    value = (x - (x.sum([1]) * 0.25).broadcast(x.dims, (0,))).op("tanh")
    return value, value.sum([1])


SWEEPS = {
    "by the sweep of the sum": (lambda x: (x.op("tanh") * 2, (x.op("tanh") * 2).sum([1])), 1),
    "by that of the second sum": (centred, 2),
    "and read again": (lambda x: (x + x, (x + x) / (x + x).sum([1]).broadcast(x.dims, (0,))), 2),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("name", SWEEPS)
def test_outputs_that_a_sweep_computes_anyway_are_stored_by_it(name, dtype):
    build, sweeps = SWEEPS[name]
    program = check(computation([(dtype, (6, 33))], build))
    (kernel,) = program.plan.kernels()
    assert kernel.launch.source.text.count("for i1 in") == sweeps


def test_a_row_needed_at_another_row_is_not_fused():
    def build(x):
        return x - x.sum([1]).op("reverse", dimensions=(0,)).broadcast(x.dims, (0,))

    check(computation([("f32", (9, 9))], build))


def test_sums_beside_a_reduced_dimension_of_extent_one():
    check(computation([("f32", (9, 1, 9))], lambda x: x - x.sum([1, 2]).broadcast(x.dims, (0,))))


# --- reductions ---------------------------------------------------------------------------------------------------

SUBSETS = [d for n in range(8) for d in [[k for k in range(3) if n >> k & 1]]]


@pytest.mark.parametrize("dims", [(5, 7, 9), (1, 8, 3), (3, 0, 2), (40, 1, 1100)], ids=str)
def test_sums_over_every_subset(dims):
    def build(x):
        return tuple((x * 0.5).sum(subset) for subset in SUBSETS)

    check(computation([("f32", dims)], build))


def test_large_reductions_in_chunks():
    def build(x, y):
        return x.sum([0]), x.sum([0, 1]), y.reduce("maximum", -np.inf, [0, 2]), (y * y).sum([1])

    check(computation([("f32", (300, 1030)), ("f32", (20, 110, 30))], build))


@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum", "minimum", "and", "or", "xor"])
def test_combiners_of_every_dtype(opcode):
    shapes = []
    for t in ALL:
        integral = t[0] in "su" and t[-1].isdigit()
        if opcode in ("and", "or", "xor") and not (integral or t == "pred"):
            continue
        if opcode == "multiply" and t in ("f16", "bf16"):
            continue
        shapes += [(t, (4, 5))]

    def build(*values):
        starts = {"add": 0, "multiply": 1, "maximum": -9, "minimum": 9, "and": -1, "or": 0, "xor": 5}
        results = []
        for v in values:
            start = starts[opcode] if v.dtype != PRED else opcode in ("and", "minimum", "multiply")
            if v.dtype.kind == "u":
                start = abs(start) if opcode != "and" else np.iinfo(v.dtype).max
            results += [v.reduce(opcode, start, [0]), v.reduce(opcode, start, [1])]
        return tuple(results)

    check(computation(shapes, build))


@pytest.mark.parametrize("dimensions", [(0,), (1,), (0, 1), (0, 2), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("fusion", [True, False])
def test_several_operands_and_any_combiner(dimensions, fusion):
    """The largest element and its place."""
    builder = Builder("places")
    x = builder.parameter(Shape("f32", (6, 7, 5)))
    place = builder.emit("iota", shape=Shape("s32", (6, 7, 5)), iota_dimension=dimensions[0])
    start, zero = builder.constant(np.float32(-np.inf)), builder.constant(0, "s32")
    doubled = builder.emit("add", x, x)
    best = builder.emit("reduce", doubled, place, start, zero, dimensions=dimensions,
                        to_apply=largest_and_place(DTYPES["f32"]))  # fmt: skip
    parts = [builder.emit("get-tuple-element", best, index=k) for k in range(2)]
    check(builder.finish(builder.tuple([*parts, builder.emit("negate", parts[0])])), fusion=fusion)


def test_two_searches_side_by_side():
    """Reductions of several operands over one input: their results are as many outputs."""
    builder = Builder("searches")
    x = builder.parameter(Shape("f32", (20, 30)))
    found = []
    for array in (x, builder.emit("negate", x)):
        place = builder.emit("iota", shape=Shape("s32", (20, 30)), iota_dimension=1)
        best = builder.emit("reduce", array, place, builder.constant(np.float32(-np.inf)), builder.constant(0, "s32"),
                            dimensions=(1,), to_apply=largest_and_place(DTYPES["f32"]))  # fmt: skip
        found += [builder.emit("get-tuple-element", best, index=k) for k in range(2)]
    check(builder.finish(builder.tuple(found)))


def test_the_root_may_be_a_search_itself():
    builder = Builder("search")
    x = builder.parameter(Shape("f32", (4, 6)))
    place = builder.emit("iota", shape=Shape("s32", (4, 6)), iota_dimension=1)
    check(builder.finish(builder.emit(
        "reduce", x, place, builder.constant(np.float32(-np.inf)), builder.constant(0, "s32"), dimensions=(1,),
        to_apply=largest_and_place(DTYPES["f32"]))))  # fmt: skip


def test_a_combiner_that_is_no_single_op():
    """a + b + ab: associative, but known to no accumulator."""
    inner = Builder("odd")
    a, b = (Value(inner, inner.parameter(Shape("f64"))) for _ in range(2))
    combiner = inner.finish((a + b + a * b).instruction)
    builder = Builder("odd_reduce")
    x = builder.parameter(Shape("f64", (3, 4, 5)))
    zero = builder.constant(np.float64(0.25))
    dimensions = [(0,), (2,), (0, 1, 2), (0, 2)]
    results = [builder.emit("reduce", x, zero, dimensions=d, to_apply=combiner) for d in dimensions]
    check(builder.finish(builder.tuple(results)))


def test_small_cuts_of_reductions(monkeypatch):
    """The same kernels with thresholds so low that all of their chunks and blocks are there, texts run in Python."""
    small_cuts(monkeypatch)

    def build(x):
        results = [(x * 0.5).sum(subset) for subset in SUBSETS]
        return (*results, x.reduce("maximum", 1.0, [0]) * 2.0, x - x.sum([0, 1, 2]).broadcast(x.dims, ()))

    module = Module("cuts", computation([("f32", (7, 5, 11))], build))
    arrays = arguments(module, 3)
    want, scale, _ = reference(module, arrays)
    plan = make_plan(run_passes(module, PIPELINE), host_target())
    assert max(s.launch.temporaries.get("part0_0", 0) for s in plan.kernels()) > 4 * 55
    for got, expected in zip(simulate(plan, arrays), want, strict=True):
        assert_near(got, expected, 1e-5, scale, exact=False)


# --- updates in place ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "bf16", "pred", "c128"])
@pytest.mark.parametrize("start", [-1, 2, 50])
def test_updates(dtype, start):
    def build(x, piece, row):
        where = [row, Value(x.builder, x.builder.constant(start, "s32"))]
        base = x.op("not") if dtype == "pred" else x + x
        return base.op("dynamic-update-slice", piece, *where)

    program = computation([(dtype, (9, 8)), (dtype, (3, 2)), ("s32", ())], build)
    check(program, ["loop", "update"])


# --- contractions -------------------------------------------------------------------------------------------------


def dot(x, y, lhs, rhs, batch=0):
    return x.op("dot", y, lhs_batch_dims=tuple(range(batch)), rhs_batch_dims=tuple(range(batch)),
                lhs_contracting_dims=(lhs,), rhs_contracting_dims=(rhs,))  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16", "s8", "u8", "s16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("dims", [(5, 7, 9), (1, 1, 1), (33, 1, 17), (4, 0, 3), (0, 4, 3)], ids=str)
def test_products(dims, dtype):
    m, k, n = dims
    check(computation([(dtype, (m, k)), (dtype, (k, n))], lambda x, y: dot(x, y, 1, 0)))


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_products_of_complex_numbers(dtype):
    check(computation([(dtype, (5, 7)), (dtype, (7, 4))], lambda x, y: dot(x, y, 1, 0)))


@pytest.mark.parametrize("lhs,rhs", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_products_of_transposed_operands(lhs, rhs):
    shapes = [("f32", (19, 6) if lhs == 0 else (6, 19)), ("f32", (19, 8) if rhs == 0 else (8, 19))]
    check(computation(shapes, lambda x, y: dot(x, y, lhs, rhs)))


def test_prologue_epilogue_and_a_second_output():
    def build(x, y, bias):
        total = dot(x * 2.0 + 1.0, y.op("negate"), 1, 0) + bias.broadcast((20, 30), (1,))
        return total.op("tanh"), total

    check(computation([("f32", (20, 40)), ("f32", (40, 30)), ("f32", (30,))], build), ["product"] * 2)


def test_a_reshaped_result_with_an_epilogue():
    def build(x, y, bias):
        result = dot(x, y, 1, 0).reshape((4, 6, 2, 15))
        return result + bias.broadcast(result.dims, (1, 3))

    check(computation([("f32", (24, 10)), ("f32", (10, 30)), ("f32", (6, 15))], build))


def test_batches():
    def build(x, y, scale):
        return dot(x, y, 2, 1, batch=1) * scale.broadcast((3, 5, 8), (0,))

    check(computation([("f32", (3, 5, 7)), ("f32", (3, 7, 8)), ("f32", (3,))], build))


def test_an_epilogue_that_overwrites_its_operand():
    shapes = [("f32", (30, 20)), ("f32", (20, 25)), ("f32", (30, 25))]
    program = computation(shapes, lambda x, y, z: z - dot(x, y, 1, 0))
    compiled = check(program, donated=frozenset([2]))
    assert compiled.plan.donated == {0: 2}


# Reductions over rows and over columns, with outputs of the kept and of all extents: results -> the donated argument.
OVERWRITTEN = {
    "sums of columns": (lambda x, p: ((x * x).sum([0]), x.sum([0]) * p), (3, 40), (40,)),
    "sums of rows": (lambda x, p: ((x * x).sum([1]), x.sum([1]) * p), (5, 9), (5,)),
    "long rows": (lambda x, p: ((x * x).sum([1]), x.sum([1]) * p), (2, 20000), (2,)),
    "elements beside sums": (lambda x, p: (x * 2.0, p * x, (x * x).sum([0])), (3, 40), (3, 40)),
    "elements beside long rows": (lambda x, p: (x * 2.0, p * x, (x * x).sum([1])), (2, 20000), (2, 20000)),
    "elements": (lambda x, p: (x * 2.0, p * x), (3, 40), (3, 40)),
}


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_an_output_may_overwrite_what_another_output_reads(name):
    """The first output has the buffer of p, and only the second one reads p."""
    build, dims, other = OVERWRITTEN[name]
    compiled = check(computation([("f32", dims), ("f32", other)], build), donated=frozenset([1]))
    assert compiled.plan.donated == {0: 1}


def test_attention_without_masks():
    def build(q, k, v):
        scores = dot(q, k, 2, 2, batch=1) * 0.25
        return dot(softmax(scores), v, 2, 1, batch=1)

    check(computation([("f32", (2, 9, 4)), ("f32", (2, 11, 4)), ("f32", (2, 11, 5))], build))
