"""Eager results that stay views: transposed, broadcast and sliced arrays, read as they are and copied when needed."""

from __future__ import annotations

import copy
import pickle
import sys

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.arrays.array import Strided
from hloom.ir.types import DTYPES


def _matrix(dtype="float32", size=64):
    return hnp.asarray(np.arange(size * size).reshape(size, size).astype(dtype))


def _is_view(x) -> bool:
    return x._data.__class__ is Strided


@pytest.mark.parametrize("name", ["f64", "f32", "f16", "bf16", "s64", "s32", "u8", "pred", "c64", "s4"])
def test_movement_copies_nothing_and_reads_the_same(name):
    values = (np.arange(4096).reshape(64, 64) % 5).astype(DTYPES[name])
    x = hnp.asarray(values)
    for view, expected in (
        (x.T, values.T),
        (x[:, ::2], values[:, ::2]),
        (x[::-1], values[::-1]),
        (hnp.broadcast_to(x[0], (64, 64)), np.broadcast_to(values[0], (64, 64))),
    ):
        assert _is_view(view)
        assert view.dtype == values.dtype and view.shape == expected.shape
        np.testing.assert_array_equal(np.asarray(view | view if name == "pred" else view + view),
                                      expected | expected if name == "pred" else expected + expected)  # fmt: skip
        np.testing.assert_array_equal(np.asarray(view), expected)
        assert not _is_view(view)  # the copy stays


def test_operands_and_results_keep_their_order():
    x = _matrix()
    x.T @ x[0], x.T.sum(0), hnp.where(x.T > 2, x.T, 0), hnp.clip(x.T, 1, 3), x.T * 2.0
    y = x.T
    z = y * 2.0
    assert _is_view(y) and _is_view(z)
    np.testing.assert_array_equal(z, x._value().T * 2)


def test_compiled_functions_read_views():
    x = _matrix()
    expected = x._value().T * 2 + 1
    one, two = hl.jit(lambda a: a * 2 + 1), hl.jit(lambda a: (a * 2 + 1, a))
    for _ in range(3):  # the first call compiles, the later ones go the short way
        np.testing.assert_array_equal(one(x.T), expected)
        np.testing.assert_array_equal(two(x.T)[0], expected)
    donating = hl.jit(lambda a: a * 2 + 1, donate_argnums=0)
    np.testing.assert_array_equal(donating(x.T), expected)
    np.testing.assert_array_equal(hl.vmap(lambda a: a + 1)(x.T), x._value().T + 1)
    np.testing.assert_array_equal(hl.grad(lambda a: (a.T * 3).sum())(x), np.full((64, 64), 3))


def test_a_view_keeps_the_elements_of_a_donated_array():
    step = hl.jit(lambda a: a + 1, donate_argnums=0)
    x = step(_matrix())
    before = x._value().copy()
    view = x.T
    x = step(x)
    x = step(x)
    np.testing.assert_array_equal(view, before.T)


def test_other_libraries_get_row_major_data():
    x = _matrix()
    expected = np.ascontiguousarray(x._value().T)
    assert np.asarray(x.T).flags.c_contiguous
    assert x.T.tobytes() == expected.tobytes()
    if sys.version_info >= (3, 12):  # before, Python classes have no buffers
        assert bytes(memoryview(x.T)) == expected.tobytes()
    assert x.T.__array_interface__.get("strides") is None
    np.testing.assert_array_equal(np.from_dlpack(x.T), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(x.T)), expected)
    np.testing.assert_array_equal(copy.deepcopy(x.T), expected)
    np.testing.assert_array_equal(hl.device_put(x.T), expected)
    assert np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 2).from_address(x.T.unsafe_buffer_pointer())).size
    assert repr(x.T) == repr(hnp.asarray(expected))


def test_deleted_views_and_small_parts():
    x = _matrix()
    view = x.T
    view.delete()
    with pytest.raises(hl.errors.DonatedArrayError):
        view + 1
    assert not _is_view(x[:, 3])  # a column does not keep the matrix alive
    assert x[3, 4]._value().base is None


def test_elements_by_static_positions():
    x, values = _matrix(), _matrix()._value()
    for index in (3, -1, (3, 4), (slice(1, 9), 2), (..., 3), (None, 3), slice(None, None, -2), (), np.int64(5)):
        np.testing.assert_array_equal(x[index], values[index])
        assert isinstance(x[index], hl.Array)
    for index in (64, (0, -65), (0, 0, 0)):
        with pytest.raises(hl.errors.HloomError):
            x[index]
    weak = hnp.asarray([1, 2])
    assert weak[0].weak == weak.weak


def test_functions_that_are_approximated_do_not_depend_on_strides():
    x = hnp.asarray(np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32))
    row = hnp.broadcast_to(x[0], (64, 64))
    for function in (hnp.exp, hnp.tanh, hnp.sin, hnp.log1p):
        np.testing.assert_array_equal(function(x.T), function(hnp.asarray(np.ascontiguousarray(x._value().T))))
        np.testing.assert_array_equal(function(row)[5], function(x[0]))


def test_checks_see_views():
    with hl.config(debug_nans=True), pytest.raises(FloatingPointError):
        hnp.asarray([[0.0, 1.0], [2.0, 3.0]]).T / 0.0
