"""`hl.config.item_assignment`: in-place operators and writes through views have NumPy's meaning."""

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import DTypeError, ImmutableArrayError, ShapeError


@pytest.fixture(autouse=True)
def assignment():
    with hl.config(item_assignment=True):
        yield


def add_in_place(x):
    x += 1


def add_one_and_double(x):
    add_in_place(x)
    x *= 2
    return x


def first_row(x):
    v = x[0]
    v[0] = 7
    return x


def view_of_a_view(x):
    v = x[1:].T
    w = v[1]
    w[:] = -1
    v[0, 0] += 5
    return x, v, w


def view_in_place(x):
    x[0] += 3
    row = x[1]
    row -= 1
    x[:, ::-1][:, 0] = 9
    return x, row


def read_after_write(x):
    row, column = x[0], x[:, 1]
    x[0, 1] = 40
    x += 2
    return row, column


def reshaped(x):
    x.reshape(-1)[2] = 8
    x.ravel()[0] = 5
    x[None].squeeze()[1, 1] = 6
    x.swapaxes(0, 1)[2, 0] = 4
    return x


def copies(x):
    taken = x[np.array([0, 1])]
    taken[0, 0] = 99
    masked = x[x > 2]
    masked[:] = 98
    flat = x.flatten()
    flat[0] = 97
    other = x[0].copy()
    other[:] = 96
    element = x[0, 0]
    element += 1
    rest = x.T.reshape(-1)
    rest[:] = 95
    return x


def rebound(x):
    y = x
    y = y + 1
    y[0] = 5
    return x


@pytest.mark.parametrize(
    "program",
    [add_one_and_double, first_row, view_of_a_view, view_in_place, read_after_write, reshaped, copies, rebound],
    ids=lambda f: f.__name__,
)
def test_as_numpy(program):
    start = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    expected, found = np.array(start), hnp.asarray(start)
    results = program(expected), program(found)
    for a, b in zip(*[r if isinstance(r, tuple) else (r,) for r in results], strict=True):
        np.testing.assert_array_equal(b, a)
    np.testing.assert_array_equal(found, expected)


def test_in_place_operators_keep_shape_and_dtype():
    x = hnp.asarray([1, 2, 3])
    y = x
    x += 1
    x //= 2
    assert y is x and x.tolist() == [1, 1, 2] and x.dtype == np.int32
    with pytest.raises(DTypeError, match="keeps the dtype"):
        x += 1.5
    with pytest.raises(DTypeError):
        x /= 2
    with pytest.raises(ShapeError, match="keeps the shape"):
        x += hnp.ones((2, 3), "int32")
    z = hnp.ones(3, "float32")
    z += np.ones(3)
    assert z.dtype == np.float32 and z.tolist() == [2, 2, 2]


def test_traced_arrays_and_constants_are_not_changed():
    x = hnp.ones(3)

    def f(y):
        y += 1
        return x + y

    jitted, given = hl.jit(f), hnp.zeros(3)
    assert jitted(given).tolist() == [2, 2, 2] and given.tolist() == [0, 0, 0]
    x += 5
    assert jitted(given).tolist() == [2, 2, 2]
    with pytest.raises(ImmutableArrayError):
        hl.jit(lambda v: v.__setitem__(0, 1))(given)


def test_without_the_setting_nothing_is_a_view():
    hl.config.item_assignment = False
    x = y = hnp.ones(3)
    x += 1
    assert y.tolist() == [1, 1, 1] and x.tolist() == [2, 2, 2]
    with pytest.raises(ImmutableArrayError):
        x[1:][0] = 3


def test_indexes_that_are_arrays():
    x = hnp.arange(6.0).reshape(2, 3)
    row = x[hnp.asarray(1)]
    row[0] = 9
    assert x[1, 0] == 9
    assert x[hnp.asarray(True)].shape == (1, 2, 3)
    assert hl.jit(lambda v, k: v[k])(x, 1).tolist() == [9, 4, 5]
