"""Checks of indices in one comparison: the same elements and faults, proofs, and what stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.compiler.kernel_ir.bounds.verifier import verify
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.nodes import Kernel
from hloom.compiler.kernel_ir.printer import printed
from hloom.compiler.kernel_ir.reader import read
from hloom.compiler.kernel_ir.scopes import settle
from hloom.compiler.kernel_ir.transforms.checks import with_short_checks
from tests.support.loop_nests import interpreted

PARAMS = ("s64*", "s64*", "s64*", "s64", "s64", "s64", "s64")
FROM_END = """\
def f(at, o, fault, n, m, lo, hi):
    for k in range(m):
        v = at[k]
        index = v + n if v < 0 else v
        if index < 0 or index >= n:
            fault[0] = index
            return
        o[index] = o[index] + 1
"""
PLAIN = """\
def f(at, o, fault, n, m, lo, hi):
    for k in range(m):
        v = at[k]
        if v < 0 or v >= n + 1:
            fault[0] = v
            return
        o[v] = o[v] + 1
"""
TWICE = """\
def f(at, o, fault, n, m, lo, hi):
    for k in range(m):
        v = at[k]
        index = v + n if v < 0 else v
        if index < 0 or index >= n:
            fault[0] = index
            return
        if o[index] < 1:
            index_1 = v + n if v < 0 else v
            if index_1 < 0 or index_1 >= n:
                fault[0] = index_1
                return
            o[index_1] = o[index_1] + 2
        index_2 = v + m if v < 0 else v
        if index_2 < 0 or index_2 >= m:
            fault[0] = index_2
            return
        o[index_2] = o[index_2] + 1
"""
SIZES = {"n": 5, "m": 4, "lo": 0, "hi": 1}


def kernel(text: str) -> Kernel:
    return read(text, PARAMS, by_name)


def shortened(text: str, ranges) -> Kernel:
    made = with_short_checks(kernel(text), ranges)
    settle(made)
    return made


@pytest.mark.parametrize("text", [FROM_END, PLAIN, TWICE], ids=["from the end", "plain", "twice"])
def test_elements_and_faults_are_the_same(text):
    made = shortened(text, SIZES)
    assert "u64" in printed(made)
    for first in range(-8, 9):
        given = [np.array([0, 1, first, 2]), np.zeros(6, np.int64), np.full(1, 99), 5, 4, 0, 1]
        wanted, found = interpreted(kernel(text), given), interpreted(made, given)
        for one, other in zip(wanted, found, strict=True):
            assert one.tobytes() == other.tobytes(), first


@pytest.mark.parametrize("text", [FROM_END, PLAIN], ids=["from the end", "plain"])
def test_accesses_behind_them_are_proved(text):
    found = verify(shortened(text, SIZES), {"at": 4, "o": 6, "fault": 1}, {**SIZES, "hi": 1})
    assert {a.status for a in found} == {"proved"}
    short = verify(shortened(text, SIZES), {"at": 4, "o": 4, "fault": 1}, {**SIZES, "hi": 1})
    assert {a.status for a in short} == {"proved", "unproved"}


def test_a_check_is_made_once():
    assert printed(shortened(TWICE, SIZES)).count("fault[0]") == 2


def test_what_may_be_negative_is_no_size():
    for ranges in ({}, {"n": (-1, 5)}, {"n": (None, 5)}):
        assert printed(shortened(FROM_END, ranges)) == printed(kernel(FROM_END))
