"""Batched loops that write into an array: what has ended stays as it is, and nothing but the writes takes time."""

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.compiler.passes.simplify import SIMPLIFY
from hloom.ir.rewrite import rewrite
from hloom.ir.text import parse_module

WRITES = {
    "set": lambda xs, k: xs.at[k].set(k + 1.0),
    "add": lambda xs, k: xs.at[k].add(2.0),
    "two": lambda xs, k: xs.at[k].set(3.0).at[k // 2].add(1.0),
    "slice": lambda xs, k: lax.dynamic_update_slice(xs, xs[:2] + 1.0, (k,)),
    "read and write": lambda xs, k: xs.at[k].set(xs[k - 1] + 1.0).at[0].add(xs[k]),
    "elsewhere": lambda xs, k: (xs * 2.0).at[k].set(1.0),
}


def loop(write, stop, xs):
    return lax.while_loop(lambda c: c[0] < stop, lambda c: (c[0] + 1, write(c[1], c[0])), (hnp.int32(0), xs))[1]


@pytest.mark.parametrize("name", WRITES)
def test_batched_loops_of_different_lengths(name):
    stops, arrays = np.array([3, 0, 7, 5], np.int32), np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)
    found = hl.jit(hl.vmap(lambda stop, xs: loop(WRITES[name], stop, xs)))(stops, arrays)
    wanted = np.stack([loop(WRITES[name], hnp.asarray(s), hnp.asarray(x)) for s, x in zip(stops, arrays, strict=True)])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["set", "add", "two", "slice"])
def test_no_choice_of_whole_arrays_is_left(name):
    shapes = (hl.ShapeDtypeStruct((4,), "s32"), hl.ShapeDtypeStruct((4, 1000), "f32"))
    text = hl.jit(hl.vmap(lambda stop, xs: loop(WRITES[name], stop, xs))).lower(*shapes).compile().as_text()
    assert not [line for line in text.splitlines() if " select(" in line and "f32[4,1000]" in line]


def test_masked_slice_at_one_place():
    def one(choose, x, k):
        return lax.cond(choose, lambda: lax.dynamic_update_slice(x, hnp.zeros(2), (k,)), lambda: x)

    flags, x = np.array([True, False, True]), np.arange(15, dtype=np.float32).reshape(3, 5)
    found = hl.jit(hl.vmap(one, in_axes=(0, 0, None)))(flags, x, 2)
    wanted = x.copy()
    wanted[[0, 2], 2:4] = 0
    np.testing.assert_array_equal(found, wanted)


def test_the_mask_of_the_other_branch():
    text = """
HloModule m
ENTRY e {
  p = pred[] parameter(0)
  x = f32[9] parameter(1)
  u = f32[2] parameter(2)
  k = s32[] parameter(3)
  new = f32[9] dynamic-update-slice(x, u, k)
  ROOT r = f32[9] select(p, x, new)
}
"""
    root = rewrite(parse_module(text).entry, SIMPLIFY).root
    assert root.opcode == "dynamic-update-slice"


def test_a_mask_inside_of_rows_stays():
    def one(mask, x, k):
        return hnp.where(mask, x.at[k].set(1.0), x)

    mask, x = np.array([[True, False, True]] * 2), np.zeros((2, 3), np.float32)
    found = hl.jit(hl.vmap(one))(mask, x, np.array([1, 2], np.int32))
    np.testing.assert_array_equal(found, [[0, 0, 0], [0, 0, 1]])
