"""NumPy's functions in programs of `hl.njit`: their dtypes, views, and what they change and refuse."""

from __future__ import annotations

import numpy as np
import pytest
from test_njit_programs import assert_same, check_as_it_is

import hloom as hl
from hloom.errors import ArgumentError, UnsupportedError

NAN, INF = np.nan, np.inf
MATRIX = np.arange(12.0).reshape(3, 4)


# --- views: what is written into one is written into the array


def squeezed(x):
    y = np.squeeze(x)
    y[1] = 7
    z = np.expand_dims(x, (0, 2))
    z[0, 0, 0, 0] = 9
    np.atleast_3d(y)[0] += 1
    return y, z


def exchanged(x):
    x.swapaxes(0, 1)[0] += 1
    np.moveaxis(x, -1, 0)[1] -= 5
    np.rollaxis(x, 1)[2] *= 2
    np.flipud(x)[0, 0] = -1
    np.fliplr(x)[0, 0] = -2
    return np.matrix_transpose(x)


def turned(x):
    for_one = np.rot90(x)
    for_one[0] = 7
    for_three = np.rot90(x, 3)
    for_three[0, 0] = 5
    half = np.rot90(x, 2)
    half[0, 0] = 6
    return for_one, for_three, half, np.rot90(x, 4)


def divided(x):
    left, right = np.split(x, 2, axis=1)
    left[0] = -1
    parts = np.array_split(x, (1, 2))
    parts[1][0, 0] = 100
    np.hsplit(x, 2)[1][:] += right[0]
    return left, right, parts, np.vsplit(x, 3), np.array_split(x, 2)


def raveled(x):
    kept = x.ravel()
    kept[0] = 50
    copy = x[:, ::2].ravel()
    copy[:] = 0
    return kept, copy, x.T.ravel()


def ordered(x):
    return x.flatten("F"), x.ravel(order="F"), x.reshape((2, 6), order="F"), np.reshape(x, (4, 3), order="F")


def broadcast(x):
    wide, narrow = np.broadcast_arrays(x, 2.0)
    return np.broadcast_to(x[0], (2, 4)).sum(axis=0), np.broadcast_to(3, ()), wide * narrow


def windows(x):
    view = np.lib.stride_tricks.sliding_window_view(x, (2, 2))
    return view, np.lib.stride_tricks.sliding_window_view(x, 3, axis=1).sum(axis=-1)


@pytest.mark.parametrize("function", [exchanged, turned, divided, raveled, ordered, broadcast, windows])
def test_views(function):
    check_as_it_is(function, [MATRIX.copy()])


def test_squeezed_views():
    check_as_it_is(squeezed, [np.arange(4).reshape(1, 4)])


def test_arguments_that_are_not_in_c_order():
    def changed(x):
        flat = x.ravel()
        flat[0] = 3
        return flat, np.expand_dims(x, 0), x.reshape(2, 6) + 1

    check_as_it_is(changed, [np.asfortranarray(MATRIX)])
    with pytest.raises(UnsupportedError, match="reshape of an argument"):
        hl.njit(lambda x: x.reshape(2, 6).fill(0))(np.asfortranarray(MATRIX))


@pytest.mark.parametrize("dtype", ["i2", "i4", "u1", "f4"])
def test_bits_in_another_dtype(dtype):
    check_as_it_is(lambda x: x.view(dtype), [np.arange(12).reshape(3, 4)])
    check_as_it_is(lambda x: x.view(np.complex64), [np.arange(24, dtype=dtype).reshape(3, 8)])
    check_as_it_is(lambda x: x.view(dtype), [np.arange(12, dtype=complex).reshape(3, 4) * (1 - 2j)])
    check_as_it_is(lambda x: x.view(np.int64), [np.arange(24, dtype=dtype).reshape(3, 8)])


# --- changes in place


def diagonals(x, y, values):
    np.fill_diagonal(x, values, wrap=True)
    np.fill_diagonal(y, values)


def places(x, values):
    np.put(x, np.array([0, 2, -1]), values)
    np.place(x, x > 4, values)
    np.putmask(x, x < 2, values)
    np.put_along_axis(x, np.array([[0], [1], [3]]), 70.0, 1)


def cleaned(x):
    return np.nan_to_num(x, copy=False, nan=2.0), x


def selected(x, mask, values, rows):
    x[mask] = values
    x[:, mask[0]] = rows
    x[mask[:, 1], 2] = rows[0, :2]


def selected_among_others(x, mask, values):
    x[0, ::2, ..., mask] = values
    x[..., mask, 1] = values.reshape(2, 3, 2)
    x[:, 1, mask] = values + 1
    x[::2, mask, :, 0] = 3


def test_changes_in_place():
    check_as_it_is(diagonals, [np.zeros((7, 3)), np.zeros((3, 3)), np.arange(1.0, 3)])
    check_as_it_is(places, [MATRIX.copy(), np.array([7.0, 8.0])])
    check_as_it_is(cleaned, [np.array([1, NAN, INF, -INF])])
    mask = np.array([[True, False, True, False], [False, True, True, False], [False, True, False, False]])
    x, few = np.zeros((2, 3, 3, 3)), np.array([True, False, True])
    check_as_it_is(selected_among_others, [x, few, np.arange(12.0).reshape(2, 2, 3)])
    check_as_it_is(selected, [MATRIX.copy(), mask, np.arange(5.0) + 30, np.arange(6.0).reshape(3, 2)])


def test_a_mask_that_selects_another_number_of_elements():
    def store(x, values):
        x[x > 1] = values

    compiled = hl.njit(store)
    check_as_it_is(store, [np.arange(5), np.array([7])])
    with pytest.raises(ArgumentError, match="does not select 2") as caught:
        compiled(np.arange(5), np.array([7, 8]))
    assert caught.value.source.line == store.__code__.co_firstlineno + 1


# --- dtypes, and the order of operations


DTYPES = ["i1", "i4", "i8", "f4", "f8", "c16"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_of_sums_of_products(dtype):
    def sums(x, y):
        return [np.cov(x), np.cov(x, y, True, True), np.corrcoef(x, y, False), np.vander(x, 4), np.vander(x, 3, True),
                np.convolve(x, y, "same"),
                np.convolve(x, y), np.correlate(x, y, "full"), np.correlate(y, x, "same"), np.nancumsum(x),
                np.nancumprod(x)]  # fmt: skip

    x = np.arange(1, 6).astype(dtype)
    check_as_it_is(sums, [x, x[::-1].copy()])
    check_as_it_is(lambda x, y: [np.convolve(x, y, m) for m in ("full", "same", "valid")], [x, x[:2].copy()])
    check_as_it_is(lambda x, y: [np.correlate(x, y, m) for m in ("full", "same", "valid")], [x[:2].copy(), x])


@pytest.mark.parametrize("ends", [(0.1, 3.7), (-2, 5), (np.float32(0.1), np.float32(7)), (np.zeros(2), np.ones(2))])
def test_evenly_spaced_numbers_are_those_of_numpy_to_the_last_bit(ends):
    def spaced(a, b):
        return [np.linspace(a, b, 13), np.linspace(a, b, 7, endpoint=False), np.linspace(a, b, 1),
                np.linspace(a, b, 5, dtype=np.int64), np.linspace(a, b, 4, axis=-1)]  # fmt: skip

    for found, wanted in zip(hl.njit(spaced)(*ends), spaced(*ends), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_ranges_of_narrow_numbers_are_wide():
    def ranges(a, b):
        return np.arange(a), np.arange(a, b), np.arange(b, a, -2), np.arange(a, b, dtype=np.int16), np.arange(a, 9.5)

    check_as_it_is(ranges, [np.int8(3), np.int8(9)])
    check_as_it_is(ranges, [np.int16(-3), np.int8(2)])


def test_numbers_in_geometric_progression():
    check_as_it_is(lambda a, b: [np.geomspace(a, b, 7), np.logspace(a, b, 5, base=2.0)], [1.0, 1e6])
    check_as_it_is(lambda a, b: np.geomspace(a, b, 4), [-1.0, -1000.0])
    found = hl.njit(lambda a: np.geomspace(a, 1e6, 7))(1.0)
    np.testing.assert_array_equal(found, 10.0 ** np.arange(7))
    with pytest.raises(ArgumentError, match="includes zero"):
        hl.njit(lambda a: np.geomspace(a, 1.0))(0.0)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_logarithms_of_powers_are_whole(dtype):
    def logarithms(x, y):
        return np.log10(x), np.log2(y)

    most = 22 if dtype == "f8" else 10
    x, y = 10.0 ** np.arange(most), 2.0 ** np.arange(-100, 100)
    found = hl.njit(logarithms)(x.astype(dtype), y.astype(dtype))
    np.testing.assert_array_equal(found[0], np.arange(most, dtype=dtype))
    np.testing.assert_array_equal(found[1], np.arange(-100, 100, dtype=dtype))
    with hl.enable_x64():
        slope = hl.grad(lambda v: hl.njit(lambda x: np.log10(x)).pure(v)[0])(1000.0)
    np.testing.assert_allclose(slope, 1 / (1000 * np.log(10)))


def test_interpolation():
    def interpolated(x, xp, fp):
        return np.interp(x, xp, fp), np.interp(x, xp, fp, left=-1, right=-2), np.interp(x[1:], xp, fp, period=1.5)

    x, xp = np.array([-INF, NAN, -1, 0, 0.5, 1, 1.7, 2, 3, INF]), np.array([0, 1.0, 2])
    for fp in ([-INF, 1, INF], [INF, INF, 2], [1.0, NAN, 3], [1j, 1, 2 + 1j]):
        check_as_it_is(interpolated, [x, xp, np.array(fp)])
    check_as_it_is(lambda x: np.interp(x, np.array([3.0]), np.array([4.0])), [x])
    check_as_it_is(interpolated, [x.astype(np.float32), xp.astype(np.float32), np.arange(3)])


def test_searches():
    def bins(x, edges):
        return np.digitize(x, edges), np.digitize(x, edges, True), np.searchsorted(edges, x)

    x = np.array([0, 0.99, 1, 4.4, 4.5, INF, -INF, NAN])
    check_as_it_is(bins, [x, np.array([1, 3, 4.5, INF, NAN, NAN])])
    check_as_it_is(lambda x, e: np.digitize(x, e), [x, np.array([NAN, INF, 4.5, 3, 1])])
    check_as_it_is(bins, [np.arange(5), np.array([0.5, 1])])
    keys = np.array([1, 2 + 1j, 2 + 3j, NAN])
    check_as_it_is(lambda a, v: [np.searchsorted(a, v, side=s) for s in ("left", "right")],
                   [keys, np.array([NAN, 1.5, 2 + 3j, 2 + 2j])])  # fmt: skip
    with pytest.raises(ArgumentError, match="not monotonic"):
        hl.njit(lambda x, e: np.digitize(x, e))(x, np.array([0, 4.0, 3]))


def test_complex_numbers_are_sorted_as_numpy_does():
    parts = np.array([3, 1, NAN, 2, INF])
    x = np.zeros(15, complex)
    x.real, x.imag = np.repeat(parts, 3), np.resize(np.array([NAN, 2, 1, -INF]), 15)

    def ordered(x):
        return np.sort(x), np.argsort(x), np.sort(x.reshape(5, 3), axis=0), np.sort(x.reshape(3, 5), axis=None)

    for found, wanted in zip(hl.njit(ordered)(x), ordered(x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_parts_of_complex_numbers_are_written_alone():
    def written(z, part):
        z.real[0] = part
        z.imag[1] = part

    for part in (INF, NAN):
        check_as_it_is(written, [np.array([1 + 2j, 3 + 4j]), part])


def test_partitions_have_each_of_several_places_right():
    x = np.random.default_rng(0).permutation(40) % 13
    kth = [0, 5, 1, 17, -5, -1]
    check_as_it_is(lambda x: np.partition(x, (0, 5, 1, 17, -5, -1))[np.array(kth)], [x])
    check_as_it_is(lambda x, k: np.partition(x, k)[k], [x, np.array(kth)])
    check_as_it_is(lambda x: x[np.argpartition(x, (3, 9))][np.array([3, 9])], [x])
    check_as_it_is(lambda x: np.partition(x, 0), [x[:0]])
    with pytest.raises(ArgumentError, match="out of bounds"):
        hl.njit(lambda x, k: np.partition(x, k))(x, np.array([40]))


def test_selections():
    def sets(a, b):
        return np.setxor1d(a, b), np.intersect1d(a, b), np.setdiff1d(a, b), np.union1d(a, b)

    check_as_it_is(sets, [np.array([1, 2, 3, 2, 9]), np.array([2, 5, 9])])
    check_as_it_is(lambda a, b: [np.setxor1d(a, b), np.setdiff1d(a, b)], [np.array([1, NAN]), np.array([2, NAN])])
    check_as_it_is(lambda c, a: np.extract(c, a), [np.array([1, 0, 1, 0]), np.arange(3)])
    check_as_it_is(lambda a: [np.trim_zeros(a, t) for t in ("fb", "f", "b")], [np.array([0, 0, 1, 0, 2, 0])])
    check_as_it_is(lambda a: np.trim_zeros(a), [np.zeros(3)])
    check_as_it_is(lambda a: np.trim_zeros(a), [np.zeros(0)])
    check_as_it_is(lambda a: (sorted(a), sorted(a, reverse=True)), [np.array([3, 1, 2.0])])
    check_as_it_is(lambda a, k: (k in a, k + 7 in a), [np.arange(4), 2])
    check_as_it_is(lambda m: (np.tril(m), np.triu(m, 1), np.tri(-2, 3)), [np.arange(3.0)])
    check_as_it_is(lambda a: np.unwrap(a, period=255), [np.array([0, 75, 150, 225, 300, 430])])
    check_as_it_is(lambda a: np.unwrap(a), [np.array([0, 3.0, 6.5, 14.0, 7.5])])


def test_arguments_by_place_are_numpys():
    check_as_it_is(lambda a, b: np.histogram2d(a, b, 3, None, True), [np.arange(4.0), np.arange(4.0)])
    check_as_it_is(lambda a, tol: np.linalg.matrix_rank(a, tol), [np.diag([1.0, 1e-3]), 1e-2])


def solved(a, b, c):
    return np.linalg.lstsq(a, b), np.linalg.lstsq(a, c, 0.5), np.linalg.lstsq(a.T, b[:2], -1)


@pytest.mark.parametrize("width", [None, 3])
def test_residuals_of_systems(width):
    rng = np.random.default_rng(0)
    b = rng.random(5 if width is None else (5, width))
    a = rng.random((5, 2)) + np.eye(5, 2)
    check_as_it_is(solved, [a, b, b])


# --- what NumPy refuses or replaces


def test_no_elements():
    check_as_it_is(lambda a: np.linalg.det(a), [np.zeros((0, 0))])
    with pytest.warns(RuntimeWarning):
        check_as_it_is(lambda a: (np.median(a), np.nanmedian(a)), [np.zeros(0)])


def all_nan(x):
    return np.nanargmax(x, axis=1)


def no_weights(x):
    return np.average(x[0], weights=x[1])


def decomposed(x):
    return np.linalg.svd(x)


@pytest.mark.parametrize("function", [decomposed, lambda x: np.linalg.matrix_rank(x)])
def test_matrices_with_nan(function):
    with pytest.raises(ArgumentError, match="NaN or infinity"):
        hl.njit(function)(np.array([[1.0, NAN], [0, 1]]))


@pytest.mark.parametrize(("function", "found"), [(all_nan, "all-NaN"), (no_weights, "sum to zero")])
def test_values_that_numpy_refuses(function, found):
    given = np.array([[1.0, 2.0], [NAN, 3.0]])
    assert_same(hl.njit(all_nan)(given), all_nan(given), "result")
    with pytest.raises(ArgumentError, match=found) as caught:
        hl.njit(function)(np.array([[1.0, 2.0], [NAN, NAN]]) if function is all_nan else np.zeros((2, 2)))
    assert caught.value.source.line == function.__code__.co_firstlineno + 1


def taken_along_no_axis(x):
    return np.take(x, 0, 2)


def expanded_far_out(x):
    return np.expand_dims(x, 4)


@pytest.mark.parametrize("function", [taken_along_no_axis, expanded_far_out])
def test_axes_out_of_range(function):
    with pytest.raises(np.exceptions.AxisError):
        hl.njit(function)(MATRIX)


@pytest.mark.parametrize(("function", "most"), [(np.percentile, 100), (np.nanquantile, 1)])
def test_levels_out_of_range(function, most):
    def level(x, q):
        return function(x, q)

    check_as_it_is(level, [np.arange(5.0), most / 3])
    with pytest.raises(ArgumentError, match="not in the range"):
        hl.njit(level)(np.arange(5.0), most + 1.0)


def counted(x):
    return np.bincount(x)


def repeated(x):
    return np.repeat(x, x)


@pytest.mark.parametrize("function", [counted, repeated])
def test_sizes_that_elements_decide(function):
    with pytest.raises(UnsupportedError, match="the size of the result") as caught:
        hl.njit(function)(np.arange(3))
    assert caught.value.source.line == function.__code__.co_firstlineno + 1


def counts(i, w, n):
    return np.bincount(i, minlength=n), np.bincount(i, weights=w, minlength=n), np.bincount(i, w, 12).sum()


def counted_in_few_bits(u, b):
    return (
        np.bincount(u), np.bincount(b), np.bincount(u, minlength=300), np.bincount(u, minlength=3),
        np.bincount(u[:0], minlength=2), np.bincount(u, u / 2.0),
    )  # fmt: skip


def test_counts():
    i, w = np.array([1, 5, 5, 0, 9]), np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    check_as_it_is(counts, [i, w, 10])
    check_as_it_is(counted_in_few_bits, [np.array([3, 200, 3, 7], np.uint8), np.array([True, False, True])])
    check_as_it_is(counted_in_few_bits, [np.zeros(3, np.uint8), np.zeros(2, bool)])
    compiled = hl.njit(counts)
    for arguments, found in (((i, w, 9), "not less than 9"), ((-i, w, 10), "negative")):
        with pytest.raises(ArgumentError, match=found) as caught:
            compiled(*arguments)
        assert caught.value.source.line == counts.__code__.co_firstlineno + 1
