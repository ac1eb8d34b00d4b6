"""x.at[i].mul(y) and its like where y is of a wider dtype: computed in the promoted dtype, then converted to x's."""

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import DTypeError

KINDS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "power": np.power,
    "min": np.minimum,
    "max": np.maximum,
}
INDEXES = {"integer": 0, "slice": slice(0, 2), "array": np.array([0, 2])}


@pytest.mark.parametrize("values", [1.5, np.float32(0.5), np.float64(2.5)], ids=repr)
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("kind", KINDS)
def test_integers_and_floats(kind, index, values):
    x, at = np.array([4, 6, 9], np.int32), INDEXES[index]
    expected = x.copy()
    expected[at] = KINDS[kind](x[at].astype(np.float64), values).astype(np.int32)

    def update(a):
        return getattr(a.at[at], kind)(values)

    for result in (update(hnp.asarray(x)), hl.jit(update)(x)):
        assert result.dtype == np.int32
        np.testing.assert_array_equal(result, expected)


def test_a_traced_mask():
    result = hl.jit(lambda x: x.at[x > 5].mul(1.5))(np.array([4, 6, 8], np.int32))
    np.testing.assert_array_equal(result, [4, 9, 12])


def test_floats_of_two_widths_and_division():
    x = np.array([3, 1], np.float32)
    result = hnp.asarray(x).at[0].divide(np.float64(3))
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, [1, 1])
    np.testing.assert_allclose(hnp.asarray([4, 6]).at[0].divide(1.5), [4 / 1.5, 6], rtol=1e-6)
    tiny = hnp.asarray(np.array([1e-30], np.float32)).at[0].mul(np.float64(1e60))
    np.testing.assert_allclose(tiny, [1e30], rtol=1e-6)


def test_elements_that_the_index_does_not_name_keep_their_digits():
    x = np.array([4, 2**24 + 1, 2**31 - 1], np.int32)
    for kind in KINDS:
        result = getattr(hnp.asarray(x).at[0], kind)(1.5)
        np.testing.assert_array_equal(np.asarray(result)[1:], x[1:])


def test_an_integer_takes_the_dtype_of_the_array():
    assert hnp.asarray([4, 6], "uint8").at[0].add(200).tolist() == [204, 6]
    with pytest.raises(DTypeError, match="the Python integer -1"):
        hnp.asarray([4, 6], "uint8").at[0].add(-1)


def test_scatter_of_lax_refuses_a_number_that_it_would_cut():
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    x, indices = hnp.asarray([4, 6]), hnp.asarray([0])
    with pytest.raises(DTypeError):
        lax.scatter_mul(x, indices, 1.5, numbers)
    assert lax.scatter_mul(x, indices, 2, numbers).tolist() == [8, 6]
