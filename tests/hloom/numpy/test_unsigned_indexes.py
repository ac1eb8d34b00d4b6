"""Indexes of uint64 from 2^63 on lie beyond the end, eagerly and compiled: they are not negative."""

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax

FAR = np.uint64(2**63 + 1)
X = np.arange(300.0)

READS = {
    "element": (lambda x, k: x[k], 299.0),
    "array": (lambda x, k: x[k[None]], [299.0]),
    "with_signed": (lambda x, k: x.reshape(150, 2)[k[None], hnp.asarray([-1], "int8")], [299.0]),
    "scalar_with_signed": (lambda x, k: x.reshape(150, 2)[k, hnp.asarray(-2, "int32")], 298.0),
    "take_clip": (lambda x, k: hnp.take(x, k, mode="clip"), 299.0),
    "take_fill": (lambda x, k: hnp.take(x, k, mode="fill"), np.nan),
    "take_wrap": (lambda x, k: hnp.take(x, k, mode="wrap"), float((2**63 + 1) % 300)),
    "get_clip": (lambda x, k: x.at[k].get(mode="clip"), 299.0),
    "get_fill": (lambda x, k: x.at[k].get(mode="fill"), np.nan),
    "take_along_axis": (lambda x, k: hnp.take_along_axis(x, k[None], 0, mode="clip"), [299.0]),
    "dynamic_slice": (lambda x, k: lax.dynamic_slice(x, (k,), (2,)), [298.0, 299.0]),
    "dynamic_slice_mixed": (lambda x, k: lax.dynamic_slice(x.reshape(150, 2), (k, np.int32(0)), (1, 2)), [[298, 299]]),
    "dynamic_index": (lambda x, k: lax.dynamic_index_in_dim(x, k), [299.0]),
    "vmap": (lambda x, k: hl.vmap(lambda i: lax.dynamic_slice(x, (i,), (2,)))(k[None]), [[298.0, 299.0]]),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_beyond_the_end(name):
    function, expected = READS[name]
    for result in (function(hnp.asarray(X), hnp.asarray(FAR)), hl.jit(function)(X, FAR)):
        np.testing.assert_array_equal(result, expected)


WRITES = {
    "set": (lambda x, k: x.at[k].set(-1.0), []),
    "set_clip": (lambda x, k: x.at[k].set(-1.0, mode="clip"), [299]),
    "set_with_signed": (lambda x, k: x.reshape(150, 2).at[k, hnp.asarray(0, "int32")].set(-1.0).ravel(), []),
    "add": (lambda x, k: x.at[k[None]].add(1.0), []),
    "update_slice": (lambda x, k: lax.dynamic_update_slice(x, hnp.full(2, -1.0, x.dtype), (k,)), [298, 299]),
    "update_slice_vmap": (
        lambda x, k: hl.vmap(lambda i: lax.dynamic_update_slice(x, hnp.full(2, -1.0, x.dtype), (i,)))(k[None])[0],
        [298, 299],
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_beyond_the_end(name):
    function, changed = WRITES[name]
    expected = X.copy()
    expected[changed] = -1.0
    for result in (function(hnp.asarray(X), hnp.asarray(FAR)), hl.jit(function)(X, FAR)):
        np.testing.assert_array_equal(result, expected)


def test_the_gradient_goes_to_the_element_that_was_read():
    g = hl.jit(hl.grad(lambda x, k: x[k]))(X, FAR)
    np.testing.assert_array_equal(np.nonzero(np.asarray(g))[0], [299])


def test_static_integers_wider_than_32_bits():
    x = hnp.asarray(X)
    for k in (2**31, 2**63, 2**70):
        assert float(x.at[k].get(mode="clip")) == 299.0
        np.testing.assert_array_equal(x.at[k].set(-1.0), X)
        np.testing.assert_array_equal(lax.dynamic_slice(x, (k,), (1,)), [299.0])
    assert float(x.at[-(2**70)].get(mode="clip")) == 0.0
