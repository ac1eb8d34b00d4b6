"""Functions of hloom.numpy that make and move elements, each the same expression as NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from frontend import SHAPES, bfloat16, both, close, one, sample, staged
from hypothesis import given, settings
from hypothesis import strategies as st

import hloom.numpy as hnp

pytestmark = pytest.mark.quick

X = sample((2, 3, 4), "float32")
M = sample((3, 5), "int32", 0, -9, 9)
V = sample((6,), "float64")
E = np.zeros((0, 3), np.float32)

# Each case is an expression in m (numpy or hloom.numpy) and the arrays x (rank 3), a (matrix), v (vector), e (empty).
CASES = """
m.reshape(x, (4, 6))
m.reshape(x, (-1, 2))
m.reshape(x, -1)
m.reshape(x, (3, -1), order="F")
m.reshape(e, (3, 0, 2))
m.ravel(x)
m.ravel(x, order="F")
m.ravel(e)
x.reshape(2, 12)
x.transpose(1, 0, 2)
x.transpose((2, 0, 1))
x.T
x.flatten()
x.swapaxes(0, 2)
m.squeeze(x[:, :1])
m.squeeze(x[:1, :, :1], axis=(0, 2))
m.expand_dims(x, 0)
m.expand_dims(x, (0, -1))
m.broadcast_to(v, (3, 6))
m.broadcast_to(a[:, :1], (2, 3, 5))
m.broadcast_to(e[:, :1], (0, 4))
m.broadcast_to(m.zeros((1, 1)), (0, 3))
m.broadcast_arrays(a, a[:1], a[:, :1])
m.atleast_1d(v[0])
m.atleast_2d(v)
m.atleast_3d(v)
m.atleast_3d(a)
m.atleast_3d(v[0])
m.transpose(x)
m.transpose(x, (0, 2, 1))
m.permute_dims(x, (1, 2, 0))
m.moveaxis(x, 0, -1)
m.moveaxis(x, (0, 1), (2, 0))
m.rollaxis(x, 2)
m.rollaxis(x, 0, 3)
m.swapaxes(x, 0, -1)
m.matrix_transpose(x)
m.concatenate([a, a[:1]])
m.concatenate([a, a], axis=-1)
m.concatenate([a, a], axis=None)
m.concatenate([e, e])
m.concatenate([e, a[:, :3].astype("float32")])
m.stack([v, v])
m.stack([a, a], axis=-1)
m.unstack(x, axis=1)
m.hstack([v, v])
m.hstack([a, a])
m.vstack([v, v])
m.dstack([a, a])
m.column_stack([v, v])
m.block([[a, a], [a, a]])
m.block([v, v])
m.append(v, v[:2])
m.append(a, a, 0)
m.split(v, 3)
m.split(a, [1, 3], axis=1)
m.split(v, [2, 1, 10])
m.array_split(v, 4)
m.hsplit(v, 2)
m.vsplit(a, 3)
m.dsplit(x, 2)
m.tile(v, 2)
m.tile(a, (2, 1, 3))
m.tile(x, (0, 1))
m.repeat(a, 2)
m.repeat(a, 3, axis=1)
m.repeat(a, 0, axis=0)
m.repeat(v, [0, 1, 2, 0, 3, 1])
m.resize(v, (3, 5))
m.resize(v, (2,))
m.flip(x)
m.flip(x, (0, 2))
m.fliplr(a)
m.flipud(a)
m.rot90(a)
m.rot90(a, 2)
m.rot90(a, 3)
m.rot90(x, -1, (1, 2))
m.roll(v, 2)
m.roll(a, -7)
m.roll(a, (1, 2), (0, 1))
m.roll(a, 3, (0, 1))
m.roll(e, 2)
m.delete(a, 1, 0)
m.delete(v, [0, -1])
m.delete(v, slice(1, 4))
m.insert(v, 2, 9.0)
m.insert(a, 1, a[0], 0)
m.diagonal(a)
m.diagonal(a, 2)
m.diagonal(a, -1)
m.diagonal(a, 9)
m.diagonal(x, 0, 2, 0)
m.diag(v)
m.diag(v, 2)
m.diag(v, -3)
m.diag(a, 1)
m.diagflat(a)
m.diag(e[:, 0])
m.trace(a)
m.trace(x, 1, 1, 2)
m.tril(a)
m.tril(x, -1)
m.triu(a, 1)
m.triu(a, -5)
m.vander(v)
m.vander(v, 3, increasing=True)
m.meshgrid(v, v[:2])
m.meshgrid(v, v[:2], v[:3], indexing="ij")
m.meshgrid(v, v[:2], sparse=True)
m.where(a > 0, a, -1)
m.where(a > 0, a, a.astype("float64"))
m.where(v > 0, a[0, 0], v)
m.where(a, 1.0, a)
m.select([a > 2, a < 0], [a, -a], 7)
m.ediff1d(v)
m.copysign(v, -v)
m.astype(v, "int32")
v.astype(bool)
m.full_like(a, 3)
m.zeros_like(x)
m.ones_like(a, dtype="float64")
m.array([v, v + 1])
m.array([[v[0], 2.0], [3.0, v[1]]])
m.array(a, ndmin=4)
m.pad(a, 1)
m.pad(a, ((1, 2), (0, 3)), constant_values=4)
m.pad(a, 2, constant_values=((1, 2), (3, 4)))
m.pad(a, {1: (1, 2)})
m.pad(a, (2, 3), mode="edge")
m.pad(a, (2, 4), mode="reflect")
m.pad(v, (13, 9), mode="reflect")
m.pad(v, (4, 3), mode="reflect", reflect_type="odd")
m.pad(a, (2, 4), mode="symmetric")
m.pad(v, (13, 9), mode="symmetric")
m.pad(v, (3, 2), mode="symmetric", reflect_type="odd")
m.pad(a, (2, 4), mode="wrap")
m.pad(v, (13, 9), mode="wrap")
m.pad(v, (3, 2), mode="linear_ramp", end_values=(5, -4))
m.pad(v, (3, 2), mode="maximum")
m.pad(v, (3, 2), mode="minimum", stat_length=2)
m.pad(v, (3, 2), mode="mean")
m.pad(a, (3, 2), mode="median", stat_length=2)
m.pad(v[:1], (2, 2), mode="reflect")
""".strip().splitlines()


@pytest.mark.parametrize("case", CASES)
def test_the_same_expression_in_numpy(case):
    def run(m):
        return lambda x, a, v, e: eval(case, {"m": m, "x": x, "a": a, "v": v, "e": e})

    expected = run(np)(X, M, V, E)
    expected = list(expected) if isinstance(expected, (list, tuple)) else [expected]
    results = both(run(hnp), X, M, V, E)
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        close(result, wanted)


@pytest.mark.parametrize(
    "case",
    """
m.zeros((2, 3))
m.ones(4, dtype="int32")
m.full((2, 2), 7)
m.full((2, 3), np.arange(3))
m.empty((0, 2))
m.eye(3)
m.eye(3, 5, 1)
m.eye(4, k=-2, dtype="int32")
m.identity(2)
m.tri(3, 5, 1)
m.arange(5)
m.arange(2, 9)
m.arange(9, 2, -2)
m.arange(3, 3)
m.arange(0.0, 1.0, 0.125)
m.arange(1, 2, 0.3)
m.arange(5.0)
m.arange(3, dtype="float64")
m.linspace(0, 1, 5)
m.linspace(-2.0, 7.0, 11)
m.linspace(0, 10, 5, endpoint=False)
m.linspace(3, 4, 1)
m.linspace(3, 4, 0)
m.linspace(np.zeros(2), np.array([1.0, 3.0]), 4, axis=1)
m.linspace(0, 9, 4, dtype="int32")
m.logspace(0, 3, 4)
m.geomspace(1, 1000, 4)
m.hanning(7)
m.hamming(8)
m.blackman(9)
m.bartlett(6)
m.bartlett(1)
m.hanning(1)
m.hamming(0)
m.geomspace(-1, -16, 5)
m.indices((2, 3))
m.broadcast_shapes((2, 1), (3,), ())
m.array([[1, 2], [3, 4]])
m.array([1.5, 2])
m.array([True, False])
m.array([])
m.array(3)
m.array([[], []])
m.asarray([1 + 2j, 3])
""".strip().splitlines(),
)
def test_arrays_from_nothing(case):
    expected = eval(case, {"m": np, "np": np})
    result = eval(case, {"m": hnp, "np": np})
    if isinstance(expected, tuple):
        assert result == expected
        return
    close(result, np.asarray(expected), None, 4.0)
    traced = staged(lambda: eval(case, {"m": hnp, "np": np}))
    np.testing.assert_array_equal(traced, np.asarray(result))
    # Python numbers are 32 bits wide unless NumPy arrays of 64 bits or a dtype say otherwise.
    if "np." not in case and "float64" not in case:
        assert result.dtype in ("int32", "float32", "bool", "complex64")


def test_dtypes_are_kept_by_movement():
    for dtype in ("bool", "int8", "uint64", "float16", bfloat16, "complex128"):
        x = sample((2, 3), dtype)
        for function in (hnp.ravel, hnp.transpose, hnp.flip, lambda x: hnp.pad(x, 1), lambda x: hnp.roll(x, 1)):
            assert one(function, x).dtype == dtype
        np.testing.assert_array_equal(one(lambda x: hnp.tile(x, 2), x), np.tile(x, 2))


def test_asarray_copies_memory_that_others_can_write():
    source = np.arange(4.0)
    array = hnp.asarray(source)
    source[0] = 9
    assert float(array[0]) == 0


def test_roll_by_a_traced_shift():
    for shift in (0, 2, -1, 13):
        np.testing.assert_array_equal(one(lambda v, s: hnp.roll(v, s), V, np.int32(shift)), np.roll(V, shift))


def test_fill_diagonal():
    expected = M.copy()
    np.fill_diagonal(expected, 5)
    np.testing.assert_array_equal(one(lambda a: hnp.fill_diagonal(a, 5), M), expected)
    expected = M.copy()
    np.fill_diagonal(expected, [1, 2, 3])
    np.testing.assert_array_equal(one(lambda a: hnp.fill_diagonal(a, hnp.array([1, 2, 3])), M), expected)


def test_names_of_the_module():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        hnp.nonsense  # noqa: B018
    assert {"add", "argsort", "float_"} <= set(dir(hnp)) and not any(n.startswith("_") for n in dir(hnp))


@settings(max_examples=60)
@given(st.sampled_from(SHAPES), st.data())
def test_random_reshapes_and_transposes(shape, data):
    x = sample(shape, "float32")
    order = data.draw(st.permutations(range(len(shape))))
    target = data.draw(st.permutations(shape))
    result = one(lambda x: hnp.reshape(hnp.transpose(x, order), target), x)
    np.testing.assert_array_equal(result, np.transpose(x, order).reshape(target))


@settings(max_examples=80)
@given(
    st.sampled_from(["constant", "edge", "reflect", "symmetric", "wrap"]),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=2),
)
def test_random_padding(mode, axes):
    x = sample([n for n, _, _ in axes], "int32", 0, -50, 50)
    widths = [(low, high) for _, low, high in axes]
    np.testing.assert_array_equal(one(lambda x: hnp.pad(x, widths, mode=mode), x), np.pad(x, widths, mode=mode))
