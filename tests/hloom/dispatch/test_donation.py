"""Donation gives away what hloom owns, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import DonatedArrayError
from hloom.runtime.buffer import address


def add_five():
    return hl.jit(lambda x: x + 5, donate_argnums=0)


def test_a_donated_array_is_gone():
    x = hnp.asarray(np.ones(4, np.float32))
    assert np.asarray(add_five()(x)).tolist() == [6] * 4
    with pytest.raises(DonatedArrayError):
        x + 1


@pytest.mark.parametrize("writeable", [True, False])
def test_a_callers_numpy_array_keeps_its_values(writeable):
    function = add_five()
    x = np.ones(4, np.float32)
    x.flags.writeable = writeable
    for _ in range(3):
        assert np.asarray(function(x)).tolist() == [6] * 4
    assert x.tolist() == [1] * 4 and x.flags.writeable == writeable


@pytest.mark.parametrize("make", [lambda: hnp.zeros(()), lambda: hnp.ones((), "f32"), lambda: hnp.full((), 7, "f32")])
def test_constants_that_others_hold_keep_their_values(make):
    before = float(make())
    function = add_five()
    for _ in range(3):
        assert float(function(make())) == before + 5
    assert float(make()) == before


def test_two_equal_constants_may_be_donated_together():
    function = hl.jit(lambda x, y: (x + 1, y + 2), donate_argnums=(0, 1))
    one, two = function(hnp.zeros(()), hnp.zeros(()))
    assert (float(one), float(two)) == (1, 2)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "bool", "complex64"])
def test_results_have_the_array_interface(dtype):
    x = hl.jit(lambda v: v | v if dtype == "bool" else v * 1)(np.ones(3, dtype))
    for array in (x, hnp.ones(3, dtype)):
        assert array.__array_interface__["data"][0] == np.asarray(array).ctypes.data
        assert array.__array_interface__["typestr"] == np.dtype(dtype).str


def place_of(array) -> int:
    """The address of its data, without a word to the array: reading its array interface lends the memory out."""
    return address(array._value())


def views():
    x = hnp.asarray(np.ones(10, np.float32)) * 1
    yield x, x.reshape(2, 5)
    x = hnp.asarray(np.ones(10, np.float32)) * 1
    yield x, x[2:4]
    x = hl.jit(lambda v: v * 1)(hnp.ones(10))
    yield x, x[None]
    x = hl.jit(lambda v: v * 1)(hnp.ones(10))
    yield x, np.asarray(x)
    x = hl.jit(lambda v: v * 1)(hnp.ones(10))
    yield x, np.from_dlpack(x)
    x = hl.jit(lambda v: v * 1)(hnp.ones(10))
    yield x, hl.device_put(x)


def test_memory_that_something_else_looks_at_keeps_its_values():
    for x, view in views():
        assert np.asarray(add_five()(x)).tolist() == [6] * 10
        assert x.is_deleted()
        assert (np.asarray(view) == 1).all()


def test_views_of_an_array_that_was_assigned_to_keep_their_elements():
    x = hnp.asarray(np.zeros(5000, np.float32)) * 1
    views = []
    with hl.config(item_assignment=True):
        for turn in range(3):
            views.append(np.asarray(x))
            x[0] = turn + 1
    others = [np.full(5000, -1.0, np.float32) for _ in range(20)]
    assert [view[0] for view in views] == [0, 1, 2] and all((view[1:] == 0).all() for view in views)
    del others


def test_memory_that_nothing_else_looks_at_is_reused():
    function = add_five()
    x = hl.jit(lambda v: v * 1)(hnp.ones(1000))
    place = place_of(x)
    for _ in range(3):
        x = function(x)
        assert place_of(x) == place


def test_a_view_whose_array_is_gone_is_reused():
    x = (hnp.asarray(np.ones(10, np.float32)) * 1).reshape(2, 5)
    place = place_of(x)
    assert place_of(add_five()(x)) == place
