"""The reference interpreter on random shapes, against NumPy indexing written another way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_modules import callee, cases

from hloom.ir.build import Builder, scalar_computation
from hloom.ir.interpret import evaluate, evaluate_instruction, run
from hloom.ir.module import Module
from hloom.ir.types import Shape
from hloom.ir.verify import verify

pytestmark = pytest.mark.quick

_dims = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def _filled(dims, dtype=np.float32, first=1):
    """Distinct numbers, so that every misplaced element shows."""
    return np.arange(first, first + int(np.prod(dims, dtype=int))).astype(dtype).reshape(dims)


def _evaluate(opcode, *arrays, shape=None, **attributes):
    b = Builder("main")
    parameters = [b.parameter(Shape(a.dtype, a.shape)) for a in arrays]
    module = Module("m", b.finish(b.emit(opcode, *parameters, shape=shape, **attributes)))
    verify(module)
    result = run(module, arrays)
    assert (result.dtype, result.shape) == (module.entry.shape.dtype, module.entry.shape.dims)
    return result


def _elements(dims):
    return np.ndindex(*dims)


@given(_dims, st.data())
def test_broadcast(dims, data):
    positions = sorted(data.draw(st.permutations(range(len(dims) + 2)))[: len(dims)])
    target = [data.draw(st.integers(0, 3)) for _ in range(len(dims) + 2)]
    for extent, position in zip(dims, positions, strict=True):
        target[position] = extent
    x = _filled(dims)
    found = _evaluate("broadcast", x, shape=Shape("f32", tuple(target)), dimensions=tuple(positions))
    for index in _elements(target):
        assert found[index] == x[tuple(index[p] for p in positions)]


@given(_dims, st.data())
def test_transpose_and_reverse(dims, data):
    permutation = tuple(data.draw(st.permutations(range(len(dims)))))
    x = _filled(dims)
    found = _evaluate("transpose", x, dimensions=permutation)
    for index in _elements(found.shape):
        inverse = [0] * len(dims)
        for k, d in enumerate(permutation):
            inverse[d] = index[k]
        assert found[index] == x[tuple(inverse)]
    turned = permutation[: data.draw(st.integers(0, len(dims)))]
    found = _evaluate("reverse", x, dimensions=turned)
    for index in _elements(dims):
        assert found[index] == x[tuple(dims[d] - 1 - i if d in turned else i for d, i in enumerate(index))]


@given(_dims, st.data())
def test_reshape(dims, data):
    x = _filled(dims)
    order = tuple(data.draw(st.permutations(dims)))
    np.testing.assert_array_equal(_evaluate("reshape", x, shape=Shape("f32", order)).ravel(), x.ravel())


@given(_dims, st.data())
def test_slice(dims, data):
    slices = []
    for extent in dims:
        start = data.draw(st.integers(0, extent))
        slices.append((start, data.draw(st.integers(start, extent)), data.draw(st.integers(1, 3))))
    x = _filled(dims)
    found = _evaluate("slice", x, slice=tuple(slices))
    for index in _elements(found.shape):
        assert found[index] == x[tuple(s + i * t for i, (s, _, t) in zip(index, slices, strict=True))]
    assert found.shape == tuple(len(range(*s)) for s in slices)


@given(st.lists(st.integers(0, 4), max_size=3).map(tuple), st.data())
def test_pad(dims, data):
    padding = []
    for extent in dims:
        interior = data.draw(st.integers(0, 2))
        spread = extent + max(extent - 1, 0) * interior
        low = data.draw(st.integers(-spread, 3))
        high = data.draw(st.integers(-spread - min(low, 0), 3))
        padding.append((low, high, interior))
    x = _filled(dims)
    found = _evaluate("pad", x, np.float32(-1), padding=tuple(padding))
    for index in _elements(found.shape):
        source = []
        for i, extent, (low, _, interior) in zip(index, dims, padding, strict=True):
            place, rest = divmod(i - low, interior + 1)
            source.append(place if rest == 0 and 0 <= place < extent else None)
        assert found[index] == (-1 if None in source else x[tuple(source)])


@given(_dims.filter(bool), st.data())
def test_concatenate(dims, data):
    axis = data.draw(st.integers(0, len(dims) - 1))
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    pieces = [_filled((*dims[:axis], n, *dims[axis + 1 :]), first=100 * k) for k, n in enumerate(sizes)]
    found = _evaluate("concatenate", *pieces, dimensions=(axis,))
    bounds = np.cumsum([0, *sizes])
    for piece, start, limit in zip(pieces, bounds, bounds[1:], strict=False):
        np.testing.assert_array_equal(np.moveaxis(found, axis, 0)[start:limit], np.moveaxis(piece, axis, 0))


@given(_dims, st.data())
def test_dynamic_slice_and_update(dims, data):
    sizes = tuple(data.draw(st.integers(0, d)) for d in dims)
    starts = [np.int32(data.draw(st.integers(-3, 7))) for _ in dims]
    x, update = _filled(dims), _filled(sizes, first=1000)
    window = tuple(np.clip(int(s), 0, d - n) + np.arange(n) for s, d, n in zip(starts, dims, sizes, strict=True))
    found = _evaluate("dynamic-slice", x, *starts, dynamic_slice_sizes=sizes)
    wanted = x[np.ix_(*window)] if dims else x
    np.testing.assert_array_equal(found, wanted)
    changed = x.copy()
    if dims:
        changed[np.ix_(*window)] = update
    else:
        changed = update
    np.testing.assert_array_equal(_evaluate("dynamic-update-slice", x, update, *starts), changed)


@given(_dims.filter(bool), st.data())
def test_iota(dims, data):
    axis = data.draw(st.integers(0, len(dims) - 1))
    dtype = data.draw(st.sampled_from(["s32", "u8", "f16", "bf16", "f64", "c64"]))
    b = Builder("main")
    found = evaluate(b.finish(b.emit("iota", shape=Shape(dtype, dims), iota_dimension=axis)), [])
    for index in _elements(dims):
        assert found[index] == index[axis]


@given(_dims, st.data())
@settings(max_examples=60)
def test_reduce_with_known_and_unknown_combiners_agree(dims, data):
    dimensions = tuple(sorted(data.draw(st.sets(st.sampled_from(range(len(dims)))) if dims else st.just(()))))
    x = data.draw(st.permutations(range(int(np.prod(dims, dtype=int)))).map(lambda v: np.array(v, np.int32)))
    x = x.reshape(dims) - 3
    opcode = data.draw(st.sampled_from(["add", "multiply", "maximum", "minimum", "and", "or", "xor"]))
    b = Builder("slow")
    left, right = b.parameter(Shape("s32")), b.parameter(Shape("s32"))
    zero = b.constant(np.int32(0))
    slow = b.finish(b.emit(opcode, b.emit("add", left, zero), right))
    start = np.int32(data.draw(st.integers(-2, 2)))
    known = _evaluate("reduce", x, start, dimensions=dimensions, to_apply=scalar_computation(opcode, np.int32))
    general = _evaluate("reduce", x, start, dimensions=dimensions, to_apply=slow)
    np.testing.assert_array_equal(known, general)


def test_known_values_are_not_computed_again():
    b = Builder("main")
    x = b.parameter(Shape("f32"))
    y = b.emit("negate", x)
    computation = b.finish(b.emit("add", y, x))
    assert evaluate(computation, [np.float32(2)]) == 0
    assert evaluate(computation, [np.float32(2)], known={y: np.float32(10)}) == 12


def test_a_lifted_computation_applies_to_each_element():
    b = Builder("scalar")
    x, y = b.parameter(Shape("f32")), b.parameter(Shape("f32"))
    one = b.emit("add", x, b.constant(np.float32(1)))
    computation = b.finish(b.tuple([b.emit("multiply", one, y), b.constant(np.float32(5))]))
    product, five = evaluate(computation, [_filled((2, 3)), np.float32(2)], lifted=(2, 3))
    np.testing.assert_array_equal(product, (_filled((2, 3)) + 1) * 2)
    np.testing.assert_array_equal(five, np.full((2, 3), 5, np.float32))


def test_calls_and_tuples():
    shape = Shape("f32", (2,))
    inner = callee("inner", [shape, shape], lambda b, p, q: b.tuple([b.emit("add", p, q), p]))
    b = Builder("main")
    x, y = b.parameter(shape), b.parameter(shape)
    pair = b.emit("call", x, y, to_apply=inner)
    first = b.emit("get-tuple-element", pair, index=0)
    held = b.emit("optimization-barrier", pair)
    module = Module("m", b.finish(b.tuple([first, b.emit("get-tuple-element", held, index=1), pair])))
    a, c = np.float32([1, 2]), np.float32([3, 4])
    found = run(module, [a, c])
    assert found[0].tolist() == [4, 6] and found[1] is a
    assert found[2][0].tolist() == [4, 6] and found[2][1] is a


def test_one_instruction():
    b = Builder("main")
    root = b.emit("negate", b.parameter(Shape("f32")))
    assert evaluate_instruction(root, [np.float32(3)]) == -3


def test_running_twice_gives_the_same_bits():
    for case in cases():
        if case.name in ("reductions", "dots", "elementwise_f32"):
            first, second = (run(case.module, case.arguments) for _ in range(2))
            for a, b in zip(first, second, strict=True):
                assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
