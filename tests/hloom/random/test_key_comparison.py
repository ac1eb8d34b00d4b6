"""Keys compare element by element, and have no hash."""

import numpy as np
import pytest

import hloom as hl
from hloom import random
from hloom.errors import ArgumentError


def test_equal_keys():
    key = random.key(0)
    again = random.wrap_key_data(random.key_data(key))
    assert (again == key).dtype == np.bool_ and bool(again == key) and not bool(again != key)
    assert not bool(random.key(1) == key) and bool(random.key(1) != key)


def test_arrays_of_keys_broadcast():
    keys = random.split(random.key(0), 3)
    assert (keys == keys[1]).tolist() == [False, True, False]
    assert (keys != keys[1]).tolist() == [True, False, True]
    assert hl.jit(lambda a, b: a == b)(keys, keys[2]).tolist() == [False, False, True]


def test_what_is_no_key():
    key = random.key(0)
    assert (key == None) is False and (key != None) is True and key != "key"  # noqa: E711
    for other in (3, np.zeros(2, np.uint32), random.key_data(key), random.key(0, impl="rbg")):
        with pytest.raises(ArgumentError, match="repair"):
            key == other  # noqa: B015
    with pytest.raises(TypeError, match="a hash of a random key"):
        hash(key)
