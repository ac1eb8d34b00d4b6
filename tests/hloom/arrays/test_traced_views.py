"""`hl.config.item_assignment` in traced functions: writes, aliases and views as in NumPy, by random programs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import DTypeError, ImmutableArrayError, ShapeError, UnsupportedError

X = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)


@pytest.fixture(autouse=True)
def assignment():
    with hl.config(item_assignment=True):
        yield


# Each takes an array and two small integers, and gives another array: most of them views.
PARTS = {
    "alias": lambda xp, x, a, b: x,
    "row": lambda xp, x, a, b: x[a % x.shape[0]] if x.ndim > 1 else x,
    "slice": lambda xp, x, a, b: x[min(a, x.shape[0] - 1) :],
    "steps": lambda xp, x, a, b: x[:: 1 + b % 2],
    "back": lambda xp, x, a, b: x[::-1],
    "new axis": lambda xp, x, a, b: x[None],
    "last": lambda xp, x, a, b: x[..., : 1 + b % x.shape[-1]],
    "T": lambda xp, x, a, b: x.T,
    "ravel": lambda xp, x, a, b: x.ravel(),
    "reshape": lambda xp, x, a, b: xp.reshape(x, -1),
    "same shape": lambda xp, x, a, b: x.reshape(x.shape),
    "swapaxes": lambda xp, x, a, b: xp.swapaxes(x, 0, -1),
    "moveaxis": lambda xp, x, a, b: xp.moveaxis(x, 0, -1),
    "flip": lambda xp, x, a, b: xp.flip(x),
    "split": lambda xp, x, a, b: xp.array_split(x, 2)[b % 2] if x.shape[0] > 1 else x,
    "squeeze": lambda xp, x, a, b: xp.squeeze(x) if x.size > 1 else x,
    "flatten": lambda xp, x, a, b: x.flatten(),
    "copy": lambda xp, x, a, b: x.copy(),
    "array": lambda xp, x, a, b: xp.array(x),
    "same dtype": lambda xp, x, a, b: x.astype(x.dtype),
    "positive": lambda xp, x, a, b: +x,
    "clip": lambda xp, x, a, b: x.clip(-1000, 1000),
    "conj": lambda xp, x, a, b: xp.conj(x.sum(axis=())),
    "real": lambda xp, x, a, b: xp.real(x),
    "rolled": lambda xp, x, a, b: xp.roll(x, 0),
    "joined": lambda xp, x, a, b: xp.concatenate([x]),
    "repeated": lambda xp, x, a, b: xp.repeat(x, 1, axis=0),
    "tiled": lambda xp, x, a, b: xp.tile(x, 1),
    "power": lambda xp, x, a, b: x**1,
    "sum": lambda xp, x, a, b: x + 1,
    "take": lambda xp, x, a, b: x[np.array([0, -1])],
    "mask": lambda xp, x, a, b: xp.where(x > 3, x, -x),
}


COPIES = frozenset(
    (
        "flatten", "copy", "array", "same dtype", "positive", "clip", "conj", "rolled", "joined", "repeated", "tiled",
        "power", "sum", "take", "mask",
    )
)  # fmt: skip


def add(xp, x, a, b):
    x += a


def scale(xp, x, a, b):
    x *= b


def subtract_itself(xp, x, a, b):
    x -= x[::-1]


def element(xp, x, a, b):
    x[a % x.shape[0]] = b


def several(xp, x, a, b):
    x[np.array([0, -1])] = a


def where(xp, x, a, b):
    x[x > a] = b


def piece(xp, x, a, b):
    x[..., a % x.shape[-1] :] += b


def whole(xp, x, a, b):
    x[:] = x[::-1] * 2


WRITES = {f.__name__: f for f in (add, scale, subtract_itself, element, several, where, piece, whole)}
NUMBERS = st.integers(0, 3)
STEPS = st.lists(
    st.tuples(st.sampled_from([*PARTS, *WRITES, *WRITES, *WRITES]), st.integers(0, 9), NUMBERS, NUMBERS),
    min_size=3, max_size=10,
)  # fmt: skip


def ran(xp, x, steps):
    """All arrays of a program, after its last step."""
    pool = [x.copy()]
    for name, which, a, b in steps:
        one = pool[which % len(pool)]
        if name in PARTS:
            made = PARTS[name](xp, one, a, b)
            # Arrays of hloom are row-major; NumPy's copies of columns are not, and their ravel is a copy.
            pool.append(np.ascontiguousarray(made) if xp is np and name in COPIES else made)
        else:
            WRITES[name](xp, one, a, b)
    return pool


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_random_programs(steps):
    wanted = ran(np, X.copy(), steps)
    with hl.config(item_assignment=True):
        eager = ran(hnp, hnp.array(X), steps)
        given = hnp.array(np.stack([X, X + 1]))
        vectorized = hl.vmap(lambda x: ran(hnp, x, steps))(given)
        traced = hl.jit(lambda x: ran(hnp, x, steps))(X)
    for k, one in enumerate(wanted):
        np.testing.assert_array_equal(np.asarray(traced[k]), one, err_msg=f"{k} of {steps}")
        np.testing.assert_array_equal(np.asarray(eager[k]), one, err_msg=f"{k} of {steps}, eagerly")
        np.testing.assert_array_equal(np.asarray(vectorized[k])[0], one, err_msg=f"{k} of {steps}, vectorized")


def test_gradients_follow_writes():
    def loss(x):
        y = x * 1
        row = y[0]
        row *= 3
        y[1, 0] = 0
        return (y**2).sum()

    scale = np.array([[3.0, 3, 3], [0, 1, 1]], np.float32)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(np.asarray(hl.jit(hl.grad(loss))(x)), 2 * x * scale**2)


def test_writes_within_a_loop_body():
    def body(k, x):
        x = x.copy()
        x[k] += k
        return x

    found = hl.jit(lambda x: hl.lax.fori_loop(0, 3, body, x))(np.zeros(4, np.float32))
    np.testing.assert_array_equal(np.asarray(found), [0, 1, 2, 0])


def refused(function, text):
    with pytest.raises(ImmutableArrayError, match=text) as found:
        hl.jit(function)(hnp.ones((2, 3)))
    assert found.value.source.file == __file__


def test_arrays_of_the_caller_are_not_written():
    outside = hnp.ones(3)

    def argument(x):
        x += 1
        return x

    def part_of_an_argument(x):
        row = x[0]
        row[1] = 2
        return x

    def item(x):
        x[0, 0] = 1
        return x

    def closed_over(x):
        nonlocal outside
        outside += x[0]
        return outside

    def from_a_branch(x):
        y = x * 1

        def assigns():
            y[0, 0] = 5
            return y

        return hl.lax.cond(x.sum() > 0, assigns, lambda: y)

    def loop_state(x):
        def body(k, y):
            y[0] = k
            return y

        return hl.lax.fori_loop(0, 2, body, x)

    for function in (argument, part_of_an_argument, item, loop_state):
        refused(function, "its caller would not see the write")
    refused(closed_over, "made outside of the traced function")
    refused(from_a_branch, "made outside of the traced function")
    np.testing.assert_array_equal(np.asarray(outside), 1)


def test_shapes_and_dtypes_are_kept():
    def wider(x):
        y = x[0] * 1
        y += x
        return y

    def other(x):
        y = (x > 0).astype(np.int32)
        y += 0.5
        return y

    with pytest.raises(ShapeError, match="keeps the shape"):
        hl.jit(wider)(hnp.ones((2, 3)))
    with pytest.raises(DTypeError, match="keeps the dtype"):
        hl.jit(other)(hnp.ones((2, 3)))


@pytest.mark.parametrize("traced", [False, True])
def test_out(traced):
    def program(xp, x):
        y = x.copy()
        total = y[0] * 0
        row = y[1]
        returned = xp.sum(x, axis=0, out=total)
        xp.max(x, 0, row)
        xp.cumsum(x, axis=1, out=y[:, ::-1])
        return y, total, row, returned

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    run = hl.jit(lambda x: program(hnp, x)) if traced else lambda x: program(hnp, hnp.array(x))
    for found, wanted in zip(run(x), program(np, x), strict=True):
        np.testing.assert_array_equal(np.asarray(found), wanted)
    with pytest.raises(ShapeError, match="keeps the shape"):
        hnp.sum(hnp.array(x), axis=1, out=hnp.zeros(3))
    with hl.config(item_assignment=False), pytest.raises(UnsupportedError, match=r"sum\(\.\.\., out=y\)"):
        hnp.sum(hnp.array(x), axis=0, out=hnp.zeros(3))


def test_without_the_setting_a_name_is_bound_anew():
    def program(x):
        y = x * 1
        z, row = y, y[0]
        y += 1
        return y, z, row

    with hl.config(item_assignment=False):
        y, z, row = hl.jit(program)(hnp.ones((2, 3)))
        with pytest.raises(ImmutableArrayError):
            hl.jit(lambda x: x.__setitem__(0, 1))(hnp.ones(3))
    assert y[0, 0] == 2 and z[0, 0] == 1 and row[0] == 1
