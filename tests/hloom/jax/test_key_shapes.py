"""Random keys where JAX's libraries describe arrays by shape and dtype."""

import copy
import pickle

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.jax import core


def test_structure_of_keys():
    keys = hl.ShapeDtypeStruct((3,), hl.random.key(0).dtype)
    assert (keys.shape, keys.dtype, keys.ndim) == ((3,), hl.random.key(1).dtype, 1)
    assert isinstance(keys, core.AbstractValue)
    assert not isinstance(hl.random.key(0), core.AbstractValue)
    assert isinstance(hl.ShapeDtypeStruct((), "f32"), core.AbstractValue)
    lowered = hl.jit(hl.vmap(hl.random.normal)).lower(keys)
    assert lowered.out_info == hl.ShapeDtypeStruct((3,), "f32")


def test_structures_can_still_be_copied():
    structure = hl.ShapeDtypeStruct((3,), "f32", weak_type=True)
    assert pickle.loads(pickle.dumps(structure)) == copy.deepcopy(structure) == structure


def test_equal_of_keys():
    keys = hl.random.split(hl.random.key(0))
    np.testing.assert_array_equal(hnp.equal(keys, keys), [True, True])
    np.testing.assert_array_equal(hnp.not_equal(keys, keys[0]), [False, True])


@pytest.mark.parametrize("wrap", [lambda f: f, hl.jit], ids=["eager", "jit"])
def test_lax_moves_keys(wrap):
    keys = hl.random.split(hl.random.key(0), 4)
    words = np.asarray(hl.random.key_data(keys))

    def check(function, want):
        got = wrap(function)(keys)
        assert got.shape == want.shape[:-1] and got.dtype == keys.dtype
        np.testing.assert_array_equal(hl.random.key_data(got), want)

    lax = hl.lax
    check(lambda k: lax.reshape(k, (2, 2)), words.reshape(2, 2, 2))
    check(lambda k: lax.squeeze(lax.reshape(k, (1, 4)), (0,)), words)
    check(lambda k: lax.squeeze(lax.expand_dims(k, (1, -1)), (-1, 1)), words)
    check(lambda k: lax.expand_dims(k, (0,)), words[None])
    where = np.array([True, False, False, True])
    check(lambda k: lax.select(where, k, k[::-1]), np.where(where[:, None], words, words[::-1]))
    check(lambda k: lax.select(k == k[0], k, k[::-1]), np.where(np.eye(4, dtype=bool)[0][:, None], words, words[::-1]))
    check(lambda k: lax.select(False, k, k[::-1]), words[::-1])
    check(lambda k: lax.select_n(where, k, k[::-1]), np.where(where[:, None], words[::-1], words))
    with pytest.raises(TypeError):
        lax.select(where, keys, np.zeros(4))
