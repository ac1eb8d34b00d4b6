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
        y = y.copy()
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


# Functions of the namespace with an operand of 2 × 6 elements, or what NumPy makes of it first.
FUNCTIONS = {
    "reshape": lambda xp, x: xp.reshape(x, (3, 4)),
    "reshape by name": lambda xp, x: xp.reshape(x, shape=(3, -1)),
    "reshape in order": lambda xp, x: xp.reshape(x.T, (3, 4), order="F"),
    "reshape to the same": lambda xp, x: xp.reshape(x, (2, 6)),
    "ravel": lambda xp, x: xp.ravel(x),
    "ravel of columns": lambda xp, x: xp.ravel(x.T),
    "squeeze": lambda xp, x: xp.squeeze(x[:1]),
    "expand_dims": lambda xp, x: xp.expand_dims(x, 1),
    "atleast_1d": lambda xp, x: xp.atleast_1d(x),
    "atleast_3d": lambda xp, x: xp.atleast_3d(x)[..., 0],
    "atleast_2d of two": lambda xp, x: xp.atleast_2d(x[0], x[1])[1],
    "transpose": lambda xp, x: xp.transpose(x),
    "transpose of axes": lambda xp, x: xp.transpose(x.reshape(2, 3, 2), (1, 0, 2)),
    "permute_dims": lambda xp, x: xp.permute_dims(x, axes=(1, 0)),
    "matrix_transpose": lambda xp, x: xp.matrix_transpose(x),
    "moveaxis": lambda xp, x: xp.moveaxis(x, 0, -1),
    "rollaxis": lambda xp, x: xp.rollaxis(x, 1),
    "swapaxes": lambda xp, x: xp.swapaxes(x, 0, 1),
    "flip": lambda xp, x: xp.flip(x, axis=1),
    "rot90": lambda xp, x: xp.rot90(x),
    "real": lambda xp, x: xp.real(x),
    "split": lambda xp, x: xp.split(x, [2, 3], axis=1)[2],
    "hsplit": lambda xp, x: xp.hsplit(x, 2)[1],
    "unstack": lambda xp, x: xp.unstack(x, axis=1)[3],
    "unpacked": lambda xp, x: next(second for _, second in [xp.reshape(x, (2, 3, 2))]),
    "copy": lambda xp, x: xp.reshape(x, (2, 6), copy=True),
    "flatten": lambda xp, x: x[0].flatten(),
    "concatenate": lambda xp, x: xp.concatenate([x]),
    "hstack": lambda xp, x: xp.hstack((x,)),
    "conj": lambda xp, x: xp.conj(x),
    "conj of an array": lambda xp, x: x.conj(),
    "plus": lambda xp, x: +x,
    "power": lambda xp, x: x**1,
    "sum": lambda xp, x: xp.sum(x, axis=()),
    "max": lambda xp, x: x[:, None].max(1),
    "cumsum": lambda xp, x: xp.cumsum(x[:1], axis=0),
    "clip": lambda xp, x: xp.clip(x, None, None),
    "round": lambda xp, x: xp.round(xp.asarray(x, dtype="int32")),
    "diff": lambda xp, x: xp.diff(x, n=0),
    "roll": lambda xp, x: xp.roll(x, 0),
    "tile": lambda xp, x: xp.tile(x, 1),
    "pad": lambda xp, x: xp.pad(x, 0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_the_views_that_numpys_give(name):
    ours, theirs = hnp.arange(12.0).reshape(2, 6), np.arange(12.0).reshape(2, 6)
    for xp, x in ((hnp, ours), (np, theirs)):
        v = FUNCTIONS[name](xp, x)
        v[..., 1] = -1
        v *= 2
        v[...] += 3
    np.testing.assert_array_equal(np.asarray(ours), theirs)


def test_the_parts_of_complex_arrays_are_views():
    x, y = hnp.asarray([1 + 2j, 3 + 4j]), np.asarray([1 + 2j, 3 + 4j])
    for xp, z in ((hnp, x), (np, y)):
        xp.real(z)[0] = 7
        xp.imag(z)[:] *= 2
    np.testing.assert_array_equal(np.asarray(x), y)


def test_without_the_setting_functions_are_what_they_were():
    with hl.config(item_assignment=False):
        assert not hasattr(hnp.conj, "__wrapped__") or "owned" not in hnp.conj.__code__.co_name
        x = hnp.ones(3)
        assert hnp.conj(x) is x and hnp.reshape(x, 3) is x


def test_functions_under_jit_give_no_views():
    @hl.jit
    def f(x):
        y = hnp.reshape(x, (4,))
        return y.at[0].set(9)

    x = hnp.arange(4.0).reshape(2, 2)
    assert f(x)[0] == 9 and x[0, 0] == 0
