"""Donation gives away what hloom owns, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import DonatedArrayError


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
