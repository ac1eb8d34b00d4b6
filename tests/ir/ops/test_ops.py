"""The op table: every entry is whole, infers what its reference computes, and means what HLO says."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from op_modules import DOMAINS, RUN_DTYPES, argmax_combiner, arity, cases, numbers

from hloom.ir.build import Builder, combiner_opcode, scalar_computation
from hloom.ir.errors import AttributeValueError, DTypeError, HloomError, ShapeError
from hloom.ir.interpret import evaluate
from hloom.ir.op_table import op
from hloom.ir.ops import OPS, No
from hloom.ir.ops.programs.structure import CUSTOM_CALLS, register_custom_call
from hloom.ir.text.attributes import KINDS
from hloom.ir.types import COMPLEX, DTYPES, FLOATS, INEXACT, PRED, Shape, TupleShape

pytestmark = pytest.mark.quick

F32, S32 = np.float32, np.int32


def compute(opcode, *arrays, shape=None, **attributes):
    """The reference's answer for an op on arrays, its shape inferred."""
    b = Builder("f")
    arrays = [np.asarray(a) for a in arrays]
    parameters = [b.parameter(Shape(a.dtype, a.shape)) for a in arrays]
    return evaluate(b.finish(b.emit(opcode, *parameters, shape=shape, **attributes)), arrays)


# --- every entry --------------------------------------------------------------------------------------------------

FAMILIES = ("elementwise", "index", "reduce", "contraction", "structure")


@pytest.mark.parametrize("name", OPS)
def test_entry_is_whole(name):
    entry = OPS[name]
    assert entry.name == name and callable(entry.infer)
    for part in ("reference", "code", "jvp", "transpose"):
        value = getattr(entry, part)
        if isinstance(value, No):
            assert len(value.reason) > 10 and not value
        else:
            assert callable(value) or (part == "code" and isinstance(value, dict) and value)
    assert {kind.removesuffix("?") for kind in entry.attributes.values()} <= set(KINDS)
    assert entry.flops >= 0 and (entry.flops == 0 or entry.family != "index")
    # The algebra is of ops of two operands of one dtype.
    if entry.associative or entry.idempotent or entry.identity:
        assert arity(name)[0] == 2
    if entry.associative:
        assert entry.commutative and entry.identity


def test_an_op_is_declared_once():
    with pytest.raises(ValueError, match="declared twice"):
        op("add", family="elementwise", infer=None, reference=None, code=None, jvp=None, transpose=None)


ELEMENTWISE = [(name, d) for name in OPS for d in arity(name)[1] if d in RUN_DTYPES]


@pytest.mark.parametrize("name, dtype", ELEMENTWISE)
def test_elementwise_references_keep_every_shape(name, dtype):
    count = arity(name)[0]
    domain = DOMAINS.get(name, (-4.0, 4.0))
    whole = [numbers(dtype, (2, 3), k, *domain) for k in range(count)]
    result = compute(name, *whole)
    for dims in ((), (0,), (3, 0, 2)):
        operands = [numbers(dtype, dims, k, *domain) for k in range(count)]
        inferred = OPS[name].infer([Shape(dtype, dims)] * count, {}, None)
        found = compute(name, *operands)
        assert (found.dtype, found.shape) == (inferred.dtype, dims)
    # An element depends on its own operands alone, whatever the strides.
    turned = compute(name, *[np.asfortranarray(a) for a in whole])
    np.testing.assert_array_equal(turned, result)
    one = compute(name, *[a[1, 2] for a in whole])
    np.testing.assert_array_equal(one, result[1, 2])


@pytest.mark.parametrize("name, dtype", ELEMENTWISE)
def test_elementwise_expressions_are_python(name, dtype):
    entry = OPS[name]
    shapes = [Shape(dtype, (2,))] * arity(name)[0]
    shape = entry.infer(shapes, {}, None)
    text = entry.expression(shapes, shape, {}, ["x", "y", "z"][: len(shapes)])
    compile(text, name, "eval")


@pytest.mark.parametrize("name, dtype", [(n, d) for n, d in ELEMENTWISE if arity(n)[0] == 2])
def test_algebra_of_binary_ops(name, dtype):
    entry = OPS[name]
    pairs = [numbers(dtype, (40,), k) for k in (1, 2, 3)]
    if DTYPES[dtype] in INEXACT:
        pairs = [np.round(x) for x in pairs]  # sums and products of small whole numbers are exact
    x, y, z = pairs
    if entry.commutative:
        np.testing.assert_array_equal(compute(name, x, y), compute(name, y, x))
    if entry.associative and DTYPES[dtype] not in COMPLEX:
        left, right = compute(name, compute(name, x, y), z), compute(name, x, compute(name, y, z))
        np.testing.assert_array_equal(left, right)
    if entry.idempotent:
        np.testing.assert_array_equal(compute(name, x, x), x)
    if entry.identity is not None and DTYPES[dtype] not in COMPLEX:
        neutral = np.asarray(entry.identity(DTYPES[dtype])).astype(DTYPES[dtype])
        np.testing.assert_array_equal(compute(name, x, np.broadcast_to(neutral, x.shape)), x)


@pytest.mark.parametrize("name, dtype", [(n, d) for n, d in ELEMENTWISE if OPS[n].involution])
def test_involutions(name, dtype):
    x = numbers(dtype, (40,))
    np.testing.assert_array_equal(compute(name, compute(name, x)), x)


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_references_give_the_shapes_that_are_inferred(case):
    if case.name == "custom_calls":
        return  # it has no registered function; see below

    def check(value, shape):
        if isinstance(shape, TupleShape):
            assert isinstance(value, tuple) and len(value) == len(shape.elements)
            for v, s in zip(value, shape.elements, strict=True):
                check(v, s)
        else:
            assert (np.asarray(value).dtype, np.shape(value)) == (shape.dtype, shape.dims)

    entry = case.module.entry
    for instruction in entry.instructions:
        if instruction.opcode != "parameter":
            known = evaluate(type(entry)("f", entry.parameters, entry.instructions, instruction), case.arguments)
            check(known, instruction.shape)


# --- integers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["s8", "s16", "s32", "s64"])
def test_division_of_signed_integers(dtype):
    info = np.iinfo(DTYPES[dtype])
    x = np.array([7, -7, 7, -7, 5, 0, info.min, info.min, info.max], DTYPES[dtype])
    y = np.array([2, 2, -2, -2, 0, 0, -1, 0, -1], DTYPES[dtype])
    # Truncates; x / 0 = -1; the smallest / -1 is itself.
    np.testing.assert_array_equal(compute("divide", x, y), [3, -3, -3, 3, -1, -1, info.min, -1, -info.max])
    # The dividend's sign; x rem 0 = x; the smallest rem -1 = 0.
    np.testing.assert_array_equal(compute("remainder", x, y), [1, -1, 1, -1, 5, 0, 0, info.min, 0])


@pytest.mark.parametrize("dtype", ["u8", "u16", "u32", "u64"])
def test_division_of_unsigned_integers(dtype):
    top = np.iinfo(DTYPES[dtype]).max
    x, y = np.array([7, 5, 0, top], DTYPES[dtype]), np.array([2, 0, 0, 3], DTYPES[dtype])
    np.testing.assert_array_equal(compute("divide", x, y), np.array([3, top, top, top // 3], DTYPES[dtype]))
    np.testing.assert_array_equal(compute("remainder", x, y), np.array([1, 5, 0, top % 3], DTYPES[dtype]))


@pytest.mark.parametrize("dtype", ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"])
def test_shifts_at_and_beyond_the_width(dtype):
    dtype = DTYPES[dtype]
    width = dtype.itemsize * 8
    negative = np.array(-3 if dtype.kind == "i" else np.iinfo(dtype).max - 2).astype(dtype)
    amounts = np.array([0, 1, width - 1, width, width + 1, 127]).astype(dtype)
    if dtype.kind == "i":
        amounts = np.append(amounts, np.array(-1, dtype))  # unsigned, so it is beyond the width
    x = np.full(amounts.shape, negative)
    bits = int(negative) % 2**width

    def wrapped(values):
        return np.array([v % 2**width for v in values], f"u{dtype.itemsize}").view(dtype)

    counts = [int(a) % 2**width for a in amounts]
    inside = [n < width for n in counts]
    left = [bits << n if ok else 0 for n, ok in zip(counts, inside, strict=True)]
    logical = [bits >> n if ok else 0 for n, ok in zip(counts, inside, strict=True)]
    arithmetic = [(bits - 2**width) >> min(n, width) for n in counts]
    np.testing.assert_array_equal(compute("shift-left", x, amounts), wrapped(left))
    np.testing.assert_array_equal(compute("shift-right-logical", x, amounts), wrapped(logical))
    np.testing.assert_array_equal(compute("shift-right-arithmetic", x, amounts), wrapped(arithmetic))


@pytest.mark.parametrize("dtype", ["s8", "s32", "u16", "u64", "s64"])
def test_bit_counts(dtype):
    dtype = DTYPES[dtype]
    width = 8 * dtype.itemsize
    x = numbers(dtype, (50,))
    bits = [int(v) % 2**width for v in x]
    np.testing.assert_array_equal(compute("popcnt", x), [v.bit_count() for v in bits])
    np.testing.assert_array_equal(compute("count-leading-zeros", x), [width - v.bit_length() for v in bits])


def test_integer_powers():
    x = np.array([2, -2, 1, -1, -1, 0, 0, 3], S32)
    y = np.array([5, 3, -4, -3, -4, 0, -1, -2], S32)
    np.testing.assert_array_equal(compute("power", x, y)[[0, 1, 2, 3, 4, 5, 7]], [32, -8, 1, -1, 1, 1, 0])


def test_integers_wrap():
    top = np.array([127, -128], np.int8)
    np.testing.assert_array_equal(compute("add", top, np.array([1, -1], np.int8)), [-128, 127])
    np.testing.assert_array_equal(compute("negate", top), [-127, -128])
    np.testing.assert_array_equal(compute("abs", top), [127, -128])


# --- floats -------------------------------------------------------------------------------------------------------


def test_nan_and_signed_zeros():
    nan = np.array([np.nan, 1, np.nan], F32), np.array([1, np.nan, np.nan], F32)
    for name in ("maximum", "minimum"):
        assert np.isnan(compute(name, *nan)).all()
    np.testing.assert_array_equal(compute("compare", nan[0], nan[0], direction="NE"), [True, False, True])
    np.testing.assert_array_equal(compute("compare", nan[0], nan[0], direction="GE"), [False, True, False])
    zeros = np.array([-0.0, 0.0], F32)
    for name in ("floor", "ceil", "round-nearest-even", "round-nearest-afz", "sign", "tanh", "sqrt", "cbrt"):
        np.testing.assert_array_equal(np.signbit(compute(name, zeros)), [True, False], err_msg=name)
    assert np.isnan(compute("sign", F32(np.nan))) and np.isnan(compute("logistic", F32(np.nan)))


def test_rounding():
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.4999, np.inf, np.nan], F32)
    np.testing.assert_array_equal(compute("round-nearest-even", x), F32([-2, -2, -0.0, 0, 2, 2, 2, np.inf, np.nan]))
    np.testing.assert_array_equal(compute("round-nearest-afz", x), F32([-3, -2, -1, 1, 2, 3, 2, np.inf, np.nan]))
    # The largest float below one half must not be rounded up, nor large odd numbers changed.
    edge = np.array([np.nextafter(F32(0.5), F32(0)), 2**23 + 1, -(2.0**24)], F32)
    np.testing.assert_array_equal(compute("round-nearest-afz", edge), F32([0, 2**23 + 1, -(2**24)]))


def test_division_and_remainder_of_floats():
    x, y = F32([1, -1, 0, 5.5, -5.5, np.inf]), F32([0, 0, 0, 2, 2, 2])
    np.testing.assert_array_equal(compute("divide", x, y), F32([np.inf, -np.inf, np.nan, 2.75, -2.75, np.inf]))
    np.testing.assert_array_equal(compute("remainder", x, y), F32([np.nan, np.nan, np.nan, 1.5, -1.5, np.nan]))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_floats_are_computed_in_float32_and_rounded_once(dtype):
    x = numbers(dtype, (200,), 0, 0.1, 3.0)
    wide = np.tanh(x.astype(F32)).astype(DTYPES[dtype])
    np.testing.assert_array_equal(compute("tanh", x).view(np.uint16), wide.view(np.uint16))


def test_logistic_does_not_overflow():
    x = F32([-200, -20, 0, 20, 200])
    np.testing.assert_allclose(compute("logistic", x), 1 / (1 + np.exp(-x.astype(np.float64))), rtol=1e-6, atol=1e-40)


# --- selection and types ------------------------------------------------------------------------------------------


def test_clamp():
    x = F32([-5, -1, 0, 1, 5, np.nan])
    np.testing.assert_array_equal(compute("clamp", F32(-1), x, F32(2)), F32([-1, -1, 0, 1, 2, np.nan]))
    # Bounds that cross: the upper one wins, as min(max(x, low), high) has it.
    np.testing.assert_array_equal(compute("clamp", S32(3), S32([0, 9]), S32(1)), [1, 1])
    np.testing.assert_array_equal(compute("clamp", F32([0, 1]), F32([-1, 9]), F32([5, 6])), F32([0, 6]))
    assert compute("clamp", S32(0), S32(7), S32(5)).shape == ()


@pytest.mark.parametrize("target", ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"])
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_convert_clamps_and_makes_nan_zero(source, target):
    info = np.iinfo(DTYPES[target])
    x = np.array([np.nan, np.inf, -np.inf, 1.9, -1.9, 0.5]).astype(DTYPES[source])
    found = compute("convert", x, shape=Shape(target, x.shape))
    low = max(info.min, -1)
    assert found.tolist() == [0, info.max, info.min, 1, low, 0]


def test_convert_of_large_floats_keeps_the_values_that_fit():
    x = np.array([2.0**62, -(2.0**63), 2.0**63, 2.0**63 - 1024])
    found = compute("convert", x, shape=Shape("s64", (4,)))
    assert found.tolist() == [2**62, -(2**63), 2**63 - 1, 2**63 - 1024]
    assert compute("convert", 2.0**63, shape=Shape("u64")) == 2**63


def test_convert_of_other_kinds():
    assert compute("convert", np.complex64(3 - 4j), shape=Shape("f32")) == 3
    assert compute("convert", np.complex64(-4j), shape=Shape("pred"))
    np.testing.assert_array_equal(
        compute("convert", F32([0, -0.0, 0.1, np.nan]), shape=Shape("pred", (4,))), [0, 0, 1, 1]
    )
    np.testing.assert_array_equal(compute("convert", S32([300, -1]), shape=Shape("u8", (2,))), [44, 255])


def test_bitcast_changes_the_last_dimension():
    x = np.arange(4, dtype=np.uint32).reshape(2, 2)
    parts = compute("bitcast-convert", x, shape=Shape("u8", (2, 2, 4)))
    assert parts[1, 1].tolist() == [3, 0, 0, 0]
    np.testing.assert_array_equal(compute("bitcast-convert", parts, shape=Shape("u32", (2, 2))), x)
    np.testing.assert_array_equal(compute("bitcast-convert", x.T, shape=Shape("s32", (2, 2))), x.T)
    assert compute("bitcast-convert", F32(1), shape=Shape("u32")) == 0x3F800000


def test_select_of_a_scalar_condition():
    np.testing.assert_array_equal(compute("select", np.bool_(False), S32([1, 2]), S32([3, 4])), [3, 4])
    with pytest.raises(ShapeError):
        compute("select", np.array([True]), S32([1, 2]), S32([3, 4]))


@pytest.mark.parametrize("value", [65519.0, 65520.0, 1e-8, 6.0e-5, 1 / 3, -70000.0])
def test_reduce_precision_to_half(value):
    found = compute("reduce-precision", F32(value), exponent_bits=5, mantissa_bits=10)
    with np.errstate(over="ignore"):
        half = np.float16(value)
    # The numbers below the smallest normal one are flushed to zero.
    assert found == (half if abs(half) >= 2.0**-14 else 0)


# --- movement -----------------------------------------------------------------------------------------------------


def test_pad_negative_and_interior():
    x = np.arange(1, 5, dtype=F32)
    assert compute("pad", x, F32(9), padding=((1, 2, 0),)).tolist() == [9, 1, 2, 3, 4, 9, 9]
    assert compute("pad", x, F32(9), padding=((0, 0, 2),)).tolist() == [1, 9, 9, 2, 9, 9, 3, 9, 9, 4]
    assert compute("pad", x, F32(9), padding=((-1, -2, 0),)).tolist() == [2]
    assert compute("pad", x, F32(9), padding=((-2, 1, 1),)).tolist() == [2, 9, 3, 9, 4, 9]
    assert compute("pad", x, F32(9), padding=((-4, 0, 0),)).tolist() == []
    assert compute("pad", np.zeros(0, F32), F32(9), padding=((1, 1, 5),)).tolist() == [9, 9]
    # Padding after cropping everything: what is cropped are the padded elements too.
    assert compute("pad", x, F32(9), padding=((-5, 3, 0),)).tolist() == [9, 9]
    assert compute("pad", F32(3), F32(9), padding=()).tolist() == 3
    for wrong in (((-5, 0, 0),), ((0, 0, -1),), ()):
        with pytest.raises(AttributeValueError):
            compute("pad", x, F32(9), padding=wrong)


@pytest.mark.parametrize("start, first", [(-9, 0), (-1, 0), (0, 0), (2, 2), (3, 3), (4, 3), (2**31 - 1, 3)])
def test_dynamic_slices_are_moved_inside(start, first):
    x = np.arange(5, dtype=F32)
    assert compute("dynamic-slice", x, S32(start), dynamic_slice_sizes=(2,)).tolist() == [first, first + 1]
    updated = compute("dynamic-update-slice", x, F32([8, 9]), S32(start))
    assert updated.tolist() == [*range(first), 8, 9, *range(first + 2, 5)]
    assert x.tolist() == [0, 1, 2, 3, 4]


def test_dynamic_slices_take_starts_of_any_integer():
    x = np.arange(5, dtype=F32)
    for start in (np.uint8(255), np.int64(2**40), np.uint64(2**64 - 1)):
        assert compute("dynamic-slice", x, start, dynamic_slice_sizes=(1,)).tolist() == [4]
    assert compute("dynamic-slice", F32(3), dynamic_slice_sizes=()).shape == ()
    assert compute("dynamic-slice", x, S32(3), dynamic_slice_sizes=(0,)).shape == (0,)


def test_movement_of_no_elements_and_of_scalars():
    empty = np.zeros((2, 0, 3), F32)
    assert compute("reshape", empty, shape=Shape("f32", (0, 7))).shape == (0, 7)
    assert compute("transpose", empty, dimensions=(2, 0, 1)).shape == (3, 2, 0)
    assert compute("reverse", empty, dimensions=(0, 1)).shape == (2, 0, 3)
    assert compute("slice", empty, slice=((0, 2, 1), (0, 0, 1), (1, 1, 5))).shape == (2, 0, 0)
    assert compute("concatenate", empty, np.ones((2, 4, 3), F32), dimensions=(1,)).shape == (2, 4, 3)
    assert compute("broadcast", empty, shape=Shape("f32", (2, 0, 5, 3)), dimensions=(0, 1, 3)).shape == (2, 0, 5, 3)
    scalar = F32(3)
    assert compute("reshape", scalar, shape=Shape("f32", (1, 1))).tolist() == [[3]]
    assert compute("transpose", scalar, dimensions=()) == 3
    assert compute("slice", scalar, slice=()) == 3


# --- reduce and dot -----------------------------------------------------------------------------------------------


def _reduce(x, start, combiner, dimensions):
    return compute("reduce", x, start, dimensions=dimensions, to_apply=combiner)


def _combiner(body, dtype="f32"):
    b = Builder("combiner")
    return b.finish(body(b, b.parameter(Shape(dtype), "a"), b.parameter(Shape(dtype), "b")))


def test_reduce_with_any_combiner():
    # a * 2 + b is not associative: the reference goes from the first element to the last.
    combiner = _combiner(lambda b, a, c: b.emit("add", b.emit("multiply", a, b.constant(F32(2))), c))
    assert combiner_opcode(combiner) is None
    x = np.array([[1, 2, 3], [4, 5, 6]], F32)
    assert _reduce(x, F32(1), combiner, (1,)).tolist() == [1 * 8 + 4 + 4 + 3, 1 * 8 + 16 + 10 + 6]
    assert _reduce(x, F32(1), combiner, (0, 1)) == 64 + 32 + 2 * 16 + 3 * 8 + 4 * 4 + 5 * 2 + 6
    assert _reduce(x, F32(1), combiner, ()).tolist() == (x + 2).tolist()
    # A combiner that passes one side on: the last element, or the start.
    assert _reduce(x, F32(9), _combiner(lambda b, a, c: c), (1,)).tolist() == [3, 6]
    assert _reduce(x, F32(9), _combiner(lambda b, a, c: a), (1,)).tolist() == [9, 9]
    # One that is a constant.
    assert _reduce(x, F32(9), _combiner(lambda b, a, c: b.constant(F32(4))), (1,)).tolist() == [4, 4]


def test_reduce_of_several_operands():
    values = np.array([[1, 5, 5], [7, np.inf, 2], [-np.inf, -np.inf, -np.inf]], F32)
    index = np.broadcast_to(np.arange(3, dtype=S32), (3, 3))
    found = compute(
        "reduce", values, index, F32(-np.inf), S32(99), dimensions=(1,), to_apply=argmax_combiner()
    )  # fmt: skip
    assert isinstance(found, tuple)
    assert found[0].tolist() == [5, np.inf, -np.inf] and found[1].tolist() == [1, 1, 0]
    assert found[1].dtype == np.int32


@pytest.mark.parametrize("opcode, start", [("add", 3), ("multiply", 3), ("maximum", 3), ("minimum", 3)])
def test_reduce_of_no_elements_is_the_start(opcode, start):
    combiner = scalar_computation(opcode, F32)
    assert _reduce(np.zeros((0, 2), F32), F32(start), combiner, (0,)).tolist() == [start, start]
    assert _reduce(np.zeros((0, 2), F32), F32(start), combiner, (1,)).shape == (0,)
    assert _reduce(np.zeros((0,), F32), F32(start), combiner, (0,)).shape == ()


def test_reduce_counts_the_start_and_propagates_nan():
    assert _reduce(F32([1, 2]), F32(10), scalar_computation("add", F32), (0,)) == 13
    assert np.isnan(_reduce(F32([1, np.nan]), F32(-np.inf), scalar_computation("maximum", F32), (0,)))
    assert _reduce(F32(5), F32(1), scalar_computation("add", F32), ()) == 6
    booleans = np.array([[True, False], [False, False]])
    assert _reduce(booleans, np.bool_(False), scalar_computation("or", bool), (1,)).tolist() == [True, False]
    assert _reduce(booleans, np.bool_(True), scalar_computation("multiply", bool), (1,)).tolist() == [False, False]


def test_reduce_of_narrow_integers_wraps():
    x = np.full(300, 1, np.uint8)
    assert _reduce(x, np.uint8(0), scalar_computation("add", np.uint8), (0,)) == 300 % 256


def test_reduce_of_bfloat16_is_rounded_once():
    x = np.full(1000, 0.01, F32).astype(DTYPES["bf16"])
    found = _reduce(x, np.zeros((), DTYPES["bf16"]), scalar_computation("add", DTYPES["bf16"]), (0,))
    assert found == np.asarray(float(x[0]) * 1000).astype(DTYPES["bf16"])


@pytest.mark.parametrize(
    "equation, batch, contracting",
    [
        ("ij,jk->ik", ((), ()), ((1,), (0,))),
        ("ij,kj->ik", ((), ()), ((1,), (1,))),
        ("ij,kl->ijkl", ((), ()), ((), ())),
        ("ij,ij->", ((), ()), ((0, 1), (0, 1))),
        ("ij,ji->", ((), ()), ((0, 1), (1, 0))),
        ("ija,jbi->ijab", ((0, 1), (2, 0)), ((), ())),
        ("aibj,jcia->iabc", ((1, 0), (2, 3)), ((3,), (0,))),
        ("ij,ij->ij", ((0, 1), (0, 1)), ((), ())),
    ],
)
@pytest.mark.parametrize("sizes", [(2, 3, 4, 5, 2, 3), (2, 0, 3, 1, 2, 2)])
def test_dot_is_einsum(equation, batch, contracting, sizes):
    extents = dict(zip("ijklab", sizes, strict=True)) | {"c": 3}
    left, right = (
        np.random.default_rng(k).standard_normal([extents[i] for i in term])
        for k, term in enumerate(equation.split("->")[0].split(","))
    )
    found = compute(
        "dot", left, right, lhs_batch_dims=batch[0], rhs_batch_dims=batch[1],
        lhs_contracting_dims=contracting[0], rhs_contracting_dims=contracting[1],
    )  # fmt: skip
    np.testing.assert_allclose(found, np.einsum(equation, left, right), rtol=1e-12, atol=1e-12)


def test_dot_of_pred_and_of_two_dtypes():
    x = np.array([[True, False], [False, False]])
    found = compute("dot", x, x, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    assert found.dtype == bool and found.tolist() == [[True, False], [False, False]]
    narrow = np.array([1, 2], np.int8)
    attributes = {"lhs_contracting_dims": (0,), "rhs_contracting_dims": (0,)}
    assert compute("dot", narrow, S32([300, 400]), shape=Shape("s32"), **attributes) == 1100
    with pytest.raises(AttributeValueError, match="needs the dtype of its result"):
        compute("dot", narrow, S32([300, 400]), **attributes)


# --- rejected -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "opcode, arrays, attributes, error",
    [
        ("add", (F32([1]), S32([1])), {}, DTypeError),
        ("add", (F32([1]), F32([1, 2])), {}, ShapeError),
        ("add", (F32([1]),), {}, ShapeError),
        ("sine", (S32([1]),), {}, DTypeError),
        ("not", (F32([1]),), {}, DTypeError),
        ("compare", (F32(1), F32(1)), {"direction": "XX"}, AttributeValueError),
        ("compare", (np.complex64(1), np.complex64(1)), {"direction": "LT"}, DTypeError),
        ("broadcast", (F32([1, 2]),), {"dimensions": (1,), "shape": Shape("f32", (3, 3))}, ShapeError),
        ("broadcast", (F32([[1, 2]]),), {"dimensions": (1, 0), "shape": Shape("f32", (2, 1))}, AttributeValueError),
        ("reshape", (F32([1, 2]),), {"shape": Shape("f32", (3,))}, ShapeError),
        ("transpose", (F32([[1]]),), {"dimensions": (0, 0)}, AttributeValueError),
        ("reverse", (F32([[1]]),), {"dimensions": (2,)}, AttributeValueError),
        ("slice", (F32([1, 2]),), {"slice": ((0, 3, 1),)}, AttributeValueError),
        ("slice", (F32([1, 2]),), {"slice": ((0, 2, 0),)}, AttributeValueError),
        ("concatenate", (F32([1]), F32([[1]])), {"dimensions": (0,)}, ShapeError),
        ("concatenate", (F32([1]), S32([1])), {"dimensions": (0,)}, DTypeError),
        ("dynamic-slice", (F32([1, 2]), F32(0)), {"dynamic_slice_sizes": (1,)}, ShapeError),
        ("dynamic-slice", (F32([1, 2]), S32(0)), {"dynamic_slice_sizes": (3,)}, AttributeValueError),
        ("dynamic-update-slice", (F32([1, 2]), F32([1, 2, 3]), S32(0)), {}, ShapeError),
        ("iota", (), {"shape": Shape("f32", (3,)), "iota_dimension": 1}, AttributeValueError),
        ("clamp", (F32([1]), F32([1, 2]), F32(3)), {}, ShapeError),
        ("dot", (F32([1, 2]), F32([1])), {"lhs_contracting_dims": (0,), "rhs_contracting_dims": (0,)}, ShapeError),
        ("reduce-precision", (F32(1),), {"exponent_bits": 0, "mantissa_bits": 3}, AttributeValueError),
        ("get-tuple-element", (F32(1),), {"index": 0}, ShapeError),
        ("no such op", (F32(1),), {}, AttributeValueError),
    ],
)
def test_what_does_not_fit_is_rejected(opcode, arrays, attributes, error):
    with pytest.raises(error) as caught:
        compute(opcode, *arrays, **attributes)
    assert caught.value.asked and caught.value.source.file == __file__


# --- custom calls -------------------------------------------------------------------------------------------------


def test_custom_calls(monkeypatch):
    monkeypatch.setattr("hloom.ir.ops.programs.structure.CUSTOM_CALLS", CUSTOM_CALLS)
    b = Builder("f")
    x = b.parameter(Shape("f32", (2,)))
    computation = b.finish(b.emit("custom-call", x, shape=Shape("f32", (2,)), custom_call_target="test_double"))
    with pytest.raises(HloomError, match="'test_double' was asked for"):
        evaluate(computation, [F32([1, 2])])
    try:
        register_custom_call("test_double", lambda x: x * 2)
        assert evaluate(computation, [F32([1, 2])]).tolist() == [2, 4]
        register_custom_call("test_double", lambda x: x.astype(np.float64))
        with pytest.raises(ShapeError, match="promised f32"):
            evaluate(computation, [F32([1, 2])])
    finally:
        CUSTOM_CALLS.pop("test_double", None)


def test_combiner_opcode():
    assert combiner_opcode(scalar_computation("add", F32)) == "add"
    assert scalar_computation("add", F32) is scalar_computation("add", "f32")
    swapped = _combiner(lambda b, a, c: b.emit("maximum", c, a))
    assert combiner_opcode(swapped) == "maximum"
    assert combiner_opcode(_combiner(lambda b, a, c: b.emit("subtract", a, c))) is None
    assert combiner_opcode(_combiner(lambda b, a, c: b.emit("add", a, a))) is None
    assert combiner_opcode(argmax_combiner()) is None


def test_functions_of_the_table_match_mathematics():
    """References against Python's own functions on doubles, where there is one."""
    pairs = {
        "exponential": math.exp, "exponential-minus-one": math.expm1, "log": math.log, "log-plus-one": math.log1p,
        "sqrt": math.sqrt, "cbrt": math.cbrt, "erf": math.erf, "sine": math.sin, "cosine": math.cos, "tan": math.tan,
        "tanh": math.tanh, "asin": math.asin, "acos": math.acos, "sinh": math.sinh, "cosh": math.cosh,
        "asinh": math.asinh, "atanh": math.atanh, "floor": math.floor, "ceil": math.ceil,
    }  # fmt: skip
    x = numbers("f64", (50,), 0, 0.05, 0.95)
    for name, function in pairs.items():
        np.testing.assert_allclose(compute(name, x), [function(v) for v in x], rtol=1e-14, err_msg=name)
    np.testing.assert_allclose(compute("acosh", x + 1), [math.acosh(v + 1) for v in x], rtol=1e-14)
    np.testing.assert_allclose(
        compute("atan2", x, -x[::-1]), [math.atan2(a, -b) for a, b in zip(x, x[::-1], strict=True)]
    )


def test_the_derivative_of_igamma_where_there_is_none():
    """NaN, or 0 at the edges of its domain; nothing is computed there that could be divided by 0."""
    a = np.array([-1, 0, np.nan, np.inf, 2, 2, 2, 2.5])
    x = np.array([1, 1, 1, 1, -1, 0, np.inf, 2])
    with np.errstate(all="raise"):
        found = compute("igamma-grad-a", a, x)
    np.testing.assert_array_equal(found[:-1], [np.nan] * 5 + [0, 0])
    np.testing.assert_allclose(found[-1], compute("igamma-grad-a", a[-1:], x[-1:])[0])


def test_references_do_not_change_their_operands():
    for name, dtype in ELEMENTWISE:
        if dtype not in ("f32", "s32", "pred", "c64"):
            continue
        operands = [numbers(dtype, (3,), k, 0.1, 0.9) for k in range(arity(name)[0])]
        before = [o.copy() for o in operands]
        compute(name, *operands)
        for a, b in zip(operands, before, strict=True):
            np.testing.assert_array_equal(a, b)


def test_kinds_of_dtypes_that_ops_take():
    """An op takes all dtypes of a kind or none: nothing is left out by accident."""
    by_kind = {
        "signed": ("s8", "s16", "s32", "s64"),
        "unsigned": ("u8", "u16", "u32", "u64"),
        "complex": ("c64", "c128"),
        "float": ("f16", "bf16", "f32", "f64"),
    }
    for name in OPS:
        count, dtypes = arity(name)
        of_one_width = name.startswith(("threefry2x32", "philox4x32"))
        for members in by_kind.values() if count and not of_one_width else ():
            assert len(set(members) & set(dtypes)) in (0, len(members)), name
    assert PRED in map(DTYPES.get, arity("and")[1]) and not FLOATS & set(map(DTYPES.get, arity("and")[1]))
    assert all(arity(a)[0] for a, _ in itertools.pairwise(["add", "negate", "select"]))
