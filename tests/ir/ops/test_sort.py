"""sort and topk: every kind of comparator against Python's sorted, ties, NaN, errors, text, derivatives, batches."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

from hloom.ir.build import Builder, Value
from hloom.ir.errors import HloomError
from hloom.ir.interpret import evaluate
from hloom.ir.ops.indexing.sort import comparator, sort_keys
from hloom.ir.types import FLOATS, HLO_NAME, Shape


def descending_order(keys) -> list[int]:
    """The places of the keys, the greatest first, equal ones as they stand."""
    return sorted(range(len(keys)), key=functools.cmp_to_key(lambda a, b: (keys[a] < keys[b]) - (keys[b] < keys[a])))


def sorting(arrays, axis, to_apply, is_stable=True):
    builder = Builder("f")
    parameters = [builder.parameter(Shape(a.dtype, a.shape)) for a in arrays]
    return builder.finish(builder.emit("sort", *parameters, dimensions=(axis,), is_stable=is_stable, to_apply=to_apply))


def sort(arrays, axis, to_apply):
    result = evaluate(sorting(arrays, axis, to_apply), arrays)
    return result if isinstance(result, tuple) else (result,)


def values(rng, dtype, dims):
    if dtype == np.bool_:
        return rng.random(dims) < 0.5
    x = rng.integers(-4 if np.dtype(dtype).kind != "u" else 0, 5, dims)
    if np.dtype(dtype).kind == "c":
        return (x + 1j * rng.integers(-2, 3, dims)).astype(dtype)
    x = x.astype(dtype)
    if np.dtype(dtype).kind in "fV":
        flat = x.reshape(-1)
        flat[rng.random(flat.size) < 0.15] = np.nan
        flat[rng.random(flat.size) < 0.15] = -0.0
        flat[rng.random(flat.size) < 0.1] = np.inf
    return x


DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int32, np.int64, np.uint8, np.uint64]
DTYPES += [np.bool_, np.complex64]


def wide(x):
    """bfloat16 as float32: NumPy's tests know no NaN of the former."""
    return x.astype(np.float32) if x.dtype == ml_dtypes.bfloat16 else x


def rank(x):
    """A Python key: NaN last, -0.0 equal to 0.0."""
    if isinstance(x, complex):
        return (*rank(x.real), *rank(x.imag))
    return (x != x, 0 if x != x else x)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: HLO_NAME[np.dtype(d)])
def test_stable_sort_with_a_companion(dtype, descending):
    rng = np.random.default_rng(1)
    for count in (0, 1, 2, 7, 40):
        x = values(rng, dtype, (count,))
        places = np.arange(count, dtype=np.int32)
        found = sort([x, places], 0, comparator([dtype, np.int32], 1, descending))
        keys = [rank(v) for v in x.tolist()]
        order = sorted(range(count), key=lambda k: keys[k])
        if descending:
            order = descending_order(keys)
        np.testing.assert_array_equal(found[1], order)
        np.testing.assert_array_equal(found[0].tobytes(), x[order].tobytes())
        alone = sort([x], 0, comparator([dtype], 1, descending))[0]
        np.testing.assert_array_equal(wide(alone), wide(x[order]))


NARROW = sorted((dtype for dtype in FLOATS if dtype.itemsize == 1), key=str)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_all_numbers_of_a_narrow_dtype(dtype, descending):
    """As float32 orders them: also where a dtype has no sign (float8_e8m0fnu) or four bits (float4_e2m1fn)."""
    x = np.arange(16 if "float4" in str(dtype) else 256, dtype=np.uint8)[::-1].copy().view(dtype)
    x = x[~np.isnan(x.astype(np.float32))]
    (got,) = sort([x], 0, comparator([dtype], descending=descending))
    expected = np.sort(x.astype(np.float32))
    np.testing.assert_array_equal(got.astype(np.float32), expected[::-1] if descending else expected)
    builder = Builder("largest")
    topk = builder.finish(builder.emit("topk", builder.parameter(Shape(dtype, x.shape)), k=5))
    largest, order = evaluate(topk, [x])
    np.testing.assert_array_equal(largest.astype(np.float32), expected[::-1][:5])
    np.testing.assert_array_equal(x[order].view(np.uint8), largest.view(np.uint8))
    x = x[x.astype(np.float32) != 0]  # of which the total order tells two
    less = evaluate(_total_order(dtype, x.shape), [x, x[::-1].copy()])
    np.testing.assert_array_equal(less, x.astype(np.float32) < x[::-1].astype(np.float32))


def _total_order(dtype, dims):
    builder = Builder("less")
    x, y = (builder.parameter(Shape(np.dtype(dtype), dims)) for _ in range(2))
    return builder.finish(builder.emit("compare", x, y, direction="LT", type="TOTALORDER"))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_along_any_dimension_by_two_keys(axis):
    rng = np.random.default_rng(2)
    a, b = values(rng, np.float32, (5, 6, 7)), values(rng, np.int8, (5, 6, 7))
    c = rng.normal(size=(5, 6, 7))
    found = sort([a, b, c], axis, comparator([a.dtype, b.dtype, c.dtype], 2))
    for at in np.ndindex(*(d for k, d in enumerate(a.shape) if k != axis)):
        line = (*tuple(at[:axis]), slice(None), *tuple(at[axis:]))
        order = sorted(range(a.shape[axis]), key=lambda k: (rank(float(a[line][k])), b[line][k]))
        np.testing.assert_array_equal(found[2][line], c[line][order])


def by_distance(dtype):
    """|a - 1| < |b - 1|: a comparator that is not recognized."""
    builder = Builder("nearer")
    a, b = (Value(builder, builder.parameter(Shape(dtype))) for _ in range(2))
    for _ in range(2):
        builder.parameter(Shape("s32"))
    return builder.finish((a - 1).op("abs").compare("LT", (b - 1).op("abs")).instruction)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8, 13, 64, 100])
def test_any_comparator_sorts_stably(count):
    rng = np.random.default_rng(count)
    x = rng.integers(-6, 9, (count, 3)).astype(np.float32)
    places = np.array(np.broadcast_to(np.arange(count, dtype=np.int32)[:, None], (count, 3)))
    assert sort_keys(by_distance("f32")) is None
    _, found = sort([x, places], 0, by_distance("f32"))
    np.testing.assert_array_equal(found, np.argsort(np.abs(x - 1), axis=0, kind="stable"))


def test_recognized_comparators():
    """Both ways round, by part, by several keys, and what only looks like one."""
    keys = sort_keys(comparator(["f32", "s32", "c64"], 3, True))
    assert [(k.operand, k.part, k.descending) for k in keys] == [
        (0, "", True),
        (1, "", True),
        (2, "real", True),
        (2, "imag", True),
    ]
    builder = Builder("f")
    a, b, c, d = (Value(builder, builder.parameter(Shape("s32"))) for _ in range(4))
    assert sort_keys(builder.finish(b.compare("GT", a).instruction))[0].descending is False
    assert sort_keys(builder.finish(b.compare("LT", a).instruction))[0].descending is True
    assert sort_keys(builder.finish(a.compare("LT", c).instruction)) is None
    assert sort_keys(builder.finish(a.compare("LE", b).instruction)) is None
    assert sort_keys(builder.finish((a + 1).compare("LT", b).instruction)) is None
    wrong = a.compare("LT", b).op("or", c.compare("EQ", d).op("and", c.compare("LT", d)))
    assert sort_keys(builder.finish(wrong.instruction)) is None


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_comparators_of_the_total_order(dtype, descending):
    """-NaN, -inf, ..., -0.0, 0.0, ..., inf, NaN: nothing is equal that has other bits."""
    ordered = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan], dtype)
    builder = Builder("less")
    a, b = (builder.parameter(Shape(dtype)) for _ in range(2))
    less = builder.finish(builder.emit("compare", a, b, direction="GT" if descending else "LT", type="TOTALORDER"))
    (key,) = sort_keys(less)
    assert key.total and key.descending == descending
    (found,) = sort([np.random.default_rng(1).permutation(ordered)], 0, less)
    assert found.tobytes() == (ordered[::-1] if descending else ordered).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8, ml_dtypes.bfloat16, np.float64])
def test_topk(dtype):
    rng = np.random.default_rng(4)
    for count, k in ((5, 0), (5, 2), (5, 5), (100, 3)):
        x = values(rng, dtype, (2, count))
        builder = Builder("f")
        f = builder.finish(builder.emit("topk", builder.parameter(Shape(dtype, x.shape)), k=k, largest=True))
        found, places = evaluate(f, [x])
        for row in range(2):
            keys = [(*rank(v), not np.signbit(np.float64(v))) for v in x[row].tolist()]
            order = descending_order(keys)
            np.testing.assert_array_equal(places[row], order[:k])
            np.testing.assert_array_equal(wide(found[row]), wide(x[row][order[:k]]))


@pytest.mark.parametrize(
    "attributes, shapes, found",
    [
        ({"dimensions": (2,)}, [("f32", (3, 4))], "(2,)"),
        ({"dimensions": (0, 1)}, [("f32", (3, 4))], "(0, 1)"),
        ({"dimensions": (0,)}, [("f32", ())], "f32[]"),
        ({"dimensions": (0,)}, [("f32", (3,)), ("f32", (4,))], "f32[4]"),
        ({"dimensions": (0,)}, [("f64", (3,))], "expected"),
        ({"dimensions": (0,), "to_apply": None}, [("f32", (3,))], "none"),
    ],
)
def test_sort_rejects(attributes, shapes, found):
    builder = Builder("f")
    parameters = [builder.parameter(Shape(*s)) for s in shapes]
    with pytest.raises(HloomError) as error:
        builder.emit("sort", *parameters, **{"to_apply": comparator(["f32"]), **attributes})
    assert "sort" in error.value.asked and found in error.value.found and error.value.repair


@pytest.mark.parametrize("shape, k", [(("f32", (4,)), 5), (("f32", ()), 1), (("f32", (4,)), -1), (("c64", (4,)), 1)])
def test_topk_rejects(shape, k):
    builder = Builder("f")
    with pytest.raises(HloomError) as error:
        builder.emit("topk", builder.parameter(Shape(*shape)), k=k, largest=True)
    assert "topk" in error.value.asked and error.value.found and error.value.repair
